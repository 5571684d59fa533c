//! Known vulnerabilities of the Docker Engine and of containerd that concern paddock.
//!
//! It leaves out what paddock does not use: networks (CVE-2024-29018, CVE-2024-32473, CVE-2025-54388), swarm
//! and its overlays (CVE-2023-28840 to 28842), building images (CVE-2024-24557 and BuildKit's), the CRI of
//! Kubernetes (CVE-2022-23648, CVE-2022-31030, CVE-2026-53488). It also leaves out what the proof at each
//! start tests in a container (capabilities, CVE-2022-24769; groups, CVE-2022-36109), and an image's own
//! user, which paddock always overrides (CVE-2024-40635).
//!
//! It must never call a version good that it cannot parse. A distribution can fix a vulnerability under an
//! old number.

use super::check::Checks;
use super::runc::{Version, candidate, release};
use crate::engine::EngineVersion;

/// Vulnerabilities that were published together, and their meaning for paddock.
struct Hole {
    names: &'static str,
    /// For each series: the first version that has them, and the first one without them.
    series: &'static [(Version, Version)],
    /// What they allow, and to whom.
    means: &'static str,
    /// Whether they matter only where a plugin authorises requests to the engine.
    of_plugins: bool,
}

const BEGINNING: Version = candidate([0, 0, 0], 0);

/// The beginning of a series, with the pre-releases of its first version.
const fn from(numbers: [u32; 3]) -> Version {
    candidate(numbers, 0)
}

const ENGINE: [Hole; 4] = [
    Hole {
        names: "CVE-2026-41567, CVE-2026-41568 and CVE-2026-42306",
        series: &[(BEGINNING, release([29, 5, 1]))],
        means: "putting an archive into a running container can let its programs reach the host. paddock \
                puts archives only into containers that have run nothing yet, sends no compressed ones, and \
                the root of its containers is read-only: that closes the known ways, but not for other \
                containers of this engine",
        of_plugins: false,
    },
    Hole {
        names: "CVE-2021-41089 and CVE-2021-41091",
        series: &[(BEGINNING, release([20, 10, 9]))],
        means: "an archive that is put into a container can change the modes of the host's files, and users \
                of the engine's machine can read what is in containers and images",
        of_plugins: false,
    },
    Hole {
        names: "CVE-2024-41110",
        series: &[
            (BEGINNING, release([20, 10, 28])),
            (from([23, 0, 0]), release([23, 0, 15])),
            (from([24, 0, 0]), release([24, 0, 10])),
            (from([25, 0, 0]), release([25, 0, 6])),
            (from([26, 0, 0]), release([26, 0, 3])),
            (from([26, 1, 0]), release([26, 1, 5])),
            (from([27, 0, 0]), release([27, 1, 1])),
        ],
        means: "a client can bypass the authorisation plugin of this engine",
        of_plugins: true,
    },
    Hole {
        names: "CVE-2026-34040",
        series: &[(BEGINNING, release([29, 3, 1]))],
        means: "a client can bypass the authorisation plugin of this engine",
        of_plugins: true,
    },
];

const CONTAINERD: [Hole; 2] = [
    Hole {
        names: "CVE-2021-41103",
        series: &[(BEGINNING, release([1, 4, 11])), (from([1, 5, 0]), release([1, 5, 7]))],
        means: "users of the engine's machine can read what is in containers",
        of_plugins: false,
    },
    Hole {
        names: "CVE-2024-25621",
        series: &[
            (BEGINNING, release([1, 7, 29])),
            (from([2, 0, 0]), release([2, 0, 7])),
            (from([2, 1, 0]), release([2, 1, 5])),
            (from([2, 2, 0]), release([2, 2, 0])),
        ],
        means: "users of the engine's machine can read containerd's folders",
        of_plugins: false,
    },
];

/// Reports the known vulnerabilities of the engine's version and of containerd's. `plugins` authorise
/// requests to the engine.
pub(super) fn judge(version: &EngineVersion, plugins: &[String], checks: &mut Checks) {
    let said = |name: &str| version.components.iter().find(|component| component.name == name);
    if said("Podman Engine").is_some() {
        checks
            .ok("advisories", "it is Podman, whose advisories this doctor does not know: keep it up to date");
        checks.warn(
            "podman",
            "it is Podman, whose Docker-compatible API is not quite Docker's",
            "paddock was tried with Podman 4.3, which serves nothing: it takes the size of a volume in \
             memory for a quota of its disk, and a seccomp profile only as a file on its host. Use a Docker \
             Engine",
        );
        return;
    }
    let engine = ("advisories", "Engine", version.version.as_str(), &ENGINE[..]);
    // An engine that does not name containerd brings its own, or has none.
    let containerd =
        said("containerd").map(|c| ("containerd", "containerd", c.version.as_str(), &CONTAINERD[..]));
    for (check, name, text, holes) in std::iter::once(engine).chain(containerd) {
        let Some(version) = Version::parse(text) else {
            checks.warn(
                check,
                format!("the version of {name} cannot be parsed ({text:?})"),
                format!("compare it with {name}'s security advisories yourself"),
            );
            continue;
        };
        let open: Vec<(&Hole, Version)> = holes
            .iter()
            .filter(|hole| !hole.of_plugins || !plugins.is_empty())
            .filter_map(|hole| Some((hole, version.mended_in(hole.series)?)))
            .collect();
        let Some(newest) = open.iter().map(|(_, mended)| *mended).max() else {
            checks.ok(check, format!("{name} {text} has no known vulnerability that concerns paddock"));
            continue;
        };
        let names: Vec<&str> = open.iter().map(|(hole, _)| hole.names).collect();
        let mut means: Vec<&str> = open.iter().map(|(hole, _)| hole.means).collect();
        means.dedup();
        checks.warn(
            check,
            format!(
                "{name} {text} has {}, unless your distribution has fixed it under that number",
                names.join(", ")
            ),
            format!("{}: upgrade {name} on the engine's machine to {newest} or newer", means.join("; ")),
        );
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::check::Status::{self, Warn};
    use super::super::check::tests::lacks;
    use super::super::check::{Check, Group};
    use super::*;

    fn judged(engine: &str, containerd: &str, plugins: &[&str]) -> Vec<Check> {
        let version = json!({
            "Version": engine, "ApiVersion": "1.51", "MinAPIVersion": "1.24", "Os": "linux", "Arch": "amd64",
            "Components": [{ "Name": "Engine", "Version": engine }, { "Name": "containerd",
            "Version": containerd }],
        });
        let plugins: Vec<String> = plugins.iter().map(|name| (*name).to_owned()).collect();
        let mut checks = Checks::of(Group::Engine);
        judge(&serde_json::from_value(version).expect("a version"), &plugins, &mut checks);
        checks.done()
    }

    #[test]
    fn vulnerabilities_are_reported_in_the_versions_and_setups_that_they_concern() {
        const GOOD: (&str, &str) = ("29.5.1", "2.2.0");
        const NONE: &[(&str, Status)] = &[];
        const ONE: &[(&str, Status)] = &[("advisories", Warn)];
        const OTHER: &[(&str, Status)] = &[("containerd", Warn)];
        for (engine, containerd, plugins, expected, word) in [
            (GOOD.0, GOOD.1, &[][..], NONE, ""),
            (GOOD.0, GOOD.1, &["authz"][..], NONE, ""),
            ("v30.0.0", "v2.3.4", &[], NONE, ""),
            (GOOD.0, "1.7.29", &[], NONE, ""),
            (GOOD.0, "2.1.5-1", &[], NONE, ""),
            ("29.5.0", GOOD.1, &[], ONE, "CVE-2026-42306"),
            ("29.5.1-rc.1", GOOD.1, &[], ONE, "CVE-2026-42306"),
            ("20.10.24+dfsg1", GOOD.1, &[], ONE, "CVE-2026-41567"),
            ("20.10.8", GOOD.1, &[], ONE, "CVE-2021-41089"),
            ("27.1.0", GOOD.1, &["authz"], ONE, "CVE-2024-41110"),
            ("28.5.2", GOOD.1, &["authz"], ONE, "CVE-2026-34040"),
            (GOOD.0, "1.6.20~ds1", &[], OTHER, "CVE-2024-25621"),
            (GOOD.0, "1.5.6", &[], OTHER, "CVE-2021-41103"),
            (GOOD.0, "2.2.0-rc.1", &[], OTHER, "CVE-2024-25621"),
            (GOOD.0, "2.2.0-beta.2", &[], OTHER, "cannot be parsed"),
            ("library-import", GOOD.1, &[], ONE, "cannot be parsed"),
            ("28.5.2", "1.7.28", &[], &[("advisories", Warn), ("containerd", Warn)], "CVE-2024-25621"),
        ] {
            let checks = judged(engine, containerd, plugins);
            assert_eq!(lacks(&checks), expected, "{engine} {containerd}");
            assert!(checks.iter().any(|check| check.found.contains(word)), "{word}: {checks:?}");
        }
        // A vulnerability of plugins is not reported without one; the advice names the newest of the fixing
        // versions.
        let text = |plugins: &[&str]| format!("{:?}", judged("20.10.24", GOOD.1, plugins));
        assert!(!text(&[]).contains("41110") && text(&["authz"]).contains("41110"));
        assert!(text(&["authz"]).contains("to 29.5.1 or newer"));
        assert!(!format!("{:?}", judged("27.1.1", GOOD.1, &["authz"])).contains("41110"));
    }
}
