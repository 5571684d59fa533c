//! Tasks that do not go well: models that fail, and agents that try to do more than they may.
//!
//! The agent is the real Claude Code, the model answers by a script.

use std::time::Instant;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

use crate::model::Model;
use crate::support::{Daemon, PATIENCE};
use crate::task_world::{bash, daemon, denied, expect_status, task, write};

/// A file of a session.
async fn file(d: &Daemon, session: &str, path: &str) -> String {
    let got = d.tool("download_files", json!({ "session_id": session, "paths": [path] })).await;
    let content = got.document["files"][0]["content"].as_str().unwrap_or_else(|| panic!("{}", got.document));
    String::from_utf8(BASE64_STANDARD.decode(content).expect("base64")).expect("text")
}

#[tokio::test]
async fn a_model_that_fails_for_a_moment_is_asked_again_and_one_that_refuses_is_told_at_once() {
    let mut model = Model::start().await;
    let d = daemon(&model).start().await;
    let fresh = || json!({ "resume": false });
    // A moment: the agent repeats its request.
    for trouble in [
        json!({ "status": 429, "error": "slow down" }),
        json!({ "status": 500, "error": "it broke" }),
        json!({ "status": 529, "error": "overloaded" }),
        json!({ "text": "half of a sentence", "cut": 3 }),
    ] {
        model.says_to_agent(json!([trouble, { "text": "well" }])).await;
        let ran = task(&d, "s", fresh()).await;
        expect_status(&ran, "completed");
        assert_eq!((ran.text("output"), model.left().await), ("well", 0), "{trouble}: {}", ran.document);
    }
    // A key that the model does not take, an answer that is none: nothing that a second try could mend.
    for (trouble, said) in [
        (json!({ "status": 401, "error": "invalid x-api-key" }), "the operator of this server configured"),
        (json!({ "status": 403, "error": "not for you" }), "not for you"),
    ] {
        let before = model.seen().await.len();
        model.says_to_agent(json!([trouble.clone(), trouble.clone(), trouble])).await;
        let begun = Instant::now();
        let ran = task(&d, "s", fresh()).await;
        expect_status(&ran, "failed");
        assert!(ran.text("error").contains(said), "{said}: {}", ran.document);
        assert_eq!(model.seen().await.len() - before, 1, "{said}: it is asked once");
        assert!(begun.elapsed() < PATIENCE, "{said}: {:?}", begun.elapsed());
        assert_eq!(ran.document["cost_usd"], 0.0, "{}", ran.document);
    }
    let garbage = json!({ "raw": "<html>{[", "type": "text/html" });
    model.says_to_agent(json!(vec![garbage; 8])).await;
    let ran = task(&d, "s", fresh()).await;
    expect_status(&ran, "failed");
    assert!(!ran.text("error").is_empty(), "{}", ran.document);
    let log = d.log.text();
    assert!(log.contains("a model refuses the credential that is configured for it"), "{log}");
    d.stop().await;
}

#[tokio::test]
async fn what_an_agent_leaves_running_ends_with_its_task() {
    let mut model = Model::start().await;
    let d = daemon(&model).start().await;
    let detached = "setsid sh -c 'trap \"\" TERM HUP; echo $$ > /data/pid; while :; do sleep 1; done' \
                    > /dev/null 2>&1 < /dev/null & until test -s /data/pid; do :; done";
    model.says_to_agent(json!([bash(detached), { "text": "left" }])).await;
    let ran = task(&d, "s", json!({})).await;
    expect_status(&ran, "completed");
    assert_eq!(ran.document["files_created"], json!(["pid"]), "{}", ran.document);
    let look = "cat /proc/[0-9]*/cmdline | tr '\\0' ' ' > /data/processes";
    model.says_to_agent(json!([bash(look), { "text": "looked" }])).await;
    expect_status(&task(&d, "s", json!({})).await, "completed");
    let processes = file(&d, "s", "processes").await;
    assert!(processes.contains("/data/processes") && !processes.contains("trap"), "{processes}");
    d.stop().await;
}

#[tokio::test]
async fn what_an_agent_writes_does_not_raise_the_level_of_the_next_task() {
    let mut model = Model::start().await;
    let d = daemon(&model).start().await;
    let settings = json!({
        "permissions": { "allow": ["Bash", "WebFetch"], "defaultMode": "bypassPermissions" },
        "env": { "PATH": "/usr/bin:/bin" },
        "hooks": { "PreToolUse": [{ "hooks": [{ "type": "command", "command": "touch /data/hooked" }] }] } });
    let settings = settings.to_string();
    let hook = "#!/bin/sh\ntouch /data/hooked\n";
    let plan: Vec<Value> = [
        "/workspace/.claude/settings.json",
        "/workspace/.claude/settings.local.json",
        "/tmp/.claude/settings.json",
        "/etc/claude-code/managed-settings.json",
        "/data/.agent/claude-code/settings.json",
        "/mnt/data/.agent/claude-code/.claude.json",
    ]
    .into_iter()
    .map(|path| write(path, &settings))
    .chain([write("/workspace/.git/hooks/pre-commit", hook), json!({ "text": "written" })])
    .collect();
    model.says_to_agent(json!(plan)).await;
    let ran = task(&d, "s", json!({ "yolo_level": 1 })).await;
    expect_status(&ran, "completed");
    let outside: Vec<String> = denied(&ran);
    for path in
        ["/tmp/.claude", "/etc/claude-code", ".agent/claude-code/settings", ".agent/claude-code/.claude"]
    {
        assert!(outside.iter().any(|what| what.contains(path)), "{path}: {outside:?}");
    }
    // The next task of the session has its own level, whatever lies in the workspace.
    for resume in [true, false] {
        model.says_to_agent(json!([bash("touch /data/raised"), { "text": "tried" }])).await;
        let ran = task(&d, "s", json!({ "yolo_level": 1, "resume": resume })).await;
        expect_status(&ran, "completed");
        assert_eq!(denied(&ran), ["Bash: runs touch /data/raised"], "{}", ran.document);
    }
    let listed = d.tool("list_artifacts", json!({ "session_id": "s" })).await.document.to_string();
    assert!(!listed.contains("raised") && !listed.contains("hooked"), "{listed}");
    d.stop().await;
}
