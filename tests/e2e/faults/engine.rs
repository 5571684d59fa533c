//! An engine that answers errors, or slowly; and one whose containerd dies.

use std::time::{Duration, Instant};

use super::served_again;
use crate::support::{Daemon, EngineProxy, Mode, PrivateEngine, engine_host, within};

/// What a request waits for in front of a slow engine. Making a container takes about ten of them.
const SLOW: Duration = Duration::from_millis(300);

#[tokio::test]
async fn an_engine_that_answers_errors_refuses_new_sessions_and_no_other() {
    let proxy = EngineProxy::of(&engine_host().to_string());
    let d = Daemon::with().env("DOCKER_HOST", &proxy.host()).set("pool.wait", "20s").start().await;
    let s = d.session("s");
    s.sh("echo kept > f").await.expect_success();
    proxy.set(Mode::Refusing);
    let refused = d.session("new").sh("echo never").await;
    let code = refused.document["error"].as_str().unwrap_or_default();
    assert!(["engine_unavailable", "queue_full"].contains(&code), "{}", refused.document);
    s.sh("cat f; echo meanwhile > g").await.expect_stdout("kept\n");
    s.upload("h", b"sent").await.expect_success();
    d.request("GET", "/health").send().await.expect(200);
    proxy.set(Mode::Through);
    let back = served_again(&d, &["engine_unavailable", "queue_full"]).await;
    eprintln!("back after {back:?}");
    s.sh("cat f g h").await.expect_stdout("kept\nmeanwhile\nsent");
    d.stop().await;
}

#[tokio::test]
async fn a_slow_engine_delays_new_sessions_and_no_other() {
    let proxy = EngineProxy::of(&engine_host().to_string());
    let d = Daemon::with().env("DOCKER_HOST", &proxy.host()).start().await;
    let s = d.session("s");
    s.sh("echo kept > f").await.expect_success();
    proxy.set(Mode::Slow(SLOW));
    let slow = Instant::now();
    d.session("new").sh("echo new").await.expect_stdout("new\n");
    assert!(slow.elapsed() > SLOW, "the engine was not slow: {:?}", slow.elapsed());
    let quick = Instant::now();
    s.sh("cat f").await.expect_stdout("kept\n");
    assert!(quick.elapsed() < slow.elapsed(), "{:?}", quick.elapsed());
    d.request("GET", "/ready").send().await.expect(200);
    proxy.set(Mode::Through);
    d.stop().await;
}

#[tokio::test]
async fn containers_and_their_sessions_outlive_containerd() {
    let engine = PrivateEngine::with_image("paddock-example-sh").await;
    let d = Daemon::with().env("DOCKER_HOST", &engine.host()).start().await;
    let s = d.session("s");
    s.sh("echo kept > f; touch /tmp/same").await.expect_success();
    let before = engine.kill_containerd();
    s.sh("cat f; test -e /tmp/same && echo same").await.expect_stdout("kept\nsame\n");
    let restarted = async {
        while engine.containerd().is_none_or(|now| now == before) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    within(Duration::from_secs(30), "another containerd", restarted).await;
    let back = served_again(&d, &["engine_unavailable", "queue_full"]).await;
    eprintln!("back {back:?} after its containerd");
    s.sh("cat f; test -e /tmp/same && echo same").await.expect_stdout("kept\nsame\n");
    d.stop_on(&engine.host()).await;
}
