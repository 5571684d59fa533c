//! The queue in which warm parts wait to be loaded. Loading one takes a processor for a second or more; if
//! all parts of a burst were loaded at the same time, each would come too late.
//!
//! ```text
//!  parked ─► waiting (container idle, or its session rests) ─► wanted (a conversation goes on) ─► loading
//! ```
//!
//! A part that a conversation wants comes first, and may use every processor; the other parts leave half of
//! the processors to runs. While a session is in its first run, its container's part is parked: most
//! conversations of a burst have only one run, which needs the whole processor. The queue must never lose a
//! permit: dropping one returns it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

/// Why a part is to be loaded, in the order of precedence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum LoadReason {
    /// A conversation has more than one run, and starts interpreters until the part stands.
    Wanted,
    /// The container is idle.
    Idle,
    /// The container has had a run, and its session rests.
    Used,
}

/// The waiting parts, and the number of parts being loaded.
struct QueueState {
    /// The most parts that may be loading when none of the waiting ones is wanted.
    unhurried: usize,
    /// The most parts that may be loading at all.
    processors: usize,
    loading: usize,
    next: u64,
    waiting: BTreeMap<u64, WaitingPart>,
}

struct WaitingPart {
    /// `None` while it is parked.
    reason: Option<LoadReason>,
    permit: oneshot::Sender<LoadPermit>,
}

impl QueueState {
    fn new(processors: usize) -> Self {
        let processors = processors.max(1);
        let unhurried = (processors / 2).max(1);
        Self { unhurried, processors, loading: 0, next: 0, waiting: BTreeMap::new() }
    }

    /// Takes out the part that may be loaded next, if there is a free permit for it.
    fn take_next(&mut self) -> Option<WaitingPart> {
        let reasons = self.waiting.iter().filter_map(|(&number, part)| Some((part.reason?, number)));
        let (reason, number) = reasons.min()?;
        let permits = if reason == LoadReason::Wanted { self.processors } else { self.unhurried };
        if self.loading >= permits {
            return None;
        }
        let part = self.waiting.remove(&number)?;
        self.loading += 1;
        Some(part)
    }
}

/// The queue of one engine.
#[derive(Clone)]
pub(in crate::pool) struct LoadQueue(Arc<Mutex<QueueState>>);

/// A part's position in the queue. Dropping it gives the position up.
pub(super) struct LoadTicket {
    queue: LoadQueue,
    number: u64,
}

/// The right to load a part. Dropping it returns it.
pub(super) struct LoadPermit(LoadQueue);

impl LoadQueue {
    /// A queue for a machine with so many processors.
    pub(in crate::pool) fn new(processors: usize) -> Self {
        Self(Arc::new(Mutex::new(QueueState::new(processors))))
    }

    fn state(&self) -> MutexGuard<'_, QueueState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enters the queue. Without a reason the part is parked.
    pub(super) fn enter(&self, reason: Option<LoadReason>) -> (LoadTicket, oneshot::Receiver<LoadPermit>) {
        let (permit, granted) = oneshot::channel();
        let number = {
            let mut state = self.state();
            state.next += 1;
            let number = state.next;
            state.waiting.insert(number, WaitingPart { reason, permit });
            number
        };
        self.grant();
        (LoadTicket { queue: self.clone(), number }, granted)
    }

    /// Grants all free permits, each outside of the lock: one whose receiver is gone is dropped here, which
    /// returns it.
    fn grant(&self) {
        loop {
            let Some(part) = self.state().take_next() else { return };
            drop(part.permit.send(LoadPermit(self.clone())));
        }
    }
}

impl LoadTicket {
    /// Changes the reason, if the part still waits.
    pub(super) fn change(&self, change: impl FnOnce(Option<LoadReason>) -> Option<LoadReason>) {
        if let Some(part) = self.queue.state().waiting.get_mut(&self.number) {
            part.reason = change(part.reason);
        }
        self.queue.grant();
    }
}

impl Drop for LoadTicket {
    fn drop(&mut self) {
        let _given_up = self.queue.state().waiting.remove(&self.number);
    }
}

impl Drop for LoadPermit {
    fn drop(&mut self) {
        self.0.state().loading -= 1;
        self.0.grant();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn permit(granted: &mut oneshot::Receiver<LoadPermit>) -> Option<LoadPermit> {
        granted.try_recv().ok()
    }

    #[test]
    fn idle_containers_leave_half_of_the_processors_and_come_in_their_order() {
        let queue = LoadQueue::new(4);
        let (_a, mut a) = queue.enter(Some(LoadReason::Used));
        let (_b, mut b) = queue.enter(Some(LoadReason::Idle));
        let (_c, mut c) = queue.enter(Some(LoadReason::Used));
        let (_d, mut d) = queue.enter(Some(LoadReason::Idle));
        let first = permit(&mut a).expect("one permit is free");
        let second = permit(&mut b).expect("there are two permits");
        assert!(permit(&mut c).is_none() && permit(&mut d).is_none());
        drop(first);
        let third = permit(&mut d).expect("an idle container before a used one");
        drop(second);
        assert!(permit(&mut c).is_some());
        drop(third);
    }

    #[test]
    fn a_part_that_a_conversation_wants_comes_first_and_may_use_every_processor() {
        let queue = LoadQueue::new(2);
        let (_idle, mut idle) = queue.enter(Some(LoadReason::Idle));
        let _loading = permit(&mut idle).expect("a permit");
        let (_other, mut other) = queue.enter(Some(LoadReason::Idle));
        let (parked, mut wanted) = queue.enter(None);
        parked.change(|_| Some(LoadReason::Wanted));
        let loading = permit(&mut wanted).expect("beside the idle one");
        assert!(permit(&mut other).is_none());
        let (late, mut later) = queue.enter(Some(LoadReason::Wanted));
        assert!(permit(&mut later).is_none(), "both processors load");
        drop(loading);
        assert!(permit(&mut later).is_some());
        late.change(|_| None); // it has had its permit: nothing changes
    }

    #[test]
    fn a_parked_part_gets_no_permit_and_one_that_goes_away_loses_none() {
        let queue = LoadQueue::new(1);
        let (parked, mut never) = queue.enter(None);
        assert!(permit(&mut never).is_none());
        let (_next, mut next) = queue.enter(Some(LoadReason::Idle));
        let loading = permit(&mut next).expect("the parked one is passed over");
        drop(never);
        parked.change(|_| Some(LoadReason::Used));
        drop(loading); // goes to the part whose receiver is gone, and comes back
        let (_last, mut last) = queue.enter(Some(LoadReason::Used));
        assert!(permit(&mut last).is_some());
        let (given_up, _waits) = queue.enter(Some(LoadReason::Idle));
        drop(given_up);
        assert!(queue.state().waiting.is_empty());
    }
}
