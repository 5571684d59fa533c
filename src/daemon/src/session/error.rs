//! Why a call on a session could not be done: no code ran, and nothing of the call was saved.

use std::time::Duration;

use paddock_proto::RelPath;

use super::sync::SyncError;
use crate::link::LinkError;
use crate::pool::core::LeaseRefusal;
use crate::store::StoreError;
use crate::tenants::Limited;

/// Why a call on a session could not be done.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// As many calls of this session wait as may wait.
    #[error("{0} calls of this session are waiting already; wait for some to end")]
    QueueFull(usize),
    /// The calls before this one in its session took longer than a call may wait.
    #[error(
        "the calls before this one in its session did not end within the {} s that a call may wait \
         (pool.wait); wait for them, or end what runs there",
        .0.as_secs_f64()
    )]
    TurnTooLate(Duration),
    /// Another call has the turn, and this one does not wait.
    #[error("A run is already in progress for this session. Wait for it to complete.")]
    Busy,
    /// As many calls of all sessions wait for a container as may wait.
    #[error(
        "{0} calls wait for a container already, which is the most at one time (pool.queue); try again later"
    )]
    TooManyWait(usize),
    /// As many sessions as allowed have a container, and none gave its up for this call for as long as it may
    /// wait.
    #[error(
        "{max} sessions have a container, which is the most at one time (sessions.max, \
         SANDBOX_MAX_SESSIONS), and none came free for this call within the {} s that it may wait \
         (pool.wait); try again later",
        wait.as_secs_f64()
    )]
    MaxSessions {
        /// How many may have one.
        max: usize,
        /// How long a call may wait.
        wait: Duration,
    },
    /// As many sessions as allowed have a container, and none is evicted, by configuration.
    #[error(
        "{0} sessions have a container, which is the most at one time (sessions.max, SANDBOX_MAX_SESSIONS), \
         and none is evicted for another (sessions.when_full); close one or try again later"
    )]
    NoEviction(usize),
    /// The tenant has as many sessions with a container as it may have, and none gave its up for this call
    /// for as long as it may wait.
    #[error("{0}")]
    Limited(Limited),
    /// No container of this language.
    #[error(transparent)]
    NoContainer(#[from] LeaseRefusal),
    /// The store failed: nothing of this call was acknowledged.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The container was lost before any code ran, twice.
    #[error("no container could be prepared: {0}")]
    Link(#[from] LinkError),
    /// The caller went away, or took the call back, before any code ran.
    #[error("the call was cancelled before any code ran")]
    Cancelled,
    /// The session was closed while the call waited.
    #[error("the session was closed while this call waited for its turn; no code ran")]
    Closed,
    /// A policy cannot be enforced in this container, and nothing ran.
    #[error("the policy of this call cannot be enforced here, so nothing was run: {0}")]
    Unsupported(String),
    /// A saved file of the session cannot be read from the store's disk.
    #[error(
        "the saved file {0:?} of this session cannot be read from the store's disk ({1}), so nothing was \
         run; overwrite or delete it with another call, or have the operator let the daemon's user read it"
    )]
    Unread(RelPath, std::io::Error),
    /// The container would not take the session's files.
    #[error("the container would not take the session's files: {0}")]
    BringIn(String),
}

impl From<SyncError> for SessionError {
    fn from(error: SyncError) -> Self {
        match error {
            SyncError::Link(error) => Self::Link(error),
            SyncError::Store(error) => Self::Store(error),
            SyncError::Unread { path, source } => Self::Unread(path, source),
            SyncError::NotTaken(what) => Self::BringIn(what),
        }
    }
}
