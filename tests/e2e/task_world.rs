//! What the tests of tasks share: a daemon whose agent is the real Claude Code in its image, with a scripted
//! model, and words for its turns.

use std::time::Duration;

use serde_json::{Value, json};

use crate::model::Model;
use crate::support::{Daemon, PATIENCE, Ran, Setup, within};

/// The key. Nothing of this test but the daemon and the model knows it.
pub(crate) const KEY: &str = "sk-e2e-task-51c9e0aa7b";

/// A daemon whose tasks have this model.
pub(crate) fn daemon(model: &Model) -> Setup {
    models(Daemon::with(), model).set("runners.claude-code", "paddock-runner-claude-code")
}

/// Gives tasks this model, at a cent for each turn of the script, and no other network.
pub(crate) fn models(setup: Setup, model: &Model) -> Setup {
    let table = |json: Value| toml::Value::try_from(json).expect("a table");
    let price = json!({ "input": 500.0, "output": 1000.0 });
    let anthropic = json!({ "provider": "anthropic", "url": model.url(), "key": "env:STUB_KEY",
        "prices": { "*": price } });
    setup
        .with_tasks()
        .set("egress.mode", "none")
        .set("models.anthropic", table(anthropic))
        .env("STUB_KEY", KEY)
}

/// A turn of the model that uses a tool.
pub(crate) fn tool(name: &str, input: Value) -> Value {
    json!({ "tools": [{ "name": name, "input": input }] })
}

/// One that runs a command.
pub(crate) fn bash(command: &str) -> Value {
    tool("Bash", json!({ "command": command, "description": "a step" }))
}

/// One that writes a file.
pub(crate) fn write(path: &str, content: &str) -> Value {
    tool("Write", json!({ "file_path": path, "content": content }))
}

/// A task in a session.
pub(crate) async fn task(d: &Daemon, session: &str, more: Value) -> Ran {
    let mut arguments = json!({ "task_description": "do it", "session_id": session });
    more.as_object().expect("arguments").iter().for_each(|(name, value)| arguments[name] = value.clone());
    d.tool("execute_task", arguments).await
}

/// What was denied, as `tool: what`.
pub(crate) fn denied(ran: &Ran) -> Vec<String> {
    let all = ran.document["denied"].as_array().unwrap_or_else(|| panic!("{}", ran.document));
    all.iter().map(|one| format!("{}: {}", one["tool"], one["what"]).replace('"', "")).collect()
}

#[track_caller]
pub(crate) fn expect_status(ran: &Ran, status: &str) {
    assert_eq!(ran.document["status"], status, "{}", ran.document);
}

/// Every event of an execution.
pub(crate) async fn events(d: &Daemon, id: &str) -> Vec<Value> {
    let ran = d.tool("get_execution_output", json!({ "execution_id": id })).await;
    ran.document["output"].as_array().unwrap_or_else(|| panic!("{}", ran.document)).clone()
}

/// The running task of a session, once it has got so far that its agent says this.
pub(crate) async fn running(d: &Daemon, session: &str, doing: &str) -> String {
    running_within(PATIENCE, d, session, doing).await
}

/// The same, within a time.
pub(crate) async fn running_within(patience: Duration, d: &Daemon, session: &str, doing: &str) -> String {
    let look = async {
        loop {
            let status = d.tool("get_sandbox_status", json!({ "session_id": session })).await;
            if status.document["doing"].as_str().is_some_and(|text| text.contains(doing)) {
                return status.document["running_tasks"][0].as_str().expect("an id").to_owned();
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    within(patience, doing, look).await
}
