//! A company network: connections of programs go through its proxy, by CONNECT.
//!
//! The proxy is on this host's loopback, and connects to nothing: it answers as the other side would.

use std::sync::{Arc, Mutex};

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::egress::upstream::Upstream;
use crate::support::{Daemon, Setup};

/// A public address of nobody that these tests know: `AS112` (RFC 7534).
pub(crate) const PUBLIC: &str = "192.175.48.1";

/// What proxies were asked, each with its credentials.
pub(crate) type Asked = Arc<Mutex<Vec<String>>>;

/// A proxy that answers each CONNECT with `status`; a connection that it gives answers any request.
pub(crate) async fn proxy(status: &'static str) -> (Upstream, Asked) {
    let asked = Asked::default();
    let heads = asked.clone();
    let proxy = Upstream::start(move |mut stream| {
        let heads = heads.clone();
        async move {
            for answer in [
                format!("HTTP/1.1 {status}\r\n\r\n"),
                "HTTP/1.1 200 OK\r\nContent-Length: 7\r\nConnection: close\r\n\r\nthrough".to_owned(),
            ] {
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    match stream.read_u8().await {
                        Ok(byte) => head.push(byte),
                        Err(_) => return,
                    }
                }
                heads.lock().expect("no panic").push(String::from_utf8_lossy(&head).into_owned());
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        }
    })
    .await;
    (proxy, asked)
}

/// A daemon of that network, in mode `open`, that knows `api.example` at a public address.
pub(crate) fn behind(proxy: &Upstream) -> Setup {
    let url = format!("http://paddock:pass%20word@{}", proxy.addr);
    let hosts = [("api.example", PUBLIC), ("near.example", "127.0.0.1"), ("proxy.example", "127.0.0.1")];
    let hosts = hosts.map(|(name, address)| (name.to_owned(), address.into()));
    Daemon::with()
        .set("egress.mode", "open")
        .set("egress.upstream_proxy", url)
        .set("egress.hosts", toml::Table::from_iter(hosts))
}

const GET: &str = "
import sys, urllib.request
for url in sys.stdin.read().split():
    try: print(urllib.request.urlopen(url, timeout=20).read().decode())
    except OSError as e: print(type(e).__name__, e)
";

#[tokio::test]
async fn connections_go_through_the_proxy_to_the_judged_address_and_near_ones_directly() {
    let (proxy, asked) = proxy("200 Connection established").await;
    let near = Upstream::http().await;
    let private: Vec<_> = [&near, &proxy].map(|server| server.addr.to_string()).into();
    let d = behind(&proxy).set("egress.private", private).start().await;
    let urls = format!(
        "http://api.example/a http://near.example:{}/b http://proxy.example:{}/c",
        near.port(),
        proxy.port() // through it a program would pass every rule
    );
    let network = json!({ "allowed_domains": ["api.example", "near.example", "proxy.example"] });
    let ran = d.session("s").python(GET).stdin(&urls).with("network", network).await.expect_success();
    let lines: Vec<&str> = ran.text("output").lines().collect();
    assert_eq!(lines[..2], ["through", "GET /b HTTP/1.1"], "{}", ran.document);
    assert!(lines[2].contains("403"), "{}", ran.document);
    let asked = asked.lock().expect("no panic").clone();
    assert_eq!(asked.len(), 2, "{asked:?}");
    assert!(asked[0].starts_with(&format!("CONNECT {PUBLIC}:80 HTTP/1.1\r\n")), "{asked:?}");
    // base64 of "paddock:pass word"
    assert!(
        asked[0].to_lowercase().contains("proxy-authorization: basic cgfkzg9jazpwyxnzihdvcmq="),
        "{asked:?}"
    );
    assert!(asked[1].starts_with("GET /a HTTP/1.1\r\n"), "{asked:?}");
    assert_eq!((proxy.connections(), near.connections()), (1, 1));
    for secret in ["pass word", "pass%20word", "cGFkZG9jazpwYXNzIHdvcmQ"] {
        assert!(!d.log.text().contains(secret) && !ran.said.contains(secret), "{secret}");
    }
    d.stop().await;
}

#[tokio::test]
async fn a_proxy_that_resolves_is_told_the_name() {
    let (proxy, asked) = proxy("200 OK").await;
    let d = behind(&proxy).set("egress.upstream_resolves", true).start().await;
    let network = json!({ "allowed_domains": ["unknown.example", "db.internal", "10.0.0.1"] });
    let urls = "http://unknown.example/a http://db.internal/b http://10.0.0.1/c";
    let ran = d.session("s").python(GET).stdin(urls).with("network", network).await.expect_success();
    let lines: Vec<&str> = ran.text("output").lines().collect();
    assert_eq!(lines[0], "through", "{}", ran.document);
    assert!(lines[1..].iter().all(|line| line.contains("403")), "{}", ran.document);
    let asked = asked.lock().expect("no panic").clone();
    assert!(asked[0].starts_with("CONNECT unknown.example:80 HTTP/1.1\r\n"), "{asked:?}");
    assert_eq!(proxy.connections(), 1);
    d.stop().await;
}

#[tokio::test]
async fn a_proxy_that_refuses_is_told_in_a_sentence() {
    for (status, sentence) in [
        ("407 Proxy Authentication Required", "does not accept the credentials"),
        ("403 Forbidden", "refuses this destination (403)"),
        ("502 Bad Gateway", "could not reach it (502)"),
    ] {
        let (proxy, _) = proxy(status).await;
        let d = behind(&proxy).start().await;
        let network = json!({ "allowed_domains": ["api.example"] });
        let ran = d.session("s").python(GET).stdin("http://api.example/").with("network", network).await;
        assert!(!ran.text("output").contains("through"), "{}", ran.document);
        let reason = ran.document["network"][0]["reason"].as_str().unwrap_or_default();
        assert!(reason.contains(sentence), "{status}: {}", ran.document);
        d.stop().await;
    }
}

/// Requests to the services `far` and `near`.
const SERVICES: &str = "
import urllib.request
for name in ('far', 'near'):
    try: print(urllib.request.urlopen(f'http://{name}.paddock/a', timeout=20).read().decode())
    except OSError as e: print(name, e, e.read().decode())
";

fn with_services(setup: Setup, near: &Upstream) -> Setup {
    let urls = [("far", "http://api.example/v1".to_owned()), ("near", format!("http://{}/v1", near.addr))];
    let service = |(name, url): (&str, String)| {
        let pairs = [("name", name.into()), ("url", url.into()), ("tenants", vec!["default"].into())];
        toml::Table::from_iter(pairs.map(|(key, value): (&str, toml::Value)| (key.to_owned(), value)))
    };
    setup.set("egress.services", urls.map(service).to_vec())
}

#[tokio::test]
async fn services_go_through_the_proxy_and_near_ones_directly() {
    let network = json!({ "services": ["far", "near"] });
    // The name has an address of the operator's own, so it is resolved here whoever else could.
    for resolves in [false, true] {
        let (proxy, asked) = proxy("200 OK").await;
        let near = Upstream::http().await;
        let setup = with_services(behind(&proxy), &near).set("egress.upstream_resolves", resolves);
        let d = setup.start().await;
        let ran = d.session("s").python(SERVICES).with("network", network.clone()).await;
        ran.expect_stdout("through\nGET /v1/a HTTP/1.1\n");
        let asked = asked.lock().expect("no panic").clone();
        assert!(asked[0].starts_with(&format!("CONNECT {PUBLIC}:80 HTTP/1.1\r\n")), "{asked:?}");
        assert!(asked[1].starts_with("GET /v1/a HTTP/1.1\r\n"), "{asked:?}");
        assert_eq!((proxy.connections(), near.connections()), (1, 1));
        d.stop().await;
    }

    let (proxy, _) = proxy("407 Proxy Authentication Required").await;
    let near = Upstream::http().await;
    let d = with_services(behind(&proxy), &near).start().await;
    let ran = d.session("s").python(SERVICES).with("network", network).await.expect_success();
    let lines: Vec<&str> = ran.stdout().lines().collect();
    assert!(lines[0].contains("502") && lines[0].contains("service_unreachable"), "{lines:?}");
    assert_eq!(lines[1], "GET /v1/a HTTP/1.1");
    let log = d.stop().await.text();
    assert!(log.contains("does not accept the credentials of egress.upstream_proxy"), "{log}");
    assert!(!log.contains("pass word") && !log.contains("pass%20word"), "{log}");
}
