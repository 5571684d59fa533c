//! MCP sessions: they survive the daemon, their answers survive a lost connection, and their end ends their
//! runs.

use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::support::{Daemon, Opened, Ran, Request, events};

const BOTH: &str = "application/json, text/event-stream";

/// A client of one MCP session.
struct Client {
    id: String,
}

impl Client {
    async fn begin(d: &Daemon) -> Client {
        let initialize = json!({
            "jsonrpc": "2.0", "id": 0, "method": "initialize",
            "params": {
                "protocolVersion": "2025-11-25", "capabilities": {},
                "clientInfo": { "name": "test", "version": "1" },
            },
        });
        let answer = d.request("POST", "/mcp").set("accept", BOTH).json(&initialize).send().await.expect(200);
        let client = Client { id: answer.header("mcp-session-id") };
        let initialized = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        client.request(d, "POST").json(&initialized).send().await.expect(202);
        client
    }

    fn request(&self, d: &Daemon, method: &str) -> Request {
        d.request(method, "/mcp")
            .set("accept", BOTH)
            .header("mcp-session-id", &self.id)
            .header("mcp-protocol-version", "2025-11-25")
    }

    fn call(&self, d: &Daemon, id: i64, code: &str) -> Request {
        let arguments = json!({ "language": "sh", "code": code });
        let params = json!({
            "name": "run_code", "arguments": arguments, "_meta": { "progressToken": format!("t{id}") },
        });
        self.request(d, "POST").json(&json!({
            "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params,
        }))
    }

    async fn run(&self, d: &Daemon, id: i64, code: &str) -> Ran {
        let answer = self.call(d, id, code).send().await.expect(200);
        answer_of(&answer.text(), id)
    }
}

fn answer_of(text: &str, id: i64) -> Ran {
    let answer = events(text).into_iter().find(|event| event["id"] == id);
    Ran::of(answer.unwrap_or_else(|| panic!("no answer to {id} in {text}")))
}

/// The id of the last event.
fn last_event(text: &str) -> String {
    let mut ids = text.lines().filter_map(|line| line.strip_prefix("id:"));
    ids.next_back().unwrap_or_else(|| panic!("no event with an id in {text}")).trim().to_owned()
}

/// Loses the connection after the answer has begun.
async fn lose(mut opened: Opened) -> String {
    assert_eq!(opened.status, 200);
    last_event(
        &opened.read_until("the first event", |text| text.contains("id:") && text.ends_with("\n\n")).await,
    )
}

#[tokio::test]
async fn a_session_and_its_files_survive_the_daemon() {
    let d = Daemon::start().await;
    let client = Client::begin(&d).await;
    let first = client.run(&d, 1, "echo kept > f").await.expect_success();
    let own = first.text("session_id").to_owned();
    assert!(own.starts_with("sess_") && !own.contains(&client.id), "{own}");
    let other = Client::begin(&d).await;
    let others = other.run(&d, 1, "ls").await.expect_success();
    assert_ne!(others.text("session_id"), own);
    let store = d.crash().await;
    let d = Daemon::with().store(&store).start().await;
    // Several at once, as from clients that reconnect.
    let (a, b) = tokio::join!(client.run(&d, 2, "cat f"), client.run(&d, 3, "cat f"));
    for ran in [a, b] {
        let ran = ran.expect_stdout("kept\n");
        assert_eq!(ran.text("session_id"), own);
    }
    d.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_request_of_a_client_that_reconnects_is_answered() {
    const CLIENTS: usize = 50;
    let d = Daemon::start().await;
    let clients = join_all((0..CLIENTS).map(|_| Client::begin(&d))).await;
    let d = Daemon::with().store(&d.crash().await).start().await;
    let list = |client: &Client, id: usize| {
        let list = json!({ "jsonrpc": "2.0", "id": id, "method": "tools/list" });
        tokio::spawn(client.request(&d, "POST").json(&list).send())
    };
    let asked: Vec<_> = clients.iter().flat_map(|client| (1..9).map(|id| (id, list(client, id)))).collect();
    for (id, answer) in asked {
        let text = answer.await.expect("no panic").expect(200).text();
        assert!(events(&text).iter().any(|event| event["id"] == id && event["result"].is_object()), "{text}");
    }
    d.stop().await;
}

#[tokio::test]
async fn a_session_belongs_to_its_token_and_is_gone_after_its_end() {
    let d = Daemon::start().await;
    let client = Client::begin(&d).await;
    let run = client.run(&d, 1, "echo kept > f").await.expect_success();
    let own = run.text("session_id").to_owned();
    // Its runs end with it.
    let mark = d.log.mark();
    let (answer, ()) = tokio::join!(client.call(&d, 2, "touch /tmp/begun; sleep 60").send(), async {
        let view = d.view().await;
        view.begun(&view.the_container("sh").await).await;
        client.request(&d, "DELETE").send().await.expect(204);
        d.log.line_since(mark, "session closed").await;
    });
    assert!(answer.status == 200, "{}", answer.text());
    client.call(&d, 3, "true").send().await.expect(404);
    client.request(&d, "DELETE").send().await.expect(404);
    let others = Client::begin(&d).await;
    others.request(&d, "DELETE").header("mcp-session-id", &others.id).send().await.expect(400);
    let store = d.crash().await;
    let d = Daemon::with().store(&store).start().await;
    client.call(&d, 4, "true").send().await.expect(404);
    // A caller that knows the name finds its files.
    d.session(&own).sh("cat f").await.expect_stdout("kept\n");
    d.stop().await;
}

#[tokio::test]
async fn a_client_that_reconnects_gets_its_answer() {
    let d = Daemon::start().await;
    let client = Client::begin(&d).await;
    client.run(&d, 1, "true").await.expect_success();
    let code = "until [ -e go ]; do sleep 0.02; done; echo went";
    let seen = lose(client.call(&d, 2, code).open().await).await;
    // While the call runs, the rest of its events is sent on.
    let mut again = client.request(&d, "GET").header("last-event-id", &seen).open().await;
    let view = d.view().await;
    view.exec(&view.the_container("sh").await, &["touch", "/data/go"]).await;
    let text = again.read_until("the answer", |text| text.contains("\"id\":2")).await;
    answer_of(&text, 2).expect_stdout("went\n");
    // After its end too, any number of times, and nothing of another stream.
    let late = client.request(&d, "GET").header("last-event-id", &seen).send().await.expect(200);
    answer_of(&late.text(), 2).expect_stdout("went\n");
    // For an event that is not kept, or is not of this session, there is an error, and not an answer that
    // ended.
    let beyond = seen.replace("-0", "-99");
    for unknown in ["0123456789abcdef-0", "", "x", &beyond] {
        let answer =
            client.request(&d, "GET").header("last-event-id", unknown).send().await.expect(400).json();
        assert_eq!(answer["error"]["code"], -32600, "{unknown}: {answer}");
    }
    let other = Client::begin(&d).await;
    other.request(&d, "GET").header("last-event-id", &seen).send().await.expect(400);
    d.stop().await;
}

#[tokio::test]
async fn an_id_belongs_to_one_call_until_its_answer() {
    let d = Daemon::start().await;
    let client = Client::begin(&d).await;
    client.run(&d, 1, "true").await.expect_success();
    let first = client.call(&d, 2, "until [ -e go ]; do sleep 0.02; done; echo first").open().await;
    let view = d.view().await;
    view.exec(&view.the_container("sh").await, &["true"]).await;
    let refused = client.call(&d, 2, "echo second").send().await.expect(400).json();
    assert!(
        refused["error"]["message"].as_str().is_some_and(|m| m.contains("not answered yet")),
        "{refused}"
    );
    view.exec(&view.the_container("sh").await, &["touch", "/data/go"]).await;
    let mut first = first;
    let text = first.read_until("the answer", |text| text.contains("\"id\":2")).await;
    answer_of(&text, 2).expect_stdout("first\n");
    first.read_until("its end", |_| false).await;
    client.run(&d, 2, "echo again").await.expect_stdout("again\n");
    d.stop().await;
}

#[tokio::test]
async fn a_cancelled_call_has_no_answer_to_wait_for() {
    let d = Daemon::start().await;
    let client = Client::begin(&d).await;
    client.run(&d, 1, "true").await.expect_success();
    let mut opened = client.call(&d, 2, "sleep 60").open().await;
    let seen = last_event(
        &opened.read_until("the first event", |text| text.contains("id:") && text.ends_with("\n\n")).await,
    );
    let params = json!({ "requestId": 2, "reason": "no longer wanted" });
    let cancel = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": params });
    client.request(&d, "POST").json(&cancel).send().await.expect(202);
    opened.read_until("the end of the stream", |_| false).await;
    // A client that reconnects is told that nothing more comes, and does not wait.
    let again = client.request(&d, "GET").header("last-event-id", &seen).send().await.expect(200);
    assert!(events(&again.text()).iter().all(|event| event["id"] != 2), "{}", again.text());
    client.run(&d, 3, "echo on").await.expect_stdout("on\n");
    d.stop().await;
}

#[tokio::test]
async fn a_call_whose_client_never_reconnects_is_ended() {
    let d = Daemon::with().set("mcp.resume_window", "1s").start().await;
    let client = Client::begin(&d).await;
    client.run(&d, 1, "true").await.expect_success();
    let mark = d.log.mark();
    let view = d.view().await;
    let container = view.the_container("sh").await;
    let opened = client.call(&d, 2, "echo made > f; touch /tmp/begun; sleep 60").open().await;
    view.begun(&container).await;
    lose(opened).await;
    // The line of the first run may still be on its way.
    let line = d.log.line_since(mark, "limit=Cancelled").await;
    assert!(line.contains(" ended "), "{line}");
    client.run(&d, 3, "cat f").await.expect_stdout("made\n");
    d.stop().await;
}

#[tokio::test]
async fn a_caller_with_a_progress_token_is_told_that_a_long_call_continues() {
    let d = Daemon::start().await;
    let client = Client::begin(&d).await;
    let arguments = json!({ "language": "sh", "code": "sleep 11; echo done" });
    let call = json!({
        "jsonrpc": "2.0", "id": 7, "method": "tools/call",
        "params": { "name": "run_code", "arguments": arguments, "_meta": { "progressToken": "t7" } },
    });
    let bare = d.request("POST", "/mcp").set("accept", "application/json").json(&call);
    let (in_session, bare) = tokio::join!(client.call(&d, 7, "sleep 11; echo done").send(), bare.send());
    let told = events(&in_session.expect(200).text());
    let words: Vec<&Value> =
        told.iter().filter(|event| event["method"] == "notifications/progress").collect();
    assert!(words[0]["params"].get("_meta").is_none(), "{told:?}");
    assert_eq!(words[0]["params"]["progressToken"], "t7");
    assert!(words[0]["params"]["progress"].as_f64().is_some_and(|seconds| seconds >= 10.0), "{told:?}");
    // A client that accepts only JSON gets only the answer.
    let bare = bare.expect(200);
    assert_eq!(bare.header("content-type"), "application/json");
    Ran::of(bare.json()).expect_stdout("done\n");
    d.stop().await;
}

#[tokio::test]
async fn the_files_of_a_run_are_linked_for_clients_that_know_links() {
    let d = Daemon::start().await;
    let client = Client::begin(&d).await;
    let answer = client.call(&d, 1, "echo 1 > a.csv; echo 2 > b.txt").send().await.expect(200).text();
    let answer = events(&answer).into_iter().find(|event| event["id"] == 1).expect("an answer");
    let content = answer["result"]["content"].as_array().expect("content").clone();
    let text = content[0]["text"].as_str().expect("text");
    assert!(text.contains("/mnt/data/a.csv") && text.contains("/mnt/data/b.txt"), "{text}");
    let links: Vec<_> = content.iter().filter(|block| block["type"] == "resource_link").collect();
    assert_eq!(links.len(), 2, "{content:?}");
    assert_eq!((&links[0]["name"], &links[0]["mimeType"]), (&json!("a.csv"), &json!("text/csv")));
    assert_eq!(d.fetch(links[0]["uri"].as_str().expect("a link")).await.expect(200).body, "1\n");
    // A call without a revision is answered as for an old one.
    let bare = d.session("s").sh("echo 1 > a").answer().await;
    assert_eq!(bare["result"]["content"].as_array().map(Vec::len), Some(1), "{bare}");
    d.stop().await;
}

#[tokio::test]
async fn the_url_selects_tool_sets() {
    let d = Daemon::start().await;
    let list = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" });
    let asked = |query: &str| d.request("POST", &format!("/mcp?{query}")).json(&list).send();
    let names = |answer: &Value| {
        let tools = answer["result"]["tools"].as_array().unwrap_or_else(|| panic!("no tools in {answer}"));
        tools.iter().map(|tool| tool["name"].as_str().expect("a name").to_owned()).collect::<Vec<_>>()
    };
    let code = names(&asked("toolsets=code").await.expect(200).json());
    let exec = names(&asked("toolsets=exec").await.expect(200).json());
    assert_eq!((code.len(), exec.len()), (7, 7), "{code:?} {exec:?}");
    assert_eq!(
        names(&asked("toolsets=code,exec").await.expect(200).json()),
        [code.clone(), exec.clone()].concat()
    );
    // A tool outside the selection cannot be called either.
    let call =
        json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": { "name": "list_runners" } });
    let called = d.request("POST", "/mcp?toolsets=exec").json(&call).send().await.json();
    assert_eq!(called["error"]["code"], -32602, "{called}");
    let refused = asked("toolsets=code%2Cmagic").await.expect(400).json();
    let message = refused["message"].as_str().or_else(|| refused["error"]["message"].as_str());
    assert!(message.is_some_and(|text| text.contains("\"magic\"") && text.contains("code")), "{refused}");
    d.stop().await;

    // The operator's selection limits the client's.
    let d = Daemon::with().set("mcp.toolsets", vec![toml::Value::from("exec")]).start().await;
    let listed = d.request("POST", "/mcp").json(&list).send().await.expect(200).json();
    assert_eq!(names(&listed), exec);
    d.request("POST", "/mcp?toolsets=code").json(&list).send().await.expect(400);
    assert_eq!(d.rpc("tools/call", json!({ "name": "list_runners" })).await["error"]["code"], -32602);
    d.stop().await;
}

#[tokio::test]
async fn a_watcher_is_told_what_becomes_of_its_runs() {
    let d = Daemon::start().await;
    d.request("GET", "/mcp/events").without("authorization").send().await.expect(401);
    let mut watching = d.request("GET", "/mcp/events").open().await;
    assert_eq!(watching.headers["content-type"], "text/event-stream");
    watching.read_until("its first word", |text| text.ends_with("\n\n")).await;
    let ran = d.session("s").sh("exit 3").await;
    let text = watching.read_until("the end", |text| text.contains("exit_code")).await;
    let told = events(&text);
    assert_eq!(told.len(), 2, "{text}");
    for note in &told {
        assert_eq!((&note["jsonrpc"], &note["method"]), (&json!("2.0"), &json!("notifications/run")));
        assert_eq!(
            (&note["params"]["run_id"], &note["params"]["session_id"]),
            (&ran.document["run_id"], &json!("s"))
        );
    }
    assert_eq!(told[0]["params"]["status"], "running");
    assert_eq!(
        (&told[1]["params"]["status"], &told[1]["params"]["exit_code"]),
        (&json!("failed"), &json!(3))
    );
    d.stop().await;
}

#[tokio::test]
async fn a_watcher_reads_what_its_run_writes_while_it_runs_and_nobody_else_does() {
    let (ann, bob) = ("the-token-of-ann-of-these-tests", "the-token-of-bob-of-these-tests");
    let token = |name: &str, token: &str| {
        let mut table = toml::Table::new();
        table.insert("name".into(), name.into());
        table.insert("sha256".into(), hex_sha256(token).into());
        toml::Value::Table(table)
    };
    let tokens = toml::Value::Array(vec![token("ann", ann), token("bob", bob)]);
    let d = Daemon::with().set("auth.tokens", tokens).start().await;
    let watch = async |token: &str| {
        let mut watching = d.request("GET", "/mcp/events").bearer(token).open().await;
        watching.read_until("its first word", |text| text.ends_with("\n\n")).await;
        watching
    };
    let (mut ann_reads, mut bob_reads) = (watch(ann).await, watch(bob).await);
    // It ends only after its first line was read by the watcher, who writes the file that it waits for.
    let code = "echo before; echo oops >&2; while [ ! -e /tmp/go ]; do sleep 0.05; done; echo after";
    let running = d.session("s").sh(code).bearer(ann);
    let reading = async {
        let text = ann_reads.read_until("the first lines", |text| text.contains("oops")).await;
        let container = d.view().await.the_container("sh").await;
        d.view().await.exec(&container, &["touch", "/tmp/go"]).await;
        text + &ann_reads.read_until("the end", |text| text.contains("exit_code")).await
    };
    let (ran, text) = tokio::join!(running, reading);
    ran.expect_success();
    let told = events(&text);
    let written: Vec<(&str, &str)> = told
        .iter()
        .flat_map(|note| note["params"]["events"].as_array().into_iter().flatten())
        .map(|event| (event["type"].as_str().expect("a type"), event["data"].as_str().expect("data")))
        .collect();
    assert_eq!(written, [("stdout", "before\n"), ("stderr", "oops\n"), ("stdout", "after\n")], "{text}");
    let last = &told[told.len() - 1]["params"];
    assert_eq!((&last["status"], &last["exit_code"]), (&json!("completed"), &json!(0)), "{text}");

    d.session("s").sh("echo of bob").bearer(bob).await.expect_success();
    let of_bob = bob_reads.read_until("the end", |text| text.contains("exit_code")).await;
    assert!(of_bob.contains("of bob") && !of_bob.contains("before"), "{of_bob}");
    d.stop().await;
}

#[tokio::test]
async fn a_watcher_of_a_flood_reads_some_of_it_and_its_end_and_holds_nothing_up() {
    let d = Daemon::start().await;
    let mut watching = d.request("GET", "/mcp/events").open().await;
    watching.read_until("its first word", |text| text.ends_with("\n\n")).await;
    let code =
        "import sys\nfor n in range(120): sys.stdout.write('x' * 99_999 + '\\n')\nprint('the last line')";
    let running = d.session("s").python(code);
    let reading = watching.read_until("the end", |text| text.contains("exit_code"));
    let (ran, text) = tokio::join!(running, reading);
    assert!(ran.expect_success().stdout().ends_with("the last line\n"));
    let told = events(&text);
    let written: Vec<_> =
        told.iter().flat_map(|note| note["params"]["events"].as_array().into_iter().flatten()).collect();
    let kinds: Vec<_> = written.iter().filter_map(|event| event["type"].as_str()).collect();
    assert!(kinds.contains(&"missed"), "{kinds:?}");
    let last = written.iter().rfind(|event| event["type"] == "stdout").expect("some of it");
    assert!(last["data"].as_str().expect("data").ends_with("the last line\n"), "{kinds:?}");
    assert!(text.len() < 6_000_000, "{} of 12,000,000 bytes", text.len());
    d.stop().await;
}

pub(crate) fn hex_sha256(text: &str) -> String {
    use sha2::Digest;
    sha2::Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect()
}
