//! An engine that is killed in mid-run, and comes back; and one that has no runner image yet.

use std::time::{Duration, Instant};

use tokio::join;

use crate::support::{Daemon, PrivateEngine};

#[tokio::test]
async fn an_engine_that_dies_in_mid_run_costs_that_run_and_nothing_else() {
    let mut engine = PrivateEngine::with_image("paddock-example-sh").await;
    let d = Daemon::with().env("DOCKER_HOST", &engine.host()).start().await;
    let s = d.session("s");
    s.sh("echo kept > f").await.expect_success();
    let mark = d.log.mark();
    let begun = Instant::now();
    let (ran, health) = join!(async { s.sh("echo begun; sleep 60").timeout(50.0).await }, async {
        d.log.line_since(mark, "request").await;
        engine.kill();
        d.log.line_since(mark, "the engine does not answer").await;
        d.health().await
    });
    assert_eq!(health["degraded"][0], "the container engine does not answer", "{health}");
    ran.expect_error("lost").expect_exit(-1);
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
    // Without an engine a call is refused, files are still served.
    s.sh("cat f").await.expect_error("engine_unavailable");
    s.upload("g", b"meanwhile").await.expect_success();

    let mark = d.log.mark();
    engine.start().await;
    d.log.line_since(mark, "the engine answers again").await;
    assert_eq!(d.health().await, serde_json::json!({ "status": "healthy" }));
    s.sh("cat f g").await.expect_stdout("kept\nmeanwhile");
    d.stop_on(&engine.host()).await;
}

#[tokio::test]
async fn an_engine_without_images_is_served_and_a_runner_is_taken_when_it_appears() {
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
