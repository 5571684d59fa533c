//! What the gate's core and its driver say to each other. No behaviour lives here.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::session::id::SessionId;
use crate::tenants::TenantShare;

/// A session's name: the owner that it belongs to (the name of a token), and its id.
///
/// Cheap to clone: every event and every action carries one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionKey(Arc<(String, SessionId)>);

impl SessionKey {
    /// The session `id` of `owner`.
    pub fn new(owner: &str, id: &SessionId) -> Self {
        Self(Arc::new((owner.to_owned(), id.clone())))
    }

    /// Whose session it is.
    pub fn owner(&self) -> &str {
        &self.0.0
    }

    /// The session's id.
    pub fn id(&self) -> &SessionId {
        &self.0.1
    }
}

impl fmt::Display for SessionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.1.fmt(f)
    }
}

/// One call, from its first event to its last. The driver gives it, in ascending order, and never gives one
/// twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(in crate::session) struct CallId(pub(super) u64);

/// What a call wants to be in a session for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TurnKind {
    /// A change of the session's files. The call has the session to itself, and comes in after the ordered
    /// calls that came before it.
    Whole,
    /// Source code of this language: beside programs of the same language, after the ordered calls that came
    /// before.
    Code(String),
    /// A command of an execution, of this language: beside programs of the same language, in no order.
    Command(String),
    /// A program that must be alone in its container: the programs of this engine's containers are not kept
    /// out of each other's memory, and it has a network. The call has the session to itself; code comes in
    /// after the ordered calls that came before.
    Alone {
        /// Whether it is a command of an execution, which has no order.
        is_command: bool,
    },
    /// A program that an earlier daemon began and that still runs. It has the place of code, or of a command;
    /// but the gate never turns it away because the session is being closed: its end must be heard.
    Resumed {
        /// Its language.
        language: String,
        /// Whether it is a command of an execution.
        is_command: bool,
        /// Whether it must be alone, as above.
        is_alone: bool,
    },
}

impl TurnKind {
    /// Whether such calls come in one after the other.
    pub(super) fn is_ordered(&self) -> bool {
        match self {
            Self::Whole | Self::Code(_) => true,
            Self::Command(_) => false,
            Self::Alone { is_command } | Self::Resumed { is_command, .. } => !is_command,
        }
    }

    /// The language of a program that others of the same language may come beside; `None` for a call that has
    /// the session to itself.
    pub(super) fn language(&self) -> Option<&str> {
        match self {
            Self::Whole | Self::Alone { .. } | Self::Resumed { is_alone: true, .. } => None,
            Self::Code(language) | Self::Command(language) | Self::Resumed { language, .. } => Some(language),
        }
    }

    /// Whether closing the session ends the wait of such a call.
    pub(super) fn is_ended_by_close(&self) -> bool {
        match self {
            Self::Code(_) | Self::Command(_) | Self::Alone { .. } => true,
            Self::Whole | Self::Resumed { .. } => false,
        }
    }
}

/// The bounds that the core keeps.
#[derive(Debug, Clone)]
pub(in crate::session) struct GateBounds {
    /// How long one call may wait for its turn and, from then on, for a permit (`pool.wait`).
    pub(in crate::session) wait: Duration,
    /// Calls that may wait for their turn in one session (`sessions.queue`).
    pub(in crate::session) queue: usize,
    /// Sessions that may have containers at one time (`sessions.max`).
    pub(in crate::session) permits: usize,
    /// Calls that may wait for a permit, in all sessions together (`pool.queue`).
    pub(in crate::session) permit_queue: usize,
    /// Whether resting sessions are evicted (`sessions.when_full`). If not, no call waits for a permit.
    pub(in crate::session) evicts: bool,
    /// A session that rests for this long gives its containers up (`sessions.ttl`).
    pub(in crate::session) ttl: Duration,
    /// Time between two sweeps (`sessions.sweep`).
    pub(in crate::session) sweep: Duration,
    /// Whether stored files expire (`sessions.retention`).
    pub(in crate::session) expires: bool,
}

/// What the driver reports.
///
/// The driver owes one answer to each chore that an [`Action`] gives it; the action names the events. Every
/// [`Action::Enter`] is followed by one `Leave`, every [`Action::Grant`] by one `Return`. An event about a
/// session or a call that is unknown, or in another state than the event supposes, changes nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Event {
    /// A call wants to come in. Answered by one `Enter` or `Deny`, unless the call is abandoned before.
    Enter {
        key: SessionKey,
        call: CallId,
        kind: TurnKind,
        /// Whether the call waits while other calls are in its way. It waits for the daemon's own chores
        /// anyway.
        waits: bool,
    },
    /// A call wants to look at a session, without a turn. Answered by one `Opened`, `NotFound` or `Deny`,
    /// unless the call is abandoned before.
    Open {
        key: SessionKey,
        call: CallId,
        /// Whether a session that does not exist is made.
        makes: bool,
    },
    /// A call closes a session: what runs or waits in it is cancelled, its containers go, and, if `delete`,
    /// its files. Answered by one `Closed` or `Deny`, unless the call is abandoned before its turn.
    Close { key: SessionKey, call: CallId, delete: bool },
    /// A call that waits went away.
    Abandon { key: SessionKey, call: CallId },
    /// A call that has the session to itself lets programs of `language` in beside it.
    Share { key: SessionKey, call: CallId, language: String },
    /// A call that is in was held back for so long before it could want anything.
    Delay { key: SessionKey, call: CallId, by: Duration },
    /// A call that is in gives its turn up.
    Leave { key: SessionKey, call: CallId },
    /// A call wants its session to have a permit. Answered by one `Grant` or `Deny`, unless it is abandoned
    /// before.
    Want {
        key: SessionKey,
        call: CallId,
        /// Whether it waits, up to the deadline of its turn. If not, it needs no turn.
        waits: bool,
        /// Whose session it is.
        tenant: TenantShare,
    },
    /// A permit was dropped: the session needs it no more.
    Return { key: SessionKey },
    /// The pool cannot start a container that a call waits for, because every slot is taken.
    PoolFull,
    /// What a tenant may have at this node has changed. So many of its sessions that rest are evicted, since
    /// another node needs what they hold of its limit.
    Limit { tenant: TenantShare, gives_up: u64 },
    /// A container of this session was lost.
    Lost { key: SessionKey },
    /// The answer to [`Action::Load`].
    Loaded {
        key: SessionKey,
        /// Whether anything is stored for it.
        found: bool,
        /// Whether it was closed when it was last used.
        closed: bool,
    },
    /// The other answer to [`Action::Load`]: the store failed.
    LoadFailed { key: SessionKey },
    /// The answer to [`Action::Release`] and [`Action::DropLost`].
    Tidied { key: SessionKey },
    /// The answer to [`Action::Delete`].
    Deleted {
        key: SessionKey,
        /// Whether anything was stored.
        found: bool,
    },
    /// The other answer to [`Action::Delete`]: the store failed, and the files are still there.
    NotDeleted { key: SessionKey },
    /// The answer to [`Action::KeepClosed`].
    KeptClosed { key: SessionKey },
    /// The answer to [`Action::AskHolders`].
    Holders {
        /// Sessions that something in the daemon holds on to.
        held: Vec<SessionKey>,
        /// Sessions whose next caller is to be told something.
        untold: Vec<SessionKey>,
    },
    /// The answer to [`Action::LookForUnused`]: sessions whose stored files no call used for the whole
    /// retention.
    Unused { keys: Vec<SessionKey> },
    /// From now on sessions are swept, at once and then every so often.
    StartSweeping,
    /// Time has passed; due at [`Core::next_deadline`](super::core::Core::next_deadline).
    Tick,
    /// No call comes in any more, and every container goes as soon as its session rests. Final.
    Shutdown,
}

/// What the core wants done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Action {
    /// Let a call in: it has its turn, in the session that is loaded now.
    Enter {
        key: SessionKey,
        call: CallId,
        /// When the call asked.
        since: Instant,
        /// Whether the store is to be told that the session is used, and open.
        note: bool,
    },
    /// Cancel what a call that is in runs: its session is being closed.
    Cancel { key: SessionKey, call: CallId },
    /// Tell a call no.
    Deny { key: SessionKey, call: CallId, why: Denial },
    /// Give a call the session to look at.
    Opened { key: SessionKey, call: CallId },
    /// Tell a call that there is no such session.
    NotFound { key: SessionKey, call: CallId },
    /// Tell a call that its session is closed; `found` is false if there was nothing to close or delete.
    Closed { key: SessionKey, call: CallId, found: bool },
    /// Give a call a permit for its session.
    Grant { key: SessionKey, call: CallId },
    /// Load the session from the store. Answered by `Loaded` or `LoadFailed`.
    Load { key: SessionKey },
    /// Drop every container of the session, and its permit. Answered by `Tidied`.
    Release { key: SessionKey, why: ReleaseReason },
    /// Drop the containers of the session that are lost, and its permit if none is left. Answered by
    /// `Tidied`.
    DropLost { key: SessionKey },
    /// Delete everything that is stored for the session. Answered by `Deleted` or `NotDeleted`.
    Delete {
        key: SessionKey,
        /// The call that asked for it; `None` after the retention.
        call: Option<CallId>,
    },
    /// Store that the session is closed. Answered by `KeptClosed`.
    KeepClosed { key: SessionKey },
    /// Drop the session from memory.
    Forget { key: SessionKey },
    /// Say which sessions must stay in memory, once the actions before this one are done. Answered by
    /// `Holders`.
    AskHolders,
    /// Look for stored sessions that no call used for the whole retention. Answered by `Unused`.
    LookForUnused,
}

/// Why the containers of a session are dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReleaseReason {
    /// The session rested for the whole `sessions.ttl`.
    Idle,
    /// Another session needs the permit, or the room of the containers.
    Evicted,
    /// A call closes the session.
    Closed,
    /// A call deletes the session: nothing of the containers is to be saved.
    Deleted,
    /// The daemon is shutting down.
    Shutdown,
}

/// Why a call got no turn, no session or no permit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Denial {
    /// This many calls wait in its session, which is as many as may.
    QueueFull(usize),
    /// Its time was over before its turn came.
    TurnTooLate,
    /// Another call is in its way, and it does not wait.
    Busy,
    /// The session was closed while the call waited.
    Closed,
    /// This many calls wait for a permit, which is as many as may.
    PermitQueueFull(usize),
    /// No permit came free for it in time.
    PermitTooLate,
    /// Its tenant has as many sessions with containers as it may have, which is so many, and none came free
    /// in time.
    TenantFull(usize),
    /// Every permit is taken, and no session is evicted, by configuration.
    NoEviction,
    /// The daemon is shutting down.
    ShuttingDown,
    /// The store failed: the driver has the error.
    StoreFailed,
}
