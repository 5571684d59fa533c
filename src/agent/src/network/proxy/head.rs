//! The head of a request to the proxy: where it leads, who asks, and the head for the other side. Pure.
//!
//! It must never pass on a header that is meant for the proxy, nor let a request name another host to the
//! other side than the one that is judged.

use std::net::IpAddr;

use paddock_proto::message::Host;

use super::headers::finish;

/// The longest head, in bytes.
pub(super) const LONGEST: usize = 16 * 1024;

/// Headers of one head.
const MAX_HEADERS: usize = 100;

/// Headers between the program and the proxy, which are dropped.
const HOP_BY_HOP: [&str; 7] = [
    "connection",
    "keep-alive",
    "proxy-authorization",
    "proxy-connection",
    "proxy-authenticate",
    "te",
    "host",
];

/// A request to the proxy.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ProxyRequest {
    pub(super) host: Host,
    pub(super) port: u16,
    /// The value of `Proxy-Authorization`.
    pub(super) credential: Vec<u8>,
    /// The head for the other side; `None` for a tunnel, whose bytes are the program's own.
    pub(super) forward: Option<Vec<u8>>,
    /// Bytes of the head; what follows is for the other side.
    pub(super) length: usize,
}

/// What the bytes of a connection are so far.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Head {
    /// More must come.
    Incomplete,
    Complete(ProxyRequest),
    /// No request to a proxy; a sentence.
    Bad(&'static str),
}

/// Reads a head.
pub(super) fn read(bytes: &[u8]) -> Head {
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    let length = match request.parse(bytes) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) if bytes.len() < LONGEST => return Head::Incomplete,
        Ok(httparse::Status::Partial) => return Head::Bad("the head of the request is too long"),
        Err(_) => return Head::Bad("this is no HTTP request"),
    };
    let (Some(method), Some(target)) = (request.method, request.path) else {
        return Head::Bad("this is no HTTP request");
    };
    let credential = request.headers.iter().find(|h| h.name.eq_ignore_ascii_case("proxy-authorization"));
    let credential = credential.map(|header| header.value.to_vec()).unwrap_or_default();
    if method.eq_ignore_ascii_case("CONNECT") {
        let Some((host, port)) = authority(target, None) else {
            return Head::Bad("CONNECT takes HOST:PORT");
        };
        return Head::Complete(ProxyRequest { host, port, credential, forward: None, length });
    }
    let Some(rest) = strip_scheme(target) else {
        return Head::Bad("this is a proxy: it takes CONNECT HOST:PORT, or a whole http:// URL");
    };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (named, path) = rest.split_at(end);
    let Some((host, port)) = authority(named, Some(80)) else {
        return Head::Bad("the URL has no host that can be reached");
    };
    let forward = forward(method, named, path, request.headers);
    Head::Complete(ProxyRequest { host, port, credential, forward: Some(forward), length })
}

fn strip_scheme(target: &str) -> Option<&str> {
    let scheme = target.get(..7)?;
    scheme.eq_ignore_ascii_case("http://").then(|| &target[7..])
}

/// `HOST:PORT`, or `HOST` where there is a usual port. A user in front of it is refused.
fn authority(text: &str, usual: Option<u16>) -> Option<(Host, u16)> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (address, rest) = rest.split_once(']')?;
            (Host::Address(IpAddr::V6(address.parse().ok()?).to_canonical()), rest.strip_prefix(':'))
        }
        None => {
            let (name, port) = match text.split_once(':') {
                Some((name, port)) => (name, Some(port)),
                None => (text, None),
            };
            // One dot at the end is the root's; the daemon would take a second one for it.
            let name = name.strip_suffix('.').unwrap_or(name);
            if name.is_empty() || name.ends_with('.') || name.contains('@') {
                return None;
            }
            let host = match name.parse::<IpAddr>() {
                Ok(address) => Host::Address(address.to_canonical()),
                Err(_) => Host::Name(name.to_owned()),
            };
            (host, port)
        }
    };
    let port = match port {
        Some(port) => port.bytes().all(|b| b.is_ascii_digit()).then(|| port.parse().ok())??,
        None => usual?,
    };
    Some((host, port))
}

/// The head as the other side receives it. It serves one request: what a program sends behind its body would
/// reach this host and no other, and the connection is closed after the answer.
fn forward(method: &str, host: &str, path: &str, headers: &[httparse::Header<'_>]) -> Vec<u8> {
    let path = path.split('#').next().unwrap_or_default();
    let slash = if path.starts_with('/') { "" } else { "/" };
    let head = format!("{method} {slash}{path} HTTP/1.1\r\nHost: {host}\r\n").into_bytes();
    finish(head, headers, &HOP_BY_HOP)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn complete(text: &str) -> ProxyRequest {
        let head = read(text.as_bytes());
        let Head::Complete(request) = head else { panic!("{head:?}: {text}") };
        request
    }

    #[test]
    fn a_tunnel_leads_where_it_says() {
        for (target, host, port) in [
            ("example.com:443", Host::Name("example.com".into()), 443),
            ("example.com.:22", Host::Name("example.com".into()), 22),
            ("10.0.0.5:5432", Host::Address([10, 0, 0, 5].into()), 5432),
            ("[::ffff:10.0.0.5]:80", Host::Address([10, 0, 0, 5].into()), 80),
        ] {
            let text = format!("CONNECT {target} HTTP/1.1\r\nProxy-Authorization: Basic eDp5\r\n\r\nrest");
            let request = complete(&text);
            assert_eq!((request.host, request.port), (host, port), "{target}");
            assert_eq!((request.credential.as_slice(), request.forward), (&b"Basic eDp5"[..], None));
            assert_eq!(&text[request.length..], "rest");
        }
    }

    #[test]
    fn a_url_becomes_a_request_of_its_host_and_of_no_other() {
        let text = "GET http://a.example:8080/x?y#z HTTP/1.1\r\nHost: evil.example\r\nAccept: */*\r\n\
                    Proxy-Authorization: Basic eDp5\r\nProxy-Connection: keep-alive\r\n\
                    Connection: keep-alive, x-mine\r\nX-Mine: 1\r\nContent-Length: 2\r\n\r\nhi";
        let request = complete(text);
        assert_eq!((request.host, request.port), (Host::Name("a.example".into()), 8080));
        let head = String::from_utf8(request.forward.expect("a head")).expect("text");
        assert_eq!(
            head,
            "GET /x?y HTTP/1.1\r\nHost: a.example:8080\r\nAccept: */*\r\nContent-Length: 2\r\n\
             Connection: close\r\n\r\n"
        );
        assert_eq!(complete("GET HTTP://a.example HTTP/1.1\r\n\r\n").port, 80);
        let head = complete("GET http://a.example?q HTTP/1.1\r\n\r\n").forward.expect("a head");
        assert!(head.starts_with(b"GET /?q HTTP/1.1\r\nHost: a.example\r\n"));
    }

    #[test]
    fn what_is_no_request_to_a_proxy_is_refused() {
        for text in [
            "GET / HTTP/1.1\r\n\r\n",
            "GET https://a.example/ HTTP/1.1\r\n\r\n",
            "GET ftp://a.example/ HTTP/1.1\r\n\r\n",
            "GET http://u:p@a.example/ HTTP/1.1\r\n\r\n",
            "GET http:///x HTTP/1.1\r\n\r\n",
            "CONNECT a.example HTTP/1.1\r\n\r\n",
            "CONNECT :443 HTTP/1.1\r\n\r\n",
            "CONNECT .:443 HTTP/1.1\r\n\r\n",
            "CONNECT a.example..:443 HTTP/1.1\r\n\r\n",
            "GET http://a.example../ HTTP/1.1\r\n\r\n",
            "CONNECT a.example:+443 HTTP/1.1\r\n\r\n",
            "CONNECT a.example:70000 HTTP/1.1\r\n\r\n",
            "CONNECT [::1 HTTP/1.1\r\n\r\n",
            "\x16\x03\x01\x02\0\x01\0\x01",
        ] {
            assert!(
                matches!(read(text.as_bytes()), Head::Bad(_)),
                "{text:?} gave {:?}",
                read(text.as_bytes())
            );
        }
        let long = format!("GET http://a.example/ HTTP/1.1\r\nX: {}", "x".repeat(LONGEST));
        assert!(matches!(read(long.as_bytes()), Head::Bad(_)));
        assert_eq!(read(b"CONNECT a.example:443 HTTP/1.1\r\nHo"), Head::Incomplete);
    }

    proptest! {
        #[test]
        fn no_bytes_panic_and_a_head_never_has_a_line_of_its_own_making(
            bytes in proptest::collection::vec(any::<u8>(), 0..200),
        ) {
            let mut text = b"GET http://a.example/".to_vec();
            text.extend(&bytes);
            for input in [&bytes, &text] {
                if let Head::Complete(ProxyRequest { forward: Some(head), .. }) = read(input) {
                    let heads = head.windows(4).filter(|end| end == b"\r\n\r\n").count();
                    prop_assert_eq!(heads, 1);
                }
            }
        }
    }
}
