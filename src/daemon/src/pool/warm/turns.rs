//! The turns in which warm parts are loaded: loading one takes a processor for a second or more, and all of many that are
//! loaded at once would come too late.
//!
//! ```text
//!  parked ─► waiting (idle container, or a session's that rests) ─► wanted (a conversation goes on without it) ─► loading
//! ```
//!
//! A part that a conversation wants comes first and may use every processor; the others leave half of the processors to
//! runs. A container whose session is in its first run is parked: most of a burst's conversations have one run, which is
//! better served by the whole processor. The queue must never lose a turn: whoever has one gives it back by dropping it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

/// Why a part is to be loaded. The first is served first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Claim {
    /// A conversation has more than one run, and goes on without the part until it stands.
    Wanted,
    /// Nobody has the container yet.
    Idle,
    /// The container has had a run, and its session rests.
    Used,
}

/// Who waits, and how many are loading.
struct Queue {
    /// Parts that may be loading at one time when nobody wants them yet.
    unhurried: usize,
    /// Parts that may be loading at one time.
    processors: usize,
    loading: usize,
    next: u64,
    waiting: BTreeMap<u64, Waiter>,
}

struct Waiter {
    /// `None` while it is parked.
    claim: Option<Claim>,
    turn: oneshot::Sender<Turn>,
}

impl Queue {
    fn new(processors: usize) -> Self {
        let processors = processors.max(1);
        let unhurried = (processors / 2).max(1);
        Self { unhurried, processors, loading: 0, next: 0, waiting: BTreeMap::new() }
    }

    /// The waiter whose turn it is, if there is a place for it.
    fn next_turn(&mut self) -> Option<Waiter> {
        let claims = self.waiting.iter().filter_map(|(&number, waiter)| Some((waiter.claim?, number)));
        let (claim, number) = claims.min()?;
        let places = if claim == Claim::Wanted { self.processors } else { self.unhurried };
        if self.loading >= places {
            return None;
        }
        let waiter = self.waiting.remove(&number)?;
        self.loading += 1;
        Some(waiter)
    }
}

/// The turns of one engine.
#[derive(Clone)]
pub(in crate::pool) struct Turns(Arc<Mutex<Queue>>);

/// A place in the queue. Dropping it gives it up.
pub(super) struct Ticket {
    turns: Turns,
    number: u64,
}

/// The right to load a part, until it is dropped.
pub(super) struct Turn(Turns);

impl Turns {
    /// Those of a machine with so many processors.
    pub(in crate::pool) fn new(processors: usize) -> Self {
        Self(Arc::new(Mutex::new(Queue::new(processors))))
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits in the queue; without a claim it is parked.
    pub(super) fn enter(&self, claim: Option<Claim>) -> (Ticket, oneshot::Receiver<Turn>) {
        let (turn, granted) = oneshot::channel();
        let number = {
            let mut queue = self.queue();
            queue.next += 1;
            let number = queue.next;
            queue.waiting.insert(number, Waiter { claim, turn });
            number
        };
        self.grant();
        (Ticket { turns: self.clone(), number }, granted)
    }

    /// Grants what there are places for. Outside of the lock: a turn that nobody takes any more comes back.
    fn grant(&self) {
        loop {
            let Some(waiter) = self.queue().next_turn() else { return };
            drop(waiter.turn.send(Turn(self.clone())));
        }
    }
}

impl Ticket {
    /// Changes the claim, if the ticket still waits.
    pub(super) fn claim(&self, change: impl FnOnce(Option<Claim>) -> Option<Claim>) {
        if let Some(waiter) = self.turns.queue().waiting.get_mut(&self.number) {
            waiter.claim = change(waiter.claim);
        }
        self.turns.grant();
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let _given_up = self.turns.queue().waiting.remove(&self.number);
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.queue().loading -= 1;
        self.0.grant();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn has(granted: &mut oneshot::Receiver<Turn>) -> Option<Turn> {
        granted.try_recv().ok()
    }

    #[test]
    fn idle_ones_leave_half_of_the_processors_and_come_in_their_order() {
        let turns = Turns::new(4);
        let (_a, mut a) = turns.enter(Some(Claim::Used));
        let (_b, mut b) = turns.enter(Some(Claim::Idle));
        let (_c, mut c) = turns.enter(Some(Claim::Used));
        let (_d, mut d) = turns.enter(Some(Claim::Idle));
        let first = has(&mut a).expect("a place is free");
        let second = has(&mut b).expect("two places");
        assert!(has(&mut c).is_none() && has(&mut d).is_none());
        drop(first);
        let third = has(&mut d).expect("an idle container before a used one");
        drop(second);
        assert!(has(&mut c).is_some());
        drop(third);
    }

    #[test]
    fn one_that_a_conversation_wants_is_before_all_and_has_every_processor() {
        let turns = Turns::new(2);
        let (_idle, mut idle) = turns.enter(Some(Claim::Idle));
        let _loading = has(&mut idle).expect("a place");
        let (_other, mut other) = turns.enter(Some(Claim::Idle));
        let (parked, mut wanted) = turns.enter(None);
        parked.claim(|_| Some(Claim::Wanted));
        let turn = has(&mut wanted).expect("beside the idle one");
        assert!(has(&mut other).is_none());
        let (late, mut later) = turns.enter(Some(Claim::Wanted));
        assert!(has(&mut later).is_none(), "both processors load");
        drop(turn);
        assert!(has(&mut later).is_some());
        late.claim(|_| None); // has had its turn: nothing to change
    }

    #[test]
    fn parked_ones_have_no_turn_and_those_that_go_away_lose_none() {
        let turns = Turns::new(1);
        let (parked, mut never) = turns.enter(None);
        assert!(has(&mut never).is_none());
        let (_next, mut next) = turns.enter(Some(Claim::Idle));
        let turn = has(&mut next).expect("the parked one is passed");
        drop(never);
        parked.claim(|_| Some(Claim::Used));
        drop(turn); // goes to the one that is not there any more, and comes back
        let (_last, mut last) = turns.enter(Some(Claim::Used));
        assert!(has(&mut last).is_some());
        let (given_up, _waits) = turns.enter(Some(Claim::Idle));
        drop(given_up);
        assert!(turns.queue().waiting.is_empty());
    }
}
