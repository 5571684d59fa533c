//! Programs wait here until they may begin: the lock and the wakers around [`super::credit`].
//!
//! It must never leave a program waiting whose time has come, nor keep the deposit of one that is over. Where
//! there is one tenant it must cost no lock.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::credit::{CreditCore, CreditId};
use super::ease::Ease;
use super::fair::{TenantId, TenantShare};

/// Time between two looks at the credits while a program waits.
const TICK: Duration = Duration::from_millis(10);

/// The CPU credits of all tenants at this node.
#[derive(Debug)]
pub(super) struct Credits {
    state: Mutex<CreditsState>,
}

#[derive(Debug)]
struct CreditsState {
    core: CreditCore,
    wakers: HashMap<CreditId, oneshot::Sender<()>>,
    is_ticking: bool,
}

/// A program that has begun, or waits. Dropping it says that it is over.
#[derive(Debug)]
pub(crate) struct ProgramCredit {
    /// `None` where there is one tenant.
    of: Option<(Arc<Credits>, TenantId, CreditId)>,
}

impl ProgramCredit {
    /// The program has used a processor for so much longer.
    pub(crate) fn used(&self, time: Duration) {
        if let Some((credits, tenant, id)) = &self.of {
            credits.state().core.used(*tenant, *id, time.as_secs_f64(), Instant::now());
        }
    }

    /// A container was taken for the program.
    pub(crate) fn took_container(&self) {
        if let Some((credits, tenant, id)) = &self.of {
            credits.state().core.container(*tenant, *id, Instant::now());
        }
    }
}

impl Drop for ProgramCredit {
    fn drop(&mut self) {
        if let Some((credits, tenant, id)) = &self.of {
            let mut state = credits.state();
            state.wakers.remove(id);
            state.core.end(*tenant, *id, Instant::now());
        }
    }
}

impl Credits {
    pub(super) fn on(processors: usize) -> Arc<Self> {
        let core = CreditCore::new(processors);
        Arc::new(Self { state: Mutex::new(CreditsState { core, wakers: HashMap::new(), is_ticking: false }) })
    }

    fn state(&self) -> MutexGuard<'_, CreditsState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns when one more program of this tenant may begin, by `until` in any case.
    pub(super) async fn begin(
        self: &Arc<Self>,
        share: TenantShare,
        needs_container: bool,
        until: Instant,
    ) -> ProgramCredit {
        if share.tenants < 2 {
            return ProgramCredit { of: None };
        }
        let now = Instant::now();
        let (program, turn) = {
            let mut state = self.state();
            let (id, begins) = state.core.ask(share, needs_container, until, now);
            let turn = (!begins).then(|| {
                let (waker, turn) = oneshot::channel();
                state.wakers.insert(id, waker);
                turn
            });
            if turn.is_some() && !std::mem::replace(&mut state.is_ticking, true) {
                tokio::spawn(self.clone().tick());
            }
            (ProgramCredit { of: Some((self.clone(), share.id, id)) }, turn)
        };
        if let Some(turn) = turn {
            // The waker is dropped only with the program's own place.
            let _ = turn.await;
        }
        program
    }

    /// A program is under way that an earlier daemon let begin.
    pub(super) fn resume(self: &Arc<Self>, share: TenantShare) -> ProgramCredit {
        if share.tenants < 2 {
            return ProgramCredit { of: None };
        }
        let id = self.state().core.resume(share, Instant::now());
        ProgramCredit { of: Some((self.clone(), share.id, id)) }
    }

    async fn tick(self: Arc<Self>) {
        loop {
            tokio::time::sleep(TICK).await;
            let mut state = self.state();
            state.go_on(Instant::now());
            if !state.core.holds_back() {
                state.is_ticking = false;
                return;
            }
        }
    }

    /// These tenants are at work, whether programs of theirs run or not; and so far are those held back that
    /// have spent their credits.
    pub(super) fn look(&self, ease: Ease, at_work: &[TenantShare]) {
        let (mut state, now) = (self.state(), Instant::now());
        at_work.iter().for_each(|share| state.core.heard(*share, now));
        state.core.ease(ease);
        state.go_on(now);
    }

    /// Whether several tenants are at work.
    pub(super) fn is_shared(&self) -> bool {
        self.state().core.is_shared(Instant::now())
    }

    /// The programs of a tenant that wait.
    pub(super) fn waiting(&self, tenant: TenantId) -> usize {
        self.state().core.waiting(tenant)
    }
}

impl CreditsState {
    fn go_on(&mut self, now: Instant) {
        for waker in self.core.fill(now).into_iter().filter_map(|id| self.wakers.remove(&id)) {
            // One whose caller has gone says so itself.
            let _ = waker.send(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(15);

    fn tenant(id: u32) -> TenantShare {
        TenantShare { id: TenantId(id), tenants: 2, ..TenantShare::default() }
    }

    #[tokio::test]
    async fn a_program_waits_and_begins_or_its_caller_goes() {
        let credits = Credits::on(2);
        let least = (0..20).fold(Ease::default(), |ease, _| ease.after(true, Some(1.0)));
        credits.look(least, &[tenant(0), tenant(1)]);
        assert!(credits.is_shared());
        let first = credits.begin(tenant(1), true, Instant::now() + LONG).await;
        first.took_container();
        first.used(LONG);
        let come = || {
            tokio::spawn({
                let credits = credits.clone();
                async move { credits.begin(tenant(1), false, Instant::now() + LONG).await }
            })
        };
        let (gone, second) = (come(), come());
        while credits.waiting(TenantId(1)) < 2 {
            tokio::task::yield_now().await;
        }
        gone.abort();
        assert!(gone.await.is_err() && credits.waiting(TenantId(1)) == 1);
        assert!(credits.state().is_ticking && !second.is_finished());
        credits.look(Ease::default(), &[tenant(0)]);
        let second = second.await.unwrap();
        drop((first, second, credits.resume(tenant(0))));
        credits.look(least, &[tenant(0)]);
        let begun = Instant::now();
        drop(credits.begin(tenant(1), false, begun + Duration::from_millis(50)).await);
        assert!(begun.elapsed() >= Duration::from_millis(50), "no longer than it can, and no shorter");
        assert!(credits.state().wakers.is_empty() && credits.waiting(TenantId(1)) == 0);
    }

    #[tokio::test]
    async fn one_tenant_has_no_account() {
        let (credits, alone) = (Credits::on(2), TenantShare { tenants: 1, ..tenant(1) });
        let (program, resumed) =
            (credits.begin(alone, true, Instant::now() + LONG).await, credits.resume(alone));
        program.used(LONG);
        assert!(program.of.is_none() && resumed.of.is_none());
    }
}
