//! Proxies that answer well, and in every other way.

use std::time::Duration;

use tokio::net::TcpListener;

use super::*;

/// Two addresses that cannot be reached but through a proxy.
pub(in crate::egress) const FAR: [&str; 2] = ["93.184.216.34", "93.184.216.35"];

/// A proxy that answers each request with the next of these, and then with the last; what it was asked.
pub(in crate::egress) async fn answering(
    answers: &[&[u8]],
) -> (SocketAddr, tokio::sync::mpsc::UnboundedReceiver<(String, TcpStream)>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    let answers: Vec<Vec<u8>> = answers.iter().map(|answer| answer.to_vec()).collect();
    let (sender, asked) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        for n in 0.. {
            let Ok((mut socket, _)) = listener.accept().await else { return };
            let (mut head, mut byte) = (Vec::new(), [0]);
            while !head.ends_with(b"\r\n\r\n") {
                if socket.read(&mut byte).await.unwrap_or(0) == 0 {
                    break;
                }
                head.extend(byte);
            }
            let answer = answers.get(n).or(answers.last()).cloned().unwrap_or_default();
            let _ = socket.write_all(&answer).await; // the other side may have read enough
            if sender.send((String::from_utf8(head).unwrap(), socket)).is_err() {
                return;
            }
        }
    });
    (at, asked)
}

fn far(port: u16) -> (Host, u16) {
    (Host::Address(FAR[0].parse().unwrap()), port)
}

async fn asked(proxy: &str, answer: &[u8]) -> (Result<TcpStream, ProxyFailure>, String, TcpStream) {
    let (at, mut heard) = answering(&[answer]).await;
    let proxy: UpstreamProxy = proxy.parse().unwrap();
    let (host, port) = far(443);
    let at = [at];
    let (made, heard) = tokio::join!(proxy.connect(&at, (&host, port)), heard.recv());
    let (request, socket) = heard.unwrap();
    (made, request, socket)
}

#[test]
fn a_proxy_is_a_host_and_a_port_perhaps_with_credentials() {
    let shown = |text: &str| text.parse::<UpstreamProxy>().map(|proxy| proxy.to_string());
    for (text, expected) in [
        ("http://proxy.lan:3128", Ok("proxy.lan:3128")),
        ("http://Proxy.LAN.:3128/\n", Ok("proxy.lan:3128")),
        ("http://10.0.0.1:8080", Ok("10.0.0.1:8080")),
        ("http://[fd00::1]:8080", Ok("[fd00::1]:8080")),
        ("http://u:p@proxy.lan:3128", Ok("proxy.lan:3128")),
        ("https://proxy.lan:3128", Err(UpstreamProxyError::Scheme)),
        ("proxy.lan:3128", Err(UpstreamProxyError::Malformed)),
        ("http://proxy.lan", Err(UpstreamProxyError::NoPort)),
        ("http://proxy.lan:0", Err(UpstreamProxyError::NoPort)),
        ("http://proxy.lan:3128/path", Err(UpstreamProxyError::Path)),
        ("http://user@proxy.lan:3128", Err(UpstreamProxyError::NoPassword)),
        ("http://:3128", Err(UpstreamProxyError::Malformed)),
        ("", Err(UpstreamProxyError::Malformed)),
    ] {
        assert_eq!(shown(text), expected.map(str::to_owned), "{text}");
    }
}

#[test]
fn the_password_is_never_shown() {
    for text in ["http://me:hunter2@proxy.lan:1", "http://me:hunter2@", "http://me:hunter2@h:1/x"] {
        let said = match text.parse::<UpstreamProxy>() {
            Ok(proxy) => format!("{proxy} {proxy:?}"),
            Err(error) => format!("{error} {error:?}"),
        };
        let basic = STANDARD.encode("me:hunter2");
        assert!(!said.contains("hunter2") && !said.contains(&basic), "{said}");
    }
}

#[tokio::test]
async fn a_connection_is_asked_for_with_the_credentials_and_keeps_every_byte_behind_the_answer() {
    let answer = b"HTTP/1.1 103 Early\r\n\r\nHTTP/1.1 200 Connection established\r\nVia: x\r\n\r\nSSH-2.0-x";
    let (made, request, mut proxy) = asked("http://me:p%40ss%3A@proxy.lan:3128", answer).await;
    let value = STANDARD.encode("me:p@ss:");
    let expected = format!(
        "CONNECT 93.184.216.34:443 HTTP/1.1\r\nHost: 93.184.216.34:443\r\nProxy-Authorization: Basic \
         {value}\r\n\r\n"
    );
    assert_eq!(request, expected);
    let mut upstream = made.ok().unwrap();
    let mut first = [0; 9];
    upstream.read_exact(&mut first).await.unwrap();
    assert_eq!(&first, b"SSH-2.0-x");
    upstream.write_all(b"hello").await.unwrap();
    let mut heard = [0; 5];
    proxy.read_exact(&mut heard).await.unwrap();
    assert_eq!(&heard, b"hello");
}

#[tokio::test]
async fn every_other_answer_is_told_in_a_sentence() {
    let many_lines = [b"HTTP/1.1 200 OK\r\n".to_vec(), b"a: b\r\n".repeat(100)].concat();
    let long_line = [b"HTTP/1.1 200 OK\r\na: ".to_vec(), vec![b'x'; 40_000]].concat();
    let endless = b"HTTP/1.1 100 Continue\r\n\r\n".repeat(2000);
    for (answer, failure) in [
        (&b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n"[..], ProxyFailure::Credentials),
        (b"HTTP/1.1 403 Forbidden\r\nContent-Length: 3\r\n\r\nno!", ProxyFailure::Forbidden(403)),
        (b"HTTP/1.0 502 Bad Gateway\r\n\r\n", ProxyFailure::NotReached(502)),
        (b"HTTP/1.1 504 x\r\n\r\n", ProxyFailure::NotReached(504)),
        (b"HTTP/1.1 301 Moved\r\nLocation: http://10.0.0.1/\r\n\r\n", ProxyFailure::Other(301)),
        (b"SSH-2.0-OpenSSH\r\n", ProxyFailure::NotHttp),
        (b"\x16\x03\x01\x02\x00", ProxyFailure::NotHttp),
        (&many_lines, ProxyFailure::TooLong),
        (&long_line, ProxyFailure::TooLong),
        (&endless, ProxyFailure::TooLong),
    ] {
        let (made, ..) = asked("http://proxy.lan:3128", answer).await;
        assert_eq!(
            made.err(),
            Some(failure),
            "{:?}",
            String::from_utf8_lossy(&answer[..20.min(answer.len())])
        );
        assert!(failure.to_string().contains("upstream proxy"), "{failure}");
    }
}

#[tokio::test]
async fn a_proxy_that_is_gone_or_hangs_up_is_told_from_one_that_refuses() {
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let proxy: UpstreamProxy = "http://proxy.lan:3128".parse().unwrap();
    let (host, port) = far(443);
    assert_eq!(proxy.connect(&[closed], (&host, port)).await.err(), Some(ProxyFailure::Unreachable));
    for part in [&b""[..], b"HTTP/1.1 200 OK\r\n"] {
        let (at, mut heard) = answering(&[part]).await;
        let hangs_up = async { drop(heard.recv().await) };
        let at = [at];
        let (made, ()) = tokio::join!(proxy.connect(&at, (&host, port)), hangs_up);
        assert_eq!(made.err(), Some(ProxyFailure::Closed));
    }
    // One that says nothing is waited for by nobody but the caller.
    let (at, _heard) = answering(&[b"HTTP/1.1 200 OK\r\n"]).await;
    let waited = tokio::time::timeout(Duration::from_millis(300), proxy.connect(&[at], (&host, port))).await;
    assert!(waited.is_err());
}
