//! Endings: of the daemon, of a client during a run, of a daemon that is simply gone.

use std::time::{Duration, Instant};

use rustix::process::{Signal, kill_process};
use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::join;
use tokio::net::TcpStream;

use crate::support::{Daemon, PATIENCE, Ran, TOKEN, events};

/// The Accept header of a client with all of MCP.
const BOTH: &str = "application/json, text/event-stream";

#[tokio::test]
async fn a_run_that_ends_during_the_drain_is_answered() {
    let d = Daemon::with().set("shutdown.drain", "30s").start().await;
    let s = d.session("s");
    let initialize = json!({
        "jsonrpc": "2.0", "id": 0, "method": "initialize",
        "params": {
            "protocolVersion": "2025-11-25", "capabilities": {},
            "clientInfo": { "name": "test", "version": "1" },
        },
    });
    let answer = d.request("POST", "/mcp").header("accept", BOTH).json(&initialize).send().await.expect(200);
    let session = answer.header("mcp-session-id");
    let in_session = |method: &str| d.request(method, "/mcp").header("mcp-session-id", &session);
    let initialized = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    in_session("POST").header("accept", BOTH).json(&initialized).send().await.expect(202);
    let mark = d.log.mark();
    let (ran, streamed, listened, ()) = join!(
        async { s.python("import time; time.sleep(1); open('f', 'w').write('x'); print('done')").await },
        async {
            let call = json!({
                "jsonrpc": "2.0", "id": 1, "method": "tools/call",
                "params": { "name": "run_code", "arguments": {
                    "language": "python", "code": "import time; time.sleep(1); print('streamed')",
                } },
            });
            let answer = in_session("POST").header("accept", BOTH).json(&call).send().await.expect(200);
            Ran::of(events(&answer.text()).pop().expect("an event"))
        },
        async { in_session("GET").header("accept", "text/event-stream").send().await.expect(200) },
        async {
            let first = d.log.mark_behind(mark, "armed language=python").await;
            d.log.line_since(first, "armed language=python").await;
            d.terminate();
        }
    );
    assert_eq!(ran.expect_stdout("done\n").files(), ["f"]);
    streamed.expect_stdout("streamed\n");
    drop(listened); // it ended without an answer, and delayed nobody
    let begun = Instant::now();
    d.stop().await;
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn a_run_that_does_not_end_is_stopped_and_its_files_are_saved() {
    let d = Daemon::with().set("shutdown.drain", "500ms").start().await;
    let s = d.session("s");
    s.sh("echo before > a").await.expect_success();
    let view = d.view().await;
    let container = view.the_container("sh").await;
    let begun = Instant::now();
    let call = json!({
        "jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": { "name": "run_code", "arguments": {
            "language": "sh", "code": "echo part > b; touch /tmp/begun; sleep 60", "conversationId": "s",
        } },
    });
    let (answer, ()) = join!(d.request("POST", "/mcp").json(&call).try_send(), async {
        view.begun(&container).await;
        d.terminate();
    });
    // The client is told what became of it.
    let told = Ran::of(answer.expect("an answer").expect(200).json());
    assert!(told.text("message").contains("shutting down"), "{}", told.document);
    assert_eq!((told.text("limit"), told.exit_code()), ("cancelled", -1));
    assert_eq!(told.files(), ["a", "b"]);
    let store = d.store.clone();
    d.stop().await;
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
    let d = Daemon::with().store(&store).start().await;
    d.session("s").sh("cat a b").await.expect_stdout("before\npart\n");
    d.stop().await;
}

/// The drain is far longer than this test may take.
#[tokio::test]
async fn a_second_signal_ends_the_drain_at_once() {
    let d = Daemon::with().set("shutdown.drain", "10m").start().await;
    let s = d.session("s");
    s.sh("true").await.expect_success();
    let view = d.view().await;
    let container = view.the_container("sh").await;
    let (told, ()) = join!(s.sh("echo part > b; touch /tmp/begun; sleep 600"), async {
        view.begun(&container).await;
        d.terminate();
        d.log.line("shutting down").await;
        d.terminate();
    });
    assert!(told.text("message").contains("shutting down"), "{}", told.document);
    assert_eq!(told.text("limit"), "cancelled");
    assert_eq!(told.files(), ["b"]);
    d.stop().await;
}

#[tokio::test]
async fn other_signals_end_it_as_well() {
    for signal in [Signal::INT, Signal::HUP] {
        let d = Daemon::with().set("pool.idle", 1).start().await;
        d.log.line("armed").await; // while other containers still start
        kill_process(d.pid(), signal).expect("a living daemon");
        d.stop().await;
    }
}

#[tokio::test]
async fn a_client_that_disconnects_ends_its_run() {
    let d = Daemon::start().await;
    let s = d.session("s");
    s.sh("echo before > a").await.expect_success();
    let body = json!({
        "jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": { "name": "run_code", "arguments": {
            "language": "sh", "code": "echo part > b; sleep 60", "conversationId": "s",
        } },
    })
    .to_string();
    for accept in ["application/json", "application/json, text/event-stream"] {
        let mark = d.log.mark();
        let mut socket = TcpStream::connect(d.addr).await.expect("a connection");
        let head = format!(
            "POST /mcp HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {TOKEN}\r\nContent-Type: \
             application/json\r\nAccept: {accept}\r\nContent-Length: {}\r\n\r\n",
            d.addr,
            body.len()
        );
        socket.write_all((head + &body).as_bytes()).await.expect("written");
        d.log.line_since(mark, "request").await;
        // The next caller waits behind it, so the run has begun; then its client disconnects.
        let gone = Instant::now();
        drop(socket);
        let ran = s.sh("cat a; cat b; rm b").await;
        assert!(gone.elapsed() < Duration::from_secs(15), "{accept}: {:?}", gone.elapsed());
        assert!(ran.stdout().starts_with("before\n"), "{}", ran.document);
        if ran.stdout().contains("part") {
            d.log.line_since(mark, "limit=Cancelled").await;
        }
    }
    d.stop().await;
}

#[tokio::test]
async fn containers_without_a_daemon_end_themselves() {
    let d = Daemon::with().set("agent.orphan_after", "30s").start().await;
    d.session("s").sh("true").await.expect_success();
    let view = d.view().await;
    let container = view.the_container("sh").await;
    let mut events = view.follow().await;
    let begun = Instant::now();
    let store = d.crash().await;
    events.death_of(&container, PATIENCE).await;
    let took = begun.elapsed().as_secs_f64();
    assert!((29.0..40.0).contains(&took), "{took} s");
    let d = Daemon::with().store(&store).start().await;
    assert!(d.log.text().contains("removed a leftover"), "{}", d.log.text());
    d.stop().await;
}
