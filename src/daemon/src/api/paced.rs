//! Polls of connections, paced by tenant where there are several: see [`crate::tenants::pace`].
//!
//! A connection has a tenant from the head of a request on until it is answered: then its polls are charged,
//! and wait. In them it answers, and moves the bodies. Tools are tasks of their own, with places and limits
//! of their own; connections between nodes are not paced, since many tenants share them, and the node that
//! the client asked has paced it. Where there is one tenant this must cost no lock.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use crate::pressure::CpuPressure;
use crate::processors;
use crate::tenants::ease::Ease;
use crate::tenants::pace::{PaceCore, PacedId};
use crate::tenants::{TenantShare, Tenants};

/// Time between two looks at the accounts while somebody is parked: what tokio's clock can tell apart.
const TICK: Duration = Duration::from_millis(1);

/// Time between two looks at how short the processors are.
const LOOK: Duration = Duration::from_millis(250);

/// Paces the connections of clients.
pub(super) struct Pacer {
    state: Mutex<PacerState>,
    /// Somebody was parked, or the pacer is gone.
    changed: Arc<Notify>,
    last: AtomicU64,
}

struct PacerState {
    core: PaceCore,
    wakers: HashMap<PacedId, Waker>,
}

impl Pacer {
    /// A pacer for this machine, which also says how far programs of these tenants are held back. Tasks keep
    /// it going until it is dropped.
    pub(super) fn start(tenants: Arc<Tenants>) -> Arc<Self> {
        let pacer = Self::on(processors::count());
        tokio::spawn(Self::ease_off(Arc::downgrade(&pacer), tenants));
        pacer
    }

    fn on(processors: usize) -> Arc<Self> {
        let state = PacerState { core: PaceCore::new(processors), wakers: HashMap::new() };
        let (changed, last) = (Arc::new(Notify::new()), AtomicU64::new(0));
        let pacer = Arc::new(Self { state: Mutex::new(state), changed: changed.clone(), last });
        tokio::spawn(Self::go_on(Arc::downgrade(&pacer), changed));
        pacer
    }

    async fn go_on(pacer: Weak<Self>, changed: Arc<Notify>) {
        while let Some(held) = pacer.upgrade() {
            let is_due = {
                let mut state = held.state();
                state.core.fill(Instant::now()).into_iter().for_each(|id| state.wake(id));
                state.core.holds_back()
            };
            drop(held);
            if is_due {
                tokio::time::sleep(TICK).await;
            } else {
                changed.notified().await;
            }
        }
    }

    /// Leaves less to tenants that use much while several are at work and the processors are short.
    async fn ease_off(pacer: Weak<Self>, tenants: Arc<Tenants>) {
        let mut pressure = CpuPressure::default();
        let (mut threads, mut programs) = (Ease::of_threads(), Ease::of_programs());
        loop {
            tokio::time::sleep(LOOK).await;
            let Some(pacer) = pacer.upgrade() else {
                return tenants.hold_back(Ease::of_programs(), &[]);
            };
            let at_work = pacer.state().core.at_work(Instant::now());
            // A connection that waits for its program is not polled.
            let is_shared = at_work.len() > 1 || tenants.is_shared();
            // The file is read outside of the lock that every poll takes.
            let waited = pressure.look(Instant::now());
            (threads, programs) = (threads.after(is_shared, waited), programs.after(is_shared, waited));
            pacer.state().core.ease(threads);
            tenants.hold_back(programs, &at_work);
        }
    }

    fn state(&self) -> MutexGuard<'_, PacerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The polls of one connection.
    pub(super) fn connection(self: &Arc<Self>) -> PacedPolls {
        let id = PacedId(self.last.fetch_add(1, Ordering::Relaxed));
        PacedPolls { pacer: self.clone(), id, was_paced: false }
    }
}

impl Drop for Pacer {
    fn drop(&mut self) {
        self.changed.notify_one();
    }
}

impl PacerState {
    fn wake(&mut self, id: PacedId) {
        if let Some(waker) = self.wakers.remove(&id) {
            waker.wake();
        }
    }
}

/// The polls of one connection.
pub(super) struct PacedPolls {
    pacer: Arc<Pacer>,
    id: PacedId,
    was_paced: bool,
}

impl PacedPolls {
    /// Polls the connection as soon as the tenant may whose polls these are; `None`: they are nobody's. The
    /// poll in which that becomes known is charged, and was not held back.
    pub(super) fn poll<F: Future>(
        &mut self,
        tenant: &impl Fn() -> Option<TenantShare>,
        context: &mut Context<'_>,
        connection: Pin<&mut F>,
    ) -> Poll<F::Output> {
        let begun = Instant::now();
        let before = tenant();
        if let Some(tenant) = before {
            self.was_paced = true;
            let mut state = self.pacer.state();
            if !state.core.ask(tenant, self.id, begun) {
                state.wakers.insert(self.id, context.waker().clone());
                drop(state);
                self.pacer.changed.notify_one();
                return Poll::Pending;
            }
        }
        let polled = connection.poll(context);
        if let Some(tenant) = before.or_else(tenant) {
            let (now, mut state) = (Instant::now(), self.pacer.state());
            let next = state.core.spent(tenant, now.saturating_duration_since(begun), now);
            next.into_iter().for_each(|id| state.wake(id));
        }
        polled
    }
}

impl Drop for PacedPolls {
    fn drop(&mut self) {
        if self.was_paced {
            let mut state = self.pacer.state();
            state.core.gone(self.id);
            state.wakers.remove(&self.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use super::*;
    use crate::tenants::fair::TenantId;

    fn tenant(id: u32) -> TenantShare {
        TenantShare { id: TenantId(id), ..TenantShare::default() }
    }

    /// Asks for the next poll at once, for ever; counts them.
    async fn greedy(polled: Arc<AtomicU32>) {
        loop {
            polled.fetch_add(1, Ordering::Relaxed);
            let begun = Instant::now();
            while begun.elapsed() < Duration::from_micros(500) {}
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn a_quiet_tenant_does_not_wait_behind_the_connections_of_a_flood() {
        let (pacer, polled) = (Pacer::on(1), Arc::<AtomicU32>::default());
        let mut flood = tokio::task::JoinSet::new();
        for _ in 0..64 {
            let (mut polls, polled) = (pacer.connection(), polled.clone());
            flood.spawn(async move {
                let mut greedy = std::pin::pin!(greedy(polled));
                std::future::poll_fn(|context| polls.poll(&|| Some(tenant(1)), context, greedy.as_mut()))
                    .await;
            });
        }
        let mut polls = pacer.connection();
        let steps = async {
            let step = async || {
                tokio::time::sleep(TICK * 2).await; // it is quiet
                let before = polled.load(Ordering::Relaxed);
                tokio::task::yield_now().await;
                polled.load(Ordering::Relaxed) - before
            };
            // The flood begins, and uses up what its account holds.
            for _ in 0..20 {
                step().await;
            }
            let (begun, mut between) = (polled.load(Ordering::Relaxed), Vec::new());
            while polled.load(Ordering::Relaxed) < begun + 50 || between.len() < 20 {
                between.push(step().await);
            }
            between
        };
        let mut steps = std::pin::pin!(steps);
        let quiet = std::future::poll_fn(|context| polls.poll(&|| Some(tenant(2)), context, steps.as_mut()));
        let between = quiet.await;
        // Not one of all: while the machine runs something else, the account fills.
        let few = between.iter().filter(|polls| **polls <= 4).count();
        assert!(few * 4 >= between.len() * 3, "{between:?}");
        flood.shutdown().await;
        assert!(pacer.state().wakers.is_empty() && !pacer.state().core.holds_back());
    }
}
