//! The events of a command: line by line, from any position, every byte.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{
    BOTH, begin, bytes_of, connected, daemon, ended, expect_numbered, id_of, read_all, status, types,
};
use crate::support::{Daemon, events};

#[tokio::test]
async fn a_caller_waits_for_a_command_or_not_and_reads_from_any_position() {
    let d = daemon().start().await;
    let s = d.session("s");
    let ran = s.tool("execute_code").with("command", "echo hello; echo wrong >&2; exit 3").await;
    assert_eq!(ran.document["status"], "completed");
    assert_eq!((ran.exit_code(), &ran.document["more"]), (3, &json!(false)));
    let output = ran.document["output"].as_array().expect("events").clone();
    expect_numbered(&output);
    assert_eq!(
        (output[0]["type"].as_str(), output.last().map(|e| &e["code"])),
        (Some("ready"), Some(&json!(3)))
    );
    assert_eq!(
        (bytes_of(&output, "stdout"), bytes_of(&output, "stderr")),
        (b"hello\n".into(), b"wrong\n".into())
    );
    // Reading consumes nothing.
    let id = id_of(&ran);
    for _ in 0..2 {
        assert_eq!(ended(&d, &id).await["output"], json!(output));
    }
    let since = json!({ "execution_id": id, "since": 2 });
    assert_eq!(d.tool("get_execution_output", since).await.document["output"], json!(output[2..]));
    let beyond = json!({ "execution_id": id, "since": 99, "wait": true });
    let beyond = d.tool("get_execution_output", beyond).await.document;
    assert_eq!((&beyond["output"], &beyond["next_since"]), (&json!([]), &json!(output.len())));

    let not_waited =
        s.tool("execute_code").with("command", "sleep 30").with("wait_for_completion", false).await;
    assert_eq!(not_waited.document["status"], "running");
    let other = begin(&s, "echo x > f; echo made; sleep 30").await;
    let made = json!({ "execution_id": other, "wait": true, "since": 1 });
    assert_eq!(d.tool("get_execution_output", made).await.document["output"][0]["data"], "made");
    let all = s.tool("list_executions").await.document["executions"].clone();
    let listed: Vec<_> = all.as_array().expect("a list").iter().map(|one| &one["id"]).collect();
    assert_eq!(listed, [&json!(id), &not_waited.document["execution_id"], &json!(other)]);
    assert_eq!(d.session("t").tool("list_executions").await.document["executions"], json!([]));
    let standing = status(&d, &other).await;
    assert_eq!((&standing["status"], &standing["exit_code"]), (&json!("running"), &Value::Null));
    assert!(standing["started_at"].is_f64() && standing["completed_at"].is_null(), "{standing}");
    d.tool("cancel_execution", json!({ "execution_id": other, "force": true })).await;
    assert!(status(&d, &other).await["completed_at"].is_f64());
    // Its files are saved before its end is reported.
    d.request("GET", "/sessions/s/files/f").send().await.expect(200);
    d.stop().await;
}

#[tokio::test]
async fn a_reader_waits_for_the_next_event_and_sees_a_prompt() {
    let d = daemon().start().await;
    let s = d.session("s");
    let command = "printf 'name: '; read name; echo \"hello $name\"; while read -r line; do echo \
                   \"<$line>\"; done; echo end";
    let id = id_of(&s.tool("execute_code_async").with("command", command).with("interactive", true).await);
    let mut since = 1;
    for (say, hear, eol) in
        [(None, "name: ", Some(&json!(false))), (Some("bob"), "hello bob", None), (Some("a\nb"), "<a>", None)]
    {
        if let Some(say) = say {
            d.tool("send_stdin", json!({ "execution_id": id, "input_data": say })).await.expect_success();
        }
        let asked = json!({ "execution_id": id, "wait": true, "since": since, "lines": true });
        let page = d.tool("get_execution_output", asked).await.document;
        let event = &page["output"][0];
        assert_eq!((&event["data"], event.get("eol")), (&json!(hear), eol), "{page}");
        since = event["seq"].as_u64().expect("a number");
    }
    d.tool("send_stdin", json!({ "execution_id": id, "input_data": "last", "eof": true }))
        .await
        .expect_success();
    let all = read_all(&d, &id).await;
    assert_eq!(bytes_of(&all, "stdout"), b"name: hello bob\n<a>\n<b>\n<last>\nend\n");
    d.tool("send_stdin", json!({ "execution_id": id, "input_data": "x" }))
        .await
        .expect_error("execution_finished");
    d.stop().await;
}

#[tokio::test]
async fn input_without_a_newline_reaches_the_program_as_it_is() {
    let d = daemon().start().await;
    let command = "dd bs=1 count=3 2>/dev/null; echo ' three'; od -An -c";
    let id = id_of(
        &d.session("s").tool("execute_code_async").with("command", command).with("interactive", true).await,
    );
    let send = async |say: &str, newline: bool, eof: bool| {
        let input = json!({ "execution_id": id, "input_data": say, "newline": newline, "eof": eof });
        d.tool("send_stdin", input).await.expect_success();
    };
    for (say, newline) in [("ab", false), ("", false), ("c", false), ("d", true), ("", true)] {
        send(say, newline, false).await;
    }
    send("e", false, true).await;
    let said = bytes_of(&read_all(&d, &id).await, "stdout");
    let words: Vec<_> = std::str::from_utf8(&said).expect("text").split_whitespace().collect();
    assert_eq!(words, ["abc", "three", "d", "\\n", "\\n", "e"]);
    d.stop().await;
}

/// Whatever else is written, and however often the line continues.
#[tokio::test]
async fn a_line_without_a_newline_is_seen_soon() {
    let d = daemon().start().await;
    let s = d.session("s");
    let dots = begin(&s, "while :; do printf .; sleep 0.02; done").await;
    let beside =
        begin(&s, "(while :; do echo chatty; sleep 0.02; done) & printf 'Password: ' >&2; wait").await;
    for (id, stream, data) in [(&dots, "stdout", "."), (&beside, "stderr", "Password: ")] {
        let mut since = 0;
        let seen = loop {
            let asked = json!({ "execution_id": id, "wait": true, "since": since });
            let page = d.tool("get_execution_output", asked).await.document;
            let event = page["output"]
                .as_array()
                .expect("events")
                .iter()
                .find(|event| event["type"] == stream)
                .cloned();
            if let Some(event) = event {
                break event;
            }
            since = page["next_since"].as_u64().expect("a number");
            assert!(since < 100, "not within two seconds");
        };
        assert!(seen["data"].as_str().expect("data").starts_with(data) && seen["eol"] == false, "{seen}");
    }
    d.stop().await;
}

#[tokio::test]
async fn a_watcher_of_a_flood_is_told_the_position() {
    let d = daemon().start().await;
    let mut watching = d.request("GET", "/mcp/events").open().await;
    watching.read_until("its first word", |text| text.ends_with("\n\n")).await;
    let id = begin(&d.session("s"), "yes | head -c 1000000").await;
    let text = watching.read_until("the end", |text| text.contains("\"exit\"")).await;
    assert!(text.len() < 500_000, "{} bytes", text.len());
    let mut next = 1;
    for note in events(&text) {
        assert_eq!(note["params"]["first_seq"], next, "none is passed over");
        next = note["params"]["last_seq"].as_u64().expect("a number") + 1;
        let told = note["params"]["events"].as_array().expect("events");
        assert!(told.is_empty() || told[0]["seq"] == note["params"]["first_seq"], "{note}");
    }
    assert_eq!(status(&d, &id).await["status"], "completed");
    assert_eq!(next, 1 + 1 + 500_000 + 1);
    d.stop().await;
}

#[tokio::test]
async fn every_byte_of_output_can_be_read_back() {
    let d =
        daemon().set("exec.runner", "python").set("files.max_log", "128MiB").set("limits.output", "16MiB");
    let d = d.start().await;
    let s = d.session("s");
    let all_bytes = "python3 -c \"import sys; sys.stdout.buffer.write(bytes(range(256))*3 + b'\\n\\xff\\n' + \
                     'h\\u00e9'.encode())\"";
    let ran = s.tool("execute_code").with("command", all_bytes).await;
    let mut wanted: Vec<u8> = (0..=255).collect::<Vec<u8>>().repeat(3);
    wanted.extend_from_slice("\n".as_bytes());
    wanted.extend_from_slice(b"\xff\nh\xc3\xa9");
    assert_eq!(bytes_of(ran.document["output"].as_array().expect("events"), "stdout"), wanted);

    // A line of 100 MB, complete, in pieces of text.
    let id = begin(&s, "python3 -c \"import sys; sys.stdout.write('\\u00e9' * 50_000_000)\"").await;
    let events = read_all(&d, &id).await;
    expect_numbered(&events);
    assert!(events.iter().all(|event| event.get("encoding").is_none()), "a character was cut");
    assert_eq!(bytes_of(&events, "stdout"), "\u{e9}".repeat(50_000_000).into_bytes());

    // Closed streams do not end a command, and neither does a slow reader.
    let ran = s.tool("execute_code").with("command", "exec >&- 2>&-; sleep 0.3; exit 7").await;
    assert_eq!(ran.exit_code(), 7);
    d.stop().await;
}

#[tokio::test]
async fn endless_output_is_ended_and_reported() {
    let d = daemon().set("files.max_log", "1MiB").start().await;
    // As fast as a pipe allows.
    let id = begin(&d.session("s"), "cat /dev/zero >&2").await;
    assert_eq!(ended(&d, &id).await["status"], "failed");
    assert_eq!(bytes_of(&read_all(&d, &id).await, "stderr"), vec![0; 1 << 20]);
    let begun = Instant::now();
    let ran = d.session("s").tool("execute_code").with("command", "yes 0123456789").timeout(60.0).await;
    assert!(begun.elapsed() < Duration::from_secs(30), "the bound, and not the time, ended it");
    assert_eq!((&ran.document["status"], &ran.document["more"]), (&json!("failed"), &json!(true)));
    let events = read_all(&d, &id_of(&ran)).await;
    expect_numbered(&events);
    let written = bytes_of(&events, "stdout");
    assert!(
        written.len() >= 1 << 20
            && "0123456789\n".repeat(100_000).into_bytes().starts_with(&written[..1 << 20])
    );
    assert_eq!(types(&events[events.len() - 2..]), ["resource_limit", "exit"]);
    assert_eq!(events[events.len() - 2]["reason"], "Output limit exceeded");
    d.stop().await;
}

#[tokio::test]
async fn a_watcher_receives_each_line_of_its_own_commands_only() {
    let d = daemon().start().await;
    let mut watching = d.request("GET", "/mcp/events").open().await;
    watching.read_until("its first word", |text| text.ends_with("\n\n")).await;
    let id = begin(&d.session("s"), "echo one; echo two >&2; exit 4").await;
    let text = watching.read_until("the end", |text| text.contains("\"exit\"")).await;
    let mut told = Vec::new();
    for note in events(&text) {
        assert_eq!(note["method"], "notifications/execution");
        assert_eq!(
            (&note["params"]["execution_id"], &note["params"]["session_id"]),
            (&json!(id), &json!("s"))
        );
        told.extend(note["params"]["events"].as_array().expect("events").clone());
    }
    assert_eq!(told, read_all(&d, &id).await);
    d.stop().await;
}

/// A caller that gave a token receives the lines while the call waits, each soon after it was written.
#[tokio::test]
async fn a_waiting_call_reports_the_lines_written_meanwhile() {
    let d = daemon().start().await;
    let session = connected(&d).await;
    // The command continues only when the test has seen its first line.
    let command =
        "echo first; printf half; until [ -e /data/seen ]; do sleep 0.01; done; echo; echo last >&2";
    let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {
        "name": "execute_code", "arguments": { "command": command, "session_id": "s" },
        "_meta": { "progressToken": 7 } } });
    let request = d.request("POST", "/mcp").set("accept", BOTH).set("mcp-session-id", &session).json(&call);
    let mut answer = request.open().await;
    let half = |text: &str| text.contains("first") && text.contains("half");
    let before = answer.read_until("what it wrote so far", half).await;
    d.session("s").tool("execute_code").with("command", "touch seen").await;
    let text = before + &answer.read_until("the answer", |text| text.contains("structuredContent")).await;
    let told: String = events(&text)
        .iter()
        .filter(|event| event["method"] == "notifications/progress")
        .map(|event| {
            assert_eq!(event["params"]["progressToken"], 7);
            event["params"]["message"].as_str().expect("a message")
        })
        .collect();
    assert!(told.starts_with("first\nhalf"), "{told:?}");
    d.stop().await;
}

/// A client that hears of the progress waits on.
#[tokio::test]
async fn a_command_that_takes_longer_than_the_client_waits_continues() {
    let d = daemon().start().await;
    let session = connected(&d).await;
    let beside = begin(&d.session("s"), "sleep 47; echo slept").await;
    let read = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {
        "name": "get_execution_output", "arguments": { "execution_id": beside, "wait": true },
        "_meta": { "progressToken": 7 } } });
    let request = d.request("POST", "/mcp").set("accept", BOTH).set("mcp-session-id", &session).json(&read);
    let reading = async {
        let mut answer = request.open().await;
        answer.read_until("the answer", |text| text.contains("structuredContent")).await
    };
    // The same for the call that runs the command, whether it says that it waits or not.
    let wait = json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {
        "name": "execute_code", "arguments": {
            "command": "echo on; sleep 46; echo over", "session_id": "s", "wait_for_completion": true },
        "_meta": { "progressToken": 8 } } });
    let request = d.request("POST", "/mcp").set("accept", BOTH).set("mcp-session-id", &session).json(&wait);
    let waiting = async {
        let mut answer = request.open().await;
        let text = answer.read_until("the answer", |text| text.contains("structuredContent")).await;
        let result = events(&text).pop().expect("an answer")["result"]["structuredContent"].clone();
        let progress = events(&text).iter().filter(|one| one["params"]["progressToken"] == 8).count();
        (result, progress)
    };
    let begun = Instant::now();
    let running = async {
        let command = "echo begun; until [ -e /tmp/over ]; do sleep 0.1; done; echo done";
        let ran = d.session("s").tool("execute_code").with("command", command).await;
        assert!((45..60).contains(&begun.elapsed().as_secs()), "{:?}", begun.elapsed());
        let over = d.session("s").tool("execute_code").with("command", "touch /tmp/over").await;
        assert_eq!(over.document["status"], "completed", "{}", over.document);
        ran
    };
    let (ran, read, (waited, progress)) = tokio::join!(running, reading, waiting);
    assert_eq!((&waited["status"], &waited["exit_code"]), (&json!("completed"), &json!(0)), "{waited}");
    assert!(waited.to_string().contains("over") && progress >= 3, "{progress} {waited}");
    assert!(read.contains("slept") && read.contains("completed"), "{read}");
    assert_eq!(ran.document["status"], "running");
    assert!(ran.text("message").contains("get_execution_output"), "{}", ran.document);
    let events = read_all(&d, &id_of(&ran)).await;
    assert_eq!(bytes_of(&events, "stdout"), b"begun\ndone\n");
    d.stop().await;
}

/// A client that disconnects ends the command that it waits for, and no other.
#[tokio::test]
async fn a_client_that_disconnects_ends_the_command_that_it_waits_for() {
    let d = Daemon::with().set("exec.runner", "sh").start().await;
    let s = d.session("s");
    let asynchronous = begin(&s, "sleep 50").await;
    let mut watching = d.request("GET", "/mcp/events").open().await;
    watching.read_until("its first word", |text| text.ends_with("\n\n")).await;
    let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {
        "name": "execute_code", "arguments": { "command": "echo here; sleep 50", "session_id": "s" } } });
    let waiting = d.request("POST", "/mcp").set("accept", "application/json").json(&call);
    let waiting = tokio::spawn(async move { waiting.try_send().await });
    let text = watching.read_until("its output", |text| text.contains("\"here\"")).await;
    // The first events can be the other command's.
    let all = events(&text);
    let its = all.iter().find(|event| event.to_string().contains("\"here\"")).expect("its event");
    let id = its["params"]["execution_id"].as_str().expect("an id").to_owned();
    waiting.abort();
    assert_eq!(ended(&d, &id).await["status"], "cancelled");
    assert_eq!(status(&d, &asynchronous).await["status"], "running");
    d.stop().await;
}
