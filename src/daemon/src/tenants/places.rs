//! The runs of each tenant that may be under way at one time (`limits.runs`): a call that finds no place
//! waits for one, behind the earlier calls of its tenant.
//!
//! It must never hold up a tenant without this limit, nor give a place to a call that has gone away.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::core::{Core, TenantEvent};
use super::fair::TenantId;
use super::limited::Limited;
use super::token::TenantLimits;

/// What all tenants use, and the calls that wait for a place.
#[derive(Default)]
pub(super) struct Places {
    state: Mutex<PlacesState>,
}

#[derive(Default)]
pub(super) struct PlacesState {
    pub(super) core: Core,
    waiting: HashMap<TenantId, VecDeque<(TenantLimits, oneshot::Sender<RunPlace>)>>,
}

/// The place of one run. Dropping it gives it to a call that waits.
pub struct RunPlace {
    places: Arc<Places>,
    tenant: TenantId,
}

impl Drop for RunPlace {
    fn drop(&mut self) {
        let given = {
            let mut state = self.places.state();
            let none = TenantLimits::default();
            let _ = state.core.on(self.tenant, TenantEvent::RunEnds, &none, Instant::now());
            self.places.next(&mut state, self.tenant)
        };
        // Outside of the lock: a place that nobody takes comes back.
        if let Some((waiter, place)) = given {
            drop(waiter.send(place));
        }
    }
}

impl Places {
    pub(super) fn state(&self) -> MutexGuard<'_, PlacesState> {
        // No code that can panic runs under this lock, so even a poisoned one holds valid data.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for one more run, within `wait`.
    ///
    /// # Errors
    /// The limit, after that time.
    pub(super) async fn enter(
        self: &Arc<Self>,
        tenant: TenantId,
        limits: &TenantLimits,
        wait: Duration,
    ) -> Result<RunPlace, Limited> {
        let waiting = {
            let mut state = self.state();
            let state = &mut *state;
            let queue = state.waiting.entry(tenant).or_default();
            queue.retain(|(_, waiter)| !waiter.is_closed());
            let begun = if queue.is_empty() {
                state.core.on(tenant, TenantEvent::RunBegins, limits, Instant::now())
            } else {
                Err(Limited::places("runs", 0, 0)) // behind the others
            };
            if begun.is_ok() {
                state.waiting.remove(&tenant);
                return Ok(RunPlace { places: self.clone(), tenant });
            }
            let (waiter, waiting) = oneshot::channel();
            queue.push_back((limits.clone(), waiter));
            waiting
        };
        match tokio::time::timeout(wait, waiting).await {
            Ok(Ok(place)) => Ok(place),
            Ok(Err(_)) | Err(_) => {
                let used = self.state().core.runs(tenant);
                Err(Limited::places("runs", limits.runs.map_or(used, |most| most as usize), used))
            }
        }
    }

    /// The next call that waits, with its place, if there is one for it.
    fn next(
        self: &Arc<Self>,
        state: &mut PlacesState,
        tenant: TenantId,
    ) -> Option<(oneshot::Sender<RunPlace>, RunPlace)> {
        let queue = state.waiting.get_mut(&tenant)?;
        while let Some((limits, waiter)) = queue.pop_front() {
            if waiter.is_closed() {
                continue;
            }
            if state.core.on(tenant, TenantEvent::RunBegins, &limits, Instant::now()).is_err() {
                queue.push_front((limits, waiter));
                return None;
            }
            return Some((waiter, RunPlace { places: self.clone(), tenant }));
        }
        state.waiting.remove(&tenant);
        None
    }

    /// From now on a tenant has these limits: calls that wait have places if there are any.
    pub(super) fn limit(self: &Arc<Self>, tenant: TenantId, limits: &TenantLimits) {
        loop {
            let given = {
                let mut state = self.state();
                let waiting = state.waiting.get_mut(&tenant).into_iter().flatten();
                waiting.for_each(|(of_call, _)| of_call.clone_from(limits));
                self.next(&mut state, tenant)
            };
            // Outside of the lock: a place that nobody takes comes back.
            let Some((waiter, place)) = given else { return };
            drop(waiter.send(place));
        }
    }

    /// Calls that wait for a place.
    pub(super) fn waiting(&self, tenant: TenantId) -> usize {
        self.state()
            .waiting
            .get(&tenant)
            .map_or(0, |queue| queue.iter().filter(|(_, w)| !w.is_closed()).count())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: TenantId = TenantId(1);
    const WAIT: Duration = Duration::from_secs(90);

    fn two() -> TenantLimits {
        TenantLimits { runs: Some(2), ..TenantLimits::default() }
    }

    async fn settle() {
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_waits_for_its_place_in_order_and_not_for_ever() {
        let places = Arc::<Places>::default();
        let first = places.enter(A, &two(), WAIT).await.unwrap();
        let _second = places.enter(A, &two(), WAIT).await.unwrap();
        let come = |wait| {
            let places = places.clone();
            tokio::spawn(async move { places.enter(A, &two(), wait).await })
        };
        let gone = come(WAIT);
        settle().await;
        let third = come(WAIT);
        settle().await;
        gone.abort();
        let _ = gone.await;
        let short = come(Duration::from_secs(1));
        settle().await;
        assert_eq!(places.waiting(A), 2);
        let limited = short.await.unwrap().map(drop).unwrap_err();
        assert_eq!((limited.limit, limited.allowed, limited.used), ("runs", 2.0, 2.0));
        assert!(!third.is_finished());
        drop(first);
        let third = third.await.unwrap().unwrap();
        assert_eq!((places.waiting(A), places.state().core.runs(A)), (0, 2));
        drop(places.enter(TenantId(2), &two(), WAIT).await.unwrap());
        drop((third, _second));
        assert_eq!(places.state().core.runs(A), 0);
        assert!(places.state().waiting.is_empty());
    }
}
