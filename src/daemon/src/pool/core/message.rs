//! The events, actions and ids that the core and its driver exchange. No behaviour lives here.

use std::fmt;
use std::time::Duration;

use crate::tenants::TenantShare;

/// One kind of container: an image with everything that is fixed about it.
///
/// Numbered by the driver, with a new number whenever the image or its settings change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunnerId(pub u32);

/// One attempt at a container. Numbered by the core (adopted ones by the driver), never twice in the life of
/// the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemberId(pub u64);

/// One request for a container. Numbered by the caller, never twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WaiterId(pub u64);

/// The user and group id that a container's processes run as; no two live members share one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uid(pub u32);

/// What the driver reports.
///
/// The driver owes one answer to every [`PoolAction::Start`] (`Started` or `StartFailed`) and to every
/// [`PoolAction::Destroy`] (`Destroyed` or `DestroyFailed`), and every [`PoolAction::Grant`] is followed by
/// one `Released`. The driver reports a container that an earlier daemon left as `Adopted`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PoolEvent {
    /// A runner exists from now on and is kept warm. Reported twice, the last `idle` counts.
    RunnerAdded {
        /// The runner.
        runner: RunnerId,
        /// Armed containers kept for it when nobody waits; 0 starts one for each request.
        idle: u32,
    },
    /// This runner serves the daemon itself and gives way to callers: a member of it is started only while
    /// nobody else waits and nothing else is being started, in a place that is free. Whoever has its members
    /// releases them when `PoolCore::is_crowded` says so.
    GivesWay {
        /// The runner, which was added before.
        runner: RunnerId,
    },
    /// A workspace is kept for later: it is a runner of its own, without idle members, all of whose members
    /// have this UID, one after the other. Nobody else gets the UID until the runner is removed. A member
    /// that has it goes on.
    WorkspaceKept {
        /// The runner, a new one.
        runner: RunnerId,
        /// The UID and GID of the workspace's files.
        uid: Uid,
    },
    /// A runner no longer exists: its idle members are destroyed, its waiters refused; leased members go on.
    RunnerRemoved {
        /// The runner.
        runner: RunnerId,
    },
    /// An armed container of an earlier daemon becomes a member. The driver reports it before
    /// [`PoolEvent::RunnerAdded`] of its runner, or the core would start others in its place. It is destroyed
    /// if there is no slot for it, or if another member has its UID.
    Adopted {
        /// Its number, given by the driver: higher than all before.
        member: MemberId,
        /// Its runner.
        runner: RunnerId,
        /// Its UID and GID.
        uid: Uid,
        /// Whether it belongs to a session: one `Released` then follows, as after a grant.
        leased: bool,
    },
    /// This member was made in another way than new members of its runner are from now on. It serves as any
    /// other; while it is idle it is replaced, one of its runner after the other, and none before another is
    /// idle in its place.
    Outdated {
        /// The member.
        member: MemberId,
    },
    /// A caller wants a container. Answered by exactly one `Grant` or `Refuse`, unless abandoned before.
    Request {
        /// The request.
        waiter: WaiterId,
        /// The runner that it asks for.
        runner: RunnerId,
        /// For whom.
        tenant: TenantShare,
    },
    /// The caller went away. A request that has been granted meanwhile is unknown here; its lease must then
    /// be `Released`.
    Abandon {
        /// The request.
        waiter: WaiterId,
    },
    /// A start succeeded: the container runs and its agent is armed.
    Started {
        /// The member.
        member: MemberId,
    },
    /// A start failed. The core destroys the member, so the driver need not clean up.
    StartFailed {
        /// The member.
        member: MemberId,
        /// The step that failed.
        failure: StartFailure,
    },
    /// The container vanished or its link broke. A leased member stays leased until `Released`.
    Died {
        /// The member.
        member: MemberId,
    },
    /// A lease was dropped: the container is destroyed, whatever it was used for.
    Released {
        /// The member.
        member: MemberId,
    },
    /// The container is gone, or there never was one.
    Destroyed {
        /// The member.
        member: MemberId,
    },
    /// The container may still be there: the removal is tried again, and the member keeps its UID and slot.
    DestroyFailed {
        /// The member.
        member: MemberId,
    },
    /// The engine does not answer.
    EngineDown,
    /// The engine answers again, which ends every pause after failures; so the driver must not report it
    /// often.
    EngineUp,
    /// Time has passed; due at [`PoolCore::next_deadline`](super::PoolCore::next_deadline).
    Tick,
    /// Nothing is handed out or started any more, and idle members are destroyed. Final.
    Shutdown,
}

/// What the driver must do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PoolAction {
    /// Create, start and arm a container.
    Start {
        /// The new member.
        member: MemberId,
        /// Its runner.
        runner: RunnerId,
        /// Its UID and GID.
        uid: Uid,
        /// Whether a request waits for it; otherwise it is to stand idle.
        is_awaited: bool,
    },
    /// Remove a container and all that belongs to it. If there is none, that is a success.
    Destroy {
        /// The member.
        member: MemberId,
    },
    /// Hand an armed container to a waiter.
    Grant {
        /// The request that is served.
        waiter: WaiterId,
        /// The container that it gets.
        member: MemberId,
        /// How long it waited.
        waited: Duration,
    },
    /// Refuse a request.
    Refuse {
        /// The request.
        waiter: WaiterId,
        /// The reason.
        refusal: LeaseRefusal,
    },
}

/// Why a request got no container.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LeaseRefusal {
    /// `queue` requests are waiting already.
    #[error("too many callers are waiting for a container already")]
    QueueFull,
    /// The wait bound passed while starts were under way or had not begun.
    #[error("no container became ready within {:.1} s", waited.as_secs_f64())]
    WaitedTooLong {
        /// How long the request waited.
        waited: Duration,
    },
    /// The wait bound passed with every container slot taken.
    #[error("all containers are in use")]
    Full,
    /// The engine does not answer.
    #[error("the container engine does not answer")]
    EngineUnavailable,
    /// There is no such runner, or no longer.
    #[error("there is no such runner")]
    UnknownRunner,
    /// There is no such workspace, or no longer.
    #[error("the workspace is not kept any more")]
    NoWorkspace,
    /// Containers of this runner do not start at present.
    #[error("containers of this runner do not start: {last}")]
    StartFailing {
        /// The step that failed in the last attempt.
        last: StartFailure,
    },
    /// The pool is closing.
    #[error("the daemon is shutting down")]
    ShuttingDown,
}

impl LeaseRefusal {
    /// A stable word for metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::QueueFull => "queue_full",
            Self::WaitedTooLong { .. } => "waited_too_long",
            Self::Full => "full",
            Self::EngineUnavailable => "engine_unavailable",
            Self::UnknownRunner => "unknown_runner",
            Self::NoWorkspace => "no_workspace",
            Self::StartFailing { .. } => "start_failing",
            Self::ShuttingDown => "shutting_down",
        }
    }
}

/// The step at which a start failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StartFailure {
    /// The engine has no such image.
    NoImage,
    /// The engine would not create the container or its volume.
    Create,
    /// A folder of the host that it has is not what it was.
    Mount,
    /// The engine would not start it.
    Start,
    /// It started, but its agent did not come up.
    Arm,
    /// A step took longer than it may.
    Deadline,
    /// It died before it was armed.
    Died,
}

impl StartFailure {
    /// Whether the engine failed, and not what is in the container.
    pub(super) fn is_of_engine(self) -> bool {
        match self {
            Self::Create | Self::Start | Self::Deadline => true,
            Self::NoImage | Self::Mount | Self::Arm | Self::Died => false,
        }
    }

    /// A stable word for metrics and logs.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NoImage => "no_image",
            Self::Create => "create",
            Self::Mount => "mount",
            Self::Start => "start",
            Self::Arm => "arm",
            Self::Deadline => "deadline",
            Self::Died => "died",
        }
    }
}

impl fmt::Display for StartFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoImage => "the image is missing",
            Self::Create => "the engine could not create one",
            Self::Mount => "a folder that the operator mounts is not there, or is no folder any more",
            Self::Start => "the engine could not start one",
            Self::Arm => "the agent inside did not answer",
            Self::Deadline => "starting took too long",
            Self::Died => "it died while starting",
        })
    }
}
