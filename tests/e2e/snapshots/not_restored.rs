//! Parts that cannot be restored from a snapshot that was proved: what one container may say of it, and how
//! many have to say it.

use std::time::Duration;

use humantime::parse_rfc3339;

use super::{ALIKE, image, metric, setup, until_none_is_left, warm};
use crate::support::{PATIENCE, field};

const FAILURES: &str = "paddock_snapshot_restore_failures_total{language=\"python\",reason=";
const IN_USE: &str = "paddock_snapshot_in_use{language=\"python\"}";

#[tokio::test]
async fn a_part_that_says_that_its_snapshot_cannot_be_right_ends_its_use_and_imports_by_its_turn() {
    let image = image("idle-says import-slow", ALIKE);
    let d = setup(&image).set("pool.idle", 3).start().await;
    let mark = d.log.mark_behind(0, "a snapshot of the warm part was taken").await;
    let line = d.log.line("could not be restored from its snapshot").await;
    assert!(line.contains("not twice"), "{line}");
    d.log.line("the snapshot is used no more").await;
    d.log.line("snapshot=None").await;
    assert!(metric(&d, &format!("{FAILURES}\"said\"}} 1")).await || d.log.count("not twice") > 1);
    // Three containers were not restored at about the same time. Each takes a second to import, and on a
    // machine with up to three processors one imports at a time.
    let (mut mark, mut times) = (mark, Vec::new());
    for _ in 0..3 {
        let line = d.log.line_since(mark, "restored=false").await;
        times.push(line.split(' ').find_map(|word| parse_rfc3339(word).ok()).expect("its time"));
        mark = d.log.mark_behind(mark, "restored=false").await;
    }
    for pair in times.windows(2) {
        let between = pair[1].duration_since(pair[0]).expect("one after the other");
        assert!(between > Duration::from_millis(700), "{}", d.log.text());
    }
    d.log.line("a snapshot of a warm part was removed").await;
    d.stop().await;
}

#[tokio::test]
async fn parts_that_died_end_the_use_of_a_snapshot_only_in_three_containers() {
    let image = image("idle-dies", ALIKE);
    let d = setup(&image).set("pool.idle", 2).start().await;
    let mut mark = d.log.mark_behind(0, "a snapshot of the warm part was taken").await;
    let mut imported = mark;
    let mut containers = Vec::new();
    for _ in 0..2 {
        let line = d.log.line_since(mark, "could not be restored from its snapshot").await;
        containers.push(field(&line, "container"));
        mark = d.log.mark_behind(mark, "could not be restored from its snapshot").await;
    }
    assert_ne!(containers[0], containers[1]);
    // Both import now, and the snapshot serves the others.
    for _ in 0..2 {
        imported = d.log.mark_behind(imported, "restored=false").await;
    }
    assert!(metric(&d, &format!("{FAILURES}\"died\"}} 2")).await);
    assert!(metric(&d, &format!("{IN_USE} 1")).await);
    assert!(!d.log.text().contains("is used no more"), "{}", d.log.text());
    // The pool makes a third one.
    d.session("s").python("pass").await.expect_success();
    d.log.line("the snapshot is used no more").await;
    d.log.line("snapshot=None").await;
    assert!(metric(&d, &format!("{FAILURES}\"died\"}} 3")).await);
    assert!(metric(&d, &format!("{IN_USE} 0")).await);
    // The session's container still mounts it.
    d.session("s").tool("close_session").await.expect_success();
    d.log.line("a snapshot of a warm part was removed").await;
    d.stop().await;
}

#[tokio::test]
async fn where_no_snapshot_is_possible_that_is_known_and_no_defect() {
    for (behaviour, why) in
        [("save-unsupported", "the kernel lacks something"), ("restore-unsupported", "no restoring here")]
    {
        let image = image(behaviour, ALIKE);
        let d = setup(&image).start().await;
        let line = d.log.line("no snapshot of the warm part").await;
        assert!(line.contains("outcome=unsupported") && line.contains(why), "{line}");
        assert!(!line.contains("WARN"), "{line}");
        assert_eq!(warm(&d, "s").await, "imported\n");
        let metrics = d.request("GET", "/metrics").send().await.expect(200).text();
        assert!(!metrics.contains(IN_USE), "an alert would look at it");
        let status = d.request("GET", "/status").send().await.expect(200).json().to_string();
        assert!(status.contains(&format!("it is not possible here: {why}")), "{status}");
        let (view, store) = (d.view().await, d.store.clone());
        until_none_is_left(&view, PATIENCE).await;
        d.stop().await;
        let record = std::fs::read(store.path().join("snapshots/snapshots.json")).expect("a record");
        let record: serde_json::Value = serde_json::from_slice(&record).expect("JSON");
        assert_eq!(record["unsupported"]["python"]["why"], why, "{record}");
        // The next daemon does not try it.
        let d = setup(&image).store(&store).start().await;
        assert_eq!(warm(&d, "s").await, "imported\n");
        let status = d.request("GET", "/status").send().await.expect(200).json().to_string();
        assert!(status.contains(&format!("it is not possible here: {why}")), "{status}");
        let log = d.stop().await;
        assert!(!log.text().contains("a snapshot of the warm part is taken"), "{}", log.text());
    }
}
