//! Who may ask: the `Host` must be ours (or a page elsewhere could reach us by DNS rebinding), an `Origin` must
//! be too (or a page elsewhere could use a browser's reach), and where tokens are configured one must be given.
//!
//! It must never compare a token in a time that depends on it.

use http::header::{AUTHORIZATION, HOST, HeaderValue, ORIGIN, WWW_AUTHENTICATE};
use http::{HeaderMap, StatusCode, Uri};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::body::{Answer, error};
use crate::config::Token;
use crate::sign::DEFAULT_OWNER;

/// What a request is measured by.
pub(super) struct Guard {
    /// `host` or `host:port`, lower case.
    hosts: Vec<String>,
    /// `scheme://host[:port]`, lower case.
    origins: Vec<String>,
    tokens: Vec<Token>,
    metrics: Option<[u8; 32]>,
}

impl Guard {
    /// `public` is the public URL, whose host and origin are ours.
    pub(super) fn new(
        public: &str,
        hosts: &[String],
        origins: &[String],
        tokens: Vec<Token>,
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
        Self { hosts, origins, tokens, metrics }
    }

    /// Checks what every route demands.
    pub(super) fn admit(&self, headers: &HeaderMap) -> Result<(), Box<Answer>> {
        let mut hosts = headers.get_all(HOST).iter();
        let host = hosts.next().and_then(|value| value.to_str().ok()).map(str::to_ascii_lowercase);
        let Some(host) = host.filter(|host| hosts.next().is_none() && self.is_ours(host)) else {
            let message = "this Host is not served; list it in http.allowed_hosts or set http.public_url";
            return Err(Box::new(error(StatusCode::FORBIDDEN, "forbidden_host", message)));
        };
        for origin in headers.get_all(ORIGIN) {
            let origin = origin.to_str().unwrap_or("").to_ascii_lowercase();
            let same = origin
                .split_once("://")
                .is_some_and(|(scheme, at)| matches!(scheme, "http" | "https") && at == host);
            if !same && !self.origins.contains(&origin) {
                let message = "requests from this Origin are not served; list it in http.allowed_origins";
                return Err(Box::new(error(StatusCode::FORBIDDEN, "forbidden_origin", message)));
            }
        }
        Ok(())
    }

    fn is_ours(&self, host: &str) -> bool {
        let name = without_port(host);
        is_loopback(name) || self.hosts.iter().any(|ours| ours == host || ours == name)
    }

    /// The name of the token that a request carries.
    pub(super) fn owner(&self, headers: &HeaderMap) -> Result<&str, Box<Answer>> {
        if self.tokens.is_empty() {
            return Ok(DEFAULT_OWNER);
        }
        let mut owner = None;
        if let Some(digest) = given(headers) {
            for known in &self.tokens {
                if bool::from(known.sha256[..].ct_eq(&digest[..])) {
                    owner = Some(known.name.as_str());
                }
            }
        }
        owner.ok_or_else(unauthorized)
    }

    /// Whether a request may see the metrics: with any token, or with the one that is for them alone; anyone may where none
    /// is configured.
    pub(super) fn reads_metrics(&self, headers: &HeaderMap) -> Result<(), Box<Answer>> {
        let Some(own) = &self.metrics else { return self.owner(headers).map(drop) };
        let is_own = given(headers).is_some_and(|digest| bool::from(own[..].ct_eq(&digest[..])));
        if is_own || (!self.tokens.is_empty() && self.owner(headers).is_ok()) {
            return Ok(());
        }
        Err(unauthorized())
    }
}

/// The SHA-256 of the one token that a request carries.
fn given(headers: &HeaderMap) -> Option<[u8; 32]> {
    let mut given = headers.get_all(AUTHORIZATION).iter();
    let (scheme, token) = given.next()?.to_str().ok()?.split_once(' ')?;
    let is_one = scheme.eq_ignore_ascii_case("bearer") && given.next().is_none();
    is_one.then(|| Sha256::digest(token.trim().as_bytes()).into())
}

fn unauthorized() -> Box<Answer> {
    let message = "a valid token is needed: Authorization: Bearer <token>";
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
            .map(|(name, token)| Token {
                name: (*name).into(),
                sha256: Sha256::digest(token.as_bytes()).into(),
            })
            .collect();
        let listed = ["LAN.example:8080".to_owned(), "any.example".to_owned()];
        Guard::new("https://box.example/p", &listed, &["https://n8n.example".to_owned()], tokens, None)
    }

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
            assert!(guard.admit(&headers(&[("host", host)])).is_ok(), "{host}");
        }
        for host in [
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
        ] {
            let answer = guard.admit(&headers(&[("host", host)])).unwrap_err();
            assert_eq!(answer.status(), StatusCode::FORBIDDEN, "{host}");
        }
        assert!(guard.admit(&headers(&[])).is_err());
        assert!(guard.admit(&headers(&[("host", "localhost"), ("host", "evil.example")])).is_err());
    }

    #[test]
    fn origins_that_are_ours() {
        let guard = guard(&[]);
        for origin in ["http://localhost:8080", "https://box.example", "https://n8n.example"] {
            assert!(
                guard.admit(&headers(&[("host", "localhost:8080"), ("origin", origin)])).is_ok(),
                "{origin}"
            );
        }
        for origin in [
            "http://evil.example",
            "null",
            "",
            "http://localhost:3000",
            "http://n8n.example",
            "localhost:8080",
        ] {
            assert!(
                guard.admit(&headers(&[("host", "localhost:8080"), ("origin", origin)])).is_err(),
                "{origin:?}"
            );
        }
    }

    #[test]
    fn tokens_say_whose_request_it_is() {
        let guard = guard(&[("default", "t1"), ("alice", "t2")]);
        let owner = |value: &str| guard.owner(&headers(&[("authorization", value)])).map(str::to_owned).ok();
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
