//! The version of runc that runs the containers, and its known vulnerabilities.
//!
//! It must never call a version good that it cannot parse.

use std::fmt;

/// A version of runc; a pre-release is lower than its release.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Version {
    numbers: [u32; 3],
    /// The number of the pre-release; the release itself has the largest.
    candidate: u32,
}

/// The vulnerabilities of November 2025: masked paths, /dev/console and writes to /proc can be redirected by
/// somebody who chooses a container's mounts, or shares a mount with a container that starts.
pub(super) const HOLES: &str = "CVE-2025-31133, CVE-2025-52565 and CVE-2025-52881";

const RELEASE: u32 = u32::MAX;

pub(super) const fn release(numbers: [u32; 3]) -> Version {
    Version { numbers, candidate: RELEASE }
}

pub(super) const fn candidate(numbers: [u32; 3], candidate: u32) -> Version {
    Version { numbers, candidate }
}

/// For each series: the first version that has them, and the first one without them.
const SERIES: [(Version, Version); 3] = [
    (candidate([0, 0, 0], 0), release([1, 2, 8])),
    (candidate([1, 3, 0], 0), release([1, 3, 3])),
    (candidate([1, 4, 0], 0), candidate([1, 4, 0], 3)),
];

impl Version {
    /// Parses a version as engines report it: `1.1.5+ds1`, `1.0.0-rc93`, `1.4.0-rc.2`, `v1.2.8`,
    /// `1.2.8-0ubuntu1`.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let text = text.trim().trim_start_matches('v');
        let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (numbers, rest) = text.split_at(end);
        // Earlier than any release candidate, and of unknown order.
        if ["-alpha", "-beta", "-dev"].iter().any(|stage| rest.starts_with(stage)) {
            return None;
        }
        let numbers: Option<Vec<u32>> = numbers.split('.').map(|number| number.parse().ok()).collect();
        let &[major, minor, patch] = numbers?.as_slice() else { return None };
        let pre = rest.strip_prefix(['-', '~']).and_then(|rest| rest.strip_prefix("rc"));
        let candidate = match pre {
            Some(pre) => {
                let digits = pre.trim_start_matches('.');
                let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
                digits.get(..end)?.parse().ok()?
            }
            // Text that a distribution adds to a release.
            None => RELEASE,
        };
        Some(Self { numbers: [major, minor, patch], candidate })
    }

    /// The version that fixes the vulnerabilities of this one; `None` if it has none.
    pub(super) fn mended_by(self) -> Option<Self> {
        self.mended_in(&SERIES)
    }

    /// The same for other vulnerabilities, given by series.
    pub(super) fn mended_in(self, series: &[(Self, Self)]) -> Option<Self> {
        series.iter().find(|(first, mended)| *first <= self && self < *mended).map(|(_, mended)| *mended)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [major, minor, patch] = self.numbers;
        write!(f, "{major}.{minor}.{patch}")?;
        if self.candidate == RELEASE { Ok(()) } else { write!(f, "-rc.{}", self.candidate) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_with_the_vulnerabilities_are_told_from_those_without() {
        for (text, mended) in [
            ("1.0.0-rc93", Some("1.2.8")),
            ("1.0.0-rc10+dev", Some("1.2.8")),
            ("0.1.1", Some("1.2.8")),
            ("1.1.5+ds1", Some("1.2.8")),
            ("1.1.12-0ubuntu2~22.04.1", Some("1.2.8")),
            ("v1.2.7", Some("1.2.8")),
            ("1.2.8", None),
            ("1.2.8-1.el9", None),
            ("1.2.10", None),
            ("1.3.0-rc.1", Some("1.3.3")),
            ("1.3.0", Some("1.3.3")),
            ("1.3.2", Some("1.3.3")),
            ("1.3.3", None),
            ("1.4.0-rc.1", Some("1.4.0-rc.3")),
            ("1.4.0-rc.2", Some("1.4.0-rc.3")),
            ("1.4.0~rc.2", Some("1.4.0-rc.3")),
            ("1.4.0-rc.3", None),
            ("1.4.0", None),
            ("1.10.0", None),
            ("2.0.0", None),
        ] {
            let version = Version::parse(text).expect(text);
            assert_eq!(version.mended_by().map(|v| v.to_string()).as_deref(), mended, "{text}");
        }
        for text in ["1.4.0-beta.1", "1.4.0-alpha", "1.4.0-dev+x"] {
            assert_eq!(Version::parse(text), None, "{text}");
        }
        for text in ["", "N/A", "unknown", "1", "1.2", "1.2.x", "1.2.3.4", "1.0.0-rc", "spec: 1.0.2"] {
            assert_eq!(Version::parse(text), None, "{text}");
        }
    }
}
