//! All errors between this client and an engine, in one enum.
//!
//! An error keeps the engine's own message, shortened and made printable, and says whether the request may
//! have had its effect. It must never hold a body that was sent, nor more of an answer than its error
//! message.

use std::error::Error as StdError;
use std::time::Duration;

use http::StatusCode;

use super::host::EngineHost;
use super::op::EngineOp;
use super::version::ApiVersion;

/// A cause of any type, as hyper and the callers' streams return them.
pub type BoxError = Box<dyn StdError + Send + Sync>;

/// The longest message of an engine that is kept, in characters: enough for runc's longest, and short enough
/// for one log line.
pub(super) const MAX_MESSAGE_CHARS: usize = 1024;

/// Why a call of the engine failed.
///
/// `Display` never repeats the source: print the whole chain.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// No connection could be made; nothing was sent.
    #[error("no connection to the engine at {host}")]
    Unreachable {
        /// The engine dialled.
        host: EngineHost,
        /// The operating system's error.
        #[source]
        source: BoxError,
    },
    /// The connection broke before the whole answer had come. The request may have had its effect.
    #[error("{op}: the connection to the engine broke")]
    Lost {
        /// The operation under way.
        op: EngineOp,
        /// What the connection reported.
        #[source]
        source: BoxError,
    },
    /// The whole answer did not come in time. The request may have had its effect.
    #[error("{op}: no whole answer from the engine within {after:?}")]
    Deadline {
        /// The operation under way.
        op: EngineOp,
        /// The time it was given.
        after: Duration,
    },
    /// The engine refused the request.
    #[error("{op}: the engine answered {status}: {message}")]
    Api {
        /// The operation refused.
        op: EngineOp,
        /// The HTTP status, 3xx to 5xx.
        status: StatusCode,
        /// `message` of the engine's JSON, or the text of the body; at most 1,024 characters, one line, never
        /// empty.
        message: String,
    },
    /// The answer is larger than the cap. A change may have had its effect.
    #[error("{op}: the answer is larger than {cap} bytes")]
    TooLarge {
        /// The operation whose answer it is.
        op: EngineOp,
        /// The bound in bytes.
        cap: u64,
    },
    /// The answer is not what the Engine API says it is. A change may have had its effect.
    #[error("{op}: not an answer of the Engine API: {what}")]
    Protocol {
        /// The operation whose answer it is.
        op: EngineOp,
        /// What is wrong with it; never the body's content.
        what: String,
    },
    /// The engine and this client have no version of the API in common.
    #[error(
        "the engine at {host} speaks API {oldest} to {newest}; it must speak a version from {needs_from} to \
         {needs_to}"
    )]
    Version {
        /// The address of the engine.
        host: EngineHost,
        /// Oldest version the engine speaks.
        oldest: ApiVersion,
        /// Newest version the engine speaks.
        newest: ApiVersion,
        /// Oldest version this client speaks.
        needs_from: ApiVersion,
        /// Newest version this client speaks.
        needs_to: ApiVersion,
    },
    /// The caller's own stream of data to send failed.
    #[error("{op}: the data to send could not be read")]
    Upload {
        /// The operation that sends it.
        op: EngineOp,
        /// The stream's error.
        #[source]
        source: BoxError,
    },
}

impl EngineError {
    /// Whether the engine answered that the container, volume, image, exec or path does not exist.
    pub fn is_not_found(&self) -> bool {
        self.status() == Some(StatusCode::NOT_FOUND)
    }

    /// Whether the engine answered that the state of the object forbids the request: name in use, volume in
    /// use, container not running, removal under way.
    pub fn is_conflict(&self) -> bool {
        self.status() == Some(StatusCode::CONFLICT)
    }

    /// The cause in TLS, if there is one: a certificate that cannot be read, or that one side does not trust.
    pub fn by_tls(&self) -> Option<String> {
        super::tls::blamed(self)
    }

    /// What ssh said, if it made no connection or lost one.
    pub fn by_ssh(&self) -> Option<String> {
        super::ssh::blamed(self)
    }

    /// Whether the engine cannot be reached at present: no connection, a broken one, or silence.
    pub fn is_unreachable(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::Lost { .. } | Self::Deadline { .. })
    }

    /// Whether the request may have had its effect although it failed, so that the caller must check.
    pub fn may_have_happened(&self) -> bool {
        match self {
            Self::Lost { .. }
            | Self::Deadline { .. }
            | Self::TooLarge { .. }
            | Self::Protocol { .. }
            | Self::Upload { .. } => true,
            // A 5xx can come after half of the work, for example when a `start` failed in the runtime.
            Self::Api { status, .. } => status.is_server_error(),
            Self::Unreachable { .. } | Self::Version { .. } => false,
        }
    }

    /// The outcome of the call, as a label of metrics.
    pub fn outcome(&self) -> &'static str {
        match self {
            Self::Api { .. } if self.is_not_found() => "not_found",
            Self::Api { .. } if self.is_conflict() => "conflict",
            Self::Api { .. } => "refused",
            Self::Unreachable { .. } => "unreachable",
            Self::Deadline { .. } => "deadline",
            Self::Lost { .. } => "lost",
            Self::TooLarge { .. } | Self::Protocol { .. } | Self::Version { .. } | Self::Upload { .. } => {
                "protocol"
            }
        }
    }

    /// The HTTP status, if the engine answered with one.
    pub fn status(&self) -> Option<StatusCode> {
        match self {
            Self::Api { status, .. } => Some(*status),
            Self::Unreachable { .. }
            | Self::Lost { .. }
            | Self::Deadline { .. }
            | Self::TooLarge { .. }
            | Self::Protocol { .. }
            | Self::Version { .. }
            | Self::Upload { .. } => None,
        }
    }

    pub(super) fn protocol(op: EngineOp, what: impl Into<String>) -> EngineError {
        EngineError::Protocol { op, what: what.into() }
    }

    /// The error of an answer with a failing status and this beginning of its body.
    pub(super) fn refused(op: EngineOp, status: StatusCode, body: &[u8]) -> EngineError {
        #[derive(serde::Deserialize)]
        struct EngineMessage {
            message: String,
        }
        let message = match serde_json::from_slice::<EngineMessage>(body) {
            Ok(answer) => printable(&answer.message),
            Err(_) => printable(&String::from_utf8_lossy(body)),
        };
        let message = if message.is_empty() { "no reason given".to_owned() } else { message };
        EngineError::Api { op, status, message }
    }
}

/// One bounded line that cannot steer a terminal or forge a log line.
pub(super) fn printable(text: &str) -> String {
    let mut line = String::new();
    for (count, c) in text.trim().chars().enumerate() {
        if count == MAX_MESSAGE_CHARS {
            line.push('…');
            break;
        }
        line.push(if c.is_control() { ' ' } else { c });
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(body: &[u8]) -> String {
        let error = EngineError::refused(EngineOp::ContainerStart, StatusCode::CONFLICT, body);
        let EngineError::Api { message, .. } = error else { panic!("{error:?}") };
        message
    }

    #[test]
    fn the_engines_own_message_is_kept_whatever_its_form() {
        assert_eq!(message(br#"{"message":"No such container: x"}"#), "No such container: x");
        assert_eq!(message(b"page not found\n"), "page not found");
        assert_eq!(message(b""), "no reason given");
        assert_eq!(message(br#"{"message":""}"#), "no reason given");
        assert_eq!(message(br#"{"error":"x"}"#), r#"{"error":"x"}"#);
        assert_eq!(message(b"\xff\xfe"), "\u{fffd}\u{fffd}");
    }

    #[test]
    fn a_message_is_one_bounded_printable_line() {
        assert_eq!(message(b"a\nb\x1b[31mc"), "a b [31mc");
        assert_eq!(message(&vec![b'x'; 100_000]).chars().count(), MAX_MESSAGE_CHARS + 1);
    }
}
