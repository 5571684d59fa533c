//! Which sessions may have a container: at most `sessions.max` at one time. The others wait, first come, first served.
//!
//! ```text
//!  admit ─► a permit is free ──────────────────────────────► permit
//!    └────► none is: queue ─► a session that rests is evicted ─► its permit goes to the first in the queue
//! ```
//!
//! A session that rests is evicted as soon as somebody waits: when the waiter comes, and when a session comes to rest. The
//! least recently used goes first. A session whose own calls wait is spared until it has had its container for
//! [`SLICE`], so that a long queue in one conversation neither loses its container between two calls nor keeps all others
//! out. It must never evict a session at work, evict more sessions than calls wait, nor grant a permit out of turn.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::Session;
use crate::metrics::Metrics;

/// How long a session with waiting calls of its own keeps its container while other sessions wait for one.
const SLICE: Duration = Duration::from_secs(5);

/// How often a waiter looks again for a session to evict. Evictions follow events; this covers the moment in which the
/// sweep holds a resting session, so that the event finds it busy.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// What a session must be able to do to be evicted.
pub(super) trait Evict: Send + Sync {
    /// When it was last at work.
    fn last_used(&self) -> std::time::Instant;
    /// Whether calls of its own wait.
    fn has_waiting_calls(&self) -> bool;
    /// Gives its containers and its permit up, unless it is at work.
    fn evict(&self) -> bool;
}

/// Why no permit was granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refused {
    /// Nobody may wait, by configuration.
    Full,
    /// As many wait as may wait.
    QueueFull(usize),
    /// The wait was over, and no session that has a container had given it up for this call.
    TooLong,
}

/// The bounds of [`Admission`].
#[derive(Debug, Clone)]
pub(super) struct Terms {
    /// Permits.
    pub(super) max: usize,
    /// Waiters at one time.
    pub(super) queue: usize,
    /// Whether resting sessions are evicted; if not, nobody waits.
    pub(super) evicts: bool,
}

/// The permits of one daemon, and who waits for one.
pub(super) struct Admission<S> {
    terms: Terms,
    metrics: Metrics,
    state: Mutex<State<S>>,
    /// Held while sessions are evicted, so that two callers do not evict two sessions for one waiter.
    evicting: Mutex<()>,
}

struct State<S> {
    holders: BTreeMap<u64, Holder<S>>,
    waiters: VecDeque<Waiter<S>>,
    next: u64,
}

struct Holder<S> {
    session: Weak<S>,
    since: Instant,
}

struct Waiter<S> {
    session: Weak<S>,
    granted: oneshot::Sender<Permit<S>>,
}

/// A session's right to have containers. Dropping it grants it to the first waiter.
pub(super) struct Permit<S = Session> {
    admission: Arc<Admission<S>>,
    number: u64,
}

impl<S> Drop for Permit<S> {
    fn drop(&mut self) {
        let granted = {
            let mut state = self.admission.state();
            state.holders.remove(&self.number);
            self.admission.grant(&mut state)
        };
        deliver(granted);
    }
}

/// A permit on its way to the call that waits for it.
type Grant<S> = (oneshot::Sender<Permit<S>>, Permit<S>);

/// Outside of the lock: a permit whose waiter has gone away comes back, and takes the lock again.
fn deliver<S>(granted: Option<Grant<S>>) {
    if let Some((waiter, permit)) = granted {
        drop(waiter.send(permit));
    }
}

impl<S> Admission<S> {
    pub(super) fn new(terms: Terms, metrics: Metrics) -> Arc<Self> {
        let state = State { holders: BTreeMap::new(), waiters: VecDeque::new(), next: 0 };
        Arc::new(Self { terms, metrics, state: Mutex::new(state), evicting: Mutex::default() })
    }

    fn state(&self) -> MutexGuard<'_, State<S>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Permits granted.
    pub(super) fn live(&self) -> usize {
        self.state().holders.len()
    }

    /// Calls that wait for a permit.
    pub(super) fn waiting(&self) -> usize {
        self.state().waiters.len()
    }

    /// A free permit for the first waiter that is still there.
    fn grant(self: &Arc<Self>, state: &mut State<S>) -> Option<Grant<S>> {
        while state.holders.len() < self.terms.max {
            let waiter = state.waiters.pop_front()?;
            if !waiter.granted.is_closed() {
                return Some((waiter.granted, self.permit(state, waiter.session)));
            }
        }
        None
    }

    fn permit(self: &Arc<Self>, state: &mut State<S>, session: Weak<S>) -> Permit<S> {
        state.next += 1;
        let number = state.next;
        state.holders.insert(number, Holder { session, since: Instant::now() });
        Permit { admission: self.clone(), number }
    }

    /// A permit, if one is free and nobody waits for it.
    pub(super) fn try_admit(self: &Arc<Self>, session: &Arc<S>) -> Option<Permit<S>> {
        let mut state = self.state();
        let free = state.holders.len() < self.terms.max && state.waiters.is_empty();
        free.then(|| self.permit(&mut state, Arc::downgrade(session)))
    }
}

impl<S: Evict> Admission<S> {
    /// Waits for a permit until `deadline`. Dropping the future gives the place in the queue up.
    ///
    /// # Errors
    /// See [`Refused`].
    pub(super) async fn admit(
        self: &Arc<Self>,
        session: &Arc<S>,
        deadline: Instant,
    ) -> Result<Permit<S>, Refused> {
        if let Some(permit) = self.try_admit(session) {
            return Ok(permit);
        }
        if !self.terms.evicts {
            return Err(Refused::Full);
        }
        let mut granted = self.enter(session)?;
        loop {
            self.make_room();
            let again = Instant::now() + LOOK_AGAIN;
            match tokio::time::timeout_at(again.min(deadline), &mut granted).await {
                // One whose time is over could do nothing with it: the next gets it.
                Ok(Ok(_)) if Instant::now() >= deadline => return Err(Refused::TooLong),
                Ok(Ok(permit)) => return Ok(permit),
                // No sender is dropped while its receiver lives.
                Ok(Err(_)) => return Err(Refused::TooLong),
                Err(_) if Instant::now() >= deadline => return Err(Refused::TooLong),
                Err(_) => {}
            }
        }
    }

    /// A place at the end of the queue.
    fn enter(self: &Arc<Self>, session: &Arc<S>) -> Result<oneshot::Receiver<Permit<S>>, Refused> {
        let (sender, receiver) = oneshot::channel();
        let granted = {
            let mut state = self.state();
            state.waiters.retain(|waiter| !waiter.granted.is_closed());
            if state.waiters.len() >= self.terms.queue {
                return Err(Refused::QueueFull(state.waiters.len()));
            }
            state.waiters.push_back(Waiter { session: Arc::downgrade(session), granted: sender });
            // One may have come free since it was asked for.
            self.grant(&mut state)
        };
        deliver(granted);
        Ok(receiver)
    }

    /// Evicts sessions that rest, one for each waiter. To be called when a session comes to rest.
    pub(super) fn make_room(&self) {
        if !self.is_waited_for() {
            return;
        }
        let _one_at_a_time = self.evicting.lock().unwrap_or_else(PoisonError::into_inner);
        while self.is_waited_for() && self.evict_next() {}
    }

    /// Evicts the least recently used session that rests, for a container that cannot be started beside all others; false
    /// if none rests, or if sessions are not evicted.
    pub(super) fn evict_one(&self) -> bool {
        let _one_at_a_time = self.evicting.lock().unwrap_or_else(PoisonError::into_inner);
        self.terms.evicts && self.evict_next()
    }

    fn is_waited_for(&self) -> bool {
        self.terms.evicts && self.state().waiters.iter().any(|waiter| !waiter.granted.is_closed())
    }

    fn evict_next(&self) -> bool {
        let mut resting: Vec<_> = {
            let state = self.state();
            let holders =
                state.holders.values().filter_map(|held| Some((held.session.upgrade()?, held.since)));
            holders.collect()
        };
        resting.retain(|(session, since)| !session.has_waiting_calls() || since.elapsed() >= SLICE);
        resting.sort_by_cached_key(|(session, _)| (session.has_waiting_calls(), session.last_used()));
        let evicted = resting.iter().any(|(session, _)| session.evict());
        if evicted {
            self.metrics.released("evicted");
        }
        evicted
    }
}

#[cfg(test)]
#[path = "admission_tests.rs"]
mod tests;
