//! The resources of the daemon that hostile clients can use: memory, connections and log. Others are served
//! all the time.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use rustix::net::sockopt::set_socket_recv_buffer_size;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

use crate::raw::put;
use crate::support::{Answer, Daemon, Opened, PATIENCE, Request, TOKEN, field, within};

/// More connections than a listener has regular places for.
const MANY: usize = 1100;

/// The limit of streams for one token.
const STREAMS: usize = 256;

/// The longest time for a probe during an attack: a few milliseconds, on a machine that is not busy with
/// other tests.
const SOON: Duration = Duration::from_secs(2);

const MIB: u64 = 1 << 20;

/// Memory beyond the attack's: a container, and code that was never used before.
const OTHERS: u64 = 48 * MIB;

/// Bytes of the daemon's memory, by this name in `/proc`.
fn memory(d: &Daemon, name: &str) -> u64 {
    let path = format!("/proc/{}/status", d.pid().as_raw_nonzero());
    let status = std::fs::read_to_string(path).expect("the daemon's status");
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).expect("a figure");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("kilobytes") * 1024
}

/// The largest growth of the daemon's memory since `before`.
fn grew(d: &Daemon, before: u64) -> u64 {
    memory(d, "VmHWM").saturating_sub(before)
}

/// The heaps that the C library has made for the daemon's threads, beside the one of the process: each is
/// 64 MiB of addresses at a multiple of that, of which the first part is in use.
fn heaps(d: &Daemon) -> usize {
    const HEAP: u64 = 64 * MIB;
    let path = format!("/proc/{}/maps", d.pid().as_raw_nonzero());
    let maps = std::fs::read_to_string(path).expect("the daemon's maps");
    let areas: Vec<(u64, u64, &str)> = maps
        .lines()
        .filter_map(|line| {
            let (range, rest) = line.split_once(' ')?;
            let (from, to) = range.split_once('-')?;
            let address = |text| u64::from_str_radix(text, 16).ok();
            Some((address(from)?, address(to)?, rest.split(' ').next()?))
        })
        .collect();
    let is_heap = |pair: &&[(u64, u64, &str)]| {
        let [(from, used, "rw-p"), (free, to, "---p")] = **pair else { return false };
        from.is_multiple_of(HEAP) && used == free && to - from == HEAP
    };
    areas.windows(2).filter(is_heap).count()
}

async fn expect_well(d: &Daemon) {
    within(SOON, "an answer of /health", Request::new(d.addr, "GET", "/health").send()).await.expect(200);
}

/// Expects that a caller with a token is served too.
async fn expect_served(d: &Daemon) {
    let listed = within(Duration::from_secs(10), "a call", d.rpc("tools/list", json!({}))).await;
    assert!(listed["result"]["tools"].is_array(), "{listed}");
}

/// A connection that reads as little as possible.
async fn small_reader(addr: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().expect("a socket");
    set_socket_recv_buffer_size(&socket, 2048).expect("a small buffer");
    within(PATIENCE, "a connection", socket.connect(addr)).await.expect("a connection")
}

/// A call of a tool whose `arguments` are this text.
fn call(tool: &str, arguments: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{{"name":"{tool}","arguments":{arguments}}}}}"#
    )
}

async fn post(d: &Daemon, body: String) -> Answer {
    d.request("POST", "/mcp").set("content-type", "application/json").body(body).send().await
}

#[tokio::test]
async fn the_structure_of_a_body_is_limited_whatever_it_is() {
    let d = Daemon::start().await;
    expect_served(&d).await;
    let before = memory(&d, "VmRSS");
    let keys: String = (0..400_000).map(|n| format!("\"{n}\":0,")).collect();
    let mut largest = 0;
    for (what, arguments) in [
        ("objects", format!("{{\"a\":[{}0]}}", "{\"\":0},".repeat(1 << 20))),
        ("numbers", format!("{{\"a\":[{}0]}}", "0,".repeat(4 << 20))),
        ("arrays", format!("{{\"a\":[{}0]}}", "[],".repeat(2 << 20))),
        ("empty texts", format!("{{\"a\":[{}0]}}", "\"\",".repeat(2 << 20))),
        ("keys", format!("{{{keys}\"a\":0}}")),
        ("depth", format!("{{\"a\":{}0{}}}", "[".repeat(4 << 20), "]".repeat(4 << 20))),
        ("white space", format!("{{\"a\":{}0}}", " ".repeat(8 << 20))),
        ("one number", format!("{{\"a\":{}}}", "9".repeat(8 << 20))),
    ] {
        largest = largest.max(arguments.len() as u64);
        let answer = post(&d, call("list_artifacts", &arguments)).await;
        let answer = answer.expect(400).json();
        assert_eq!(answer["error"]["code"], -32600, "{what}: {answer}");
        let message = answer["error"]["message"].as_str().expect("a message");
        assert!(message.contains("which is the limit"), "{what}: {message}");
    }
    // The largest that is allowed: only the tool refuses it.
    let most = format!("{{\"a\":[{}0]}}", "{\"\":0},".repeat(20_000));
    assert_eq!(post(&d, call("list_artifacts", &most)).await.expect(200).json()["error"]["code"], -32602);
    let grew = grew(&d, before);
    assert!(grew < 4 * largest + OTHERS, "{} MiB", grew / MIB);
    d.stop().await;
}

/// A text may be long, with or without escapes, also where none is expected: it is decoded once, and not
/// repeated.
#[tokio::test]
async fn a_long_text_costs_at_most_four_times_its_size() {
    let size = 24 << 20;
    for (what, argument, text) in [
        ("plain", "content", "A".repeat(size)),
        ("one escape", "content", format!("\\u0041{}", "A".repeat(size - 1))),
        ("slashes", "content", "AAA\\/".repeat(size / 5)),
        ("nulls", "content", "\\u0000".repeat(size / 6)),
        ("no bool", "overwrite", "A".repeat(size)),
    ] {
        let d = Daemon::start().await;
        let s = d.session("s");
        s.upload("small", b"x").await.expect_success();
        let before = memory(&d, "VmRSS");
        let rest = if argument == "content" { "" } else { ",\"content\":\"eA==\"" };
        let arguments = format!(r#"{{"filename":"f","conversationId":"s","{argument}":"{text}"{rest}}}"#);
        let answer = post(&d, call("upload_file", &arguments)).await.expect(200).text();
        let grew = grew(&d, before);
        assert!(grew < 4 * size as u64 + OTHERS, "{what}: {} MiB", grew / MIB);
        assert!(answer.len() < 10_000, "{what}: {} bytes are answered", answer.len());
        if argument == "content" && what != "nulls" {
            assert!(answer.contains("\"isError\":false"), "{what}: {answer}");
        }
        d.stop().await;
    }
}

/// What is free in the heap of one thread is of no use to another one: with a heap for each of many threads
/// the daemon holds ten times what it uses.
#[tokio::test]
async fn many_threads_share_few_heaps() {
    // Two of the machine's processors, however many it has.
    let d = Daemon::with().under(&["taskset", "--cpu-list", "0,1"]).start().await;
    let upload = |n: usize| {
        let d = &d;
        async move { put(d, &format!("s-{n}"), "f", vec![b'x'; 600_000]).await.expect(201) }
    };
    (0..64).map(upload).collect::<FuturesUnordered<_>>().collect::<Vec<_>>().await;
    let heaps = heaps(&d);
    assert!(heaps <= 1, "{heaps} heaps beside that of the process, on two processors");
    d.stop().await;
}

#[tokio::test]
async fn announced_bodies_that_never_come_delay_nobody() {
    let d = Daemon::start().await;
    let mut silent = Vec::new();
    for _ in 0..8 {
        let mark = d.log.mark();
        let mut socket = TcpStream::connect(d.addr).await.expect("a connection");
        let head = format!(
            "POST /mcp HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {TOKEN}\r\nContent-Type: \
             application/json\r\nContent-Length: 100000000\r\n\r\n{{",
            d.addr
        );
        socket.write_all(head.as_bytes()).await.expect("written");
        d.log.line_since(mark, " request ").await;
        silent.push(socket);
    }
    let upload = async { d.session("s").upload("f", &vec![b'x'; 2 << 20]).await };
    within(Duration::from_secs(20), "an upload beside them", upload).await.expect_success();
    drop(silent);
    d.stop().await;
}

/// The calls of one session run one after the other, and each holds its message until then.
#[tokio::test]
async fn a_queue_of_large_calls_in_one_session_delays_no_other_session() {
    /// Calls, and how many of them hold as much as those of one session may.
    const CALLS: usize = 24;
    const WAITING: usize = 5;
    let d = Daemon::start().await;
    let waits = "until [ -e /tmp/go ]; do sleep 0.05; done";
    let first = async { d.session("full").sh(waits).timeout(300.0).await };
    let large =
        format!(r#"{{"conversationId":"full","filename":"f","content":"{}"}}"#, "A".repeat(6_000_000));
    let meanwhile = async {
        let begun = async {
            while !d
                .request("GET", "/status")
                .send()
                .await
                .expect(200)
                .text()
                .contains(r#""status":"running""#)
            {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        within(PATIENCE, "the first call's turn", begun).await;
        let mut queue: FuturesUnordered<_> =
            (0..CALLS).map(|_| post(&d, call("upload_file", &large))).collect();
        for _ in WAITING..CALLS {
            let refused = queue.next().await.expect("an answer").expect(200).text();
            assert!(refused.contains("queue_full"), "{refused:.300}");
        }
        let other = async { d.session("other").upload("f", &vec![b'x'; 100_000]).await };
        within(PATIENCE, "a call of another session", other).await.expect_success();
        let view = d.view().await;
        view.exec(&view.the_container("sh").await, &["touch", "/tmp/go"]).await;
        queue
    };
    let (first, mut queue) = tokio::join!(first, meanwhile);
    first.expect_success();
    for _ in 0..WAITING {
        let saved = queue.next().await.expect("an answer").expect(200).text();
        assert!(saved.contains("uploaded successfully"), "{saved:.300}");
    }
    drop(queue);
    d.stop().await;
}

#[tokio::test]
async fn clients_that_do_not_read_exclude_nobody() {
    let d = Daemon::start().await;
    let script = "/page/editor.js";
    let size = Request::new(d.addr, "GET", script).send().await.expect(200).body.len();
    assert!(size > 100_000, "{script} has {size} bytes");
    let ask = format!("GET {script} HTTP/1.1\r\nHost: {}\r\n\r\n", d.addr).repeat(16);
    let before = memory(&d, "VmRSS");
    let mut readers = Vec::new();
    for _ in 0..MANY {
        let mut reader = small_reader(d.addr).await;
        let _ = reader.write_all(ask.as_bytes()).await; // it may be closed already
        readers.push(reader);
    }
    for _ in 0..5 {
        expect_well(&d).await;
        expect_served(&d).await;
    }
    assert!(grew(&d, before) < 512 * MIB, "{} MiB", grew(&d, before) / MIB);
    drop(readers);
    d.stop().await;
}

/// A client that does not read loses its connection even if nobody else needs its place.
#[tokio::test]
async fn a_client_that_does_not_read_is_disconnected_in_time() {
    let d = Daemon::with().set("http.write_timeout", "5s").start().await;
    let ran = d.session("s").sh("head -c 32000000 /dev/zero > big").await.expect_success();
    let link = ran.link("big");
    let path = link.strip_prefix(&d.url).expect("ours").to_owned();
    let mut reader = small_reader(d.addr).await;
    let ask = format!("GET {path} HTTP/1.1\r\nHost: {}\r\n\r\n", d.addr);
    reader.write_all(ask.as_bytes()).await.expect("written");
    let cut = async {
        let wanted = r#"paddock_http_connections_cut_total{reason="stalled"} 1"#;
        while !d.request("GET", "/metrics").send().await.expect(200).text().contains(wanted) {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    within(Duration::from_secs(30), "the end of its connection", cut).await;
    let mut got = Vec::new();
    let read = within(Duration::from_secs(10), "an end", reader.read_to_end(&mut got)).await;
    assert!(read.is_err() || got.len() < 32_000_000, "{} bytes", got.len());
    // A client that reads gets everything.
    assert_eq!(d.fetch(&link).await.expect(200).body.len(), 32_000_000);
    d.stop().await;
}

#[tokio::test]
async fn silent_connections_exclude_nobody() {
    let d = Daemon::start().await;
    let mut silent = Vec::new();
    for _ in 0..2 * MANY {
        let connecting = TcpStream::connect(d.addr);
        silent.push(within(Duration::from_secs(5), "a connection", connecting).await.expect("a connection"));
    }
    for _ in 0..5 {
        expect_well(&d).await;
        expect_served(&d).await;
    }
    drop(silent);
    d.stop().await;
}

#[tokio::test]
async fn the_streams_of_one_token_leave_room_for_others() {
    let d = Daemon::start().await;
    let mut streams: Vec<Opened> = Vec::new();
    let mut refused = 0;
    for _ in 0..MANY {
        let opened = within(Duration::from_secs(5), "a head", d.request("GET", "/mcp/events").open()).await;
        match opened.status {
            200 => streams.push(opened),
            429 => {
                assert!(opened.headers.contains_key("retry-after"));
                refused += 1;
            }
            status => panic!("{status}"),
        }
    }
    assert_eq!((streams.len(), refused), (STREAMS, MANY - STREAMS));
    expect_well(&d).await;
    expect_served(&d).await;
    // The end of a stream makes room for another.
    streams.pop();
    let again = async {
        while d.request("GET", "/mcp/events").open().await.status != 200 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    within(Duration::from_secs(10), "another stream", again).await;
    drop(streams);
    d.stop().await;
}

#[tokio::test]
async fn scrapers_that_do_not_read_exclude_no_other_scraper() {
    let d = Daemon::with().set("metrics.addr", "127.0.0.1:0").start().await;
    let line = d.log.line("serving the metrics").await;
    let addr: SocketAddr = field(&line, "addr").and_then(|addr| addr.parse().ok()).expect("an address");
    let ask = format!("GET /metrics HTTP/1.1\r\nHost: {addr}\r\n\r\n").repeat(256);
    let mut readers = Vec::new();
    for _ in 0..300 {
        let mut reader = small_reader(addr).await;
        let _ = reader.write_all(ask.as_bytes()).await;
        readers.push(reader);
    }
    let scrape = Request::new(addr, "GET", "/metrics").send();
    within(Duration::from_secs(10), "a scrape beside them", scrape).await.expect(200);
    expect_well(&d).await;
    drop(readers);
    d.stop().await;
}

#[tokio::test]
async fn wrong_tokens_and_signatures_fill_no_log_and_exclude_nobody() {
    let d = Daemon::start().await;
    let uploaded = d.session("s").upload("f", b"of ours").await.expect_success();
    let link = uploaded.document["file"]["url"].as_str().expect("a link");
    let list = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" });
    let mark = d.log.mark();
    let begun = Instant::now();
    let mut answers = BTreeMap::<u16, u64>::new();
    for n in 0..20 {
        let some = (0..100).map(|m| {
            let wrong = format!("wrong-{n}-{m}");
            let request = if m % 2 == 0 {
                Request::new(d.addr, "POST", "/mcp").json(&list).bearer(&wrong)
            } else {
                Request::new(d.addr, "GET", &format!("/files/s/f?sig={wrong}"))
            };
            request.send()
        });
        for answer in futures_util::future::join_all(some).await {
            if answer.status == 429 {
                assert!(answer.header("retry-after").parse::<u64>().is_ok_and(|seconds| seconds > 0));
            }
            *answers.entry(answer.status).or_default() += 1;
        }
    }
    // Correct ones from the same address are served.
    expect_served(&d).await;
    assert_eq!(d.fetch(link).await.expect(200).text(), "of ours");
    let seconds = begun.elapsed().as_secs();
    assert_eq!(answers.keys().copied().collect::<Vec<_>>(), [401, 403, 429]);
    assert!(answers[&401] + answers[&403] <= 100 + 10 * (seconds + 1), "{answers:?}");
    d.log.line_since(mark, "more requests were refused").await;
    let text = d.stop().await.text();
    let said = text.lines().skip(mark).filter(|line| line.contains("refused")).count() as u64;
    assert!(said <= seconds + 4, "{said} lines in {seconds} s");
    assert!(!text.contains("wrong-"), "a token or a signature is in the log");
}

/// Each log line of a request, and of its run, names the token and the client's address.
#[tokio::test]
async fn lines_name_the_token_and_the_peer() {
    let d = Daemon::with().set("log.format", "json").start().await;
    let ran = d.session("s").sh("echo x > f").await.expect_success();
    let executed = d.session("s").tool("execute_code").with("command", "true").await;
    assert_eq!(executed.document["exit_code"], 0, "{}", executed.document);
    d.fetch(&ran.link("f")).await.expect(200);
    Request::new(d.addr, "GET", "/status").send().await.expect(401);
    let text = d.stop().await.text();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    for (message, count) in [("request", 3), ("answer", 3), ("tool called", 2), ("ended", 2)] {
        let found: Vec<_> = lines.iter().filter(|line| line["message"] == message).collect();
        assert_eq!(found.len(), count, "{message}: {found:#?}");
        for line in found {
            assert_eq!(line["token"], "default", "{line}");
            let peer: SocketAddr = line["peer"].as_str().expect("a peer").parse().expect("an address");
            assert!(peer.ip().is_loopback(), "{line}");
        }
    }
    let refused: Vec<_> = lines.iter().filter(|line| line["path"] == "/status").collect();
    let [refused] = refused[..] else { panic!("{refused:#?}") };
    assert_eq!((&refused["message"], &refused["token"]), (&json!("refused"), &json!("-")), "{refused}");
    assert!(refused["peer"].as_str().is_some_and(|peer| peer.starts_with("127.0.0.1:")), "{refused}");
    assert!(!text.contains(TOKEN), "the log has the token");
}
