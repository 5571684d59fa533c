//! The profile, read rule by rule as libseccomp reads it.

use serde_json::Value;

use super::*;

const DENIED: Verdict = Verdict::Errno(1);
const CLAIMED: Verdict = Verdict::Errno(DONE as u64);
const ABSENT: Verdict = Verdict::Errno(ENOSYS as u64);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Allow,
    Errno(u64),
}

/// The answer to a call. Fails where two rules disagree, since the result is then undefined.
fn verdict(call: &str, args: &[u64]) -> Verdict {
    let profile: Value = serde_json::from_str(&profile(Clone3::Absent)).expect("JSON");
    let number = |value: &Value| value.as_u64().expect("a number");
    let holds = |arg: &Value| {
        let given = args.get(usize::try_from(number(&arg["index"])).expect("small")).copied().unwrap_or(0);
        let value = number(&arg["value"]);
        match arg["op"].as_str().expect("an operator") {
            "SCMP_CMP_EQ" => given == value,
            "SCMP_CMP_NE" => given != value,
            "SCMP_CMP_MASKED_EQ" => given & value == number(&arg["valueTwo"]),
            other => panic!("{other}"),
        }
    };
    let rules = profile["syscalls"].as_array().expect("rules");
    let mut found: Vec<Verdict> = rules
        .iter()
        .filter(|rule| rule["names"].as_array().expect("names").iter().any(|name| name == call))
        .filter(|rule| rule["args"].as_array().is_none_or(|args| args.iter().all(holds)))
        .map(|rule| match rule["action"].as_str().expect("an action") {
            "SCMP_ACT_ALLOW" => Verdict::Allow,
            "SCMP_ACT_ERRNO" => Verdict::Errno(number(&rule["errnoRet"])),
            other => panic!("{other}"),
        })
        .collect();
    found.dedup();
    assert!(found.len() < 2, "{call}{args:?}: {found:?}");
    assert_eq!(profile["defaultAction"], "SCMP_ACT_ERRNO", "EPERM, where nothing else is said");
    found.first().copied().unwrap_or(DENIED)
}

#[test]
fn what_must_not_be_reachable_is_not_named() {
    let profile = profile(Clone3::Absent);
    for name in [
        "io_uring_setup",
        "memfd_secret",
        "ptrace",
        "process_vm_readv",
        "process_vm_writev",
        "kcmp",
        "bpf",
        "keyctl",
        "userfaultfd",
        "perf_event_open",
        "unshare",
        "setns",
        "mount",
        "modify_ldt",
        "open_by_handle_at",
        "process_madvise",
        "syslog",
        "fsopen",
        "add_key",
        "request_key",
        "chroot",
        "vmsplice",
        "migrate_pages",
        "move_pages",
    ] {
        assert!(!profile.contains(&format!("\"{name}\"")), "{name}");
        assert_eq!(verdict(name, &[]), DENIED, "{name}");
    }
    // PID 1's; the agent's own filter refuses it to programs.
    assert_eq!(verdict("pidfd_getfd", &[]), Verdict::Allow);
    for name in ["openat2", "read", "splice", "getpriority", "sched_getaffinity", "getrlimit", "ioprio_get"] {
        assert_eq!(verdict(name, &[1, 2, 3]), Verdict::Allow, "{name}");
    }
}

#[test]
fn a_program_cannot_take_the_hosts_aio_contexts() {
    for name in AIO {
        assert_eq!(verdict(name, &[65_000, 1]), ABSENT, "{name}");
    }
}

/// The kernel ignores the upper half of an `int`, so setting it must not evade a rule.
const HIGH: u64 = 1 << 32;

#[test]
fn a_program_changes_its_own_scheduling_only() {
    let idle = 5;
    for pid in [0, HIGH] {
        assert_eq!(verdict("sched_setscheduler", &[pid, idle]), Verdict::Allow);
        assert_eq!(verdict("sched_setparam", &[pid]), Verdict::Allow);
        assert_eq!(verdict("sched_setattr", &[pid]), Verdict::Allow);
        assert_eq!(verdict("setpriority", &[PRIO_PROCESS, pid, 19]), Verdict::Allow);
        assert_eq!(verdict("ioprio_set", &[IOPRIO_PROCESS, pid, 3 << 13]), Verdict::Allow);
    }
    assert_eq!(verdict("sched_setaffinity", &[0]), Verdict::Allow);
    for pid in [1, 7, 0xFFFF_FFFF, HIGH | 1] {
        assert_eq!(verdict("sched_setscheduler", &[pid, idle]), DENIED, "{pid}");
        assert_eq!(verdict("sched_setscheduler", &[pid, 0x4000_0000]), DENIED, "it would reset on fork");
        assert_eq!(verdict("sched_setscheduler", &[pid, SCHED_OTHER]), Verdict::Allow, "{pid}");
        assert_eq!(verdict("sched_setparam", &[pid]), DENIED, "{pid}");
        assert_eq!(verdict("sched_setattr", &[pid]), DENIED, "{pid}");
        assert_eq!(verdict("sched_setaffinity", &[pid]), CLAIMED, "{pid}");
        assert_eq!(verdict("setpriority", &[PRIO_PROCESS, pid, 19]), DENIED, "{pid}");
        assert_eq!(verdict("ioprio_set", &[IOPRIO_PROCESS, pid, 3 << 13]), DENIED, "{pid}");
    }
    // The scheduling of a group, or of the user, which PID 1 has too.
    for which in [1, 2, HIGH | 2] {
        assert_eq!(verdict("setpriority", &[which, 0, 19]), DENIED, "{which}");
    }
    for which in [2, 3, HIGH | 3] {
        assert_eq!(verdict("ioprio_set", &[which, 0, 3 << 13]), DENIED, "{which}");
    }
}

#[test]
fn the_limit_of_core_dumps_stays_and_all_others_are_the_programs() {
    let (new, none) = (0x7fff_0000_1000, 0);
    for high in [0, HIGH] {
        for limit in (0..LIMITS).filter(|limit| *limit != CORE) {
            assert_eq!(verdict("prlimit64", &[high, limit | high, new]), Verdict::Allow, "{limit}");
            assert_eq!(verdict("setrlimit", &[limit | high, new]), Verdict::Allow, "{limit}");
        }
        assert_eq!(verdict("prlimit64", &[high, CORE | high, none, new]), Verdict::Allow, "it reads");
        assert_eq!(verdict("prlimit64", &[high, CORE | high, new]), CLAIMED);
        assert_eq!(verdict("setrlimit", &[CORE | high, new]), CLAIMED);
    }
    for limit in 0..LIMITS {
        assert_eq!(verdict("prlimit64", &[1, limit, new]), DENIED, "PID 1's {limit}");
    }
}

#[test]
fn no_program_weakens_its_own_address_space() {
    for persona in [0, 0x8, 0x2_0000, 0x2_0008, 0xFFFF_FFFF] {
        assert_eq!(verdict("personality", &[persona]), Verdict::Allow, "{persona:#x}");
    }
    // ADDR_NO_RANDOMIZE too: a snapshot has random addresses, and its process is put where they are.
    for persona in [0x4_0000, 0x40_0000, 0x20_0000, 0x10_0000, 0x80_0000, 0x1_0000_0000] {
        assert_eq!(verdict("personality", &[persona]), DENIED, "{persona:#x}");
    }
}

#[test]
fn where_only_eperm_can_be_answered_the_other_kernel_decides_about_clone3_and_nothing_else() {
    let rules = |clone3| -> Vec<Value> {
        let profile: Value = serde_json::from_str(&profile(clone3)).expect("JSON");
        profile["syscalls"].as_array().expect("rules").clone()
    };
    let (usual, other) = (rules(Clone3::Absent), rules(Clone3::Allowed));
    let changed: Vec<_> = usual.iter().zip(&other).filter(|(one, two)| one != two).collect();
    assert_eq!((usual.len(), changed.len()), (other.len(), 1));
    assert_eq!(*changed[0].1, allow("clone3", &[]));
}
