//! What the core and its driver say to each other. No behaviour lives here.

use std::fmt;
use std::time::Duration;

/// One kind of container: an image with everything that is fixed about it.
///
/// Given by the caller, who uses a new one when the image or its settings change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunnerId(pub u32);

/// One attempt at a container. Given by the core (for adopted ones by the driver), never twice in the life of the
/// process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemberId(pub u64);

/// One request for a container. Given by the caller, who never uses one twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WaiterId(pub u64);

/// The user and group id that a container's processes run as; no two live members share one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uid(pub u32);

/// What the driver reports.
///
/// The driver owes one answer to every [`Action::Start`] (`Started` or `StartFailed`) and to every
/// [`Action::Destroy`] (`Destroyed` or `DestroyFailed`), and every [`Action::Grant`] is followed by one
/// `Released`. A container that an earlier daemon left is told as `Adopted`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A runner exists from now on and is kept warm. Said again: nothing changes.
    RunnerAdded {
        /// The runner.
        runner: RunnerId,
    },
    /// A runner is no more: its idle members go, its waiters are refused, leased members go on.
    RunnerRemoved {
        /// The runner.
        runner: RunnerId,
    },
    /// A container of an earlier daemon is there, armed: it becomes a member. Told before [`Event::RunnerAdded`] of
    /// its runner, or others would be started in its place. One that there is no slot for, or whose UID another
    /// has, is destroyed.
    Adopted {
        /// Its number, given by the driver: above every one before.
        member: MemberId,
        /// Its kind.
        runner: RunnerId,
        /// Its UID and GID.
        uid: Uid,
        /// Whether it belongs to someone: it is then followed by one `Released`, like a grant.
        leased: bool,
    },
    /// Someone wants a container. Answered by exactly one `Grant` or `Refuse`, unless abandoned before.
    Request {
        /// Who wants it.
        waiter: WaiterId,
        /// Of which kind.
        runner: RunnerId,
    },
    /// The waiter went away. One that has been granted meanwhile is unknown here; its lease must then be
    /// `Released`.
    Abandon {
        /// Who went.
        waiter: WaiterId,
    },
    /// A start succeeded: the container runs and its agent is armed.
    Started {
        /// The member.
        member: MemberId,
    },
    /// A start failed. The member is destroyed, so the driver need not clean up.
    StartFailed {
        /// The member.
        member: MemberId,
        /// At which step.
        failure: StartFailure,
    },
    /// The container vanished or its link broke. A leased member stays its holder's until `Released`.
    Died {
        /// The member.
        member: MemberId,
    },
    /// A lease was dropped: the container is destroyed, whatever it was used for.
    Released {
        /// The member.
        member: MemberId,
    },
    /// The container is gone, also when there was none to be found.
    Destroyed {
        /// The member.
        member: MemberId,
    },
    /// The container may still be there: it is tried again, and keeps its UID and slot.
    DestroyFailed {
        /// The member.
        member: MemberId,
    },
    /// The engine does not answer.
    EngineDown,
    /// The engine answers again. The driver paces this: each one ends every pause after failures.
    EngineUp,
    /// Time has passed; due at [`Core::next_deadline`](super::Core::next_deadline).
    Tick,
    /// Nothing is handed out or started any more, and what is idle goes. Final.
    Shutdown,
}

/// What the core wants done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Create, start and arm a container.
    Start {
        /// The new member.
        member: MemberId,
        /// Its kind.
        runner: RunnerId,
        /// Its UID and GID.
        uid: Uid,
    },
    /// Remove a container and all that belongs to it. That there is none is success.
    Destroy {
        /// The member.
        member: MemberId,
    },
    /// Hand an armed container to a waiter.
    Grant {
        /// Who gets it.
        waiter: WaiterId,
        /// What they get.
        member: MemberId,
        /// How long they waited.
        waited: Duration,
    },
    /// Tell a waiter no.
    Refuse {
        /// Who is told.
        waiter: WaiterId,
        /// Why.
        refusal: Refusal,
    },
}

/// Why a waiter got no container.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// As many callers wait as may wait.
    #[error("too many callers are waiting for a container already")]
    QueueFull,
    /// The wait bound passed while starts were under way, or not even begun for want of a turn.
    #[error("no container became ready within {:.1} s", waited.as_secs_f64())]
    WaitedTooLong {
        /// How long they waited.
        waited: Duration,
    },
    /// The wait bound passed with every container slot taken.
    #[error("all containers are in use")]
    Full,
    /// The engine does not answer.
    #[error("the container engine does not answer")]
    EngineUnavailable,
    /// No such runner, or no longer.
    #[error("there is no such runner")]
    UnknownRunner,
    /// Containers of this runner do not start at present.
    #[error("containers of this runner do not start: {last}")]
    StartFailing {
        /// What the last attempt died of.
        last: StartFailure,
    },
    /// The pool is closing.
    #[error("the daemon is shutting down")]
    ShuttingDown,
}

impl Refusal {
    /// A stable word for metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::QueueFull => "queue_full",
            Self::WaitedTooLong { .. } => "waited_too_long",
            Self::Full => "full",
            Self::EngineUnavailable => "engine_unavailable",
            Self::UnknownRunner => "unknown_runner",
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
    /// A stable word for metrics and logs.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NoImage => "no_image",
            Self::Create => "create",
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
            Self::Start => "the engine could not start one",
            Self::Arm => "the agent inside did not answer",
            Self::Deadline => "starting took too long",
            Self::Died => "it died while starting",
        })
    }
}
