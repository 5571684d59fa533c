//! Why an engine cannot be used: each reason has a remedy of its own.
//!
//! It must never guess: errors that it cannot tell apart keep the words of the engine client.

use std::error::Error;
use std::io;

use crate::engine::{ApiVersion, EngineError};

/// Why there is no usable answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Down {
    /// The address is invalid.
    Address(String),
    /// No such file or host.
    Missing,
    /// The address exists, but nobody listens there.
    Refused,
    /// This user may not connect.
    Denied,
    /// The engine does not answer.
    Silent,
    /// Another program answers.
    Stranger(String),
    /// TLS fails.
    Tls(String),
    /// The program ssh makes no connection.
    Ssh(String),
    /// The engine is too old or too new.
    Version(String),
    /// Anything else.
    Other(String),
}

impl Down {
    /// The reason behind an error of a call.
    pub(super) fn of(error: EngineError) -> Down {
        if let Some(why) = error.by_tls() {
            return Down::Tls(why);
        }
        if let Some(why) = error.by_ssh() {
            return Down::Ssh(why);
        }
        let mut cause: Option<&(dyn Error + 'static)> = Some(&error);
        let mut kind = None;
        while let Some(error) = cause {
            kind = error.downcast_ref::<io::Error>().map(io::Error::kind).or(kind);
            cause = error.source();
        }
        match (&error, kind) {
            (EngineError::Unreachable { .. }, Some(io::ErrorKind::NotFound)) => Down::Missing,
            (EngineError::Unreachable { .. }, Some(io::ErrorKind::PermissionDenied)) => Down::Denied,
            (EngineError::Unreachable { .. }, Some(io::ErrorKind::ConnectionRefused)) => Down::Refused,
            (EngineError::Unreachable { .. }, Some(io::ErrorKind::TimedOut))
            | (EngineError::Deadline { .. }, _) => Down::Silent,
            (EngineError::Version { .. }, _) => Down::Version(error.to_string()),
            (EngineError::Protocol { .. } | EngineError::Api { .. } | EngineError::Lost { .. }, _) => {
                Down::Stranger(error.to_string())
            }
            (EngineError::Unreachable { source, .. }, _) => Down::Other(format!("{error}: {source}")),
            (EngineError::TooLarge { .. } | EngineError::Upload { .. }, _) => Down::Other(error.to_string()),
        }
    }

    /// What was found, and what to do about it.
    pub(super) fn complaint(&self, host: &str) -> (String, String) {
        let path = host.strip_prefix("unix://").unwrap_or(host);
        let (found, advice) = match self {
            Down::Address(why) => (why.clone(), "paddock has no engine".to_owned()),
            Down::Missing => (
                format!("no engine at {host}: there is no such file or host"),
                "install or start Docker (`systemctl start docker`, or `deploy/setup`)".to_owned(),
            ),
            Down::Refused => (
                format!("no engine at {host}: nobody listens there"),
                "it stopped, or never started: `systemctl start docker`".to_owned(),
            ),
            Down::Denied => (
                format!("this user may not use the engine at {host}: permission denied"),
                format!(
                    "run as a user of its group (`usermod -aG $(stat -c %G {path}) $USER`, then log in \
                     again), which gives the same power as root on this machine"
                ),
            ),
            Down::Silent => (
                format!("the engine at {host} accepts connections but does not answer"),
                "it hangs, or is suspended: read its log (`journalctl -u docker`), and restart it".to_owned(),
            ),
            Down::Stranger(what) => (
                format!("the program that answers at {host} is no Docker Engine: {what}"),
                "another program uses that address".to_owned(),
            ),
            Down::Tls(why) => (
                format!("TLS with the engine at {host} fails: {why}"),
                "engine.certificates (DOCKER_CERT_PATH) names the folder of ca.pem, cert.pem and key.pem, \
                 which the engine's operator issues; the engine's own certificate must be for the name or \
                 address in engine.host"
                    .to_owned(),
            ),
            Down::Ssh(why) => (
                format!("the engine at {host} cannot be reached: {why}"),
                format!(
                    "as the user of the daemon, `ssh -o BatchMode=yes {} docker version` must work without \
                     a question",
                    ssh_words(host)
                ),
            ),
            Down::Version(what) => (
                what.clone(),
                format!("install an engine with API {} or newer, such as Docker 20.10", ApiVersion::OLDEST),
            ),
            Down::Other(what) => (what.clone(), "no container can be made".to_owned()),
        };
        (found, advice)
    }
}

/// The same address as words for ssh.
fn ssh_words(host: &str) -> String {
    let rest = host.strip_prefix("ssh://").unwrap_or(host);
    let authority = rest.split('/').next().unwrap_or(rest);
    match authority.rsplit_once(':').filter(|(_, port)| port.bytes().all(|b| b.is_ascii_digit())) {
        Some((name, port)) => format!("-p {port} {name}"),
        None => authority.to_owned(),
    }
}
