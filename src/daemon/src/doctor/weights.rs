//! Whether the starts of containers for one tenant delay the runs of another one.
//!
//! It must never warn where only one tenant has tokens: nobody is disturbed there.

use super::check::{Check, Checks, Group};
use crate::pool::trial::EngineWeight;
use crate::tenants::weigh::WHOLE;

/// The engine should weigh so many times less than a container.
const LESS: u64 = 8;
/// More than that part of a container is too much.
const MUCH: u64 = 4;

const CONSEQUENCE: &str = "a dozen processes of the engine start a container, and the runs of one tenant \
                           wait while containers of another one start";
const BY_SYSTEMD: &str = "let it make control groups by systemd (\"exec-opts\": \
                          [\"native.cgroupdriver=systemd\"] in /etc/docker/daemon.json)";

pub(super) fn judge(weight: &EngineWeight, cgroup_driver: &str, tenants: usize) -> Vec<Check> {
    let mut checks = Checks::of(Group::Container);
    if tenants > 1 {
        among_tenants(weight, cgroup_driver, &mut checks);
    }
    checks.done()
}

fn among_tenants(weight: &EngineWeight, cgroup_driver: &str, checks: &mut Checks) {
    match weight {
        EngineWeight::Unknown => {}
        // Somebody has chosen a slice for the containers, or the engine is rootless.
        EngineWeight::Within(_) | EngineWeight::Beside { common: Some(_), .. }
            if cgroup_driver == "systemd" => {}
        EngineWeight::Beside { group, engine, containers, common } => {
            let than = common
                .as_ref()
                .map_or("a container".to_owned(), |common| format!("all containers ({common})"));
            let part = engine.saturating_mul(100) / (*containers).max(1);
            let found = format!("containerd ({group}) weighs {part} % of {than}");
            if engine * MUCH <= *containers {
                checks.ok("weight", found);
            } else {
                checks.warn("weight", found, format!("{CONSEQUENCE}: {}", lighter(group, *containers)));
            }
        }
        EngineWeight::Within(group) => checks.warn(
            "weight",
            format!(
                "the engine is in {group}, which weighs as a whole as much as a container, or as all \
                 containers in one group"
            ),
            format!("{CONSEQUENCE}: {BY_SYSTEMD}"),
        ),
        EngineWeight::Loose => checks.warn(
            "weight",
            "the engine has no control group of its own: each of its processes weighs as much as a \
             container, or as all containers in one group",
            format!(
                "{CONSEQUENCE}: put them into a group of {} CPU shares, as `deploy/setup` does for an engine \
                 that it starts",
                WHOLE / LESS
            ),
        ),
    }
}

/// What makes the engine lighter. Docker has a unit of its own, which is in a group of its own.
fn lighter(group: &str, container: u64) -> String {
    // The weights of systemd and of the second version of control groups: 100 where there are 1,024 shares.
    let weight = (container * 100 / WHOLE / LESS).max(1);
    match group.rsplit('/').next() {
        Some("containerd.service") => format!(
            "systemctl set-property containerd.service CPUWeight={weight}, and the same for docker.service"
        ),
        Some(unit) if unit.ends_with(".service") => {
            format!("systemctl set-property {unit} CPUWeight={weight}")
        }
        _ => format!("write {} to cpu.shares of {group}, or {weight} to its cpu.weight", container / LESS),
    }
}

#[cfg(test)]
mod tests {
    use super::super::check::Status::Warn;
    use super::super::check::tests::lacks;
    use super::*;

    fn beside(group: &str, engine: u64, containers: u64) -> EngineWeight {
        EngineWeight::Beside { group: group.to_owned(), engine, containers, common: None }
    }

    #[test]
    fn an_engine_that_weighs_as_much_as_a_container_is_told_with_the_remedy() {
        let warns = |weight: &EngineWeight, found: &str, remedy: &str| {
            let checks = judge(weight, "cgroupfs", 2);
            assert_eq!(lacks(&checks), [("weight", Warn)], "{checks:?}");
            let advice = checks[0].advice.as_deref().unwrap_or_default();
            assert!(checks[0].found.contains(found) && advice.contains(remedy), "{checks:?}");
            assert!(judge(weight, "cgroupfs", 1).is_empty(), "nobody is disturbed");
        };
        let containerd = "/system.slice/containerd.service";
        warns(&beside(containerd, 1024, 1024), "100 %", "CPUWeight=12, and the same for docker.service");
        warns(&beside(containerd, 122, 399), "30 %", "containerd.service CPUWeight=4");
        warns(
            &beside("/system.slice/docker.service", 1024, 1024),
            "100 %",
            "property docker.service CPUWeight=12",
        );
        warns(
            &beside("/engine", 257, 1024),
            "25 % of a container",
            "write 128 to cpu.shares of /engine, or 12",
        );
        let common = EngineWeight::Beside {
            group: "/engine".into(),
            engine: 1024,
            containers: 1024,
            common: Some("/docker".into()),
        };
        warns(&common, "100 % of all containers (/docker)", "write 128 to cpu.shares of /engine");
        warns(&EngineWeight::Within("/system.slice".into()), "/system.slice", "cgroupdriver=systemd");
        warns(&EngineWeight::Loose, "no control group", "a group of 128 CPU shares");
    }

    #[test]
    fn what_is_no_defect_or_cannot_be_changed_is_not_told() {
        let checks = judge(&beside("/paddock-engine", 256, 1024), "cgroupfs", 2);
        assert_eq!((checks.len(), lacks(&checks)), (1, vec![]));
        assert_eq!(judge(&EngineWeight::Unknown, "cgroupfs", 2), []);
        let common = Some("/user.slice".into());
        for slice in [
            EngineWeight::Within("/user.slice".into()),
            EngineWeight::Beside { group: "/docker.service".into(), engine: 1024, containers: 1024, common },
        ] {
            assert_eq!(judge(&slice, "systemd", 2), [], "a rootless engine, or a chosen slice");
        }
    }
}
