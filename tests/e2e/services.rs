//! Services: programs use them with credentials that are nowhere in their containers, nor in what anybody is
//! told.

#[path = "services/stub.rs"]
pub(crate) mod stub;

use std::io::{Read, Seek, SeekFrom};
use std::process::Command;

use http::Version;
use serde_json::{Value, json};

use self::stub::Stub;
use crate::support::{Daemon, PATIENCE, Ran, Request, Setup, within};

/// The credential. Nothing of this test but the daemon and the stub knows it; programs are given no part.
const KEY: &str = "sk-e2e-7f3a9b24c5d6e8f0";

fn table(pairs: &[(&str, &str)]) -> toml::Table {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).into())).collect()
}

/// A service for these callers.
fn service(name: &str, url: &str, tenants: &[&str]) -> toml::Table {
    let mut service = table(&[("name", name), ("url", url)]);
    service.insert(
        "headers".into(),
        table(&[("Authorization", "Bearer env:STUB_KEY"), ("X-Plan", "basic")]).into(),
    );
    service.insert("tenants".into(), tenants.to_vec().into());
    service
}

/// A daemon without any network but the service `api`.
fn daemon(url: &str) -> Setup {
    Daemon::with()
        .set("egress.mode", "none")
        .set("egress.services", vec![service("api", url, &["default"])])
        .env("STUB_KEY", KEY)
}

fn api() -> Value {
    json!({ "services": ["api"] })
}

fn plain(stub: &Stub) -> Setup {
    daemon(&format!("http://127.0.0.1:{}/v1/", stub.port))
}

#[track_caller]
fn entry<'a>(ran: &'a Ran, host: &str) -> &'a Value {
    let all = ran.document["network"].as_array().expect("`network`");
    all.iter().find(|entry| entry["host"] == host).unwrap_or_else(|| panic!("{host} is not in {all:?}"))
}

#[tokio::test]
async fn programs_of_every_kind_use_a_service_with_a_credential_that_they_do_not_have() {
    let stub = Stub::plain().await;
    let d = plain(&stub).start().await;
    let s = d.session("s");
    let ran = s
        .python(
            "import requests, urllib.request, os
r = requests.post('http://api.paddock/items?a=1&b=%2F..%2F', data=b'x' * 100000,
    headers={'Authorization': 'Bearer mine', 'X-Plan': 'gold', 'X-Forwarded-For': '1.1.1.1', 'X-Own': 'yes'})
print(r.status_code, r.text)
def pieces():
    for _ in range(10): yield b'y' * 1000
print(requests.put('http://api.paddock/streamed', data=pieces()).text)
for name in ('http_proxy', 'HTTP_PROXY'): os.environ.pop(name, None)
print(urllib.request.urlopen('http://API.paddock./direct').read().decode())",
        )
        .with("network", api())
        .await;
    ran.expect_stdout("200 POST /v1/items 100000\nPUT /v1/streamed 10000\nGET /v1/direct 0\n");
    let seen = stub.seen();
    assert_eq!(seen.len(), 3, "{seen:?}");
    for request in &seen {
        assert_eq!(request.header("authorization"), format!("Bearer {KEY}"));
        assert_eq!(request.headers.get_all("authorization").iter().count(), 1, "{request:?}");
        assert_eq!((request.header("x-plan"), request.header("accept-encoding")), ("basic", "identity"));
        assert_eq!(request.header("host"), format!("127.0.0.1:{}", stub.port));
        let others = ["x-forwarded-for", "proxy-authorization", "proxy-connection", "connection"];
        assert!(others.iter().all(|name| !request.headers.contains_key(*name)), "{request:?}");
    }
    assert_eq!((seen[0].line.as_str(), seen[0].header("x-own")), ("POST /v1/items?a=1&b=%2F..%2F", "yes"));
    assert_eq!((seen[0].body, seen[1].body), (100_000, 10_000));

    let node = "const r = await fetch('http://api.paddock/node', { method: 'POST', body: 'abc' });
console.log(r.status, await r.text());";
    s.typescript(node).with("network", api()).await.expect_stdout("200 POST /v1/node 3\n");
    assert_eq!(stub.last().header("authorization"), format!("Bearer {KEY}"));

    // A command, through the proxy of its environment and without it; and what was counted.
    let config = json!({ "network": { "services": ["api"] } });
    let get = "import urllib.request as u; print(u.urlopen('http://api.paddock/";
    let command = format!(
        "python3 -c \"{get}proxied').read().decode())\"; unset http_proxy HTTP_PROXY; \
         python3 -c \"{get}bare').read().decode())\""
    );
    let ran = s.tool("execute_code").with("command", command).with("sandbox_config", config).await;
    assert!(ran.said.contains("GET /v1/proxied 0") && ran.said.contains("GET /v1/bare 0"), "{}", ran.said);
    let counted = entry(&ran, "api.paddock");
    assert_eq!((&counted["port"], &counted["allowed"]), (&json!(80), &json!(true)), "{counted}");
    assert!(
        counted["bytes_in"].as_u64() > Some(100) && counted["bytes_out"].as_u64() > Some(50),
        "{counted}"
    );
    let metrics = d.request("GET", "/metrics").send().await.expect(200).text();
    assert!(metrics.contains("paddock_egress_service_requests_total{outcome=\"answered\"} 6"), "{metrics}");
    d.stop().await;
}

/// Looks for a text in the memory and the environment of each process of a container, from outside.
fn expect_not_in_memory(container: &str, text: &str) {
    let mut processes = 0;
    for entry in std::fs::read_dir("/proc").expect("/proc").flatten() {
        let path = entry.path();
        let cgroup = std::fs::read_to_string(path.join("cgroup")).unwrap_or_default();
        if !cgroup.contains(container) {
            continue;
        }
        processes += 1;
        let environ = std::fs::read(path.join("environ")).unwrap_or_default();
        assert!(memchr::memmem::find(&environ, text.as_bytes()).is_none(), "{}", path.display());
        let maps = std::fs::read_to_string(path.join("maps")).unwrap_or_default();
        let Ok(mut memory) = std::fs::File::open(path.join("mem")) else { continue };
        for line in maps.lines().filter(|line| line.contains(" rw")) {
            let range = line.split(' ').next().and_then(|range| range.split_once('-')).expect("a range");
            let number = |text| u64::from_str_radix(text, 16).expect("a number");
            let (from, to) = (number(range.0), number(range.1));
            if to - from > 1 << 28 || memory.seek(SeekFrom::Start(from)).is_err() {
                continue;
            }
            let mut bytes = Vec::new();
            let _ = (&memory).take(to - from).read_to_end(&mut bytes);
            let found = memchr::memmem::find(&bytes, text.as_bytes());
            assert!(found.is_none(), "in the memory of {}: {line}", path.display());
        }
    }
    assert!(processes > 0, "no process of {container}");
}

#[tokio::test]
async fn the_credential_is_nowhere_but_at_the_service() {
    let stub = Stub::plain().await;
    let d = plain(&stub).set("log.level", "trace").start().await;
    let s = d.session("s");
    // The service tells it back, in a header and in a body that is cut after each byte.
    let code = "import glob, os, requests
r = requests.get('http://api.paddock/echo')
open('/data/got', 'w').write(r.text + repr(r.headers))
print(r.headers['x-echo'], r.text)
r = requests.get('http://api.paddock/whole')
print(r.headers['content-length'], r.text)
r = requests.get('http://api.paddock/redirect', allow_redirects=False)
print(r.status_code, r.headers['location'])
print(requests.get('http://api.paddock/redirect').url)
r = requests.get('http://api.paddock/gzip')
print(r.status_code, r.json()['error'])
shown = glob.glob('/proc/*/environ') + glob.glob('/proc/*/cmdline')
texts = [open(p, 'rb').read() for p in shown if os.access(p, os.R_OK)]
for top in ('/data', '/tmp', '/etc', '/dev/shm', '/run'):
    for folder, _, names in os.walk(top):
        for name in names:
            try: texts.append(open(os.path.join(folder, name), 'rb').read(1 << 20))
            except OSError: pass
print(sum(('e2e-7f3a' + '9b24').encode() in text for text in texts), len(texts) > 10)
";
    let ran = s.python(code).with("network", api()).await.expect_success();
    let stars = "*".repeat(KEY.len());
    let expected = format!(
        "Bearer {stars} <Bearer {stars}> and {{\"key\":\"{stars}\"}}\n{} Bearer {stars}.\n302 \
         http://api.paddock/whole?again=1\nhttp://api.paddock/whole?again=1\n502 unreadable_answer\n0 True\n",
        KEY.len() + 8
    );
    assert_eq!(ran.stdout(), expected);
    assert!(stub.seen().iter().all(|request| request.header("authorization").ends_with(KEY)));
    let container = d.view().await.the_container("python").await;
    expect_not_in_memory(container.as_str(), KEY);
    let copied = Command::new("docker").args(["export", container.as_str()]).output().expect("docker");
    assert!(copied.status.success() && copied.stdout.len() > 1 << 20, "{copied:?}");
    assert!(memchr::memmem::find(&copied.stdout, KEY.as_bytes()).is_none(), "a file of the container has it");
    let inspected = Command::new("docker").args(["inspect", container.as_str()]).output().expect("docker");
    for (what, text) in [
        ("the answer", format!("{:?}", ran)),
        ("inspect", String::from_utf8_lossy(&inspected.stdout).into_owned()),
        ("metrics", d.request("GET", "/metrics").send().await.expect(200).text()),
        ("status", d.request("GET", "/status").send().await.expect(200).text()),
    ] {
        assert!(!text.contains(KEY) && text.len() > 100, "{what}: {text}");
    }
    let store = d.store.clone();
    let log = d.stop().await.text();
    let told: Vec<&str> = log.lines().filter(|line| line.contains("7f3a9b24")).collect();
    assert!(told.is_empty(), "the log has it: {told:?}");
    assert!(log.len() > 2000, "a log at the level `trace` has {} bytes", log.len());
    let found = Command::new("grep").args(["-rlaF", KEY]).arg(store.path()).output().expect("grep");
    assert_eq!(String::from_utf8_lossy(&found.stdout), "", "the store has it");
}

/// Sends bytes to the service by hand, and prints the first line of the answer and its JSON.
const RAW: &str = r#"
import json, socket, sys
for line in sys.stdin.read().splitlines():
    s = socket.create_connection(('api.paddock', 80))
    s.sendall(json.loads(line).encode('latin-1')); s.shutdown(socket.SHUT_WR)
    got = b''.join(iter(lambda: s.recv(65536), b'')).decode()
    body = got.split('\r\n\r\n', 1)[-1]
    message = json.loads(body)['message'] if body.startswith('{') else ''
    print(got.split(' ')[1] if got else 'nothing', message)
"#;

#[tokio::test]
async fn a_path_that_climbs_and_a_request_that_is_smuggled_are_never_sent() {
    let stub = Stub::plain().await;
    let d = plain(&stub).start().await;
    let get =
        |target: &str| format!("GET {target} HTTP/1.1\r\nHost: api.paddock\r\nConnection: close\r\n\r\n");
    let mut tries: Vec<String> = [
        "/../admin",
        "/a/../../admin",
        "/%2e%2e/admin",
        "/%2F..",
        "/..%2f..%2fadmin",
        "/%252e%252e/admin",
        "/..%5cadmin",
        "/..;/admin",
        "//other.example/",
        "/%2f%2fother.example/",
        "http://other.example/",
        "http://api.paddock/items",
        "*",
        "/%c0%ae%c0%ae/",
    ]
    .map(get)
    .to_vec();
    let host = |name: &str| format!("GET /ok HTTP/1.1\r\nHost: {name}\r\nConnection: close\r\n\r\n");
    tries.extend(["other.paddock", "127.0.0.1", "api.paddock\r\nHost: api.paddock"].map(host));
    tries.push("GET /ok HTTP/1.1\r\nConnection: close\r\n\r\n".into());
    tries.push("CONNECT other.example:80 HTTP/1.1\r\nHost: other.example:80\r\n\r\n".into());
    tries.push("TRACE /ok HTTP/1.1\r\nHost: api.paddock\r\nConnection: close\r\n\r\n".into());
    let head = "POST /ok HTTP/1.1\r\nHost: api.paddock\r\n";
    for smuggled in [
        "Content-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef",
        "Content-Length: 5, 6\r\n\r\nabcdef",
        "Content-Length: +5\r\n\r\nabcde",
        "Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
        "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
        "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
    ] {
        tries.push(format!("{head}{smuggled}"));
    }
    let lines: Vec<String> = tries.iter().map(|text| json!(text).to_string()).collect();
    let s = d.session("s");
    let ran = s.python(RAW).stdin(&lines.join("\n")).with("network", api()).await.expect_success();
    let answers: Vec<&str> = ran.stdout().lines().collect();
    assert_eq!(answers.len(), tries.len(), "{}", ran.stdout());
    for (asked, got) in tries.iter().zip(&answers) {
        assert!(got.starts_with("400 "), "{asked:?} gave {got}");
    }
    assert!(answers[0].contains("a segment of dots") && answers[14].contains("Host"), "{answers:?}");
    assert!(stub.seen().is_empty(), "{:?}", stub.seen());
    // Both lengths: one request, and what follows its end is another one, or none.
    let both = format!("{head}Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n");
    let sent = json!(both).to_string();
    s.python(RAW).stdin(&sent).with("network", api()).await.expect_success();
    for request in stub.seen() {
        assert_eq!((request.body, request.header("content-length")), (0, ""), "{request:?}");
    }
    let metrics = d.request("GET", "/metrics").send().await.expect(200).text();
    assert!(metrics.contains("paddock_egress_service_requests_total{outcome=\"refused\"}"), "{metrics}");
    assert!(d.log.text().contains("a request to a service has no answer"));
    d.stop().await;
}

#[tokio::test]
async fn events_of_a_stream_arrive_one_by_one() {
    let stub = Stub::plain().await;
    let d = plain(&stub).start().await;
    // The service sends the second event when the program, which has read the first, asks for it.
    let code = "import requests
r = requests.get('http://api.paddock/events', stream=True, timeout=20)
for line in r.iter_lines(chunk_size=1):
    if line: print(line.decode(), flush=True)
    if b'first' in line: print(requests.get('http://api.paddock/next').text)";
    let ran = d.run("python", code).with("network", api()).await;
    ran.expect_stdout("data: first\nnext\ndata: second\n");
    d.stop().await;
}

#[tokio::test]
async fn a_run_has_the_services_of_its_caller_and_the_calls_own() {
    let stub = Stub::plain().await;
    let url = format!("http://127.0.0.1:{}/v1", stub.port);
    let services = vec![
        service("api", &url, &["default"]),
        service("other", &url, &["alice"]),
        service("all", &url, &["*"]),
    ];
    let tokens = vec![table(&[
        ("name", "alice"),
        ("sha256", "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"), // of "test"
    ])];
    let d = daemon(&url)
        .set("egress.services", services)
        .set("egress.requests", 2)
        .set("auth.tokens", tokens)
        .start()
        .await;
    let of = |name: &str| json!({ "services": [name] });
    for (name, may) in [("other", "all, api"), ("nothing", "all, api"), ("API", "lower case")] {
        let refused = d.run("sh", "true").with("network", of(name)).await.expect_error("invalid_argument");
        assert!(refused.said.contains(name) && refused.said.contains(may), "{}", refused.said);
    }
    let refused = d.run("sh", "true").with("network", of("api")).bearer("test").await;
    assert!(refused.said.contains("it may use all, other"), "{}", refused.said);
    let get = "import sys, urllib.request
for url in sys.stdin.read().split():
    try: print(urllib.request.urlopen(url, timeout=20).read().decode())
    except OSError as e: print(type(e).__name__, e)";
    let urls = "http://other.paddock/a";
    let ran = d.run("python", get).stdin(urls).with("network", of("other")).bearer("test").await;
    ran.expect_stdout("GET /v1/a 0\n");
    // Another one, other ports, and one request more than there may be.
    let urls = "http://other.paddock/a http://api.paddock:8080/ https://api.paddock/ http://api.paddock/1 \
                http://api.paddock/2 http://api.paddock/3";
    let ran = d.run("python", get).stdin(urls).with("network", api()).await.expect_success();
    let lines: Vec<&str> = ran.stdout().lines().collect();
    assert!(lines[0].contains("403") && lines[1].contains("403") && lines[2].contains("403"), "{lines:?}");
    assert_eq!(&lines[3..5], ["GET /v1/1 0", "GET /v1/2 0"], "{lines:?}");
    assert!(lines[5].contains("429"), "{lines:?}");
    assert_eq!(entry(&ran, "other.paddock")["reason"], "not in network.services of the call");
    let reasons: Vec<String> = ran.document["network"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|one| format!("{} {}", one["port"], one["reason"].as_str().unwrap_or_default()))
        .collect();
    let is_told =
        |port: &str, what: &str| reasons.iter().any(|one| one.starts_with(port) && one.contains(what));
    assert!(is_told("443 ", "by http://") && is_told("8080 ", "port 80"), "{reasons:?}");
    assert!(is_told("80 ", "as many requests"), "{reasons:?}");
    assert_eq!(stub.seen().len(), 3, "{:?}", stub.seen());
    d.stop().await;

    // Without tokens everybody is `default`.
    let d = daemon(&url).without_token().start().await;
    let params = json!({ "name": "run_code", "arguments": {
        "language": "python", "code": get, "stdin": "http://api.paddock/open", "network": api() } });
    let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
    let answer =
        Request::new(d.addr, "POST", "/mcp").set("accept", "application/json").json(&call).send().await;
    Ran::of(answer.json()).expect_stdout("GET /v1/open 0\n");
    d.stop().await;
}

#[tokio::test]
async fn a_service_over_tls_is_verified_and_speaks_http_2() {
    let folder = tempfile::TempDir::new().expect("a folder");
    let openssl = |words: &str| {
        let done = Command::new("openssl").args(words.split(' ')).current_dir(folder.path()).output();
        assert!(done.expect("openssl").status.success(), "{words}");
    };
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
    openssl(&format!("req -x509 {key} -keyout authority.key -out ca.pem -days 2 -subj /CN=authority"));
    std::fs::write(folder.path().join("names"), "subjectAltName = DNS:stub.example\n").expect("a file");
    openssl(&format!("req -new {key} -keyout key.pem -out asked -subj /CN=stub"));
    openssl(
        "x509 -req -in asked -CA ca.pem -CAkey authority.key -CAcreateserial -days 2 -extfile names \
         -out cert.pem",
    );
    let stub = Stub::encrypted(folder.path()).await;
    let url = format!("https://stub.example:{}/v1", stub.port);
    let ca = folder.path().join("ca.pem").display().to_string();
    let setup = || daemon(&url).set("egress.hosts", table(&[("stub.example", "127.0.0.1")]));
    let get = "import requests
r = requests.get('http://api.paddock/echo'); print(r.status_code, r.text)";
    let d = setup().env("SSL_CERT_FILE", &ca).start().await;
    let ran = d.run("python", get).with("network", api()).await.expect_success();
    let stars = "*".repeat(KEY.len());
    assert_eq!(ran.stdout(), format!("200 <Bearer {stars}> and {{\"key\":\"{stars}\"}}\n"));
    let seen = stub.last();
    assert_eq!((seen.version, seen.header("authorization")), (Version::HTTP_2, &*format!("Bearer {KEY}")));
    d.stop().await;

    // Without the authority nothing is sent, and the program is told no more than that.
    let d = setup().env("SSL_CERT_FILE", "/etc/ssl/certs/ca-certificates.crt").start().await;
    let ran = d.run("python", get).with("network", api()).await.expect_success();
    assert!(
        ran.stdout().starts_with("502 ") && ran.stdout().contains("service_unreachable"),
        "{}",
        ran.stdout()
    );
    assert_eq!(stub.seen().len(), 1);
    d.stop().await;
}

#[tokio::test]
async fn a_key_that_is_missing_stops_the_start_and_one_that_is_rotated_is_used() {
    let stub = Stub::plain().await;
    let url = format!("http://127.0.0.1:{}/v1", stub.port);
    let refused =
        Daemon::with().set("egress.services", vec![service("api", &url, &["default"])]).refusal().await;
    assert!(refused.said.contains("egress.services[0].headers.Authorization"), "{}", refused.said);
    assert!(refused.said.contains("\"STUB_KEY\", which is not set"), "{}", refused.said);
    let folder = tempfile::TempDir::new().expect("a folder");
    let path = folder.path().join("key");
    let mut api_service = service("api", &url, &["default"]);
    let reference = format!("Bearer file:{}", path.display());
    api_service.insert("headers".into(), table(&[("Authorization", &reference)]).into());
    let setup = || Daemon::with().set("egress.services", vec![api_service.clone()]);
    let refused = setup().refusal().await;
    assert!(
        refused.said.contains("headers.Authorization") && refused.said.contains("not found"),
        "{}",
        refused.said
    );

    std::fs::write(&path, "first-e2e-credential\n").expect("a file");
    let d = setup().start().await;
    let s = d.session("s");
    let get = "import requests\nr = requests.get('http://api.paddock/whole'); print(r.status_code, r.text)";
    let stars = "*".repeat(20);
    s.python(get).with("network", api()).await.expect_stdout(&format!("200 Bearer {stars}.\n"));
    assert_eq!(stub.last().header("authorization"), "Bearer first-e2e-credential");
    std::fs::write(folder.path().join("new"), "other-e2e-credential\n").expect("a file");
    std::fs::rename(folder.path().join("new"), &path).expect("a rename");
    s.python(get).with("network", api()).await.expect_stdout(&format!("200 Bearer {stars}.\n"));
    assert_eq!(stub.last().header("authorization"), "Bearer other-e2e-credential");
    std::fs::remove_file(&path).expect("a file");
    let ran = s.python(get).with("network", api()).await.expect_success();
    assert!(ran.stdout().starts_with("502 ") && ran.stdout().contains("no_credential"), "{}", ran.stdout());
    d.stop().await;
}

#[tokio::test]
async fn a_run_of_a_killed_daemon_keeps_its_services() {
    let stub = Stub::plain().await;
    let d = plain(&stub).start().await;
    let s = d.session("s");
    let command = "python3 -uc \"
import socket, time, urllib.request
s = socket.create_connection(('api.paddock', 80))
print('connected')
try: print('read', s.recv(1))
except OSError as e: print('broken')
print(urllib.request.urlopen('http://api.paddock/again').read())
\"";
    let config = json!({ "network": { "services": ["api"] } });
    let begun = s.tool("execute_code_async").with("command", command).with("sandbox_config", config).await;
    let id = begun.text("execution_id").to_owned();
    let read = |d: &Daemon| {
        let arguments = json!({ "execution_id": id, "wait": true, "since": 0 });
        let params = json!({ "name": "get_execution_output", "arguments": arguments });
        let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
        let request = d.request("POST", "/mcp").set("accept", "application/json").json(&call);
        async move { Ran::of(request.send().await.json()) }
    };
    let connected = async { while !read(&d).await.document.to_string().contains("connected") {} };
    within(PATIENCE, "a connection", connected).await;
    let store = d.crash().await;
    let d = plain(&stub).store(&store).start().await;
    let ended = async {
        loop {
            let page = read(&d).await;
            if page.document["status"] != "running" {
                return page;
            }
        }
    };
    let page = within(PATIENCE, "the end", ended).await;
    assert!(page.document.to_string().contains("GET /v1/again 0"), "{}", page.document);
    assert_eq!(stub.last().header("authorization"), format!("Bearer {KEY}"));
    d.stop().await;
}
