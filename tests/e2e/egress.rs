//! The way out: programs reach what their call and the configuration allow, by themselves, and nothing else.
//!
//! The other side is on this host's loopback, under names that `egress.hosts` gives it; `egress.private`
//! allows that address. Whether public addresses are judged rightly is a matter of unit tests.

#[path = "egress/upstream.rs"]
pub(crate) mod upstream;

use serde_json::{Value, json};

use self::upstream::Upstream;
use crate::support::{Daemon, PATIENCE, Ran, Setup, within};

/// A daemon in mode `open` that knows `api.example` and `other.example` as this host.
fn open(ports: &[u16]) -> Setup {
    let private: Vec<String> = ports.iter().map(|port| format!("127.0.0.1:{port}")).collect();
    Daemon::with().set("egress.mode", "open").set("egress.private", private).set(
        "egress.hosts",
        toml::Table::from_iter(
            ["api.example", "other.example"].map(|name| (name.to_owned(), "127.0.0.1".into())),
        ),
    )
}

fn allowed(domains: &[&str]) -> Value {
    json!({ "allowed_domains": domains })
}

/// The entry of this host in `network`.
#[track_caller]
fn entry<'a>(ran: &'a Ran, host: &str) -> &'a Value {
    let all = ran.document["network"].as_array().expect("`network`");
    let found = all.iter().find(|entry| entry["host"] == host);
    found.unwrap_or_else(|| panic!("{host} is not in {all:?}"))
}

/// Gets a URL with Python's own client, and prints the answer or the error.
const GET: &str = "
import sys, urllib.request
for url in sys.stdin.read().split():
    try: print(urllib.request.urlopen(url, timeout=20).read().decode())
    except OSError as e: print(type(e).__name__, e)
";

#[tokio::test]
async fn a_program_reaches_what_its_call_allows_and_is_told_what_was_blocked() {
    let server = Upstream::http().await;
    let port = server.port();
    let d = open(&[port]).start().await;
    let urls =
        format!("http://api.example:{port}/a http://other.example:{port}/b http://127.64.9.9:{port}/c");
    let s = d.session("s");
    let ran = s.python(GET).stdin(&urls).with("network", allowed(&["api.example"])).await;
    let ran = ran.expect_success();
    let lines: Vec<&str> = ran.text("output").lines().collect();
    assert_eq!(lines[0], "GET /a HTTP/1.1", "{}", ran.document);
    assert!(lines[1].starts_with("HTTPError HTTP Error 403"), "{}", ran.document);
    assert!(lines[2].starts_with("HTTPError HTTP Error 403"), "{}", ran.document);
    assert_eq!(server.connections(), 1);
    let reached = entry(&ran, "api.example");
    assert_eq!((&reached["port"], &reached["allowed"]), (&json!(port), &json!(true)), "{reached}");
    assert!(reached["bytes_in"].as_u64() > Some(0) && reached["bytes_out"].as_u64() > Some(0), "{reached}");
    let blocked = entry(&ran, "other.example");
    assert_eq!((&blocked["allowed"], &blocked["reason"]), (&json!(false), &json!("not in allowed_domains")));
    assert_eq!(blocked["port"], json!(port), "{blocked}");
    // Without a network nothing is reached, and nothing is said of a network.
    let ran = s.python(GET).stdin(&urls).await.expect_success();
    assert!(ran.document.get("network").is_none() && server.connections() == 1, "{}", ran.document);
    d.stop().await;
}

#[tokio::test]
async fn programs_of_every_kind_connect_without_help() {
    let server = Upstream::echo().await;
    let port = server.port();
    let d = open(&[port]).start().await;
    let s = d.session("s");
    let network = || allowed(&[&format!("api.example:{port}")]);
    let blocking = format!(
        "import socket
with socket.create_connection(('api.example', {port})) as s:
    peer = s.getpeername()[0]
    s.sendall(b'hello'); s.shutdown(socket.SHUT_WR)
    print(b''.join(iter(lambda: s.recv(10), b'')), peer != '')"
    );
    s.python(&blocking).with("network", network()).await.expect_stdout("b'hello' True\n");
    let waiting = format!(
        "import asyncio
async def main():
    r, w = await asyncio.open_connection('api.example', {port})
    w.write(b'hello'); w.write_eof()
    print(await r.read())
asyncio.run(main())"
    );
    s.python(&waiting).with("network", network()).await.expect_stdout("b'hello'\n");
    let node = format!(
        "import net from 'node:net';
const socket = net.connect({port}, 'api.example', () => socket.end('hello'));
socket.on('data', (bytes) => console.log(bytes.toString()));
socket.on('error', (error) => console.log(String(error)));"
    );
    s.typescript(&node).with("network", network()).await.expect_stdout("hello\n");
    // A command, with a program that knows nothing of any of this.
    let command = format!("bash -c 'exec 3<>/dev/tcp/api.example/{port}; echo hello >&3; head -n 1 <&3'");
    let config = json!({ "network": { "allowed_domains": ["api.example"] } });
    let ran = s.tool("execute_code").with("command", command).with("sandbox_config", config).await;
    assert!(ran.said.contains("hello"), "{}", ran.document);
    assert_eq!(entry(&ran, "api.example")["allowed"], true);
    let id = ran.text("execution_id").to_owned();
    let status = d.tool("get_execution_status", json!({ "execution_id": id })).await;
    assert_eq!(entry(&status, "api.example")["bytes_in"], 6, "{}", status.document);
    d.stop().await;
}

#[tokio::test]
async fn programs_that_know_proxies_are_told_in_a_sentence() {
    let server = Upstream::http().await;
    let port = server.port();
    let d = open(&[port]).start().await;
    let s = d.session("s");
    let config = json!({ "network": { "allowed_domains": ["api.example"] } });
    let of = |command: String| {
        s.tool("execute_code").with("command", command).with("sandbox_config", config.clone())
    };
    let asked = |url: &str| {
        format!(
            "python3 -c \"import requests
r = requests.get('{url}'); print(r.status_code, r.text.strip())\""
        )
    };
    let ran = of(asked(&format!("http://api.example:{port}/x?y"))).await;
    assert!(ran.said.contains("200 GET /x?y HTTP/1.1"), "{}", ran.said);
    let ran = of(asked(&format!("http://other.example:{port}/"))).await;
    assert!(ran.said.contains(&format!("403 other.example:{port} is blocked")), "{}", ran.said);
    assert_eq!(entry(&ran, "other.example")["port"], json!(port), "{}", ran.document);
    // A tunnel, by hand; and what is no run's credential.
    let tunnel = "python3 -c \"
import base64, os, socket, urllib.parse
proxy = urllib.parse.urlsplit(os.environ['https_proxy'])
def ask(target, user):
    s = socket.create_connection((proxy.hostname, proxy.port))
    value = base64.b64encode(user.encode()).decode()
    s.sendall(f'CONNECT {target} HTTP/1.1\\r\\nProxy-Authorization: Basic {value}\\r\\n\\r\\n'.encode())
    first = s.recv(1000).split(b'\\r')[0].decode()
    s.sendall(b'GET /in HTTP/1.0\\r\\n\\r\\n')
    print(first, s.recv(1000)[-16:] if ' 200 ' in first else '')
user = f'{proxy.username}:{proxy.password}'
";
    let targets = format!("ask('api.example:{port}', user); ask('api.example:{port}', 'run:guess')");
    let ran = of(format!("{tunnel}{targets}\"")).await;
    assert!(ran.said.contains("200 Connection established b'GET /in HTTP/1.0'"), "{}", ran.said);
    assert!(ran.said.contains("HTTP/1.1 407 "), "{}", ran.said);
    // A run without a network is told of no proxy, and an own variable is left as it is.
    s.python("import os; print([n for n in os.environ if 'proxy' in n.lower()])").await.expect_stdout("[]\n");
    let own = s.python("import os; print(os.environ['http_proxy'], 'https_proxy' in os.environ)");
    let own = own.env("http_proxy", "http://mine").with("network", allowed(&["api.example"]));
    own.await.expect_stdout("http://mine True\n");
    d.stop().await;
}

#[tokio::test]
async fn every_other_way_out_leads_nowhere() {
    let server = Upstream::http().await;
    let port = server.port();
    let d = open(&[port]).start().await;
    let tries = format!(
        "
import errno, os, socket, struct
def tried(what, f):
    try: print(what, 'went through', f())
    except OSError as e: print(what, errno.errorcode.get(e.errno, e))
host, port = '10.1.2.3', {port}
tried('tcp', lambda: socket.create_connection((host, port), 5))
def udp():
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); return s.sendto(b'x', (host, 53))
tried('udp', udp)
def connected_udp():
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.connect((host, 443)); return s.send(b'quic')
tried('quic', connected_udp)
def fast_open():
    s = socket.socket(); return s.sendto(b'GET / HTTP/1.0\\r\\n\\r\\n', 0x20000000, (host, port))
tried('fast open', fast_open)
tried('raw', lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP))
tried('packet', lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW))
for name in ('127.0.0.1', '::1', '::ffff:10.1.2.3', '0.0.0.0'):
    tried(name, lambda: socket.create_connection((name, port), 5))
for text in ('2130706433', '0x7f.1', '017700000001'):
    tried(text, lambda: socket.create_connection((text, port), 5))
"
    );
    let ran = d.run("python", &tries).with("network", allowed(&["api.example"])).await.expect_success();
    let output = ran.text("output");
    assert!(!output.contains("went through"), "{}", ran.document);
    assert_eq!(output.lines().count(), 13, "{}", ran.document);
    assert_eq!(server.connections(), 0, "{}", ran.document);
    // The program that tried all that still reaches what it may.
    let urls = format!("http://api.example:{port}/");
    d.run("python", GET).stdin(&urls).with("network", allowed(&["api.example"])).await.expect_success();
    assert_eq!(server.connections(), 1);
    d.stop().await;
}

#[tokio::test]
async fn each_of_two_runs_beside_each_other_has_its_own_policy() {
    let server = Upstream::http().await;
    let port = server.port();
    let d = open(&[port]).start().await;
    let s = d.session("s");
    let command = format!(
        "python3 -c \"import urllib.request as u; print(u.urlopen('http://api.example:{port}/').read())\"; \
         python3 -c \"import urllib.request as u; print(u.urlopen('http://other.example:{port}/').read())\""
    );
    let of = |name: &str| {
        let config = json!({ "network": { "allowed_domains": [name] } });
        s.tool("execute_code").with("command", command.as_str()).with("sandbox_config", config)
    };
    let bare = s.tool("execute_code").with("command", command.as_str());
    let (one, other, none) = tokio::join!(of("api.example"), of("other.example"), bare);
    for (ran, reached, blocked) in
        [(&one, "api.example", "other.example"), (&other, "other.example", "api.example")]
    {
        assert_eq!(entry(ran, reached)["allowed"], true, "{}", ran.document);
        assert_eq!(entry(ran, blocked)["allowed"], false, "{}", ran.document);
    }
    assert!(none.document.get("network").is_none(), "{}", none.document);
    assert_eq!(server.connections(), 2);
    d.stop().await;
}

#[tokio::test]
async fn modes_and_lists_are_held_and_refusals_name_what_would_allow_it() {
    let server = Upstream::http().await;
    let port = server.port();
    let d = Daemon::with().env("NETWORK_MODE", "none").start().await;
    let refused = d.run("sh", "true").with("network", true).await.expect_error("network_unavailable");
    assert!(refused.said.contains("NETWORK_MODE"), "{}", refused.said);
    d.stop().await;

    let d = open(&[port])
        .set("egress.mode", "restricted")
        .set("egress.allow", vec![format!("api.example:{port}"), "pypi.org".to_owned()])
        .start()
        .await;
    let more = allowed(&["api.example", "github.com"]);
    let refused = d.run("sh", "true").with("network", more).await.expect_error("unsupported_policy");
    assert!(refused.said.contains("github.com") && refused.said.contains("egress.allow"), "{}", refused.said);
    let urls = format!("http://api.example:{port}/ http://other.example:{port}/");
    let ran = d.run("python", GET).stdin(&urls).with("network", true).await.expect_success();
    assert_eq!((entry(&ran, "api.example")["allowed"] == true, server.connections()), (true, 1));
    for bad in ["", "https://api.example", "a b", "*.*.example", "api.example:0", "a\0b", "10.0.0.0/99"] {
        let refused = d.run("sh", "true").with("network", allowed(&[bad])).await;
        refused.expect_error("invalid_argument");
    }
    d.stop().await;

    // What is not public is refused although the call lists it.
    let d = open(&[]).start().await;
    let ran = d.run("python", GET).stdin(&urls).with("network", allowed(&["*"])).await.expect_success();
    let blocked = entry(&ran, "api.example");
    assert_eq!(blocked["allowed"], false, "{blocked}");
    assert!(blocked["reason"].as_str().is_some_and(|reason| reason.contains("loopback")), "{blocked}");
    assert_eq!(server.connections(), 1);
    d.stop().await;
}

#[tokio::test]
async fn what_a_program_has_sent_before_its_end_arrives() {
    let (sender, mut received) = tokio::sync::mpsc::unbounded_channel();
    let server = Upstream::start(move |mut stream| {
        let sender = sender.clone();
        async move {
            let mut all = Vec::new();
            let ended = tokio::io::AsyncReadExt::read_to_end(&mut stream, &mut all).await;
            let _ = sender.send((all.len(), ended.is_ok()));
        }
    })
    .await;
    let port = server.port();
    let d = open(&[port]).start().await;
    let send = format!(
        "import socket\ns = socket.create_connection(('api.example', {port}))\ns.sendall(bytes(3_000_000))"
    );
    let s = d.session("s");
    for _ in 0..2 {
        s.python(&send).with("network", allowed(&["api.example"])).await.expect_success();
        let sent = within(PATIENCE, "all bytes", received.recv()).await;
        assert_eq!(sent, Some((3_000_000, true)));
    }
    d.stop().await;
}

/// All output of an execution so far, or its first.
async fn read(d: &Daemon, id: &str) -> Ran {
    d.tool("get_execution_output", json!({ "execution_id": id, "wait": true, "since": 0 })).await
}

#[tokio::test]
async fn a_connection_dies_with_its_run_and_with_its_daemon() {
    let server = Upstream::echo().await;
    let port = server.port();
    let d = open(&[port]).start().await;
    let s = d.session("s");
    // A process that outlives its shell would keep the connection.
    let command = format!(
        "python3 -c \"
import socket, time
s = socket.create_connection(('api.example', {port}))
print('connected', flush=True)
try: print('read', s.recv(1), flush=True)
except OSError as e: print('broken', flush=True)
t = socket.create_connection(('api.example', {port}))
t.sendall(b'again'); print(t.recv(5), flush=True)
\""
    );
    let config = json!({ "network": { "allowed_domains": ["api.example"] } });
    let begun = s.tool("execute_code_async").with("command", command).with("sandbox_config", config).await;
    let id = begun.text("execution_id").to_owned();
    let connected = async {
        loop {
            let page = read(&d, &id).await;
            if page.document.to_string().contains("connected") {
                return;
            }
        }
    };
    within(PATIENCE, "a connection", connected).await;
    let store = d.crash().await;
    let d = open(&[port]).store(&store).start().await;
    let ended = async {
        loop {
            let page = read(&d, &id).await;
            if page.document["status"] != "running" {
                return page;
            }
        }
    };
    let page = within(PATIENCE, "the end", ended).await;
    assert!(page.document.to_string().contains("b'again'"), "{}", page.document);
    d.stop().await;
}

/// Waits until an execution has printed this.
async fn printed(d: &Daemon, id: &str, what: &str) {
    let waiting = async { while !read(d, id).await.document.to_string().contains(what) {} };
    within(PATIENCE, what, waiting).await;
}

#[tokio::test]
async fn a_run_leaves_connections_to_the_runs_beside_it() {
    let server = Upstream::echo().await;
    let port = server.port();
    let d = open(&[port]).set("egress.connections_per_run", 128).start().await;
    let s = d.session("s");
    let command = format!(
        "python3 -u -c \"
import socket, sys
held = []
print('ready')
for line in sys.stdin:
    try:
        while len(held) < int(line): held.append(socket.create_connection(('api.example', {port})))
    except OSError as e: print(e)
    print('holds', len(held))
\""
    );
    let config = json!({ "network": { "allowed_domains": ["api.example"] } });
    let mut runs = Vec::new();
    for _ in 0..3 {
        let begun = s.tool("execute_code_async").with("command", command.as_str()).with("interactive", true);
        let id = begun.with("sandbox_config", config.clone()).await.text("execution_id").to_owned();
        printed(&d, &id, "ready").await;
        runs.push(id);
    }
    let wants = async |id: &str, connections: u32| {
        let line = json!({ "execution_id": id, "input_data": connections.to_string() });
        d.tool("send_stdin", line).await;
    };
    wants(&runs[0], 128).await;
    printed(&d, &runs[0], "holds 112").await;
    let status = d.tool("get_execution_status", json!({ "execution_id": runs[0] })).await;
    let reason = entry(&status, "api.example")["reason"].as_str().unwrap_or_default();
    assert!(reason.contains("for the other runs of this session"), "{}", status.document);
    for id in &runs[1..] {
        wants(id, 16).await;
        printed(&d, id, "holds 16").await;
    }
    assert_eq!(server.connections(), 112 + 2 * 16);
    d.stop().await;
}

#[tokio::test]
async fn what_a_run_has_used_stays_used_when_its_daemon_is_killed() {
    let server = Upstream::start(|mut stream| async move {
        let mut all = Vec::new();
        if tokio::io::AsyncReadExt::read_to_end(&mut stream, &mut all).await.is_ok() {
            let _ = tokio::io::AsyncWriteExt::write_all(&mut stream, b"done").await;
        }
    })
    .await;
    let port = server.port();
    let setup = || open(&[port]).set("egress.bytes", "1MiB");
    let d = setup().start().await;
    let command = format!(
        "python3 -u -c \"
import socket, sys
for n, line in enumerate(sys.stdin):
    for name in ('other.example', 'api.example'):
        try:
            with socket.create_connection((name, {port})) as s:
                s.sendall(bytes(600_000)); s.shutdown(socket.SHUT_WR)
                answer = s.recv(10)
        except OSError as e: answer = e
    print('answer', n, answer)
\""
    );
    let config = json!({ "network": { "allowed_domains": ["api.example"] } });
    let s = d.session("s");
    let begun = s.tool("execute_code_async").with("command", command).with("interactive", true);
    let id = begun.with("sandbox_config", config).await.text("execution_id").to_owned();
    let go = json!({ "execution_id": id, "input_data": "go" });
    d.tool("send_stdin", go.clone()).await;
    printed(&d, &id, "answer 0 b'done'").await;
    let status = json!({ "execution_id": id });
    let before = d.tool("get_execution_status", status.clone()).await.document["network"].clone();
    assert!(before.to_string().contains("\"bytes_out\":600000"), "{before}");
    let note = d.store.path().join("networks").join(&id);
    let noted = async {
        loop {
            // A look at the daemon between two looks at the file.
            d.tool("get_execution_status", status.clone()).await;
            let text = std::fs::read_to_string(&note).unwrap_or_default();
            let network = serde_json::from_str::<Value>(&text).unwrap_or_default()["destinations"].clone();
            if network == before {
                return;
            }
        }
    };
    within(PATIENCE, "the note of what was used", noted).await;
    let store = d.crash().await;
    let d = setup().store(&store).start().await;
    let resumed = async {
        loop {
            let now = d.tool("get_execution_status", status.clone()).await.document["network"].clone();
            if now.is_array() {
                return now;
            }
        }
    };
    assert_eq!(within(PATIENCE, "the network of the run", resumed).await, before);
    // What is left of its bytes does not suffice for as many again.
    d.tool("send_stdin", go).await;
    printed(&d, &id, "answer 1").await;
    let ran = d.tool("get_execution_status", status).await;
    let cut = entry(&ran, "api.example");
    assert!(cut["reason"].as_str().is_some_and(|reason| reason.contains("as many bytes")), "{cut}");
    assert!(cut["bytes_out"].as_u64() > Some(600_000), "{cut}");
    d.stop().await;
    assert!(!note.exists(), "it goes with its run");
}
