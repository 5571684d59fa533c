//! Taking a snapshot gives way to callers.

use std::time::{Duration, Instant};

use super::{ALIKE, image, setup};

#[tokio::test]
async fn a_caller_gets_the_place_of_a_snapshot_that_is_being_taken_and_no_session_is_evicted() {
    let image = image("save-waits", ALIKE);
    let d = setup(&image).set("pool.max_containers", 2).start().await;
    // What is outside of /data is lost with its container.
    d.session("first").python("open('/tmp/mine', 'w').write('here')").await.expect_success();
    let mark = d.log.mark();
    d.log.line("a snapshot of the warm part is taken").await;
    d.log.line_since(mark, "armed language=python").await;
    let begun = Instant::now();
    d.session("second").python("print(1)").await.expect_stdout("1\n");
    // Saving would have taken 50 s.
    assert!(begun.elapsed() < Duration::from_secs(40), "{:?}", begun.elapsed());
    let line = d.log.line("no snapshot of the warm part").await;
    assert!(line.contains("outcome=busy") && line.contains("gives way to a caller"), "{line}");
    d.session("first").python("print(open('/tmp/mine').read())").await.expect_stdout("here\n");
    // With every place in use none is begun.
    let taken = d.log.count("a snapshot of the warm part is taken");
    let line = d.log.line_since(d.log.mark(), "no snapshot of the warm part").await;
    assert!(line.contains("all containers are in use"), "{line}");
    assert_eq!(d.log.count("a snapshot of the warm part is taken"), taken);
    d.session("first").python("print(open('/tmp/mine').read())").await.expect_stdout("here\n");
    // It is tried again when there is a place.
    d.session("second").tool("close_session").await.expect_success();
    let mark = d.log.mark();
    d.log.line_since(mark, "a snapshot of the warm part is taken").await;
    d.stop().await;
}
