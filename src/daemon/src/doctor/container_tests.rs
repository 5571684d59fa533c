//! The checks of a container, defect by defect.

use paddock_proto::message::{Charged, Filled, ProbeReport as Seen};

use super::super::check::Status::{self, Fail, Warn};
use super::super::check::tests::lacks;
use super::*;
use crate::pool::trial::{EngineWeight, TrialBounds, TrialCarrier};
use crate::pool::{Bounds, Violation};

const MIB: u64 = 1 << 20;

/// A container without a defect.
pub(in crate::doctor) fn report() -> TrialReport {
    good().tried.expect("it was tried")
}

fn good() -> ContainerFacts {
    let bounds = Bounds {
        memory: 512 * MIB,
        cpus: 1.0,
        pids: 128,
        data: 256 * MIB,
        data_inodes: 16_384,
        place: DataPlace::Memory,
        stored: 256 * MIB,
        tmp: 64 * MIB,
        shm: 16 * MIB,
        open_files: 1024,
        file_size: 256 * MIB,
        runtime: String::new(),
    };
    let full = |amount| Taken { amount, errno: FULL };
    let seen = Seen {
        no_new_privs: true,
        seccomp: 2,
        core_limit: [1, 1],
        core_pattern: "core".into(),
        terminals: Allowed::UpTo(64),
        charged: Charged { sockets: Some(true), locks: Some(true) },
        landlock: 7,
        separates: true,
        notification: true,
        memory: Allowed::UpTo(848 * MIB),
        swap: Allowed::UpTo(0),
        pids: Allowed::UpTo(128),
        cpu_milli: Allowed::UpTo(1000),
        filled: Some(Filled { data: full(256 * MIB), data_inodes: full(16_383), tmp: full(64 * MIB) }),
        ..Seen::default()
    };
    let tried = TrialReport {
        image: "x".into(),
        facts: seen,
        violations: vec![],
        asked: TrialBounds { uid: 20_999, bounds, memory: 848 * MIB, pids: 128 },
        armed: Duration::from_millis(300),
        warm: None,
        carrier: TrialCarrier::Direct,
        runtime: "runc".into(),
        engine_makes_network: false,
        lacks: Vec::new(),
        engine_weight: EngineWeight::Unknown,
    };
    ContainerFacts { tried: Ok(tried), warm_wanted: false, owner: "doctor-1-x".into(), left: None }
}

fn taken(amount: u64, errno: i32) -> Taken {
    Taken { amount, errno }
}

fn with(spoil: impl FnOnce(&mut TrialReport)) -> ContainerFacts {
    let mut facts = good();
    spoil(facts.tried.as_mut().expect("tried"));
    facts
}

#[test]
fn each_defect_gives_its_check_and_no_other() {
    type Spoil = fn(&mut TrialReport);
    let fine: [Spoil; 9] = [
        |_| {},
        |t| t.facts.filled = None,
        |t| t.facts.charged = Charged::default(),
        |t| t.facts.terminals = Allowed::Unseen,
        |t| t.facts.core_pattern = "|/usr/lib/systemd/systemd-coredump %P".into(),
        |t| t.facts.core_pattern.clear(),
        |t| t.facts.swap = Allowed::Unseen,
        |t| t.warm = Some(Duration::from_secs(1)),
        |t| t.facts.label = "docker-default (enforce)".into(),
    ];
    for spoil in fine {
        assert_eq!(lacks(&judge(&with(spoil))), []);
    }
    let spoil: [(&str, Status, Spoil); 20] = [
        ("start", Warn, |t| t.armed = Duration::from_secs(9)),
        ("data", Fail, |t| t.facts.filled.as_mut().expect("filled").data = taken(257 * MIB, 0)),
        ("data", Fail, |t| t.facts.filled.as_mut().expect("filled").data = taken(0, 13)),
        ("data", Fail, |t| t.facts.filled.as_mut().expect("filled").data = taken(MIB, 5)),
        ("inodes", Fail, |t| t.facts.filled.as_mut().expect("filled").data_inodes = taken(16_385, 0)),
        ("tmp", Fail, |t| t.facts.filled.as_mut().expect("filled").tmp = taken(65 * MIB, 0)),
        ("memory", Fail, |t| (t.facts.memory, t.facts.swap) = (Allowed::All, Allowed::All)),
        ("memory", Fail, |t| t.facts.memory = Allowed::UpTo(849 * MIB)),
        ("memory", Warn, |t| t.facts.memory = Allowed::Unseen),
        ("swap", Warn, |t| t.facts.swap = Allowed::All),
        ("processes", Fail, |t| t.facts.pids = Allowed::All),
        ("processors", Fail, |t| t.facts.cpu_milli = Allowed::All),
        ("processors", Fail, |t| t.facts.cpu_milli = Allowed::UpTo(2000)),
        ("core dumps", Warn, |t| t.facts.core_pattern = "@/run/crashes".into()),
        ("system v memory", Warn, |t| t.facts.segments_stay = true),
        ("terminals", Warn, |t| t.facts.terminals = Allowed::All),
        ("socket memory", Warn, |t| t.facts.charged.sockets = Some(false)),
        ("file locks", Warn, |t| t.facts.charged.locks = Some(false)),
        ("file policies", Warn, |t| t.facts.policies_lack = Some("no Landlock".into())),
        ("task levels", Warn, |t| t.facts.separates = false),
    ];
    for (name, status, spoil) in spoil {
        let checks = judge(&with(spoil));
        assert_eq!(lacks(&checks), [(name, status)], "{checks:?}");
    }
    for (aspect, name) in [
        (Aspect::User, "user"),
        (Aspect::Capabilities, "capabilities"),
        (Aspect::Privileges, "no-new-privileges"),
        (Aspect::Seccomp, "seccomp"),
        (Aspect::Cores, "core dumps"),
        (Aspect::Network, "network"),
        (Aspect::Root, "read-only root"),
        (Aspect::HostFiles, "host files"),
        (Aspect::Names, "names"),
        (Aspect::Writing, "data"),
        (Aspect::Data, "data"),
        (Aspect::Inodes, "inodes"),
        (Aspect::Tmp, "tmp"),
    ] {
        let fault = |text: &str| Violation { aspect, text: text.to_owned() };
        let checks = judge(&with(|t| t.violations = vec![fault("one"), fault("two")]));
        assert_eq!(lacks(&checks), [(name, Fail)]);
        assert!(checks.iter().any(|check| check.found.starts_with("one")));
    }
    let checks = judge(&with(|t| t.engine_makes_network = true));
    assert!(checks.iter().any(|check| check.found.contains("The engine makes it")), "{checks:?}");
    let facts = ContainerFacts { warm_wanted: true, ..good() };
    assert_eq!(lacks(&judge(&facts)), [("warm", Warn)]);
    let facts = ContainerFacts { tried: Err("no room".into()), ..good() };
    assert_eq!(lacks(&judge(&facts)), [("start", Fail)]);
    let facts = ContainerFacts { left: Some("busy".into()), ..good() };
    assert_eq!(lacks(&judge(&facts)), [("removal", Warn)]);
}

#[test]
fn a_defect_that_follows_from_another_is_not_reported() {
    let facts = with(|t| {
        t.facts.no_new_privs = false;
        t.facts.policies_lack = Some("no user notification".into());
        t.violations =
            vec![Violation { aspect: Aspect::Privileges, text: "no-new-privileges is not set".into() }];
    });
    assert_eq!(lacks(&judge(&facts)), [("no-new-privileges", Fail)]);
    // The seccomp filter is what keeps the limit.
    let facts = with(|t| {
        t.facts.seccomp = 0;
        t.violations = [Aspect::Seccomp, Aspect::Cores]
            .map(|aspect| Violation { aspect, text: "nothing is filtered".into() })
            .to_vec();
    });
    assert_eq!(lacks(&judge(&facts)), [("seccomp", Fail)]);
}
