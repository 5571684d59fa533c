//! Which hosts, origins and tokens pass, and who may read the metrics.

use super::*;
use crate::tenants::KnownToken;

fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in pairs {
        headers.append(*name, value.parse().unwrap());
    }
    headers
}

fn guard(tokens: &[(&str, &str)]) -> Guard {
    let tokens = tokens
        .iter()
        .map(|(name, token)| KnownToken::plain(*name, Sha256::digest(token.as_bytes()).into()))
        .collect();
    let tenants = Tenants::open(tokens, None, crate::metrics::Metrics::default()).unwrap();
    let listed = ["LAN.example:8080".to_owned(), "any.example".to_owned()];
    Guard::new("https://box.example/p", &listed, &["https://n8n.example".to_owned()], false, tenants, None)
}

/// The status that refuses a `GET` of this target, if it is refused.
fn refused(guard: &Guard, target: &str, pairs: &[(&'static str, &str)]) -> Option<StatusCode> {
    let uri: Uri = target.parse().unwrap();
    let admitted = guard.admit(Route::of(uri.path()), &uri, &headers(pairs));
    admitted.err().map(|answer| answer.status())
}

const REFUSED: Option<StatusCode> = Some(StatusCode::FORBIDDEN);

#[test]
fn hosts_that_are_ours() {
    let guard = guard(&[]);
    for host in [
        "localhost",
        "localhost:8080",
        "127.0.0.1:1",
        "127.9.9.9",
        "[::1]:8080",
        "[::1]",
        "Box.Example",
        "box.example:443",
        "lan.example:8080",
        "any.example:99",
    ] {
        assert_eq!(refused(&guard, "/mcp", &[("host", host)]), None, "{host}");
    }
    for host in FOREIGN {
        assert_eq!(refused(&guard, "/mcp", &[("host", host)]), REFUSED, "{host}");
    }
    assert_eq!(refused(&guard, "/mcp", &[]), REFUSED);
    assert_eq!(refused(&guard, "/mcp", &[("host", "localhost"), ("host", "localhost")]), REFUSED);
}

const FOREIGN: [&str; 10] = [
    "evil.example",
    "localhost.evil.example",
    "lan.example",
    "lan.example:81",
    "",
    "box.example.",
    "0.0.0.0",
    "10.0.0.1",
    "localhost@evil.example",
    "127.0.0.1.nip.io",
];

#[test]
fn a_credential_outweighs_the_host() {
    let mut guard = guard(&[("default", "t1")]);
    guard.metrics = Some(Sha256::digest("m1").into());
    for host in FOREIGN {
        let asks = |path, token: &str| {
            refused(&guard, path, &[("host", host), ("authorization", &format!("Bearer {token}"))])
        };
        for path in ["/mcp", "/mcp/events", "/sessions/a/files", "/status", "/metrics", "/"] {
            assert_eq!(asks(path, "t1"), None, "{path} {host}");
            assert_eq!(asks(path, "t2"), REFUSED, "{path} {host}");
        }
        assert_eq!(asks("/metrics", "m1"), None, "{host}");
        assert_eq!(asks("/mcp", "m1"), REFUSED, "{host}");
        for path in ["/files/s/a?sig=x", "/logs/s/r?sig=x", "/health", "/ready"] {
            assert_eq!(refused(&guard, path, &[("host", host)]), None, "{path} {host}");
        }
    }
    assert_eq!(refused(&guard, "/mcp", &[("authorization", "Bearer t1")]), None, "HTTP/1.0");
    let two = [("authorization", "Bearer t1"), ("host", "localhost"), ("host", "localhost")];
    assert_eq!(refused(&guard, "/mcp", &two), REFUSED);
}

#[test]
fn without_configured_tokens_no_token_is_a_credential() {
    let guard = guard(&[]);
    let foreign = [("host", "evil.example"), ("authorization", "Bearer t1")];
    for path in ["/mcp", "/mcp/events", "/sessions/a/files", "/status", "/metrics", "/"] {
        assert_eq!(refused(&guard, path, &foreign), REFUSED, "{path}");
    }
    for path in ["/health", "/ready"] {
        for hosts in [&[][..], &foreign[..1], &[("host", "a"), ("host", "b")]] {
            assert_eq!(refused(&guard, path, hosts), None, "{path} {hosts:?}");
        }
    }
}

#[test]
fn a_target_in_absolute_form_takes_precedence_over_the_host() {
    let guard = guard(&[]);
    for (target, host, want) in [
        ("http://localhost:8080/mcp", Some("localhost:8080"), None),
        ("http://LOCALHOST/mcp", Some("localhost"), None),
        ("http://localhost/mcp", None, None),
        ("http://evil.example/mcp", Some("localhost"), REFUSED),
        ("http://evil.example/mcp", Some("evil.example"), REFUSED),
        ("http://localhost/mcp", Some("evil.example"), REFUSED),
        ("http://localhost@evil.example/mcp", None, REFUSED),
        ("http://evil.example@localhost/mcp", None, REFUSED),
        ("http://evil.example/health", Some("localhost"), None),
    ] {
        let hosts: Vec<_> = host.map(|host| ("host", host)).into_iter().collect();
        assert_eq!(refused(&guard, target, &hosts), want, "{target} {host:?}");
    }
}

#[test]
fn origins_that_are_ours() {
    let guard = guard(&[("default", "t1")]);
    let asks = |host, origin| {
        refused(&guard, "/mcp", &[("host", host), ("origin", origin), ("authorization", "Bearer t1")])
    };
    for origin in ["http://localhost:8080", "https://box.example", "https://n8n.example"] {
        assert_eq!(asks("localhost:8080", origin), None, "{origin}");
    }
    for origin in [
        "http://evil.example",
        "null",
        "",
        "http://localhost:3000",
        "https://localhost:8080",
        "ftp://localhost:8080",
        "http://n8n.example",
        "localhost:8080",
    ] {
        assert_eq!(asks("localhost:8080", origin), REFUSED, "{origin:?}");
    }
    // A host that is served with a token only is not an origin of ours.
    assert_eq!(asks("evil.example", "http://evil.example"), REFUSED);
    assert_eq!(refused(&guard, "/health", &[("origin", "http://evil.example")]), REFUSED);
}

#[test]
fn a_token_is_found_beside_other_credentials() {
    let mut guard = guard(&[("default", "t1")]);
    guard.metrics = Some(Sha256::digest("m1").into());
    let has = |values: &[&str]| {
        let pairs: Vec<_> = values.iter().map(|value| ("authorization", *value)).collect();
        guard.has_token(&headers(&pairs))
    };
    for found in [&["Bearer t1"][..], &["bearer  t1 "], &["Bearer m1"], &["Basic x", "Bearer t1"]] {
        assert!(has(found), "{found:?}");
    }
    for other in [&[][..], &["Bearer t2"], &["Basic t1"], &["t1"]] {
        assert!(!has(other), "{other:?}");
    }
}

#[test]
fn figures_of_several_tenants_are_for_operators_and_the_token_of_metrics() {
    let token = |name: &str, token: &str, is_operator| {
        let mut known = KnownToken::plain(name, Sha256::digest(token.as_bytes()).into());
        known.terms.is_operator = is_operator;
        known
    };
    let read = |tokens: Vec<KnownToken>, metrics: Option<&str>, given: &str| {
        let tenants = Tenants::open(tokens, None, crate::metrics::Metrics::default()).unwrap();
        let metrics = metrics.map(|token| Sha256::digest(token).into());
        let guard = Guard::new("http://localhost", &[], &[], false, tenants, metrics);
        let pairs = [("authorization", given)];
        let read = guard.reads_metrics(&headers(if given.is_empty() { &[] } else { &pairs }));
        read.map(|who| who.map(|who| who.tenant.name.to_string())).map_err(|answer| answer.status().as_u16())
    };
    let one = || vec![token("ann", "t1", false), token("ann", "t2", false)];
    let some = || vec![token("ann", "t1", false), token("bob", "t2", false), token("ops", "t3", true)];
    let ok = |name: &str| Ok(Some(name.to_owned()));
    assert_eq!(read(one(), None, "Bearer t2"), ok("ann"), "these are one tenant's");
    for metrics in [None, Some("m1")] {
        assert_eq!(read(some(), metrics, "Bearer t1"), Err(403), "{metrics:?}");
        assert_eq!(read(some(), metrics, "Bearer t3"), ok("ops"), "{metrics:?}");
        assert_eq!(read(some(), metrics, "Bearer no"), Err(401), "{metrics:?}");
    }
    assert_eq!(read(some(), Some("m1"), "Bearer m1"), Ok(None));
    assert_eq!(read(some(), None, "Bearer m1"), Err(401));
    assert_eq!((read(vec![], None, ""), read(vec![], Some("m1"), "")), (Ok(None), Err(401)));
}

#[test]
fn an_owner_without_a_token_is_over_where_tokens_are_needed() {
    let is_over = |tokens: &[(&str, &str)], owner: &str| {
        Credential::of_owner(&guard(tokens).tenants, owner).over.is_cancelled()
    };
    assert!(is_over(&[("ann", "t1")], "bob"));
    for (tokens, owner) in [(&[("ann", "t1")][..], "ann"), (&[("ann", "t1")], DEFAULT_OWNER), (&[], "bob")] {
        assert!(!is_over(tokens, owner), "{owner}");
    }
}

#[test]
fn a_token_names_the_owner_of_a_request() {
    let guard = guard(&[("default", "t1"), ("alice", "t2")]);
    let named = |credential: Credential| credential.tenant.name.to_string();
    let owner = |value: &str| guard.owner(&headers(&[("authorization", value)])).map(named).ok();
    assert_eq!(owner("Bearer t1").as_deref(), Some("default"));
    assert_eq!(owner("bearer t2").as_deref(), Some("alice"));
    for wrong in ["", "t1", "Bearer", "Bearer ", "Bearer t3", "Basic t1", "Bearer t1 t2", "Bearert1"] {
        assert_eq!(owner(wrong), None, "{wrong:?}");
    }
    let answer = guard.owner(&headers(&[])).unwrap_err();
    assert_eq!(
        (answer.status(), answer.headers()[WWW_AUTHENTICATE].as_bytes()),
        (StatusCode::UNAUTHORIZED, &b"Bearer"[..])
    );
    assert!(
        guard.owner(&headers(&[("authorization", "Bearer t1"), ("authorization", "Bearer t2")])).is_err()
    );
}
