//! TLS of the daemon's own listeners, with curl as the client that verifies: everything is reached by https
//! and nothing without; the files are read again when they change; slow handshakes hold nobody up.

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::doctor::Look;
use super::tls::Authority;
use crate::support::{Daemon, PATIENCE, Request, Setup, TOKEN, within};

const EXTENSIONS: &str = "subjectAltName = IP:127.0.0.1\nextendedKeyUsage = serverAuth\n";

/// A daemon with the certificate in this folder.
fn daemon(folder: &Path) -> Setup {
    Daemon::with()
        .set("http.tls_certificate", folder.join("cert.pem").display().to_string())
        .set("http.tls_key", folder.join("key.pem").display().to_string())
}

/// What curl prints, or its exit code.
fn curl(ca: &Path, more: &[&str]) -> Result<String, i32> {
    let mut curl = Command::new("curl");
    curl.args(["-sS", "--max-time", "60", "--cacert"]).arg(ca).args(more);
    let done = curl.output().expect("curl");
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    if done.status.success() { Ok(said) } else { Err(done.status.code().expect("an exit code")) }
}

/// A call of a tool.
fn call(d: &Daemon, ca: &Path, tool: &str, arguments: &Value) -> Value {
    let params = json!({ "name": tool, "arguments": arguments });
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params }).to_string();
    let (bearer, url) = (format!("authorization: Bearer {TOKEN}"), format!("{}/mcp", d.url));
    let kind = "content-type: application/json";
    let said = curl(ca, &["-H", &bearer, "-H", kind, "--data-binary", &body, &url]).expect("an answer");
    let answer: Value = serde_json::from_str(&said).expect("JSON");
    answer["result"]["structuredContent"].clone()
}

/// The value of a metric.
fn metric(d: &Daemon, ca: &Path, name: &str) -> f64 {
    let (bearer, url) = (format!("authorization: Bearer {TOKEN}"), format!("{}/metrics", d.url));
    let text = curl(ca, &["-H", &bearer, &url]).expect("metrics");
    let line = text.lines().find_map(|line| line.strip_prefix(&format!("{name} ")));
    line.unwrap_or_else(|| panic!("no {name} in {text}")).parse().expect("a number")
}

#[tokio::test]
async fn with_a_certificate_everything_is_reached_by_tls_and_nothing_without() {
    let authority = Authority::new();
    let folder = authority.folder("server", EXTENSIONS);
    let ca = authority.path("ca.pem");
    let d = daemon(&folder).set("ports.addr", "127.0.0.1:0").start().await;
    assert_eq!(d.url, format!("https://{}", d.addr));

    let code = "echo hello > out.txt; cat out.txt";
    let ran = call(&d, &ca, "run_code", &json!({ "language": "sh", "code": code, "session_id": "s" }));
    assert_eq!(ran["stdout"], "hello\n", "{ran}");
    let link = ran["files"][0]["url"].as_str().unwrap_or_else(|| panic!("a link in {ran}"));
    assert!(link.starts_with(&d.url), "{link}");
    assert_eq!(curl(&ca, &[link]).as_deref(), Ok("hello\n"));
    // Its own pages may call, and those of the same address without TLS may not.
    let asks = |origin: &str| {
        let origin = format!("origin: {origin}");
        let health = format!("{}/health", d.url);
        curl(&ca, &["-o", "/dev/null", "-w", "%{http_code}", "-H", &origin, &health]).expect("an answer")
    };
    assert_eq!((asks(&d.url), asks(&d.url.replace("https", "http"))), ("200".into(), "403".into()));

    // A link to a port is https too.
    let command =
        "mkdir -p /tmp/w; echo page > /tmp/w/index.html; cd /tmp/w; exec python3 -m http.server 8000";
    let begun = call(&d, &ca, "execute_code_async", &json!({ "command": command }));
    let execution = begun["execution_id"].as_str().unwrap_or_else(|| panic!("{begun}")).to_owned();
    let mut since = 0;
    let port = loop {
        let asked = json!({ "execution_id": execution, "wait": true, "since": since });
        let page = call(&d, &ca, "get_execution_output", &asked);
        let events = page["output"].as_array().unwrap_or_else(|| panic!("{page}"));
        if let Some(event) = events.iter().find(|event| event["type"] == "port") {
            break event["url"].as_str().expect("a link").to_owned();
        }
        assert_eq!(page["status"], "running", "{page}");
        since = page["next_since"].as_u64().expect("a number");
    };
    assert!(port.starts_with("https://127.0.0.1:"), "{port}");
    assert_eq!(curl(&ca, &[&port]).as_deref(), Ok("page\n"));

    // Without TLS, with an older version of it, or without trust in the authority, there is nothing.
    let plain = Request::new(d.addr, "GET", "/health").send().await.expect(400).json();
    assert_eq!(plain["error"]["code"], "tls_required", "{plain}");
    let health = format!("{}/health", d.url);
    assert!(curl(&ca, &["--tls-max", "1.1", &health]).is_err());
    assert!(curl(&ca, &["--tls-max", "1.2", &health]).is_ok() && curl(&ca, &["--tlsv1.3", &health]).is_ok());
    assert_eq!(curl(&Authority::new().path("ca.pem"), &[&health]), Err(60));
    assert!(metric(&d, &ca, r#"paddock_tls_handshakes_total{outcome="plain"}"#) >= 1.0);
    assert!(metric(&d, &ca, r#"paddock_tls_handshakes_total{outcome="failed"}"#) >= 2.0);

    // The terminal needs no certificate: it uses the socket in the store.
    d.stop().await;
}

#[tokio::test]
async fn a_changed_certificate_is_used_and_a_broken_one_is_not() {
    let first = Authority::new();
    let folder = first.folder("server", EXTENSIONS);
    let d = daemon(&folder).start().await;
    let health = format!("{}/health", d.url);
    let (old, second) = (first.path("ca.pem"), Authority::new());
    let new = second.path("ca.pem");
    assert_eq!((curl(&old, &[&health]).is_ok(), curl(&new, &[&health])), (true, Err(60)));

    // One file after the other, as most programs replace them.
    let mark = d.log.mark();
    let renewed = second.folder("server", EXTENSIONS);
    let renewed = |name: &str| std::fs::read(renewed.join(name)).expect("a file");
    // A file is replaced as a whole, because the daemon may look at any moment.
    let replace = |name: &str, content: &[u8]| {
        let beside = folder.join("beside");
        std::fs::write(&beside, content).expect("a file");
        std::fs::rename(&beside, folder.join(name)).expect("a rename");
    };
    replace("cert.pem", &renewed("cert.pem"));
    d.log.line_since(mark, "the key is not that of the certificate").await;
    assert!(curl(&old, &[&health]).expect("the old one still serves").contains("previous one"));
    replace("key.pem", &renewed("key.pem"));
    d.log.line_since(mark, "the new TLS certificate is in use").await;
    assert_eq!((curl(&new, &[&health]).is_ok(), curl(&old, &[&health])), (true, Err(60)));
    assert_eq!(metric(&d, &new, "paddock_tls_certificate_outdated"), 0.0);

    for (name, content, said) in [
        ("cert.pem", "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n", "damaged"),
        ("cert.pem", "", "no certificate or key in PEM"),
        ("key.pem", "secret key", "no certificate or key in PEM"),
    ] {
        let mark = d.log.mark();
        let good = std::fs::read(folder.join(name)).expect("a file");
        replace(name, content.as_bytes());
        let line = d.log.line_since(mark, "the previous one stays in use").await;
        assert!(line.contains(said) && line.contains(&format!("/{name}")), "{line}");
        assert!(!line.contains("secret key"), "{line}");
        let ready = curl(&new, &[&format!("{}/ready", d.url)]).expect("it serves");
        assert!(ready.contains(r#""status":"ready""#) && ready.contains("previous one"), "{ready}");
        assert_eq!(metric(&d, &new, "paddock_tls_certificate_outdated"), 1.0);
        assert_eq!(metric(&d, &new, "paddock_degraded{what=\"certificate_outdated\"}"), 1.0);
        replace(name, &good);
        d.log.line_since(mark, "the new TLS certificate is in use").await;
        assert!(!curl(&new, &[&health]).expect("it serves").contains("degraded"));
    }
    d.stop().await;
}

#[tokio::test]
async fn slow_handshakes_hold_nobody_up_and_end_in_time() {
    let authority = Authority::new();
    let folder = authority.folder("server", EXTENSIONS);
    let ca = authority.path("ca.pem");
    let d = daemon(&folder).set("http.header_timeout", "20s").start().await;
    let open = |addr: SocketAddr, begin: &'static [u8]| async move {
        let mut stream = TcpStream::connect(addr).await.expect("a connection");
        stream.write_all(begin).await.expect("it takes the beginning");
        stream
    };
    let mut slow = Vec::new();
    for number in 0..200 {
        // Nothing at all, or the beginning of a record that never comes.
        slow.push(open(d.addr, if number % 2 == 0 { b"" } else { b"\x16\x03\x01\x02\x00\x01" }).await);
    }
    let health = format!("{}/health", d.url);
    assert!(curl(&ca, &["--max-time", "10", &health]).is_ok(), "others are served meanwhile");
    let ended = async {
        for stream in &mut slow {
            let mut rest = Vec::new();
            let _ = stream.read_to_end(&mut rest).await; // a reset is an end, too
        }
    };
    within(PATIENCE, "the end of every slow handshake", ended).await;
    assert!(metric(&d, &ca, r#"paddock_tls_handshakes_total{outcome="late"}"#) >= 200.0);
    d.stop().await;
}

#[tokio::test]
async fn files_that_cannot_be_used_stop_the_start_and_doctor_says_why() {
    let authority = Authority::new();
    let folder = authority.folder("server", EXTENSIONS);
    let other = authority.folder("other", EXTENSIONS);
    let lacks = daemon(&folder).set("http.tls_key", "/nowhere/key.pem").refusal().await;
    assert!(lacks.said.contains("http.tls_key (/nowhere/key.pem): No such file"), "{}", lacks.said);
    let stranger = other.join("key.pem").display().to_string();
    let unfit = daemon(&folder).set("http.tls_key", stranger.clone()).refusal().await;
    assert!(unfit.said.contains("the key is not that of the certificate"), "{}", unfit.said);

    let store = tempfile::tempdir().expect("a folder");
    let quoted = |path: &Path| format!("'{}'", path.display());
    let look = |key: &Path| {
        Look::at(store.path())
            .set("http.tls_certificate", &quoted(&folder.join("cert.pem")))
            .set("http.tls_key", &quoted(key))
    };
    let unfit = look(Path::new(&stranger)).run().await;
    unfit.expect_failure("configuration/tls", "not that of the certificate", "http.tls_certificate");
    let key = folder.join("key.pem");
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o644)).expect("a mode");
    let open = look(&key).run().await;
    assert!(open.text.contains("all users can read it"), "{}", open.text);
}
