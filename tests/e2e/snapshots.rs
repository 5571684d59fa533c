//! Snapshots of warm parts: taken, proved and used; and what goes wrong with them. The image is a fake: its
//! snapshot is a word.

#[path = "snapshots/later.rs"]
mod later;
#[path = "snapshots/not_restored.rs"]
mod not_restored;
#[path = "snapshots/way.rs"]
mod way;

use std::process::Command;
use std::time::{Duration, Instant};

use crate::support::{Daemon, Image, PATIENCE, Setup, Store, View};

/// Prints how it was started: `restored`, `imported` or `None` where it was cold.
pub(crate) const HOW: &str = "print(globals().get('WARM'))";

/// A proof that says the same however it is run.
pub(crate) const ALIKE: &str = "import sys; print('alike'); print('too', file=sys.stderr); sys.exit(3)";

/// The fake with this behaviour and this proof.
pub(crate) fn image(behaviour: &str, proof: &str) -> Image {
    image_with_levels(behaviour, proof, "")
}

/// The same with these levels.
fn image_with_levels(behaviour: &str, proof: &str, levels: &str) -> Image {
    let dockerfile = format!(
        "FROM paddock-runner-python\n\
         COPY part.py /part\n\
         COPY fork.py /fork.py\n\
         COPY proof.py /proof.py\n\
         RUN chmod 755 /part && echo '{behaviour}' > /behaviour\n\
         LABEL sandbox.runner= sandbox.language=python sandbox.warm='[\"/part\",\"import\"]' \
         sandbox.warm.save='[\"/part\",\"save\"]' sandbox.warm.restore='[\"/part\",\"restore\"]' \
         sandbox.warm.proof=/proof.py sandbox.warm.levels='{levels}'\n"
    );
    let fork = include_str!("../../runner-images/example-warm/fork.py");
    let part = include_str!("snapshots/part.py");
    Image::build(&dockerfile, &[("part.py", part), ("fork.py", fork), ("proof.py", proof)])
}

fn setup(image: &Image) -> Setup {
    Daemon::with().set("runners.python", image.name()).set("agent.snapshots", true)
}

/// A store with a snapshot that was taken and used, and whose daemon has ended.
async fn taken(image: &Image) -> Store {
    let d = setup(image).start().await;
    d.log.line("new containers have another snapshot").await;
    let store = d.store.clone();
    d.stop().await;
    store
}

/// How a session's runs are started as soon as its warm part stands.
async fn warm(d: &Daemon, session: &str) -> String {
    loop {
        let how = d.session(session).python(HOW).await.expect_success().stdout().to_owned();
        if how != "None\n" {
            return how;
        }
    }
}

/// Waits until no snapshot of these daemons is left.
async fn until_none_is_left(view: &View, within: Duration) {
    let begun = Instant::now();
    while !view.snapshots().await.is_empty() {
        assert!(begun.elapsed() < within, "a volume stays");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn metric(d: &Daemon, line: &str) -> bool {
    let text = d.request("GET", "/metrics").send().await.expect(200).text();
    text.lines().any(|one| one == line)
}

#[tokio::test]
async fn a_snapshot_is_taken_and_proved_and_idle_containers_that_import_are_replaced() {
    let image = image("", ALIKE);
    let d = setup(&image).set("pool.idle", 2).start().await;
    let view = d.view().await;
    d.session("first").python(HOW).await.expect_success();
    d.log.line("a snapshot of the warm part was taken").await;
    let mut mark = d.log.mark_behind(0, "a snapshot of the warm part was taken").await;
    for _ in 0..2 {
        mark = d.log.mark_behind(mark, "restored=true").await;
    }
    // The session keeps its container, which has imported or is cold.
    assert_ne!(d.session("first").python(HOW).await.expect_success().stdout(), "restored\n");
    for n in 0..4 {
        d.session(&format!("later-{n}")).python(HOW).await.expect_stdout("restored\n");
    }
    let volumes = view.snapshots().await;
    assert_eq!(volumes.len(), 1);
    assert!(metric(&d, "paddock_snapshot_in_use{language=\"python\"} 1").await);
    assert!(metric(&d, "paddock_snapshot_takes_total{language=\"python\",outcome=\"ok\"} 1").await);
    let status = d.request("GET", "/status").send().await.expect(200).json();
    let python = status["pool"].as_array().expect("runners").iter().find(|one| one["language"] == "python");
    assert_eq!(python.expect("it is there")["snapshot"]["bytes"], (3 << 20) + 8);
    let store = d.store.clone();
    let view_of_store = d.view().await;
    d.stop().await;

    // The next daemon uses it from the first container on.
    let d = setup(&image).store(&store).start().await;
    d.session("next").python(HOW).await.expect_stdout("restored\n");
    assert!(!d.log.text().contains("a snapshot of the warm part is taken"), "{}", d.log.text());
    d.stop().await;
    assert_eq!(view_of_store.snapshots().await, volumes);

    // Switched off, it goes, and containers import.
    let d = setup(&image).store(&store).set("agent.snapshots", false).start().await;
    assert_eq!(warm(&d, "off").await, "imported\n");
    d.log.line("a snapshot of a warm part was removed").await;
    d.stop().await;
    assert_eq!(view_of_store.snapshots().await.len(), 0);
}

#[tokio::test]
async fn a_run_in_a_container_that_has_just_started_is_a_restored_parts() {
    let image = image("", ALIKE);
    let store = taken(&image).await;
    let d = setup(&image).store(&store).start().await;
    for n in 0..5 {
        // No container stands idle: each call waits for one that starts.
        d.session(&format!("s{n}")).python(HOW).await.expect_stdout("restored\n");
    }
    d.stop().await;
}

#[tokio::test]
async fn without_a_snapshot_that_works_containers_import_and_the_log_says_why() {
    for (behaviour, proof, outcome, why) in [
        ("save-fails", ALIKE, "save", "its save command ended with code 3: no room for ?[2J it"),
        ("save-links", ALIKE, "unfit", "which is neither a file nor a directory"),
        ("restore-fails", ALIKE, "restore", "it could not be restored: the kernel is ?[2J another"),
        ("restore-dies", ALIKE, "restore", "it could not be restored: it "),
        (
            "",
            "print(globals().get('WARM'))",
            "proof",
            "its output differs in line 1, cold: None, restored: restored",
        ),
        (
            "",
            "import os; print(1); 'WARM' in globals() and os._exit(9)",
            "proof",
            "restored it ended with code 9",
        ),
    ] {
        let image = image(behaviour, proof);
        let d = setup(&image).start().await;
        let view = d.view().await;
        let line = d.log.line("no snapshot of the warm part").await;
        assert!(line.contains(&format!("outcome={outcome} ")) && line.contains(why), "{behaviour}: {line}");
        assert_eq!(warm(&d, "s").await, "imported\n", "{behaviour}");
        assert!(metric(&d, "paddock_snapshot_in_use{language=\"python\"} 0").await);
        assert!(metric(&d, "paddock_degraded{what=\"snapshot_missing\"} 1").await);
        let counted = format!("paddock_snapshot_takes_total{{language=\"python\",outcome=\"{outcome}\"}} 1");
        assert!(metric(&d, &counted).await, "{counted}");
        until_none_is_left(&view, PATIENCE).await;
        d.stop().await;
    }
}

#[tokio::test]
async fn code_that_kills_the_restored_part_does_not_end_the_use_of_a_snapshot() {
    let image = image("", ALIKE);
    let store = taken(&image).await;
    let d = setup(&image).store(&store).start().await;
    for _ in 0..8 {
        d.session("s").python("import os; os.kill(os.getppid(), 9)").await;
        assert_eq!(warm(&d, "s").await, "restored\n");
    }
    assert!(metric(&d, "paddock_snapshot_in_use{language=\"python\"} 1").await);
    assert!(!d.log.text().contains("could not be restored"), "{}", d.log.text());
    d.stop().await;
}

#[tokio::test]
async fn a_poisoned_snapshot_is_refused_and_removed() {
    let image = image("", ALIKE);
    let store = taken(&image).await;
    let view = View::of(&store.owner()).await;
    let volumes = view.snapshots().await;
    let volume = volumes.first().expect("a snapshot");
    let mount = format!("{volume}:/w");
    let poisons = Command::new("docker")
        .args(["run", "--rm", "--network=none", "--entrypoint=/bin/sh", "--user=0", "-v", &mount])
        .args([image.name(), "-c", "echo -n poisoned > /w/deep/word"])
        .status();
    assert!(poisons.is_ok_and(|status| status.success()));
    let d = setup(&image).store(&store).start().await;
    let line = d.log.line("a snapshot is not what was saved").await;
    assert!(line.contains(volume.as_str()), "{line}");
    assert!(metric(&d, "paddock_snapshots_poisoned_total 1").await);
    assert_eq!(warm(&d, "s").await, "imported\n");
    d.log.line("a snapshot of a warm part was removed").await;
    assert!(!view.snapshots().await.contains(volume));
    d.stop().await;
}

#[tokio::test]
async fn a_daemon_that_is_killed_while_it_takes_one_leaves_nothing() {
    let image = image("save-waits", ALIKE);
    let d = setup(&image).start().await;
    let mark = d.log.mark();
    d.log.line("a snapshot of the warm part is taken").await;
    d.log.line_since(mark, "armed language=python").await;
    let view = d.view().await;
    assert_eq!(view.containers().await.len(), 1);
    let store = d.crash().await;
    let d = setup(&image).store(&store).start().await;
    let begun = Instant::now();
    while view.purposeless(&store.path().join("leases"), 0).await.is_some() {
        assert!(begun.elapsed() < Duration::from_secs(15), "something is left");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(view.snapshots().await.len(), 0);
    // The end does not wait for a save.
    d.log.line("a snapshot of the warm part is taken").await;
    let begun = Instant::now();
    d.stop().await;
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn a_snapshot_is_taken_again_and_goes_with_its_image() {
    let image = image("", ALIKE);
    let d = setup(&image).set("agent.snapshot_age", "10s").start().await;
    let view = d.view().await;
    let mark = d.log.mark();
    d.log.line("new containers have another snapshot").await;
    let first = view.snapshots().await;
    d.session("s").python(HOW).await.expect_stdout("restored\n");
    let mut mark = mark;
    for _ in 0..2 {
        mark = d.log.mark_behind(mark, "a snapshot of the warm part was taken").await;
    }
    // The session still mounts the first one.
    assert!(first.is_subset(&view.snapshots().await));
    d.session("s").python(HOW).await.expect_stdout("restored\n");
    d.session("s").tool("close_session").await;
    d.session("new").python(HOW).await.expect_stdout("restored\n");
    d.session("new").tool("close_session").await;
    drop(image);
    d.log.line("runner gone or replaced").await;
    until_none_is_left(&view, Duration::from_secs(60)).await;
    d.stop().await;
}

#[tokio::test]
async fn a_session_keeps_its_container_whatever_becomes_of_its_snapshot() {
    let image = image("", ALIKE);
    let store = taken(&image).await;
    let d = setup(&image).store(&store).start().await;
    // What is outside of /data is never saved.
    let writes = "open('/tmp/unsaved', 'w').write('here'); print(WARM)";
    d.session("s").python(writes).await.expect_stdout("restored\n");
    let view = d.view().await;
    let container = view.the_container("python").await;
    let mut store = d.crash().await;
    // What the record says, and whether snapshots are used, differ each time.
    for (record, enabled) in [(None, false), (Some("{\"snapshots\":"), true), (None, false)] {
        if let Some(record) = record {
            std::fs::write(store.path().join("snapshots/snapshots.json"), record).expect("a record");
        }
        let d = setup(&image).store(&store).set("agent.snapshots", enabled).start().await;
        assert_eq!(view.the_container("python").await, container);
        d.session("s").python("print(open('/tmp/unsaved').read())").await.expect_stdout("here\n");
        store = d.crash().await;
    }
    // Its volume goes with it.
    let d = setup(&image).store(&store).set("agent.snapshots", false).start().await;
    assert!(!view.snapshots().await.is_empty());
    d.session("s").tool("close_session").await;
    until_none_is_left(&view, Duration::from_secs(60)).await;
    d.stop().await;
}

/// A level for programs that import `math` at most.
const LIGHT: &str = r#"[{"restore":["/part","restore","light"],"modules":"math","never":"exec"}]"#;

#[tokio::test]
async fn a_level_takes_the_programs_that_need_no_more_and_another_part_those_that_it_cannot() {
    let image = image_with_levels("", ALIKE, LIGHT);
    let store = taken(&image).await;
    let d = setup(&image).store(&store).start().await;
    assert_eq!(warm(&d, "s").await, "restored light\n");
    d.log.line("restored=true").await;
    for (before, how) in [
        ("import math\n", "restored light\n"),
        ("import json\n", "restored\n"),
        ("if 1: import math, json\n", "restored\n"),
        ("exec('import json')\n", "restored\n"),
        ("", "restored light\n"),
    ] {
        d.session("s").python(&format!("{before}{HOW}")).await.expect_stdout(how);
    }
    // A part that its program kills is soon there again, and meanwhile the other one takes its runs.
    for kills in [
        "import math; __import__('os').kill(__import__('os').getppid(), 9)",
        "import os; os.kill(os.getppid(), 9)",
    ] {
        d.session("s").python(kills).await;
        for code in [HOW, "import json; print(globals().get('WARM'))"] {
            let ran = d.session("s").python(code).await.expect_success();
            assert!(["restored light\n", "restored\n", "None\n"].contains(&ran.stdout()), "{kills}: {code}");
        }
    }
    assert!(!d.log.text().contains("could not be restored"), "{}", d.log.text());
    d.stop().await;
}

#[tokio::test]
async fn a_level_that_cannot_be_restored_or_does_not_come_out_alike_is_said_and_its_snapshot_not_used() {
    let odd = "print(str(globals().get('WARM')).endswith('light'))";
    for (behaviour, proof, outcome, why) in [
        ("light-fails", ALIKE, "restore", "it could not be restored: no light"),
        ("", odd, "proof", "its output differs in line 1, cold: False, restored: True"),
    ] {
        let image = image_with_levels(behaviour, proof, LIGHT);
        let d = setup(&image).start().await;
        let line = d.log.line("no snapshot of the warm part").await;
        assert!(line.contains(&format!("outcome={outcome} ")) && line.contains(why), "{behaviour}: {line}");
        assert_eq!(warm(&d, "s").await, "imported\n", "{behaviour}");
        d.stop().await;
    }
}

#[tokio::test]
async fn a_level_that_dies_again_and_again_is_said_and_other_parts_have_its_runs() {
    let image = image_with_levels("light-dies", ALIKE, LIGHT);
    let d = setup(&image).set("pool.idle", 1).start().await;
    d.log.line("a snapshot of the warm part was taken").await;
    let line = d.log.line("could not be restored from its snapshot").await;
    assert!(line.contains("not twice"), "{line}");
    let ran = d.session("s").python(HOW).await.expect_success();
    assert!(["restored\n", "imported\n", "None\n"].contains(&ran.stdout()), "{:?}", ran.stdout());
    d.stop().await;
}

#[tokio::test]
async fn a_snapshot_that_cannot_be_noted_is_not_used() {
    let image = image("", ALIKE);
    let store = Store::new();
    // The record is written here first.
    std::fs::create_dir_all(store.path().join("snapshots/snapshots.new")).expect("a directory");
    let d = setup(&image).store(&store).start().await;
    let view = d.view().await;
    let line = d.log.line("no snapshot of the warm part").await;
    assert!(line.contains("outcome=store ") && line.contains("could not be noted"), "{line}");
    assert!(metric(&d, "paddock_snapshot_in_use{language=\"python\"} 0").await);
    until_none_is_left(&view, PATIENCE).await;
    assert!(!d.log.text().contains("new containers have another snapshot"), "{}", d.log.text());
    d.stop().await;
}
