//! Snapshots after another start of the daemon, or of the engine.

use serde_json::Value;

use super::{ALIKE, HOW, image, setup, taken, warm};
use crate::support::{PrivateEngine, View};

#[tokio::test]
async fn a_start_does_not_wait_until_a_large_snapshot_was_read() {
    let image = image("save-large", ALIKE);
    let store = taken(&image).await;
    let d = setup(&image).store(&store).set("pool.idle", 1).start().await;
    let ready = d.log.mark();
    let status = d.request("GET", "/status").send().await.expect(200).json();
    let python = |status: &Value| {
        let all = status["pool"].as_array().expect("runners");
        all.iter().find(|one| one["language"] == "python").expect("it is there")["snapshot"].clone()
    };
    let snapshot = python(&status);
    assert_eq!(snapshot["bytes"], (400 << 20) + 8, "{snapshot}");
    assert!(snapshot["bytes_checked"].is_u64(), "{snapshot}");
    // It serves meanwhile.
    assert_ne!(d.session("early").python(HOW).await.expect_success().stdout(), "restored\n");
    d.log.line_since(ready, "a snapshot of an earlier daemon is what was saved").await;
    let used = d.log.mark_behind(ready, "new containers have another snapshot").await;
    // The idle one is replaced.
    d.log.line_since(used, "restored=true").await;
    assert_eq!(warm(&d, "later").await, "restored\n");
    assert!(!d.log.text().contains("a snapshot of the warm part is taken"), "{}", d.log.text());
    d.stop().await;
}

#[tokio::test]
async fn the_machine_of_an_engine_that_was_gone_is_looked_at_again() {
    let mut engine = PrivateEngine::empty().await;
    let image = image("", ALIKE);
    engine.load(image.name());
    let d = setup(&image).env("DOCKER_HOST", &engine.host()).start().await;
    d.log.line("new containers have another snapshot").await;
    let mark = d.log.mark();
    engine.kill();
    d.log.line_since(mark, "the engine does not answer").await;
    engine.start().await;
    let line = d.log.line_since(mark, "the engine's machine was looked at again").await;
    assert!(line.contains("is_new=false"), "{line}");
    // It is the same one, and its snapshot serves.
    d.session("s").python(HOW).await.expect_stdout("restored\n");
    let view = View::on(&engine.host().parse().expect("a host"), &d.store.owner()).await;
    assert_eq!(view.snapshots().await.len(), 1);
    d.stop_on(&engine.host()).await;
}
