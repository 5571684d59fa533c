//! `deploy/setup`, as far as it can be tested without another host: who may use an engine that it starts,
//! and how much of the processors that engine gets.

use std::path::Path;
use std::process::Command;

/// The group of the engine's socket, for a user in these groups, on a host with these accounts.
fn group(user: &str, groups: &[(&str, u32)], passwd: &str, members: &str) -> String {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/setup");
    let (primary, gid) = groups[0];
    let all: Vec<_> = groups.iter().map(|(name, _)| *name).collect();
    let tried = format!(
        "set -euo pipefail
        source <(sed -n '/^socket_group()/,/^}}/p' {script})
        id() {{
            case $1 in -un) echo {user} ;; -g) echo {gid} ;; -gn) echo {primary} ;; -Gn) echo {all} ;; esac
        }}
        getent() {{
            case $1 in group) echo {primary}:x:{gid}:{members} ;; passwd) printf '%s\\n' {passwd} ;; esac
        }}
        socket_group",
        all = all.join(" "),
    );
    let ran = Command::new("bash").args(["-c", &tried]).output().expect("bash");
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    String::from_utf8_lossy(&ran.stdout).trim().to_owned()
}

#[test]
fn the_engines_socket_is_only_for_the_intended_users() {
    let ann = "ann:x:1000:1000::/home/ann:/bin/sh";
    let bob = "bob:x:1001:1000::/home/bob:/bin/sh";
    let own = [("ann", 1000)];
    assert_eq!(group("ann", &own, ann, ""), "ann", "a group of the user's own, as Debian makes one");
    assert_eq!(group("ann", &own, ann, "ann"), "ann");
    assert_eq!(group("ann", &[("users", 1000), ("docker", 9)], ann, ""), "docker", "made for this");
    // Other users would have the power of root.
    assert_eq!(
        group("ann", &[("users", 1000)], &format!("{ann} {bob}"), ""),
        "docker",
        "bob's primary group too"
    );
    assert_eq!(group("ann", &own, ann, "ann,bob"), "docker", "bob was added to it");
    assert_eq!(group("root", &[("root", 0)], "root:x:0:0:root:/root:/bin/bash", ""), "root");
}

#[test]
fn the_engine_weighs_less_than_a_container_where_that_can_be_said() {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/setup");
    let own = format!("paddock-test-{}", std::process::id());
    let run = |group: &str| {
        // The control groups of a process of the engine, and the weight of that one.
        let tried = format!(
            "set -euo pipefail
            source <(sed -n \"/^light='/,/'\\$/p\" {script})
            sh -c \"$light\" {group} cat /proc/self/cgroup
            cat {group}/cpu.shares {group}/cpu.weight || true"
        );
        let ran = Command::new("bash").args(["-c", &tried]).output().expect("bash");
        String::from_utf8_lossy(&ran.stdout).into_owned()
    };
    let tree = ["/sys/fs/cgroup/cpu", "/sys/fs/cgroup"].into_iter().find(|tree| Path::new(tree).is_dir());
    let group = format!("{}/{own}", tree.expect("control groups"));
    let said = run(&group);
    std::fs::remove_dir(&group).expect("its only process has ended");
    assert!(said.contains(&format!("/{own}\n")), "{said}");
    assert!(said.ends_with("\n128\n") || said.ends_with("\n12\n"), "{said}");
    assert!(run("/proc/nowhere").contains(":/"), "it begins all the same");
}
