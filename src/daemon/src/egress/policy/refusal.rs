//! Why a request gets no policy.

use std::fmt;

/// Entries of a list that an error repeats.
const SHOWN: usize = 10;

/// Why a request gets no policy. The text is for the caller, who may pass it on to an operator.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PolicyRefusal {
    /// The mode is `none`.
    #[error(
        "programs have no network on this server: egress.mode is `none` (NETWORK_MODE); its operator can set \
         it to `restricted` or `open`"
    )]
    Unavailable,
    /// The mode is `restricted`, and a list asks for more than `egress.allow` has.
    #[error(
        "allowed_domains asks for {}; egress.mode is `restricted` (NETWORK_MODE) and egress.allow has {}; \
         the server's operator can add to egress.allow, or set the mode to `open`",
        Listed(asked),
        Listed(allow)
    )]
    Unsupported {
        /// The entries that no single entry of `egress.allow` covers, normalised.
        asked: Vec<String>,
        /// `egress.allow`.
        allow: Vec<String>,
    },
    /// An entry is not what its list takes.
    #[error("{list}: {pattern:?} {reason}")]
    Malformed {
        /// The list.
        list: &'static str,
        /// The beginning of the entry.
        pattern: String,
        /// What is wrong with it, and what would be right.
        reason: String,
    },
}

/// Which kind of error a refusal is to its caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RefusalKind {
    /// `network_unavailable`.
    NetworkUnavailable,
    /// `unsupported_policy`.
    UnsupportedPolicy,
    /// `invalid_argument`.
    InvalidArgument,
}

impl PolicyRefusal {
    /// Which kind of error this is.
    pub fn kind(&self) -> RefusalKind {
        match self {
            PolicyRefusal::Unavailable => RefusalKind::NetworkUnavailable,
            PolicyRefusal::Unsupported { .. } => RefusalKind::UnsupportedPolicy,
            PolicyRefusal::Malformed { .. } => RefusalKind::InvalidArgument,
        }
    }
}

/// The beginning of a list.
struct Listed<'a>(&'a [String]);

impl fmt::Display for Listed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("nothing");
        }
        let (shown, rest) = self.0.split_at(self.0.len().min(SHOWN));
        f.write_str(&shown.join(", "))?;
        if rest.is_empty() { Ok(()) } else { write!(f, " and {} more", rest.len()) }
    }
}
