//! Who may reach the daemon, and how: the listeners, tokens, and what clients see. This checks nothing.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;

use crate::config::{KnownToken, check};
use crate::ports::PortBounds;
use crate::tenants::TokensFile;

/// The listener, and the requests that it accepts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpSettings {
    /// The address to listen on; port 0 asks for a free one.
    pub addr: SocketAddr,
    /// The URL by which clients reach the daemon, if it differs from the address.
    pub public_url: Option<PublicUrl>,
    /// Further accepted values of `Host`: lower case, with a port only where one must match.
    pub allowed_hosts: Vec<String>,
    /// Accepted values of `Origin`, lower case.
    pub allowed_origins: Vec<String>,
    /// The files of TLS; `None` for plain HTTP.
    pub tls: Option<TlsFiles>,
    /// The largest body of a request, in bytes.
    pub max_body: u64,
    /// Time for a request's head to arrive.
    pub header_timeout: Duration,
    /// Time for the next piece of its body to arrive.
    pub body_timeout: Duration,
    /// Time for a client to read some of its answer.
    pub write_timeout: Duration,
}

impl HttpSettings {
    /// The base of links, without a slash at the end, for a listener at this address.
    #[must_use]
    pub fn base_url(&self, bound: SocketAddr) -> String {
        match &self.public_url {
            Some(url) => url.as_str().to_owned(),
            None => format!("{}://{}", self.scheme(), reachable(bound)),
        }
    }

    /// The scheme of the daemon's own listeners.
    #[must_use]
    pub fn scheme(&self) -> &'static str {
        if self.tls.is_some() { "https" } else { "http" }
    }
}

/// The files of TLS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate and those that lead to its authority, in PEM.
    pub certificate: PathBuf,
    /// Its private key, in PEM.
    pub key: PathBuf,
}

/// The address at which this machine reaches a listener: one on every interface is reached by loopback.
pub(crate) fn reachable(listener: SocketAddr) -> SocketAddr {
    let ip = match listener.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip @ (IpAddr::V4(_) | IpAddr::V6(_)) => ip,
    };
    SocketAddr::new(ip, listener.port())
}

/// An `http` or `https` URL without query, fragment, user or a slash at the end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublicUrl {
    pub(in crate::config) url: String,
    pub(in crate::config) authority: String,
}

impl PublicUrl {
    /// The whole URL.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.url
    }

    /// Its host in lower case, with the port if it names one: the `Host` of a client that uses it.
    #[must_use]
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// Whether its host is a name of this machine itself.
    #[must_use]
    pub fn is_loopback(&self) -> bool {
        check::access::is_loopback(&self.authority)
    }
}

/// The tokens of callers. Without any, everyone may call, and the configuration allows that.
#[derive(Debug, Clone, PartialEq)]
pub struct AuthSettings {
    /// The one of `auth.token` comes first.
    pub tokens: Vec<KnownToken>,
    /// The file of further tokens, by an absolute path.
    pub tokens_file: TokensFile,
}

/// How the daemon serves MCP clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct McpSettings {
    /// How long a call continues after its client disconnected, in case it reconnects.
    pub resume_window: Duration,
    /// The tools that clients see; all if empty.
    pub toolsets: Vec<ToolSet>,
}

/// A set of tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ToolSet {
    /// Code and files.
    Code,
    /// Shell commands.
    Exec,
    /// Coding agents.
    Task,
}

/// The way in to servers that programs run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortsSettings {
    /// The address of a listener that serves only links to ports.
    pub addr: Option<SocketAddr>,
    /// The URL at which clients reach this listener, if it is not the address.
    pub public_url: Option<PublicUrl>,
    /// The bounds.
    pub bounds: PortBounds,
}

impl PortsSettings {
    /// The base of links, without a slash at the end, for a listener at this address with this scheme.
    #[must_use]
    pub fn base_url(&self, scheme: &str, bound: SocketAddr) -> String {
        match &self.public_url {
            Some(url) => url.as_str().to_owned(),
            None => format!("{scheme}://{}", reachable(bound)),
        }
    }
}

/// Who may read the metrics, beside every caller with a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MetricsSettings {
    /// The address of a listener that serves only the metrics, without a token.
    pub addr: Option<SocketAddr>,
    /// The SHA-256 of a token that gives access only to the metrics.
    pub token: Option<[u8; 32]>,
}
