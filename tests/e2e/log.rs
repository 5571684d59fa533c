//! The content of the log, and how to find lines in it.

use serde_json::{Value, json};

use crate::support::{Daemon, field};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00f067aa0ba902b7";

fn call(code: &str, meta: Value) -> Value {
    let arguments = json!({ "language": "sh", "code": code, "conversationId": "s" });
    json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {
        "name": "run_code", "arguments": arguments, "_meta": meta } })
}

fn parsed(text: &str) -> Vec<Value> {
    let lines =
        text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("no JSON: {line}")));
    lines.collect()
}

/// The lines of a request, its run and its container have the ids of all three.
#[tokio::test]
async fn the_lines_of_a_request_its_run_and_its_container_have_their_ids() {
    let d = Daemon::with().set("log.format", "json").set("pool.idle", 0).start().await;
    let traceparent = format!("00-{TRACE}-{PARENT}-01");
    let request = d.request("POST", "/mcp").header("traceparent", &traceparent);
    let answer = request.json(&call("echo x > f; echo y > g; exit 3", json!({}))).send().await.expect(200);
    let told = answer.header("traceresponse");
    let run = answer.json()["result"]["structuredContent"].clone();
    let lines = parsed(&d.stop().await.text());

    let ours: Vec<_> = lines.iter().filter(|line| line["trace_id"] == TRACE).collect();
    let of = |layer: &str, message: &str| {
        let found: Vec<_> =
            ours.iter().filter(|line| line["layer"] == layer && line["message"] == message).collect();
        assert_eq!(found.len(), 1, "{layer} {message}: {ours:#?}");
        (*found[0]).clone()
    };
    let (came, went, ended) = (of("HTTP", "request"), of("HTTP", "answer"), of("RUN", "ended"));
    of("MCP", "tool called");
    assert_eq!((&came["method"], &came["path"]), (&json!("POST"), &json!("/mcp")));
    assert_eq!((&went["status"], went["ms"].as_f64().is_some()), (&json!(200), true), "{went}");
    assert_eq!(told, format!("00-{TRACE}-{}-01", came["span_id"].as_str().expect("an id")));
    assert!(
        ours.iter().all(|line| line["parent_id"] == PARENT && line["span_id"] == came["span_id"]),
        "{ours:#?}"
    );
    for (key, value) in [
        ("session_id", &json!("s")),
        ("run_id", &run["run_id"]),
        ("language", &json!("sh")),
        ("duration_ms", &run["duration_ms"]),
        ("exit_code", &json!(3)),
        ("files", &json!(2)),
        ("code_bytes", &json!("echo x > f; echo y > g; exit 3".len())),
        ("network", &json!(false)),
        ("variables", &Value::Null),
    ] {
        assert_eq!(&ended[key], value, "{key} of {ended}");
    }
    let armed = lines.iter().find(|line| line["message"] == "armed" && line["language"] == "sh");
    assert_eq!(armed.map(|line| &line["container"]), Some(&ended["container"]), "{ended}");
}

/// MCP has a field for it too, and that one takes precedence.
#[tokio::test]
async fn a_call_can_name_its_trace_in_its_message() {
    let d = Daemon::start().await;
    let meta = json!({ "traceparent": format!("00-{TRACE}-{PARENT}-00") });
    d.request("POST", "/mcp").json(&call("true", meta)).send().await.expect(200);
    d.request("POST", "/mcp").json(&call("true", json!({ "traceparent": "nonsense\n[HTTP]" }))).send().await;
    let mut runs = vec![d.log.line(" ended ").await];
    let behind = d.log.mark_behind(0, " ended ").await;
    runs.push(d.log.line_since(behind, " ended ").await);
    assert_eq!(field(&runs[0], "trace_id").as_deref(), Some(TRACE), "{runs:?}");
    let made_up = field(&runs[1], "trace_id").expect("a trace");
    assert!(made_up.len() == 32 && made_up != TRACE, "{runs:?}");
    let log = d.stop().await.text();
    assert!(log.lines().all(|line| line.starts_with('[') && line.contains("] 2")), "{log}");
    assert!(!log.contains("nonsense"), "{log}");
}

/// Requests that machines send every few seconds do not bury other lines.
#[tokio::test]
async fn probes_are_logged_only_if_they_fail() {
    let d = Daemon::start().await;
    for path in ["/health", "/ready", "/metrics", "/status"] {
        d.request("GET", path).send().await.expect(200);
    }
    d.request("GET", "/metrics").without("authorization").send().await.expect(401);
    let log = d.stop().await.text();
    let about: Vec<_> =
        log.lines().filter(|line| line.contains("path=/") && !line.contains("path=/mcp")).collect();
    assert!(matches!(about[..], [one] if one.contains("path=/metrics status=401")), "{about:?}");
}

/// A full disk loses log lines, and stops no run.
#[tokio::test]
async fn runs_continue_when_the_log_cannot_be_written() {
    let d = Daemon::with().env("SANDBOX_LOG_FILE", "/dev/full").start().await;
    d.session("s").sh("echo hello > f; cat f").await.expect_stdout("hello\n");
    let metrics = d.request("GET", "/metrics").send().await.expect(200).text();
    let lost = metrics.lines().find_map(|line| line.strip_prefix("paddock_log_lines_lost_total "));
    let lost: u64 = lost.and_then(|count| count.parse().ok()).expect("a count");
    assert!(lost > 0, "{metrics}");
    let log = d.stop().await.text();
    assert!(log.contains(" ended ") && log.contains(" stopped"), "{log}");
}

/// Code is logged for debugging only.
#[tokio::test]
async fn code_is_in_the_log_at_debug_only() {
    for (level, expected) in [("info", false), ("debug", true)] {
        let d = Daemon::with().set("log.level", level).start().await;
        d.session("s").sh("echo some-code-of-ours >/dev/null").await.expect_success();
        let log = d.stop().await.text();
        assert_eq!(log.contains("some-code-of-ours"), expected, "at {level}");
    }
}
