//! What the core's actions come to outside of the driver's mutex: answers to calls, and work of the upkeep.
//! Nothing here may act.

use std::sync::Arc;

use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::message::{Denial, ReleaseReason, SessionKey};
use super::turn::{Pass, Turn};
use crate::session::lease::Permit;
use crate::session::registry::Session;
use crate::store::StoreError;

/// What a call is told.
pub(super) enum GateAnswer {
    /// It is in. If `note`, the store is to be told that the session is used and open.
    Turn { turn: Turn, note: bool },
    /// Its session may have containers.
    Permit(Permit),
    /// The session, if there is one.
    Session(Option<Arc<Session>>),
    /// The session is closed; `found` is false if there was nothing to close.
    Closed { found: bool },
    /// It gets nothing, and the store's error if that is why.
    Denied(Denial, Option<StoreError>),
}

impl GateAnswer {
    /// The store's error, of a call that can fail for nothing else.
    pub(super) fn into_store_error(self) -> StoreError {
        match self {
            Self::Denied(_, Some(error)) => error,
            Self::Denied(_, None)
            | Self::Turn { .. }
            | Self::Permit(_)
            | Self::Session(_)
            | Self::Closed { .. } => {
                let why = std::io::Error::other("the daemon is shutting down");
                StoreError::io("a session could not be had")(why)
            }
        }
    }
}

/// What is to be done outside of the mutex.
pub(super) enum Order {
    Answer(oneshot::Sender<GateAnswer>, GateAnswer),
    Cancel(CancellationToken),
    /// Dropping these tells the driver again.
    DropAnswer {
        _answer: GateAnswer,
    },
    DropPass {
        _pass: Pass,
    },
    DropSession {
        _session: Arc<Session>,
    },
    Load(SessionKey),
    Release(SessionKey, Option<Arc<Session>>, ReleaseReason),
    DropLost(SessionKey, Option<Arc<Session>>),
    Delete {
        key: SessionKey,
        by_call: bool,
    },
    KeepClosed(SessionKey, Option<Arc<Session>>),
    AskHolders,
    LookForUnused,
}
