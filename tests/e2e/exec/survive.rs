//! The daemon is killed while commands run: they continue, and every byte of their output is there, once, in
//! order.

use std::collections::BTreeMap;
use std::time::Duration;

use rustix::process::{Signal, kill_process};
use serde_json::{Value, json};

use super::{begin, bytes_of, daemon, ended, expect_numbered, id_of, read_all, status, types};
use crate::support::{Daemon, PATIENCE, Setup, within};

/// Writes numbered lines for a while, a long one now and then, and a last one without a newline.
fn counting(lines: u32, pause: &str) -> String {
    format!(
        "i=0; while [ $i -lt {lines} ]; do i=$((i + 1)); echo \"$i line of $$\"; if [ $((i % 10)) = 0 ]; \
         then echo \"$i error\" >&2; sleep {pause}; fi; done; printf 'the end'; exit 3"
    )
}

fn expect_counted(events: &[Value], lines: u32, what: &str) {
    expect_numbered(events);
    let stdout = String::from_utf8(bytes_of(events, "stdout")).expect("text");
    let numbers: Vec<u32> =
        stdout.lines().filter_map(|line| line.split_once(" line of ")?.0.parse().ok()).collect();
    assert_eq!(numbers, (1..=lines).collect::<Vec<_>>(), "{what}");
    assert!(stdout.ends_with("the end"), "{what}");
    let errors = String::from_utf8(bytes_of(events, "stderr")).expect("text");
    let wanted: String = (1..=lines).filter(|n| n % 10 == 0).map(|n| format!("{n} error\n")).collect();
    assert_eq!(errors, wanted, "{what}");
    assert_eq!(
        events.last().map(|event| (&event["type"], &event["code"])),
        Some((&json!("exit"), &json!(3))),
        "{what}"
    );
}

/// Restarts the daemon after a crash.
async fn again(setup: impl Fn() -> Setup, d: Daemon) -> Daemon {
    let store = d.crash().await;
    setup().store(&store).start().await
}

#[tokio::test]
async fn a_hundred_commands_continue_while_the_daemon_is_killed() {
    const SESSIONS: u32 = 10;
    let setup = || daemon().set("exec.max", 100).set("exec.per_session", 10);
    let mut d = setup().start().await;
    let mut ids = Vec::new();
    for n in 0..100 {
        // Some end before, some during, and some after the time without a daemon.
        let command = counting(if n % 3 == 0 { 60 } else { 200 + n }, "0.2");
        ids.push((begin(&d.session(&format!("s{}", n % SESSIONS)), &command).await, n));
    }
    let seen: BTreeMap<_, _> = {
        let mut seen = BTreeMap::new();
        for (id, _) in &ids {
            seen.insert(
                id.clone(),
                d.tool("get_execution_output", json!({ "execution_id": id, "lines": true })).await.document,
            );
        }
        seen
    };
    for _ in 0..2 {
        d = again(setup, d).await;
        tokio::time::sleep(Duration::from_millis(300)).await; // so that some of them end with this daemon
    }
    for (id, n) in &ids {
        let end = ended(&d, id).await;
        assert_eq!((&end["status"], &end["exit_code"]), (&json!("completed"), &json!(3)), "{n}: {end}");
        let events = read_all(&d, id).await;
        expect_counted(&events, if n % 3 == 0 { 60 } else { 200 + n }, &format!("number {n}"));
        let before = seen[id]["output"].as_array().expect("events");
        assert_eq!(before[..], events[..before.len()], "what was told is told again, with the same numbers");
    }
    d.stop().await;
}

#[tokio::test]
async fn the_next_daemon_reads_feeds_and_ends_a_command_like_the_first() {
    let d = daemon().start().await;
    let s = d.session("s");
    let interactive =
        |command: &str| s.tool("execute_code_async").with("command", command).with("interactive", true);
    let id = id_of(&interactive("while read -r line; do echo \"got $line\"; done; echo over").await);
    let other = begin(&s, "trap 'echo bye; exit 0' TERM; echo begun; while :; do sleep 0.05; done").await;
    let over = begin(&s, "echo done; echo saved > f; exit 4").await;
    assert_eq!(ended(&d, &over).await["status"], "completed");
    d.tool("send_stdin", json!({ "execution_id": id, "input_data": "one" })).await.expect_success();
    d.tool("get_execution_output", json!({ "execution_id": id, "wait": true, "since": 1 })).await;
    let d = again(daemon, d).await;
    assert_eq!(types(&read_all(&d, &over).await), ["ready", "stdout", "exit"]);
    let all = d.tool("get_execution_output", json!({ "execution_id": over, "since": 2 })).await.document;
    assert_eq!(all["next_since"], 3);
    let listed = d.session("s").tool("list_executions").await.document["executions"].as_array().map(Vec::len);
    assert_eq!(listed, Some(3));
    d.tool("send_stdin", json!({ "execution_id": id, "input_data": "two", "eof": true }))
        .await
        .expect_success();
    let events = read_all(&d, &id).await;
    expect_numbered(&events);
    assert_eq!(bytes_of(&events, "stdout"), b"got one\ngot two\nover\n");
    d.tool("cancel_execution", json!({ "execution_id": other })).await.expect_success();
    assert_eq!(bytes_of(&read_all(&d, &other).await, "stdout"), b"begun\nbye\n");
    assert_eq!(status(&d, &other).await["status"], "cancelled");
    d.request("GET", "/sessions/s/files/f").send().await.expect(200);
    d.stop().await;
}

#[tokio::test]
async fn a_command_whose_container_is_gone_is_reported_lost() {
    let d = daemon().start().await;
    let id = begin(&d.session("s"), "echo begun; sleep 100").await;
    d.tool("get_execution_output", json!({ "execution_id": id, "wait": true, "since": 1 })).await;
    let view = d.view().await;
    let container = view.the_container("sh").await;
    let store = d.crash().await;
    view.kill(&container).await;
    let d = daemon().store(&store).start().await;
    assert_eq!(ended(&d, &id).await["status"], "lost");
    assert_eq!(types(&read_all(&d, &id).await), ["ready", "stdout", "error"]);

    // And a command whose container disappears while the daemon runs.
    let id = begin(&d.session("s"), "echo begun; sleep 100").await;
    let waiting =
        d.tool("get_execution_output", json!({ "execution_id": id, "wait": true, "since": 1 })).await;
    assert_eq!(waiting.document["output"][0]["data"], "begun");
    view.kill(&d.view().await.the_container("sh").await).await;
    assert_eq!(ended(&d, &id).await["status"], "lost");
    d.stop().await;
}

/// A suspended daemon, as on a machine that sleeps, reads afterwards what was written meanwhile.
#[tokio::test]
async fn the_end_of_a_command_during_a_suspension_is_noticed() {
    let d = daemon().start().await;
    let s = d.session("s");
    let short = s.tool("execute_code_async").with("command", "echo a; sleep 0.5; echo b").timeout(3.0).await;
    let long = begin(&s, "sleep 300").await;
    kill_process(d.pid(), Signal::STOP).expect("a signal");
    tokio::time::sleep(Duration::from_secs(14)).await; // longer than its timeout and grace period
    kill_process(d.pid(), Signal::CONT).expect("a signal");
    let events = read_all(&d, &id_of(&short)).await;
    assert_eq!(bytes_of(&events, "stdout"), b"a\nb\n");
    assert_eq!(types(&events).last(), Some(&"exit"));
    assert_eq!(status(&d, &long).await["status"], "running");
    d.stop().await;
}

#[tokio::test]
async fn an_ended_execution_is_kept_for_a_while() {
    let setup = || daemon().set("exec.kept", 2).set("exec.keep", "1h");
    let d = setup().start().await;
    let s = d.session("s");
    let mut ids = Vec::new();
    for n in 0..4 {
        ids.push(id_of(&s.tool("execute_code").with("command", format!("echo {n}")).await));
    }
    // They are removed just after the answer to the last one.
    for id in &ids[..2] {
        let asked = async || d.tool("get_execution_output", json!({ "execution_id": id })).await;
        let gone = async {
            while !asked().await.is_error {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        within(PATIENCE, "an end of an execution's time", gone).await;
        asked().await.expect_error("execution_not_found");
    }
    let d = again(setup, d).await;
    for (n, id) in ids.iter().enumerate().skip(2) {
        assert_eq!(bytes_of(&read_all(&d, id).await, "stdout"), format!("{n}\n").into_bytes());
    }
    d.stop().await;
}
