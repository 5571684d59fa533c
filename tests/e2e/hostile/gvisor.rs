//! The hostile programs and calls again, in containers of gVisor (Debian's `runsc`): the long form, `make
//! gvisor`.
//!
//! A row that is answered in another way there is named here with the reason, and no other may be.

use std::collections::BTreeSet;

use super::{attack_on, calls_on};
use crate::support::{Daemon, PrivateEngine};

const IMAGES: [&str; 3] = ["paddock-example-sh", "paddock-runner-python", "paddock-runner-typescript"];

const ENDS: &str = "what the control group refuses ends that kernel, and with it the session's container";
const OWN: &str = "what it reaches belongs to that kernel, which is the container's own";
const UNKNOWN: &str = "that kernel does not have it";
const UNBOUNDED: &str = "that kernel has no such bound: what it takes counts as memory of the container";

/// The rows that are answered in another way, and why that harms nobody.
const DIFFERENT: [(&str, &str); 28] = [
    ("fork-bomb", ENDS),
    ("memory", ENDS),
    ("memfd", ENDS),
    ("node-workers", ENDS),
    ("python-recursion", ENDS),
    ("kill-all", "a program may kill PID 1, and with it the session's container"),
    ("timers", UNBOUNDED),
    ("descriptors-in-flight", UNBOUNDED),
    ("mappings", UNBOUNDED),
    ("huge-pages", UNBOUNDED),
    ("terminals", OWN),
    ("procfs-read", OWN),
    ("devices", OWN),
    ("devices-known", OWN),
    ("overlay", "the device for FUSE is there, and nothing is mounted"),
    ("tcp-keys", OWN),
    ("iptables", OWN),
    ("proc-attributes", OWN),
    ("pid-1", "the environment and the maps of PID 1 can be read: no secret is in them"),
    ("agent-folder", "the program can be read; a watch is that kernel's, which has one container"),
    ("pid-1-files", "the environment and the maps of PID 1 can be read: no secret is in them"),
    ("node-natives", "the environment and the maps of PID 1 can be read: no secret is in them"),
    ("pid-1-namespaces", "their files can be opened, and setns is refused"),
    ("pid-1-signals", UNKNOWN),
    ("exec-memory", "the program runs as the same user; its status does not show NoNewPrivs"),
    ("capabilities", "the list of what was gained is empty; its status says so in another way"),
    ("argument-bomb", "refused with another errno"),
    ("socket_SCTP", "refused with another errno"),
];

#[tokio::test]
#[ignore = "minutes: make gvisor"]
async fn programs_that_attack_harm_nobody_under_gvisor_either() {
    let engine = PrivateEngine::with_gvisor(&[("runsc", &["--oci-seccomp"])], &[]).await;
    for image in IMAGES {
        let ours = std::env::var("PADDOCK_TEST_PYTHON").ok().filter(|_| image.ends_with("python"));
        engine.load(ours.as_deref().unwrap_or(image));
    }
    let setup = Daemon::with().env("DOCKER_HOST", &engine.host());
    let d = setup.set("engine.runtime", "runsc").set("egress.mode", "none").start().await;
    let mut faults = calls_on(&d).await;
    faults.extend(attack_on(&d, |_| true).await);
    let known: BTreeSet<&str> = DIFFERENT.iter().map(|(id, _)| *id).collect();
    let (named, new): (Vec<_>, Vec<_>) = faults.iter().partition(|(id, _)| known.contains(id.as_str()));
    let text: Vec<&str> = new.iter().map(|(_, why)| why.as_str()).collect();
    assert!(new.is_empty(), "{} are new:\n{}", new.len(), text.join("\n\n"));
    // Another limit may end a program before it ends that kernel.
    let always = DIFFERENT.iter().filter(|(_, why)| *why != ENDS).map(|(id, _)| *id);
    let missing: Vec<&str> = always.filter(|id| !named.iter().any(|(one, _)| one == id)).collect();
    assert!(missing.is_empty(), "these are as under runc by now: {missing:?}");
    d.stop_on(&engine.host()).await;
}
