//! One session: what the core knows of it, and which call fits in. It must never look at another session.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use super::{CallId, NOTE_USE, ReleaseReason, TurnKind};

/// One session in memory.
#[derive(Debug)]
pub(super) struct SessionState {
    pub(super) occupancy: Occupancy,
    /// The calls that wait for their turn, oldest first.
    pub(super) waiting: VecDeque<WaitingCall>,
    /// The calls that wait for the session to be loaded, and want no turn; and whether each makes a session
    /// that does not exist.
    pub(super) openers: BTreeMap<CallId, bool>,
    /// Whether the driver has it in memory.
    pub(super) loaded: bool,
    /// Whether there is such a session: something is stored, or a call came in or made it.
    pub(super) exists: bool,
    /// Whether the store has it as closed.
    pub(super) closed: bool,
    /// Whether a container of it was lost and is still to be dropped.
    pub(super) lost: bool,
    /// When a turn last began or ended, or the session was loaded.
    pub(super) used: Instant,
    /// When a call last looked at it.
    pub(super) opened: Option<Instant>,
    /// When the store was last told that it is used.
    noted: Option<Instant>,
}

/// See the picture in the module's documentation.
#[derive(Debug)]
pub(super) enum Occupancy {
    /// The driver loads it from the store and will answer.
    Loading,
    /// No call is in.
    Resting,
    /// Programs of one language are in.
    Programs {
        /// Of which language they are.
        language: String,
        /// Never empty.
        calls: BTreeMap<CallId, Inside>,
    },
    /// A call has it to itself.
    Whole { call: CallId, inside: Inside },
    /// The driver works on it and will answer.
    Chore(Chore),
}

/// A call that is in.
#[derive(Debug, Clone, Copy)]
pub(super) struct Inside {
    /// When it asked, or as much later as it was held back.
    pub(super) since: Instant,
    /// Whether it is the ordered call that is in.
    is_ordered: bool,
}

/// What the driver does to a session that no call is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Chore {
    /// Drops its containers.
    Release(ReleaseReason),
    /// Drops its lost containers.
    DropLost,
    /// Deletes its files: no call used them.
    Expire,
    /// Ends it for a call.
    Close {
        /// The call.
        call: CallId,
        /// Whether its files go too.
        delete: bool,
        /// Whether it was closed before, and no call used it since.
        was_closed: bool,
        /// What the driver does at the moment.
        step: CloseStep,
    },
}

/// How far the end of a session is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CloseStep {
    /// Its containers are being dropped.
    Release,
    /// Its files are being deleted.
    Delete,
    /// The store is being told that it is closed.
    Keep,
}

/// A call that waits for its turn.
#[derive(Debug)]
pub(super) struct WaitingCall {
    pub(super) call: CallId,
    pub(super) purpose: Purpose,
}

/// What a call waits for its turn for.
#[derive(Debug)]
pub(super) enum Purpose {
    /// To come in.
    Enter {
        kind: TurnKind,
        /// Whether it waits while other calls are in its way.
        waits: bool,
        /// When it asked.
        since: Instant,
    },
    /// To close the session. It has no deadline.
    Close { delete: bool },
}

impl WaitingCall {
    fn is_ordered(&self) -> bool {
        match &self.purpose {
            Purpose::Enter { kind, .. } => kind.is_ordered(),
            Purpose::Close { .. } => true,
        }
    }
}

impl SessionState {
    pub(super) fn new(occupancy: Occupancy, now: Instant) -> Self {
        Self {
            occupancy,
            waiting: VecDeque::new(),
            openers: BTreeMap::new(),
            loaded: false,
            exists: false,
            closed: false,
            lost: false,
            used: now,
            opened: None,
            noted: None,
        }
    }

    pub(super) fn is_resting(&self) -> bool {
        matches!(self.occupancy, Occupancy::Resting)
    }

    /// Whether it rests and no call waits for it.
    pub(super) fn is_idle(&self) -> bool {
        self.is_resting() && self.waiting.is_empty() && self.openers.is_empty()
    }

    /// Whether a call used it, or looked at it, at that time or later.
    pub(super) fn is_used_since(&self, then: Instant) -> bool {
        self.used >= then || self.opened.is_some_and(|opened| opened >= then)
    }

    /// Whether only the daemon itself keeps calls out, so that even a call that does not wait waits for it.
    pub(super) fn is_held_by_daemon(&self) -> bool {
        match &self.occupancy {
            Occupancy::Loading => true,
            Occupancy::Chore(Chore::Release(_) | Chore::DropLost | Chore::Expire) => true,
            Occupancy::Chore(Chore::Close { .. })
            | Occupancy::Resting
            | Occupancy::Programs { .. }
            | Occupancy::Whole { .. } => false,
        }
    }

    /// Whether a call waits to close it: what is in is cancelled meanwhile.
    pub(super) fn is_to_be_closed(&self) -> bool {
        self.waiting.iter().any(|waiting| matches!(waiting.purpose, Purpose::Close { .. }))
    }

    /// The oldest call that does not wait for others.
    pub(super) fn first_impatient(&self) -> Option<CallId> {
        let is_impatient =
            |waiting: &&WaitingCall| matches!(waiting.purpose, Purpose::Enter { waits: false, .. });
        self.waiting.iter().find(is_impatient).map(|waiting| waiting.call)
    }

    /// The calls that `sessions.queue` bounds.
    pub(super) fn counted(&self) -> usize {
        let counts = |waiting: &&WaitingCall| matches!(waiting.purpose, Purpose::Enter { waits: true, .. });
        self.waiting.iter().filter(counts).count()
    }

    /// The calls that are in.
    pub(super) fn inside(&self) -> Vec<CallId> {
        match &self.occupancy {
            Occupancy::Programs { calls, .. } => calls.keys().copied().collect(),
            Occupancy::Whole { call, .. } => vec![*call],
            Occupancy::Loading | Occupancy::Resting | Occupancy::Chore(_) => Vec::new(),
        }
    }

    /// The call, if it is in.
    pub(super) fn find_inside(&self, wanted: CallId) -> Option<Inside> {
        match &self.occupancy {
            Occupancy::Programs { calls, .. } => calls.get(&wanted).copied(),
            Occupancy::Whole { call, inside } => (*call == wanted).then_some(*inside),
            Occupancy::Loading | Occupancy::Resting | Occupancy::Chore(_) => None,
        }
    }

    /// From now on this call, if it is in, has asked so much later.
    pub(super) fn delay(&mut self, wanted: CallId, by: Duration) {
        let inside = match &mut self.occupancy {
            Occupancy::Programs { calls, .. } => calls.get_mut(&wanted),
            Occupancy::Whole { call, inside } => (*call == wanted).then_some(inside),
            Occupancy::Loading | Occupancy::Resting | Occupancy::Chore(_) => None,
        };
        inside.into_iter().for_each(|inside| inside.since += by);
    }

    /// The place in the queue of the call that comes in next, if one may now.
    pub(super) fn next_in(&self) -> Option<usize> {
        let ordered_is_in = match &self.occupancy {
            Occupancy::Resting => false,
            Occupancy::Programs { calls, .. } => calls.values().any(|inside| inside.is_ordered),
            Occupancy::Loading | Occupancy::Whole { .. } | Occupancy::Chore(_) => return None,
        };
        let first_ordered = self.waiting.iter().position(WaitingCall::is_ordered);
        let may_come = |(at, waiting): &(usize, &WaitingCall)| {
            let in_order = !waiting.is_ordered() || (!ordered_is_in && first_ordered == Some(*at));
            in_order && self.fits(waiting)
        };
        self.waiting.iter().enumerate().find(may_come).map(|(at, _)| at)
    }

    fn fits(&self, waiting: &WaitingCall) -> bool {
        match (&self.occupancy, &waiting.purpose) {
            (Occupancy::Resting, _) => true,
            (Occupancy::Programs { language, .. }, Purpose::Enter { kind, .. }) => {
                kind.language() == Some(language.as_str())
            }
            (
                Occupancy::Programs { .. }
                | Occupancy::Loading
                | Occupancy::Whole { .. }
                | Occupancy::Chore(_),
                _,
            ) => false,
        }
    }

    /// Lets a call in that fits.
    pub(super) fn come_in(&mut self, call: CallId, kind: &TurnKind, since: Instant, now: Instant) {
        let inside = Inside { since, is_ordered: kind.is_ordered() };
        match (&mut self.occupancy, kind.language()) {
            (Occupancy::Programs { calls, .. }, Some(_)) => {
                calls.insert(call, inside);
            }
            (_, Some(language)) => self.become_programs(language.to_owned(), call, inside),
            (_, None) => self.occupancy = Occupancy::Whole { call, inside },
        }
        self.used = now;
        self.exists = true;
    }

    /// Makes the call that has the session to itself a program.
    pub(super) fn become_programs(&mut self, language: String, call: CallId, inside: Inside) {
        self.occupancy = Occupancy::Programs { language, calls: BTreeMap::from([(call, inside)]) };
    }

    /// Gives the only program the session to itself; false if the call is not the only one that is in.
    pub(super) fn become_whole(&mut self, call: CallId) -> bool {
        if self.inside() != [call] {
            return false;
        }
        if let Some(inside) = self.find_inside(call) {
            self.occupancy = Occupancy::Whole { call, inside };
        }
        true
    }

    /// Takes a call out; false if it was not in.
    pub(super) fn go_out(&mut self, gone: CallId, now: Instant) -> bool {
        let (was_in, is_empty) = match &mut self.occupancy {
            Occupancy::Programs { calls, .. } => (calls.remove(&gone).is_some(), calls.is_empty()),
            Occupancy::Whole { call, .. } => (*call == gone, *call == gone),
            Occupancy::Loading | Occupancy::Resting | Occupancy::Chore(_) => (false, false),
        };
        if was_in {
            self.used = now;
        }
        if is_empty {
            self.occupancy = Occupancy::Resting;
        }
        was_in
    }

    /// Whether a turn that begins now is to be noted in the store. It is noted from then on.
    pub(super) fn note_use(&mut self, now: Instant) -> bool {
        let is_old = |noted: Instant| now.saturating_duration_since(noted) > NOTE_USE;
        let due = self.closed || self.noted.is_none_or(is_old);
        if due {
            self.noted = Some(now);
            self.closed = false;
        }
        due
    }

    /// Whether this call waits for its turn.
    pub(super) fn waits(&self, call: CallId) -> bool {
        self.waiting.iter().any(|waiting| waiting.call == call)
    }
}
