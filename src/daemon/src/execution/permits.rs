//! Permits for executions under way: so many in all, and so many of one session.
//!
//! A call that finds none waits, in order of arrival; a call whose session has its share lets others pass.
//! There must never be more permits than may be (but for those of executions that an earlier daemon started),
//! nor a permit for a call that has gone away.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;

use super::ExecutionError;
use crate::session::SessionKey;

/// How many may have a permit, and wait for one.
#[derive(Debug, Clone)]
pub(super) struct PermitBounds {
    /// Permits in all.
    pub(super) max: usize,
    /// Permits of one session.
    pub(super) per_session: usize,
    /// Calls that wait, all together.
    pub(super) queue: usize,
    /// How long each of them may.
    pub(super) wait: Duration,
}

/// The permits of one daemon.
pub(super) struct ExecutionPermits {
    bounds: PermitBounds,
    state: Mutex<PermitState>,
}

#[derive(Default)]
struct PermitState {
    running: HashMap<SessionKey, usize>,
    waiters: VecDeque<(SessionKey, oneshot::Sender<ExecutionPermit>)>,
}

impl PermitState {
    fn all(&self) -> usize {
        self.running.values().sum()
    }

    fn of(&self, session: &SessionKey) -> usize {
        self.running.get(session).copied().unwrap_or(0)
    }
}

/// The right to one execution under way. Dropping it gives it to a call that waits.
pub struct ExecutionPermit {
    permits: Arc<ExecutionPermits>,
    session: SessionKey,
}

impl ExecutionPermit {
    /// The session that it is for.
    pub(super) fn session(&self) -> &SessionKey {
        &self.session
    }
}

impl Drop for ExecutionPermit {
    fn drop(&mut self) {
        let mut state = self.permits.state();
        if let Some(count) = state.running.get_mut(&self.session) {
            *count -= 1;
            if *count == 0 {
                state.running.remove(&self.session);
            }
        }
        drop(state);
        self.permits.grant();
    }
}

impl ExecutionPermits {
    pub(super) fn new(bounds: PermitBounds) -> Arc<Self> {
        Arc::new(Self { bounds, state: Mutex::default() })
    }

    fn state(&self) -> MutexGuard<'_, PermitState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many are under way, and how many may be.
    pub(super) fn under_way(&self) -> (usize, usize) {
        (self.state().all(), self.bounds.max)
    }

    /// A permit for an execution that runs already, however many there are.
    pub(super) fn of_running(self: &Arc<Self>, session: SessionKey) -> ExecutionPermit {
        self.permit(&mut self.state(), session)
    }

    fn permit(self: &Arc<Self>, state: &mut PermitState, session: SessionKey) -> ExecutionPermit {
        *state.running.entry(session.clone()).or_default() += 1;
        ExecutionPermit { permits: self.clone(), session }
    }

    fn fits(&self, state: &PermitState, session: &SessionKey) -> bool {
        state.all() < self.bounds.max && state.of(session) < self.bounds.per_session
    }

    /// Waits for a permit. Dropping the future stops waiting.
    ///
    /// # Errors
    /// [`ExecutionError::TooMany`] or [`ExecutionError::TooManyOfSession`] when the wait is over,
    /// [`ExecutionError::TooManyWait`].
    pub(super) async fn enter(
        self: &Arc<Self>,
        session: SessionKey,
    ) -> Result<ExecutionPermit, ExecutionError> {
        let granted = {
            let mut state = self.state();
            state.waiters.retain(|(_, waiter)| !waiter.is_closed());
            if state.waiters.len() >= self.bounds.queue && !self.fits(&state, &session) {
                return Err(ExecutionError::TooManyWait(state.waiters.len()));
            }
            let (waiter, granted) = oneshot::channel();
            state.waiters.push_back((session.clone(), waiter));
            granted
        };
        self.grant();
        match tokio::time::timeout(self.bounds.wait, granted).await {
            Ok(Ok(permit)) => Ok(permit),
            Ok(Err(_)) | Err(_) => {
                let state = self.state();
                let (of_session, all) = (state.of(&session), state.all());
                let wait = self.bounds.wait;
                Err(if of_session >= self.bounds.per_session {
                    ExecutionError::TooManyOfSession { running: of_session, wait }
                } else {
                    ExecutionError::TooMany { running: all, wait }
                })
            }
        }
    }

    /// Grants what is free, to the first call that fits. Outside of the lock: a permit that nobody takes
    /// comes back.
    fn grant(self: &Arc<Self>) {
        loop {
            let (waiter, permit) = {
                let mut state = self.state();
                state.waiters.retain(|(_, waiter)| !waiter.is_closed());
                let Some(first) = state.waiters.iter().position(|(session, _)| self.fits(&state, session))
                else {
                    return;
                };
                let Some((session, waiter)) = state.waiters.remove(first) else { return };
                (waiter, self.permit(&mut state, session))
            };
            drop(waiter.send(permit));
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::task::JoinHandle;

    use super::*;

    fn permits(max: usize, per_session: usize, queue: usize) -> Arc<ExecutionPermits> {
        ExecutionPermits::new(PermitBounds { max, per_session, queue, wait: Duration::from_secs(90) })
    }

    fn of(session: &str) -> SessionKey {
        SessionKey::new("default", &session.parse().unwrap())
    }

    fn come(
        permits: &Arc<ExecutionPermits>,
        session: &str,
    ) -> JoinHandle<Result<ExecutionPermit, ExecutionError>> {
        let (permits, session) = (permits.clone(), of(session));
        tokio::spawn(async move { permits.enter(session).await })
    }

    async fn settle() {
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_that_waits_has_the_next_permit_and_a_session_with_its_share_lets_others_pass() {
        let permits = permits(3, 2, 8);
        let (first, second) = (permits.enter(of("a")).await.unwrap(), permits.enter(of("a")).await.unwrap());
        let third = come(&permits, "a");
        settle().await;
        let other = permits.enter(of("b")).await.expect("it passes the call that may not");
        let late = come(&permits, "b");
        settle().await;
        assert_eq!(permits.under_way(), (3, 3));
        assert!(!third.is_finished() && !late.is_finished());
        drop(first);
        let third = third.await.unwrap().expect("came before");
        assert!(!late.is_finished());
        drop((second, third, other));
        drop(late.await.unwrap().unwrap());
        assert_eq!(permits.under_way(), (0, 3));
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_has_its_end_and_says_which_bound_it_was() {
        let permits = permits(2, 1, 2);
        let _a = permits.enter(of("a")).await.unwrap();
        let of_session = come(&permits, "a").await.unwrap();
        assert!(matches!(of_session, Err(ExecutionError::TooManyOfSession { running: 1, .. })));
        let _b = permits.enter(of("b")).await.unwrap();
        let (_c, _d) = (come(&permits, "c"), come(&permits, "d"));
        settle().await;
        assert!(matches!(permits.enter(of("e")).await, Err(ExecutionError::TooManyWait(2))));
        assert!(matches!(_c.await.unwrap(), Err(ExecutionError::TooMany { running: 2, .. })));
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_goes_away_keeps_no_permit_and_waits_no_more() {
        let permits = permits(1, 1, 1);
        let a = permits.enter(of("a")).await.unwrap();
        let gone = come(&permits, "b");
        settle().await;
        gone.abort();
        let _ = gone.await;
        let next = come(&permits, "c");
        settle().await;
        drop(a);
        drop(next.await.unwrap().expect("the one before it has gone"));
        assert_eq!(permits.under_way(), (0, 1));
        drop(permits.of_running(of("d")));
    }
}
