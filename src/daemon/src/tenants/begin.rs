//! Runs wait here until they may begin: the lock and the wakers around [`super::starts`].
//!
//! It must never leave a run waiting whose turn has come, nor count one whose caller has gone.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::sync::oneshot;

use super::ease::Ease;
use super::fair::{TenantId, TenantShare};
use super::starts::{LONGEST, StartId, StartsCore};

/// The runs of all tenants at this node.
#[derive(Debug)]
pub(super) struct Starts {
    processors: usize,
    state: Mutex<StartsState>,
}

#[derive(Debug)]
struct StartsState {
    core: StartsCore,
    wakers: HashMap<StartId, oneshot::Sender<()>>,
}

impl StartsState {
    fn wake(&mut self, begun: Vec<StartId>) {
        for waker in begun.into_iter().filter_map(|id| self.wakers.remove(&id)) {
            // One whose caller has gone says so itself.
            let _ = waker.send(());
        }
    }
}

/// A run that has begun, or waits. Dropping it ends it.
pub(super) struct Start {
    starts: Arc<Starts>,
    tenant: TenantId,
    id: StartId,
}

impl Drop for Start {
    fn drop(&mut self) {
        let mut state = self.starts.state();
        state.wakers.remove(&self.id);
        let next = state.core.end(self.tenant, self.id, Instant::now());
        state.wake(next);
    }
}

impl Starts {
    pub(super) fn on(processors: usize) -> Self {
        let state = StartsState { core: StartsCore::new(processors), wakers: HashMap::new() };
        Self { processors, state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, StartsState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns when one more run of this tenant may begin.
    pub(super) async fn begin(self: &Arc<Self>, share: TenantShare) -> Start {
        let (start, turn) = {
            let mut state = self.state();
            let (id, mut begun) = state.core.ask(share, Instant::now());
            let begins = begun.contains(&id);
            begun.retain(|other| *other != id);
            state.wake(begun);
            let turn = (!begins).then(|| {
                let (waker, turn) = oneshot::channel();
                state.wakers.insert(id, waker);
                turn
            });
            (Start { starts: self.clone(), tenant: share.id, id }, turn)
        };
        if let Some(turn) = turn
            && tokio::time::timeout(LONGEST, turn).await.is_err()
        {
            let mut state = self.state();
            // Its turn may have come at this very moment.
            if state.wakers.remove(&start.id).is_some() {
                state.core.begin(share.id, start.id, Instant::now());
            }
        }
        start
    }

    /// How far tenants are held back from now on.
    pub(super) fn hold(&self, ease: Ease) {
        let mut state = self.state();
        let next = state.core.hold(ease.runs(self.processors), Instant::now());
        state.wake(next);
    }

    /// The runs of a tenant that wait.
    pub(super) fn waiting(&self, tenant: TenantId) -> usize {
        self.state().core.waiting(tenant)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const A: TenantShare = TenantShare {
        id: TenantId(1),
        weight: 1,
        is_operator: false,
        tenants: 2,
        sessions: None,
        executions: None,
    };

    async fn settle() {
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_run_begins_when_one_before_it_ends_or_nobody_is_held_back_or_after_a_while() {
        let least = (0..20).fold(Ease::default(), |ease, _| ease.after(1.0));
        let starts = Arc::new(Starts::on(2));
        starts.hold(least);
        let first = starts.begin(A).await;
        let come = || {
            tokio::spawn({
                let starts = starts.clone();
                async move { starts.begin(A).await }
            })
        };
        let (gone, second, third) = (come(), come(), come());
        settle().await;
        assert_eq!(starts.waiting(A.id), 3);
        gone.abort();
        let _ = gone.await;
        drop(first);
        let second = second.await.unwrap();
        settle().await;
        assert!(!third.is_finished() && starts.waiting(A.id) == 1);
        starts.hold(Ease::default());
        let third = third.await.unwrap();
        starts.hold(least);
        let begun = tokio::time::Instant::now();
        let fourth = starts.begin(A).await;
        assert!(begun.elapsed() >= LONGEST && begun.elapsed() < LONGEST + Duration::from_secs(1));
        drop((second, third, fourth));
        assert!(starts.state().wakers.is_empty() && starts.waiting(A.id) == 0);
    }
}
