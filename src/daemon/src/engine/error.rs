//! Everything that can go wrong between this client and an engine, in one enum.
//!
//! It keeps the engine's own words, shortened and made printable, and says whether the request may have had its
//! effect. It must never hold a body that was sent or more of an answer than its error message.

use std::error::Error as StdError;
use std::time::Duration;

use http::StatusCode;

use super::host::EngineHost;
use super::op::Op;
use super::version::ApiVersion;

/// A cause of any type, as hyper and streams of callers give them.
pub type BoxError = Box<dyn StdError + Send + Sync>;

/// Longest message of an engine that is kept, in characters: enough for the longest of runc's, and one log line.
pub(super) const MAX_MESSAGE_CHARS: usize = 1024;

/// Why a call of the engine has no answer.
///
/// `Display` never repeats its source: print the chain.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// No connection could be made; nothing was sent.
    #[error("no connection to the engine at {host}")]
    Unreachable {
        /// The engine dialled.
        host: EngineHost,
        /// What the operating system said.
        #[source]
        source: BoxError,
    },
    /// The connection broke before the whole answer had come. The request may have had its effect.
    #[error("{op}: the connection to the engine broke")]
    Lost {
        /// The operation under way.
        op: Op,
        /// What the connection reported.
        #[source]
        source: BoxError,
    },
    /// The whole answer did not come in time. The request may have had its effect.
    #[error("{op}: no whole answer from the engine within {after:?}")]
    Deadline {
        /// The operation under way.
        op: Op,
        /// The time it was given.
        after: Duration,
    },
    /// The engine refused, in its own words.
    #[error("{op}: the engine answered {status}: {message}")]
    Api {
        /// The operation refused.
        op: Op,
        /// The HTTP status, 3xx to 5xx.
        status: StatusCode,
        /// `message` of the engine's JSON, or the text of the body; at most 1,024 characters, one line, never
        /// empty.
        message: String,
    },
    /// The answer is larger than what the caller allowed. A change may have had its effect.
    #[error("{op}: the answer is larger than {cap} bytes")]
    TooLarge {
        /// The operation whose answer it is.
        op: Op,
        /// The bound in bytes.
        cap: u64,
    },
    /// The answer is not what the Engine API says it is. A change may have had its effect.
    #[error("{op}: not an answer of the Engine API: {what}")]
    Protocol {
        /// The operation whose answer it is.
        op: Op,
        /// What was wrong; never the body's content.
        what: String,
    },
    /// The engine and this client have no version of the API in common.
    #[error(
        "the engine at {host} speaks API {oldest} to {newest}, needed is one from {needs_from} to {needs_to}"
    )]
    Version {
        /// The engine asked.
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
        /// The operation that was to send it.
        op: Op,
        /// What the stream reported.
        #[source]
        source: BoxError,
    },
}

impl EngineError {
    /// Whether the engine says that the container, volume, image, exec or path does not exist.
    pub fn is_not_found(&self) -> bool {
        self.status() == Some(StatusCode::NOT_FOUND)
    }

    /// Whether the engine says that the state of the thing forbids the request: name in use, volume in use,
    /// container not running, removal under way.
    pub fn is_conflict(&self) -> bool {
        self.status() == Some(StatusCode::CONFLICT)
    }

    /// What TLS has to do with it, in its own words: a certificate that cannot be read, or is not believed by one side.
    pub fn by_tls(&self) -> Option<String> {
        super::tls::blamed(self)
    }

    /// Whether the engine cannot be talked to at present: no connection, a broken one, or silence.
    pub fn is_unreachable(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::Lost { .. } | Self::Deadline { .. })
    }

    /// Whether the request may have had its effect although it failed, so that the caller must look.
    pub fn may_have_happened(&self) -> bool {
        match self {
            Self::Lost { .. }
            | Self::Deadline { .. }
            | Self::TooLarge { .. }
            | Self::Protocol { .. }
            | Self::Upload { .. } => true,
            // A 5xx can come after half of the work: `start` that failed in the runtime, for one.
            Self::Api { status, .. } => status.is_server_error(),
            Self::Unreachable { .. } | Self::Version { .. } => false,
        }
    }

    /// What became of the call, in a word: a label of metrics.
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

    /// The HTTP status, when the engine answered with one.
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

    pub(super) fn protocol(op: Op, what: impl Into<String>) -> EngineError {
        EngineError::Protocol { op, what: what.into() }
    }

    /// The error of an answer with a failing status and this much of its body.
    pub(super) fn refused(op: Op, status: StatusCode, body: &[u8]) -> EngineError {
        #[derive(serde::Deserialize)]
        struct Refusal {
            message: String,
        }
        let said = match serde_json::from_slice::<Refusal>(body) {
            Ok(refusal) => printable(&refusal.message),
            Err(_) => printable(&String::from_utf8_lossy(body)),
        };
        let message = if said.is_empty() { "no reason given".to_owned() } else { said };
        EngineError::Api { op, status, message }
    }
}

/// One bounded line that cannot steer a terminal or forge a log line.
fn printable(text: &str) -> String {
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
        let error = EngineError::refused(Op::ContainerStart, StatusCode::CONFLICT, body);
        let EngineError::Api { message, .. } = error else { panic!("{error:?}") };
        message
    }

    #[test]
    fn the_engines_own_words_are_kept_whatever_their_form() {
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
