//! Who can reach the daemon, and who may call it. The most important rule: without a token, only this
//! machine.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use http::Uri;
use http::uri::Authority;
use sha2::{Digest, Sha256};

use super::{Checker, HOUR};
use crate::config::env::{TAKES_ADDR, parse_addr};
use crate::config::error::ConfigError;
use crate::config::raw::{AuthTable, HttpTable, MetricsTable};
use crate::config::types::{AuthSettings, HttpSettings, MetricsSettings, PublicUrl, StoreSettings, TlsFiles};
use crate::config::value::Secret;
use crate::tenants::{KnownToken, MAX_TOKENS, TokensFile, is_there};

/// The name of `auth.token`, and of callers without one.
const DEFAULT_NAME: &str = "default";

/// The file of tokens in the store, if no other is named.
const TOKENS_FILE: &str = "tokens.toml";

/// The file in the store that says that it had a [`TOKENS_FILE`].
const GUARDED_MARK: &str = "guarded";

impl Checker<'_> {
    pub(super) fn http(&mut self, raw: HttpTable) -> Result<HttpSettings, ConfigError> {
        let HttpTable {
            addr,
            public_url,
            allowed_hosts,
            allowed_origins,
            // Checked with the tokens, in `openness`.
            allow_open: _,
            tls_certificate,
            tls_key,
            max_body,
            header_timeout,
            body_timeout,
            write_timeout,
        } = raw;
        let parsed = parse_addr(&addr);
        let addr =
            parsed.ok_or_else(|| self.fail("http.addr", format!("is {addr:?}, takes {TAKES_ADDR}")))?;
        let public_url =
            if public_url.is_empty() { None } else { Some(self.public_url("http.public_url", &public_url)?) };
        if public_url.is_none() && addr.ip().is_unspecified() {
            self.warn("http.public_url is not set: links to files will only work on this machine".into());
        }
        let tls = self.tls_files(&tls_certificate, &tls_key)?;
        if let (Some(_), Some(url)) = (&tls, &public_url)
            && url.as_str().starts_with("http:")
        {
            let shown = url.as_str();
            self.warn(format!("http.public_url is {shown}, but the daemon speaks TLS: links need https"));
        }
        let instant = Duration::from_millis(100);
        Ok(HttpSettings {
            addr,
            public_url,
            allowed_hosts: self.hosts(allowed_hosts)?,
            allowed_origins: self.origins(allowed_origins)?,
            tls,
            max_body: self.max_body(max_body)?,
            header_timeout: self.time("http.header_timeout", header_timeout, instant..=HOUR)?,
            body_timeout: self.time("http.body_timeout", body_timeout, instant..=HOUR)?,
            write_timeout: self.time("http.write_timeout", write_timeout, instant..=HOUR)?,
        })
    }

    /// The files of TLS: both or none. What is in them is checked when the daemon reads them.
    fn tls_files(&self, certificate: &str, key: &str) -> Result<Option<TlsFiles>, ConfigError> {
        const CERTIFICATE: &str = "http.tls_certificate";
        const KEY: &str = "http.tls_key";
        let lacks = |lacking: &str, given| {
            self.fail(
                lacking,
                format!("is empty, while {given} is set: TLS needs both files, plain HTTP none"),
            )
        };
        match (certificate.is_empty(), key.is_empty()) {
            (true, true) => Ok(None),
            (true, false) => Err(lacks(CERTIFICATE, KEY)),
            (false, true) => Err(lacks(KEY, CERTIFICATE)),
            (false, false) => Ok(Some(TlsFiles {
                certificate: self.absolute(CERTIFICATE, certificate)?,
                key: self.absolute(KEY, key)?,
            })),
        }
    }

    pub(super) fn metrics(
        &mut self,
        raw: MetricsTable,
        auth: &AuthSettings,
    ) -> Result<MetricsSettings, ConfigError> {
        let MetricsTable { addr, token } = raw;
        let addr = self.addr_or_none("metrics.addr", &addr)?;
        let token = self.secret("metrics.token", token)?;
        let token = if token.expose().is_empty() {
            None
        } else {
            self.visible("metrics.token", &token)?;
            let sha256: [u8; 32] = Sha256::digest(token.expose()).into();
            if auth.tokens.iter().any(|other| other.sha256 == sha256) {
                let problem = "is a token that can run code as well; it takes one of its own";
                return Err(self.fail("metrics.token", problem));
            }
            Some(sha256)
        };
        Ok(MetricsSettings { addr, token })
    }

    /// The address of a further listener; empty: none.
    pub(super) fn addr_or_none(&self, key: &str, text: &str) -> Result<Option<SocketAddr>, ConfigError> {
        if text.is_empty() {
            return Ok(None);
        }
        let wrong = || self.fail(key, format!("is {text:?}, takes {TAKES_ADDR}; empty for none"));
        parse_addr(text).ok_or_else(wrong).map(Some)
    }

    /// Refuses a token that a header cannot carry, and warns of a token that can be guessed.
    fn visible(&mut self, key: &str, token: &Secret) -> Result<(), ConfigError> {
        if !token.expose().bytes().all(|b| b.is_ascii_graphic()) {
            let problem = "takes visible ASCII characters without spaces: a header carries no others";
            return Err(self.fail(key, problem));
        }
        self.warn_if_short(key, token);
        Ok(())
    }

    pub(super) fn public_url(&self, key: &str, text: &str) -> Result<PublicUrl, ConfigError> {
        let parsed = text.parse::<Uri>().ok().filter(|uri| {
            matches!(uri.scheme_str(), Some("http" | "https"))
                && uri.authority().is_some_and(is_plain)
                && uri.query().is_none()
                && !text.contains('#')
        });
        let Some((uri, authority)) = parsed.as_ref().and_then(|uri| Some((uri, uri.authority()?))) else {
            let takes = "takes an http or https URL such as \"https://sandbox.example.org\"";
            return Err(self.fail(key, format!("is {text:?}, {takes}")));
        };
        let authority = authority.as_str().to_ascii_lowercase();
        let scheme = uri.scheme_str().unwrap_or_default();
        let url = format!("{scheme}://{authority}{}", uri.path().trim_end_matches('/'));
        Ok(PublicUrl { url, authority })
    }

    fn hosts(&self, hosts: Vec<String>) -> Result<Vec<String>, ConfigError> {
        let checked = hosts.into_iter().enumerate().map(|(i, host)| {
            let known = host.parse::<Authority>().is_ok_and(|authority| is_plain(&authority));
            let wrong =
                || format!("is {host:?}, takes a name such as \"paddock.lan\" or \"paddock.lan:8080\"");
            if known {
                Ok(host.to_ascii_lowercase())
            } else {
                Err(self.fail(&format!("http.allowed_hosts[{i}]"), wrong()))
            }
        });
        checked.collect()
    }

    fn origins(&self, origins: Vec<String>) -> Result<Vec<String>, ConfigError> {
        let checked = origins.into_iter().enumerate().map(|(i, origin)| {
            let known = origin.split_once("://").is_some_and(|(scheme, host)| {
                matches!(scheme, "http" | "https") && host.parse::<Authority>().is_ok_and(|a| is_plain(&a))
            });
            let wrong = || format!("is {origin:?}, takes an origin such as \"https://n8n.example.org\"");
            if known {
                Ok(origin.to_ascii_lowercase())
            } else {
                Err(self.fail(&format!("http.allowed_origins[{i}]"), wrong()))
            }
        });
        checked.collect()
    }

    pub(super) fn auth(
        &mut self,
        AuthTable { token, tokens, tokens_file }: AuthTable,
        store: &StoreSettings,
    ) -> Result<AuthSettings, ConfigError> {
        let mut known = Vec::new();
        let token = self.secret("auth.token", token)?;
        if !token.expose().is_empty() {
            self.visible("auth.token", &token)?;
            known.push(KnownToken::plain(DEFAULT_NAME, Sha256::digest(token.expose()).into()));
        }
        if tokens.len() > MAX_TOKENS {
            let problem = format!("has {} tokens, must have at most {MAX_TOKENS}", tokens.len());
            return Err(self.fail("auth.tokens", problem));
        }
        for (i, table) in tokens.into_iter().enumerate() {
            let token = table
                .check()
                .map_err(|fault| self.fail(&format!("auth.tokens[{i}].{}", fault.key), fault.problem))?;
            if known.iter().any(|other| other.sha256 == token.sha256) {
                let problem = "is the digest of another token here: one token cannot have two names";
                return Err(self.fail(&format!("auth.tokens[{i}].sha256"), problem));
            }
            known.push(token);
        }
        let tokens_file = match tokens_file.as_str() {
            "" => {
                TokensFile { path: store.root.join(TOKENS_FILE), mark: Some(store.root.join(GUARDED_MARK)) }
            }
            path => TokensFile { path: self.absolute("auth.tokens_file", path)?, mark: None },
        };
        Ok(AuthSettings { tokens: known, tokens_file })
    }

    /// Without a token only this machine may reach the daemon, unless the operator allows everyone.
    pub(super) fn openness(
        &mut self,
        http: &HttpSettings,
        auth: &AuthSettings,
        allow_open: bool,
    ) -> Result<(), ConfigError> {
        // With a file of tokens nobody comes in without one, even if the file has none.
        let file = &auth.tokens_file;
        if !auth.tokens.is_empty() || file.guards() {
            if auth.tokens.is_empty() && !is_there(&file.path) {
                let shown = file.path.display();
                self.warn(format!(
                    "auth.tokens_file is {shown}, which is not there: no token is good until \
                     `paddock token add NAME` makes one"
                ));
            }
            return Ok(());
        }
        if file.was_there() && !allow_open {
            let shown = file.path.display();
            let problem = format!(
                "{shown} is not there any more, and callers of this store needed a token (the file \
                 {GUARDED_MARK:?} beside it says so): put it back, make a token with \
                 `paddock token add NAME`, set auth.token (MCP_API_TOKEN), or set http.allow_open \
                 (--allow-open) to serve without a token"
            );
            return Err(self.fail("auth.tokens_file", problem));
        }
        let public = http.public_url.as_ref().filter(|url| !is_loopback(url.authority()));
        let reached = if !http.addr.ip().to_canonical().is_loopback() {
            Some(("http.addr", http.addr.to_string()))
        } else {
            public.map(|url| ("http.public_url", url.as_str().to_owned()))
        };
        match reached {
            Some((key, value)) if !allow_open => {
                let problem = format!(
                    "is {value}, which others can reach, and there is no token: set auth.token \
                     (MCP_API_TOKEN), make one with `paddock token add NAME`, or set http.allow_open \
                     (--allow-open) to let everyone run code here"
                );
                Err(self.fail(key, problem))
            }
            Some((_, value)) => {
                self.warn(format!("there is no token: everyone who reaches {value} can run code here"));
                Ok(())
            }
            None => {
                self.warn("there is no token: everyone on this machine can run code here".into());
                Ok(())
            }
        }
    }
}

/// Whether it is one host, with or without a port, and not a pattern for several.
fn is_plain(authority: &Authority) -> bool {
    let host = authority.host();
    let port = authority.as_str().strip_prefix(host).unwrap_or("@");
    !host.is_empty() && !host.contains('*') && (port.is_empty() || authority.port_u16().is_some())
}

/// Whether a host, with or without a port, is a name of this machine itself.
pub(in crate::config) fn is_loopback(authority: &str) -> bool {
    let Ok(authority) = authority.parse::<Authority>() else { return false };
    let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_ascii_lowercase();
    let ip = host.parse::<IpAddr>();
    ip.map_or(host == "localhost" || host.ends_with(".localhost"), |ip| ip.to_canonical().is_loopback())
}
