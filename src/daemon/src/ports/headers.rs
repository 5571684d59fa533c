//! Which headers pass, in each direction. Pure.
//!
//! Inwards: the server learns no credential of the daemon, no cookie that it did not set, and nothing of the
//! client's address. It is asked by `localhost:PORT`, and told the prefix, the scheme and the host outside.
//! Outwards: nothing passes by which one server could change what a browser does with the rest of its host.
//! Headers of one connection only (hop-by-hop) pass in neither direction.

use http::header::{
    AUTHORIZATION, CONNECTION, CONTENT_LOCATION, CONTENT_SECURITY_POLICY,
    CONTENT_SECURITY_POLICY_REPORT_ONLY, COOKIE, EXPECT, HOST, HeaderName, HeaderValue, LOCATION, ORIGIN,
    REFERER, REFERRER_POLICY, SET_COOKIE, UPGRADE, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, header};

use super::cookies::CookieKey;
use super::location::Addresses;

/// Headers of one connection, beside those that `Connection` names.
const HOP_BY_HOP: [&str; 9] = [
    "connection",
    "keep-alive",
    "proxy-connection",
    "proxy-authenticate",
    "proxy-authorization",
    "te",
    "transfer-encoding",
    "upgrade",
    "http2-settings",
];

/// What a client says of itself, or of proxies on its way.
const OF_THE_CLIENT: [&str; 6] =
    ["forwarded", "x-real-ip", "via", "true-client-ip", "cf-connecting-ip", "x-client-ip"];
const FORWARDED: &str = "x-forwarded-";

/// What a server would say for its whole host, where other servers are too.
const OF_THE_HOST: [&str; 12] = [
    "service-worker-allowed",
    "clear-site-data",
    "strict-transport-security",
    "public-key-pins",
    "expect-ct",
    "alt-svc",
    "nel",
    "report-to",
    "accept-ch",
    "critical-ch",
    "set-cookie2",
    "origin-agent-cluster",
];

/// How an answer is treated by a browser that should never see it: it comes from the daemon's own address.
const SANDBOX: HeaderValue = HeaderValue::from_static("sandbox");

/// The rules of one request and its answer.
pub(super) struct HeaderRules {
    pub(super) addresses: Addresses,
    pub(super) cookies: CookieKey,
    /// Whether the answer comes from the daemon's own address, so that no browser may run anything of it.
    pub(super) is_sandboxed: bool,
    /// Whether `Authorization` is for the daemon.
    pub(super) drops_authorization: bool,
}

impl HeaderRules {
    fn is_tls(&self) -> bool {
        self.addresses.outside.starts_with("https:")
    }

    /// What the server is sent. `upgrade` is the protocol that the client wants to change to.
    pub(super) fn inward(&self, given: &HeaderMap, upgrade: Option<&HeaderValue>) -> HeaderMap {
        let mut headers = without_hop_by_hop(given);
        for name in OF_THE_CLIENT {
            headers.remove(name);
        }
        let forwarded: Vec<HeaderName> =
            headers.keys().filter(|name| name.as_str().starts_with(FORWARDED)).cloned().collect();
        for name in forwarded {
            headers.remove(name);
        }
        if self.drops_authorization {
            headers.remove(AUTHORIZATION);
        }
        // The daemon has told the client to continue by itself.
        headers.remove(EXPECT);
        let cookies = given.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
        put(&mut headers, COOKIE, self.cookies.admitted(cookies));
        let text = |name: &HeaderName| given.get(name).and_then(|value| value.to_str().ok());
        put(&mut headers, ORIGIN, text(&ORIGIN).map(|origin| self.addresses.origin(origin)));
        put(&mut headers, REFERER, text(&REFERER).and_then(|referer| self.addresses.referer(referer)));
        put(&mut headers, HOST, Some(self.addresses.host()));
        let (scheme, host) = self.addresses.outside.split_once("://").unwrap_or_default();
        let told = [
            ("x-forwarded-prefix", &*self.addresses.prefix),
            ("x-forwarded-proto", scheme),
            ("x-forwarded-host", host),
        ];
        for (name, value) in told {
            put(&mut headers, HeaderName::from_static(name), Some(value.to_owned()));
        }
        let has_trailers =
            given.get_all(header::TE).iter().any(|te| te.as_bytes().eq_ignore_ascii_case(b"trailers"));
        if has_trailers {
            headers.insert(header::TE, HeaderValue::from_static("trailers"));
        }
        match upgrade {
            Some(protocol) => {
                headers.insert(UPGRADE, protocol.clone());
                headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
            }
            None => {
                // Each request has a connection of its own.
                headers.insert(CONNECTION, HeaderValue::from_static("close"));
            }
        }
        headers
    }

    /// What the client is sent. `upgrade` is the protocol that both change to.
    pub(super) fn outward(&self, given: &HeaderMap, upgrade: Option<&HeaderValue>) -> HeaderMap {
        let mut headers = without_hop_by_hop(given);
        for name in OF_THE_HOST {
            headers.remove(name);
        }
        headers.remove(SET_COOKIE);
        for set in given.get_all(SET_COOKIE).iter().filter_map(|value| value.to_str().ok()) {
            let cookies = self.cookies.confined(set, &self.addresses.prefix, self.is_tls());
            for value in cookies.into_iter().flatten().filter_map(|text| HeaderValue::try_from(text).ok()) {
                headers.append(SET_COOKIE, value);
            }
        }
        for name in [LOCATION, CONTENT_LOCATION] {
            let text = given.get(&name).map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
            put(&mut headers, name, text.map(|location| self.addresses.outward(&location)));
        }
        // Other sites are not told the link.
        headers.insert(REFERRER_POLICY, HeaderValue::from_static("same-origin"));
        if self.is_sandboxed {
            headers.insert(CONTENT_SECURITY_POLICY, SANDBOX);
            headers.remove(CONTENT_SECURITY_POLICY_REPORT_ONLY);
            headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        }
        if let Some(protocol) = upgrade {
            headers.insert(UPGRADE, protocol.clone());
            headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        }
        headers
    }
}

/// The protocol that a message asks to change to, if its `Connection` says so.
pub(super) fn upgrade(headers: &HeaderMap) -> Option<&HeaderValue> {
    named_by_connection(headers)
        .any(|name| name.eq_ignore_ascii_case("upgrade"))
        .then(|| headers.get(UPGRADE))?
}

fn named_by_connection(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let values = headers.get_all(CONNECTION).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).map(str::trim)
}

fn without_hop_by_hop(given: &HeaderMap) -> HeaderMap {
    let mut headers = given.clone();
    for name in HOP_BY_HOP.into_iter().chain(named_by_connection(given)) {
        headers.remove(name);
    }
    headers
}

/// Sets a header, or removes it; also where the value cannot be one.
fn put(headers: &mut HeaderMap, name: HeaderName, value: Option<String>) {
    match value.and_then(|value| HeaderValue::try_from(value).ok()) {
        Some(value) => headers.insert(name, value),
        None => headers.remove(name),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(is_sandboxed: bool) -> HeaderRules {
        HeaderRules {
            addresses: Addresses {
                outside: "http://box.example:9090".to_owned(),
                prefix: "/sig/s/8000".to_owned(),
                port: 8000,
            },
            cookies: CookieKey::new([1; 32]),
            is_sandboxed,
            drops_authorization: is_sandboxed,
        }
    }

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let pairs = pairs
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(name, value);
        }
        headers
    }

    /// All headers, as `name: value`, in the order of their names.
    fn shown(headers: &HeaderMap) -> Vec<String> {
        let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
        let mut all: Vec<_> =
            headers.iter().map(|(name, value)| format!("{name}: {}", text(value))).collect();
        all.sort();
        all
    }

    const TOLD: [&str; 4] = [
        "host: localhost:8000",
        "x-forwarded-host: box.example:9090",
        "x-forwarded-prefix: /sig/s/8000",
        "x-forwarded-proto: http",
    ];

    #[test]
    fn a_server_learns_what_is_for_it_and_nothing_else() {
        let given = headers(&[
            ("host", "box.example:9090"),
            ("accept", "text/html"),
            ("cookie", "daemon=secret"),
            ("authorization", "Bearer t"),
            ("proxy-authorization", "Basic x"),
            ("connection", "keep-alive, X-Own"),
            ("x-own", "1"),
            ("keep-alive", "timeout=5"),
            ("te", "trailers"),
            ("transfer-encoding", "chunked"),
            ("expect", "100-continue"),
            ("forwarded", "for=1.2.3.4"),
            ("x-forwarded-for", "1.2.3.4"),
            ("x-forwarded-prefix", "/evil"),
            ("x-forwarded-anything", "1"),
            ("x-real-ip", "1.2.3.4"),
            ("origin", "http://box.example:9090"),
            ("referer", "http://box.example:9090/sig/s/8000/a"),
        ]);
        let mut wanted = TOLD.to_vec();
        wanted.extend([
            "accept: text/html",
            "connection: close",
            "origin: http://localhost:8000",
            "referer: http://localhost:8000/a",
            "te: trailers",
        ]);
        wanted.sort_unstable();
        assert_eq!(shown(&rules(true).inward(&given, None)), wanted);
        wanted.push("authorization: Bearer t");
        wanted.sort_unstable();
        assert_eq!(shown(&rules(false).inward(&given, None)), wanted, "the server's own");
    }

    #[test]
    fn an_upgrade_passes_where_both_ask_for_it() {
        let given = headers(&[
            ("connection", "Keep-Alive, Upgrade"),
            ("upgrade", "websocket"),
            ("sec-websocket-key", "k"),
        ]);
        let protocol = upgrade(&given);
        assert_eq!(protocol.map(HeaderValue::as_bytes), Some(&b"websocket"[..]));
        let inward = shown(&rules(false).inward(&given, protocol));
        for wanted in ["connection: upgrade", "upgrade: websocket", "sec-websocket-key: k"] {
            assert!(inward.iter().any(|one| one == wanted), "{inward:?}");
        }
        assert!(upgrade(&headers(&[("upgrade", "websocket")])).is_none());
        assert!(upgrade(&headers(&[("connection", "upgrade")])).is_none());
        assert_eq!(
            shown(&rules(false).outward(&given, None)),
            ["referrer-policy: same-origin", "sec-websocket-key: k"]
        );
    }

    #[test]
    fn nothing_comes_out_that_is_for_the_whole_host() {
        let given = headers(&[
            ("content-type", "text/html"),
            ("content-security-policy", "sandbox allow-scripts allow-same-origin"),
            ("content-security-policy-report-only", "default-src x"),
            ("x-content-type-options", "sniff"),
            ("service-worker-allowed", "/"),
            ("clear-site-data", "\"*\""),
            ("strict-transport-security", "max-age=1"),
            ("alt-svc", "h3=\":443\""),
            ("nel", "{}"),
            ("report-to", "{}"),
            ("referrer-policy", "unsafe-url"),
            ("connection", "close, x-hop"),
            ("x-hop", "1"),
            ("location", "/login"),
            ("content-location", "http://localhost:8000/x"),
            ("set-cookie", "a=b; Domain=box.example"),
            ("set-cookie", "__Host-a=b; Path=/"),
        ]);
        let open = shown(&rules(false).outward(&given, None));
        let cookies = open.iter().filter(|one| one.starts_with("set-cookie: ")).count();
        assert_eq!(cookies, 2, "the cookie and its mark: {open:?}");
        let rest: Vec<&str> =
            open.iter().map(String::as_str).filter(|one| !one.starts_with("set-cookie: ")).collect();
        assert_eq!(
            rest,
            [
                "content-location: /sig/s/8000/x",
                "content-security-policy-report-only: default-src x",
                "content-security-policy: sandbox allow-scripts allow-same-origin",
                "content-type: text/html",
                "location: /sig/s/8000/login",
                "referrer-policy: same-origin",
                "x-content-type-options: sniff",
            ]
        );
        let sandboxed = rules(true).outward(&given, None);
        let all: Vec<_> = sandboxed.get_all(CONTENT_SECURITY_POLICY).iter().collect();
        assert_eq!(
            (all, &sandboxed[X_CONTENT_TYPE_OPTIONS]),
            (vec![&SANDBOX], &HeaderValue::from_static("nosniff"))
        );
        assert!(!sandboxed.contains_key(CONTENT_SECURITY_POLICY_REPORT_ONLY));
    }
}
