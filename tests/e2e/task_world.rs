//! What the tests of tasks share: a daemon whose agent is the real Claude Code in its image, with a scripted
//! model, and words for its turns.

use std::time::Duration;

use serde_json::{Value, json};

use crate::model::Model;
use crate::support::{Daemon, Ran, Setup, within};

/// How long a task may take: it ends within seconds, but not on a machine that others keep busy.
pub(crate) const LONG: Duration = Duration::from_secs(300);

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

/// A task in a session, and what came of it; or the answer to its start, if `more` says not to wait.
pub(crate) async fn task(d: &Daemon, session: &str, more: Value) -> Ran {
    let mut arguments = json!({ "task_description": "do it", "session_id": session });
    more.as_object().expect("arguments").iter().for_each(|(name, value)| arguments[name] = value.clone());
    let ran = d.tool("execute_task", arguments).await;
    if more["wait_for_completion"] == false { ran } else { finished(d, session, ran).await }
}

/// What came of a task that a call waited for, even if it took longer than a call waits.
pub(crate) async fn finished(d: &Daemon, session: &str, ran: Ran) -> Ran {
    match ran.document["status"].as_str() {
        Some("running") => ended(d, session, ran.text("execution_id")).await,
        _ => ran,
    }
}

/// The answer about the last task of a session, once this one is over.
pub(crate) async fn ended(d: &Daemon, session: &str, id: &str) -> Ran {
    let over = async {
        loop {
            let wait = json!({ "execution_id": id, "wait": true });
            if d.tool("get_execution_output", wait).await.document["status"] != "running" {
                return;
            }
        }
    };
    within(LONG, "the end of the task", over).await;
    d.tool("get_sandbox_status", json!({ "session_id": session })).await
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
    let look = async {
        loop {
            let status = d.tool("get_sandbox_status", json!({ "session_id": session })).await;
            if status.document["doing"].as_str().is_some_and(|text| text.contains(doing)) {
                return status.document["running_tasks"][0].as_str().expect("an id").to_owned();
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    within(LONG, doing, look).await
}

/// The program of the task below, which the agent writes.
pub(crate) const SUM: &str = "paste -sd+ numbers.txt | tr -d '\\n' > sum.txt\n";

/// The turns of a task that every real agent does: it writes a program by this use of a tool, and runs it.
pub(crate) fn sum_turns(write: Value, runs: &[Value]) -> Value {
    let mut turns = vec![json!({ "text": "I write it.", "tools": [write] })];
    turns.extend_from_slice(runs);
    turns.push(json!({ "text": "The sum is in sum.txt." }));
    turns.into()
}

/// What that task is given.
pub(crate) fn numbers() -> Value {
    json!([{ "path": "numbers.txt", "content": "MQoyCjMK" }])
}

/// Checks what came of that task in the session `s`, in so many turns; and that the key is with the model and
/// nowhere else.
pub(crate) async fn expect_sum(d: &Daemon, model: &mut Model, ran: &Ran, turns: u32) {
    expect_status(ran, "completed");
    let document = &ran.document;
    assert_eq!((&document["output"], &document["error"]), (&json!("The sum is in sum.txt."), &Value::Null));
    let created = document["files_created"].to_string();
    assert!(created.contains("\"sum.sh\"") && created.contains("\"sum.txt\""), "{document}");
    assert!(!created.contains(".agent"), "what it keeps is none of its files: {document}");
    assert_eq!((denied(ran), &document["turns"]), (vec![], &json!(turns)));
    assert_eq!(document["tokens"]["input"], 10 * turns, "{document}");
    let cost = f64::from(turns) / 100.0;
    assert_eq!((&document["cost_usd"], &document["models"]["requests"]), (&json!(cost), &json!(turns)));
    assert!(document["duration_seconds"].as_f64() > Some(0.0), "{document}");
    let hosts = document["network"].as_array().expect("a list");
    assert!(hosts.len() == 1 && hosts[0]["host"] == "anthropic.paddock", "only its model: {document}");
    let got = d.tool("download_files", json!({ "session_id": "s", "paths": ["sum.txt"] })).await;
    assert_eq!(got.document["files"][0]["content"], "MSsyKzM=", "{}", got.document);
    assert_eq!(model.left().await, 0);

    let seen = model.seen().await;
    assert!(seen.iter().all(|request| request["headers"]["x-api-key"] == KEY), "{seen:?}");
    let events = events(d, ran.text("execution_id")).await;
    let told = |kind: &str| -> Vec<&Value> { events.iter().filter(|event| event["type"] == kind).collect() };
    let tools = usize::try_from(turns).expect("few") - 1;
    assert_eq!(
        (told("message").len(), told("tool").len(), told("result").len()),
        (2, tools, 1),
        "{events:?}"
    );
    assert_eq!(
        (&told("tool")[0]["what"], &told("tool")[1]["what"]),
        (&json!("writes sum.sh"), &json!(SHOWN))
    );
    let log = d.fetch(ran.text("log_url")).await.expect(200).text();
    let bodies = json!(seen.iter().map(|request| &request["body"]).collect::<Vec<_>>()).to_string();
    assert!(bodies.contains("held-by-the-daemon"), "the environment of a command");
    for text in [log, bodies, json!(events).to_string(), document.to_string()] {
        assert!(!text.contains(KEY), "{text}");
    }
}

/// The command that runs the program of that task, and shows the environment.
pub(crate) const RUN: &str = "sh sum.sh; env";
const SHOWN: &str = "runs sh sum.sh; env";

/// Checks that a further task of that session goes on in the same conversation, and that another one does
/// not.
pub(crate) async fn expect_conversation(model: &mut Model, task: impl AsyncFn(Value) -> Ran) {
    for (arguments, goes_on) in
        [(json!({ "task_description": "and now?" }), true), (json!({ "resume": false }), false)]
    {
        model.says_to_agent(json!([{ "text": "again" }])).await;
        expect_status(&task(arguments).await, "completed");
        let body = model.seen().await.last().expect("a request")["body"]["messages"].to_string();
        assert_eq!(body.contains("I write it."), goes_on, "{body}");
        assert_eq!(body.contains("and now?"), goes_on, "{body}");
    }
}
