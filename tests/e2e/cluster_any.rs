//! What one node of a cluster began, any node goes on with: executions, MCP sessions, calls that ask their
//! client something, and notifications. While that node is silent, each of them is refused; once it has
//! ended, each is gone.

use std::time::Duration;

use rmcp::ServiceExt;
use rmcp::model::CallToolRequestParams;
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use serde_json::{Value, json};

use crate::cluster::{two, two_of};
use crate::support::{Answer, Daemon, PATIENCE, Ran, Request, TOKEN, events, within};
use crate::upstream_proxy::{behind, proxy};

/// A node tells this of each peer that has ended.
const ENDED: &str = "a node of the cluster has ended";
/// A node tells this of each peer that does not answer any more.
const LOST: &str = "a node of the cluster does not answer any more";

/// A message of an MCP session, or the one that begins it.
fn post(d: &Daemon, session: Option<&str>, message: &Value) -> Request {
    let request = d.request("POST", "/mcp").header("accept", "application/json, text/event-stream");
    let request = request.header("mcp-protocol-version", "2025-11-25").json(message);
    session.map_or(request.clone(), |session| request.header("mcp-session-id", session))
}

/// Begins an MCP session at one node, and says at another that it has begun.
async fn initialize(at: &Daemon, other: &Daemon) -> String {
    let client = json!({ "name": "test", "version": "1" });
    let params = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client });
    let begin = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params });
    let session = post(at, None, &begin).send().await.expect(200).header("mcp-session-id").to_owned();
    let initialized = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    post(other, Some(&session), &initialized).send().await.expect(202);
    session
}

/// A call that runs Python in the session of its MCP session.
fn run(id: u64, code: &str) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call",
        "params": { "name": "run_code", "arguments": { "language": "python", "code": code } } })
}

#[tokio::test]
async fn an_execution_is_followed_fed_and_ended_from_any_node() {
    let (common, a, b) = two().await;
    common.give("s", "b");
    let begun =
        a.session("s").tool("execute_code_async").with("command", "cat").with("interactive", true).await;
    let id = begun.text("execution_id").to_owned();
    let sent = a.tool("send_stdin", json!({ "execution_id": id, "input_data": "hello" })).await;
    assert!(!sent.is_error, "{}", sent.said);
    let asked = json!({ "execution_id": id, "wait": true });
    let read = async {
        loop {
            let page = a.tool("get_execution_output", asked.clone()).await;
            if page.document["output"].to_string().contains("hello") {
                return page;
            }
        }
    };
    within(PATIENCE, "the output", read).await;
    let ended = a.tool("cancel_execution", json!({ "execution_id": id, "force": true })).await;
    assert!(!ended.is_error, "{}", ended.said);
    let status = b.tool("get_execution_status", json!({ "execution_id": id })).await;
    assert_eq!(status.document["status"], "cancelled");
    let unknown = json!({ "execution_id": uuid::Uuid::new_v4().to_string() });
    a.tool("get_execution_status", unknown).await.expect_error("execution_not_found");
    a.stop().await;
    b.stop().await;
}

#[tokio::test]
async fn a_real_client_at_one_node_uses_sessions_of_another() {
    let (common, a, b) = two().await;
    common.give("s", "b");
    let config = StreamableHttpClientTransportConfig::with_uri(format!("{}/mcp", a.url)).auth_header(TOKEN);
    let client = ().serve(StreamableHttpClientTransport::from_config(config));
    let client = within(PATIENCE, "the handshake", client).await.expect("a handshake");
    let call = async |arguments: Value| {
        let Value::Object(arguments) = arguments else { panic!("no object") };
        let request = CallToolRequestParams::new("run_code").with_arguments(arguments);
        let done = within(PATIENCE, "a result", client.call_tool(request)).await.expect("a result");
        (done.structured_content.expect("a document"), done.content.len())
    };
    let (there, texts) = call(json!({ "language": "python", "code": "print(2)", "session_id": "s" })).await;
    assert_eq!((&there["stdout"], &there["session_id"]), (&json!("2\n"), &json!("s")), "{there}");
    let (here, same) = call(json!({ "language": "python", "code": "print(2)" })).await;
    assert_eq!((&here["stdout"], texts), (&json!("2\n"), same), "{here}");
    assert_eq!(common.owners(), ["a", "b"], "the session of an MCP session is made where that is");
    client.cancel().await.expect("an end");
    a.stop().await;
    b.stop().await;
}

#[tokio::test]
async fn an_mcp_session_goes_on_at_any_node() {
    let (_common, a, b) = two().await;
    let session = initialize(&a, &b).await;
    let ran = |answer: Answer| Ran::of(events(&answer.expect(200).text()).pop().expect("an event"));
    let first = ran(post(&b, Some(&session), &run(1, "open('a', 'w').write('mine')")).send().await);
    let second = ran(post(&a, Some(&session), &run(2, "print(open('a').read())")).send().await);
    assert_eq!(first.text("session_id"), second.expect_stdout("mine\n").text("session_id"));
    b.request("DELETE", "/mcp").header("mcp-session-id", &session).send().await.expect(204);
    for d in [&a, &b] {
        assert_eq!(post(d, Some(&session), &run(3, "print(1)")).send().await.status, 404);
    }
    a.stop().await;
    b.stop().await;
}

#[tokio::test]
async fn a_stream_of_an_mcp_session_is_resumed_at_another_node() {
    let (_common, a, b) = two().await;
    let session = initialize(&a, &b).await;
    let mut open = post(&a, Some(&session), &run(1, "import time; time.sleep(2); print(6 * 7)")).open().await;
    assert_eq!(open.status, 200);
    let id = |text: &str| text.lines().find_map(|line| Some(line.strip_prefix("id:")?.trim().to_owned()));
    let begun = open.read_until("the id of an event", |text| id(text).is_some()).await;
    drop(open);
    let last = id(&begun).expect("an id");
    let resume = b.request("GET", "/mcp").header("accept", "text/event-stream");
    let resume = resume.header("mcp-session-id", &session).header("last-event-id", &last);
    let mut resumed = resume.open().await;
    assert_eq!(resumed.status, 200);
    let is_result = |text: &str| events(text).iter().any(|event| event["result"].is_object());
    let text = resumed.read_until("the result", is_result).await;
    let answer = events(&text).into_iter().find(|event| event["result"].is_object()).expect("a result");
    Ran::of(answer).expect_stdout("42\n");
    drop(resumed);
    a.stop().await;
    b.stop().await;
}

#[tokio::test]
async fn what_a_node_had_is_refused_while_it_is_silent_and_gone_once_it_has_ended() {
    let (common, a, b) = two().await;
    common.give("s", "b");
    let begun = b.session("s").tool("execute_code_async").with("command", "sleep 300").await;
    let id = begun.text("execution_id").to_owned();
    let of_execution = json!({ "execution_id": id, "wait": true });
    let runs = a.tool("get_execution_status", json!({ "execution_id": id })).await;
    assert_eq!(runs.document["status"], "running", "{}", runs.said);
    let session = initialize(&b, &a).await;
    drop(b.crash().await);
    a.log.line(LOST).await;
    let call = json!({ "name": "get_execution_status", "arguments": { "execution_id": id } });
    let silent = a.rpc("tools/call", call).await;
    assert_eq!(silent["error"]["data"]["error"], "node_unreachable", "{silent}");
    let refused = post(&a, Some(&session), &run(1, "print(1)")).send().await;
    assert_eq!((refused.status, refused.header("retry-after")), (503, "1".into()), "{}", refused.text());
    common.end("b");
    a.log.line(ENDED).await;
    for tool in ["get_execution_status", "get_execution_output", "cancel_execution"] {
        let arguments =
            if tool == "get_execution_output" { &of_execution } else { &json!({ "execution_id": id }) };
        let gone = a.tool(tool, arguments.clone()).await.expect_error("execution_not_found");
        assert!(gone.said.contains("node b"), "{}", gone.said);
    }
    assert_eq!(post(&a, Some(&session), &run(1, "print(1)")).send().await.status, 404);
    for (method, accept) in [("GET", "text/event-stream"), ("DELETE", "application/json")] {
        let request = a.request(method, "/mcp").header("accept", accept).header("mcp-session-id", &session);
        assert_eq!(request.send().await.status, 404, "{method}");
    }
    let anew = initialize(&a, &a).await;
    let ran = post(&a, Some(&anew), &run(1, "print(6 * 7)")).send().await.expect(200);
    Ran::of(events(&ran.text()).pop().expect("an event")).expect_stdout("42\n");
    a.stop().await;
}

#[tokio::test]
async fn whoever_listens_at_one_node_is_told_of_runs_at_all_of_them_and_once() {
    let (common, a, b) = two().await;
    common.give("s", "a");
    common.give("t", "b");
    let mut watching =
        [a.request("GET", "/mcp/events").open().await, b.request("GET", "/mcp/events").open().await];
    a.session("t").sh("exit 3").await;
    b.session("s").sh("exit 4").await;
    let is_all = |text: &str| text.matches("exit_code").count() >= 2;
    for open in &mut watching {
        let told = events(&open.read_until("both ends", is_all).await);
        let mut told: Vec<_> = told
            .iter()
            .map(|note| format!("{} {}", note["params"]["session_id"], note["params"]["status"]))
            .collect();
        told.sort();
        assert_eq!(told, [r#""s" "failed""#, r#""s" "running""#, r#""t" "failed""#, r#""t" "running""#]);
    }
    // Nobody else's: the right of the client goes along.
    Request::new(a.addr, "GET", "/mcp/events").send().await.expect(401);
    // A node that comes back is followed again.
    let store = b.crash().await;
    a.log.line(LOST).await;
    let mark = a.log.mark();
    let b = common.node("b").store(&store).start().await;
    a.log.line_since(mark, "a node of the cluster answers").await;
    let again = async {
        loop {
            b.session("t").sh("exit 5").await;
            let told = watching[0].read_until("a run that was told of", |text| text.contains("exit_code"));
            // A run before the node was followed again is told to nobody.
            if tokio::time::timeout(Duration::from_secs(2), told).await.is_ok() {
                return;
            }
        }
    };
    within(PATIENCE, "a notification of a node that came back", again).await;
    drop(watching);
    a.stop().await;
    b.stop().await;
}

/// A call of the newest revision of a client that can be asked: it fetches a URL that is not allowed.
fn asks(d: &Daemon, more: &Value) -> Request {
    let code =
        "import urllib.request; print(urllib.request.urlopen('http://api.example/', timeout=50).read())";
    let mut params = json!({
        "name": "run_code",
        "arguments": {
            "language": "python", "code": code, "network": { "allowed_domains": ["listed.example"] },
        },
        "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": { "name": "test", "version": "1" },
            "io.modelcontextprotocol/clientCapabilities": { "elicitation": {} },
        },
    });
    let params_of = params.as_object_mut().expect("an object");
    params_of.extend(more.as_object().expect("an object").clone());
    d.request("POST", "/mcp")
        .header("accept", "application/json, text/event-stream")
        .header("mcp-protocol-version", "2026-07-28")
        .header("mcp-method", "tools/call")
        .header("mcp-name", "run_code")
        .json(&json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params }))
}

/// The last message of an answer, whichever form it has.
fn message(answer: Answer) -> Value {
    let answer = answer.expect(200);
    events(&answer.text()).pop().unwrap_or_else(|| answer.json())
}

#[tokio::test]
async fn a_call_that_asked_its_client_goes_on_through_another_node() {
    let (upstream, _asked) = proxy("200 Connection established").await;
    let (_common, a, b) = two_of(|| behind(&upstream).set("egress.ask", true)).await;
    for (first, second) in [(&a, &b), (&b, &a)] {
        let asked = message(asks(first, &json!({})).send().await);
        let state = &asked["result"]["requestState"];
        assert!(state.is_string(), "{asked}");
        let yes = json!({ "approval": { "action": "accept", "content": {} } });
        let more = json!({ "requestState": state, "inputResponses": yes });
        let done = message(asks(second, &more).send().await);
        let ran = &done["result"]["structuredContent"];
        assert_eq!(ran["stdout"], "b'through'\n", "{done}");
        let twice = asks(second, &more).send().await.text();
        assert!(twice.contains("-32602"), "{twice}");
    }
    a.stop().await;
    b.stop().await;
}
