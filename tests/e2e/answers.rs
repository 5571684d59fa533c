//! What a model and what a program read of an answer: plain text or a compact document, both ends of a long
//! output, hints, and files as text.

use serde_json::{Value, json};

use crate::support::{Answer, Daemon, Ran, events};

const BOTH: &str = "application/json, text/event-stream";

/// A client that announced its name and its revision of MCP.
pub(crate) struct Client<'d> {
    d: &'d Daemon,
    session: String,
    revision: &'static str,
}

impl<'d> Client<'d> {
    async fn named(d: &'d Daemon, name: &str, revision: &'static str) -> Client<'d> {
        let params = json!({
            "protocolVersion": revision, "capabilities": {}, "clientInfo": { "name": name, "version": "1" },
        });
        let hello = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params });
        let answer = d.request("POST", "/mcp").set("accept", BOTH).json(&hello).send().await.expect(200);
        Client { d, session: answer.header("mcp-session-id"), revision }
    }

    /// A current host of a model.
    pub(crate) async fn of_a_model(d: &'d Daemon) -> Client<'d> {
        Client::named(d, "a-host", "2025-11-25").await
    }

    async fn ask(&self, tool: &str, arguments: Value, meta: Value) -> Answer {
        let params = json!({ "name": tool, "arguments": arguments, "_meta": meta });
        let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
        let request = self.d.request("POST", "/mcp").set("accept", BOTH);
        let request =
            request.header("mcp-session-id", &self.session).header("mcp-protocol-version", self.revision);
        request.json(&call).send().await.expect(200)
    }

    pub(crate) async fn call(&self, tool: &str, arguments: Value) -> Ran {
        let answer = self.ask(tool, arguments, json!({})).await.text();
        Ran::of(events(&answer).into_iter().find(|event| event["id"] == 1).expect("an answer"))
    }

    async fn sh(&self, code: &str) -> Ran {
        self.call("run_code", json!({ "language": "sh", "code": code })).await
    }

    async fn python(&self, code: &str) -> Ran {
        self.call("run_code", json!({ "language": "python", "code": code })).await
    }
}

#[tokio::test]
async fn a_model_reads_the_exact_output_and_nothing_twice() {
    let d = Daemon::start().await;
    let client = Client::of_a_model(&d).await;
    assert_eq!(client.python("print('hi')").await.expect_stdout("hi\n").said, "hi\n");
    assert_eq!(client.sh("true").await.said, "(no output)");
    let failed = client.python("print('first')\n1 / 0").await.expect_exit(1);
    assert!(
        failed.said.starts_with("first\n\nTraceback") && failed.said.ends_with("\n[exit code 1]"),
        "{}",
        failed.said
    );
    assert_eq!(failed.said.matches("ZeroDivisionError").count(), 1, "{}", failed.said);
    let made = client.sh("echo a > a.csv; echo made").await.expect_stdout("made\n");
    let url = made.document["artifacts"][0]["download_url"].as_str().expect("a link");
    assert_eq!(made.said, format!("made\nFiles made or changed:\n/mnt/data/a.csv (2 bytes, text/csv) {url}"));
    let slow =
        client.call("run_code", json!({ "language": "sh", "code": "sleep 9", "timeout_seconds": 0.2 })).await;
    assert_eq!(slow.said, "Execution timed out after 0.2 seconds");
    let wrong = client
        .call("run_code", json!({ "language": "cobol", "code": "1" }))
        .await
        .expect_error("unknown_language");
    assert_eq!(wrong.said, format!("unknown_language: {}", wrong.text("message")));

    let ran = client.call("execute_code", json!({ "command": "echo out; echo err >&2; exit 3" })).await;
    assert_eq!(ran.said, "out\nerr\n[exit code 3]");
    let ran =
        client.call("execute_code", json!({ "command": "echo a; sleep 30", "timeout_seconds": 5 })).await;
    assert_eq!(ran.said, "a\n[timeout]");
    let begun = client.call("execute_code_async", json!({ "command": "sleep 50" })).await;
    assert!(begun.said.contains(&format!("execution_id: {}", begun.text("execution_id"))), "{}", begun.said);
    let read =
        client.call("read_artifact", json!({ "path": "a.csv", "session_id": made.text("session_id") })).await;
    assert_eq!(read.said, "a\n");
    let listed = client.call("list_artifacts", json!({ "session_id": made.text("session_id") })).await;
    assert_eq!(listed.said, format!("/mnt/data/a.csv (2 bytes, text/csv) {url}"));
    d.stop().await;
}

#[tokio::test]
async fn programs_that_see_only_the_text_read_json_in_it() {
    let d = Daemon::start().await;
    let json_of =
        |ran: &Ran| serde_json::from_str::<Value>(&ran.said).unwrap_or_else(|e| panic!("{e}: {}", ran.said));
    let keys =
        |document: &Value| document.as_object().expect("an object").keys().cloned().collect::<Vec<_>>();
    let old = Client::named(&d, "a-host", "2025-03-26").await;
    let bare = d.run("sh", "echo hi; echo x > f").await;
    for ran in [old.sh("echo hi; echo x > f").await, bare] {
        let said = json_of(&ran);
        assert_eq!(keys(&said), ["success", "output", "exit_code", "files", "session_id"]);
        assert_eq!((&said["output"], &said["files"][0]["name"]), (&json!("hi\n"), &json!("f")));
        assert_eq!(ran.stdout(), "hi\n", "the document has every field");
    }
    // S1's document with its lines joined; S1's example reads it with the Python SDK, of any revision.
    let sdk = Client::named(&d, "mcp", "2025-11-25").await;
    let command = json!({ "command": "echo a; echo b; echo c >&2; exit 2" });
    for ran in
        [d.tool("execute_code", command.clone()).await, sdk.call("execute_code", command.clone()).await]
    {
        let said = json_of(&ran);
        let events: Vec<_> =
            said["output"].as_array().expect("events").iter().map(|e| (&e["type"], &e["data"])).collect();
        assert_eq!(events[1], (&json!("stdout"), &json!("a\nb")), "{said}");
        assert_eq!(
            (events[2], said["exit_code"].as_i64()),
            ((&json!("stderr"), &json!("c")), Some(2)),
            "{said}"
        );
    }
    assert_eq!(sdk.sh("echo hi").await.said, "hi\n");
    // These hosts give their model the document.
    for name in ["claude-code", "@n8n/n8n-nodes-langchain.mcpClientTool"] {
        let ran = Client::named(&d, name, "2025-11-25").await.sh("echo hi").await;
        assert_eq!(keys(&ran.document), ["success", "output", "exit_code", "files", "session_id"], "{name}");
    }
    d.stop().await;
}

#[tokio::test]
async fn a_long_output_is_shown_by_its_two_ends_with_a_link_to_all_of_it() {
    let d = Daemon::start().await;
    let client = Client::of_a_model(&d).await;
    let code = "i=0; while [ $i -lt 30000 ]; do echo \"line $i\"; i=$((i+1)); done; echo THE ANSWER IS 42";
    let ran = client.sh(code).await.expect_success();
    let whole: String =
        (0..30_000).map(|n| format!("line {n}\n")).chain(["THE ANSWER IS 42\n".to_owned()]).collect();
    for (text, most) in [(ran.said.as_str(), 21_000), (ran.text("output"), 20_100), (ran.stdout(), 100_100)] {
        assert!(text.len() < most && text.starts_with("line 0\nline 1\n"), "{} bytes", text.len());
        assert!(text.contains("\nTHE ANSWER IS 42\n"), "the last line is gone");
        assert!(
            text.contains(&format!(" of {} bytes are left out here ...]", whole.len())),
            "it is not said what is missing"
        );
    }
    let link = ran.text("log_url");
    assert!(
        ran.said.ends_with(&format!("The whole output: {link}")),
        "{}",
        &ran.said[ran.said.len() - 300..]
    );
    assert_eq!(d.fetch(link).await.expect(200).text(), whole);
    // More than a model is shown, and less than an answer contains.
    let ran = client.sh("head -c 50000 /dev/zero | tr '\\0' x; echo; echo end >&2").await;
    assert!(
        ran.stdout().len() == 50_001 && ran.text("output").ends_with("\nend\n") && ran.said.len() < 21_000
    );
    assert_eq!(d.fetch(ran.text("log_url")).await.expect(200).body.len(), 50_005);

    let ran = client.call("execute_code", json!({ "command": code })).await;
    assert!(ran.said.len() < 21_000 && ran.said.starts_with("line 0\n"), "{} bytes", ran.said.len());
    assert!(ran.said.contains("\nTHE ANSWER IS 42\n"), "the last line is gone");
    // A reader that continues where the beginning ended gets all of it.
    let (mut all, mut since) = (Vec::new(), 0);
    loop {
        let asked = json!({ "execution_id": ran.text("execution_id"), "since": since });
        let page = client.call("get_execution_output", asked).await.document;
        for event in
            page["output"].as_array().expect("events").iter().filter(|event| event["type"] == "stdout")
        {
            all.extend_from_slice(event["data"].as_str().expect("data").as_bytes());
            all.push(b'\n');
        }
        since = page["next_since"].as_u64().expect("a number");
        if page["more"] == false {
            break;
        }
    }
    assert_eq!(since, 1 + 30_001 + 1, "the numbers are those of the lines");
    assert!(all == whole.as_bytes(), "{} bytes of {}", all.len(), whole.len());
    d.stop().await;
}

#[tokio::test]
async fn a_failure_caused_by_the_sandbox_says_so() {
    let d = Daemon::with().set("limits.memory", "64MiB").start().await;
    let client = Client::of_a_model(&d).await;
    let ran = client.python("import matplotlb.pyplot").await.expect_exit(1);
    assert!(
        ran.said.contains("The module matplotlb is") && ran.said.contains("list_runners"),
        "{}",
        ran.said
    );
    assert!(ran.said.contains("They are numpy, pandas, matplotlib,"), "{}", ran.said);
    assert!(ran.said.contains("; did you mean matplotlib?"), "{}", ran.said);
    let command = "python3 -c 'import torch'";
    let ran = client.call("execute_code", json!({ "command": command })).await;
    let hint = ran.text("hint");
    assert!(hint.contains("The module torch is") && hint.contains("They are numpy, pandas,"), "{hint}");
    assert!(!hint.contains("did you mean"), "{hint}");
    let ran = client.python("import torch").await.expect_exit(1);
    assert!(ran.text("hint").contains("torch") && !ran.stderr().contains("list_runners"), "{}", ran.document);
    let code = "import urllib.request; urllib.request.urlopen('http://example.com')";
    let ran = client.python(code).await.expect_exit(1);
    assert!(ran.said.contains("Programs have no network unless"), "{}", ran.said);
    let command = "python3 -c \"import socket; socket.create_connection(('example.com', 80))\"";
    let ran = client.call("execute_code", json!({ "command": command })).await;
    assert!(
        ran.said.contains("Programs have no network unless") && ran.document["hint"].is_string(),
        "{}",
        ran.said
    );
    let ran = client.python("x = bytearray(1 << 30); print(len(x))").await.expect_limit(Some("memory"));
    assert!(ran.text("message").contains("out of memory: 64 MiB, and"), "{}", ran.document);
    assert_eq!(client.python("1 / 0").await.document.get("hint"), None);
    // An error contains the list of files too.
    let refused = d.run("cobol", "1").await.expect_error("unknown_language");
    assert_eq!(refused.document["files"], json!([]));
    d.stop().await;
}

#[tokio::test]
async fn text_is_returned_as_text_and_never_mistaken_for_base64() {
    let d = Daemon::start().await;
    let s = d.session("s");
    let run = |file: Value| s.sh("cat data.txt").with("files", json!([file]));
    run(json!({ "path": "data.txt", "text": "hello123\u{fc}\n" })).await.expect_stdout("hello123\u{fc}\n");
    run(json!({ "path": "data.txt", "content": "aGk=" })).await.expect_stdout("hi");
    for content in ["name,age\nanna,3\n", "aGk", "hello world!"] {
        let refused =
            run(json!({ "path": "data.txt", "content": content })).await.expect_error("invalid_argument");
        assert!(
            refused.text("message").contains("plain text goes into `files[0].text`"),
            "{}",
            refused.document
        );
    }
    for file in
        [json!({ "path": "data.txt" }), json!({ "path": "data.txt", "content": "aGk=", "text": "hi" })]
    {
        let refused = run(file).await.expect_error("invalid_argument");
        assert!(refused.text("message").contains("`files[0].text`"), "{}", refused.document);
    }
    let upload = |arguments: Value| d.tool("upload_file", arguments);
    upload(json!({ "session_id": "s", "filename": "data.txt", "text": "abcd", "overwrite": true }))
        .await
        .expect_success();
    s.sh("cat data.txt").await.expect_stdout("abcd");
    let refused =
        upload(json!({ "filename": "x", "content": "not base64" })).await.expect_error("invalid_argument");
    assert!(refused.text("message").contains("plain text goes into `text`"), "{}", refused.document);
    d.stop().await;
}

#[tokio::test]
async fn figures_that_the_program_did_not_save_are_saved_and_shown() {
    let d = Daemon::with().set("limits.data", "1MiB").set("limits.upload", "1MB").start().await;
    let s = d.session("s");
    let plot = "import matplotlib.pyplot as plt\nplt.plot([1, 2, 3])\nplt.show()\n";
    for number in 1..3 {
        let ran = s.python(plot).await.expect_success();
        assert_eq!(ran.artifacts(), [format!("/mnt/data/figure_{number}.png")]);
        assert_eq!((ran.content[1]["type"].as_str(), ran.stderr()), (Some("image"), ""), "{}", ran.document);
    }
    let open = s.python("import matplotlib.pyplot as plt\nplt.plot([1])\n").await.expect_success();
    assert_eq!(open.artifacts(), ["/mnt/data/figure_3.png"]);
    let saved =
        s.python("import matplotlib.pyplot as plt\nplt.plot([1])\nplt.savefig('mine.png')\nplt.show()").await;
    assert_eq!(saved.expect_success().artifacts(), ["/mnt/data/mine.png"]);
    // A full disk fails the figure, not the program.
    s.sh("head -c 2000000 /dev/zero > fill || true").await;
    let ran = s.python(&format!("{plot}print('done')")).await.expect_stdout("done\n");
    assert!(ran.stderr().contains("a figure could not be saved in /data: No space left"), "{}", ran.stderr());
    assert_eq!(ran.artifacts(), Vec::<String>::new());
    d.stop().await;
}

/// Any caller with the same token and the id can read an execution; naming another session than its own is an
/// error.
#[tokio::test]
async fn an_execution_is_read_by_its_id_from_any_session_of_its_token() {
    let d = Daemon::with().set("exec.runner", "sh").start().await;
    let (one, other) = (Client::of_a_model(&d).await, Client::of_a_model(&d).await);
    let ran = one.call("execute_code", json!({ "command": "echo mine" })).await;
    let id = ran.text("execution_id");
    let read = other.call("get_execution_output", json!({ "execution_id": id })).await;
    assert_eq!((read.said.as_str(), read.text("session_id")), ("mine\n", ran.text("session_id")));
    assert_eq!(other.call("list_executions", json!({})).await.document["executions"], json!([]));
    let named = json!({ "execution_id": id, "session_id": "another" });
    other.call("get_execution_output", named).await.expect_error("execution_not_found");
    d.stop().await;
}

#[tokio::test]
async fn a_client_that_receives_progress_waits_for_the_end() {
    let d = Daemon::with().set("exec.runner", "sh").start().await;
    let client = Client::of_a_model(&d).await;
    let arguments = json!({ "command": "echo begun; sleep 47; echo done" });
    let answer = client.ask("execute_code", arguments, json!({ "progressToken": 1 })).await.text();
    let told = events(&answer);
    assert!(told.iter().filter(|event| event["method"] == "notifications/progress").count() >= 4, "{answer}");
    let ran = Ran::of(told.into_iter().find(|event| event["id"] == 1).expect("an answer"));
    assert_eq!((ran.text("status"), ran.said.as_str()), ("completed", "begun\ndone\n"));
    d.stop().await;
}
