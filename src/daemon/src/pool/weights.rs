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
//! a container is weighed before its first program begins. Otherwise the engine is asked, for one change at a
//! time, and only for containers in which programs are at work: a run that ends soon is not worth the call.
//! The containers of tenants that owe CPU credits are confined to some of the processors in the same way
//! ([`mod@crate::tenants::confine`]).
//!
//! Nobody ever waits for it. While only one tenant has tokens, it looks only at containers of an earlier
//! daemon, which may be lighter than they should be. It must never make
//! anything depend on the engine's answer: if the engine changes no weights, the log says so once, and
//! everything goes on as before.

mod group;
mod held;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use self::group::processors;
use self::held::HeldContainer;
use super::container::ArmedContainer;
use super::core::MemberId;
use crate::engine::{Engine, EngineError};
use crate::tenants::confine::{Demand, confined};
use crate::tenants::weigh::{WeighedContainer, weigh};
use crate::tenants::{TenantId, TenantShare, Tenants};

/// Where control groups are mounted.
const MOUNTED: &str = "/sys/fs/cgroup";
/// The longest time between two looks. A program that is seen for so long is at work.
const LOOK: Duration = Duration::from_millis(250);
/// A container counts as working for this long after a program was last seen in it, and its tenant as owing
/// after it was last seen to owe: the pauses between the runs of a caller are shorter.
const WORKS: Duration = Duration::from_secs(10);
/// Until the engine is asked again for a change that it did not make.
const AGAIN: Duration = Duration::from_secs(5);

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

/// What only the engine can change of a container.
#[derive(Debug, Default)]
struct EngineChange {
    weight: Option<u64>,
    /// See [`HeldContainer::confine`].
    confined: Option<Option<usize>>,
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

    /// A tenant has this container from now on, which this daemon made, or an earlier one.
    pub(super) fn take(
        self: &Arc<Self>,
        member: MemberId,
        tenant: TenantShare,
        armed: &ArmedContainer,
        is_new: bool,
    ) -> Weighed {
        self.held().containers.insert(member, HeldContainer::new(tenant, armed, is_new));
        // The tenant may have owed something when the earlier daemon ended.
        if tenant.tenants > 1 || !is_new {
            self.taken.notify_one();
        }
        Weighed { weights: self.clone(), member }
    }

    /// Weighs, until the pool ends.
    pub(super) async fn run(self: Arc<Self>, engine: Engine, ending: CancellationToken) {
        let weighing = async {
            let mut asked = EngineLimits::default();
            loop {
                if asked.processors.is_none() && self.has_to_look() {
                    asked.processors = processors_of(&engine).await;
                }
                for (member, change) in self.look(Instant::now(), asked.processors) {
                    // One at a time: containers that callers wait for come first at the engine.
                    self.ask(&engine, member, change, &mut asked).await;
                }
                if self.has_to_look() {
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

    /// Whether any of these containers was leased while several tenants had tokens, or is not as it was made.
    fn has_to_look(&self) -> bool {
        let held = self.held();
        held.containers.values().any(|container| container.tenant.tenants > 1 || !container.is_whole())
    }

    /// Looks once, and changes what this machine's control groups can change: what is left for the engine,
    /// whose machine has so many processors if it is this one.
    fn look(&self, now: Instant, processors: Option<usize>) -> BTreeMap<MemberId, EngineChange> {
        let mut held = self.held();
        let Held { containers, owed } = &mut *held;
        let tenants = containers.values().map(|container| container.tenant.tenants).max().unwrap_or(1);
        let is_recent = |at: Instant| now.saturating_duration_since(at) < WORKS;
        owed.retain(|_, at| is_recent(*at));
        // Each tenant is asked once.
        let mut owing: BTreeMap<TenantId, bool> = BTreeMap::new();
        for container in containers.values_mut() {
            container.see(now);
            // A container that was leased when its tenant was still alone has neighbours now too.
            container.tenant.tenants = tenants;
            let tenant = container.tenant;
            if *owing.entry(tenant.id).or_insert_with(|| self.owing(tenant).owes) {
                owed.insert(tenant.id, now);
            }
        }
        let is_working = |container: &HeldContainer| container.worked.is_some_and(is_recent);
        let owes = |container: &HeldContainer| owed.contains_key(&container.tenant.id);
        let working = containers.values().filter(|one| is_working(one) && !owes(one)).count();
        // All of them are on one machine.
        let processors = containers.values().find_map(HeldContainer::processors).or(processors).unwrap_or(0);
        let parts = self.tenants.parts(&owed.keys().copied().collect());
        let last = parts.and_then(|parts| confined(Demand { processors, parts, working }));

        let (mut members, mut all) = (Vec::new(), Vec::new());
        for (member, container) in containers.iter() {
            let is_working = is_working(container);
            if is_working || container.has_group() || !container.is_whole() {
                let tenant = TenantShare { owes: owes(container), ..container.tenant };
                members.push(*member);
                all.push(WeighedContainer { tenant, weighs: container.weighs, is_working });
            }
        }
        let mut left: BTreeMap<MemberId, EngineChange> = BTreeMap::new();
        for (place, weight) in weigh(&all) {
            if let Some(container) = containers.get_mut(&members[place])
                && !container.weigh(weight)
                && container.may_ask(now)
            {
                left.entry(members[place]).or_default().weight = Some(weight);
            }
        }
        for (member, one) in members.into_iter().zip(all) {
            let last = last.filter(|_| one.tenant.owes);
            if let Some(container) = containers.get_mut(&member)
                && !container.confine(last)
                && container.may_ask(now)
                && processors > 0
            {
                left.entry(member).or_default().confined = Some(last);
            }
        }
        left
    }

    /// Asks the engine for a change, and notes whether it was made.
    async fn ask(
        &self,
        engine: &Engine,
        member: MemberId,
        EngineChange { weight, confined }: EngineChange,
        asked: &mut EngineLimits,
    ) {
        let id = self.held().containers.get(&member).map(|container| container.id.clone());
        let Some(id) = id else { return };
        let all: Vec<usize> = (0..asked.processors.unwrap_or(0)).collect();
        let list = confined.map(|last| processors::list(processors::last_of(&all, last)));
        let mut changed = engine.container_processors(&id, weight, list.as_deref()).await;
        let mut confined = confined;
        // An engine that may use only some of the processors refuses the others, and with them the whole
        // change.
        let is_gone = |error: &EngineError| error.is_not_found() || error.is_conflict();
        if let Err(error) = &changed
            && error.status().is_some_and(|status| status.is_client_error())
            && !is_gone(error)
            && list.is_some()
        {
            debug!(container = id.short(), ?list, %error, "the engine confines no containers");
            (asked.processors, confined) = (Some(0), None);
            changed = match weight {
                Some(_) => engine.container_processors(&id, weight, None).await,
                None => Ok(()),
            };
        }
        debug!(container = id.short(), ?weight, ?list, ?changed, "weighed by the engine");
        let mut held = self.held();
        let Some(container) = held.containers.get_mut(&member) else { return };
        let Err(error) = changed else { return container.was_given(weight, confined) };
        container.was_refused(Instant::now() + AGAIN);
        if !is_gone(&error) && !std::mem::replace(&mut asked.is_told, true) {
            warn!(%error, "the engine changes no weights: the containers of one tenant can slow others");
        }
    }
}

/// What is known of an engine that is asked for changes.
#[derive(Debug, Default)]
struct EngineLimits {
    /// How many processors it has, if they can be those of this daemon, and it confines containers; otherwise
    /// 0. `None` if it has not answered.
    processors: Option<usize>,
    /// Whether the log says that it changes no weights.
    is_told: bool,
}

/// How many processors the engine has, if the daemon may use as many; otherwise 0.
async fn processors_of(engine: &Engine) -> Option<usize> {
    let info = engine.info().await.ok()?;
    let own = crate::tenants::processors();
    Some(if usize::try_from(info.ncpu) == Ok(own) { own } else { 0 })
}
