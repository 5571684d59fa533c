//! Weighs the containers in the hands of tenants against each other ([`crate::tenants::weigh`]): looks a few
//! times a second in which of them programs are at work, and changes what has to be changed.
//!
//! ```text
//!  Pool::lease ─► Weights::take ─► Weighed (RAII, in the lease)
//!                     │ wakes
//!                   run: a look now, and every 250 ms ─► weigh (pure) ─┬► its control group, at once
//!                                                                      └► POST /containers/{id}/update
//! ```
//!
//! Where this machine has the control group of a container ([`group`]), a look makes each change itself, and
//! a container is weighed before its first program begins. There, the containers of a tenant that owes CPU
//! credits are also confined to its part of the processors ([`mod@crate::tenants::confine`]). Otherwise the
//! engine is asked, for one change at a time, and only for containers in which programs are at work: a run
//! that ends soon is not worth the call.
//!
//! Nobody ever waits for it. While only one tenant has tokens it looks at nothing. It must never make
//! anything depend on the engine's answer: an engine that changes no weights is told of once, and served as
//! before.

mod group;
mod held;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use self::group::ContainerGroup;
use self::held::HeldContainer;
use super::container::ArmedContainer;
use super::core::MemberId;
use crate::engine::{ContainerId, Engine, EngineError};
use crate::tenants::confine::confine;
use crate::tenants::weigh::{WHOLE, WeighedContainer, weigh};
use crate::tenants::{TenantId, TenantShare, Tenants};

/// Where control groups are mounted.
const MOUNTED: &str = "/sys/fs/cgroup";
/// The longest time between two looks. A program that is seen for so long is at work.
const LOOK: Duration = Duration::from_millis(250);
/// A container counts as working for this long after a program was last seen in it, and its tenant as owing
/// after it was last seen to owe: the pauses between the runs of a caller are shorter.
const WORKS: Duration = Duration::from_secs(10);

/// The containers in the hands of tenants.
pub(super) struct Weights {
    held: Mutex<Held>,
    tenants: Arc<Tenants>,
    /// Wakes the looks, which rest while there is nothing to weigh.
    taken: Notify,
}

#[derive(Default)]
struct Held {
    containers: BTreeMap<MemberId, HeldContainer>,
    /// When a tenant last owed CPU credits.
    owed: BTreeMap<TenantId, Instant>,
}

/// What only the engine can change.
struct EngineChange {
    member: MemberId,
    id: ContainerId,
    weight: u64,
}

/// A container in the hands of a tenant. Dropping it takes it off the scales.
pub(super) struct Weighed {
    weights: Arc<Weights>,
    member: MemberId,
}

impl Drop for Weighed {
    fn drop(&mut self) {
        self.weights.held().containers.remove(&self.member);
    }
}

impl Weights {
    pub(super) fn new(tenants: Arc<Tenants>) -> Self {
        Self { held: Mutex::default(), tenants, taken: Notify::new() }
    }

    /// The share of a tenant, and whether it owes CPU credits by now.
    pub(super) fn owing(&self, tenant: TenantShare) -> TenantShare {
        let owes = tenant.tenants > 1 && !tenant.is_operator && self.tenants.owes(tenant.id);
        TenantShare { owes, ..tenant }
    }

    fn held(&self) -> MutexGuard<'_, Held> {
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
        self.held().containers.insert(member, HeldContainer::new(tenant, armed));
        if tenant.tenants > 1 {
            self.taken.notify_one();
        }
        Weighed { weights: self.clone(), member }
    }

    /// Undoes what an earlier daemon may have done to a container, where this machine has its control group.
    pub(super) fn make_whole(container: &ContainerId) {
        if let Some(mut group) = ContainerGroup::of(container, Path::new(MOUNTED)) {
            // It may have gone, and one that stays light is heavier as soon as its tenant works in it.
            let _ = group.weigh(WHOLE).and_then(|()| group.confine(None));
        }
    }

    /// Weighs, until the pool ends.
    pub(super) async fn run(self: Arc<Self>, engine: Engine, ending: CancellationToken) {
        let weighing = async {
            let mut is_told = false;
            loop {
                for change in self.look(Instant::now()) {
                    // One at a time: containers that callers wait for come first at the engine.
                    let changed = engine.container_weigh(&change.id, change.weight).await;
                    self.changed(&change, changed, &mut is_told);
                }
                if self.has_neighbours() {
                    let _ = tokio::time::timeout(LOOK, self.taken.notified()).await;
                } else {
                    self.taken.notified().await;
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
        self.held().containers.values().any(|container| container.tenant.tenants > 1)
    }

    /// Looks once, and changes what this machine's control groups can change: what is left for the engine.
    fn look(&self, now: Instant) -> Vec<EngineChange> {
        let mut held = self.held();
        let Held { containers, owed } = &mut *held;
        let tenants = containers.values().map(|container| container.tenant.tenants).max().unwrap_or(1);
        if tenants < 2 {
            return Vec::new();
        }
        let is_recent = |at: Instant| now.saturating_duration_since(at) < WORKS;
        owed.retain(|_, at| is_recent(*at));
        let (mut members, mut all) = (Vec::new(), Vec::new());
        for (member, container) in containers.iter_mut() {
            container.see(now);
            // One that was leased when its tenant was still alone has neighbours now too.
            let tenant = self.owing(TenantShare { tenants, ..container.tenant });
            if tenant.owes {
                owed.insert(tenant.id, now);
            }
            let is_working = container.worked.is_some_and(is_recent);
            if is_working || container.has_group() {
                let tenant = TenantShare { owes: owed.contains_key(&tenant.id), ..tenant };
                members.push(*member);
                all.push(WeighedContainer { tenant, weighs: container.weighs, is_working });
            }
        }
        let mut left = Vec::new();
        for (place, weight) in weigh(&all) {
            let member = members[place];
            if let Some(container) = containers.get_mut(&member)
                && !container.weigh(weight)
            {
                left.push(EngineChange { member, id: container.id.clone(), weight });
            }
        }
        self.confine(containers, owed.keys());
        left
    }

    /// Confines the containers of these tenants, and no others.
    fn confine<'a>(
        &self,
        containers: &mut BTreeMap<MemberId, HeldContainer>,
        owing: impl Iterator<Item = &'a TenantId>,
    ) {
        // All of them are on one machine.
        let processors = containers.values().map(HeldContainer::processors).max().unwrap_or(0);
        let parts = owing.map(|tenant| (*tenant, self.tenants.processors(*tenant))).collect();
        let confined = confine(&parts, processors);
        for container in containers.values_mut() {
            container.confine(confined.get(&container.tenant.id));
        }
    }

    /// Notes what the engine answered. A container that it could not change is left as it is.
    fn changed(&self, change: &EngineChange, changed: Result<(), EngineError>, is_told: &mut bool) {
        debug!(container = change.id.short(), weight = change.weight, ?changed, "weighed by the engine");
        let gone = |error: &EngineError| error.is_not_found() || error.is_conflict();
        if let Some(container) = self.held().containers.get_mut(&change.member) {
            container.weighs = change.weight;
            if let Err(error) = changed.as_ref()
                && !gone(error)
                && !std::mem::replace(is_told, true)
            {
                warn!(%error, "the engine changes no weights: the containers of one tenant can slow others");
            }
        }
    }
}
