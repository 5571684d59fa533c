//! The results of the doctor: checks, and a verdict over all of them.
//!
//! A check must never contain a secret: it is printed as it is.

use serde::Serialize;
use serde_json::{Value, json};

/// The subjects of checks, in the order in which they are examined. Their names are part of the JSON output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Group {
    Configuration,
    Store,
    Daemon,
    Mounts,
    Engine,
    Images,
    Container,
    #[serde(rename = "way in")]
    WayIn,
    #[serde(rename = "room")]
    Capacity,
    #[serde(rename = "way out")]
    WayOut,
}

impl Group {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Configuration => "configuration",
            Self::Store => "store",
            Self::Daemon => "daemon",
            Self::Mounts => "mounts",
            Self::Engine => "engine",
            Self::Images => "images",
            Self::Container => "container",
            Self::WayIn => "way in",
            Self::Capacity => "room",
            Self::WayOut => "way out",
        }
    }
}

/// The result of one check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Status {
    Ok,
    Warn,
    Fail,
}

/// One check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Check {
    pub(super) group: Group,
    /// The same in every version, for programs.
    pub(super) name: &'static str,
    pub(super) status: Status,
    /// A sentence that can be understood by itself.
    pub(super) found: String,
    /// The consequence of a defect, and what to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) advice: Option<String>,
    /// Whether the daemon starts in spite of this failure, because it does not test for it.
    #[serde(skip)]
    pub(super) unseen_by_serve: bool,
}

/// The checks of one group, while they are collected.
pub(super) struct Checks {
    group: Group,
    made: Vec<Check>,
}

impl Checks {
    pub(super) fn of(group: Group) -> Self {
        Self { group, made: Vec::new() }
    }

    pub(super) fn ok(&mut self, name: &'static str, found: impl Into<String>) {
        self.add(name, Status::Ok, found.into(), None, false);
    }

    pub(super) fn warn(&mut self, name: &'static str, found: impl Into<String>, advice: impl Into<String>) {
        self.add(name, Status::Warn, found.into(), Some(advice.into()), false);
    }

    /// The daemon would not start, or could serve nobody.
    pub(super) fn fail(&mut self, name: &'static str, found: impl Into<String>, advice: impl Into<String>) {
        self.add(name, Status::Fail, found.into(), Some(advice.into()), false);
    }

    /// The daemon would start, but must not.
    pub(super) fn unsafe_to_serve(
        &mut self,
        name: &'static str,
        found: impl Into<String>,
        advice: impl Into<String>,
    ) {
        self.add(name, Status::Fail, found.into(), Some(advice.into()), true);
    }

    pub(super) fn done(self) -> Vec<Check> {
        self.made
    }

    fn add(
        &mut self,
        name: &'static str,
        status: Status,
        found: String,
        advice: Option<String>,
        unseen_by_serve: bool,
    ) {
        // Much of the text comes from the engine and the images: it must not contain control characters for
        // the terminal.
        let printable =
            |text: String| text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect::<String>();
        let (found, advice) = (printable(found), advice.map(printable));
        self.made.push(Check { group: self.group, name, status, found, advice, unseen_by_serve });
    }
}

/// Failures that the verdict repeats; further ones are only counted.
const REPEATED: usize = 3;

/// The result over all checks.
pub(super) struct DoctorVerdict {
    pub(super) text: String,
    /// The exit code.
    pub(super) code: u8,
}

/// The verdict, which is the last line.
pub(super) fn verdict(checks: &[Check]) -> DoctorVerdict {
    let of = |status: Status| checks.iter().filter(move |check| check.status == status);
    let failed: Vec<_> = of(Status::Fail).collect();
    if !failed.is_empty() {
        let serves = failed.iter().all(|check| check.unseen_by_serve);
        let mut reasons: Vec<String> =
            failed.iter().take(REPEATED).map(|check| check.found.clone()).collect();
        if failed.len() > REPEATED {
            reasons.push(format!("and {} more", failed.len() - REPEATED));
        }
        let would = if serves { "would serve, but must not" } else { "would not serve" };
        return DoctorVerdict { text: format!("paddock {would}: {}", reasons.join("; ")), code: 1 };
    }
    let text = match of(Status::Warn).count() {
        0 => "paddock would serve.".to_owned(),
        1 => "paddock would serve, with 1 warning.".to_owned(),
        n => format!("paddock would serve, with {n} warnings."),
    };
    DoctorVerdict { text, code: 0 }
}

/// All checks and the verdict, for programs.
pub(super) fn document(checks: &[Check]) -> Value {
    json!({ "verdict": verdict(checks).text, "checks": checks })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// The names of all checks that are not ok, with their status.
    pub(crate) fn lacks(checks: &[Check]) -> Vec<(&'static str, Status)> {
        let lacks = checks.iter().filter(|check| check.status != Status::Ok);
        lacks
            .map(|check| {
                let advice = check.advice.as_deref().unwrap_or_default();
                assert!(!advice.is_empty(), "no advice: {check:?}");
                (check.name, check.status)
            })
            .collect()
    }

    #[test]
    fn the_verdict_counts_warnings_and_names_failures() {
        let mut checks = Checks::of(Group::Engine);
        checks.ok("a", "fine");
        assert_eq!(verdict(&checks.made).text, "paddock would serve.");
        checks.warn("b", "odd", "mend it");
        assert_eq!(verdict(&checks.made).text, "paddock would serve, with 1 warning.");
        checks.warn("b", "odd", "mend it");
        let found = verdict(&checks.made);
        assert_eq!((found.text.as_str(), found.code), ("paddock would serve, with 2 warnings.", 0));
        checks.unsafe_to_serve("c", "loose", "tie it");
        let found = verdict(&checks.made);
        assert_eq!((found.text.as_str(), found.code), ("paddock would serve, but must not: loose", 1));
        for _ in 0..3 {
            checks.fail("d", "bro\nken", "mend it");
        }
        let text = verdict(&checks.made).text;
        assert_eq!(text, "paddock would not serve: loose; bro ken; bro ken; and 1 more");
        let document = document(&checks.made);
        let expected = json!({
            "group": "engine", "name": "b", "status": "warn", "found": "odd", "advice": "mend it"
        });
        assert_eq!(document["checks"][1], expected);
        assert!(document["checks"][0].get("advice").is_none());
    }
}
