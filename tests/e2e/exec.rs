//! Shell commands: they stream, accept input, can be ended, have limits of their own, and survive their
//! daemon.
//!
//! Most tests use the plain example image, whose containers start quickly.

#[path = "exec/ends.rs"]
mod ends;
#[path = "exec/events.rs"]
mod events;
#[path = "exec/policy.rs"]
mod policy;
#[path = "exec/refused.rs"]
mod refused;
#[path = "exec/side_by_side.rs"]
mod side_by_side;
#[path = "exec/survive.rs"]
mod survive;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

use crate::support::{Daemon, Ran, Session, Setup};

/// A daemon whose commands run in the plain image.
fn daemon() -> Setup {
    Daemon::with().set("exec.runner", "sh")
}

/// The Accept header of a client with a session.
const BOTH: &str = "application/json, text/event-stream";

/// The id of a new MCP session.
async fn connected(d: &Daemon) -> String {
    let hello = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {},
        "clientInfo": { "name": "test", "version": "1" } } });
    let answer = d.request("POST", "/mcp").set("accept", BOTH).json(&hello).send().await;
    answer.expect(200).header("mcp-session-id")
}

/// Starts a command; returns its id.
async fn begin(session: &Session<'_>, command: &str) -> String {
    let begun = session.tool("execute_code_async").with("command", command).await;
    id_of(&begun)
}

fn id_of(ran: &Ran) -> String {
    ran.document["execution_id"].as_str().unwrap_or_else(|| panic!("no id in {}", ran.document)).to_owned()
}

/// All of its events up to the end, read page by page.
pub(crate) async fn read_all(d: &Daemon, id: &str) -> Vec<Value> {
    let mut events: Vec<Value> = Vec::new();
    loop {
        let since = events.last().map_or(0, |event| event["seq"].as_u64().expect("a number"));
        let asked = json!({ "execution_id": id, "wait": true, "since": since, "lines": true });
        let page = d.tool("get_execution_output", asked).await.document;
        let output = page["output"].as_array().unwrap_or_else(|| panic!("no output in {page}"));
        events.extend(output.iter().cloned());
        if output.is_empty() || (page["more"] == false && is_last(events.last())) {
            return events;
        }
    }
}

fn is_last(event: Option<&Value>) -> bool {
    event.is_some_and(|event| {
        ["exit", "timeout", "cancelled", "error"].iter().any(|kind| event["type"] == **kind)
    })
}

/// The bytes of one stream.
pub(crate) fn bytes_of(events: &[Value], stream: &str) -> Vec<u8> {
    let mut all = Vec::new();
    for event in events.iter().filter(|event| event["type"] == stream) {
        let data = event["data"].as_str().expect("data");
        match event.get("encoding") {
            None => all.extend_from_slice(data.as_bytes()),
            Some(encoding) => {
                assert_eq!(encoding, "base64");
                all.extend(BASE64_STANDARD.decode(data).expect("base64"));
            }
        }
        if event.get("eol") != Some(&json!(false)) {
            all.push(b'\n');
        }
    }
    all
}

fn types(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["type"].as_str().expect("a type")).collect()
}

/// Expects the numbers from 1 on, each once.
fn expect_numbered(events: &[Value]) {
    let numbers: Vec<u64> = events.iter().map(|event| event["seq"].as_u64().expect("a number")).collect();
    let wanted: Vec<u64> = (1..).take(events.len()).collect();
    assert_eq!(numbers, wanted);
}

/// Waits for its end.
async fn ended(d: &Daemon, id: &str) -> Value {
    d.tool("get_execution_output", json!({ "execution_id": id, "wait": true, "lines": true })).await.document
}

async fn status(d: &Daemon, id: &str) -> Value {
    d.tool("get_execution_status", json!({ "execution_id": id })).await.document
}
