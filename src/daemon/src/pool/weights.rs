//! Weighs the containers in the hands of tenants against each other ([`crate::tenants::weigh`]): looks a few
//! times a second in which of them programs are at work, and changes what has to be changed.
//!
//! ```text
//!  Pool::lease ─► Weights::take ─► Weighed (RAII, in the lease)
//!                     │ wakes
//!                   run: a look now, and every 250 ms ─► core (pure) ─┬► its control group, at once
//!                                                                     └► POST /containers/{id}/update
//! ```
//!
//! Where this machine has the control group of a container ([`group`]), a look makes each change itself, and
//! a container is weighed before its first program begins. Otherwise the engine is asked, for one change at a
//! time, and only for containers in which programs are at work: a run that ends soon is not worth the call.
//! The containers of tenants that owe CPU credits are confined to some of the processors in the same way
//! ([`mod@crate::tenants::confine`]), and the daemon's own threads keep off those ([`crate::processors`]).
//!
//! Nobody ever waits for it. While only one tenant has tokens, it looks only at containers of an earlier
//! daemon, which may be lighter than they should be. It must never make anything depend on the engine's
//! answer: if the engine changes no weights, the log says so once, and everything goes on as before.

mod core;
mod group;
mod held;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use self::core::{ContainerChange, ContainerSight, LOOK, LookChanges, LookContext, WeightsCore};
use self::group::processors;
use self::held::HeldContainer;
use super::container::ArmedContainer;
use super::core::MemberId;
use crate::engine::{Engine, EngineError};
use crate::processors::OwnThreads;
use crate::tenants::confine::Confinement;
use crate::tenants::{TenantShare, Tenants};

/// Where control groups are mounted.
pub(super) const MOUNTED: &str = "/sys/fs/cgroup";

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
    core: WeightsCore,
}

/// A container in the hands of a tenant. Dropping it takes it off the scales.
pub(super) struct Weighed {
    weights: Arc<Weights>,
    member: MemberId,
}

impl Drop for Weighed {
    fn drop(&mut self) {
        let mut held = self.weights.held();
        held.containers.remove(&self.member);
        held.core.leave(self.member);
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
        let mut held = self.held();
        held.containers.insert(member, HeldContainer::new(armed, is_new));
        held.core.take(member, tenant, is_new);
        drop(held);
        // The tenant may have owed something when the earlier daemon ended.
        if tenant.tenants > 1 || !is_new {
            self.taken.notify_one();
        }
        Weighed { weights: self.clone(), member }
    }

    /// Weighs, until the pool ends.
    pub(super) async fn run(self: Arc<Self>, engine: Engine, ending: CancellationToken) {
        let mut own = OwnThreads::default();
        let weighing = async {
            let mut limits =
                EngineLimits { is_local: engine.host().unix_path().is_some(), ..EngineLimits::default() };
            loop {
                if limits.processors.is_none() && self.has_to_look() {
                    limits.learn(&engine).await;
                }
                let now = Instant::now();
                let by_engine = self.look(now, &limits, own.compute_on(now));
                own.keep_off(&self.confined(&limits));
                for (member, change) in by_engine {
                    // One at a time: containers that callers wait for come first at the engine.
                    self.ask(&engine, member, change, &mut limits).await;
                    own.keep_off(&self.confined(&limits));
                }
                if self.has_to_look() || own.are_kept_off() {
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
        // What is left to do is not a tenant's.
        own.keep_off(&BTreeSet::new());
    }

    fn has_to_look(&self) -> bool {
        self.held().core.has_to_look()
    }

    /// Looks once, and changes what this machine's control groups can change: what is left for the engine.
    /// The daemon computes on so many processors.
    fn look(&self, now: Instant, limits: &EngineLimits, daemon: f64) -> BTreeMap<MemberId, ContainerChange> {
        let mut held = self.held();
        let Held { containers, core } = &mut *held;
        let sights: BTreeMap<MemberId, ContainerSight> =
            containers.iter_mut().map(|(member, one)| (*member, one.see(Path::new(MOUNTED)))).collect();
        let LookChanges { here, by_engine } = core.look(
            &sights,
            LookContext {
                now,
                engine_processors: limits.processors.unwrap_or(0),
                engine_converts: limits.converts,
                owes: &|tenant| self.owing(tenant).owes,
                daemon,
                parts: &|owing| self.tenants.parts(owing),
            },
        );
        for (member, change) in here {
            if let Some(container) = containers.get_mut(&member) {
                core.was_given(member, container.change(change));
            }
        }
        by_engine
    }

    /// The processors of this machine to which programs are confined by now.
    fn confined(&self, limits: &EngineLimits) -> BTreeSet<usize> {
        let Held { containers, core } = &*self.held();
        let of_engine: Vec<usize> = (0..limits.processors.unwrap_or(0)).collect();
        let mut confined = BTreeSet::new();
        for (member, container) in containers {
            if let to @ Confinement::Last(_) = core.confinement(*member) {
                let all = container.processors().or(limits.is_local.then_some(&of_engine));
                confined.extend(all.into_iter().flat_map(|all| processors::left_of(all, to)).copied());
            }
        }
        confined
    }

    /// Asks the engine for a change, and notes whether it was made.
    async fn ask(
        &self,
        engine: &Engine,
        member: MemberId,
        mut change: ContainerChange,
        limits: &mut EngineLimits,
    ) {
        let id = self.held().containers.get(&member).map(|container| container.id.clone());
        let Some(id) = id else { return };
        let all: Vec<usize> = (0..limits.processors.unwrap_or(0)).collect();
        let is_gone = |error: &EngineError| error.is_not_found() || error.is_conflict();
        // An engine that may use only some of the processors could not give a container all of them back. So
        // it is asked for all before it is asked for less.
        if change.confinement.is_some() && !limits.confines {
            match engine.container_processors(&id, None, Some(&processors::list(&all))).await {
                Ok(discarded) if discarded.is_empty() => limits.confines = true,
                Err(error) if is_gone(&error) || !error.status().is_some_and(|s| s.is_client_error()) => {
                    return self.held().core.was_refused(member, Instant::now());
                }
                refused => {
                    debug!(container = id.short(), ?refused, "the engine confines no containers");
                    (limits.processors, change.confinement) = (Some(0), None);
                }
            }
        }
        let list = change.confinement.map(|to| processors::list(processors::left_of(&all, to)));
        if (change.weight, &list) == (None, &None) {
            return;
        }
        let changed = engine.container_processors(&id, change.weight, list.as_deref()).await;
        debug!(container = id.short(), ?change, ?changed, "weighed by the engine");
        let mut held = self.held();
        let why = match changed {
            Ok(discarded) if discarded.is_empty() => return held.core.was_given(member, change),
            Ok(discarded) => discarded.join("; "),
            Err(error) if is_gone(&error) => String::new(),
            Err(error) => error.to_string(),
        };
        held.core.was_refused(member, Instant::now());
        if !why.is_empty() && !std::mem::replace(&mut limits.is_told, true) {
            warn!(why, "the engine changes no weights: the containers of one tenant can slow others");
        }
    }
}

/// What is known of an engine that is asked for changes.
#[derive(Debug, Default)]
struct EngineLimits {
    /// How many processors it has, if they can be those of this daemon, and it confines containers; otherwise
    /// 0. `None` if it has not answered.
    processors: Option<usize>,
    /// See [`LookContext::engine_converts`].
    converts: bool,
    /// Whether it is on this machine, as far as its address says.
    is_local: bool,
    /// Whether it has given a container all processors.
    confines: bool,
    /// Whether the log says that it changes no weights.
    is_told: bool,
}

impl EngineLimits {
    async fn learn(&mut self, engine: &Engine) {
        let Ok(info) = engine.info().await else { return };
        // An engine with another number of processors is on another machine.
        let own = crate::processors::count();
        self.processors = Some(if usize::try_from(info.ncpu) == Ok(own) { own } else { 0 });
        self.converts = info.cgroup_version == "2";
    }
}
