//! Places for something of which only so many are under way at one time, such as fetches of packages: who
//! finds none waits, round by round between the tenants ([`fair`](super::fair)).
//!
//! The last place is kept for a tenant that has none, where there are others: what takes minutes must not
//! hold all places while somebody else comes. It must never give a place to a call that has gone away, nor
//! more places than there are.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use super::fair::{Mark, Rounds, TenantId, TenantShare};

/// So many places.
pub struct FairPlaces {
    most: usize,
    state: Mutex<FairState>,
}

#[derive(Default)]
struct FairState {
    /// How many each tenant has.
    held: BTreeMap<TenantId, usize>,
    /// In the order of service.
    waiting: VecDeque<Waiting>,
    rounds: Rounds,
}

struct Waiting {
    tenant: TenantShare,
    mark: Mark,
    reply: oneshot::Sender<FairPlace>,
}

/// One of the places. Dropping it gives it to a call that waits.
pub struct FairPlace {
    places: Arc<FairPlaces>,
    tenant: TenantId,
}

impl Drop for FairPlace {
    fn drop(&mut self) {
        {
            let mut state = self.places.state();
            if let Some(count) = state.held.get_mut(&self.tenant) {
                *count -= 1;
                if *count == 0 {
                    state.held.remove(&self.tenant);
                }
            }
        }
        self.places.grant();
    }
}

impl FairState {
    fn fits(&self, tenant: TenantShare, most: usize) -> bool {
        let all: usize = self.held.values().sum();
        if all + 1 != most || most == 1 || tenant.is_operator {
            return all < most;
        }
        !self.held.contains_key(&tenant.id) || self.held.len() >= tenant.tenants
    }

    /// Forgets the calls that have gone away.
    fn drop_gone(&mut self) {
        while let Some(at) = self.waiting.iter().position(|waiting| waiting.reply.is_closed()) {
            let Some(gone) = self.waiting.remove(at) else { return };
            let last = self.waiting.iter().rev().find(|other| other.tenant.id == gone.tenant.id);
            self.rounds.went_away(gone.tenant, last.map(|last| last.mark));
        }
    }
}

impl FairPlaces {
    /// So many places, at least one.
    #[must_use]
    pub fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { most: most.max(1), state: Mutex::default() })
    }

    fn state(&self) -> MutexGuard<'_, FairState> {
        // No code that can panic runs under this lock, so even a poisoned one holds valid data.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a place. Dropping the future stops waiting.
    pub async fn enter(self: &Arc<Self>, tenant: TenantShare) -> FairPlace {
        let waiting = {
            let mut state = self.state();
            let (reply, waiting) = oneshot::channel();
            state.drop_gone();
            let mark = state.rounds.arrive(tenant);
            let at = state.waiting.partition_point(|other| other.mark <= mark);
            state.waiting.insert(at, Waiting { tenant, mark, reply });
            waiting
        };
        self.grant();
        match waiting.await {
            Ok(place) => place,
            // A waiting call is only forgotten when nobody waits for the answer any more.
            Err(_) => std::future::pending().await,
        }
    }

    /// Gives away what is free. Outside of the lock: a place that nobody takes comes back.
    fn grant(self: &Arc<Self>) {
        loop {
            let (reply, place) = {
                let mut state = self.state();
                state.drop_gone();
                let first = state.waiting.iter().position(|one| state.fits(one.tenant, self.most));
                let Some(Waiting { tenant, mark, reply }) = first.and_then(|at| state.waiting.remove(at))
                else {
                    return;
                };
                state.rounds.served(mark);
                *state.held.entry(tenant.id).or_default() += 1;
                (reply, FairPlace { places: self.clone(), tenant: tenant.id })
            };
            drop(reply.send(place));
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc;
    use tokio::task::JoinHandle;

    use super::*;

    fn tenant(id: u32, tenants: usize) -> TenantShare {
        TenantShare { id: TenantId(id), tenants, ..TenantShare::default() }
    }

    async fn settle() {
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
    }

    /// Waits for a place and hands it over; its number says whose it is.
    async fn come(
        places: &Arc<FairPlaces>,
        share: TenantShare,
        to: &mpsc::UnboundedSender<(u32, FairPlace)>,
    ) -> JoinHandle<()> {
        let (places, to) = (places.clone(), to.clone());
        let task = tokio::spawn(async move {
            let place = places.enter(share).await;
            let _ = to.send((share.id.0, place));
        });
        settle().await;
        task
    }

    #[tokio::test]
    async fn tenants_take_turns_however_many_calls_one_of_them_has() {
        let (places, (to, mut got)) = (FairPlaces::new(1), mpsc::unbounded_channel());
        for _ in 0..6 {
            come(&places, tenant(1, 2), &to).await;
        }
        for _ in 0..2 {
            come(&places, tenant(2, 2), &to).await;
        }
        let mut order = Vec::new();
        while order.len() < 8 {
            let (who, place) = got.recv().await.unwrap();
            order.push(who);
            drop(place);
        }
        assert_eq!(order, [1, 2, 1, 2, 1, 1, 1, 1]);
        let state = places.state();
        assert!(state.held.is_empty() && state.waiting.is_empty());
    }

    #[tokio::test]
    async fn the_last_place_is_kept_for_a_tenant_that_has_none() {
        let (places, (to, mut got)) = (FairPlaces::new(2), mpsc::unbounded_channel());
        for _ in 0..3 {
            come(&places, tenant(1, 2), &to).await;
        }
        let first = got.try_recv().unwrap();
        assert!(first.0 == 1 && got.try_recv().is_err(), "one is kept");
        come(&places, tenant(2, 2), &to).await;
        let kept = got.try_recv().unwrap();
        assert_eq!(kept.0, 2);
        drop(first);
        settle().await;
        assert_eq!(got.try_recv().unwrap().0, 1, "each has one, and the turns go on");
        // Who is alone may have all, and so may an operator.
        let places = FairPlaces::new(2);
        for _ in 0..2 {
            come(&places, tenant(1, 1), &to).await;
        }
        assert_eq!(places.state().held[&TenantId(1)], 2);
        let places = FairPlaces::new(2);
        for _ in 0..2 {
            come(&places, TenantShare { is_operator: true, ..tenant(9, 2) }, &to).await;
        }
        assert_eq!(places.state().held[&TenantId(9)], 2);
    }

    #[tokio::test]
    async fn a_call_that_goes_away_holds_up_nobody() {
        let (places, (to, mut got)) = (FairPlaces::new(1), mpsc::unbounded_channel());
        come(&places, tenant(1, 2), &to).await;
        let gone = come(&places, tenant(2, 2), &to).await;
        come(&places, tenant(1, 2), &to).await;
        gone.abort();
        let _ = gone.await;
        drop(got.recv().await.unwrap());
        settle().await;
        assert_eq!(got.try_recv().unwrap().0, 1);
        assert!(places.state().waiting.is_empty());
    }
}
