//! Checks a request before it is served: its token where tokens are configured, its `Origin`, and, if it has
//! no credential, its `Host`.
//!
//! Why the `Host`: a stranger's web site can have its own name resolve to this machine (DNS rebinding). A
//! visitor's browser then takes the daemon for a part of that site, sends requests here and lets the site's
//! page read the answers. Such a request names the stranger's host, and it carries no credential of ours,
//! because the browser keeps credentials by site and the page knows none. So the `Host` matters exactly where
//! a request is served without a credential:
//!
//! | request | what its `Host` must be |
//! |---|---|
//! | with a valid token (also `metrics.token`, for `/metrics`) | anything: a container says `paddock:8080` |
//! | `/files`, `/logs` | anything: without a valid signature they reveal nothing |
//! | `/health`, `/ready` | anything, or none: they reveal no secret, and load balancers ask by address |
//! | others: the page; any route of a daemon without tokens | loopback, the public URL's, or a listed one |
//!
//! A target in absolute form takes precedence over `Host` (RFC 9112, 3.2.2). Our own origin is `http` at our
//! own host, or `https` if the daemon speaks TLS; the other one is foreign unless `http.public_url` or
//! `http.allowed_origins` names it.
//!
//! The time of comparing a token must never depend on the token.

use std::sync::Arc;
use std::time::SystemTime;

use http::header::{AUTHORIZATION, HOST, HeaderValue, ORIGIN, WWW_AUTHENTICATE};
use http::uri::Authority;
use http::{HeaderMap, StatusCode, Uri};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use tokio_util::sync::CancellationToken;

use super::body::{Answer, error};
use super::route::Route;
use crate::sign::DEFAULT_OWNER;
use crate::tenants::{LiveToken, Tenant, TenantTerms, Tenants};

/// The most characters of a foreign host or origin in a refusal.
const SHOWN: usize = 100;

/// The hosts, origins and tokens that requests are checked against.
pub(super) struct Guard {
    /// `host` or `host:port`, lower case.
    hosts: Vec<String>,
    /// `scheme://host[:port]`, lower case.
    origins: Vec<String>,
    /// What our own origin begins with.
    scheme: &'static str,
    tenants: Arc<Tenants>,
    metrics: Option<[u8; 32]>,
}

/// Who a request is from.
#[derive(Debug, Clone)]
pub(super) struct Credential {
    /// The tenant.
    pub(super) tenant: Arc<Tenant>,
    /// Cancelled when what the request showed is not good any more.
    pub(super) over: CancellationToken,
}

impl From<&LiveToken> for Credential {
    fn from(token: &LiveToken) -> Self {
        Self { tenant: token.tenant.clone(), over: token.over.clone() }
    }
}

impl Credential {
    /// That of a caller who needs no token, or who is known otherwise.
    pub(super) fn of_owner(tenants: &Tenants, owner: &str) -> Self {
        let tenant = tenants.book().tenant(owner).cloned().unwrap_or_else(|| {
            let (terms, over) = (TenantTerms::default(), CancellationToken::new());
            Arc::new(Tenant { name: Arc::from(owner), id: Default::default(), terms, over })
        });
        let over = tenant.over.clone();
        Self { tenant, over }
    }
}

impl Guard {
    /// `public` is the public URL, whose host and origin are ours.
    pub(super) fn new(
        public: &str,
        hosts: &[String],
        origins: &[String],
        has_tls: bool,
        tenants: Arc<Tenants>,
        metrics: Option<[u8; 32]>,
    ) -> Self {
        let lower = |list: &[String]| list.iter().map(|item| item.to_ascii_lowercase()).collect::<Vec<_>>();
        let (mut hosts, mut origins) = (lower(hosts), lower(origins));
        if let Ok(uri) = public.parse::<Uri>()
            && let (Some(scheme), Some(authority)) = (uri.scheme_str(), uri.authority())
        {
            hosts.push(authority.host().to_ascii_lowercase());
            origins.push(format!("{scheme}://{authority}").to_ascii_lowercase());
        }
        let scheme = if has_tls { "https://" } else { "http://" };
        Self { hosts, origins, scheme, tenants, metrics }
    }

    /// Checks the request's `Host` and `Origin`, before the route asks for a token.
    pub(super) fn admit(&self, route: Route<'_>, uri: &Uri, headers: &HeaderMap) -> Result<(), Box<Answer>> {
        let named = host(uri, headers);
        let ours = named.as_ref().ok().and_then(Option::as_deref).filter(|host| self.is_ours(host));
        if ours.is_none() && !matches!(route, Route::Health | Route::Ready) {
            let host = named.as_ref().map_err(|problem| forbidden_host(problem))?;
            if !self.has_credential(route, headers) {
                let shown: String = host.as_deref().unwrap_or_default().chars().take(SHOWN).collect();
                let message = format!(
                    "the host {shown:?} is served with a valid token only; to serve it without one, list it \
                     in http.allowed_hosts or make it the host of http.public_url"
                );
                return Err(forbidden_host(&message));
            }
        }
        for origin in headers.get_all(ORIGIN) {
            let origin = origin.to_str().unwrap_or("").to_ascii_lowercase();
            let is_own = origin.strip_prefix(self.scheme).is_some_and(|at| Some(at) == ours);
            if !is_own && !self.origins.contains(&origin) {
                let shown: String = origin.chars().take(SHOWN).collect();
                let message = format!(
                    "requests of the Origin {shown:?} are not served; to serve them, list it in \
                     http.allowed_origins"
                );
                return Err(Box::new(error(StatusCode::FORBIDDEN, "forbidden_origin", &message)));
            }
        }
        Ok(())
    }

    /// Whether a request has a credential, for which its `Host` may be anything: see the table above.
    fn has_credential(&self, route: Route<'_>, headers: &HeaderMap) -> bool {
        match route {
            Route::Files(_) | Route::Logs(_) => true, // a signature, which these routes always check
            Route::Metrics if self.metrics.is_some() => self.reads_metrics(headers).is_ok(),
            Route::Mcp
            | Route::Events
            | Route::Sessions(_)
            | Route::Ports(_)
            | Route::Status
            | Route::Backup
            | Route::Metrics
            | Route::Health
            | Route::Ready
            | Route::Page(_) => self.tenants.book().is_guarded() && self.owner(headers).is_ok(),
        }
    }

    fn is_ours(&self, host: &str) -> bool {
        let name = without_port(host);
        is_loopback(name) || self.hosts.iter().any(|ours| ours == host || ours == name)
    }

    /// The token that a request carries, and whose it is.
    pub(super) fn owner(&self, headers: &HeaderMap) -> Result<Credential, Box<Answer>> {
        let book = self.tenants.book();
        if !book.is_guarded() {
            return Ok(Credential::of_owner(&self.tenants, DEFAULT_OWNER));
        }
        let found =
            given(headers).and_then(|digest| book.find(&digest, SystemTime::now).map(Credential::from));
        found.ok_or_else(unauthorized)
    }

    /// Whether a request carries the token of an operator.
    pub(super) fn is_operator(&self, headers: &HeaderMap) -> bool {
        self.owner(headers).is_ok_and(|credential| credential.tenant.terms.is_operator)
    }

    /// Whether a request carries any token of the daemon's, also beside another credential.
    pub(super) fn has_token(&self, headers: &HeaderMap) -> bool {
        let book = self.tenants.book();
        let is_of_metrics =
            |digest: &[u8; 32]| self.metrics.is_some_and(|own| bool::from(own[..].ct_eq(&digest[..])));
        let is_known = |digest: [u8; 32]| {
            let is_of_metrics = is_of_metrics(&digest);
            book.find(&digest, SystemTime::now).is_some() || is_of_metrics
        };
        headers.get_all(AUTHORIZATION).iter().filter_map(bearer).any(is_known)
    }

    /// Checks whether a request may read the metrics: with any token, or with the one for metrics alone. If
    /// no token is configured at all, every request may.
    pub(super) fn reads_metrics(&self, headers: &HeaderMap) -> Result<(), Box<Answer>> {
        let Some(own) = &self.metrics else { return self.owner(headers).map(drop) };
        let is_own = given(headers).is_some_and(|digest| bool::from(own[..].ct_eq(&digest[..])));
        if is_own || (self.tenants.book().is_guarded() && self.owner(headers).is_ok()) {
            return Ok(());
        }
        Err(unauthorized())
    }
}

/// The host that a request names, in lower case; `None` if it names none.
///
/// # Errors
/// The request names more than one host, or a host that is not text.
fn host(uri: &Uri, headers: &HeaderMap) -> Result<Option<String>, &'static str> {
    let mut given = headers.get_all(HOST).iter();
    let (first, second) = (given.next().map(HeaderValue::to_str).transpose(), given.next());
    let (Ok(first), None) = (first, second) else {
        return Err("a request may have only one Host header, and its value must be text");
    };
    let target = uri.authority().map(Authority::as_str);
    if let (Some(target), Some(first)) = (target, first)
        && !target.eq_ignore_ascii_case(first)
    {
        return Err("the request's target names another host than its Host");
    }
    Ok(target.or(first).map(str::to_ascii_lowercase))
}

fn forbidden_host(message: &str) -> Box<Answer> {
    Box::new(error(StatusCode::FORBIDDEN, "forbidden_host", message))
}

/// The SHA-256 of a request's token; `None` if it has no token or more than one.
fn given(headers: &HeaderMap) -> Option<[u8; 32]> {
    let mut given = headers.get_all(AUTHORIZATION).iter();
    let first = given.next()?;
    bearer(first).filter(|_| given.next().is_none())
}

/// The SHA-256 of the token in one header.
fn bearer(value: &HeaderValue) -> Option<[u8; 32]> {
    let (scheme, token) = value.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| Sha256::digest(token.trim().as_bytes()).into())
}

pub(super) fn unauthorized() -> Box<Answer> {
    let message = "a valid token is needed: send the header Authorization: Bearer <token>";
    let mut answer = error(StatusCode::UNAUTHORIZED, "unauthorized", message);
    answer.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    Box::new(answer)
}

/// The name in `name`, `name:port`, `[v6]` or `[v6]:port`.
fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) && !name.ends_with(':') => name,
        _ => host,
    }
}

fn is_loopback(name: &str) -> bool {
    let bare = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    name == "localhost" || bare.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

#[cfg(test)]
mod tests {
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
        Guard::new(
            "https://box.example/p",
            &listed,
            &["https://n8n.example".to_owned()],
            false,
            tenants,
            None,
        )
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
}
