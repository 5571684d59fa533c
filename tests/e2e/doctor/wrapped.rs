//! One protection at a time is switched off in every container of a runtime, and doctor reports that, and
//! only that.
//!
//! The engine is private to the tests. All its runtimes are one program (`wrapper.py`), which changes the
//! configuration of a container according to the name that it is called by, and then becomes runc.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::Command;
use std::time::Duration;

use futures_util::future::join_all;
use paddock::engine::{ContainerAction, EventFilter, EventStreamItem, Occurrence};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use super::look::Look;
use crate::support::{Daemon, PATIENCE, PrivateEngine, View, within};

const WRAPPER: &str = include_str!("wrapper.py");
const IMAGE: &str = "paddock-example-sh";

/// The name of the wrapper, the name and status of doctor's check, and a word of its text.
const OFF: [(&str, &str, &str, &str); 22] = [
    ("groups", "container/user", "fail", "groups [0]"),
    ("capabilities", "container/capabilities", "fail", "capabilities 0x2000"),
    ("privileges", "container/no-new-privileges", "fail", "not set"),
    ("seccomp", "container/seccomp", "fail", "mode 0"),
    ("call", "container/seccomp", "fail", "kcmp goes through"),
    ("cores", "container/core dumps", "fail", "core dumps is 0"),
    ("segments", "container/system v memory", "warn", "stays"),
    ("network", "container/network", "fail", "network interfaces"),
    ("route", "container/network", "fail", "TCP to 1.1.1.1:443 is on its way"),
    ("root", "container/read-only root", "fail", "not mounted read-only"),
    ("data", "container/data", "fail", "could be had in /data"),
    ("inodes", "container/inodes", "fail", "entries could be had"),
    ("tmp", "container/tmp", "fail", "could be had in /tmp"),
    ("alias", "container/names", "fail", "is not /data"),
    ("memory", "container/memory", "fail", "not bounded"),
    ("loose-memory", "container/memory", "fail", "not by"),
    ("swap", "container/swap", "warn", "swap"),
    ("pids", "container/processes", "fail", "not bounded"),
    ("cpu", "container/processors", "fail", "not bounded"),
    ("landlock", "container/file policies", "warn", "Landlock"),
    ("notification", "container/file policies", "warn", "user notification"),
    ("start", "container/start", "fail", "starting the container"),
];

/// The flags that give an engine these runtimes of `wrapper.py`, and the folder that they are in.
pub(crate) fn runtimes<'a>(names: impl IntoIterator<Item = &'a str>) -> (TempDir, Vec<String>) {
    let dir = tempfile::tempdir().expect("a folder");
    let script = dir.path().join("wrapper.py");
    std::fs::write(&script, WRAPPER).expect("a file");
    std::fs::set_permissions(&script, PermissionsExt::from_mode(0o755)).expect("a mode");
    let flags = names.into_iter().map(|name| {
        let path = dir.path().join(name);
        symlink(&script, &path).expect("a link");
        format!("--add-runtime={name}={}", path.display())
    });
    let flags = flags.collect();
    (dir, flags)
}

/// Expects that nothing of doctor's is on the engine.
async fn expect_clean(engine: &PrivateEngine) {
    let host = engine.host().parse().expect("a host");
    let view = View::on(&host, "x").await;
    let containers = view.engine.container_list(&[]).await.expect("containers");
    let volumes = view.engine.volume_list(&[]).await.expect("volumes");
    assert!(containers.is_empty() && volumes.is_empty(), "{containers:?} {volumes:?}");
}

#[tokio::test]
async fn each_protection_that_is_switched_off_is_reported_and_no_other() {
    let names = OFF.iter().map(|(name, ..)| *name).chain(["nothing"]);
    let (_scripts, mut flags) = runtimes(names);
    let mut engine = PrivateEngine::with_flags(&flags, &[]).await;
    let dir = tempfile::tempdir().expect("a folder");
    let look = Look::at(dir.path()).engine(&engine.host()).set("exec.runner", "'sh'");
    let look = look.set("egress.mode", "'open'").set("egress.allow", "[]");
    let look = look.set("egress.own_addresses", "['198.51.100.7']");
    let none = look.run().await;
    none.expect_failure("images/runners", "no image runs any language", "make images");
    engine.load(IMAGE);

    let plain = look.run().await;
    // It has no control group of its own: a second tenant would notice it.
    let other = format!("[{{ name = 'other', sha256 = '{}' }}]", "0".repeat(64));
    let shared = look.clone().set("auth.tokens", &other).run().await;
    shared.expect(&plain, &[("container/weight", "warn")]);
    assert!(shared.found("container/weight").contains("no control group of its own"), "{}", shared.text);
    let missing = look.clone().set("engine.runtime", "'nosuch'").run().await;
    missing.expect_failure("engine/runtime", "no runtime nosuch", "daemon.json");
    let python = look.clone().set("exec.runner", "'python'").run().await;
    python.expect(&plain, &[("images/commands", "warn")]);
    let image = look.clone().set("runners.python", "'nosuch-image'").run().await;
    image.expect(&plain, &[("images/image", "warn")]);

    let base = look.clone().set("engine.runtime", "'nothing'").run().await;
    base.expect_nothing_failed();
    for some in OFF.chunks(4) {
        let reports = some.iter().map(|(off, ..)| look.clone().set("engine.runtime", &format!("'{off}'")));
        let reports = join_all(reports.map(async |look| look.run().await)).await;
        for ((off, name, status, word), report) in some.iter().zip(reports) {
            match *off {
                "start" => report.expect_no_container(&base, name, status),
                // The levels of tasks are enforced by the same means, and runs are kept apart.
                "landlock" => {
                    let also = [("container/task levels", "warn"), ("way out/runs", "warn")];
                    report.expect(&base, &[(name, status), also[0], also[1]]);
                }
                // Programs have a network by the same means.
                "notification" => report.expect(&base, &[(name, status), ("way out/programs", "warn")]),
                _ => report.expect(&base, &[(name, status)]),
            }
            assert!(report.found(name).contains(word), "{off}: {}", report.text);
        }
    }
    expect_clean(&engine).await;

    second_image(&engine);
    let two = look.run().await;
    two.expect(&plain, &[("images/image", "warn")]);
    assert!(two.found("images/image").contains("the newest, second-sh, is used"), "{}", two.text);
    assert!(two.advice("images/image").contains("set runners.sh"), "{}", two.text);

    interrupted(&engine, &look).await;

    engine.suspend();
    let silent = look.run().await;
    engine.resume();
    silent.expect_failure("engine/reachable", "does not answer", "hangs");
    assert!(silent.took < Duration::from_secs(10), "{:?}", silent.took);

    flags.push("--live-restore".to_owned());
    engine.restart_with(&flags).await;
    let kept = look.set("runners.sh", &format!("'{IMAGE}'")).run().await;
    kept.expect_without(&plain, "engine/live-restore");
    expect_clean(&engine).await;

    // A daemon finds it too, and does not serve.
    let refused =
        Daemon::with().env("DOCKER_HOST", &engine.host()).set("engine.runtime", "route").refusal().await;
    assert!(refused.said.contains("not confined as they must be: TCP to 1.1.1.1:443"), "{refused:?}");
}

fn second_image(engine: &PrivateEngine) {
    let context = tempfile::tempdir().expect("a folder");
    let dockerfile = format!("FROM {IMAGE}\nLABEL second=yes\n");
    std::fs::write(context.path().join("Dockerfile"), dockerfile).expect("a file");
    let mut docker = Command::new("docker");
    docker.env("DOCKER_BUILDKIT", "0").args(["-H", &engine.host(), "build", "-q", "-t", "second-sh"]);
    let built = docker.arg(context.path()).output().expect("the docker command");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
}

/// Interrupts it while it makes its container, and while the container runs: nothing of it remains.
async fn interrupted(engine: &PrivateEngine, look: &Look) {
    let host = engine.host().parse().expect("a host");
    let view = View::on(&host, "x").await;
    let file = tempfile::NamedTempFile::new().expect("a file");
    for (signal, started) in [(Signal::TERM, false), (Signal::INT, true)] {
        let mut events = view.engine.events(EventFilter::default());
        assert!(matches!(within(PATIENCE, "events", events.next()).await, EventStreamItem::Connected));
        let child = look.command(file.path()).spawn().expect("it runs");
        let pid = Pid::from_raw(child.id().expect("it lives").cast_signed()).expect("a process");
        let made = async {
            loop {
                if let EventStreamItem::Event(event) = events.next().await
                    && let Occurrence::Container { action, .. } = event.what
                    && (matches!(action, ContainerAction::Create) && !started
                        || matches!(action, ContainerAction::Start) && started)
                {
                    return;
                }
            }
        };
        within(PATIENCE, "a container of doctor's", made).await;
        kill_process(pid, signal).expect("a living doctor");
        let ended = within(PATIENCE, "its end", child.wait_with_output()).await.expect("an end");
        assert_eq!(ended.status.code(), Some(130), "{ended:?}");
        expect_clean(engine).await;
    }
}
