//! One member and the state it is in. Transitions are made by the core alone.

use std::time::Instant;

use super::{Action, MemberId, RunnerId, Uid};

/// One attempt at a container, for as long as anything may be left of it.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) runner: RunnerId,
    pub(super) uid: Uid,
    pub(super) state: State,
}

impl Member {
    /// Begins its removal, or notes it for when the engine is up.
    pub(super) fn leave(&mut self, id: MemberId, engine_up: bool) -> Option<Action> {
        let step = if engine_up { Removal::Asked } else { Removal::Held };
        self.state = State::Destroying { failures: 0, step };
        engine_up.then_some(Action::Destroy { member: id })
    }
}

/// See the picture in the module's documentation.
#[derive(Debug, Clone, Copy)]
pub(super) enum State {
    /// The driver is starting it and will answer.
    Starting { outlook: Outlook },
    /// Armed at this instant and never used.
    Idle { armed: Instant },
    /// Handed out.
    Leased,
    /// On its way out, after so many failed attempts to remove it.
    Destroying { failures: u32, step: Removal },
}

/// What becomes of a start once the driver answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outlook {
    /// It becomes idle.
    Wanted,
    /// It is destroyed: its runner went, the engine was down meanwhile, or the pool closes.
    Unwanted,
    /// It was reported dead before it was reported started: a failed start, whichever answer comes.
    Dead,
}

/// How far a removal has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Removal {
    /// The driver is at it and will answer.
    Asked,
    /// It failed; the next attempt is due then.
    RetryAt(Instant),
    /// The engine is down; the next attempt is due when it is up.
    Held,
}
