//! The places of executions under way: so many in all, and so many of one session.
//!
//! Who finds none waits, in order of arrival; one whose session has its share lets others pass. It must never have more under
//! way than may be (but for those that an earlier daemon started), nor keep a place for a call that has gone away.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;

use super::StartError;
use crate::session::SessionId;

/// A session, by its owner and id.
pub(super) type Whose = (String, SessionId);

/// How many may have a place, and wait for one.
#[derive(Debug, Clone)]
pub(super) struct Terms {
    /// Places in all.
    pub(super) max: usize,
    /// Places of one session.
    pub(super) per_session: usize,
    /// Calls that wait, all together.
    pub(super) queue: usize,
    /// How long each of them may.
    pub(super) wait: Duration,
}

/// The places of one daemon.
pub(super) struct Places {
    terms: Terms,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    running: HashMap<Whose, usize>,
    waiters: VecDeque<(Whose, oneshot::Sender<Place>)>,
}

impl State {
    fn all(&self) -> usize {
        self.running.values().sum()
    }

    fn of(&self, whose: &Whose) -> usize {
        self.running.get(whose).copied().unwrap_or(0)
    }
}

/// A place among those that may be under way. Dropping it gives it to whoever waits.
pub struct Place {
    places: Arc<Places>,
    whose: Whose,
}

impl Place {
    /// The session that it is for.
    pub(super) fn whose(&self) -> &Whose {
        &self.whose
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = self.places.state();
        if let Some(count) = state.running.get_mut(&self.whose) {
            *count -= 1;
            if *count == 0 {
                state.running.remove(&self.whose);
            }
        }
        drop(state);
        self.places.grant();
    }
}

impl Places {
    pub(super) fn new(terms: Terms) -> Arc<Self> {
        Arc::new(Self { terms, state: Mutex::default() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many are under way, and how many may be.
    pub(super) fn under_way(&self) -> (usize, usize) {
        (self.state().all(), self.terms.max)
    }

    /// A place for one that runs already, however many there are.
    pub(super) fn of_running(self: &Arc<Self>, whose: Whose) -> Place {
        self.place(&mut self.state(), whose)
    }

    fn place(self: &Arc<Self>, state: &mut State, whose: Whose) -> Place {
        *state.running.entry(whose.clone()).or_default() += 1;
        Place { places: self.clone(), whose }
    }

    fn fits(&self, state: &State, whose: &Whose) -> bool {
        state.all() < self.terms.max && state.of(whose) < self.terms.per_session
    }

    /// Waits for a place. Dropping the future gives the turn up.
    ///
    /// # Errors
    /// [`StartError::TooMany`] or [`StartError::TooManyOfSession`] when the wait is over, [`StartError::TooManyWait`].
    pub(super) async fn enter(self: &Arc<Self>, whose: Whose) -> Result<Place, StartError> {
        let granted = {
            let mut state = self.state();
            state.waiters.retain(|(_, waiter)| !waiter.is_closed());
            if state.waiters.len() >= self.terms.queue && !self.fits(&state, &whose) {
                return Err(StartError::TooManyWait(state.waiters.len()));
            }
            let (waiter, granted) = oneshot::channel();
            state.waiters.push_back((whose.clone(), waiter));
            granted
        };
        self.grant();
        match tokio::time::timeout(self.terms.wait, granted).await {
            Ok(Ok(place)) => Ok(place),
            Ok(Err(_)) | Err(_) => {
                let state = self.state();
                let (of_session, all) = (state.of(&whose), state.all());
                let wait = self.terms.wait;
                Err(if of_session >= self.terms.per_session {
                    StartError::TooManyOfSession { running: of_session, wait }
                } else {
                    StartError::TooMany { running: all, wait }
                })
            }
        }
    }

    /// Grants what is free, to the first who fits. Outside of the lock: a place that nobody takes any more comes back.
    fn grant(self: &Arc<Self>) {
        loop {
            let (waiter, place) = {
                let mut state = self.state();
                state.waiters.retain(|(_, waiter)| !waiter.is_closed());
                let Some(first) = state.waiters.iter().position(|(whose, _)| self.fits(&state, whose)) else {
                    return;
                };
                let Some((whose, waiter)) = state.waiters.remove(first) else { return };
                (waiter, self.place(&mut state, whose))
            };
            drop(waiter.send(place));
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::task::JoinHandle;

    use super::*;

    fn places(max: usize, per_session: usize, queue: usize) -> Arc<Places> {
        Places::new(Terms { max, per_session, queue, wait: Duration::from_secs(90) })
    }

    fn of(session: &str) -> Whose {
        ("default".to_owned(), session.parse().unwrap())
    }

    fn come(places: &Arc<Places>, session: &str) -> JoinHandle<Result<Place, StartError>> {
        let (places, whose) = (places.clone(), of(session));
        tokio::spawn(async move { places.enter(whose).await })
    }

    async fn settle() {
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_has_the_next_place_and_a_session_with_its_share_lets_others_pass() {
        let places = places(3, 2, 8);
        let (first, second) = (places.enter(of("a")).await.unwrap(), places.enter(of("a")).await.unwrap());
        let third = come(&places, "a");
        settle().await;
        let other = places.enter(of("b")).await.expect("it passes the one that may not");
        let late = come(&places, "b");
        settle().await;
        assert_eq!(places.under_way(), (3, 3));
        assert!(!third.is_finished() && !late.is_finished());
        drop(first);
        let third = third.await.unwrap().expect("came before");
        assert!(!late.is_finished());
        drop((second, third, other));
        drop(late.await.unwrap().unwrap());
        assert_eq!(places.under_way(), (0, 3));
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_has_its_end_and_says_which_bound_it_was() {
        let places = places(2, 1, 2);
        let _a = places.enter(of("a")).await.unwrap();
        let of_session = come(&places, "a").await.unwrap();
        assert!(matches!(of_session, Err(StartError::TooManyOfSession { running: 1, .. })));
        let _b = places.enter(of("b")).await.unwrap();
        let (_c, _d) = (come(&places, "c"), come(&places, "d"));
        settle().await;
        assert!(matches!(places.enter(of("e")).await, Err(StartError::TooManyWait(2))));
        assert!(matches!(_c.await.unwrap(), Err(StartError::TooMany { running: 2, .. })));
    }

    #[tokio::test(start_paused = true)]
    async fn who_goes_away_keeps_no_place_and_no_turn() {
        let places = places(1, 1, 1);
        let a = places.enter(of("a")).await.unwrap();
        let gone = come(&places, "b");
        settle().await;
        gone.abort();
        let _ = gone.await;
        let next = come(&places, "c");
        settle().await;
        drop(a);
        drop(next.await.unwrap().expect("the one before it has gone"));
        assert_eq!(places.under_way(), (0, 1));
        drop(places.of_running(of("d")));
    }
}
