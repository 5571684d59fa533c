//! How a call can fail inside a tool: a closed list of codes, each with a sentence.
//!
//! It must never carry a secret, a path of the host, or a code that is not in [`Code`].

use serde_json::{Map, Value, json};

use super::{ArgumentError, CallError, Outcome};
use crate::execution::{ExecutionError, InputError};
use crate::pool::core::LeaseRefusal;
use crate::session::SessionError;
use crate::store::{Bound, StoreError};
use crate::tenants::Limited;

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $text:literal),* $(,)?) => {
        /// The codes that `error` can have. The list is closed: clients may match on it.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Code {
            $($(#[$doc])* $name,)*
        }

        impl Code {
            /// Every code.
            pub const ALL: &[Code] = &[$(Code::$name),*];

            /// The code as it stands in an answer.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Code::$name => $text,)*
                }
            }
        }
    };
}

codes! {
    /// An argument has a value that is not possible: the message says which, and what would be right.
    InvalidArgument = "invalid_argument",
    /// There is no runner for this language; the message lists all.
    UnknownLanguage = "unknown_language",
    /// Code, a file, input or environment exceeds its limit.
    TooLarge = "too_large",
    /// The file exists already and `overwrite` is not set.
    FileExists = "file_exists",
    /// The session has no such file.
    NotFound = "not_found",
    /// A saved file of the session cannot be read from the store's disk; nothing was run.
    FileUnreadable = "file_unreadable",
    /// The file is too large to be read within an answer; the answer has its link.
    ArtifactTooLarge = "artifact_too_large",
    /// There is no session with this id, or it is already closed.
    SessionNotFound = "session_not_found",
    /// Another call of this session is in progress, and this one does not wait.
    SessionBusy = "session_busy",
    /// As many sessions as allowed have a container, and none could be evicted in time: try again later.
    MaxSessions = "max_sessions",
    /// Too many calls wait already, those of this session hold too much, or no container became free in time:
    /// try again later.
    QueueFull = "queue_full",
    /// There is no execution with this id, or it ended too long ago.
    ExecutionNotFound = "execution_not_found",
    /// The execution has ended.
    ExecutionFinished = "execution_finished",
    /// The execution has no input: it was not started with `interactive`.
    NotInteractive = "not_interactive",
    /// This daemon cannot enforce this part of a policy.
    UnsupportedPolicy = "unsupported_policy",
    /// This daemon gives programs no network (`egress.mode`).
    NetworkUnavailable = "network_unavailable",
    /// The packages that the call asks for cannot be had now: the message says why.
    PackagesUnavailable = "packages_unavailable",
    /// The session's files, or those of all sessions, would take more than they may, or the store's disk is
    /// full, or it cannot be written, or the audit log cannot (`audit.required`).
    QuotaExceeded = "quota_exceeded",
    /// The servers of a store of many machines do not answer, or another node has the session: try again
    /// later.
    StoreUnavailable = "store_unavailable",
    /// A limit of the token is reached: the answer says which, what is used and, in `retry_after_ms`, when
    /// another try can succeed.
    RateLimited = "rate_limited",
    /// The container engine does not answer, or containers do not start.
    EngineUnavailable = "engine_unavailable",
    /// The container was lost in mid-run: what the program did is unknown, and the daemon never runs it
    /// again.
    Lost = "lost",
}

impl Code {
    /// The code that stands in an answer.
    pub(super) fn of(text: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|code| code.as_str() == text)
    }

    /// Whether a limit of the daemon refuses the call, rather than the call being wrong.
    pub(super) fn is_a_limit(self) -> bool {
        const LIMITS: [Code; 7] = [
            Code::TooLarge,
            Code::ArtifactTooLarge,
            Code::SessionBusy,
            Code::MaxSessions,
            Code::QueueFull,
            Code::QuotaExceeded,
            Code::RateLimited,
        ];
        LIMITS.contains(&self)
    }
}

/// A code and its sentence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The kind of failure.
    pub code: Code,
    /// What was wrong, with which value, and what would be right.
    pub message: String,
    /// More fields of the answer.
    pub details: Map<String, Value>,
}

impl Fault {
    /// A fault.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), details: Map::new() }
    }

    /// With one more field in the answer.
    #[must_use]
    pub fn with(mut self, key: &str, value: Value) -> Self {
        self.details.insert(key.to_owned(), value);
        self
    }

    /// As an answer.
    pub fn outcome(self) -> Outcome {
        let mut document = Map::new();
        document.insert("success".into(), json!(false));
        document.insert("error".into(), json!(self.code.as_str()));
        document.insert("message".into(), json!(self.message));
        document.insert("output".into(), Value::String(self.message));
        document.extend(self.details);
        Outcome { document, failed: true, ..Outcome::default() }
    }
}

/// How a tool can end early: with a refusal as its answer, or with an error of the call.
#[derive(Debug)]
pub(crate) enum Failure {
    Fault(Fault),
    Call(CallError),
}

impl Failure {
    pub(super) fn into_outcome(self) -> Result<Outcome, CallError> {
        match self {
            Self::Fault(fault) => Ok(fault.outcome()),
            Self::Call(error) => Err(error),
        }
    }
}

impl From<Fault> for Failure {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

impl From<ArgumentError> for Failure {
    fn from(error: ArgumentError) -> Self {
        Self::Call(error.into())
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Quota { bound: bound @ (Bound::Owner | Bound::OwnerEntries), wanted, allowed } => {
                let limit = if bound == Bound::Owner { "stored_bytes" } else { "stored_files" };
                let details = Limited::amount(limit, allowed, wanted, None).details();
                Fault { details, ..Fault::new(Code::QuotaExceeded, error.to_string()) }.into()
            }
            StoreError::Quota { .. }
            | StoreError::Full(_)
            | StoreError::Unwritable(_)
            | StoreError::Pending(_) => Fault::new(Code::QuotaExceeded, error.to_string()).into(),
            StoreError::Ledger(_) => Fault::new(Code::StoreUnavailable, error.to_string()).into(),
            StoreError::Gone => Fault::new(Code::SessionNotFound, error.to_string()).into(),
            StoreError::InUse(_) | StoreError::Newer { .. } | StoreError::Io { .. } => {
                tracing::error!(%error, "failed");
                let message =
                    "the store failed and nothing of this call was saved; the daemon's log says why";
                Self::Call(CallError::Internal(message.to_owned()))
            }
        }
    }
}

impl From<ExecutionError> for Failure {
    fn from(error: ExecutionError) -> Self {
        match error {
            ExecutionError::TooMany { .. }
            | ExecutionError::TooManyOfSession { .. }
            | ExecutionError::TooManyWait(_) => Fault::new(Code::QueueFull, error.to_string()).into(),
            ExecutionError::ShuttingDown => Fault::new(Code::EngineUnavailable, error.to_string()).into(),
            ExecutionError::Limited(limited) => limited.into(),
            ExecutionError::Refused(error) => error.into(),
            ExecutionError::Store(error) => error.into(),
        }
    }
}

impl From<Limited> for Fault {
    fn from(limited: Limited) -> Self {
        Self { details: limited.details(), ..Self::new(Code::RateLimited, limited.to_string()) }
    }
}

impl From<Limited> for Failure {
    fn from(limited: Limited) -> Self {
        Fault::from(limited).into()
    }
}

impl From<InputError> for Fault {
    fn from(error: InputError) -> Self {
        let code = match error {
            InputError::NotInteractive => Code::NotInteractive,
            InputError::Finished => Code::ExecutionFinished,
            InputError::Full => Code::QueueFull,
        };
        Self::new(code, error.to_string())
    }
}

impl From<SessionError> for Failure {
    fn from(error: SessionError) -> Self {
        let code = match error {
            SessionError::Store(error) => return error.into(),
            SessionError::Limited(limited) => return limited.into(),
            SessionError::QueueFull(_) | SessionError::TooManyWait(_) | SessionError::TurnTooLate(_) => {
                Code::QueueFull
            }
            SessionError::Busy => Code::SessionBusy,
            SessionError::MaxSessions { .. } | SessionError::NoEviction(_) => Code::MaxSessions,
            SessionError::NoContainer(refusal) => match refusal {
                LeaseRefusal::QueueFull | LeaseRefusal::WaitedTooLong { .. } | LeaseRefusal::Full => {
                    Code::QueueFull
                }
                LeaseRefusal::UnknownRunner => Code::UnknownLanguage,
                LeaseRefusal::EngineUnavailable
                | LeaseRefusal::NoWorkspace
                | LeaseRefusal::StartFailing { .. }
                | LeaseRefusal::ShuttingDown => Code::EngineUnavailable,
            },
            SessionError::Unread(path, source) => {
                tracing::error!(?path, error = %source, "a saved file cannot be read from the store's disk");
                let error = SessionError::Unread(path, source);
                return Fault::new(Code::FileUnreadable, error.to_string()).into();
            }
            SessionError::BringIn(_) => Code::QuotaExceeded,
            SessionError::Closed => Code::SessionNotFound,
            SessionError::Unsupported(_) => Code::UnsupportedPolicy,
            SessionError::Link(_) | SessionError::Cancelled => Code::EngineUnavailable,
        };
        Fault::new(code, error.to_string()).into()
    }
}
