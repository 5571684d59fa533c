//! The checks of an engine's answers, defect by defect.

use super::super::check::Status::{Fail, Warn};
use super::super::check::tests::lacks;
use super::*;
use crate::engine::Component;

fn good() -> Up {
    let version = serde_json::json!({
        "Version": "29.5.1", "ApiVersion": "1.51", "MinAPIVersion": "1.24", "Os": "linux", "Arch": "amd64",
        "Components": [{ "Name": "runc", "Version": "1.3.3" }, { "Name": "containerd", "Version": "2.2.0" }],
    });
    let info = serde_json::json!({
        "ID": "x", "Name": "host", "ServerVersion": "29.5.1", "OSType": "linux",
        "Architecture": std::env::consts::ARCH, "KernelVersion": "6.12.1", "NCPU": 8, "MemTotal": 1_u64 << 35,
        "CgroupVersion": "2", "CgroupDriver": "systemd", "Driver": "overlay2",
        "SystemTime": "2026-11-22T00:00:00Z",
        "Runtimes": { "runc": { "path": "runc" }, "runsc": { "path": "/usr/bin/runsc" } },
        "DefaultRuntime": "runc",
        "SecurityOptions": ["name=apparmor", "name=seccomp,profile=builtin", "name=cgroupns"],
        "LiveRestoreEnabled": true, "MemoryLimit": true, "SwapLimit": true, "PidsLimit": true,
        "CpuCfsQuota": true,
    });
    Up {
        version: serde_json::from_value(version).expect("a version"),
        api: ApiVersion::NEWEST,
        info: serde_json::from_value(info).expect("an info"),
        by_socket: true,
        kernel: "6.12.1".into(),
        asked: Vec::new(),
    }
}

fn of(up: Up) -> Vec<Check> {
    judge(&EngineFacts { host: "unix:///run/x.sock".into(), answer: Ok(Box::new(up)) })
}

#[test]
fn an_architecture_has_one_name_whichever_the_engine_says() {
    let info = |said: &str| {
        let mut info = serde_json::json!({
            "ID": "x", "Name": "host", "ServerVersion": "4.3.1", "OSType": "linux", "KernelVersion": "6.12.1",
            "NCPU": 8, "MemTotal": 1_u64 << 35, "Driver": "overlay", "SystemTime": "2026-11-22T00:00:00Z",
        });
        info["Architecture"] = said.into();
        serde_json::from_value::<EngineInfo>(info).expect("an info").architecture
    };
    for (said, name) in
        [("amd64", "x86_64"), ("x86_64", "x86_64"), ("arm64", "aarch64"), ("riscv64", "riscv64")]
    {
        assert_eq!(info(said), name);
    }
}

#[test]
fn each_defect_gives_its_check_and_no_other() {
    assert_eq!(lacks(&of(good())), []);
    type Spoil = fn(&mut Up);
    let fine: [Spoil; 8] = [
        |up| up.by_socket = false,
        |up| up.kernel = "6.6.6".into(),
        |up| up.asked = vec![("engine.runtime".into(), "runsc".into())],
        |up| up.asked = vec![("runners.sh.runtime".into(), "io.containerd.kata.v2".into())],
        |up| up.info.security_options.push("name=userns".into()),
        |up| up.info.security_options.push("name=rootless".into()),
        |up| up.info.security_options.retain(|option| option != "name=apparmor"),
        |up| up.info.cgroup_version.clear(),
    ];
    for spoil in fine {
        let mut up = good();
        spoil(&mut up);
        assert_eq!(lacks(&of(up.clone())), [], "{up:?}");
    }
    let spoil: [(&str, super::super::check::Status, &str, Spoil); 19] = [
        ("platform", Fail, "windows", |up| up.info.os_type = "windows".into()),
        ("platform", Fail, "m68k", |up| up.info.architecture = "m68k".into()),
        ("podman", Warn, "not quite Docker's", |up| {
            let podman = Component { name: "Podman Engine".into(), version: "4.3.1".into() };
            up.version.components.push(podman);
        }),
        ("cgroup", Warn, "none", |up| up.info.cgroup_driver = "none".into()),
        ("limits", Warn, ": memory", |up| up.info.memory_limit = false),
        ("limits", Warn, ": swap", |up| up.info.swap_limit = false),
        ("limits", Warn, ": processes", |up| up.info.pids_limit = false),
        ("limits", Warn, ": processors", |up| up.info.cpu_cfs_quota = false),
        ("seccomp", Warn, "does not filter", |up| {
            up.info.security_options.retain(|option| !option.contains("seccomp"));
        }),
        ("live-restore", Warn, "off", |up| up.info.live_restore_enabled = false),
        ("storage", Warn, "vfs", |up| up.info.driver = "vfs".into()),
        ("runtime", Fail, "no runtime nosuch (runners.sh.runtime), it has runc, runsc", |up| {
            up.asked = vec![("runners.sh.runtime".into(), "nosuch".into())];
        }),
        ("runc", Warn, "1.1.5", |up| {
            up.version.components[0].version = "1.1.5+ds1".into();
            let asked = [("engine.runtime", "runsc"), ("runners.sh.runtime", "runc")];
            up.asked = asked.map(|(key, name)| (key.to_owned(), name.to_owned())).to_vec();
        }),
        ("advisories", Warn, "CVE-2026-41567", |up| up.version.version = "28.5.2".into()),
        ("containerd", Warn, "CVE-2024-25621", |up| up.version.components[1].version = "1.7.28".into()),
        ("runc", Warn, "1.1.5", |up| up.version.components[0].version = "1.1.5+ds1".into()),
        ("runc", Warn, "1.4.0-rc.2", |up| up.version.components[0].version = "1.4.0-rc.2".into()),
        ("runc", Warn, "does not say", |up| up.version.components.clear()),
        ("runc", Warn, "does not say", |up| {
            up.version.components = vec![Component { name: "runc".into(), version: "N/A".into() }];
        }),
    ];
    for (name, status, word, spoil) in spoil {
        let mut up = good();
        spoil(&mut up);
        let checks = of(up);
        assert_eq!(lacks(&checks), [(name, status)], "{word}");
        assert!(checks.iter().any(|check| check.found.contains(word)), "{word}: {checks:?}");
    }
}

#[test]
fn an_unusable_engine_is_one_check_with_advice_of_its_own() {
    let mut advices = std::collections::BTreeSet::new();
    for down in [
        Down::Address("odd".into()),
        Down::Missing,
        Down::Refused,
        Down::Denied,
        Down::Silent,
        Down::Stranger("odd".into()),
        Down::Version("odd".into()),
        Down::Other("odd".into()),
    ] {
        let checks = judge(&EngineFacts { host: "unix:///run/x.sock".into(), answer: Err(down.clone()) });
        assert_eq!(lacks(&checks), [("reachable", Fail)], "{down:?}");
        assert!(advices.insert(checks[0].advice.clone()), "{down:?} has the advice of another");
    }
}
