//! The permits: which session has one, which calls wait for one, and which resting session is evicted for it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use super::parts::Parts;
use super::state::{Chore, Occupancy, SessionState};
use super::{Action, CallId, Core, Denial, ReleaseReason, SLICE, SessionKey};
use crate::session::SessionsInUse;
use crate::tenants::fair::{Mark, Refused, refused};
use crate::tenants::{TenantId, TenantShare};

/// How long a session must have rested before a tenant that has more of them may evict that of another. Its
/// owner is not at work then, and loses the start of a container at most.
pub(super) const AT_REST: Duration = Duration::from_secs(30);

/// Permits beyond `sessions.max` that only operators may have: they get in when everything is in use.
pub(super) const FOR_OPERATORS: usize = 1;

/// The permit of one session.
#[derive(Debug)]
pub(super) struct PermitHeld {
    /// When it was granted.
    since: Instant,
    /// How often it was granted and not returned.
    copies: usize,
    /// Whose session it is.
    tenant: TenantShare,
}

/// A call that waits for a permit. It is in its session meanwhile.
#[derive(Debug)]
pub(super) struct Want {
    key: SessionKey,
    call: CallId,
    deadline: Instant,
    tenant: TenantShare,
    /// Its place in the order of service.
    mark: Mark,
}

#[cfg(test)]
impl Want {
    /// Whether this call waits.
    pub(super) fn is_of(&self, call: CallId) -> bool {
        self.call == call
    }
}

impl Core {
    pub(super) fn want(
        &mut self,
        key: SessionKey,
        call: CallId,
        (waits, tenant): (bool, TenantShare),
        now: Instant,
        actions: &mut Vec<Action>,
    ) {
        let inside = self.sessions.get(&key).and_then(|state| state.find_inside(call));
        let deadline = inside.map(|inside| inside.since + self.terms.wait);
        let why = match deadline {
            _ if self.shutting_down => Denial::ShuttingDown,
            _ if self.permits.contains_key(&key) => return self.grant(key, call, tenant, now, actions),
            // Nobody waits who could have it instead: each call that can have a permit has got it.
            _ if self.may_have(tenant, now) => {
                let mark = self.rounds.arrive(tenant);
                self.rounds.served(mark);
                return self.grant(key, call, tenant, now, actions);
            }
            Some(_) if waits && !self.terms.evicts => self.full_for(tenant).unwrap_or(Denial::NoEviction),
            Some(deadline) if waits && deadline > now => match self.place_for(tenant, actions) {
                Ok(()) => {
                    self.deadlines.insert((deadline, call, key.clone()));
                    let mark = self.rounds.arrive(tenant);
                    let at = self.wants.partition_point(|other| other.mark <= mark);
                    self.wants.insert(at, Want { key, call, deadline, tenant, mark });
                    return self.make_room(now, actions);
                }
                Err(why) => why,
            },
            _ => self.full_for(tenant).unwrap_or(Denial::PermitTooLate),
        };
        actions.push(Action::Deny { key, call, why });
    }

    /// Why a program of this session gets no permit, if that is certain before anything is done for it: a
    /// burst of calls that are refused must not read the store for each of them, nor wait for places that
    /// the work of others has. Where calls are in the session or wait in it, a program is judged in its turn.
    pub(in crate::session::gate) fn refuses(&self, key: &SessionKey, tenant: TenantShare) -> Option<Denial> {
        let is_judged_later = self.permits.contains_key(key)
            || self.sessions.get(key).is_some_and(|state| !state.is_idle())
            || self.shutting_down;
        // Before time has passed at all, nobody has a permit.
        if is_judged_later || self.now.is_none_or(|now| self.may_have(tenant, now)) {
            return None;
        }
        if !self.terms.evicts {
            return Some(self.full_for(tenant).unwrap_or(Denial::NoEviction));
        }
        let waiting = self.wants.len();
        let is_refused = waiting >= self.terms.permit_queue
            && refused(tenant, self.wants.iter().map(|want| want.tenant)) == Refused::Newcomer;
        is_refused.then_some(Denial::PermitQueueFull(waiting))
    }

    /// Makes sure that one more call of this tenant may wait: of the tenant that has most waiting, the last
    /// call is denied instead.
    fn place_for(&mut self, tenant: TenantShare, actions: &mut Vec<Action>) -> Result<(), Denial> {
        let waiting = self.wants.len();
        if waiting < self.terms.permit_queue {
            return Ok(());
        }
        let full = Denial::PermitQueueFull(waiting);
        let Refused::LastOf(worst) = refused(tenant, self.wants.iter().map(|want| want.tenant)) else {
            return Err(full);
        };
        let last = self.wants.iter().rev().find(|want| want.tenant.id == worst);
        let Some((key, call)) = last.map(|want| (want.key.clone(), want.call)) else { return Err(full) };
        self.end_want(call);
        actions.push(Action::Deny { key, call, why: full });
        Ok(())
    }

    /// Permits of one tenant.
    fn held_by(&self, tenant: TenantId) -> usize {
        self.permits.values().filter(|permit| permit.tenant.id == tenant).count()
    }

    /// That the tenant has as many sessions as its limit allows, if it has.
    fn full_for(&self, tenant: TenantShare) -> Option<Denial> {
        let most = tenant.sessions?;
        (self.held_by(tenant.id) >= most).then_some(Denial::TenantFull(most))
    }

    /// Whether one more session of this tenant may have a permit now. The last one is kept, where there are
    /// other tenants, for one that has none, and for one at work that has less than its part.
    fn may_have(&self, tenant: TenantShare, now: Instant) -> bool {
        if self.full_for(tenant).is_some() {
            return false;
        }
        let (taken, most) = (self.permits.len(), self.terms.permits);
        if tenant.is_operator {
            return taken < most + FOR_OPERATORS;
        }
        if taken + 1 != most || most == 1 {
            return taken < most;
        }
        self.may_have_last(tenant, None, now)
    }

    /// Whether a tenant may have the last permit that is free; or would be, without the session `but`.
    fn may_have_last(&self, tenant: TenantShare, but: Option<&SessionKey>, now: Instant) -> bool {
        let others = || self.permits.iter().filter(|(key, _)| Some(*key) != but);
        let parts = Parts::new(self.terms.permits, others().map(|(_, permit)| permit.tenant));
        let is_at_work = |state: &SessionState| !state.is_idle() || state.used + AT_REST > now;
        let is_kept = |(key, permit): (&SessionKey, &PermitHeld)| {
            permit.tenant.id != tenant.id
                && parts.has_room(permit.tenant)
                && self.sessions.get(key).is_some_and(is_at_work)
        };
        parts.has_none(tenant.id)
            || parts.holders() >= tenant.tenants && (parts.has_room(tenant) || !others().any(is_kept))
    }

    /// A copy of the session's permit was dropped.
    pub(super) fn give_back(&mut self, key: &SessionKey, now: Instant, actions: &mut Vec<Action>) {
        let Some(permit) = self.permits.get_mut(key) else { return };
        permit.copies -= 1;
        if permit.copies == 0 {
            self.permits.remove(key);
            self.settle(key, now, actions);
        }
    }

    /// The call that is served next of those that wait for a permit, and its session.
    pub(super) fn first_want(&self) -> Option<(SessionKey, CallId)> {
        self.wants.front().map(|want| (want.key.clone(), want.call))
    }

    /// Why a call whose time is over got no permit.
    pub(super) fn too_late(&self, call: CallId) -> Denial {
        let tenant = self.wants.iter().find(|want| want.call == call).map(|want| want.tenant);
        tenant.and_then(|tenant| self.full_for(tenant)).unwrap_or(Denial::PermitTooLate)
    }

    /// The call waits for no permit any more; false if it did not.
    pub(super) fn end_want(&mut self, call: CallId) -> bool {
        let Some(want) = self.take_want(call) else { return false };
        self.went_away(want.tenant);
        true
    }

    /// A call of this tenant waits no more, and was not served.
    fn went_away(&mut self, tenant: TenantShare) {
        let last = self.wants.iter().rev().find(|want| want.tenant.id == tenant.id).map(|want| want.mark);
        self.rounds.went_away(tenant, last);
    }

    fn take_want(&mut self, call: CallId) -> Option<Want> {
        let at = self.wants.iter().position(|want| want.call == call)?;
        let want = self.wants.remove(at)?;
        self.deadlines.remove(&(want.deadline, call, want.key.clone()));
        Some(want)
    }

    fn grant(
        &mut self,
        key: SessionKey,
        call: CallId,
        tenant: TenantShare,
        now: Instant,
        actions: &mut Vec<Action>,
    ) {
        self.permits.entry(key.clone()).or_insert(PermitHeld { since: now, copies: 0, tenant }).copies += 1;
        self.count_rest(&key); // a session that no call is in gets a container of an earlier daemon
        actions.push(Action::Grant { key, call });
    }

    /// Grants what is free, and evicts as many resting sessions as there are others that want a permit.
    pub(super) fn make_room(&mut self, now: Instant, actions: &mut Vec<Action>) {
        while let Some(key) =
            self.wants.iter().find(|want| self.may_have(want.tenant, now)).map(|want| want.key.clone())
        {
            let of_session: Vec<CallId> =
                self.wants.iter().filter(|want| want.key == key).map(|want| want.call).collect();
            let mut is_first = true;
            for call in of_session {
                let Some(want) = self.take_want(call) else { continue };
                // All calls of a session have its one permit.
                if std::mem::take(&mut is_first) {
                    self.rounds.served(want.mark);
                } else {
                    self.went_away(want.tenant);
                }
                self.grant(key.clone(), call, want.tenant, now, actions);
            }
        }
        if self.wants.is_empty() {
            return;
        }
        let mut seen = BTreeSet::new();
        let wanting: Vec<TenantShare> =
            self.wants.iter().filter(|want| seen.insert(&want.key)).map(|want| want.tenant).collect();
        let coming = self.permits.keys().filter(|key| self.gives_back(key)).count();
        for tenant in wanting.into_iter().skip(coming) {
            self.evict(Some(tenant), now, actions);
        }
    }

    /// Whether the permit of this session is about to come back.
    fn gives_back(&self, key: &SessionKey) -> bool {
        let occupancy = self.sessions.get(key).map(|state| &state.occupancy);
        matches!(occupancy, Some(Occupancy::Chore(Chore::Release(_) | Chore::Close { .. })))
    }

    /// A container cannot be started beside all others: a session that rests gives its own up.
    pub(super) fn pool_full(&mut self, now: Instant, actions: &mut Vec<Action>) {
        if self.terms.evicts {
            self.evict(None, now, actions);
        }
    }

    /// A tenant may have another number of sessions from now on, and gives up some that rest.
    pub(super) fn limit(
        &mut self,
        tenant: TenantShare,
        gives_up: u64,
        now: Instant,
        actions: &mut Vec<Action>,
    ) {
        for want in self.wants.iter_mut().filter(|want| want.tenant.id == tenant.id) {
            want.tenant.sessions = tenant.sessions;
        }
        for _ in 0..gives_up {
            let resting = self.permits.iter().filter_map(|(key, permit)| {
                let state = self.sessions.get(key).filter(|state| state.is_idle())?;
                (permit.tenant.id == tenant.id).then_some((state.used, key))
            });
            let Some(key) = resting.min().map(|(_, key)| key.clone()) else { break };
            self.release(&key, ReleaseReason::Evicted, actions);
        }
        self.make_room(now, actions);
    }

    /// Of each owner: sessions that have a permit, those of them that rest, and those that wait for one.
    pub(in crate::session::gate) fn use_by_owner(&self) -> BTreeMap<String, SessionsInUse> {
        let mut owners: BTreeMap<String, SessionsInUse> = BTreeMap::new();
        for key in self.permits.keys() {
            let owner = owners.entry(key.owner().to_owned()).or_default();
            owner.live += 1;
            owner.resting += usize::from(self.sessions.get(key).is_some_and(SessionState::is_idle));
        }
        let waiting: BTreeSet<&SessionKey> = self.wants.iter().map(|want| &want.key).collect();
        for key in waiting {
            owners.entry(key.owner().to_owned()).or_default().waiting += 1;
        }
        owners
    }

    /// Counts that a session came to rest, if it has a permit: from now on it can be evicted.
    pub(super) fn count_rest(&mut self, key: &SessionKey) {
        let rests = self.sessions.get(key).is_some_and(SessionState::is_resting);
        if rests && self.permits.contains_key(key) {
            self.rests += 1;
        }
    }

    /// Evicts the least recently used session that rests, for a tenant; without one, of the tenant that has
    /// most. False if there is none.
    ///
    /// The sessions of a tenant that has its part go first; those of others go first for one that has less.
    /// They go only if their tenant has more of them than this one would have, each by its weight; if this
    /// one has none at all; or if they have rested for [`AT_REST`].
    fn evict(&mut self, by: Option<TenantShare>, now: Instant, actions: &mut Vec<Action>) -> bool {
        let parts = Parts::new(self.terms.permits, self.permits.values().map(|permit| permit.tenant));
        let of = |tenant: TenantShare| parts.held(tenant.id);
        let resting = self.permits.iter().filter_map(|(key, permit)| {
            let state = self.sessions.get(key).filter(|state| state.is_resting())?;
            let is_spared = state.counted() > 0 && now.saturating_duration_since(permit.since) < SLICE;
            (!is_spared).then_some((state.used, key, permit.tenant))
        });
        let chosen = match by {
            Some(by) => resting
                .filter(|&(_, key, owner)| by.id == owner.id || self.would_have(by, key, now))
                .filter(|&(used, _, owner)| {
                    by.id == owner.id || may_evict((by, of(by)), (owner, of(owner)), used, now)
                })
                .min_by_key(|&(used, key, owner)| ((owner.id == by.id) == parts.has_room(by), used, key)),
            // The loads of two tenants, by their weights: a / b > c / d  ⇔  a · d > c · b.
            None => resting.min_by(|a, b| {
                let load =
                    |owner: TenantShare, other: TenantShare| of(owner) * u64::from(other.weight.max(1));
                load(b.2, a.2).cmp(&load(a.2, b.2)).then_with(|| (a.0, a.1).cmp(&(b.0, b.1)))
            }),
        };
        let Some(key) = chosen.map(|(_, key, _)| key.clone()) else { return false };
        self.release(&key, ReleaseReason::Evicted, actions);
        true
    }

    /// Whether a tenant could have the permit of this session of another one: the last one may be kept.
    fn would_have(&self, by: TenantShare, key: &SessionKey, now: Instant) -> bool {
        let is_last = self.permits.len() == self.terms.permits && self.terms.permits > 1;
        by.is_operator || !is_last || self.may_have_last(by, Some(key), now)
    }

    /// When time alone lets a waiting call evict a session of another tenant.
    pub(super) fn next_at_rest(&self, now: Instant) -> Option<Instant> {
        if self.wants.is_empty() {
            return None;
        }
        let resting = self.permits.iter().filter_map(|(key, permit)| {
            let state = self.sessions.get(key).filter(|state| state.is_resting())?;
            let of_another = self.wants.iter().any(|want| want.tenant.id != permit.tenant.id);
            of_another.then_some(state.used + AT_REST)
        });
        resting.filter(|at| *at > now).min()
    }

    /// Permits of each owner.
    pub(in crate::session::gate) fn permits_by_owner(&self) -> BTreeMap<String, usize> {
        let mut owners = BTreeMap::new();
        for key in self.permits.keys() {
            *owners.entry(key.owner().to_owned()).or_default() += 1;
        }
        owners
    }
}

/// Whether a tenant that has so many permits may evict a session of another, which has so many.
fn may_evict(
    (by, by_held): (TenantShare, u64),
    (owner, held): (TenantShare, u64),
    used: Instant,
    now: Instant,
) -> bool {
    let is_full = by.sessions.is_some_and(|most| by_held >= most as u64);
    let has_less = held * u64::from(by.weight.max(1)) > (by_held + 1) * u64::from(owner.weight.max(1));
    !is_full && (by_held == 0 || has_less || by.is_operator || now.saturating_duration_since(used) >= AT_REST)
}
