//! The examples of the documents that the daemon's tools come from. Each request is as in its document and
//! sent as a call without a session: those of the commands (its program is in `s1.rs`), those of the protocol
//! with its two handshakes, and those of the Python sandbox. By default a request for network access is
//! refused with the setting that would allow it. The tests must never compare more of an answer than the
//! document contains.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

use crate::support::{Daemon, events};

/// The answer to a request that is sent as an HTTP Request node does: no event stream, no session.
async fn asked(d: &Daemon, message: &str) -> Value {
    let message: Value = serde_json::from_str(message).expect("the document's JSON");
    let request = d.request("POST", "/mcp").header("accept", "application/json, */*;q=0.7").json(&message);
    let answer = request.send().await.expect(200);
    assert_eq!(answer.header("content-type"), "application/json");
    let answer = answer.json();
    assert_eq!(answer["id"], message["id"], "{answer}");
    answer
}

/// The result of a tool that the document calls by name and arguments.
async fn called(d: &Daemon, call: &str) -> Value {
    let message = format!(r#"{{ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {call} }}"#);
    asked(d, &message).await["result"].clone()
}

/// The document in the text of a result, where a call without a session reads it.
fn in_text(result: &Value) -> Value {
    let text = result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("no text: {result}"));
    serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"))
}

const BEGINNINGS: [&str; 2] = [
    r#"{
      "jsonrpc": "2.0",
      "id": 1,
      "method": "initialize",
      "params": {
        "protocolVersion": "2024-11-05",
        "clientInfo": {
          "name": "client-name",
          "version": "1.0.0"
        }
      }
    }"#,
    r#"{
      "jsonrpc": "2.0",
      "id": 1,
      "method": "initialize",
      "params": {
        "protocolVersion": "2024-11-05"
      }
    }"#,
];

const LIST: &str = r#"{
  "jsonrpc": "2.0",
  "id": 2,
  "method": "tools/list"
}"#;

#[tokio::test]
async fn both_handshakes_of_the_protocol_are_answered_with_their_version() {
    let d = Daemon::start().await;
    for beginning in BEGINNINGS {
        let answer = asked(&d, beginning).await;
        let result = &answer["result"];
        assert_eq!(result["protocolVersion"], "2024-11-05", "{answer}");
        assert!(result["serverInfo"]["name"].is_string() && result["capabilities"]["tools"].is_object());
        let listed = asked(&d, LIST).await;
        for tool in ["upload_file", "run_code", "list_runners"] {
            let tools = listed["result"]["tools"].as_array().expect("tools");
            assert!(tools.iter().any(|one| one["name"] == tool), "{tool}: {listed}");
        }
        // The same as the start of a session, which then continues.
        let message: Value = serde_json::from_str(beginning).expect("JSON");
        let post = || d.request("POST", "/mcp").header("accept", "application/json, text/event-stream");
        let answer = post().json(&message).send().await.expect(200);
        let session = answer.header("mcp-session-id");
        let result = events(&answer.text()).pop().expect("an event");
        assert_eq!(result["result"]["protocolVersion"], "2024-11-05", "{result}");
        let of_it = |message: Value| post().header("mcp-session-id", &session).json(&message).send();
        of_it(json!({ "jsonrpc": "2.0", "method": "notifications/initialized" })).await.expect(202);
        let listed = of_it(serde_json::from_str(LIST).expect("JSON")).await.expect(200);
        let listed = events(&listed.text()).pop().expect("an event");
        assert!(listed["result"]["tools"].is_array(), "{listed}");
    }
    // An existing but invalid value is reported in the same place.
    let wrong =
        r#"{ "jsonrpc": "2.0", "id": 7, "method": "initialize", "params": { "protocolVersion": 7 } }"#;
    let answer = asked(&d, wrong).await;
    assert_eq!(answer["error"]["code"], -32602, "{answer}");
    d.stop().await;
}

#[tokio::test]
async fn the_calls_of_the_protocol_are_answered_as_its_document_says() {
    let d = Daemon::start().await;
    let uploaded = called(
        &d,
        r#"{
        "name": "upload_file",
        "arguments": {
          "conversationId": "user-123-session-456",
          "filename": "data.csv",
          "content": "bmFtZSxhZ2UKQWxpY2UsMzAKQm9iLDI1"
        }
      }"#,
    )
    .await;
    let document = in_text(&uploaded);
    assert_eq!((&document["success"], &document["file"]["name"]), (&json!(true), &json!("data.csv")));
    assert!(document["message"].is_string(), "{document}");
    let file = d.fetch(document["file"]["url"].as_str().expect("a link")).await.expect(200);
    assert_eq!(file.text(), "name,age\nAlice,30\nBob,25");

    let ran = called(&d, r#"{
        "name": "run_code",
        "arguments": {
          "conversationId": "user-123-session-456",
          "language": "python",
          "code": "import matplotlib.pyplot as plt\nimport numpy as np\n\nx = np.linspace(0, 10, 100)\ny = np.sin(x)\n\nplt.plot(x, y)\nplt.savefig('/data/plot.png')\nprint('Plot saved!')",
          "network": false,
          "environment": {
            "API_KEY": "secret-value"
          }
        }
      }"#)
    .await;
    let document = in_text(&ran);
    assert_eq!((&document["success"], &document["output"]), (&json!(true), &json!("Plot saved!\n")));
    let files = document["files"].as_array().expect("files");
    let plot = files.iter().find(|file| file["name"] == "plot.png").expect("the plot");
    let plot = d.fetch(plot["url"].as_str().expect("a link")).await.expect(200);
    assert_eq!((plot.header("content-type").as_str(), &plot.body[1..4]), ("image/png", &b"PNG"[..]));

    let runners = in_text(&called(&d, r#"{ "name": "list_runners", "arguments": {} }"#).await);
    for language in ["python", "typescript"] {
        let languages = runners["languages"].as_array().expect("languages");
        let runner = languages.iter().find(|one| one["language"] == language).expect("a runner");
        assert!(runner["image"].is_string(), "{runner}");
    }

    // The workflow's call by the tool's older name, with the values that n8n fills in for its expressions.
    let ran = called(
        &d,
        r#"{
        "name": "sandbox.run_code",
        "arguments": {
          "conversationId": "an n8n session",
          "language": "python",
          "code": "print(6 * 7)"
        }
      }"#,
    )
    .await;
    assert_eq!(in_text(&ran)["output"], "42\n");
    d.stop().await;
}

#[tokio::test]
async fn the_calls_of_commands_are_answered_as_their_document_says() {
    let by_default = Daemon::start().await;
    let d = Daemon::with().set("egress.mode", "open").start().await;
    let with_network = r#"{
      "name": "execute_code",
      "arguments": {
        "command": "echo hello && sleep 1 && echo done",
        "timeout_seconds": 60,
        "interactive": false,
        "working_directory": "/tmp",
        "environment": {"FOO": "bar"},
        "sandbox_config": {
          "network": {"allowed_domains": ["example.com"]},
          "filesystem": {"allow_write": ["/tmp"]}
        },
        "wait_for_completion": true
      }
    }"#;
    let refused = &called(&by_default, with_network).await["structuredContent"];
    assert_eq!(refused["error"], "unsupported_policy", "{refused}");
    assert!(refused["message"].as_str().is_some_and(|text| text.contains("egress.allow")), "{refused}");
    by_default.stop().await;
    let ran = called(&d, with_network).await;
    let document = in_text(&ran);
    assert_eq!((&document["status"], &document["exit_code"]), (&json!("completed"), &json!(0)));
    let told = document["output"].as_array().expect("events");
    let kinds: Vec<&str> = told.iter().map(|event| event["type"].as_str().expect("a type")).collect();
    assert_eq!((kinds.first(), kinds.last()), (Some(&"ready"), Some(&"exit")), "{document}");
    let said: String = told
        .iter()
        .filter(|event| event["type"] == "stdout")
        .fold(String::new(), |all, event| all + event["data"].as_str().expect("data") + "\n");
    assert_eq!(said, "hello\ndone\n");
    let exit = told.last().expect("an event");
    assert!(exit["code"] == 0 && exit["duration_ms"].as_u64() >= Some(1000), "{exit}");

    let begun = called(
        &d,
        r#"{
      "name": "execute_code_async",
      "arguments": {
        "command": "sleep 60 && echo finished"
      }
    }"#,
    )
    .await;
    let begun = &begun["structuredContent"];
    assert_eq!(begun["status"], "running", "{begun}");
    let id = begun["execution_id"].as_str().expect("an id");
    let with_id = |call: &str| call.replace("abc-123", id);
    let status = r#"{ "name": "get_execution_status", "arguments": { "execution_id": "abc-123" } }"#;
    assert_eq!(called(&d, &with_id(status)).await["structuredContent"]["status"], "running");
    let cancel =
        r#"{ "name": "cancel_execution", "arguments": { "execution_id": "abc-123", "force": false } }"#;
    assert_eq!(called(&d, &with_id(cancel)).await["structuredContent"]["status"], "cancelled");
    let output =
        r#"{ "name": "get_execution_output", "arguments": { "execution_id": "abc-123", "wait": true } }"#;
    let output = called(&d, &with_id(output)).await;
    assert_eq!(output["structuredContent"]["status"], "cancelled", "{output}");
    let stdin = r#"{ "name": "send_stdin", "arguments": { "execution_id": "abc-123", "input_data": "user input\n" } }"#;
    let refused = called(&d, &with_id(stdin)).await;
    assert_eq!(refused["structuredContent"]["error"], "not_interactive", "{refused}");
    let listed = called(&d, r#"{ "name": "list_executions", "arguments": {} }"#).await;
    assert!(listed["structuredContent"]["executions"].is_array(), "{listed}");

    let health = d.request("GET", "/health").without("authorization").send().await.expect(200);
    assert_eq!(health.json()["status"], "healthy");
    d.stop().await;
}

#[tokio::test]
async fn the_calls_of_the_python_sandbox_are_answered_as_its_document_says() {
    let d = Daemon::with().env("SANDBOX_MAX_ARTIFACT_READ_BYTES", "1000").start().await;
    let call = async |tool: &str, arguments: Value| {
        let call = json!({ "name": tool, "arguments": arguments });
        let result = called(&d, &call.to_string()).await;
        result["structuredContent"].clone()
    };
    let has = |document: &Value, expected: Value| {
        for (key, value) in expected.as_object().expect("an object") {
            assert_eq!(&document[key], value, "`{key}` of {document}");
        }
    };
    let id = "sess_a1b2c3d4e5f6";
    let csv = BASE64_STANDARD.encode("channel,sales\nmail,3\nweb,4\n");
    let upload = json!({ "session_id": id, "filename": "sales.csv", "content_base64": csv });
    let uploaded = call("upload_file", upload.clone()).await;
    has(&uploaded, json!({ "session_id": id, "path": "/mnt/data/sales.csv" }));
    let again = call("upload_file", upload.clone()).await;
    has(&again, json!({ "error": "file_exists" }));
    assert!(again["message"].as_str().is_some_and(|text| text.contains("sales.csv")), "{again}");
    let mut over = upload;
    over["overwrite"] = json!(true);
    has(&call("upload_file", over).await, json!({ "session_id": id, "path": "/mnt/data/sales.csv" }));

    let code = "import pandas as pd, matplotlib.pyplot as plt\ndf = pd.read_csv('/mnt/data/sales.csv')\n\
                df.plot.bar(x='channel'); plt.savefig('/mnt/data/chart.png')\nprint(f'Processed {len(df)} \
                rows')";
    let ran = call("run_python", json!({ "session_id": id, "code": code })).await;
    has(
        &ran,
        json!({
            "session_id": id, "exit_code": 0, "stdout": "Processed 2 rows\n", "stderr": "",
            "stdout_truncated": false, "stderr_truncated": false,
        }),
    );
    let run_id = ran["run_id"].as_str().expect("an id");
    assert!(run_id.starts_with("run_2") && run_id.len() == "run_20260206T123456Z_a1b2".len(), "{run_id}");
    let chart = &ran["artifacts"][0];
    has(chart, json!({ "path": "/mnt/data/chart.png", "filename": "chart.png", "mime_type": "image/png" }));
    let size = chart["size_bytes"].as_u64().expect("a size");
    let bytes = d.fetch(chart["download_url"].as_str().expect("a link")).await.expect(200).body;
    assert_eq!(bytes.len() as u64, size);

    let failed = call("run_python", json!({ "session_id": id, "code": "{}['sales_amount']" })).await;
    has(&failed, json!({ "exit_code": 1, "stdout": "", "artifacts": [] }));
    assert!(
        failed["stderr"].as_str().is_some_and(|text| text.contains("KeyError: 'sales_amount'")),
        "{failed}"
    );
    let read = call("read_artifact", json!({ "session_id": id, "path": "/mnt/data/sales.csv" })).await;
    has(&read, json!({ "filename": "sales.csv", "mime_type": "text/csv", "content_base64": csv }));
    let large = call("read_artifact", json!({ "session_id": id, "path": "/mnt/data/chart.png" })).await;
    has(&large, json!({ "error": "artifact_too_large", "size_bytes": size }));
    let none = call("read_artifact", json!({ "session_id": id, "path": "/mnt/data/none.png" })).await;
    has(&none, json!({ "error": "not_found", "message": "No artifact at /mnt/data/none.png" }));
    let outside = call("read_artifact", json!({ "session_id": id, "path": "/mnt/data/../etc/passwd" })).await;
    has(&outside, json!({ "error": "invalid_argument" }));
    let listed = call("list_artifacts", json!({ "session_id": id })).await;
    let names: Vec<&Value> =
        listed["artifacts"].as_array().expect("a list").iter().map(|a| &a["filename"]).collect();
    assert_eq!(names, [&json!("chart.png"), &json!("sales.csv")]);

    has(&call("close_session", json!({ "session_id": id })).await, json!({ "status": "closed" }));
    let closed = call("close_session", json!({ "session_id": "sess_123" })).await;
    has(&closed, json!({ "error": "session_not_found" }));
    // Without it, one is generated.
    let made_up = call("run_python", json!({ "code": "print(2+2)" })).await;
    has(&made_up, json!({ "exit_code": 0, "stdout": "4\n" }));
    let made_up = made_up["session_id"].as_str().expect("an id");
    assert!(made_up.starts_with("sess_") && made_up.len() == id.len(), "{made_up}");
    d.stop().await;

    // Its time limit, set by its environment variable.
    let d = Daemon::with().env("SANDBOX_EXEC_TIMEOUT_S", "2").start().await;
    let slow = r#"{ "name": "run_python", "arguments": { "code": "import time; time.sleep(60)" } }"#;
    let slow = called(&d, slow).await["structuredContent"].clone();
    has(&slow, json!({ "exit_code": -1, "stdout": "", "stderr": "Execution timed out after 2 seconds" }));
    d.stop().await;
}
