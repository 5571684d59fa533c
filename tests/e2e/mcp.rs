//! MCP as clients use it: calls of workflows without a session, sessions, a real client, and malformed
//! requests.

use serde_json::{Value, json};

use crate::support::{Answer, Daemon, Ran, Request, TOOLS, events};

/// The Accept header of n8n's HTTP Request node.
const WORKFLOW_ACCEPT: &str =
    "application/json,text/html,application/xhtml+xml,application/xml,text/*;q=0.9, image/*;q=0.8, */*;q=0.7";

fn initialize() -> Value {
    json!({
        "jsonrpc": "2.0", "id": 0, "method": "initialize",
        "params": {
            "protocolVersion": "2025-11-25", "capabilities": {},
            "clientInfo": { "name": "test", "version": "1" },
        },
    })
}

fn run_call(id: i64, name: &str, code: &str) -> Value {
    let arguments = json!({ "language": "python", "code": code });
    json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call",
        "params": { "name": name, "arguments": arguments } })
}

#[tokio::test]
async fn a_call_needs_no_session() {
    let d = Daemon::start().await;
    let bare = || d.request("POST", "/mcp").header("accept", WORKFLOW_ACCEPT).header("connection", "close");

    let answer = bare().json(&initialize()).send().await.expect(200);
    assert_eq!(answer.header("content-type"), "application/json");
    assert!(!answer.headers.contains_key("mcp-session-id"));
    let answer = answer.json();
    assert_eq!((&answer["id"], &answer["result"]["serverInfo"]["name"]), (&json!(0), &json!("paddock")));
    assert!(answer["result"]["capabilities"]["tools"].is_object(), "{answer}");

    let answer = bare()
        .json(&json!({ "jsonrpc": "2.0", "id": "a", "method": "tools/list" }))
        .send()
        .await
        .expect(200)
        .json();
    assert_eq!(answer["id"], "a");
    let tools = answer["result"]["tools"].as_array().expect("tools").clone();
    let names: Vec<&str> = tools.iter().map(|tool| tool["name"].as_str().expect("a name")).collect();
    assert_eq!(names, TOOLS);
    for tool in &tools {
        let name = tool["name"].as_str().expect("a name");
        assert!(name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_'), "{name}");
        assert!(tool["description"].as_str().is_some_and(|text| text.len() > 20), "{tool}");
        assert_eq!(tool["inputSchema"]["type"], "object", "{tool}");
    }
    let languages = &tools[0]["inputSchema"]["properties"]["language"]["enum"];
    for language in ["python", "sh", "typescript"] {
        assert!(languages.as_array().is_some_and(|all| all.contains(&json!(language))), "{languages}");
    }

    // Without any Accept, as from curl -H, and by the older name of the tool.
    let answer =
        d.request("POST", "/mcp").json(&run_call(7, "sandbox.run_code", "print(6 * 7)")).send().await;
    let answer = answer.expect(200).json();
    assert_eq!(answer["id"], 7);
    let first = Ran::of(answer).expect_stdout("42\n");
    let answer = bare().json(&run_call(8, "run_code", "print(6 * 7)")).send().await.expect(200).json();
    let second = Ran::of(answer).expect_stdout("42\n");
    for ran in [&first, &second] {
        let id = ran.text("session_id");
        assert!(id.len() == 17 && id.starts_with("sess_"), "{id}");
        assert_eq!(ran.text("conversationId"), id);
    }
    assert_ne!(first.text("session_id"), second.text("session_id"), "each bare call is a session of its own");
    d.stop().await;
}

#[tokio::test]
async fn a_session_keeps_its_generated_conversation() {
    let d = Daemon::start().await;
    let post = |session: Option<&str>, message: &Value| {
        let request = d.request("POST", "/mcp").header("accept", "application/json, text/event-stream");
        let request = request.header("mcp-protocol-version", "2025-11-25").json(message);
        match session {
            Some(session) => request.header("mcp-session-id", session),
            None => request,
        }
    };
    let begin = async || {
        let answer = post(None, &initialize()).send().await.expect(200);
        let session = answer.header("mcp-session-id");
        let initialized = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        post(Some(&session), &initialized).send().await.expect(202);
        session
    };
    let ran = |answer: Answer| {
        assert_eq!(answer.header("content-type"), "text/event-stream");
        let last = events(&answer.text()).pop().expect("an event");
        Ran::of(last)
    };
    let session = begin().await;
    let first =
        ran(post(Some(&session), &run_call(1, "run_code", "open('a', 'w').write('mine')")).send().await);
    let second = ran(post(Some(&session), &run_call(2, "run_code", "print(open('a').read())")).send().await);
    let second = second.expect_stdout("mine\n");
    assert_eq!(first.text("session_id"), second.text("session_id"));
    assert_ne!(first.text("session_id"), session, "the protocol's own id is nobody's file store");

    let other = begin().await;
    let third =
        ran(post(Some(&other), &run_call(1, "run_code", "import os; print(os.listdir())")).send().await);
    assert_ne!(third.expect_stdout("[]\n").text("session_id"), first.text("session_id"));

    d.request("DELETE", "/mcp").header("mcp-session-id", &session).send().await;
    let answer = post(Some(&session), &run_call(3, "run_code", "print(1)")).send().await;
    assert_eq!(answer.status, 404, "{}", answer.text());
    d.stop().await;
}

#[tokio::test]
async fn a_refusal_has_its_own_status_if_the_caller_prefers_that() {
    let d = Daemon::with().set("sessions.max", 1).set("sessions.when_full", "refuse").start().await;
    d.session("first").sh("true").await.expect_success();
    let call = |code: &str, language: &str| {
        let arguments = json!({ "conversationId": "second", "language": language, "code": code });
        let params = json!({ "name": "run_code", "arguments": arguments });
        let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
        d.request("POST", "/mcp").header("accept", WORKFLOW_ACCEPT).json(&call)
    };
    let preferring = |code: &str, language: &str| call(code, language).header("prefer", "http-status");
    let full = preferring("true", "sh").send().await.expect(503);
    assert_eq!(
        (full.header("retry-after"), full.header("preference-applied")),
        ("5".into(), "http-status".into())
    );
    Ran::of(full.json()).expect_error("max_sessions");
    // Other callers see only 200.
    let usual = call("true", "sh").send().await.expect(200);
    assert!(!usual.headers.contains_key("retry-after") && !usual.headers.contains_key("preference-applied"));
    Ran::of(usual.json()).expect_error("max_sessions");

    preferring("true", "cobol").send().await.expect(400);
    let unknown = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": { "name": "none" } });
    let request = || d.request("POST", "/mcp").json(&unknown);
    request().header("prefer", "http-status").send().await.expect(400);
    request().send().await.expect(200);

    // A program that ran was served, however it ended.
    d.session("first").tool("close_session").await.expect_success();
    let failed = preferring("exit 3", "sh").send().await.expect(200);
    assert_eq!(failed.header("preference-applied"), "http-status");
    Ran::of(failed.json()).expect_exit(3);
    d.stop().await;
}

#[tokio::test]
async fn an_unknown_revision_is_refused_with_its_code() {
    let d = Daemon::start().await;
    let list = json!({ "jsonrpc": "2.0", "id": "a", "method": "tools/list" });
    for accept in [WORKFLOW_ACCEPT, "application/json, text/event-stream"] {
        let request = d.request("POST", "/mcp").header("accept", accept).json(&list);
        let answer = request.header("mcp-protocol-version", "1900-01-01").send().await.expect(400).json();
        assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!("a"), &json!(-32022)), "{answer}");
        let data = &answer["error"]["data"];
        assert_eq!(data["requested"], "1900-01-01", "{answer}");
        let supported = data["supported"].as_array().expect("revisions");
        assert!(
            supported.contains(&json!("2024-11-05")) && supported.contains(&json!("2026-07-28")),
            "{answer}"
        );
    }
    d.stop().await;
}

/// Resident memory of a process, in KiB.
fn resident(pid: rustix::process::Pid) -> u64 {
    let status =
        std::fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero())).expect("its status");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a line");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

#[tokio::test]
async fn abandoned_sessions_are_limited_in_memory_and_on_disk() {
    const ALL: usize = 4000;
    const AT_ONCE: usize = 16;
    let d = Daemon::start().await;
    let begin = async || {
        let request = d.request("POST", "/mcp").header("accept", "application/json, text/event-stream");
        request.json(&initialize()).send().await.expect(200).header("mcp-session-id")
    };
    let list = async |session: &str| {
        let request = d.request("POST", "/mcp").header("accept", "application/json, text/event-stream");
        let list = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" });
        request.header("mcp-session-id", session).json(&list).send().await.status
    };
    let (used, forgotten) = (begin().await, begin().await);
    let batch = async |number: usize| {
        for _ in 0..number / AT_ONCE {
            futures_util::future::join_all((0..AT_ONCE).map(|_| begin())).await;
            assert_eq!(list(&used).await, 200, "a session in use is not evicted");
        }
    };
    let files = || {
        let folder = d.store.path().join("mcp");
        let folders =
            std::fs::read_dir(folder).expect("the sessions").map(|folder| folder.expect("a folder").path());
        folders.map(|folder| std::fs::read_dir(folder).expect("a folder").count()).max().expect("an owner")
    };
    batch(ALL / 2).await;
    let (first, some) = (resident(d.pid()), files());
    batch(ALL / 2).await;
    let (second, more) = (resident(d.pid()), files());
    // Eight more for files being written at this moment.
    assert!((500..=1008).contains(&some) && more <= 1008, "{some} and {more} files");
    assert!(second < first + 24 * 1024, "{first} KiB after {} sessions, {second} after {ALL}", ALL / 2);
    assert_eq!(list(&forgotten).await, 404, "the least recently used went first");
    eprintln!("{ALL} sessions: {first} and {second} KiB, {some} and {more} files");
    d.stop().await;
}

#[tokio::test]
async fn malformed_requests_are_answered_as_json_rpc_demands() {
    let d = Daemon::start().await;
    let valid = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" }).to_string();
    let rows: [(&str, &[u8], i64); 12] = [
        ("not JSON", b"{", -32700),
        ("empty", b"", -32700),
        ("two values", b"{} {}", -32700),
        ("a byte order mark", b"\xef\xbb\xbf{}", -32700),
        ("not UTF-8", b"\"\xff\"", -32700),
        ("a batch", b"[{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/list\"}]", -32600),
        ("null", b"null", -32600),
        ("5", b"5", -32600),
        ("no jsonrpc", b"{\"id\":1,\"method\":\"tools/list\"}", -32600),
        ("jsonrpc 1.0", b"{\"jsonrpc\":\"1.0\",\"id\":1,\"method\":\"tools/list\"}", -32600),
        ("no method", b"{\"jsonrpc\":\"2.0\",\"id\":1}", -32600),
        ("method 5", b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":5}", -32600),
    ];
    for accept in ["application/json", "application/json, text/event-stream"] {
        for (what, body, code) in rows {
            let request = d.request("POST", "/mcp").header("accept", accept);
            let answer = request.header("content-type", "application/json").body(body.to_vec()).send().await;
            assert_eq!(answer.status, 400, "{what}: {}", answer.text());
            let answer = answer.json();
            assert_eq!(
                (&answer["error"]["code"], &answer["id"]),
                (&json!(code), &Value::Null),
                "{what}: {answer}"
            );
        }
    }
    for content_type in
        ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "application/jsonx", ""]
    {
        let request = d.request("POST", "/mcp").header("content-type", content_type).body(valid.clone());
        request.send().await.expect(415);
    }
    d.request("POST", "/mcp").body(valid.clone()).send().await.expect(415);
    for content_type in ["application/json; charset=utf-8", "Application/JSON"] {
        let request = d.request("POST", "/mcp").header("content-type", content_type).body(valid.clone());
        request.send().await.expect(200);
    }
    for (method, params, code) in [
        ("no/such", json!({}), -32601),
        ("prompts/list", json!({}), -32601),
        ("resources/list", json!({}), -32601),
        ("resources/templates/list", json!({}), -32601),
        ("tools/call", json!({ "name": "no_such", "arguments": {} }), -32602),
        ("tools/call", json!({ "name": "run_code", "arguments": {} }), -32602),
        (
            "tools/call",
            json!({ "name": "run_code", "arguments": { "language": "python", "code": 5 } }),
            -32602,
        ),
        (
            "tools/call",
            json!({ "name": "run_code", "arguments": { "language": "python", "code": "1", "x": 1 } }),
            -32602,
        ),
        (
            "tools/call",
            json!({ "name": "run_code",
                "arguments": { "language": "python", "code": "1", "conversationId": "" } }),
            -32602,
        ),
        (
            "tools/call",
            json!({ "name": "run_code",
                "arguments": { "language": "python", "code": "1", "conversationId": "x".repeat(257) } }),
            -32602,
        ),
    ] {
        let answer = d.rpc(method, params.clone()).await;
        assert_eq!(answer["error"]["code"], code, "{method} {params}: {answer}");
        assert!(answer["error"]["message"].as_str().is_some_and(|m| !m.is_empty()), "{answer}");
        assert_eq!(answer["id"], 1);
    }
    assert_eq!(d.rpc("ping", json!({})).await["result"], json!({}));
    for method in ["PUT", "PATCH", "OPTIONS"] {
        d.request(method, "/mcp").json(&initialize()).send().await.expect(405);
    }
    d.stop().await;
}

#[tokio::test]
async fn failures_of_a_tool_are_results() {
    let d = Daemon::start().await;
    let unknown = d.run("cobol", "x").await.expect_error("unknown_language");
    for language in ["cobol", "python", "sh", "typescript"] {
        assert!(unknown.text("message").contains(language), "{}", unknown.document);
    }
    d.run("python", "   ").await.expect_error("invalid_argument");
    d.run("python", "print('\0')").await.expect_error("invalid_argument");
    d.run("python", &"#".repeat(100_001)).await.expect_error("too_large");
    let more = json!({ "allowed_domains": ["example.com"] });
    d.run("python", "1").with("network", more).await.expect_error("unsupported_policy");
    d.run("python", "1").env("A=B", "x").await.expect_error("invalid_argument");
    d.run("python", "1").env("", "x").await.expect_error("invalid_argument");
    d.run("python", "1").env("A", "x\0").await.expect_error("invalid_argument");
    d.run("python", "1").env("A", &"x".repeat(70_000)).await.expect_error("too_large");
    d.run("python", "1").stdin(&"x".repeat((1 << 20) + 1)).await.expect_error("too_large");
    d.run("python", "1").file("../x", b"").await.expect_error("invalid_argument");
    let listed = d.tool("list_runners", json!({})).await;
    assert!(listed.document["languages"].as_array().is_some_and(|all| all.len() >= 3), "{}", listed.document);
    d.view().await.expect_empty().await; // none of this reached a container
    // Every value at its limit.
    let code =
        format!("{}\nimport sys, os\nprint(len(os.environ['A']), len(sys.stdin.read()))", "#".repeat(99_000));
    d.run("python", &code)
        .env("A", &"x".repeat(65_000))
        .stdin(&"y".repeat(1 << 20))
        .await
        .expect_stdout("65000 1048576\n");
    d.stop().await;
}

#[tokio::test]
async fn an_answer_over_http_is_only_for_its_caller() {
    let d = Daemon::start().await;
    // The page, health and readiness need no token; everything else does.
    for (path, status) in [("/health", 200), ("/ready", 200), ("/", 200), ("/none", 404), ("/.env", 404)] {
        let answer = Request::new(d.addr, "GET", path).send().await;
        assert_eq!(answer.status, status, "{path}: {}", answer.text());
    }
    assert_eq!(d.health().await, json!({ "status": "healthy" }));
    d.stop().await;
}
