//! The way in: servers that programs run are reached by their links and by token, over HTTP and WebSocket,
//! and nothing else is.
//!
//! The server is `ports/server.py`, run by a command; a real browser opens a hostile page of one.

use std::net::SocketAddr;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::{Answer, Daemon, PATIENCE, Request, Session, Setup, TOKEN, within};

const SERVER: &str = include_str!("ports/server.py");

/// A daemon with a listener of ports.
pub(crate) fn daemon() -> Setup {
    Daemon::with().set("ports.addr", "127.0.0.1:0")
}

/// A command that runs the server with these arguments.
pub(crate) fn serve(arguments: &str) -> String {
    format!("cat > /tmp/server.py <<'END'\n{SERVER}\nEND\nexec python3 /tmp/server.py {arguments}")
}

/// A server under way.
pub(crate) struct Served {
    execution: String,
    /// The link, without a slash at its end.
    pub link: String,
    pub port: u16,
}

/// The first event `port` of an execution.
async fn port_event(d: &Daemon, execution: &str) -> Value {
    let reading = async {
        let mut since = 0;
        loop {
            let asked = json!({ "execution_id": execution, "wait": true, "since": since });
            let page = d.tool("get_execution_output", asked).await.document;
            let events = page["output"].as_array().expect("events").clone();
            if let Some(event) = events.into_iter().find(|event| event["type"] == "port") {
                return event;
            }
            assert_eq!(page["status"], "running", "{page}");
            since = page["next_since"].as_u64().expect("a number");
        }
    };
    within(PATIENCE, "an event `port`", reading).await
}

/// Runs a command, and waits until it listens.
pub(crate) async fn listening(d: &Daemon, s: &Session<'_>, command: &str) -> Served {
    let begun = s.tool("execute_code_async").with("command", command).await;
    let execution = begun.text("execution_id").to_owned();
    let event = port_event(d, &execution).await;
    let link = event["url"].as_str().expect("a link").strip_suffix('/').expect("a slash").to_owned();
    let port = u16::try_from(event["port"].as_u64().expect("a port")).expect("a port");
    Served { execution, link, port }
}

impl Served {
    /// The address of the listener.
    pub(crate) fn addr(&self) -> SocketAddr {
        let (host, _) = self.link.strip_prefix("http://").and_then(|url| url.split_once('/')).expect("a URL");
        host.parse().expect("an address")
    }

    /// The path in front of everything.
    pub(crate) fn prefix(&self) -> String {
        let (_, path) = self.link.strip_prefix("http://").and_then(|url| url.split_once('/')).expect("a URL");
        format!("/{path}")
    }

    /// A request by the link.
    pub(crate) fn request(&self, method: &str, path: &str) -> Request {
        Request::new(self.addr(), method, &format!("{}{path}", self.prefix()))
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.request("GET", path).send().await
    }

    pub(crate) async fn end(&self, d: &Daemon) {
        d.tool("cancel_execution", json!({ "execution_id": self.execution, "force": true })).await;
    }
}

#[tokio::test]
async fn a_server_is_told_of_and_reached_by_its_link_and_by_token() {
    let d = daemon().start().await;
    let s = d.session("a b");
    let served = listening(&d, &s, &serve("")).await;
    assert!(served.prefix().ends_with("/a%20b/8000"), "{}", served.link);
    let status = d.tool("get_execution_status", json!({ "execution_id": served.execution })).await.document;
    assert_eq!(status["ports"], json!([{ "port": 8000, "url": format!("{}/", served.link) }]));

    let seen = |answer: Answer| answer.expect(200).json();
    let told = |seen: &Value, name: &str| seen["headers"][name].as_str().unwrap_or_default().to_owned();
    let host = served.addr().to_string();
    let asked = served.request("GET", "/seen?a=b%20c&d").header("cookie", "daemon=secret");
    let by_link = seen(asked.bearer(TOKEN).header("origin", &format!("http://{host}")).send().await);
    assert_eq!((&by_link["method"], &by_link["path"]), (&json!("GET"), &json!("/seen?a=b%20c&d")));
    for (name, value) in [
        ("host", "localhost:8000"),
        ("origin", "http://localhost:8000"),
        ("x-forwarded-prefix", &served.prefix()),
        ("x-forwarded-host", &host),
        ("x-forwarded-proto", "http"),
        ("cookie", ""),
        ("authorization", ""),
    ] {
        assert_eq!(told(&by_link, name), value, "{name}: {by_link}");
    }
    // A credential that is not the daemon's is the server's.
    let own = seen(served.request("GET", "/seen").bearer("own").send().await);
    assert_eq!(told(&own, "authorization"), "Bearer own");

    let path = "/ports/a%20b/8000/seen";
    let answer = d.request("GET", path).header("cookie", "daemon=secret").send().await;
    assert_eq!(answer.header("content-security-policy"), "sandbox");
    assert_eq!(answer.header("x-content-type-options"), "nosniff");
    let by_token = seen(answer);
    assert_eq!(told(&by_token, "x-forwarded-prefix"), "/ports/a%20b/8000", "{by_token}");
    assert_eq!((told(&by_token, "authorization"), told(&by_token, "cookie")), (String::new(), String::new()));
    let refused = Request::new(d.addr, "GET", path).send().await.expect(401);
    assert_eq!(refused.header("content-security-policy"), "sandbox");

    // Without its slash a link leads to the one with it, and relative addresses work.
    let moved = served.get("?x").await.expect(308);
    assert_eq!(moved.header("location"), format!("{}/?x", served.prefix()));
    served.end(&d).await;
    let status = d.tool("get_execution_status", json!({ "execution_id": served.execution })).await.document;
    assert!(status.get("ports").is_none(), "{status}");
    let gone = served.get("/").await.expect(502).json();
    assert_eq!(gone["error"], "nothing_listens", "{gone}");
    d.stop().await;
}

#[tokio::test]
async fn what_a_server_sets_stays_below_its_link() {
    let d = daemon().start().await;
    let s = d.session("s");
    let served = listening(&d, &s, &serve("")).await;
    let prefix = served.prefix();
    for (to, is) in [
        ("/login", format!("{prefix}/login")),
        ("http://localhost:8000/x?y", format!("{prefix}/x?y")),
        ("//localhost:8000/x", format!("{prefix}/x")),
        ("next", "next".to_owned()),
        ("https://example.com/", "https://example.com/".to_owned()),
    ] {
        assert_eq!(served.get(&format!("/to?{to}")).await.expect(302).header("location"), is, "{to}");
    }
    let set = served.get("/cookies").await.expect(200);
    let cookies: Vec<&str> =
        set.headers.get_all("set-cookie").iter().map(|value| value.to_str().expect("text")).collect();
    assert_eq!(cookies.len(), 4, "two cookies, and the mark of each: {cookies:?}");
    for cookie in &cookies {
        assert!(cookie.contains(&format!("; Path={prefix}/")), "{cookie}");
        assert!(!cookie.contains("Domain") && !cookie.contains("__Host"), "{cookie}");
    }
    // What the server set comes back to it, and to no other server.
    let pairs: Vec<&str> = cookies.iter().map(|cookie| cookie.split(';').next().expect("a pair")).collect();
    let sent = format!("{}; daemon=secret", pairs.join("; "));
    let seen = served.request("GET", "/seen").header("cookie", &sent).send().await.expect(200).json();
    assert_eq!(seen["headers"]["cookie"], "id=7; deep=1", "{seen}");
    let other = listening(&d, &s, &serve("8001 ::")).await;
    let seen = other.request("GET", "/seen").header("cookie", &sent).send().await.expect(200).json();
    assert!(seen["headers"].get("cookie").is_none(), "{seen}");

    let tried = "/headers?Clear-Site-Data=*&Strict-Transport-Security=max-age=9&Service-Worker-Allowed=/&\
                 Content-Security-Policy=sandbox%20allow-scripts&Alt-Svc=h3&Content-Type=text/html";
    let by_link = served.get(tried).await.expect(200);
    for name in ["clear-site-data", "strict-transport-security", "service-worker-allowed", "alt-svc"] {
        assert!(by_link.headers.get(name).is_none(), "{name}");
    }
    let by_token = d.request("GET", &format!("/ports/s/8000{tried}")).send().await.expect(200);
    assert_eq!(by_token.header("content-security-policy"), "sandbox");
    d.stop().await;
}

#[tokio::test]
async fn bodies_of_every_kind_pass() {
    let d = daemon().start().await;
    let served = listening(&d, &d.session("s"), &serve("8000 ::")).await;
    let head = served.request("HEAD", "/seen").send().await.expect(200);
    assert!(head.body.is_empty() && head.header("content-length") != "0", "{head:?}");
    for (method, by) in [("POST", true), ("PUT", false), ("DELETE", true), ("OPTIONS", true)] {
        let path = if by { "/seen" } else { "/body" };
        served.request(method, path).send().await.expect(200);
    }
    let large: Vec<u8> = (0..20_000_000_u32).map(|n| n.to_le_bytes()[1]).collect();
    let digest: String = Sha256::digest(&large).iter().map(|byte| format!("{byte:02x}")).collect();
    let taken = served.request("POST", "/body").body(large).send().await.expect(200).json();
    assert_eq!(taken, json!({ "length": 20_000_000, "sha256": digest }));
    // In pieces, after the daemon has told the client to continue.
    let mut raw = TcpStream::connect(served.addr()).await.expect("a connection");
    let head = format!(
        "POST {}/body HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nTransfer-Encoding: chunked\r\n\r\n",
        served.prefix()
    );
    raw.write_all(head.as_bytes()).await.expect("it is read");
    read_until(&mut raw, "HTTP/1.1 100 Continue\r\n\r\n").await;
    raw.write_all(b"3\r\nabc\r\n0\r\n\r\n").await.expect("it is read");
    assert!(read_until(&mut raw, "}").await.contains("\"length\": 3"));
    // Hints before an answer are dropped, and trailers pass.
    let head = format!("GET {}/trailers HTTP/1.1\r\nHost: x\r\nTE: trailers\r\n\r\n", served.prefix());
    raw.write_all(head.as_bytes()).await.expect("it is read");
    let answer = read_until(&mut raw, "5\r\n\r\n").await.to_ascii_lowercase();
    assert!(answer.starts_with("http/1.1 200") && answer.contains("\r\n0\r\nx-sum: 5\r\n"), "{answer}");

    for (path, code) in [("/garbage", "bad_answer")] {
        assert_eq!(served.get(path).await.expect(502).json()["error"], code);
    }
    for cut in ["/cut", "/reset"] {
        assert!(served.request("GET", cut).try_send().await.is_none(), "{cut}: it is no whole body");
    }
    assert_eq!(served.get("/reset?not").await.expect(200).text(), "only this");
    served.get("/").await.expect(200);
    d.stop().await;
}

/// Reads until this text has come.
async fn read_until(stream: &mut TcpStream, end: &str) -> String {
    let reading = async {
        let mut text = String::new();
        let mut buffer = [0; 4096];
        while !text.contains(end) {
            let read = stream.read(&mut buffer).await.expect("bytes");
            assert!(read > 0, "it ended after {text:?}");
            text += &String::from_utf8_lossy(&buffer[..read]);
        }
        text
    };
    within(PATIENCE, end, reading).await
}

#[tokio::test]
async fn a_client_that_does_not_read_holds_the_server_back() {
    const ALL: u64 = 200_000_000;
    let d = daemon().start().await;
    let served = listening(&d, &d.session("s"), &serve("")).await;
    let mut raw = TcpStream::connect(served.addr()).await.expect("a connection");
    let head = format!("GET {}/big?{ALL} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", served.prefix());
    raw.write_all(head.as_bytes()).await.expect("it is read");
    let sent = async || served.get("/sent").await.text().parse::<u64>().expect("a number");
    let still = async {
        let mut before = 0;
        loop {
            tokio::time::sleep(std::time::Duration::from_millis(300)).await;
            match sent().await {
                now if now == before && now > 0 => return now,
                now => before = now,
            }
        }
    };
    let held = within(PATIENCE, "a server that stands still", still).await;
    assert!(held < ALL / 4, "{held} bytes were sent to a client that reads none");
    let mut all = 0;
    let mut buffer = vec![0; 1 << 20];
    let reading = async {
        loop {
            match raw.read(&mut buffer).await.expect("bytes") {
                0 => return,
                read => all += read as u64,
            }
        }
    };
    within(PATIENCE * 2, "the rest", reading).await;
    assert!(all > ALL && all < ALL + 2000, "{all}");
    // A client that goes away ends the server's work.
    let mut raw = TcpStream::connect(served.addr()).await.expect("a connection");
    raw.write_all(head.as_bytes()).await.expect("it is read");
    raw.read_exact(&mut [0; 1000]).await.expect("the beginning");
    drop(raw);
    served.get("/").await.expect(200);
    d.stop().await;
}

/// Changes the protocol of a new connection to the server's `raw`.
pub(crate) async fn raw_protocol(addr: SocketAddr, path: &str, token: Option<&str>) -> TcpStream {
    let mut raw = TcpStream::connect(addr).await.expect("a connection");
    let token = token.map(|token| format!("Authorization: Bearer {token}\r\n")).unwrap_or_default();
    let head =
        format!("GET {path} HTTP/1.1\r\nHost: {addr}\r\n{token}Connection: Upgrade\r\nUpgrade: raw\r\n\r\n");
    raw.write_all(head.as_bytes()).await.expect("it is read");
    let head = read_until(&mut raw, "\r\n\r\n").await.to_ascii_lowercase();
    assert!(head.starts_with("http/1.1 101") && head.contains("upgrade: raw\r\n"), "{head}");
    raw
}

#[tokio::test]
async fn a_changed_protocol_carries_bytes_both_ways_to_the_last() {
    let d = daemon().start().await;
    let served = listening(&d, &d.session("s"), &serve("")).await;
    let by_link = raw_protocol(served.addr(), &format!("{}/raw", served.prefix()), None).await;
    let by_token = raw_protocol(d.addr, "/ports/s/8000/raw", Some(TOKEN)).await;
    for mut raw in [by_link, by_token] {
        raw.write_all(b"hello").await.expect("it is read");
        let mut back = [0; 5];
        within(PATIENCE, "an echo", raw.read_exact(&mut back)).await.expect("an echo");
        assert_eq!(&back, b"hello");
        let (mut from, mut to) = raw.split();
        let sending = async {
            to.write_all(&vec![7; 3_000_000]).await.expect("it is read");
            to.shutdown().await.expect("a half-close");
        };
        let receiving = async {
            let mut all = Vec::new();
            from.read_to_end(&mut all).await.expect("bytes");
            all
        };
        let ((), all) = within(PATIENCE, "the end", async { tokio::join!(sending, receiving) }).await;
        assert_eq!((all.len(), &all[3_000_000..]), (3_000_003, &b"bye"[..]));
    }
    d.stop().await;
}

#[tokio::test]
async fn links_outlive_a_crash_of_the_daemon_and_connections_do_not() {
    let d = daemon().start().await;
    let served = listening(&d, &d.session("s"), &serve("")).await;
    let mut raw = raw_protocol(served.addr(), &format!("{}/raw", served.prefix()), None).await;
    let addr = served.addr().to_string();
    let store = d.crash().await;
    let mut rest = Vec::new();
    let _ = within(PATIENCE, "the end of the connection", raw.read_to_end(&mut rest)).await;
    assert!(rest.is_empty(), "{rest:?}");
    let d = Daemon::with().set("ports.addr", addr).store(&store).start().await;
    let seen = served.get("/seen").await.expect(200).json();
    assert_eq!(seen["path"], "/seen");
    raw_protocol(served.addr(), &format!("{}/raw", served.prefix()), None).await;
    // The event is there once, and the port is still listed.
    let asked = json!({ "execution_id": served.execution, "since": 0 });
    let page = d.tool("get_execution_output", asked).await.document;
    let events = page["output"].as_array().expect("events").iter();
    assert_eq!(events.filter(|event| event["type"] == "port").count(), 1, "{page}");
    assert_eq!(page["ports"][0]["port"], json!(served.port), "{page}");
    // The end of the session ends its connections.
    let mut raw = raw_protocol(served.addr(), &format!("{}/raw", served.prefix()), None).await;
    d.tool("close_session", json!({ "session_id": "s" })).await;
    let _ = within(PATIENCE, "the end of the connection", raw.read_to_end(&mut rest)).await;
    d.stop().await;
}

#[tokio::test]
async fn servers_of_other_kinds_are_told_of_and_reached() {
    let d = daemon().set("exec.runner", "typescript").start().await;
    let s = d.session("s");
    let node = "exec node -e \"require('node:http').createServer((q, a) => { a.setHeader('x-node', q.url); \
                a.end('node') }).listen(3000)\"";
    let served = listening(&d, &s, node).await;
    let answer = served.get("/a?b").await.expect(200);
    assert_eq!((answer.text().as_str(), answer.header("x-node").as_str()), ("node", "/a?b"));
    assert_eq!(served.port, 3000);
    d.stop().await;
    // Without a listener of ports, what is told needs the token.
    let d = Daemon::start().await;
    let s = d.session("s");
    let served = listening(&d, &s, &serve("8000 0.0.0.0")).await;
    assert_eq!(served.link, format!("{}/ports/s/8000", d.url));
    d.request("GET", "/ports/s/8000/").send().await.expect(200);
    d.link("GET", &format!("{}/", served.link)).send().await.expect(401);
    // Each port once, whatever a program does with its sockets; a file of sockets is none.
    let many = "python3 -c \"
import socket, time
for n in range(3):
    for port in (9001, 9002):
        s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        s.bind(('127.0.0.1', port)); s.listen(); time.sleep(0.2); s.close()
u = socket.socket(socket.AF_UNIX); u.bind('/tmp/u'); u.listen()
o = socket.socket(); o.bind(('127.0.0.2', 9003)); o.listen()
time.sleep(0.5)
print('over')
\"";
    let ran = s.tool("execute_code").with("command", many).await;
    let events = ran.document["output"].as_array().expect("events").iter();
    let mut ports: Vec<_> =
        events.filter(|event| event["type"] == "port").map(|event| &event["port"]).collect();
    ports.sort_by_key(|port| port.as_u64());
    assert_eq!(ports, [&json!(9001), &json!(9002)], "{}", ran.document);
    d.stop().await;
}
