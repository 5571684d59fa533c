//! The HTTP proxy of a company network, and how a connection is asked of it (RFC 9110, section 9.3.6).
//!
//! ```text
//!  CONNECT 93.184.216.34:443 ──► proxy ──► the destination
//!  ◄── 200: from the next byte on, this is the connection
//! ```
//!
//! The proxy is trusted to connect to what it is told, and with nothing else: its answer is bounded, and the
//! first byte behind it belongs to the program. Its password must never be shown, logged or told.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Uri;
use paddock_proto::message::ConnectFailure;
use percent_encoding::percent_decode_str;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::dial;
use super::host_name::{Host, HostName};

/// Bytes of an answer's head, informational answers before it included.
const MAX_HEAD: usize = 16 * 1024;

/// Lines of an answer's head.
const MAX_LINES: usize = 64;

/// Bytes that are looked at together.
const PEEK: usize = 2048;

/// An HTTP proxy, with what it is to be told of who asks.
#[derive(Clone, PartialEq, Eq)]
pub struct UpstreamProxy {
    /// Where it is.
    pub(super) host: Host,
    /// The port that it listens on.
    pub(super) port: u16,
    /// The value of `Proxy-Authorization`.
    authorization: Option<String>,
}

impl fmt::Debug for UpstreamProxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let has_password = if self.authorization.is_some() { ", with credentials" } else { "" };
        write!(f, "UpstreamProxy({self}{has_password})")
    }
}

impl fmt::Display for UpstreamProxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&authority(&self.host, self.port))
    }
}

/// The text is no proxy. No message repeats it: it may have a password.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum UpstreamProxyError {
    /// It is no URL, or has no host.
    #[error("is no URL such as http://proxy.lan:3128 or http://user:password@proxy.lan:3128")]
    Malformed,
    /// It has another scheme.
    #[error("is not reached by http://: CONNECT is asked for without TLS, as in http://proxy.lan:3128")]
    Scheme,
    /// It has no port.
    #[error("names no port, as in http://proxy.lan:3128")]
    NoPort,
    /// It has something behind the port.
    #[error("has a path: a proxy is a host and a port, as in http://proxy.lan:3128")]
    Path,
    /// The user has no password.
    #[error("has a user without a password, takes http://user:password@host:port")]
    NoPassword,
}

impl FromStr for UpstreamProxy {
    type Err = UpstreamProxyError;

    fn from_str(text: &str) -> Result<Self, UpstreamProxyError> {
        let uri: Uri = text.trim().parse().map_err(|_| UpstreamProxyError::Malformed)?;
        match uri.scheme_str() {
            Some("http") => {}
            Some(_) => return Err(UpstreamProxyError::Scheme),
            None => return Err(UpstreamProxyError::Malformed),
        }
        if uri.path_and_query().is_some_and(|rest| rest.as_str() != "/") {
            return Err(UpstreamProxyError::Path);
        }
        let authority = uri.authority().ok_or(UpstreamProxyError::Malformed)?;
        let port = authority.port_u16().filter(|port| *port > 0).ok_or(UpstreamProxyError::NoPort)?;
        let host = authority.host().trim_start_matches('[').trim_end_matches(']');
        let host = match host.parse::<IpAddr>() {
            Ok(address) => Host::Address(address),
            Err(_) => Host::Name(host.parse::<HostName>().map_err(|_| UpstreamProxyError::Malformed)?),
        };
        let authorization = match authority.as_str().rsplit_once('@') {
            None => None,
            Some((who, _)) => {
                let (user, password) = who.split_once(':').ok_or(UpstreamProxyError::NoPassword)?;
                let decoded = |text| percent_decode_str(text).collect::<Vec<u8>>();
                let both = [decoded(user), decoded(password)].join(&b':');
                Some(format!("Basic {}", STANDARD.encode(both)))
            }
        };
        Ok(Self { host, port, authorization })
    }
}

impl UpstreamProxy {
    /// Where it is.
    pub fn address(&self) -> (&Host, u16) {
        (&self.host, self.port)
    }
}

/// A host and a port, as they stand in a request.
pub(super) fn authority(host: &Host, port: u16) -> String {
    match host {
        Host::Name(name) => format!("{}:{port}", name.as_str()),
        Host::Address(address) => SocketAddr::new(*address, port).to_string(),
    }
}

/// Why the proxy gave no connection. The text is what a run is told, and its operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum ProxyFailure {
    #[error("the name of this server's upstream proxy has no address")]
    NoAddress,
    #[error("this server's upstream proxy cannot be reached")]
    Unreachable,
    #[error("this server's upstream proxy did not answer in time")]
    Silent,
    #[error("this server's upstream proxy closed the connection without an answer")]
    Closed,
    #[error("this server's upstream proxy answered with something that is not HTTP")]
    NotHttp,
    #[error("this server's upstream proxy answered with more than {MAX_LINES} lines or {MAX_HEAD} bytes")]
    TooLong,
    #[error("this server's upstream proxy does not accept the credentials of egress.upstream_proxy (407)")]
    Credentials,
    #[error("this server's upstream proxy refuses this destination ({0})")]
    Forbidden(u16),
    #[error("this server's upstream proxy could not reach it ({0})")]
    NotReached(u16),
    #[error("this server's upstream proxy gave no connection: it answered {0}")]
    Other(u16),
}

impl ProxyFailure {
    fn of(status: u16) -> Self {
        match status {
            407 => Self::Credentials,
            403 | 451 => Self::Forbidden(status),
            502..=504 => Self::NotReached(status),
            _ => Self::Other(status),
        }
    }

    /// What the program's call fails with.
    pub(super) fn of_program(self) -> ConnectFailure {
        match self {
            Self::Forbidden(_) => ConnectFailure::Blocked,
            Self::Silent | Self::NotReached(504) => ConnectFailure::TimedOut,
            Self::NoAddress
            | Self::Unreachable
            | Self::Closed
            | Self::NotHttp
            | Self::TooLong
            | Self::Credentials
            | Self::NotReached(_)
            | Self::Other(_) => ConnectFailure::Unreachable,
        }
    }

    /// Whether it is the proxy itself that does not work, whatever the destination.
    pub(super) fn is_of_the_proxy(self) -> bool {
        !matches!(self, Self::Forbidden(_) | Self::NotReached(_) | Self::Other(_))
    }
}

impl UpstreamProxy {
    /// Connects to a destination through the proxy, which is at these addresses. The caller bounds the time.
    ///
    /// # Errors
    /// Why there is no connection.
    pub(super) async fn connect(
        &self,
        at: &[SocketAddr],
        (host, port): (&Host, u16),
    ) -> Result<TcpStream, ProxyFailure> {
        let mut socket = dial::connect(at).await.map_err(|_| ProxyFailure::Unreachable)?;
        let target = authority(host, port);
        let mut request = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n");
        if let Some(value) = &self.authorization {
            request += &format!("Proxy-Authorization: {value}\r\n");
        }
        request += "\r\n";
        let answered = async {
            socket.write_all(request.as_bytes()).await.map_err(|_| ProxyFailure::Closed)?;
            status(&mut socket).await
        };
        match answered.await? {
            200..=299 => Ok(socket),
            status => Err(ProxyFailure::of(status)),
        }
    }
}

/// The status of the proxy's answer. It takes the answer's head off the socket, and nothing behind it.
async fn status(socket: &mut TcpStream) -> Result<u16, ProxyFailure> {
    let gone = |_: io::Error| ProxyFailure::Closed;
    let (mut head, mut before) = (Vec::new(), 0);
    let mut peeked = [0; PEEK];
    loop {
        let seen = socket.peek(&mut peeked).await.map_err(gone)?;
        if seen == 0 {
            return Err(ProxyFailure::Closed);
        }
        let known = head.len();
        head.extend_from_slice(&peeked[..seen]);
        let parsed = parse(&head)?;
        let taken = parsed.map_or(seen, |(_, end)| end - known);
        socket.read_exact(&mut peeked[..taken]).await.map_err(gone)?;
        match parsed {
            // It goes on working on it.
            Some((100..=199, end)) => {
                before += end;
                head.clear();
            }
            Some((status, _)) => return Ok(status),
            None => {}
        }
        if before + head.len() > MAX_HEAD {
            return Err(ProxyFailure::TooLong);
        }
    }
}

/// The status of an answer, and where its head ends; `None` if it does not end here.
fn parse(bytes: &[u8]) -> Result<Option<(u16, usize)>, ProxyFailure> {
    let mut headers = [httparse::EMPTY_HEADER; MAX_LINES];
    let mut response = httparse::Response::new(&mut headers);
    match response.parse(bytes) {
        Ok(httparse::Status::Complete(end)) => Ok(response.code.map(|code| (code, end))),
        Ok(httparse::Status::Partial) => Ok(None),
        Err(httparse::Error::TooManyHeaders) => Err(ProxyFailure::TooLong),
        Err(_) => Err(ProxyFailure::NotHttp),
    }
}

#[cfg(test)]
#[path = "upstream_proxy_tests.rs"]
pub(super) mod tests;
