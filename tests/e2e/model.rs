//! A model that answers by a script, for everything that talks to one: Anthropic's Messages API, and OpenAI's
//! Chat Completions and Responses. `model/stub.py` says which turns a script can have.
//!
//! It listens on this host's loopback and notes every request. Nothing is sent to another machine.

use std::path::Path;

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::support::{PATIENCE, within};

/// The model, which ends when it is dropped.
pub(crate) struct Model {
    pub(crate) port: u16,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
    _process: Child,
}

impl Model {
    /// A model that answers `done` to everything, until it has a script.
    pub(crate) async fn start() -> Model {
        let mut process = Command::new("python3")
            .args(["-B", "-c", include_str!("model/stub.py")])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("python3");
        let input = process.stdin.take().expect("it is piped");
        let mut output = BufReader::new(process.stdout.take().expect("it is piped")).lines();
        let line = within(PATIENCE, "the port of the model", output.next_line()).await;
        let port = line.expect("a pipe").and_then(|line| line.parse().ok()).expect("a port");
        Model { port, input, output, _process: process }
    }

    /// Its URL, without a path.
    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    async fn ask(&mut self, command: Value) -> Value {
        self.input.write_all(format!("{command}\n").as_bytes()).await.expect("the model");
        let line = within(PATIENCE, "an answer of the model", self.output.next_line()).await;
        let line = line.expect("a pipe").expect("the model has not ended");
        serde_json::from_str(&line).expect("JSON")
    }

    /// The next answers, one for each request.
    pub(crate) async fn says(&mut self, turns: Value) {
        self.ask(json!({ "turns": turns })).await;
    }

    /// The next answers to an agent: only its requests that offer tools take one.
    pub(crate) async fn says_to_agent(&mut self, turns: Value) {
        self.ask(json!({ "turns": turns, "only_with_tools": true })).await;
    }

    /// Lets go on every answer that is held.
    pub(crate) async fn release(&mut self) {
        self.ask(json!({ "release": true })).await;
    }

    /// Every request so far: `method`, `path`, `headers` (names in lower case) and `body`.
    pub(crate) async fn seen(&mut self) -> Vec<Value> {
        let seen = self.ask(json!({ "seen": true })).await;
        seen.as_array().expect("requests").clone()
    }

    /// How many turns nobody has taken.
    pub(crate) async fn left(&mut self) -> u64 {
        self.ask(json!({ "left": true })).await.as_u64().expect("a number")
    }
}

/// The real Claude Code of `tests/clients`, on this host, and what it printed at its end.
async fn claude_code(model: &Model, folder: &Path, task: &str) -> Value {
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/clients/node_modules/.bin/claude");
    let run = Command::new(program)
        .args(["--bare", "-p", task, "--output-format", "json", "--permission-mode", "acceptEdits"])
        .env_clear()
        .env("PATH", std::env::var_os("PATH").expect("PATH"))
        .env("HOME", folder)
        .env("ANTHROPIC_BASE_URL", model.url())
        .env("ANTHROPIC_API_KEY", "x")
        .env("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1")
        .current_dir(folder)
        .stdin(std::process::Stdio::null())
        .kill_on_drop(true)
        .output();
    let done = within(PATIENCE, "Claude Code", run).await.expect("Claude Code: tests/clients/install");
    serde_json::from_slice(&done.stdout).unwrap_or_else(|error| panic!("{error}: {done:?}"))
}

#[tokio::test]
async fn claude_code_takes_the_script_for_a_model() {
    let mut model = Model::start().await;
    let folder = TempDir::new().expect("a folder");
    let file = folder.path().join("hello.txt");
    let write = json!({ "file_path": file, "old_string": "", "new_string": "hello\n" });
    model
        .says_to_agent(json!([
            { "text": "I write it.", "tools": [{ "name": "Edit", "input": write }] },
            { "text": "It is written.", "usage": { "input": 200, "output": 7 } },
        ]))
        .await;
    let result = claude_code(&model, folder.path(), "Write a file").await;
    assert_eq!(
        (&result["result"], &result["is_error"]),
        (&json!("It is written."), &json!(false)),
        "{result}"
    );
    assert_eq!(std::fs::read_to_string(file).expect("a file"), "hello\n");
    assert_eq!(result["usage"]["input_tokens"], 210, "{result}");
    assert_eq!(model.left().await, 0);
    let seen = model.seen().await;
    assert!(seen.iter().all(|request| request["headers"]["x-api-key"] == "x"), "{seen:?}");

    // An error that it does not repeat is its result.
    model.says(json!([{ "status": 402, "error": "the budget is used up" }])).await;
    let result = claude_code(&model, folder.path(), "Write a file").await;
    assert_eq!(
        (&result["result"], &result["is_error"]),
        (&json!("API Error: 402 the budget is used up"), &json!(true))
    );
}
