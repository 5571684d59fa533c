//! Permits for executions under way: so many in all, and so many of one session.
//!
//! A call that finds none waits: round by round between the tenants, of one tenant in order of arrival. A
//! call whose session or tenant has its share lets others pass. The last permit is kept for a tenant that has
//! none, where there are others, and operators have one of their own.
//! There must never be more permits than may be (but for those of executions that an earlier daemon started),
//! nor a permit for a call that has gone away.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;

use super::ExecutionError;
use crate::session::SessionKey;
use crate::tenants::fair::{Mark, Refused, Rounds, refused};
use crate::tenants::{Limited, ProgramCredit, TenantShare, Tenants};

/// How many may have a permit, and wait for one.
#[derive(Debug, Clone, Copy)]
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
    tenants: Arc<Tenants>,
    state: Mutex<PermitState>,
}

/// Permits beyond `exec.max` that only operators may have.
const FOR_OPERATORS: usize = 1;

#[derive(Default)]
struct PermitState {
    running: HashMap<SessionKey, usize>,
    /// In the order of service.
    waiters: VecDeque<PermitWaiter>,
    rounds: Rounds,
}

struct PermitWaiter {
    session: SessionKey,
    tenant: TenantShare,
    mark: Mark,
    reply: oneshot::Sender<ExecutionPermit>,
}

impl PermitState {
    fn all(&self) -> usize {
        self.running.values().sum()
    }

    fn of(&self, session: &SessionKey) -> usize {
        self.running.get(session).copied().unwrap_or(0)
    }

    fn of_owner(&self, owner: &str) -> usize {
        self.running.iter().filter(|(key, _)| key.owner() == owner).map(|(_, count)| count).sum()
    }

    /// Owners with executions under way.
    fn owners(&self) -> usize {
        self.running.keys().map(SessionKey::owner).collect::<BTreeSet<_>>().len()
    }

    /// Forgets the waiters that have gone away.
    fn drop_gone(&mut self) {
        while let Some(at) = self.waiters.iter().position(|waiter| waiter.reply.is_closed()) {
            self.take_out(at);
        }
    }

    /// Takes a waiter out that is not served.
    fn take_out(&mut self, at: usize) {
        let Some(gone) = self.waiters.remove(at) else { return };
        let last = self.waiters.iter().rev().find(|other| other.tenant.id == gone.tenant.id);
        self.rounds.went_away(gone.tenant, last.map(|last| last.mark));
    }
}

/// The right to one execution under way. Dropping it gives it to a call that waits.
pub struct ExecutionPermit {
    permits: Arc<ExecutionPermits>,
    session: SessionKey,
    /// With which the tenant pays for its program.
    pub(super) credit: ProgramCredit,
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
    pub(super) fn new(bounds: PermitBounds, tenants: Arc<Tenants>) -> Arc<Self> {
        Arc::new(Self { bounds, tenants, state: Mutex::default() })
    }

    fn state(&self) -> MutexGuard<'_, PermitState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many are under way, and how many may be.
    pub(super) fn under_way(&self) -> (usize, usize) {
        (self.state().all(), self.bounds.max)
    }

    /// How many of each owner are under way.
    pub(super) fn by_owner(&self) -> BTreeMap<String, usize> {
        let mut owners = BTreeMap::new();
        for (key, count) in &self.state().running {
            *owners.entry(key.owner().to_owned()).or_default() += count;
        }
        owners
    }

    /// Of each owner: how many are under way, and how many calls wait.
    pub(super) fn use_by_owner(&self) -> BTreeMap<String, (usize, usize)> {
        let state = self.state();
        let mut owners: BTreeMap<String, (usize, usize)> = BTreeMap::new();
        for (key, count) in &state.running {
            owners.entry(key.owner().to_owned()).or_default().0 += count;
        }
        for waiter in state.waiters.iter().filter(|waiter| !waiter.reply.is_closed()) {
            owners.entry(waiter.session.owner().to_owned()).or_default().1 += 1;
        }
        owners
    }

    /// The limit of an owner has changed: calls that wait get what is free by the new one.
    pub(super) fn limit_changed(self: &Arc<Self>, owner: &str) {
        let share = self.tenants.share(owner);
        {
            let mut state = self.state();
            let waiters = state.waiters.iter_mut().filter(|waiter| waiter.session.owner() == owner);
            waiters.for_each(|waiter| waiter.tenant.executions = share.executions);
        }
        self.grant();
    }

    /// A permit for an execution that runs already, however many there are.
    pub(super) fn of_running(self: &Arc<Self>, session: SessionKey) -> ExecutionPermit {
        self.permit(&mut self.state(), session)
    }

    fn permit(self: &Arc<Self>, state: &mut PermitState, session: SessionKey) -> ExecutionPermit {
        *state.running.entry(session.clone()).or_default() += 1;
        ExecutionPermit { permits: self.clone(), session, credit: ProgramCredit::default() }
    }

    fn fits(&self, state: &PermitState, session: &SessionKey, tenant: TenantShare) -> bool {
        let (all, of_owner) = (state.all(), state.of_owner(session.owner()));
        let most = self.bounds.max;
        let is_free = match tenant.is_operator {
            true => all < most + FOR_OPERATORS,
            false if all + 1 == most && most > 1 => of_owner == 0 || state.owners() >= tenant.tenants,
            false => all < most,
        };
        is_free
            && state.of(session) < self.bounds.per_session
            && tenant.executions.is_none_or(|most| of_owner < most)
    }

    /// Waits for a permit. Dropping the future stops waiting.
    ///
    /// # Errors
    /// [`ExecutionError::TooMany`], [`ExecutionError::TooManyOfSession`] or [`ExecutionError::Limited`] when
    /// the wait is over, [`ExecutionError::TooManyWait`].
    pub(super) async fn enter(
        self: &Arc<Self>,
        session: SessionKey,
    ) -> Result<ExecutionPermit, ExecutionError> {
        let tenant = self.tenants.share(session.owner());
        let granted = {
            let mut state = self.state();
            state.drop_gone();
            let waiting = state.waiters.len();
            if waiting >= self.bounds.queue && !self.fits(&state, &session, tenant) {
                let all = state.waiters.iter().map(|waiter| waiter.tenant);
                let Refused::LastOf(worst) = refused(tenant, all) else {
                    return Err(ExecutionError::TooManyWait(waiting));
                };
                // Its sender is dropped: its call is told that too many wait.
                let last = state.waiters.iter().rposition(|waiter| waiter.tenant.id == worst);
                last.into_iter().for_each(|at| state.take_out(at));
            }
            let (reply, granted) = oneshot::channel();
            let mark = state.rounds.arrive(tenant);
            let at = state.waiters.partition_point(|other| other.mark <= mark);
            state.waiters.insert(at, PermitWaiter { session: session.clone(), tenant, mark, reply });
            granted
        };
        self.grant();
        match tokio::time::timeout(self.bounds.wait, self.tenants.patiently(granted)).await {
            Ok(Ok(permit)) => Ok(permit),
            Ok(Err(_)) => Err(ExecutionError::TooManyWait(self.state().waiters.len())),
            Err(_) => {
                let state = self.state();
                let (of_session, all, wait) = (state.of(&session), state.all(), self.bounds.wait);
                let of_owner = state.of_owner(session.owner());
                Err(match tenant.executions {
                    _ if of_session >= self.bounds.per_session => {
                        ExecutionError::TooManyOfSession { running: of_session, wait }
                    }
                    Some(most) if of_owner >= most => {
                        let limited = Limited::places("executions", most, of_owner);
                        ExecutionError::Limited(self.tenants.over_all_nodes(session.owner(), limited))
                    }
                    _ => ExecutionError::TooMany { running: all, wait },
                })
            }
        }
    }

    /// Grants what is free, to the first call that fits. Outside of the lock: a permit that nobody takes
    /// comes back.
    fn grant(self: &Arc<Self>) {
        loop {
            let (reply, permit) = {
                let mut state = self.state();
                state.drop_gone();
                let fits = |waiter: &PermitWaiter| self.fits(&state, &waiter.session, waiter.tenant);
                let Some(first) = state.waiters.iter().position(fits) else { return };
                let Some(PermitWaiter { session, mark, reply, .. }) = state.waiters.remove(first) else {
                    return;
                };
                state.rounds.served(mark);
                (reply, self.permit(&mut state, session))
            };
            drop(reply.send(permit));
        }
    }
}

#[cfg(test)]
mod tests {
    use sha2::{Digest, Sha256};
    use tokio::task::JoinHandle;

    use super::*;
    use crate::cluster::limits::{LimitParts, LimitUse, SharedLimit};
    use crate::metrics::Metrics;
    use crate::tenants::KnownToken;

    fn permits(max: usize, per_session: usize, queue: usize) -> Arc<ExecutionPermits> {
        of_tenants(max, per_session, queue, Tenants::default())
    }

    fn of_tenants(max: usize, per_session: usize, queue: usize, tenants: Tenants) -> Arc<ExecutionPermits> {
        let bounds = PermitBounds { max, per_session, queue, wait: Duration::from_secs(90) };
        ExecutionPermits::new(bounds, Arc::new(tenants))
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

    fn with_tokens(limits: &[(&str, Option<u32>)]) -> Tenants {
        let token = |(name, executions): &(&str, Option<u32>)| {
            let mut token = KnownToken::plain(*name, Sha256::digest(name.as_bytes()).into());
            token.terms.limits.executions = *executions;
            token
        };
        let tokens = limits.iter().map(token).collect();
        Arc::into_inner(Tenants::open(tokens, None, Metrics::default()).unwrap()).unwrap()
    }

    fn key(owner: &str, session: &str) -> SessionKey {
        SessionKey::new(owner, &session.parse().unwrap())
    }

    fn come_as(
        permits: &Arc<ExecutionPermits>,
        session: SessionKey,
    ) -> JoinHandle<Result<ExecutionPermit, ExecutionError>> {
        let permits = permits.clone();
        tokio::spawn(async move { permits.enter(session).await })
    }

    #[tokio::test(start_paused = true)]
    async fn a_flood_of_one_tenant_waits_behind_itself_and_a_limit_of_one_is_its_own() {
        let permits = of_tenants(3, 9, 4, with_tokens(&[("ann", None), ("bob", None)]));
        let first = permits.enter(key("ann", "a")).await.unwrap();
        let _second = permits.enter(key("ann", "b")).await.unwrap();
        let mut flood: Vec<_> = (0..4).map(|_| come_as(&permits, key("ann", "c"))).collect();
        settle().await;
        assert!(flood.iter().all(|one| !one.is_finished()), "the last permit is kept for others");
        let bob = permits.enter(key("bob", "a")).await.expect("at once");
        // The queue is full: one of the flood makes room for another tenant, and no more.
        let again = come_as(&permits, key("bob", "b"));
        settle().await;
        assert!(matches!(flood.pop().unwrap().await.unwrap(), Err(ExecutionError::TooManyWait(_))));
        assert!(matches!(permits.enter(key("ann", "d")).await, Err(ExecutionError::TooManyWait(4))));
        drop(first);
        let again = again.await.unwrap().expect("before the flood");
        drop((bob, again));
        let permits = of_tenants(3, 9, 4, with_tokens(&[("ann", None), ("eve", Some(1))]));
        let eve = permits.enter(key("eve", "a")).await.unwrap();
        let limited = permits.enter(key("eve", "b")).await.map(drop).unwrap_err();
        assert!(matches!(limited, ExecutionError::Limited(limited) if limited.limit == "executions"));
        drop(eve);
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_waits_at_one_node_begins_when_its_part_of_the_limit_grows() {
        let tenants = with_tokens(&[("eve", Some(2))]);
        let parts = Arc::<LimitParts>::default();
        tenants.divide(parts.clone());
        let permits = of_tenants(9, 9, 9, tenants);
        let _first = permits.enter(key("eve", "a")).await.expect("one, unasked");
        let second = come_as(&permits, key("eve", "b"));
        settle().await;
        assert_eq!(permits.use_by_owner()["eve"], (1, 1));
        permits.limit_changed("eve");
        settle().await;
        assert!(!second.is_finished(), "nothing has changed");
        let eve = Arc::<str>::from("eve");
        let used =
            LimitUse { tenant: eve, limit: SharedLimit::Executions, allowed: 2, used: 1, idle: 0, wants: 1 };
        parts.publish("a", vec![used], &[], Duration::from_secs(1));
        parts.settle(&[]);
        permits.limit_changed("eve");
        drop(second.await.unwrap().expect("its part has grown"));
    }
}
