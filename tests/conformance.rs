//! The official MCP conformance suite against the real daemon, with the requirements of both MCP revisions
//! that clients use.
//!
//! Needs what the e2e tests need, and `tests/clients/install`. It is a target of its own because the suite
//! waits only half a second for some answers: nothing else may keep the machine busy meanwhile. It must never
//! pass because a scenario did not run.

#![expect(clippy::expect_used, clippy::print_stderr, reason = "a test fails by panicking, and says why")]

#[expect(dead_code, unused_imports, reason = "shared with the e2e tests, which use all of it")]
#[path = "support/mod.rs"]
mod support;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::process::Command;

use support::{Daemon, within};

const SWITCH: &str = "PADDOCK_CONFORMANCE_FIXTURES";

/// The revisions, each with the number of its scenarios. Scenarios without a score count too.
const REVISIONS: [(&str, usize); 2] = [("2025-11-25", 33), ("2026-07-28", 50)];

/// How long the suite may take for one revision.
const SUITE: Duration = Duration::from_secs(180);

fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests").join(path)
}

/// Checks that are listed as known failures, as `scenario:check`.
fn known() -> BTreeSet<String> {
    let text = std::fs::read_to_string(here("conformance.yaml")).expect("the list");
    text.lines().filter_map(|line| line.trim().strip_prefix("- ")).map(str::to_owned).collect()
}

/// The checks that did not pass. A scenario's results are in `server-SCENARIO-YYYY-MM-DDTHH-MM-SS-mmmZ`.
fn not_passed(results: &Path) -> Vec<String> {
    let name = results.file_name().and_then(|name| name.to_str()).expect("a name");
    let scenario =
        name.strip_prefix("server-").and_then(|name| name.rsplitn(7, '-').nth(6)).expect("a scenario");
    let checks = std::fs::read(results.join("checks.json")).expect("checks");
    let checks: Vec<Value> = serde_json::from_slice(&checks).expect("checks");
    assert!(!checks.is_empty(), "{scenario} has checked nothing");
    let bad = checks.iter().filter(|check| check["status"] != "SUCCESS" && check["status"] != "INFO");
    let told = |check: &Value| {
        eprintln!("{scenario}: {check:#}");
        format!("{scenario}:{}", check["id"].as_str().unwrap_or("?"))
    };
    bad.map(told).collect()
}

#[tokio::test]
async fn the_official_suite_passes() {
    let d = Daemon::with().without_token().env(SWITCH, "1").start().await;
    d.log.line(SWITCH).await;
    let mut not = BTreeSet::new();
    for (revision, scenarios) in REVISIONS {
        let results = tempfile::tempdir().expect("a directory");
        let node = here("clients/venv/bin/node");
        assert!(node.exists(), "{} is missing: run tests/clients/install", node.display());
        let mut suite = Command::new(node);
        suite.arg(here("clients/node_modules/@modelcontextprotocol/conformance/dist/index.js"));
        suite.args(["server", "--url", &format!("{}/mcp", d.url), "--requirements", revision]);
        suite.arg("--expected-failures").arg(here("conformance.yaml"));
        suite.arg("-o").arg(results.path()).kill_on_drop(true);
        let ran = within(SUITE, "the suite", suite.output()).await.expect("the suite runs");
        let said = String::from_utf8_lossy(&ran.stdout);
        assert!(ran.status.success(), "{revision}: {said}\n{}", String::from_utf8_lossy(&ran.stderr));
        let entries = std::fs::read_dir(results.path()).expect("results");
        let entries: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
        assert_eq!(entries.len(), scenarios, "{revision}: {said}");
        not.extend(entries.iter().flat_map(|entry| not_passed(entry)));
    }
    assert_eq!(not, known(), "what did not pass, and what is known not to");
    d.stop().await;
}

#[tokio::test]
async fn without_the_variable_there_are_no_fixtures() {
    let d = Daemon::start().await;
    let hello = json!({
        "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "test", "version": "1" },
    });
    let capabilities = d.rpc("initialize", hello).await["result"]["capabilities"].clone();
    let offered: Vec<&String> = capabilities.as_object().expect("capabilities").keys().collect();
    assert_eq!(offered, ["tools"]);
    let listed = d.rpc("tools/list", json!({})).await["result"]["tools"].clone();
    let fixture = |tool: &&Value| tool["name"].as_str().is_some_and(|name| name.starts_with("test_"));
    assert_eq!(listed.as_array().expect("tools").iter().find(fixture), None);
    let refused = async |method: &str, params: Value| d.rpc(method, params).await["error"]["code"].clone();
    for name in ["test_simple_text", "test_logging_tool", "slow_compute", "json_schema_2020_12_tool"] {
        assert_eq!(refused("tools/call", json!({ "name": name, "arguments": {} })).await, -32602, "{name}");
    }
    let argument = json!({ "name": "arg1", "value": "p" });
    let prompt = json!({ "type": "ref/prompt", "name": "test_prompt_with_arguments" });
    for (method, params) in [
        ("prompts/list", json!({})),
        ("prompts/get", json!({ "name": "test_simple_prompt" })),
        ("resources/list", json!({})),
        ("resources/templates/list", json!({})),
        ("resources/read", json!({ "uri": "test://static-text" })),
        ("resources/subscribe", json!({ "uri": "test://watched-resource" })),
        ("completion/complete", json!({ "ref": prompt, "argument": argument })),
        ("logging/setLevel", json!({ "level": "debug" })),
        ("tasks/get", json!({ "taskId": "a" })),
    ] {
        assert_eq!(refused(method, params).await, -32601, "{method}");
    }
    d.stop().await;
}
