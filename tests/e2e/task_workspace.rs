//! The workspace of coding agents on a disk: how much fits, what ends a task that takes more, what is saved.
//!
//! The agent is a stand-in: its task is a script for the shell, and what that prints is its last word.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::{Daemon, Image, Ran, Setup};
use crate::task_world::finished;

const AGENT: &str = r#"#!/bin/sh
text=$(cat)
said=$(sh -c "$text" 2>&1 | tr '\n"\\' ' __')
printf '{"type":"result","subtype":"success","is_error":false,"result":"%s"}\n' "$said"
"#;

pub(crate) fn image() -> Image {
    let dockerfile = "FROM paddock-base:trixie\nCOPY claude /usr/local/bin/claude\n\
                      RUN mkdir -p /data; chmod 755 /usr/local/bin/claude\nWORKDIR /data\n\
                      ENTRYPOINT [\"/usr/local/bin/claude\"]\n";
    Image::build(dockerfile, &[("claude", AGENT)])
}

/// A daemon with this agent, and a model that nobody asks.
pub(crate) fn daemon(image: &Image) -> Setup {
    let model = json!({ "provider": "anthropic", "url": "http://127.0.0.1:9", "key": "env:STUB_KEY" });
    Daemon::with()
        .with_tasks()
        .set("egress.mode", "none")
        .set("models.anthropic", toml::Value::try_from(model).expect("a table"))
        .set("runners.claude-code", image.name())
        .env("STUB_KEY", "nobody-asks")
}

/// A task that is this script.
async fn task(d: &Daemon, script: &str) -> Ran {
    task_with(d, script, json!([])).await
}

async fn task_with(d: &Daemon, script: &str, files: Value) -> Ran {
    let arguments = json!({ "task_description": script, "session_id": "s", "timeout": 300, "files": files });
    finished(d, "s", d.tool("execute_task", arguments).await).await
}

/// What it printed, where it did well.
#[track_caller]
pub(crate) fn said(ran: &Ran) -> String {
    assert_eq!(ran.document["status"], "completed", "{}", ran.document);
    ran.text("output").trim().to_owned()
}

/// The text of a saved file.
async fn saved(d: &Daemon, path: &str) -> Option<String> {
    let answer = d.request("GET", &format!("/sessions/s/files/{path}")).send().await;
    (answer.status == 200).then(|| answer.text())
}

/// Names of files that are not saved.
fn not_saved(ran: &Ran) -> Vec<&str> {
    let all = ran.document["not_saved"].as_array().map(Vec::as_slice).unwrap_or_default();
    all.iter().map(|one| one["path"].as_str().expect("a path")).collect()
}

#[tokio::test]
async fn a_workspace_is_larger_than_memory_and_the_home_directory_is_no_part_of_it() {
    let image = image();
    let d =
        daemon(&image).set("coding_agents.memory", "256MiB").set("coding_agents.tmp", "16MiB").start().await;
    let script = "echo big.bin > .gitignore; echo small > small.txt; \
                  head -c 600M /dev/zero > big.bin && head -c 100M /dev/zero > ~/cache && \
                  stat -c %s big.bin ~/cache; echo $HOME; ls -A /workspace; stat -c %a:%U /data ~";
    let ran = task(&d, script).await;
    let words = said(&ran);
    assert!(
        words.starts_with("629145600 104857600 /home/agent .gitignore big.bin small.txt 700:"),
        "{words}"
    );
    assert_eq!(ran.document["files_created"], json!([".gitignore", "small.txt"]), "{}", ran.document);
    assert_eq!(not_saved(&ran), [""; 0], "what git ignores is not named");
    assert_eq!(saved(&d, "small.txt").await.as_deref(), Some("small\n"));
    // A further task has all of it.
    assert_eq!(said(&task(&d, "stat -c %s big.bin ~/cache | tr '\\n' ' '").await), "629145600 104857600");
    d.stop().await;
}

#[tokio::test]
async fn a_task_that_takes_more_than_its_bound_is_ended_by_name_and_its_files_are_kept() {
    let image = image();
    let d = daemon(&image)
        .set("limits.data", "16MiB")
        .set("limits.upload", "1MiB")
        .set("limits.data_inodes", 1000)
        .set("coding_agents.data", "64MiB")
        .set("coding_agents.data_inodes", 2000)
        .start()
        .await;
    said(&task(&d, "echo first > first.txt; echo ignored > .gitignore").await);
    for fills in [
        "head -c 200M /dev/zero > ignored; sleep 250",
        // The home directory counts too, and files that are only open.
        "rm ignored; head -c 300M /dev/zero > ~/fill; sleep 250",
        "rm ~/fill; exec 3>open; rm open; head -c 400M /dev/zero >&3; sleep 250",
        "mkdir ignored; cd ignored; seq 5000 | xargs touch; sleep 250",
    ] {
        let begun = Instant::now();
        let ran = task(&d, &format!("echo again > second.txt; {fills}")).await;
        assert_eq!(
            (ran.text("status"), ran.text("error")),
            ("failed", "Disk limit exceeded"),
            "{}",
            ran.document
        );
        assert!(begun.elapsed() < Duration::from_secs(60), "{fills}");
        assert_eq!(saved(&d, "first.txt").await.as_deref(), Some("first\n"));
        assert_eq!(saved(&d, "second.txt").await.as_deref(), Some("again\n"));
    }
    // What a task finds is no reason to end it, or nothing could ever be removed.
    let words = said(&task(&d, "sleep 1; ls ignored | wc -l; rm -r ignored; sleep 1").await);
    assert!(words.parse::<u32>().is_ok_and(|left| left > 2000), "{words}");
    let metrics = d.request("GET", "/metrics").send().await.expect(200).text();
    assert!(metrics.contains(r#"paddock_limits_hit_total{limit="disk"} 4"#), "{metrics}");
    d.stop().await;
}

#[tokio::test]
async fn what_git_ignores_is_neither_saved_nor_looked_at_unless_it_was_saved_before() {
    let image = image();
    let d = daemon(&image).start().await;
    let files = json!([
        { "path": ".gitignore", "text": "node_modules/\n*.log\n" },
        { "path": "node_modules/kept.txt", "text": "old" },
        { "path": "node_modules/gone.txt", "text": "old" },
        { "path": "sub/.gitignore", "text": "!kept.log\n/only-here\n" },
    ]);
    // Far more entries than a session may have, and than an agent tells of.
    let script = "mkdir -p node_modules/a/b; cd node_modules/a/b; seq 200000 | xargs touch; cd /workspace; \
                  echo new > node_modules/kept.txt; rm node_modules/gone.txt; \
                  touch a.log sub/kept.log sub/only-here only-here; mkdir -p .git/info repo/.git/info; \
                  echo secret > repo/.git/info/exclude; touch repo/secret repo/told secret";
    let ran = task_with(&d, script, files).await;
    said(&ran);
    let expected = [
        "node_modules/kept.txt",
        "only-here",
        "repo/.git/info/exclude",
        "repo/told",
        "secret",
        "sub/kept.log",
    ];
    assert_eq!(ran.document["files_created"], json!(expected), "{}", ran.document);
    assert_eq!(not_saved(&ran), [""; 0]);
    assert_eq!(saved(&d, "node_modules/kept.txt").await.as_deref(), Some("new\n"), "it was saved before");
    assert_eq!(saved(&d, "node_modules/gone.txt").await, None);
    let begun = Instant::now();
    assert_eq!(said(&task(&d, "ls node_modules/a/b | wc -l").await), "200000", "they stay in the container");
    assert!(begun.elapsed() < Duration::from_secs(40), "{:?}", begun.elapsed());
    d.stop().await;
}

#[tokio::test]
async fn what_is_more_than_is_saved_is_named_and_stays_in_the_container() {
    let image = image();
    let d = daemon(&image)
        .set("coding_agents.stored", "1MiB")
        .set("limits.data_inodes", 100)
        .set("store.max_files", 1000)
        .start()
        .await;
    let ran = task(&d, "for name in a b c; do head -c 600000 /dev/zero > $name; done; echo small > d").await;
    said(&ran);
    assert_eq!(ran.document["files_created"], json!(["a", "d"]), "{}", ran.document);
    assert_eq!(not_saved(&ran), ["b", "c"]);
    let ran = task(&d, "rm a; stat -c %s b c | tr '\\n' ' '").await;
    assert_eq!(said(&ran), "600000 600000");
    assert_eq!((&ran.document["files_created"], not_saved(&ran)), (&json!(["b"]), vec!["c"]));
    // A hundred thousand entries are told, and cost the agent's memory no more than some of them.
    let ran = task(&d, "rm b c; mkdir many; cd many; seq -f %06.0f 100000 | xargs touch").await;
    said(&ran);
    let created = ran.document["files_created"].as_array().expect("files").len();
    assert!((90..100).contains(&created), "{created}");
    assert_eq!(not_saved(&ran).len(), 50);
    assert_eq!(saved(&d, "d").await.as_deref(), Some("small\n"), "what was not looked at is not removed");
    assert_eq!(said(&task(&d, "ls many | wc -l").await), "100000");
    d.stop().await;
}

#[tokio::test]
async fn a_workspace_is_there_again_after_the_daemon_died_and_nothing_of_it_is_left_after_its_end() {
    let image = image();
    let d = daemon(&image).start().await;
    said(
        &task(&d, "echo deps > .gitignore; echo dep > deps; echo tool > ~/tool; echo mine > mine.txt").await,
    );
    let store = d.crash().await;
    let d = daemon(&image).store(&store).start().await;
    assert_eq!(said(&task(&d, "cat deps ~/tool mine.txt | tr '\\n' ' '").await), "dep tool mine");
    // The disk outlives the container, so that what it has made is saved when it is lost.
    let view = d.view().await;
    let container = view.the_container("claude-code").await;
    let losing = async {
        view.begun(&container).await;
        view.kill(&container).await;
    };
    let (ran, ()) =
        tokio::join!(task(&d, "echo more > deps; echo late > late.txt; touch /tmp/begun; sleep 250"), losing);
    assert!(ran.text("status") == "failed" && ran.text("error").contains("were saved"), "{}", ran.document);
    assert_eq!(saved(&d, "late.txt").await.as_deref(), Some("late\n"));
    assert_eq!(saved(&d, "deps").await, None, "git ignores it");
    // A session that is closed and deleted leaves nothing.
    let close = json!({ "conversationId": "s", "delete_files": true });
    assert_eq!(d.tool("close_session", close).await.document["status"], "closed");
    let ran = task(&d, "ls mine.txt deps ~/tool || true").await;
    assert_eq!(said(&ran).matches("cannot access").count(), 3, "{}", ran.document);
    d.stop().await;
}
