//! Weighs the containers in the hands of tenants against each other ([`crate::tenants::weigh`]): looks a few
//! times a second in which of them programs are at work, and asks the engine for the changes.
//!
//! ```text
//!  Pool::lease ─► Weights::take ─► Weighed (RAII, in the lease)
//!                     │ wakes
//!                   run: a look every 250 ms ─► weigh (pure) ─► POST /containers/{id}/update, one at a time
//! ```
//!
//! Nobody ever waits for it, and a run that ends soon is never weighed: it is not worth the call. While only
//! one tenant has tokens it looks at nothing. It must never make anything depend on the engine's answer: an
//! engine that changes no weights is told of once, and served as before.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use super::Owes;
use super::container::ArmedContainer;
use super::core::MemberId;
use crate::engine::{ContainerId, Engine, EngineError};
use crate::link::Link;
use crate::tenants::TenantShare;
use crate::tenants::weigh::{WHOLE, WorkingContainer, weigh};

/// Between two looks. A program that two of them see is at work.
const LOOK: Duration = Duration::from_millis(250);
/// A container counts as working for this long after a program was last seen in it, and its tenant as owing
/// after it was last seen to owe: the pauses between the runs of a caller are shorter.
const WORKS: Duration = Duration::from_secs(10);

/// The containers in the hands of tenants.
pub(super) struct Weights {
    held: Mutex<BTreeMap<MemberId, HeldContainer>>,
    owes: Owes,
    /// Wakes the looks, which rest while there is nothing to weigh.
    taken: Notify,
}

struct HeldContainer {
    tenant: TenantShare,
    id: ContainerId,
    link: Link,
    weighs: u64,
    /// Whether the last look saw a program.
    is_busy: bool,
    /// When two looks in a row last saw one.
    worked: Option<Instant>,
    /// When its tenant last owed CPU credits while it worked.
    owed: Option<Instant>,
}

/// A container in the hands of a tenant. Dropping it takes it off the scales.
pub(super) struct Weighed {
    weights: Arc<Weights>,
    member: MemberId,
}

impl Drop for Weighed {
    fn drop(&mut self) {
        self.weights.held().remove(&self.member);
    }
}

impl Weights {
    pub(super) fn new(owes: Owes) -> Self {
        Self { held: Mutex::default(), owes, taken: Notify::new() }
    }

    /// The share of a tenant, and whether it owes CPU credits by now.
    pub(super) fn owing(&self, tenant: TenantShare) -> TenantShare {
        let owes = tenant.tenants > 1 && !tenant.is_operator && (self.owes)(tenant.id);
        TenantShare { owes, ..tenant }
    }

    fn held(&self) -> MutexGuard<'_, BTreeMap<MemberId, HeldContainer>> {
        // No code that can panic runs under this lock, so even a poisoned one holds valid data.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A tenant has this container from now on.
    pub(super) fn take(
        self: &Arc<Self>,
        member: MemberId,
        tenant: TenantShare,
        armed: &ArmedContainer,
    ) -> Weighed {
        let (id, link) = (armed.id.clone(), armed.link.clone());
        let container =
            HeldContainer { tenant, id, link, weighs: WHOLE, is_busy: false, worked: None, owed: None };
        self.held().insert(member, container);
        if tenant.tenants > 1 {
            self.taken.notify_one();
        }
        Weighed { weights: self.clone(), member }
    }

    /// Weighs, until the pool ends.
    pub(super) async fn run(self: Arc<Self>, engine: Engine, ending: CancellationToken) {
        let weighing = async {
            let mut is_told = false;
            loop {
                if !self.has_neighbours() {
                    self.taken.notified().await;
                }
                tokio::time::sleep(LOOK).await;
                for (member, id, weight) in self.look(Instant::now()) {
                    // One at a time: containers that callers wait for come first at the engine.
                    let changed = engine.container_weigh(&id, weight).await;
                    debug!(container = id.short(), weight, ?changed, "weighed");
                    self.changed(member, weight, changed, &mut is_told);
                }
            }
        };
        tokio::select! {
            () = weighing => {}
            () = ending.cancelled() => {}
        }
    }

    /// Whether any of these containers was leased while several tenants had tokens.
    fn has_neighbours(&self) -> bool {
        self.held().values().any(|container| container.tenant.tenants > 1)
    }

    /// Looks once: what each container that is out of balance should weigh.
    fn look(&self, now: Instant) -> Vec<(MemberId, ContainerId, u64)> {
        let mut held = self.held();
        let tenants = held.values().map(|container| container.tenant.tenants).max().unwrap_or(1);
        let mut working = Vec::new();
        for (member, container) in held.iter_mut() {
            let was_busy = std::mem::replace(&mut container.is_busy, container.link.programs() > 0);
            if was_busy && container.is_busy {
                container.worked = Some(now);
            }
            let is_recent =
                |at: Option<Instant>| at.is_some_and(|at| now.saturating_duration_since(at) < WORKS);
            if is_recent(container.worked) {
                // One that was leased when its tenant was still alone has neighbours now too.
                let tenant = self.owing(TenantShare { tenants, ..container.tenant });
                if tenant.owes {
                    container.owed = Some(now);
                }
                let tenant = TenantShare { owes: is_recent(container.owed), ..tenant };
                working.push((*member, container.id.clone(), tenant, container.weighs));
            }
        }
        drop(held);
        let each = working.iter();
        let all: Vec<_> = each
            .map(|(_, _, tenant, weighs)| WorkingContainer { tenant: *tenant, weighs: *weighs })
            .collect();
        let changes = weigh(&all).into_iter();
        changes.map(|(at, weight)| (working[at].0, working[at].1.clone(), weight)).collect()
    }

    /// Notes what the engine answered. A container that it could not change is left as it is.
    fn changed(&self, member: MemberId, weight: u64, changed: Result<(), EngineError>, is_told: &mut bool) {
        let gone = |error: &EngineError| error.is_not_found() || error.is_conflict();
        if let Some(container) = self.held().get_mut(&member) {
            container.weighs = weight;
            if let Err(error) = changed.as_ref()
                && !gone(error)
                && !std::mem::replace(is_told, true)
            {
                warn!(%error, "the engine changes no weights: the containers of one tenant can slow others");
            }
        }
    }
}
