//! What each look changes of the containers in the hands of tenants. Pure: it reads no clock and no file, and
//! asks no engine.
//!
//! ```text
//!  programs, weights, processors of each container ─┐
//!  tenants that owe CPU credits, and their parts ───┴─► look ─► changes ─► made: given │ not made: refused
//! ```
//!
//! A change is made in the control group of the container where that can be written, and otherwise asked of
//! the engine: for containers in which programs are at work, or which are not as they were made. It must
//! never take for granted that a change was made: it counts as made once somebody has said so.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use super::super::core::MemberId;
use crate::tenants::confine::{Confinement, Demand, confine};
use crate::tenants::weigh::{WHOLE, WeighedContainer, weigh};
use crate::tenants::{TenantId, TenantShare};

#[cfg(test)]
mod tests;

/// The longest time between two looks. Where programs are seen at looks so far apart, they are at work,
/// whether it is one program or several.
pub(super) const LOOK: Duration = Duration::from_millis(250);
/// A container counts as working for this long after a program was last seen in it, and its tenant as owing
/// after it was last seen to owe: the pauses between the runs of a caller are shorter.
const WORKS: Duration = Duration::from_secs(10);
/// Until the engine is asked again for a change that it did not make.
const AGAIN: Duration = Duration::from_secs(5);

/// The containers in the hands of tenants.
#[derive(Debug, Default)]
pub(super) struct WeightsCore {
    containers: BTreeMap<MemberId, ContainerState>,
    /// When a tenant last owed CPU credits.
    owed: BTreeMap<TenantId, Instant>,
}

#[derive(Debug)]
struct ContainerState {
    tenant: TenantShare,
    /// What it was last given: 0 if that is not known.
    weighs: u64,
    /// Where its programs may run, if that is known.
    confinement: Option<Confinement>,
    /// Where they could run when that was last known.
    last_known: Confinement,
    /// Whether anybody has said that a change of it was made.
    was_changed: bool,
    /// The engine is not asked again before.
    again: Option<Instant>,
    /// When looks have seen programs: first, and last. A longer pause than [`WORKS`] forgets both.
    seen: Option<[Instant; 2]>,
}

/// What a look sees of a container.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ContainerSight {
    /// Programs that run in it.
    pub(super) programs: usize,
    /// Whether its weight can be written here.
    pub(super) has_group: bool,
    /// What its control group says that it weighs, if that was read.
    pub(super) weighs: Option<u64>,
    /// How many processors it has while it is not confined, if they can be written here.
    pub(super) processors: Option<usize>,
    /// What its control group says of them.
    pub(super) cpuset: CpusetSight,
}

/// On which processors the programs of a container may run, as its control group says.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum CpusetSight {
    /// It was not read.
    #[default]
    Unread,
    /// As a look can have written it.
    Confined(Confinement),
    /// Somebody else wrote it.
    Other,
}

/// What a look sees beside the containers.
#[derive(Clone, Copy)]
pub(super) struct LookContext<'a> {
    pub(super) now: Instant,
    /// The processors of the engine's machine, if the engine may be asked to confine containers; otherwise 0.
    pub(super) engine_processors: usize,
    /// Whether the engine writes another weight for 1,024 CPU shares than a new container has. In the second
    /// version of control groups a new one has 100, and runc before 1.3.2 writes 39.
    pub(super) engine_converts: bool,
    /// Whether a tenant owes CPU credits.
    pub(super) owes: &'a dyn Fn(TenantShare) -> bool,
    /// On how many processors the daemon computes.
    pub(super) daemon: f64,
    /// See [`crate::tenants::Tenants::parts`].
    pub(super) parts: &'a dyn Fn(&BTreeSet<TenantId>) -> Option<f64>,
}

/// A change of one container: what it shall weigh, and where its programs may run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct ContainerChange {
    /// In CPU shares.
    pub(super) weight: Option<u64>,
    pub(super) confinement: Option<Confinement>,
}

/// What a look changes.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct LookChanges {
    /// In control groups of this machine.
    pub(super) here: BTreeMap<MemberId, ContainerChange>,
    /// What only the engine can change.
    pub(super) by_engine: BTreeMap<MemberId, ContainerChange>,
}

impl ContainerState {
    fn see(&mut self, sight: ContainerSight, now: Instant) {
        self.seen = self.seen.filter(|[_, last]| now.saturating_duration_since(*last) < WORKS);
        if sight.programs > 0 {
            self.seen = Some([self.seen.map_or(now, |[first, _]| first), now]);
        }
        self.weighs = sight.weighs.unwrap_or(self.weighs);
        // No look has confined any other container: what somebody chose for it stays.
        if matches!(self.confinement, Some(Confinement::Last(_))) {
            self.confinement = match sight.cpuset {
                CpusetSight::Unread => self.confinement,
                CpusetSight::Confined(confinement) => Some(confinement),
                CpusetSight::Other => None,
            };
        }
        self.last_known = self.confinement.unwrap_or(self.last_known);
    }

    fn is_working(&self) -> bool {
        self.seen.is_some_and(|[first, last]| last.saturating_duration_since(first) >= LOOK)
    }

    /// Whether it is as it was made.
    fn is_whole(&self) -> bool {
        self.weighs == WHOLE && self.confinement == Some(Confinement::All)
    }

    fn may_ask(&self, now: Instant) -> bool {
        self.again.is_none_or(|again| again <= now)
    }
}

impl WeightsCore {
    /// A tenant has this container from now on, which this daemon made, or an earlier one.
    pub(super) fn take(&mut self, member: MemberId, tenant: TenantShare, is_new: bool) {
        let state = ContainerState {
            tenant,
            // What an earlier daemon gave it is not known: the first look gives it something.
            weighs: if is_new { WHOLE } else { 0 },
            confinement: is_new.then_some(Confinement::All),
            last_known: Confinement::All,
            was_changed: false,
            again: None,
            seen: None,
        };
        self.containers.insert(member, state);
    }

    /// Nobody has it any more.
    pub(super) fn leave(&mut self, member: MemberId) {
        self.containers.remove(&member);
    }

    /// Where the programs of a container may run, or could when that was last known.
    pub(super) fn confinement(&self, member: MemberId) -> Confinement {
        self.containers.get(&member).map_or(Confinement::All, |state| state.last_known)
    }

    /// Whether any container was taken while several tenants had tokens, or is not as it was made.
    pub(super) fn has_to_look(&self) -> bool {
        self.containers.values().any(|state| state.tenant.tenants > 1 || !state.is_whole())
    }

    /// Looks once, at all containers that were taken.
    pub(super) fn look(
        &mut self,
        sights: &BTreeMap<MemberId, ContainerSight>,
        context: LookContext<'_>,
    ) -> LookChanges {
        let LookContext { now, engine_processors, engine_converts, owes, daemon, parts } = context;
        let sight = |member: &MemberId| sights.get(member).copied().unwrap_or_default();
        let tenants = self.containers.values().map(|state| state.tenant.tenants).max().unwrap_or(1);
        let mut asked: BTreeSet<TenantId> = BTreeSet::new();
        self.owed.retain(|_, at| now.saturating_duration_since(*at) < WORKS);
        for (member, state) in &mut self.containers {
            state.see(sight(member), now);
            // A container that was taken when its tenant was still alone has neighbours now too.
            state.tenant.tenants = tenants;
            if asked.insert(state.tenant.id) && owes(state.tenant) {
                self.owed.insert(state.tenant.id, now);
            }
        }
        let owed = |state: &ContainerState| self.owed.contains_key(&state.tenant.id);
        let working = self.containers.values().filter(|state| state.is_working() && !owed(state)).count();
        // All of them are on one machine.
        let here = sights.values().find_map(|sight| sight.processors);
        let processors = here.unwrap_or(engine_processors);
        let left = parts(&self.owed.keys().copied().collect())
            .map_or(Confinement::All, |parts| confine(Demand { processors, parts, working, daemon }));

        let mut members = Vec::new();
        let mut all = Vec::new();
        for (member, state) in &self.containers {
            let (is_working, has_group) = (state.is_working(), sight(member).has_group);
            if is_working || has_group || !state.is_whole() {
                let tenant = TenantShare { owes: owed(state), ..state.tenant };
                let is_known = has_group || state.was_changed || !engine_converts;
                let weighs = if is_known { state.weighs } else { 0 };
                members.push(*member);
                all.push(WeighedContainer { tenant, weighs, is_working });
            }
        }
        let mut changes = LookChanges::default();
        for (place, weight) in weigh(&all) {
            let member = members[place];
            if let Some(change) = self.change(&mut changes, member, sight(&member).has_group, now) {
                change.weight = Some(weight);
            }
        }
        for (member, one) in members.into_iter().zip(all) {
            let own = sight(&member).processors;
            let to = match left {
                // Another container may have more processors than this one.
                Confinement::Last(count) if one.tenant.owes && own.is_none_or(|own| count < own) => left,
                Confinement::Last(_) | Confinement::All => Confinement::All,
            };
            let is_here = own.is_some();
            let is_so = self.containers.get(&member).is_some_and(|state| state.confinement == Some(to));
            if !is_so
                && (is_here || engine_processors > 0)
                && let Some(change) = self.change(&mut changes, member, is_here, now)
            {
                change.confinement = Some(to);
            }
        }
        changes
    }

    /// The change of this container, here or by the engine; `None` if the engine is not to be asked now.
    fn change<'a>(
        &self,
        changes: &'a mut LookChanges,
        member: MemberId,
        is_here: bool,
        now: Instant,
    ) -> Option<&'a mut ContainerChange> {
        if is_here {
            return Some(changes.here.entry(member).or_default());
        }
        let may_ask = self.containers.get(&member).is_some_and(|state| state.may_ask(now));
        may_ask.then(|| changes.by_engine.entry(member).or_default())
    }

    /// A change was made.
    pub(super) fn was_given(&mut self, member: MemberId, change: ContainerChange) {
        if let Some(state) = self.containers.get_mut(&member) {
            state.weighs = change.weight.unwrap_or(state.weighs);
            state.confinement = change.confinement.or(state.confinement);
            state.last_known = state.confinement.unwrap_or(state.last_known);
            state.was_changed = true;
        }
    }

    /// The engine has not made a change, or nobody knows whether it has.
    pub(super) fn was_refused(&mut self, member: MemberId, now: Instant) {
        if let Some(state) = self.containers.get_mut(&member) {
            (state.weighs, state.confinement, state.again) = (0, None, Some(now + AGAIN));
        }
    }
}
