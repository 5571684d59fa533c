//! Lines that attack `paddock stdio`, one a line: `tests/hostile/stdio.jsonl`. Each row has a server of its
//! own; what it writes must be JSON, line by line, and it must answer what comes afterwards.

use std::process::Stdio;

use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::process::{Child, Command};

use super::rows;
use super::watch::{Watch, bytes, expect_none};
use crate::support::{Daemon, PATIENCE, TOKEN, program, within};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    id: String,
    attempt: String,
    /// `\xNN` is one byte. With `times`, it comes so often in a row.
    send: String,
    times: Option<usize>,
    /// What follows it, once.
    #[serde(default)]
    end: String,
    /// The codes of the errors that are answered to it, in order.
    codes: Vec<i64>,
}

/// A server that connects to this daemon.
fn start(d: &Daemon) -> Child {
    let mut command = Command::new(program());
    command.args(["stdio", "--config"]).arg(d.store.path().join("config.toml")).env_clear();
    command.env("SANDBOX_ROOT", d.store.path()).env("MCP_API_TOKEN", TOKEN);
    if let Ok(host) = std::env::var("DOCKER_HOST") {
        command.env("DOCKER_HOST", host);
    }
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    command.spawn().expect("the daemon's binary")
}

async fn attack(d: &Daemon, row: &Row) -> Result<(), String> {
    let mut child = start(d);
    let mut to = child.stdin.take().expect("it is piped");
    let mut sent = bytes(&row.send).repeat(row.times.unwrap_or(1));
    sent.extend(bytes(&row.end));
    let last = json!({ "jsonrpc": "2.0", "id": "last", "method": "ping" });
    sent.extend(format!("\n{last}\n").bytes());
    let writing = tokio::spawn(async move {
        let _ = to.write_all(&sent).await;
    });
    let output = within(PATIENCE, "the end of a server", child.wait_with_output()).await.expect("its output");
    writing.abort();
    let (text, log) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let mut codes = Vec::new();
    let mut answered = false;
    for line in text.lines() {
        let Ok(message) = serde_json::from_str::<Value>(line) else {
            return Err(format!("no JSON: {line}"));
        };
        answered |= message["id"] == "last" && message["result"] == json!({});
        codes.extend(message["error"]["code"].as_i64());
    }
    if codes != row.codes || !answered || output.status.code() != Some(0) || log.contains("panicked") {
        let text: String = text.chars().take(800).collect();
        return Err(format!("{codes:?}, {}, answered {answered}: {text}\n{log}", output.status));
    }
    Ok(())
}

#[tokio::test]
async fn lines_that_attack_end_no_server() {
    let d = Daemon::start().await;
    let watch = Watch::over(&d).await;
    let rows: Vec<Row> = rows("stdio.jsonl");
    let mut faults = Vec::new();
    for row in &rows {
        faults.extend(watch.judge((&row.id, &row.attempt), attack(&d, row).await).await);
    }
    expect_none(&faults, rows.len());
    d.stop().await;
}

/// The client closes the server's output and keeps its input open: the first answer finds that out.
#[tokio::test]
async fn a_closed_output_ends_the_server() {
    let d = Daemon::start().await;
    let watch = Watch::over(&d).await;
    let mut child = start(&d);
    drop(child.stdout.take());
    let mut to = child.stdin.take().expect("it is piped");
    let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "ping" });
    to.write_all(format!("{call}\n").as_bytes()).await.expect("a server that reads");
    let ended = within(PATIENCE, "the end of a server", child.wait()).await.expect("a status");
    assert!(ended.code().is_some(), "by a signal: {ended}");
    watch.row().await.expect("nothing is left");
    d.stop().await;
}
