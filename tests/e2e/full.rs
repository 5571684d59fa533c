//! The store's disk is full, or cannot be written: the daemon reports it, loses nothing acknowledged, and
//! continues by itself when there is room again. The disk is a small file system of the test; mounting it
//! needs root.

use std::collections::BTreeMap;

use serde_json::json;

use crate::support::{Daemon, Ran, Session, Setup, Store};

const MIB: usize = 1 << 20;

/// Small, so that it is soon full; and far above the store's reserve.
const DISK: u64 = 48 << 20;

/// Acknowledged files, by session and name.
type Saved = BTreeMap<(&'static str, String), Vec<u8>>;

fn setup(store: &Store) -> Setup {
    Daemon::with().store(store)
}

fn content(n: usize, size: usize) -> Vec<u8> {
    format!("{n} ").into_bytes().into_iter().cycle().take(size).collect()
}

#[track_caller]
fn expect_full(ran: Ran) -> Ran {
    assert!(ran.is_error && ran.document["error"] == "quota_exceeded", "{}", ran.document);
    assert!(ran.text("message").contains("the disk of the store is full"), "{}", ran.document);
    ran
}

/// Uploads files of this size until one is refused.
async fn fill(d: &Daemon, id: &'static str, size: usize, saved: &mut Saved) {
    let s = d.session(id);
    for n in 0..1000 {
        let (name, content) = (format!("f{size}-{n}"), content(n, size));
        let ran = s.upload(&name, &content).await;
        if ran.document["success"] != true {
            expect_full(ran);
            return;
        }
        saved.insert((id, name), content);
    }
    panic!("a disk has an end");
}

/// Compares by listing, by link, and by content.
async fn expect_saved(d: &Daemon, saved: &Saved) {
    let ids: std::collections::BTreeSet<_> = saved.keys().map(|(id, _)| *id).collect();
    for id in ids {
        let listed = d.session(id).tool("list_artifacts").with("limit", 1000).await.expect_success();
        let listed = listed.document["artifacts"].as_array().expect("artifacts").clone();
        let names: Vec<_> =
            listed.iter().map(|one| one["filename"].as_str().expect("a name").to_owned()).collect();
        let expected: Vec<_> =
            saved.keys().filter(|(of, _)| *of == id).map(|(_, name)| name.clone()).collect();
        assert_eq!(names, expected, "{id}");
        for (one, name) in listed.iter().zip(names) {
            let body = d.fetch(one["url"].as_str().expect("a link")).await.expect(200).body;
            assert!(body == saved[&(id, name.clone())], "{name} of {id}");
        }
    }
}

/// The answer of a program that leaves more than there is room for.
async fn run_over(s: &Session<'_>, name: &str, mib: usize) -> Ran {
    let code = format!("yes over | head -c {} > {name}; echo written", mib * MIB);
    s.sh(&code).await
}

#[tokio::test]
async fn a_full_disk_is_reported_and_loses_nothing() {
    let store = Store::on_disk_of(DISK);
    let d = setup(&store).start().await;
    let mut saved = Saved::new();
    d.session("run").sh("echo before > made").await.expect_success();
    saved.insert(("run", "made".into()), b"before\n".to_vec());
    fill(&d, "a", 4 * MIB, &mut saved).await;
    fill(&d, "a", 100_000, &mut saved).await;
    fill(&d, "b", 3000, &mut saved).await;
    assert!(saved.len() > 12, "{}", saved.len());

    // Every kind of upload reports it, also for a new session.
    let put = d.request("PUT", "/sessions/new/files/f").body(vec![1; 4 * MIB]).send().await.expect(507);
    assert_eq!(put.json()["error"], json!("quota_exceeded"), "{}", put.text());
    expect_full(d.session("new").upload("f", &[1; 4 * MIB]).await);
    // A program runs and is answered, with long output too; its files stay in its container.
    let s = d.session("run");
    let ran = expect_full(run_over(&s, "over", 6).await);
    assert_eq!((ran.stdout(), ran.exit_code()), ("written\n", 0));
    assert!(ran.text("message").contains("the next call saves them"), "{}", ran.document);
    let loud = s.sh("yes loud | head -c 8000000; echo end").await;
    assert!(
        loud.stdout().starts_with("loud\n") && loud.document["stdout_truncated"] == true,
        "{}",
        loud.stdout().len()
    );
    assert_eq!(loud.exit_code(), 0);
    // Reading still works.
    expect_saved(&d, &saved).await;
    assert_eq!(d.health().await["status"], "healthy");

    // Deleting makes room: the next call saves what the previous ones could not.
    d.session("a").tool("close_session").with("delete_files", true).await.expect_success();
    saved.retain(|(id, _), _| *id != "a");
    s.sh("wc -c < over").await.expect_stdout(&format!("{}\n", 6 * MIB));
    saved.insert(("run", "over".into()), b"over\n".iter().copied().cycle().take(6 * MIB).collect());
    expect_saved(&d, &saved).await;
    d.session("new").upload("f", b"now").await.expect_success();
    saved.insert(("new", "f".into()), b"now".to_vec());
    expect_saved(&d, &saved).await;
    d.stop().await;
}

#[tokio::test]
async fn a_daemon_killed_on_a_full_disk_restarts_and_continues_on_a_larger_one() {
    let store = Store::on_disk_of(DISK);
    let mut saved = Saved::new();
    let d = setup(&store).start().await;
    d.session("run").sh("echo before > made").await.expect_success();
    saved.insert(("run", "made".into()), b"before\n".to_vec());
    fill(&d, "a", 2 * MIB, &mut saved).await;
    expect_full(run_over(&d.session("run"), "over", 8).await);
    d.crash().await;

    // It starts on a full disk, with everything that it had, and with the container that has more.
    let d = setup(&store).start().await;
    expect_saved(&d, &saved).await;
    let s = d.session("run");
    expect_full(s.sh("wc -c < over").await);
    // Killed again, while it stops and while it refuses an upload.
    let body = vec![1; 8 * MIB];
    let mark = d.log.mark();
    let putting = d.request("PUT", "/sessions/a/files/more").body(body).try_send();
    let killing = async {
        d.log.line_since(mark, "request method=PUT").await;
        d.kill();
    };
    let (refused, ()) = tokio::join!(putting, killing);
    assert!(refused.is_none_or(|answer| answer.status == 507));
    d.crash().await;

    let d = setup(&store).start().await;
    expect_saved(&d, &saved).await;
    store.resize_disk(4 * DISK);
    let s = d.session("run");
    s.sh("wc -c < over").await.expect_stdout(&format!("{}\n", 8 * MIB));
    saved.insert(("run", "over".into()), b"over\n".iter().copied().cycle().take(8 * MIB).collect());
    fill_some(&d, &mut saved).await;
    expect_saved(&d, &saved).await;
    d.stop().await;
    // A later daemon has exactly what was saved.
    let d = setup(&store).start().await;
    expect_saved(&d, &saved).await;
    d.stop().await;
}

async fn fill_some(d: &Daemon, saved: &mut Saved) {
    for n in 0..4 {
        let (name, content) = (format!("later-{n}"), content(n, 3 * MIB));
        d.session("a").upload(&name, &content).await.expect_success();
        saved.insert(("a", name), content);
    }
}

/// The output of a run is not lost with its files, and every caller is told that nothing can be saved.
#[tokio::test]
async fn a_store_that_became_read_only_is_reported_and_loses_no_output() {
    let store = Store::new();
    let d = setup(&store).start().await;
    let s = d.session("run");
    s.sh("echo before > made").await.expect_success();
    let saved = Saved::from([(("run", "made".to_owned()), b"before\n".to_vec())]);
    let ready = async || d.request("GET", "/ready").send().await;
    ready().await.expect(200);

    let mark = d.log.mark();
    let over = store.read_only();
    // The daemon notices it before anybody saves anything.
    d.log.line_since(mark, "the file system of the store is read-only").await;
    assert_eq!(ready().await.expect(503).json()["missing"], json!(["the store cannot be written"]));
    assert_eq!(d.health().await["degraded"], json!(["the store cannot be written"]));
    let ran = run_over(&s, "over", 6).await;
    assert!(ran.is_error && ran.document["error"] == "quota_exceeded", "{}", ran.document);
    assert_eq!((ran.stdout(), ran.exit_code()), ("written\n", 0));
    let message = ran.text("message");
    assert!(
        message.starts_with("the store cannot be written at present (Read-only file system"),
        "{message}"
    );
    assert!(message.ends_with("the next call saves them if it can."), "{message}");
    assert!(!message.contains(store.path().to_str().expect("text")), "{message}");
    let put = d.request("PUT", "/sessions/a/files/f").body(vec![1; 4 * MIB]).send().await.expect(507);
    assert_eq!(put.json()["error"], json!("quota_exceeded"), "{}", put.text());
    let refused = s.tool("execute_code").with("command", "echo never").await;
    refused.expect_error("quota_exceeded");
    // Calls that need no disk still work.
    d.session("new").sh("echo here").await.expect_stdout("here\n");
    expect_saved(&d, &saved).await;

    let mark = d.log.mark();
    drop(over);
    d.log.line_since(mark, "the store can be written again").await;
    ready().await.expect(200);
    assert_eq!(d.health().await, json!({ "status": "healthy" }));
    let over = s.sh("wc -c < over").await.expect_stdout(&format!("{}\n", 6 * MIB));
    assert_eq!(over.document["success"], true, "{}", over.document);
    let got = d.request("GET", "/sessions/run/files/over").send().await.expect(200);
    assert_eq!(got.body.len(), 6 * MIB);
    d.stop().await;
}

/// A change that is durable but not applied is reported neither as lost nor as present.
#[tokio::test]
async fn a_saved_change_that_cannot_be_applied_is_applied_later() {
    let store = Store::new();
    let d = setup(&store).start().await;
    let s = d.session("run");
    s.sh("echo before > made").await.expect_success();
    let over = store.read_only();
    let ran = s.sh("echo small > small; echo said").await;
    assert!(ran.is_error && ran.document["error"] == "quota_exceeded", "{}", ran.document);
    assert_eq!((ran.stdout(), ran.exit_code()), ("said\n", 0));
    assert!(ran.text("message").contains("are saved, but cannot be put in place yet"), "{}", ran.document);
    drop(over);
    s.sh("cat made small").await.expect_stdout("before\nsmall\n");
    let got = d.request("GET", "/sessions/run/files/small").send().await.expect(200);
    assert_eq!(got.text(), "small\n");
    d.stop().await;
}
