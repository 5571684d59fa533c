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

use http::header::{AUTHORIZATION, HOST, HeaderValue, ORIGIN, WWW_AUTHENTICATE};
use http::uri::Authority;
use http::{HeaderMap, StatusCode, Uri};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use tokio_util::sync::CancellationToken;

use super::body::{Answer, error};
use super::route::Route;
use crate::sign::DEFAULT_OWNER;
use crate::store::StoreClock;
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
    /// That of a caller who needs no token, or who is known otherwise. Where callers need tokens, that of an
    /// owner who has none is over already: nobody would ever cancel it.
    pub(super) fn of_owner(tenants: &Tenants, owner: &str) -> Self {
        let book = tenants.book();
        let tenant = book.tenant(owner).cloned().unwrap_or_else(|| {
            let (terms, over) = (TenantTerms::default(), CancellationToken::new());
            if book.is_guarded() {
                over.cancel();
            }
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
            Route::Metrics if self.has_metrics_token(headers) => true,
            Route::Mcp
            | Route::Events
            | Route::Sessions(_)
            | Route::Ports(_)
            | Route::Status
            | Route::Backup
            | Route::Cluster(_)
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
        let found = given(headers)
            .and_then(|digest| book.find(&digest, || StoreClock::new().for_expiry()).map(Credential::from));
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
            book.find(&digest, || StoreClock::new().for_expiry()).is_some() || is_of_metrics
        };
        headers.get_all(AUTHORIZATION).iter().filter_map(bearer).any(is_known)
    }

    /// Whether a request carries the token for metrics alone.
    fn has_metrics_token(&self, headers: &HeaderMap) -> bool {
        let Some(own) = &self.metrics else { return false };
        given(headers).is_some_and(|digest| bool::from(own[..].ct_eq(&digest[..])))
    }

    /// Checks whether a request may read the metrics, and whose it is if it is a tenant's: with the token for
    /// metrics alone, or with any other. While several tenants have tokens, only with that of an operator:
    /// the figures name all of them. If no token is configured at all, every request may.
    pub(super) fn reads_metrics(&self, headers: &HeaderMap) -> Result<Option<Credential>, Box<Answer>> {
        if self.has_metrics_token(headers) {
            return Ok(None);
        }
        let book = self.tenants.book();
        if !book.is_guarded() {
            return if self.metrics.is_some() { Err(unauthorized()) } else { Ok(None) };
        }
        let credential = self.owner(headers)?;
        if book.has_neighbours() && !credential.tenant.terms.is_operator {
            let message = "these figures name every tenant, and several have tokens: /metrics takes \
                           metrics.token, or the token of an operator";
            return Err(Box::new(error(StatusCode::FORBIDDEN, "forbidden", message)));
        }
        Ok(Some(credential))
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
mod tests;
