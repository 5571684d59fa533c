//! `paddock stdio`: alone, several on one store, with a daemon, and when a daemon dies.

use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::support::{Daemon, Ran, Request, Store, TOOLS, View, within};

const PATIENCE: std::time::Duration = std::time::Duration::from_secs(60);

/// A client and the server that it started.
struct Server {
    child: Child,
    to: Option<ChildStdin>,
    from: Lines<BufReader<ChildStdout>>,
    next: i64,
}

impl Server {
    /// Starts a server and initializes it, as every client does.
    async fn start(store: &Store) -> Server {
        Server::start_with(store, "").await
    }

    /// The same with further lines of configuration.
    async fn start_with(store: &Store, more: &str) -> Server {
        let mut server = Server::silent_with(store, more);
        let params = json!({
            "protocolVersion": "2025-11-25", "capabilities": {},
            "clientInfo": { "name": "test", "version": "1" },
        });
        let answer = server.ask("initialize", params).await;
        assert_eq!(answer["result"]["serverInfo"]["name"], "paddock", "{answer}");
        server.say(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" })).await;
        server
    }

    /// Starts a server without sending it anything.
    fn silent(store: &Store) -> Server {
        Server::silent_with(store, "")
    }

    fn silent_with(store: &Store, more: &str) -> Server {
        let mut command = Command::new(env!("CARGO_BIN_EXE_paddock"));
        command.args(["stdio", "--addr", "127.0.0.1:0"]).env_clear();
        command.env("SANDBOX_ROOT", store.path());
        if let Ok(host) = std::env::var("DOCKER_HOST") {
            command.env("DOCKER_HOST", host);
        }
        let file = store.path().join("stdio.toml");
        // The host may have images of coding agents, with which more tools are listed.
        let usual = "pool.idle = 0\nmcp.toolsets = ['code', 'exec']";
        std::fs::write(&file, format!("{usual}\n{more}\n")).expect("a configuration file");
        command.arg("--config").arg(&file);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().expect("the daemon's binary");
        let (to, from) = (child.stdin.take(), child.stdout.take().expect("it is piped"));
        Server { child, to, from: BufReader::new(from).lines(), next: 0 }
    }

    async fn say(&mut self, message: &Value) {
        self.write(&format!("{message}\n")).await;
    }

    async fn write(&mut self, text: &str) {
        let to = self.to.as_mut().expect("an open input");
        to.write_all(text.as_bytes()).await.expect("a server that reads");
    }

    /// Sends a request; returns its id.
    async fn send(&mut self, method: &str, params: Value) -> i64 {
        self.next += 1;
        let id = self.next;
        self.say(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })).await;
        id
    }

    /// The next message; every line must be one.
    async fn message(&mut self) -> Option<Value> {
        let line = within(PATIENCE, "a message", self.from.next_line()).await.expect("text");
        line.map(|line| serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e}: {line}")))
    }

    async fn answer(&mut self, id: i64) -> Value {
        loop {
            let message = self.message().await.expect("an answer");
            if message["id"] == id {
                return message;
            }
        }
    }

    async fn ask(&mut self, method: &str, params: Value) -> Value {
        let id = self.send(method, params).await;
        self.answer(id).await
    }

    async fn sh(&mut self, code: &str) -> Ran {
        let arguments = json!({ "language": "sh", "code": code });
        Ran::of(self.ask("tools/call", json!({ "name": "run_code", "arguments": arguments })).await)
    }

    /// Begins a command in the session `s`, and waits until it runs.
    async fn begin(&mut self, store: &Store, code: &str) -> i64 {
        let call = |code: &str| {
            json!({
                "name": "run_code", "arguments": { "language": "sh", "code": code, "conversationId": "s" },
            })
        };
        Ran::of(self.ask("tools/call", call("true")).await).expect_success();
        let id = self.send("tools/call", call(&format!("touch /tmp/begun; {code}"))).await;
        let view = View::of(&store.owner()).await;
        let container = view.the_container("sh").await;
        view.begun(&container).await;
        id
    }

    fn signal(&self, signal: Signal) {
        let pid = self.child.id().and_then(|id| Pid::from_raw(id.cast_signed())).expect("it runs");
        kill_process(pid, signal).expect("a living process");
    }

    /// Closes its input, as a client that leaves; returns all messages since, and standard error.
    async fn leave(mut self) -> (Vec<Value>, String) {
        drop(self.to.take());
        let mut said = Vec::new();
        while let Some(message) = self.message().await {
            said.push(message);
        }
        let mut log = String::new();
        self.child.stderr.take().expect("it is piped").read_to_string(&mut log).await.expect("text");
        let status = within(PATIENCE, "its end", self.child.wait()).await.expect("a status");
        assert_eq!(status.code(), Some(0), "{log}");
        (said, log)
    }
}

#[tokio::test]
async fn alone_it_becomes_the_daemon_and_leaves_nothing() {
    let store = Store::new();
    let mut server = Server::start(&store).await;
    let tools = server.ask("tools/list", json!({})).await;
    assert_eq!(tools["result"]["tools"].as_array().map(Vec::len), Some(TOOLS.len()), "{tools}");
    let own = server.sh("echo kept > f").await.expect_success().text("session_id").to_owned();
    assert_eq!(server.sh("cat f").await.expect_stdout("kept\n").text("session_id"), own);
    // Requests from before the end are answered.
    let last = server
        .send(
            "tools/call",
            json!({
                "name": "run_code", "arguments": { "language": "sh", "code": "sleep 1; echo last" },
            }),
        )
        .await;
    let (said, log) = server.leave().await;
    let answer = said.into_iter().find(|message| message["id"] == last).expect("an answer");
    Ran::of(answer).expect_stdout("last\n");
    assert!(log.contains("starting one in this process") && log.contains("stopped"), "{log}");
    View::of(&store.owner()).await.expect_empty().await;
    assert!(!store.path().join("daemon.sock").exists() && !store.path().join("http.sock").exists());
}

#[tokio::test]
async fn an_incomplete_handshake_is_accepted() {
    for params in [
        json!({ "protocolVersion": "2024-11-05",
            "clientInfo": { "name": "client-name", "version": "1.0.0" } }),
        json!({ "protocolVersion": "2024-11-05" }),
    ] {
        let store = Store::new();
        let mut server = Server::silent(&store);
        let answer = server.ask("initialize", params).await;
        assert_eq!(answer["result"]["protocolVersion"], "2024-11-05", "{answer}");
        server.say(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" })).await;
        let tools = server.ask("tools/list", json!({})).await;
        assert_eq!(tools["result"]["tools"].as_array().map(Vec::len), Some(TOOLS.len()), "{tools}");
        server.leave().await;
    }
    let store = Store::new();
    let mut server = Server::silent(&store);
    let answer = server.ask("initialize", json!({ "protocolVersion": 7 })).await;
    assert_eq!(answer["error"]["code"], -32602, "{answer}");
    server.leave().await;
}

#[tokio::test]
async fn what_comes_before_the_first_request_ends_no_connection() {
    let d = Daemon::start().await;
    let mut server = Server::silent(&d.store);
    for early in [
        json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }),
        json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 1 } }),
        json!({ "jsonrpc": "2.0", "method": "notifications/nobody/knows" }),
        json!({ "jsonrpc": "2.0", "id": 9, "result": {} }),
    ] {
        server.say(&early).await;
    }
    server.write("garbage\n").await;
    let refused = server.message().await.expect("an answer");
    assert_eq!((&refused["id"], &refused["error"]["code"]), (&Value::Null, &json!(-32700)), "{refused}");
    assert_eq!(server.ask("ping", json!({})).await["result"], json!({}));
    server.say(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" })).await;
    let params = json!({
        "protocolVersion": "2025-11-25", "capabilities": {},
        "clientInfo": { "name": "test", "version": "1" },
    });
    assert_eq!(server.ask("initialize", params).await["result"]["serverInfo"]["name"], "paddock");
    server.say(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" })).await;
    // A notification that follows the session's first request is not dropped: this one ends the call.
    let id = server.begin(&d.store, "touch /data/begun; sleep 60").await;
    server
        .say(&json!({
            "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": id }
        }))
        .await;
    server.sh("echo next").await.expect_stdout("next\n");
    assert_eq!(d.log.count("a local client connected"), 1, "it is one connection: {}", d.log.text());
    d.stop().await;
}

#[tokio::test]
async fn any_number_share_the_running_daemon() {
    let d = Daemon::start().await;
    for socket in ["daemon.sock", "http.sock"] {
        let there = std::fs::metadata(d.store.path().join(socket)).expect("a socket");
        let mode = std::os::unix::fs::PermissionsExt::mode(&there.permissions());
        assert_eq!(mode & 0o777, 0o600, "{socket}");
    }
    let (mut a, mut b) = tokio::join!(Server::start(&d.store), Server::start(&d.store));
    let (ran, other) = tokio::join!(a.sh("echo a > f; cat f"), b.sh("ls"));
    let own = ran.expect_stdout("a\n").text("session_id").to_owned();
    assert_ne!(other.expect_stdout("").text("session_id"), own);
    // The same files as over HTTP.
    d.session(&own).sh("cat f").await.expect_stdout("a\n");
    for server in [a, b] {
        let (_, log) = server.leave().await;
        assert!(!log.contains("starting one in this process"), "{log}");
    }
    d.stop().await;
}

#[tokio::test]
async fn the_death_of_a_daemon_between_two_calls_is_not_noticed() {
    let d = Daemon::start().await;
    let mut server = Server::start(&d.store).await;
    let own = server.sh("echo kept > f").await.expect_success().text("session_id").to_owned();
    let store = d.crash().await;
    // There is no other daemon: it becomes one.
    assert_eq!(server.sh("cat f").await.expect_stdout("kept\n").text("session_id"), own);
    // A second server is its client, and continues when the first leaves.
    let mut second = Server::start(&store).await;
    second.sh("echo second > g").await.expect_success();
    let (_, log) = server.leave().await;
    assert!(log.contains("starting one in this process"), "{log}");
    second.sh("cat g").await.expect_stdout("second\n");
    let (_, log) = second.leave().await;
    assert!(log.contains("the daemon is gone"), "{log}");
    View::of(&store.owner()).await.expect_empty().await;
}

#[tokio::test]
async fn a_daemon_that_is_told_to_stop_answers_first() {
    let d = Daemon::start().await;
    let mut server = Server::start(&d.store).await;
    server.sh("true").await.expect_success();
    let view = d.view().await;
    let container = view.the_container("sh").await;
    let arguments =
        json!({ "language": "sh", "code": "touch /tmp/begun; sleep 1; echo whole > f; echo done" });
    let id = server.send("tools/call", json!({ "name": "run_code", "arguments": arguments })).await;
    view.begun(&container).await;
    let store = d.store.clone();
    let (answer, _) = tokio::join!(server.answer(id), d.stop());
    Ran::of(answer).expect_stdout("done\n");
    server.sh("cat f").await.expect_stdout("whole\n");
    server.leave().await;
    View::of(&store.owner()).await.expect_empty().await;
}

#[tokio::test]
async fn malformed_requests_are_refused_as_over_http_and_not_waited_for() {
    let store = Store::new();
    let mut server = Server::start(&store).await;
    for (message, id, code) in [
        (r#"{"jsonrpc":"2.0","id":1.5,"method":"ping"}"#, json!(null), -32600),
        (r#"{"jsonrpc":"2.0","id":9223372036854775808,"method":"ping"}"#, json!(null), -32600),
        (r#"{"jsonrpc":"2.0","id":90,"method":"ping","result":{}}"#, json!(null), -32600),
        (r#"{"id":91,"method":"ping"}"#, json!(null), -32600),
        (r#"[{"jsonrpc":"2.0","id":92,"method":"ping"}]"#, json!(null), -32600),
        (r#"{"jsonrpc":"#, json!(null), -32700),
        (r#"{"jsonrpc":"2.0","id":93,"method":"tools/call"}"#, json!(93), -32602),
        (r#"{"jsonrpc":"2.0","id":94,"method":"tools/list","params":[]}"#, json!(94), -32602),
    ] {
        server.write(&format!("{message}\n")).await;
        let answer = server.message().await.expect("an answer");
        assert_eq!((&answer["id"], &answer["error"]["code"]), (&id, &json!(code)), "{message}: {answer}");
    }
    assert_eq!(server.ask("ping", json!({})).await["result"], json!({}));
    // An id that is still waiting for its answer, and a last line without a newline.
    let arguments = json!({ "language": "sh", "code": "sleep 3; echo done" });
    let id = server.send("tools/call", json!({ "name": "run_code", "arguments": arguments })).await;
    server.say(&json!({ "jsonrpc": "2.0", "id": id, "method": "ping" })).await;
    let refused = server.message().await.expect("an answer");
    assert!(
        refused["error"]["message"].as_str().is_some_and(|m| m.contains("not answered yet")),
        "{refused}"
    );
    server.write(r#"{"jsonrpc":"2.0","id":"last","method":"ping"}"#).await;
    let (said, _) = server.leave().await;
    assert!(said.iter().any(|answer| answer["id"] == "last" && answer["result"] == json!({})), "{said:?}");
    let ran = said.into_iter().find(|answer| answer["id"] == id).expect("its answer");
    Ran::of(ran).expect_stdout("done\n");
}

#[tokio::test]
async fn a_store_may_have_a_path_of_any_length() {
    let store = Store::deep();
    let (mut a, mut b) = tokio::join!(Server::start(&store), Server::start(&store));
    a.sh("echo a").await.expect_stdout("a\n");
    b.sh("echo b").await.expect_stdout("b\n");
    a.leave().await;
    b.leave().await;
    View::of(&store.owner()).await.expect_empty().await;
}

#[tokio::test]
async fn a_call_during_which_the_daemon_died_is_answered_and_not_repeated() {
    let d = Daemon::start().await;
    let mut server = Server::start(&d.store).await;
    server.sh("true").await.expect_success();
    let view = d.view().await;
    let container = view.the_container("sh").await;
    let code = "echo x >> f; touch /tmp/begun; until [ -e /tmp/go ]; do sleep 0.05; done";
    let arguments = json!({ "language": "sh", "code": code });
    let id = server.send("tools/call", json!({ "name": "run_code", "arguments": arguments })).await;
    view.begun(&container).await;
    let store = d.crash().await;
    assert_eq!(view.exec(&container, &["touch", "/tmp/go"]).await, "");
    let answer = server.answer(id).await;
    assert_eq!(answer["error"]["code"], -32603, "{answer}");
    // It continued, and its end is reported, once.
    let next = server.sh("cat f").await.expect_stdout("x\n");
    assert_eq!(next.document["earlier_runs"][0]["success"], true, "{}", next.document);
    // A signal ends it as well as the end of its input.
    let pid = Pid::from_raw(i32::try_from(server.child.id().expect("alive")).expect("a pid")).expect("one");
    kill_process(pid, Signal::TERM).expect("alive");
    let status = within(PATIENCE, "its end", server.child.wait()).await.expect("a status");
    assert_eq!(status.code(), Some(0));
    View::of(&store.owner()).await.expect_empty().await;
}

#[tokio::test]
async fn a_call_that_continues_after_its_client_left_is_ended_after_the_drain() {
    let store = Store::new();
    let drain = "shutdown.drain = '500ms'";
    let mut server = Server::start_with(&store, drain).await;
    let id = server.begin(&store, "echo part > f; sleep 600").await;
    let (said, _) = server.leave().await;
    let cut = Ran::of(said.into_iter().find(|message| message["id"] == id).expect("an answer"));
    assert!(cut.text("message").contains("shutting down"), "{}", cut.document);
    assert_eq!((cut.text("limit"), cut.exit_code()), ("cancelled", -1));
    assert_eq!(cut.files(), ["f"]);
    View::of(&store.owner()).await.expect_empty().await;

    // With a daemon that stays: then that daemon ends the call.
    let d = Daemon::with().store(&store).start().await;
    let mut server = Server::start_with(&store, drain).await;
    let id = server.begin(&store, "sleep 600").await;
    let (said, _) = server.leave().await;
    let told = said.into_iter().find(|message| message["id"] == id).expect("an answer");
    assert!(told["error"]["message"].as_str().is_some_and(|why| why.contains("shutdown.drain")), "{told}");
    d.session("s").sh("cat f").await.expect_stdout("part\n");
    d.stop().await;
}

#[tokio::test]
async fn a_signal_lets_a_call_end_and_a_second_one_does_not() {
    let store = Store::new();
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let mut server = Server::start_with(&store, "shutdown.drain = '50s'").await;
        let id = server.begin(&store, "sleep 1; echo done").await;
        server.signal(signal);
        Ran::of(server.answer(id).await).expect_stdout("done\n");
        server.leave().await;
    }
    // The drain is far longer than this test may take.
    let mut server = Server::start_with(&store, "shutdown.drain = '10m'").await;
    let id = server.begin(&store, "sleep 600").await;
    server.signal(Signal::TERM);
    server.signal(Signal::INT);
    let cut = Ran::of(server.answer(id).await);
    assert!(cut.text("message").contains("shutting down"), "{}", cut.document);
    server.leave().await;
    View::of(&store.owner()).await.expect_empty().await;
}

/// Whichever process makes them: conversations keep them.
#[tokio::test]
async fn the_links_of_one_daemon_and_the_next_are_the_same() {
    let store = Store::new();
    let call = json!({
        "name": "run_code", "arguments": { "language": "sh", "code": "echo kept > f", "conversationId": "s" },
    });
    let mut links = Vec::new();
    for _ in 0..2 {
        let mut server = Server::start(&store).await;
        let ran = Ran::of(server.ask("tools/call", call.clone()).await).expect_success();
        links.push(ran.link("f").to_owned());
        // A link of the first works at the second.
        let (addr, path) =
            links[0].strip_prefix("http://").and_then(|rest| rest.split_once('/')).expect("a link");
        let got = Request::new(addr.parse().expect("an address"), "GET", &format!("/{path}")).send().await;
        assert_eq!(got.expect(200).text(), "kept\n");
        server.leave().await;
    }
    assert_eq!(links[0], links[1]);
}
