//! Programs wait here until they may begin: the lock and the wakers around [`super::credit`].
//!
//! It must never leave a program waiting whose time has come, nor keep the deposit of one that is over. A
//! program of a daemon that has one tenant must cost no lock.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::credit::{CreditCore, CreditId, Filled};
use super::ease::Ease;
use super::fair::{TenantId, TenantShare};
use super::limited::{CPU_CREDITS, Limited};

/// Time between two looks at the credits while a program waits.
const TICK: Duration = Duration::from_millis(10);

/// The longest time after which a refused program is told to come again.
const AGAIN: Duration = Duration::from_secs(30);

/// The CPU credits of all tenants at this node.
#[derive(Debug)]
pub(super) struct Credits {
    state: Mutex<CreditsState>,
}

#[derive(Debug)]
struct CreditsState {
    core: CreditCore,
    /// They are told whether their programs begin.
    wakers: HashMap<CreditId, oneshot::Sender<bool>>,
    is_ticking: bool,
}

/// A program that has begun or waits, or work of the daemon. Dropping it says that it is over.
#[derive(Debug, Default)]
pub struct ProgramCredit {
    /// `None` where there is one tenant.
    of: Option<(Arc<Credits>, TenantId, CreditId)>,
}

impl ProgramCredit {
    /// Whether anything of it is counted.
    pub(crate) fn is_counted(&self) -> bool {
        self.of.is_some()
    }

    /// The program has used a processor for so much longer.
    pub(crate) fn used(&self, time: Duration) {
        if let Some((credits, tenant, id)) = &self.of {
            credits.state().core.used(*tenant, *id, time.as_secs_f64(), Instant::now());
        }
    }

    /// What its tenant was charged for it so far: processors, and a container if it took one.
    pub(crate) fn charged(&self) -> Duration {
        let charged = |(credits, tenant, id): &(Arc<Credits>, TenantId, CreditId)| {
            Duration::from_secs_f64(credits.state().core.charged(*tenant, *id))
        };
        self.of.as_ref().map(charged).unwrap_or_default()
    }

    /// The credits of its tenant, in seconds of a processor.
    #[cfg(test)]
    pub(crate) fn left(&self) -> Option<f64> {
        let (credits, tenant, _) = self.of.as_ref()?;
        Some(credits.state().core.left(*tenant))
    }

    /// The program was sent to its container.
    pub(crate) fn sent(&self) {
        if let Some((credits, tenant, id)) = &self.of {
            credits.state().core.sent(*tenant, *id, Instant::now());
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

    /// Waits until one more program of this tenant may begin.
    ///
    /// # Errors
    /// It still may not after `patience`.
    pub(super) async fn begin(
        self: &Arc<Self>,
        share: TenantShare,
        needs_container: bool,
        patience: Duration,
    ) -> Result<ProgramCredit, Limited> {
        if share.tenants < 2 {
            return Ok(ProgramCredit::default());
        }
        let now = Instant::now();
        let (program, turn) = {
            let mut state = self.state();
            let (id, begins) = state.core.ask(share, needs_container, patience, now);
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
        let Some(turn) = turn else { return Ok(program) };
        // The waker is dropped only with the program's own place.
        if turn.await.unwrap_or(true) { Ok(program) } else { Err(self.limited(share.id)) }
    }

    fn limited(&self, tenant: TenantId) -> Limited {
        let (allowed, used, again) = self.state().core.debt(tenant, Instant::now());
        let tenths = |seconds: f64| (seconds * 10.0).round() / 10.0;
        let again = again.clamp(Duration::from_secs(1), AGAIN);
        Limited { limit: CPU_CREDITS, allowed: tenths(allowed), used: tenths(used), retry_after: Some(again) }
    }

    /// A program is under way that an earlier daemon let begin.
    pub(super) fn resume(self: &Arc<Self>, share: TenantShare) -> ProgramCredit {
        self.at_once(share, CreditCore::resume)
    }

    /// The daemon begins work of its own that this tenant asked for.
    pub(super) fn work(self: &Arc<Self>, share: TenantShare) -> ProgramCredit {
        self.at_once(share, CreditCore::work)
    }

    fn at_once(
        self: &Arc<Self>,
        share: TenantShare,
        begin: fn(&mut CreditCore, TenantShare, Instant) -> CreditId,
    ) -> ProgramCredit {
        if share.tenants < 2 {
            return ProgramCredit::default();
        }
        let id = begin(&mut self.state().core, share, Instant::now());
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

    /// Whether a tenant has spent its credits, or programs of it wait for some.
    pub(super) fn owes(&self, tenant: TenantId) -> bool {
        self.state().core.owes(tenant, Instant::now())
    }

    /// The parts of some tenants together, of 1; `None` unless another one is at work that owes nothing.
    pub(super) fn parts(&self, owing: &BTreeSet<TenantId>) -> Option<f64> {
        self.state().core.parts(owing, Instant::now())
    }

    /// The programs of a tenant that wait.
    pub(super) fn waiting(&self, tenant: TenantId) -> usize {
        self.state().core.waiting(tenant)
    }
}

impl CreditsState {
    fn go_on(&mut self, now: Instant) {
        let Filled { begin, refused } = self.core.fill(now);
        let told = [(begin, true), (refused, false)];
        for (id, begins) in
            told.into_iter().flat_map(|(ids, begins)| ids.into_iter().map(move |id| (id, begins)))
        {
            if let Some(waker) = self.wakers.remove(&id) {
                // One whose caller has gone says so itself.
                let _ = waker.send(begins);
            }
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
    async fn a_program_waits_and_begins_or_its_caller_goes_or_has_no_more_patience() {
        let credits = Credits::on(2);
        let least = (0..20).fold(Ease::of_programs(), |ease, _| ease.after(true, Some(1.0)));
        credits.look(least, &[tenant(0), tenant(1)]);
        assert!(credits.is_shared());
        let first = credits.begin(tenant(1), true, LONG).await.unwrap();
        first.took_container();
        first.sent();
        first.used(LONG);
        let come = || {
            tokio::spawn({
                let credits = credits.clone();
                async move { credits.begin(tenant(1), false, LONG).await }
            })
        };
        let (gone, second) = (come(), come());
        while credits.waiting(TenantId(1)) < 2 {
            tokio::task::yield_now().await;
        }
        gone.abort();
        assert!(gone.await.is_err() && credits.waiting(TenantId(1)) == 1);
        assert!(credits.state().is_ticking && !second.is_finished());
        let (begun, patience) = (Instant::now(), Duration::from_millis(50));
        let limited = credits.begin(tenant(1), false, patience).await.unwrap_err();
        assert!(begun.elapsed() >= patience, "no longer than it can, and no shorter");
        assert_eq!((limited.limit, limited.allowed), (CPU_CREDITS, 2.0));
        assert!((3.5..=4.0).contains(&limited.used) && limited.retry_after >= Some(Duration::from_secs(1)));
        credits.look(Ease::of_programs(), &[tenant(0)]);
        let second = second.await.unwrap().unwrap();
        drop((first, second, credits.resume(tenant(0))));
        assert!(credits.state().wakers.is_empty() && credits.waiting(TenantId(1)) == 0);
    }

    #[tokio::test]
    async fn one_tenant_has_no_account() {
        let (credits, alone) = (Credits::on(2), TenantShare { tenants: 1, ..tenant(1) });
        let (program, resumed) = (credits.begin(alone, true, LONG).await.unwrap(), credits.resume(alone));
        program.used(LONG);
        assert!(!credits.work(alone).is_counted());
        assert!(!program.is_counted() && !resumed.is_counted());
    }
}
