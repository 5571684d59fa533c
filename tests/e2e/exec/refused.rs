//! Invalid requests: refused with the reason, and nothing is started.

use serde_json::{Value, json};

use super::{begin, daemon, ended, id_of};
use crate::support::TOKEN;

#[tokio::test]
async fn wrong_arguments_are_named() {
    let d = daemon().start().await;
    let s = d.session("s");
    let begin = || s.tool("execute_code").with("command", "echo no");
    let big = "x".repeat(1 << 20);
    for (call, code, says) in [
        (s.tool("execute_code").with("command", " \n"), "invalid_argument", "`command` is empty"),
        (s.tool("execute_code").with("command", "a\0b"), "invalid_argument", "NUL"),
        (s.tool("execute_code").with("command", big.as_str()), "too_large", "`command` has 1048576 bytes"),
        (begin().timeout(0.0), "invalid_argument", "`timeout_seconds` is 0"),
        (begin().timeout(1e9), "invalid_argument", "at most 1800"),
        (begin().env("A=B", "x"), "invalid_argument", "\"A=B\""),
        (begin().env("A\0B", "x"), "invalid_argument", "NUL"),
        (begin().env("", "x"), "invalid_argument", "is empty"),
        (begin().env("BIG", &big), "too_large", "`environment` has"),
        (begin().with("working_directory", ""), "invalid_argument", "`working_directory` is empty"),
        (begin().with("working_directory", "a\0"), "invalid_argument", "`working_directory`"),
        (begin().with("working_directory", "/proc/self/fd/8"), "invalid_argument", "can start in /data, "),
        (
            begin().with("sandbox_config", json!({ "network": { "allowed_domains": ["example.com"] } })),
            "unsupported_policy",
            "egress.allow",
        ),
        (
            begin().with("sandbox_config", json!({ "resource_limits": { "max_processes": 0 } })),
            "invalid_argument",
            "max_processes",
        ),
    ] {
        let refused = call.await.expect_error(code);
        assert!(refused.text("message").contains(says), "{}", refused.document);
        assert_eq!(refused.document["output"], json!([]), "a list of events, also where there are none");
    }
    for (name, value, says) in [
        ("comand", json!("x"), "comand"),
        ("sandbox_config", json!({ "netwrk": {} }), "sandbox_config.netwrk"),
        ("sandboxConfig", json!({ "resource_limits": { "memory": 1 } }), "resource_limits.memory"),
        ("timeout_seconds", json!("5"), "timeout_seconds"),
        ("interactive", json!("yes"), "interactive"),
        ("environment", json!({ "A": 1 }), "environment.A"),
    ] {
        let answer = begin().with(name, value).answer().await;
        assert_eq!(answer["error"]["code"], -32602, "{answer}");
        assert!(answer["error"]["message"].as_str().is_some_and(|text| text.contains(says)), "{answer}");
    }
    assert_eq!(s.tool("list_executions").await.document["executions"], json!([]));
    assert!(d.view().await.containers().await.is_empty(), "nothing reached a container");
    d.stop().await;
}

#[tokio::test]
async fn an_execution_of_another_owner_does_not_exist_for_the_caller() {
    let other = "another-token-of-these-tests";
    let tokens: toml::Table =
        toml::from_str(&format!("[[tokens]]\nname = \"other\"\nsha256 = \"{}\"", sha256(other)))
            .expect("TOML");
    let d = daemon().set("auth.tokens", tokens["tokens"].clone()).start().await;
    let s = d.session("s");
    let id = id_of(&s.tool("execute_code_async").with("command", "read x").with("interactive", true).await);
    for id in ["", "nope", "../../etc/passwd", "00000000-0000-4000-8000-000000000000", &"9".repeat(5000)] {
        for tool in ["get_execution_output", "get_execution_status", "cancel_execution"] {
            d.tool(tool, json!({ "execution_id": id })).await.expect_error("execution_not_found");
        }
    }
    // Neither with another token, nor with another session than the execution's own.
    for tool in ["get_execution_output", "get_execution_status", "cancel_execution", "send_stdin"] {
        let call = || {
            let call = d.session("s").tool(tool).with("execution_id", id.as_str());
            if tool == "send_stdin" { call.with("input_data", "x") } else { call }
        };
        call().bearer(other).await.expect_error("execution_not_found");
        call().with("session_id", "t").await.expect_error("execution_not_found");
    }
    assert_eq!(s.tool("list_executions").bearer(other).await.document["executions"], json!([]));
    assert_ne!(other, TOKEN);
    let nothing = json!({ "name": "send_stdin", "arguments": { "execution_id": id } });
    assert_eq!(d.rpc("tools/call", nothing).await["error"]["code"], -32602);
    d.tool("send_stdin", json!({ "execution_id": id, "input_data": "x" })).await.expect_success();
    d.stop().await;
}

#[tokio::test]
async fn input_goes_to_the_program_that_reads_and_is_limited() {
    let d = daemon().set("limits.stdin", "1MiB").start().await;
    let s = d.session("s");
    let deaf = begin(&s, "sleep 50").await;
    let send =
        |id: &str, data: String| d.tool("send_stdin", json!({ "execution_id": id, "input_data": data }));
    send(&deaf, "x".into()).await.expect_error("not_interactive");
    let idle =
        id_of(&s.tool("execute_code_async").with("command", "sleep 50").with("interactive", true).await);
    send(&idle, "x".repeat((1 << 20) + 1)).await.expect_error("too_large");
    // A program that does not read is not waited for, and delays nobody.
    let mut last = send(&idle, "x".repeat(1 << 20)).await;
    for _ in 0..8 {
        if last.document["success"] != true {
            break;
        }
        last = send(&idle, "x".repeat(1 << 20)).await;
    }
    last.expect_error("queue_full");
    let cancelled = d.tool("cancel_execution", json!({ "execution_id": idle })).await.document;
    assert_eq!((&cancelled["was_running"], &cancelled["status"]), (&json!(true), &json!("cancelled")));
    let again = d.tool("cancel_execution", json!({ "execution_id": idle })).await.expect_success().document;
    assert_eq!((&again["was_running"], &again["status"]), (&json!(false), &json!("cancelled")));
    d.stop().await;
}

#[tokio::test]
async fn no_more_commands_run_than_allowed() {
    // `pool.wait` bounds the start of a container too, which beside other tests takes some seconds.
    let d = daemon().set("exec.max", 3).set("exec.per_session", 2).set("pool.wait", "15s").start().await;
    let (s, t) = (d.session("s"), d.session("t"));
    let first = begin(&s, "sleep 50").await;
    begin(&s, "sleep 50").await;
    let refused = s.tool("execute_code").with("command", "echo").await.expect_error("queue_full");
    assert!(refused.text("message").contains("exec.per_session"), "{}", refused.document);
    begin(&t, "sleep 50").await;
    let refused = t.tool("execute_code_async").with("command", "echo").await.expect_error("queue_full");
    assert!(refused.text("message").contains("exec.max"), "{}", refused.document);
    d.tool("cancel_execution", json!({ "execution_id": first })).await;
    assert_eq!(t.tool("execute_code").with("command", "exit 0").await.document["status"], "completed");
    d.stop().await;
}

#[tokio::test]
async fn a_command_that_cannot_start_says_why() {
    let d = daemon().set("sessions.max", 1).set("sessions.when_full", "refuse").start().await;
    let s = d.session("s");
    let ran = s.tool("execute_code").with("command", "pwd").with("working_directory", "/data/nowhere").await;
    assert_eq!(ran.document["status"], "failed");
    assert!(ran.text("error_message").contains("working directory"), "{}", ran.document);
    assert_eq!(ran.document["output"][1]["type"], "error");
    let begun =
        s.tool("execute_code_async").with("command", "pwd").with("working_directory", "/data/nowhere").await;
    assert_eq!(ended(&d, &id_of(&begun)).await["status"], "failed");
    let mut call = s.tool("execute_code").with("command", "exit 0");
    for name in ["timeout_seconds", "interactive", "environment", "sandbox_config", "working_directory"] {
        call = call.with(name, Value::Null);
    }
    assert_eq!(call.await.document["status"], "completed");
    let ran =
        s.tool("execute_code").with("command", "mkdir -p d; cd d; pwd").with("working_directory", ".").await;
    assert_eq!(ran.document["output"][1]["data"], "/data/d");
    let ran = s.tool("execute_code").with("command", "pwd").with("workingDirectory", "d").await;
    assert_eq!(ran.document["output"][1]["data"], "/data/d");
    begin(&s, "sleep 50").await;
    d.session("t").tool("execute_code_async").with("command", "echo").await.expect_error("max_sessions");
    d.stop().await;
}

fn sha256(text: &str) -> String {
    use sha2::{Digest, Sha256};
    Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect()
}
