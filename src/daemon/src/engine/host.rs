//! The address of an engine: the `unix://`, `tcp://` and `ssh://` addresses that an operator may write.
//!
//! An address is parsed once, here; nothing else in the module reads the text again. This file must never
//! open a connection, and must never accept an address whose transport this client cannot speak, nor an
//! address of TLS without certificates: a fallback to plain TCP would give control of the machine to anybody
//! on the network path.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// The longest path of a Unix socket: `sun_path` is 108 bytes with its closing NUL.
const MAX_SOCKET_PATH: usize = 107;

/// By convention engines speak TLS on this port, and plain HTTP on 2375.
const TLS_PORT: u16 = 2376;

/// The longest name in the domain name system.
const MAX_HOST_NAME: usize = 253;

/// The address of one engine.
///
/// Only [`EngineHost::new`] makes one, so every value can be dialled. `Display` returns the text that it was
/// made from, which does not show whether it uses TLS.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EngineHost(Address);

#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Address {
    Unix(PathBuf),
    /// `host` without the brackets of an IPv6 address.
    Tcp {
        host: String,
        port: u16,
        /// The folder of the certificates for TLS; `None` for plain TCP.
        certificates: Option<PathBuf>,
    },
    Ssh(Box<SshTarget>),
}

/// An engine behind ssh. Each part is a plain word: for ssh no option, and for a shell nothing but itself.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct SshTarget {
    pub(super) user: Option<String>,
    /// A name that ssh knows, or an address without brackets.
    pub(super) host: String,
    pub(super) port: Option<u16>,
    /// The engine's socket over there, if it is not that of `docker` itself.
    pub(super) path: Option<String>,
}

/// Why a text is not an engine's address. Each variant shows the value and what would be right.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HostError {
    /// The scheme is missing or unknown.
    #[error("engine address `{0}`: expected `unix:///absolute/path`, `tcp://host:port` or `ssh://user@host`")]
    Scheme(String),
    /// A scheme of other clients that means TLS.
    #[error(
        "engine address `{0}`: for TLS write `tcp://host:port` and name its certificates \
         (engine.certificates, DOCKER_CERT_PATH)"
    )]
    Foreign(String),
    /// `ssh://` with a part that is missing or no plain word.
    #[error(
        "engine address `{value}`: {why}; expected `ssh://user@host:port/path`, where only the host is needed"
    )]
    Ssh {
        /// The text as given.
        value: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// The port is that of TLS, but there are no certificates.
    #[error(
        "engine address `{0}`: port 2376 is the port of TLS, and no certificates are named: set \
         engine.certificates (DOCKER_CERT_PATH) to the folder that has ca.pem, cert.pem and key.pem"
    )]
    NoCertificates(String),
    /// `unix://` with a path that is not absolute, is too long or holds a NUL.
    #[error(
        "engine address `{value}`: {why}; expected an absolute path such as `unix:///var/run/docker.sock`"
    )]
    Path {
        /// The text as given.
        value: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// `tcp://` without a host or without a port from 1 to 65535, or with more than that.
    #[error("engine address `{value}`: {why}; expected `tcp://host:port` such as `tcp://127.0.0.1:2375`")]
    Authority {
        /// The text as given.
        value: String,
        /// What is wrong with it.
        why: &'static str,
    },
}

impl EngineHost {
    /// The engine at an address. `tcp://` uses TLS if a folder of certificates is given, which is read when
    /// the client is made. A Unix socket never uses TLS.
    ///
    /// # Errors
    /// The text is not an engine's address.
    pub fn new(value: &str, certificates: Option<&Path>) -> Result<EngineHost, HostError> {
        let Some((scheme, rest)) = value.split_once("://") else {
            return Err(HostError::Scheme(value.to_owned()));
        };
        match scheme {
            "unix" => parse_unix(value, rest),
            "tcp" => parse_tcp(value, rest, certificates),
            "ssh" => parse_ssh(value, rest),
            "https" | "tls" => Err(HostError::Foreign(value.to_owned())),
            _ => Err(HostError::Scheme(value.to_owned())),
        }
    }

    pub(super) fn address(&self) -> &Address {
        &self.0
    }

    /// The socket's path, if the address is a Unix socket.
    pub fn unix_path(&self) -> Option<&Path> {
        match &self.0 {
            Address::Unix(path) => Some(path),
            Address::Tcp { .. } | Address::Ssh(_) => None,
        }
    }
}

impl FromStr for EngineHost {
    type Err = HostError;

    /// An address without TLS.
    fn from_str(value: &str) -> Result<EngineHost, HostError> {
        EngineHost::new(value, None)
    }
}

fn parse_unix(value: &str, path: &str) -> Result<EngineHost, HostError> {
    let wrong = |why| Err(HostError::Path { value: value.to_owned(), why });
    if !path.starts_with('/') {
        return wrong("the path is not absolute");
    }
    if path.ends_with('/') {
        return wrong("the path names a directory");
    }
    if path.contains('\0') {
        return wrong("the path holds a NUL");
    }
    if path.len() > MAX_SOCKET_PATH {
        return wrong("the path is longer than the 107 bytes a socket's may have");
    }
    Ok(EngineHost(Address::Unix(PathBuf::from(path))))
}

fn parse_ssh(value: &str, rest: &str) -> Result<EngineHost, HostError> {
    let wrong = |why| Err(HostError::Ssh { value: value.to_owned(), why });
    let (authority, path) = match rest.find('/') {
        Some(at) => (&rest[..at], Some(&rest[at..]).filter(|path| *path != "/")),
        None => (rest, None),
    };
    let is_word = |text: &str| {
        let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_');
        !text.is_empty() && !text.starts_with('-') && text.len() <= MAX_HOST_NAME && text.bytes().all(plain)
    };
    let (user, host) = match authority.rsplit_once('@') {
        Some((user, _)) if user.contains(':') => {
            return wrong("it holds a password, which ssh does not take: use a key");
        }
        Some((user, _)) if !is_word(user) => return wrong("the user is no plain name"),
        Some((user, host)) => (Some(user.to_owned()), host),
        None => (None, authority),
    };
    let port_of = |port: &str| {
        let is_number = port.bytes().all(|b| b.is_ascii_digit());
        port.parse::<u16>().ok().filter(|port| *port > 0 && is_number)
    };
    let (host, port) = if let Some(inner) = host.strip_prefix('[') {
        let Some((inner, behind)) = inner.split_once(']') else {
            return wrong("the text in brackets is not an IPv6 address");
        };
        if inner.parse::<std::net::Ipv6Addr>().is_err() {
            return wrong("the text in brackets is not an IPv6 address");
        }
        (inner, behind.strip_prefix(':').or((!behind.is_empty()).then_some("")))
    } else {
        match host.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (host, None),
        }
    };
    if host.is_empty() {
        return wrong("the host is missing");
    }
    if !host.contains(':') && !is_word(host) {
        return wrong("the host is neither a name nor an address");
    }
    let port = match port.map(port_of) {
        None => None,
        Some(Some(port)) => Some(port),
        Some(None) => return wrong("the port is not a number from 1 to 65535"),
    };
    if let Some(path) = path {
        let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_' | b'/');
        if !path.bytes().all(plain) || path.ends_with('/') || path.len() > MAX_SOCKET_PATH {
            return wrong("the path is no plain path of a socket");
        }
    }
    let (host, path) = (host.to_owned(), path.map(str::to_owned));
    Ok(EngineHost(Address::Ssh(Box::new(SshTarget { user, host, port, path }))))
}

fn parse_tcp(value: &str, authority: &str, certificates: Option<&Path>) -> Result<EngineHost, HostError> {
    let wrong = |why| Err(HostError::Authority { value: value.to_owned(), why });
    let authority = authority.strip_suffix('/').unwrap_or(authority);
    let Some((host, port)) = authority.rsplit_once(':') else {
        return wrong("the port is missing");
    };
    // `u16::from_str` would take a leading `+`.
    let digits = !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit());
    let port = match port.parse::<u16>() {
        Ok(port) if port > 0 && digits => port,
        Ok(_) | Err(_) => return wrong("the port is not a number from 1 to 65535"),
    };
    if port == TLS_PORT && certificates.is_none() {
        // An engine there answers plain HTTP with a TLS alert.
        return Err(HostError::NoCertificates(value.to_owned()));
    }
    let host = if let Some(inner) = host.strip_prefix('[') {
        match inner.strip_suffix(']') {
            Some(inner) if inner.parse::<std::net::Ipv6Addr>().is_ok() => inner,
            Some(_) | None => return wrong("the text in brackets is not an IPv6 address"),
        }
    } else {
        let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_');
        if host.is_empty() {
            return wrong("the host is missing");
        }
        if host.len() > MAX_HOST_NAME || !host.bytes().all(plain) {
            return wrong("the host is neither a name nor an address");
        }
        host
    };
    let certificates = certificates.map(Path::to_owned);
    Ok(EngineHost(Address::Tcp { host: host.to_owned(), port, certificates }))
}

impl fmt::Display for EngineHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Address::Unix(path) => write!(f, "unix://{}", path.display()),
            Address::Tcp { host, port, .. } if host.contains(':') => write!(f, "tcp://[{host}]:{port}"),
            Address::Tcp { host, port, .. } => write!(f, "tcp://{host}:{port}"),
            Address::Ssh(target) => {
                let SshTarget { user, host, port, path } = &**target;
                f.write_str("ssh://")?;
                if let Some(user) = user {
                    write!(f, "{user}@")?;
                }
                if host.contains(':') { write!(f, "[{host}]") } else { f.write_str(host) }?;
                if let Some(port) = port {
                    write!(f, ":{port}")?;
                }
                f.write_str(path.as_deref().unwrap_or_default())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_parses_prints_back_the_same() {
        for text in [
            "unix:///var/run/docker.sock",
            "unix:///run/user/1000/podman/podman.sock",
            "tcp://127.0.0.1:2375",
            "tcp://engine-1.lan:80",
            "tcp://[::1]:2375",
            "ssh://engine",
            "ssh://me@engine.lan:2222",
            "ssh://me@[::1]:22/run/user/1000/docker.sock",
            "ssh://[fe80::1]",
        ] {
            assert_eq!(text.parse::<EngineHost>().expect(text).to_string(), text);
        }
    }

    #[test]
    fn every_refusal_says_the_value_and_what_would_be_right() {
        let long = format!("unix:///{}", "x".repeat(200));
        for (text, hint) in [
            ("", "unix:///absolute/path"),
            ("/var/run/docker.sock", "unix:///absolute/path"),
            ("http://localhost:2375", "tcp://host:port"),
            ("npipe:////./pipe/docker_engine", "tcp://host:port"),
            ("https://engine:2376", "name its certificates"),
            ("tcp://engine:2376", "no certificates are named"),
            ("ssh://", "host is missing"),
            ("ssh://me@", "host is missing"),
            ("ssh://-oProxyCommand=x", "neither a name nor an address"),
            ("ssh://-F@engine", "no plain name"),
            ("ssh://me:secret@engine", "use a key"),
            ("ssh://a@b@engine", "no plain name"),
            ("ssh://engine:0", "from 1 to 65535"),
            ("ssh://engine:22;reboot", "from 1 to 65535"),
            ("ssh://engine;reboot", "neither a name nor an address"),
            ("ssh://[::1", "brackets"),
            ("ssh://[x]", "brackets"),
            ("ssh://[::1]x", "from 1 to 65535"),
            ("ssh://engine/run/$(reboot)", "plain path"),
            ("ssh://engine/run/a b", "plain path"),
            ("ssh://engine/run/", "plain path"),
            ("unix://run/docker.sock", "not absolute"),
            ("unix://", "not absolute"),
            ("unix:///run/", "names a directory"),
            ("unix:///run/a\0b", "NUL"),
            (long.as_str(), "107 bytes"),
            ("tcp://engine", "port is missing"),
            ("tcp://:2375", "host is missing"),
            ("tcp://engine:0", "from 1 to 65535"),
            ("tcp://engine:65536", "from 1 to 65535"),
            ("tcp://engine:+80", "from 1 to 65535"),
            ("tcp://engine:80/v1.41", "from 1 to 65535"),
            ("tcp://a:b:80", "neither a name nor an address"),
            ("tcp://::1:80", "neither a name nor an address"),
            ("tcp://[::1:80", "brackets"),
            ("tcp://me@engine:80", "neither a name nor an address"),
            ("tcp://en gine:80", "neither a name nor an address"),
        ] {
            let error = text.parse::<EngineHost>().expect_err(text).to_string();
            assert!(error.contains(text), "`{error}` does not say `{text}`");
            assert!(error.contains(hint), "`{error}` does not say `{hint}`");
        }
    }

    #[test]
    fn with_certificates_the_port_of_tls_is_taken() {
        let folder = Path::new("/certificates");
        let host = EngineHost::new("tcp://engine:2376", Some(folder)).expect("an address");
        assert!(matches!(host.address(), Address::Tcp { certificates: Some(there), .. } if there == folder));
        assert_eq!(host.to_string(), "tcp://engine:2376");
        let socket = EngineHost::new("unix:///run/docker.sock", Some(folder)).expect("an address");
        assert_eq!(socket, "unix:///run/docker.sock".parse().expect("an address"));
    }

    proptest! {
        #[test]
        fn no_text_panics_and_what_parses_round_trips(
            text in "(unix|tcp|ssh)?(://)?[\\[\\]:/.a-z0-9+@%-]{0,40}",
        ) {
            if let Ok(host) = text.parse::<EngineHost>() {
                prop_assert_eq!(host.to_string().parse::<EngineHost>().expect("printed form"), host);
            }
        }
    }
}
