//! An engine that is killed during a run and restarted; and an engine that has no runner image at first.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use tokio::join;

use crate::support::{Daemon, PrivateEngine, View};

#[tokio::test]
async fn an_engine_that_dies_during_a_run_loses_that_run_and_nothing_else() {
    let mut engine = PrivateEngine::with_image("paddock-example-sh").await;
    let d = Daemon::with().without_tracing().env("DOCKER_HOST", &engine.host()).start().await;
    let s = d.session("s");
    s.sh("echo kept > f").await.expect_success();
    let view = View::on(&engine.host().parse().expect("a host"), &d.store.owner()).await;
    let container = view.the_container("sh").await;
    let mark = d.log.mark();
    let begun = Instant::now();
    let code = "echo begun; touch /tmp/begun; sleep 60";
    let (ran, health) = join!(async { s.sh(code).timeout(50.0).await }, async {
        view.begun(&container).await;
        engine.kill();
        d.log.line_since(mark, "the engine does not answer").await;
        d.health().await
    });
    assert_eq!(health["degraded"][0], "the container engine does not answer", "{health}");
    ran.expect_error("lost").expect_exit(-1);
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
    // Without an engine a call is refused, and files are still served.
    s.sh("cat f").await.expect_error("engine_unavailable");
    s.upload("g", b"meanwhile").await.expect_success();

    let mark = d.log.mark();
    engine.start().await;
    d.log.line_since(mark, "the engine answers again").await;
    let back = Instant::now();
    assert_eq!(d.health().await, serde_json::json!({ "status": "healthy" }));
    s.sh("cat f g").await.expect_stdout("kept\nmeanwhile");
    assert!(back.elapsed() < Duration::from_secs(5), "{:?}", back.elapsed());
    d.stop_on(&engine.host()).await;
}

/// With a direct carrier between daemon and container, a dead engine does not affect a run.
#[tokio::test]
async fn a_run_on_a_direct_carrier_does_not_notice_that_its_engine_died() {
    let mut engine = PrivateEngine::with_image("paddock-example-sh").await;
    let d = Daemon::with().env("DOCKER_HOST", &engine.host()).start().await;
    let s = d.session("s");
    s.sh("echo kept > f").await.expect_success();
    let view = View::on(&engine.host().parse().expect("a host"), &d.store.owner()).await;
    let container = view.the_container("sh").await;
    let pid = view.engine.container_inspect(&container).await.expect("a container").state.pid;
    let mark = d.log.mark();
    let code = "echo begun; touch /tmp/begun; until [ -e go ]; do sleep 0.02; done; echo ended | tee made";
    let (ran, ()) = join!(async { s.sh(code).timeout(50.0).await }, async {
        view.begun(&container).await;
        engine.kill();
        d.log.line_since(mark, "the engine does not answer").await;
        std::fs::write(format!("/proc/{pid}/root/data/go"), "").expect("a file for the program");
    });
    let ran = ran.expect_stdout("begun\nended\n");
    assert_eq!(d.fetch(&ran.link("made")).await.expect(200).body, "ended\n");

    // The next engine ends the containers of the dead one: the session continues in another container.
    let mark = d.log.mark();
    engine.start().await;
    d.log.line_since(mark, "the engine answers again").await;
    s.sh("cat f made").await.expect_stdout("kept\nended\n");
    d.stop_on(&engine.host()).await;
}

#[tokio::test]
async fn a_daemon_starts_on_an_engine_without_images_and_uses_a_runner_once_it_appears() {
    let engine = PrivateEngine::empty().await;
    let d = Daemon::with().env("DOCKER_HOST", &engine.host()).start().await;
    assert_eq!(d.health().await["degraded"][0], "no runner image was found");
    let s = d.session("s");
    let refused = s.sh("echo hi").await.expect_error("unknown_language");
    assert!(
        refused.document["message"].as_str().is_some_and(|text| text.contains("no runner image was found"))
    );
    s.upload("f", b"early").await.expect_success();

    let mark = d.log.mark();
    engine.load("paddock-example-sh");
    d.log.line_since(mark, "runner found").await;
    s.sh("cat f").await.expect_stdout("early");
    assert_eq!(d.health().await, serde_json::json!({ "status": "healthy" }));
    d.stop_on(&engine.host()).await;
}

/// An engine that restarts under its containers miscounts the mounts of their volumes, and would never remove
/// one.
#[tokio::test]
async fn containers_that_outlive_their_engine_stay_in_use_and_leave_nothing() {
    let flags = ["--live-restore".to_owned()];
    let mut engine = PrivateEngine::with_flags(&flags, &[]).await;
    engine.load("paddock-example-sh");
    let d = Daemon::with().set("shutdown.drain", "3s").env("DOCKER_HOST", &engine.host()).start().await;
    let (s, t) = (d.session("s"), d.session("t"));
    s.sh("echo kept > f; echo $$ > /tmp/mine").await.expect_success();
    t.sh("echo other > f").await.expect_success();
    let mark = d.log.mark();
    engine.restart_with(&flags).await;
    d.log.line_since(mark, "the engine answers again").await;
    // Still the same container.
    s.sh("cat f; test -e /tmp/mine && echo same").await.expect_stdout("kept\nsame\n");
    // It can be removed while the daemon runs, and when it stops.
    t.tool("close_session").await.expect_success();
    let begun = Instant::now();
    let log = d.stop_on(&engine.host()).await;
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
    assert!(!log.text().contains("could not be removed"), "{}", log.text());
    assert!(!log.text().contains("keeps an empty volume"), "{}", log.text());
}

/// An engine that is killed while it removes a volume keeps a name without a folder, and refuses to remove
/// it.
#[tokio::test]
async fn a_volume_whose_removal_the_engine_did_not_end_is_removed_all_the_same() {
    let mut engine = PrivateEngine::with_image("paddock-example-sh").await;
    let d = Daemon::with().env("DOCKER_HOST", &engine.host()).start().await;
    d.session("s").sh("echo kept > f").await.expect_success();
    let view = View::on(&engine.host().parse().expect("a host"), &d.store.owner()).await;
    let volumes = view.volumes().await;
    let mark = d.log.mark();
    engine.kill();
    d.log.line_since(mark, "the engine does not answer").await;
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").expect("the mounts");
    let volumes: Vec<_> =
        volumes.iter().filter(|volume| mounts.contains(&format!(" {} ", volume.mountpoint))).collect();
    assert!(!volumes.is_empty(), "no container has a volume: {mounts}");
    for volume in &volumes {
        let folder = Path::new(&volume.mountpoint);
        let unmounted = Command::new("umount").arg("--lazy").arg(folder).status().expect("umount");
        assert!(unmounted.success() && folder.ends_with("_data"), "{folder:?}");
        std::fs::remove_dir(folder).expect("its folder, which is empty now");
    }
    engine.start().await;
    for volume in &volumes {
        let again = format!("of a volume again, whose removal it did not end name={}", volume.name);
        d.log.line_since(mark, &again).await;
    }
    d.session("s").sh("cat f").await.expect_stdout("kept\n");
    let log = d.stop_on(&engine.host()).await;
    assert!(!log.text().contains("could not be removed"), "{}", log.text());
}

/// A suspended engine keeps its connections open: only a request shows that it answers nobody.
#[tokio::test]
async fn a_suspended_engine_is_reported_and_used_again_later() {
    let engine = PrivateEngine::with_image("paddock-example-sh").await;
    let d = Daemon::with().env("DOCKER_HOST", &engine.host()).start().await;
    let s = d.session("s");
    s.sh("echo kept > f").await.expect_success();
    let ready = async || d.request("GET", "/ready").send().await;
    ready().await.expect(200);
    let mark = d.log.mark();
    engine.suspend();
    d.log.line_since(mark, "the engine does not answer").await;
    let refused = ready().await.expect(503).json();
    assert_eq!(refused["missing"][0], "the container engine does not answer", "{refused}");
    assert_eq!(d.health().await["degraded"][0], "the container engine does not answer");
    // A session that needs a container is refused at once; one that has a container does not need the engine.
    d.session("new").sh("echo never").await.expect_error("engine_unavailable");
    s.sh("cat f").await.expect_stdout("kept\n");

    let mark = d.log.mark();
    engine.resume();
    d.log.line_since(mark, "the engine answers again").await;
    ready().await.expect(200);
    assert_eq!(d.health().await, serde_json::json!({ "status": "healthy" }));
    d.session("new").sh("echo now").await.expect_stdout("now\n");
    d.stop_on(&engine.host()).await;
}

/// SIGTERM while the engine answers nobody: the daemon saves, reports what remains, and stops.
#[tokio::test]
async fn a_dead_engine_does_not_delay_the_stop_of_the_daemon() {
    let mut engine = PrivateEngine::with_image("paddock-example-sh").await;
    let d = Daemon::with().set("shutdown.drain", "3s").env("DOCKER_HOST", &engine.host()).start().await;
    d.session("s").sh("echo kept > f").await.expect_success();
    let mark = d.log.mark();
    engine.kill();
    d.log.line_since(mark, "the engine does not answer").await;
    let begun = Instant::now();
    d.terminate();
    d.log
        .line_since(mark, "some containers could not be removed; the next start of this store removes them")
        .await;
    d.log.line_since(mark, "stopped").await;
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
    drop(d);
}

/// A rebuild for another architecture takes the name of the image in use.
#[tokio::test]
async fn an_image_for_another_architecture_is_ignored_and_the_previous_one_stays_in_use() {
    let engine = PrivateEngine::with_image("paddock-example-sh").await;
    let d = Daemon::with().set("pool.idle", 1).env("DOCKER_HOST", &engine.host()).start().await;
    d.session("before").sh("echo before").await.expect_stdout("before\n");
    let foreign = if cfg!(target_arch = "x86_64") { "arm64" } else { "amd64" };
    let mark = d.log.mark();
    engine.load_for("paddock-example-sh", foreign);
    let said = d.log.line_since(mark, &format!("is left out: it is made for {foreign}")).await;
    assert!(said.contains("image paddock-example-sh"), "{said}");
    let ready = d.request("GET", "/ready").send().await.expect(200).json();
    assert_eq!(ready["degraded"], serde_json::json!(["a runner image cannot be used"]));
    d.session("after").sh("echo after").await.expect_stdout("after\n");
    // Also by the next daemon, which knows nothing of the past.
    let store = d.store.clone();
    d.stop_on(&engine.host()).await;
    let d = Daemon::with().store(&store).env("DOCKER_HOST", &engine.host()).start().await;
    d.session("again").sh("echo again").await.expect_stdout("again\n");
    d.stop_on(&engine.host()).await;
}

/// The runtime mounts files of the agent's volume by their paths on the engine's host.
#[tokio::test]
async fn an_engine_whose_data_was_moved_meanwhile_is_used_again() {
    let mut engine = PrivateEngine::with_image("paddock-example-sh").await;
    let d = Daemon::with().env("DOCKER_HOST", &engine.host()).set("pool.idle", 1).start().await;
    d.session("before").sh("echo kept > f").await.expect_success();
    let mark = d.log.mark();
    engine.move_data().await;
    d.log.line_since(mark, "the engine answers again").await;
    d.session("before").sh("cat f").await.expect_stdout("kept\n");
    for name in ["after", "at last"] {
        d.session(name).sh("cut -c1-9 /etc/hosts | head -n 1").await.expect_stdout("127.0.0.1\n");
    }
    let said = d.log.text();
    assert!(!said.contains("a file of the agent is missing"), "{said}");
    d.stop_on(&engine.host()).await;
}

#[tokio::test]
async fn an_agents_volume_that_was_removed_is_filled_again() {
    let engine = PrivateEngine::with_image("paddock-example-sh").await;
    let d = Daemon::with().env("DOCKER_HOST", &engine.host()).start().await;
    let view = View::on(&engine.host().parse().expect("a host"), &d.store.owner()).await;
    let agents = async || {
        let labels = ["app=paddock-agent", &format!("paddock.made-by={}", d.store.owner())];
        let found = view.engine.volume_list(&labels.map(str::to_owned)).await.expect("volumes");
        found.into_iter().map(|volume| volume.name).collect::<Vec<_>>()
    };
    let before = agents().await;
    assert_eq!(before.len(), 1, "{before:?}");
    view.engine.volume_remove(&before[0]).await.expect("no container uses it");
    d.session("s").sh("echo served").await.expect_stdout("served\n");
    d.log.line("a file of the agent is missing in its volume").await;
    assert_eq!(agents().await, before);
    d.session("t").sh("echo served").await.expect_stdout("served\n");
    d.stop_on(&engine.host()).await;
}
