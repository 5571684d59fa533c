//! Many machines, as clients see them: two or three daemons on one engine, each with a store of its own, and
//! a table of owners in a folder. A call at the wrong node comes out as at the right one, and nobody but a
//! node is believed to be one.
//!
//! Executions, MCP sessions and notifications at any node are in `cluster_any`, limits in `cluster_limits`.
//! Each node listens for its peers on a loopback address of its own, so no test takes another's port.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::ports::{listening, raw_protocol, serve};
use crate::support::{Daemon, PATIENCE, Ran, Request, Setup, TOKEN, program, within};

/// The key of the clusters of these tests.
const KEY: &str = "0123456789abcdef0123456789abcdef";
/// A node tells this of each peer that begins to answer.
pub(crate) const ANSWERS: &str = "a node of the cluster answers";

/// What the nodes of one test have in common.
pub(crate) struct Common {
    owners: TempDir,
    /// The loopback addresses of `a`, `b` and `c`.
    addresses: [String; 3],
}

impl Common {
    pub(crate) fn new() -> Common {
        let [.., one, two, three] = uuid::Uuid::new_v4().into_bytes();
        let address = |node: u8| format!("127.{}.{}.{}:7946", one | 1, two, (three & 0xfc) | node);
        Common { owners: tempfile::tempdir().expect("a folder"), addresses: [1, 2, 3].map(address) }
    }

    pub(crate) fn node(&self, name: &str) -> Setup {
        self.node_of(Daemon::with(), name)
    }

    /// The node of this name, which has these settings beside those of its cluster.
    pub(crate) fn node_of(&self, setup: Setup, name: &str) -> Setup {
        let at = usize::from(name.as_bytes()[0] - b'a');
        let peers: Vec<_> = self.addresses.iter().map(String::as_str).collect();
        setup
            .set("cluster.peers", peers)
            .set("cluster.key", KEY)
            .set("cluster.name", name)
            .set("cluster.addr", self.addresses[at].as_str())
            .set("ports.addr", "127.0.0.1:0")
            .env("PADDOCK_TEST_OWNERS", self.owners.path().to_str().expect("text"))
    }

    /// Notes whose a session of the tests' tenant is.
    pub(crate) fn give(&self, session: &str, node: &str) {
        self.give_of("default", session, node);
    }

    /// Notes whose a session of this tenant is.
    pub(crate) fn give_of(&self, tenant: &str, session: &str, node: &str) {
        let number = paddock::cluster::placement::session_number(tenant, session);
        std::fs::write(self.owners.path().join(format!("{number:016x}")), node).expect("a row");
    }

    /// Notes that a node has ended: it will acknowledge nothing more.
    pub(crate) fn end(&self, node: &str) {
        std::fs::write(self.owners.path().join(format!("{node}.ended")), "").expect("a note");
    }

    /// The owners of all sessions.
    pub(crate) fn owners(&self) -> Vec<String> {
        let rows = std::fs::read_dir(self.owners.path()).expect("the table").map(|row| row.expect("a row"));
        let mut owners: Vec<_> =
            rows.map(|row| std::fs::read_to_string(row.path()).expect("an owner")).collect();
        owners.sort();
        owners
    }
}

/// Two nodes that know each other.
pub(crate) async fn two() -> (Common, Daemon, Daemon) {
    two_of(Daemon::with).await
}

/// Two nodes that know each other, with these settings.
pub(crate) async fn two_of(setup: impl Fn() -> Setup) -> (Common, Daemon, Daemon) {
    let common = Common::new();
    let (a, b) = (common.node_of(setup(), "a").start(), common.node_of(setup(), "b").start());
    let (a, b) = tokio::join!(a, b);
    a.log.line(ANSWERS).await;
    b.log.line(ANSWERS).await;
    (common, a, b)
}

/// The path of a link of another node: the public URL of all of them is the same in earnest.
fn path_of(link: &str) -> &str {
    let (_, rest) = link.split_once("://").expect("a URL");
    &rest[rest.find('/').expect("a path")..]
}

/// A value of `/metrics`.
pub(crate) async fn metric(d: &Daemon, line: &str) -> f64 {
    let text = d.request("GET", "/metrics").send().await.expect(200).text();
    let found = text.lines().find_map(|at| at.strip_prefix(line)?.strip_prefix(' ')?.parse().ok());
    found.unwrap_or_else(|| panic!("{line} is not in {text}"))
}

#[tokio::test]
async fn a_call_at_the_wrong_node_comes_out_alike() {
    let (common, a, b) = two().await;
    common.give("s", "b");
    let ran = a.session("s").python("open('/data/x.txt', 'w').write('hello'); print(6 * 7)").await;
    let ran = ran.expect_stdout("42\n");
    assert_eq!(ran.artifacts(), ["/mnt/data/x.txt"]);
    let own = b.session("s").python("open('/data/x.txt', 'w').write('hello'); print(6 * 7)").await;
    let keys = |ran: &Ran| ran.document.as_object().expect("a document").keys().cloned().collect::<Vec<_>>();
    assert_eq!(keys(&ran), keys(&own.expect_stdout("42\n")));
    assert!(metric(&a, "paddock_cluster_passed_total{outcome=\"answered\"}").await >= 1.0);
    assert!(metric(&b, "paddock_cluster_received_total{outcome=\"served\"}").await >= 1.0);

    // A link opens at any node, and nowhere with another signature.
    let link = ran.link("x.txt");
    let at_a = Request::new(a.addr, "GET", path_of(&link)).send().await.expect(200);
    assert_eq!(at_a.text(), "hello");
    assert!(at_a.header("content-type").starts_with("text/plain"));
    let forged = path_of(&link).replace("sig=", "sig=0");
    Request::new(a.addr, "GET", &forged).send().await.expect(403);
    let part = Request::new(a.addr, "GET", path_of(&link)).header("range", "bytes=1-2").send().await;
    assert_eq!((part.status, part.text().as_str()), (206, "el"));

    // What is refused is refused in the owner's words.
    let wrong = a.session("s").python("x").with("network", "maybe").answer().await;
    let same = b.session("s").python("x").with("network", "maybe").answer().await;
    assert_eq!(wrong, same);
    let anonymous = a.request("GET", "/sessions/s/files").without("authorization").send().await;
    assert_eq!(anonymous.status, 401);
    a.stop().await;
    b.stop().await;
}

#[tokio::test]
async fn files_of_any_size_stream_through_in_both_directions() {
    const SIZE: u32 = 100 << 20;
    let (common, a, b) = two().await;
    common.give("s", "b");
    let content: Vec<u8> = (0..SIZE).map(|n| n.wrapping_mul(2_654_435_761).to_be_bytes()[1]).collect();
    let content = bytes::Bytes::from(content);
    let before = resident(&a);
    a.request("PUT", "/sessions/s/files/big.bin").body(content.clone()).send().await.expect(201);
    let at_b = b.request("GET", "/sessions/s/files/big.bin").send().await.expect(200);
    assert!(at_b.body == content);
    let at_a = a.request("GET", "/sessions/s/files/big.bin").send().await.expect(200);
    assert!(at_a.body == content);
    let grown = resident(&a).saturating_sub(before);
    assert!(grown < 40 << 20, "node a kept {grown} bytes of what only passed through");
    let list = a.request("GET", "/sessions/s/files").send().await.expect(200).json();
    assert_eq!(list["artifacts"][0]["filename"], "big.bin", "{list}");
    a.request("DELETE", "/sessions/s/files/big.bin").send().await.expect(204);
    assert_eq!(b.request("GET", "/sessions/s/files/big.bin").send().await.status, 404);
    a.stop().await;
    b.stop().await;
}

/// The resident memory of a daemon, in bytes.
fn resident(d: &Daemon) -> usize {
    let status =
        std::fs::read_to_string(format!("/proc/{}/status", d.pid().as_raw_nonzero())).expect("a process");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a line");
    line.trim().trim_end_matches(" kB").parse::<usize>().expect("a number") * 1024
}

/// A call in the newest revision, whose output is followed.
fn followed(d: &Daemon, session: &str, code: &str) -> Request {
    let meta = json!({
        "progressToken": 1,
        "paddock/output": "whole",
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": { "name": "test", "version": "1" },
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let arguments = json!({ "language": "python", "code": code, "session_id": session });
    let params = json!({ "name": "run_code", "arguments": arguments, "_meta": meta });
    d.request("POST", "/mcp")
        .header("accept", "application/json, text/event-stream")
        .header("mcp-protocol-version", "2026-07-28")
        .header("mcp-method", "tools/call")
        .header("mcp-name", "run_code")
        .json(&json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params }))
}

#[tokio::test]
async fn output_comes_while_the_program_runs_and_a_client_that_goes_ends_it() {
    let (common, a, b) = two().await;
    common.give("s", "b");
    let code = "print('first', flush=True)\nimport time\ntime.sleep(300)";
    let mut open = followed(&a, "s", code).open().await;
    assert_eq!(open.status, 200);
    open.read_until("the output of a program that runs", |text| text.contains("first")).await;
    let mark = b.log.mark();
    drop(open);
    // The session is free again as soon as its program has ended.
    let next = b.session("s").python("print(1)");
    within(PATIENCE, "the end of the program", next.into_future()).await.expect_stdout("1\n");
    assert!(!b.log.text()[mark.min(b.log.text().len())..].contains("panicked"));
    a.stop().await;
    b.stop().await;
}

#[tokio::test]
async fn a_server_in_a_container_is_reached_through_any_node_by_token_and_by_link() {
    let (common, a, b) = two().await;
    common.give("s", "b");
    let served = listening(&b, &b.session("s"), &serve("")).await;
    let seen =
        a.request("GET", "/ports/s/8000/seen?x").header("paddock-hop", "forged").send().await.expect(200);
    let seen = seen.json();
    assert_eq!((&seen["path"], &seen["headers"]["paddock-hop"]), (&json!("/seen?x"), &Value::Null));
    // The listener of links of the other node: its address stands in its log.
    let line = a.log.line("serving ports of sessions").await;
    let links = crate::support::field(&line, "addr").and_then(|addr| addr.parse().ok()).expect("an address");
    let by_link = Request::new(links, "GET", &format!("{}/seen", served.prefix())).send().await.expect(200);
    assert_eq!(by_link.json()["path"], "/seen");
    let wrong = served.prefix().replacen('/', "/0", 1);
    assert_ne!(Request::new(links, "GET", &format!("{wrong}/seen")).send().await.status, 200);
    for mut raw in [
        raw_protocol(a.addr, "/ports/s/8000/raw", Some(TOKEN)).await,
        raw_protocol(links, &format!("{}/raw", served.prefix()), None).await,
    ] {
        raw.write_all(b"hello").await.expect("it is read");
        let mut back = [0; 5];
        within(PATIENCE, "an echo", raw.read_exact(&mut back)).await.expect("an echo");
        assert_eq!(&back, b"hello");
        raw.write_all(&vec![7; 3_000_000]).await.expect("it is read");
        raw.shutdown().await.expect("a half-close");
        let mut all = Vec::new();
        within(PATIENCE, "the rest", raw.read_to_end(&mut all)).await.expect("bytes");
        assert_eq!((all.len(), &all[3_000_000..]), (3_000_003, &b"bye"[..]));
    }
    served.end(&a).await;
    a.stop().await;
    b.stop().await;
}

#[tokio::test]
async fn new_sessions_spread_over_the_nodes() {
    let (common, a, b) = two().await;
    for n in 0..6 {
        let ran = a.run("python", &format!("print({n})")).await.expect_stdout(&format!("{n}\n"));
        // Its id is told to a caller that did not choose it, whichever node made it.
        let id = ran.text("session_id").to_owned();
        assert!(id.starts_with("sess_"), "{id}");
        let again = b.session(&id).python("print(1)").await.expect_stdout("1\n");
        assert_eq!(again.text("session_id"), id);
    }
    let owners = common.owners();
    assert_eq!(owners.len(), 6, "{owners:?}");
    assert!(owners.contains(&"a".to_owned()) && owners.contains(&"b".to_owned()), "{owners:?}");
    a.stop().await;
    b.stop().await;
}

#[tokio::test]
async fn nobody_is_a_node_without_the_key() {
    let (common, a, b) = two().await;
    common.give("s", "b");
    // A node of another key is not believed, nor does it believe.
    let stranger = common.node("c").set("cluster.key", "another-key-0123456789").start().await;
    a.log.line("no node of this cluster, its cluster.key is another").await;
    let nodes = |d: &Daemon| {
        let status = cluster(d.store.path(), &["status", "--json"]).1;
        let status: Value = serde_json::from_str(&status).expect("JSON");
        status["nodes"].as_array().expect("nodes").len()
    };
    assert_eq!((nodes(&a), nodes(&b), nodes(&stranger)), (2, 2, 1));
    // Nor does the listener for peers speak with anybody else.
    let mut plain = TcpStream::connect(&common.addresses[1]).await.expect("a connection");
    plain.write_all(b"GET /sessions/s/files HTTP/1.1\r\nhost: b\r\n\r\n").await.expect("it is read");
    let mut said = Vec::new();
    let _ = within(PATIENCE, "the end", plain.read_to_end(&mut said)).await;
    assert!(!said.starts_with(b"HTTP"), "{}", String::from_utf8_lossy(&said));
    // From outside the header of a hop says nothing: not who somebody is, nor that he was passed on.
    let hop = "from=b; way=local; entry=http; time=0; nonce=0; proof=0";
    let anonymous = Request::new(a.addr, "GET", "/sessions/s/files").header("paddock-hop", hop);
    assert_eq!(anonymous.send().await.status, 401);
    let list = a.request("GET", "/sessions/s/files").header("paddock-hop", hop).send().await;
    assert_eq!(list.status, b.request("GET", "/sessions/s/files").send().await.status);
    assert!(metric(&a, "paddock_cluster_passed_total{outcome=\"answered\"}").await >= 1.0);
    for d in [a, b, stranger] {
        d.stop().await;
    }
}

#[tokio::test]
async fn a_request_is_passed_on_once_and_then_refused() {
    let (common, a, b) = two().await;
    common.give("s", "b");
    b.session("s").python("print(1)").await.expect_stdout("1\n");
    a.request("GET", "/sessions/s/files").send().await.expect(200);
    // The owner changes, and a still believes for some seconds what it knew.
    common.give("s", "c");
    let refused = a.request("GET", "/sessions/s/files").send().await;
    assert_eq!((refused.status, refused.header("retry-after")), (503, "1".into()), "{}", refused.text());
    let said = refused.json();
    assert_eq!(said["error"], "not_here", "{said}");
    assert!(refused.headers.get("paddock-not-here").is_none());
    // Now a has asked again: the owner is a node that does not answer.
    let refused = a.request("GET", "/sessions/s/files").send().await;
    let said = refused.json();
    assert_eq!((refused.status, &said["error"]), (503, &json!("node_unreachable")), "{said}");
    assert!(said["message"].as_str().expect("words").contains("node c"), "{said}");
    // A session that is a's again is served by a, at once.
    common.give("s", "a");
    a.session("s").python("print(2)").await.expect_stdout("2\n");
    a.stop().await;
    b.stop().await;
}

#[tokio::test]
async fn an_owner_that_is_gone_is_told_of() {
    let (common, a, b) = two().await;
    common.give("s", "b");
    let code = "print('first', flush=True)\nimport time\ntime.sleep(300)";
    let mut open = followed(&a, "s", code).open().await;
    open.read_until("the output of a program that runs", |text| text.contains("first")).await;
    let (waiting, mark) = (a.session("s").python("print(1)"), b.log.mark());
    let (answer, store) = tokio::join!(waiting.try_answer(), async {
        b.log.line_since(mark, "POST").await;
        b.crash().await
    });
    // A call that was under way: nobody knows what it did.
    let said = answer.expect("an answer");
    assert_eq!(said["error"]["data"]["error"], "node_broke_off", "{said}");
    let call = a.session("s").python("print(1)").answer().await;
    assert_eq!(call["error"]["data"]["error"], "node_unreachable", "{call}");
    let raw = a.request("GET", "/sessions/s/files").send().await;
    assert_eq!((raw.status, raw.header("retry-after")), (503, "1".into()));
    // It comes back, and all goes on.
    let mark = a.log.mark();
    let b = common.node("b").store(&store).start().await;
    a.log.line_since(mark, ANSWERS).await;
    a.session("s").python("print(3)").await.expect_stdout("3\n");
    a.stop().await;
    b.stop().await;
}

/// `paddock cluster` for the daemon of a store: its exit code and what it printed.
fn cluster(store: &Path, words: &[&str]) -> (Option<i32>, String) {
    let done = Command::new(program())
        .arg("cluster")
        .args(words)
        .env_clear()
        .env("SANDBOX_ROOT", store)
        .stdin(Stdio::null())
        .output()
        .expect("the command");
    (done.status.code(), String::from_utf8_lossy(&done.stdout).into_owned())
}

#[tokio::test]
async fn a_node_that_drains_takes_no_new_session_and_says_so() {
    let (common, a, b) = two().await;
    let mine = a.session("mine").python("print(1)");
    common.give("mine", "a");
    mine.await.expect_stdout("1\n");
    Request::new(a.addr, "GET", "/ready").send().await.expect(200);
    let (code, said) = cluster(a.store.path(), &["drain"]);
    assert!(code == Some(0) && said.contains("this node") && said.contains("draining"), "{said}");
    let ready = Request::new(a.addr, "GET", "/ready").send().await;
    assert!(ready.status == 503 && ready.text().contains("drains"), "{}", ready.text());
    Request::new(a.addr, "GET", "/health").send().await.expect(200);
    for _ in 0..3 {
        a.run("python", "print(1)").await.expect_stdout("1\n");
    }
    assert_eq!(common.owners(), ["a", "b", "b", "b"]);
    a.session("mine").python("print(2)").await.expect_stdout("2\n");
    let seen = async {
        while !cluster(b.store.path(), &["status"])
            .1
            .lines()
            .any(|line| line.starts_with("a ") && line.contains("draining"))
        {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    };
    within(PATIENCE, "the other node's view", seen).await;
    assert!(metric(&a, "paddock_cluster_draining").await > 0.0);
    assert_eq!(cluster(a.store.path(), &["drain", "--undo"]).0, Some(0));
    Request::new(a.addr, "GET", "/ready").send().await.expect(200);
    // With a token nobody drains anything.
    assert_eq!(a.request("POST", "/cluster/drain").send().await.status, 404);
    let alone = Daemon::start().await;
    let (code, said) = cluster(alone.store.path(), &["status"]);
    assert!(code == Some(1) && said.contains("alone"), "{said}");
    for d in [a, b, alone] {
        d.stop().await;
    }
}

#[tokio::test]
async fn a_cluster_without_a_table_of_owners_does_not_start() {
    let common = Common::new();
    let refusal = common.node("a").env("PADDOCK_TEST_OWNERS", "").refusal().await;
    assert_eq!(refusal.code, Some(1));
    assert!(refusal.said.contains("it takes store.url"), "{}", refusal.said);
}
