//! One member and its state. Only the core changes a state.

use std::time::Instant;

use super::{MemberId, PoolAction, RunnerId, Uid};

/// One attempt at a container, for as long as anything may be left of it.
#[derive(Debug)]
pub(super) struct PoolMember {
    pub(super) runner: RunnerId,
    pub(super) uid: Uid,
    pub(super) state: MemberState,
    /// It was made in another way than new members of its runner: it is replaced while it is idle.
    pub(super) outdated: bool,
    /// It is released as soon as callers need its place.
    pub(super) gives_way: bool,
}

impl PoolMember {
    /// Begins its removal, or notes that it is due when the engine is up again.
    pub(super) fn leave(&mut self, id: MemberId, engine_up: bool) -> Option<PoolAction> {
        let step = if engine_up { Removal::Asked } else { Removal::Held };
        self.state = MemberState::Destroying { failures: 0, step };
        engine_up.then_some(PoolAction::Destroy { member: id })
    }
}

/// See the picture in the module's documentation.
#[derive(Debug, Clone, Copy)]
pub(super) enum MemberState {
    /// The driver is starting it and will report the result.
    Starting { outlook: Outlook },
    /// Armed at this instant and never used.
    Idle { armed: Instant },
    /// Handed out.
    Leased,
    /// Being removed; `failures` attempts have failed so far.
    Destroying { failures: u32, step: Removal },
}

/// What the core will do with a start once the driver has reported its result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outlook {
    /// It becomes idle.
    Wanted,
    /// It is destroyed: its runner was removed, the engine was down meanwhile, or the pool closes.
    Unwanted,
    /// It was reported dead before it was reported started: a failed start, whatever the driver reports.
    Dead,
}

/// How far a removal has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Removal {
    /// The driver is removing it and will report the result.
    Asked,
    /// The last attempt failed; the next is due at this instant.
    RetryAt(Instant),
    /// The engine is down; the next attempt is due when it is up.
    Held,
}
