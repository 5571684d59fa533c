//! `deploy/agents` as it stands: a client starts `paddock stdio` by its entry, and its calls are given to a
//! daemon whose agent is the real Claude Code, with a model that answers by a script.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::Command;

use crate::model::Model;
use crate::support::{PATIENCE, Ran, within};
use crate::task_world::daemon;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/agents")
}

fn read(name: &str) -> Value {
    let text = std::fs::read_to_string(folder().join(name)).expect("an example");
    serde_json::from_str(&text).expect("JSON")
}

/// What a client does with the entry: it replaces `${NAME}` by its own variables, and finds the command on
/// its PATH.
#[tokio::test]
async fn a_client_starts_the_entry_and_runs_code() {
    let (home, bin) = (tempfile::tempdir().expect("a home"), tempfile::tempdir().expect("a folder"));
    let entry = read("sandbox-config.json")["mcpServers"]["sandbox-agent"].take();
    let program = bin.path().join(entry["command"].as_str().expect("a command"));
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_paddock"), &program).expect("a link");
    let home_path = home.path().to_str().expect("a path in UTF-8");
    let key = "sk-ant-e2e-0123456789";
    let mut command = Command::new(&program);
    command.args(entry["args"].as_array().expect("arguments").iter().filter_map(Value::as_str)).env_clear();
    for (name, value) in entry["env"].as_object().expect("variables") {
        let value = value.as_str().expect("a text").replace("${HOME}", home_path);
        command.env(name, value.replace("${ANTHROPIC_API_KEY}", key));
    }
    if let Ok(host) = std::env::var("DOCKER_HOST") {
        command.env("DOCKER_HOST", host);
    }
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn().expect("the program");
    let (mut to, from) = (child.stdin.take().expect("a pipe"), child.stdout.take().expect("a pipe"));
    let mut lines = BufReader::new(from).lines();
    let mut ask = async |method: &str, params: Value| {
        let message = json!({ "jsonrpc": "2.0", "id": method, "method": method, "params": params });
        to.write_all(format!("{message}\n").as_bytes()).await.expect("a server that reads");
        loop {
            let line = within(PATIENCE, method, lines.next_line()).await.expect("text");
            let answer: Value = serde_json::from_str(&line.expect("an answer")).expect("JSON");
            if answer["id"] == method {
                break answer;
            }
        }
    };
    ask("initialize", json!({ "protocolVersion": "2024-11-05" })).await;
    let arguments = json!({ "language": "python", "code": "print(6 * 7)", "conversationId": "s" });
    let ran = ask("tools/call", json!({ "name": "run_code", "arguments": arguments })).await;
    Ran::of(ran).expect_stdout("42\n");
    drop(to);
    let mut log = String::new();
    child.stderr.take().expect("a pipe").read_to_string(&mut log).await.expect("text");
    assert!(within(PATIENCE, "its end", child.wait()).await.expect("a status").success(), "{log}");
    assert!(home.path().join(".local/state/paddock-agents").is_dir(), "the store is where the entry says");
    assert!(!log.contains("paddock does not use it"), "{log}");
    assert!(!log.contains(key), "{log}");
}

/// Gives the call of this file to an agent whose model says this; returns the names of the files.
async fn done(name: &str, turns: Value) -> Vec<String> {
    let mut model = Model::start().await;
    let d = daemon(&model).start().await;
    model.says_to_agent(turns).await;
    let answer =
        d.request("POST", "/mcp").set("content-type", "application/json").body(read(name).to_string());
    let answer: Value = serde_json::from_str(&answer.send().await.expect(200).text()).expect("JSON");
    let document = answer["result"]["structuredContent"].clone();
    assert_eq!(document["status"], "completed", "{answer}");
    let asked = model.seen().await.last().expect("a request")["body"]["messages"].to_string();
    let words = read(name)["params"]["arguments"]["task_description"].to_string();
    assert!(asked.contains(words.trim_matches('"')), "the agent is told what to do: {asked}");
    d.stop().await;
    let created = document["files_created"].as_array().expect("files");
    created.iter().map(|name| name.as_str().expect("a name").to_owned()).collect()
}

fn bash(command: &str) -> Value {
    json!({ "tools": [{ "name": "Bash", "input": { "command": command, "description": "a step" } }] })
}

#[tokio::test]
async fn a_csv_file_comes_with_its_call() {
    let count =
        bash("wc -l < sales_data.csv > summary.txt; grep -c 'Trail Shoe' sales_data.csv > sales_chart.png");
    let made = done("analyze-csv.json", json!([count, { "text": "done" }])).await;
    assert_eq!(made, ["sales_chart.png", "summary.txt"]);
}

#[tokio::test]
async fn pictures_come_with_their_call() {
    let copy =
        bash("for f in *.png; do head -c 4 $f | tail -c 3 | grep -q PNG && cp $f ${f%.png}.webp; done");
    let made = done("images.json", json!([copy, { "text": "done" }])).await;
    assert_eq!(made, ["img1.webp", "img2.webp"]);
}

#[tokio::test]
async fn a_call_for_data_of_the_web_brings_no_file() {
    let table = bash("ls -A | grep -vx .agent | wc -l > tags.csv");
    let made = done("web-data.json", json!([table, { "text": "done" }])).await;
    assert_eq!(made, ["tags.csv"]);
}
