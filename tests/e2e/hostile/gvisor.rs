//! The hostile programs and calls again, in containers of gVisor (Debian's `runsc`): the long form, `make
//! gvisor`.
//!
//! A row that is answered in another way there is named here with the reason, and no other may be.

use std::collections::BTreeSet;

use super::{attack_on, calls_on};
use crate::support::{Daemon, PrivateEngine};

const IMAGES: [&str; 3] = ["paddock-example-sh", "paddock-runner-python", "paddock-runner-typescript"];

/// The rows that are answered in another way, and why that harms nobody.
const DIFFERENT: [(&str, &str); 0] = [];

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
    let missing: Vec<&&str> = known.iter().filter(|id| !named.iter().any(|(one, _)| one == *id)).collect();
    assert!(missing.is_empty(), "these are as under runc by now: {missing:?}");
    d.stop_on(&engine.host()).await;
}
