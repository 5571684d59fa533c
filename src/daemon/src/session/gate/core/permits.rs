//! The permits: which session has one, which calls wait for one, and which resting session is evicted for it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use super::parts::Parts;
use super::state::{Chore, Occupancy, SessionState};
use super::{Action, CallId, Core, Denial, ReleaseReason, SLICE, SessionKey};
use crate::session::SessionsInUse;
use crate::tenants::fair::{Mark, Refused, refused};
use crate::tenants::{TenantId, TenantShare};

/// A tenant is at work with a session until the session has rested for this long. Then a tenant that has more
/// of them may evict it: its owner loses the start of a container at most.
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
            _ if self.parts(now).may_have(tenant) => {
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
    pub(in crate::session::gate) fn refuses(
        &self,
        key: &SessionKey,
        tenant: TenantShare,
        now: Instant,
    ) -> Option<Denial> {
        let is_judged_later = self.permits.contains_key(key)
            || self.sessions.get(key).is_some_and(|state| !state.is_idle())
            || self.shutting_down;
        if is_judged_later || self.parts(now).may_have(tenant) {
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

    /// Who has the permits now.
    fn parts(&self, now: Instant) -> Parts {
        self.parts_without(|_| false, now)
    }

    fn parts_without(&self, is_left_out: impl Fn(&SessionKey) -> bool, now: Instant) -> Parts {
        let is_at_work = |state: &SessionState| !state.is_idle() || state.used + AT_REST > now;
        let counted = self.permits.iter().filter(|(key, _)| !is_left_out(key));
        Parts::new(
            self.terms.permits,
            counted.map(|(key, permit)| (permit.tenant, self.sessions.get(key).is_some_and(is_at_work))),
        )
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

    /// Grants what is free, and evicts sessions that rest for the others that want a permit.
    pub(super) fn make_room(&mut self, now: Instant, actions: &mut Vec<Action>) {
        while let Some(key) = self.next_granted(now) {
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
        let mut seen = BTreeSet::new();
        let wanting: Vec<TenantShare> =
            self.wants.iter().filter(|want| seen.insert(&want.key)).map(|want| want.tenant).collect();
        if wanting.is_empty() {
            return;
        }
        // As it will be: what comes back is free, and who is served before has its permit.
        let mut parts = self.parts_without(|key| self.gives_back(key), now);
        let mut in_vain = BTreeSet::new();
        for tenant in wanting {
            if !parts.may_have(tenant)
                && !in_vain.contains(&tenant.id)
                && let Some(owner) = self.evict_for(tenant, &parts, now, actions)
            {
                parts.lose(owner);
            }
            if parts.may_have(tenant) {
                parts.give(tenant);
            } else {
                in_vain.insert(tenant.id);
            }
        }
    }

    /// The session of the first call that may have a permit now.
    fn next_granted(&self, now: Instant) -> Option<SessionKey> {
        if self.wants.is_empty() {
            return None;
        }
        let parts = self.parts(now);
        self.wants.iter().find(|want| parts.may_have(want.tenant)).map(|want| want.key.clone())
    }

    /// Whether the permit of this session is about to come back.
    fn gives_back(&self, key: &SessionKey) -> bool {
        let occupancy = self.sessions.get(key).map(|state| &state.occupancy);
        matches!(occupancy, Some(Occupancy::Chore(Chore::Release(_) | Chore::Close { .. })))
    }

    /// A container cannot be started beside all others: a session that rests gives its own up.
    pub(super) fn pool_full(&mut self, now: Instant, actions: &mut Vec<Action>) {
        if self.terms.evicts {
            self.evict_of_most(now, actions);
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
        let waiting = self.wants.iter_mut().map(|want| &mut want.tenant);
        let having = self.permits.values_mut().map(|permit| &mut permit.tenant);
        for known in waiting.chain(having).filter(|known| known.id == tenant.id) {
            known.sessions = tenant.sessions;
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

    /// The sessions that rest and are not spared: when each was used last, and whose it is.
    fn evictable(&self, now: Instant) -> impl Iterator<Item = (Instant, &SessionKey, TenantShare)> {
        self.permits.iter().filter_map(move |(key, permit)| {
            let state = self.sessions.get(key).filter(|state| state.is_resting())?;
            let is_spared = state.counted() > 0 && now.saturating_duration_since(permit.since) < SLICE;
            (!is_spared).then_some((state.used, key, permit.tenant))
        })
    }

    /// Evicts the least recently used session that rests, of those that go first for this tenant; whose it
    /// was.
    ///
    /// A session of another tenant goes only if that one has more of them than this one would have; if this
    /// one has none at all, or is an operator; or if it has rested for [`AT_REST`]. Sessions of tenants that
    /// have more go first if this one has less than its part, and otherwise its own do.
    fn evict_for(
        &mut self,
        by: TenantShare,
        parts: &Parts,
        now: Instant,
        actions: &mut Vec<Action>,
    ) -> Option<TenantId> {
        let (has_none, has_room) = (parts.held(by.id) == 0, parts.has_room(by));
        let mut verdicts: BTreeMap<TenantId, (bool, bool)> = BTreeMap::new();
        let chosen = self.evictable(now).filter_map(|(used, key, owner)| {
            let is_own = owner.id == by.id;
            let (has_more, may_have) = *verdicts.entry(owner.id).or_insert_with(|| {
                let has_more = has_none || by.is_operator || parts.has_more(by, owner);
                (has_more, is_own || !parts.is_full(by) && parts.may_have_of(by, owner.id))
            });
            let is_away = now.saturating_duration_since(used) >= AT_REST;
            let rank = match (is_own, has_more) {
                (true, _) => 1,
                (false, true) if has_room => 0,
                (false, true) => 2,
                (false, false) if is_away => 2,
                (false, false) => return None,
            };
            may_have.then_some((rank, used, key, owner.id))
        });
        let (_, _, key, owner) = chosen.min()?;
        let key = key.clone();
        self.release(&key, ReleaseReason::Evicted, actions);
        Some(owner)
    }

    /// Evicts the least recently used session that rests, of the tenant that has most.
    fn evict_of_most(&mut self, now: Instant, actions: &mut Vec<Action>) {
        let parts = self.parts(now);
        // The loads of two tenants, by their weights: a / b > c / d  ⇔  a · d > c · b.
        let load = |owner: TenantShare, other: TenantShare| {
            parts.held(owner.id) as u64 * u64::from(other.weight.max(1))
        };
        let chosen = self
            .evictable(now)
            .min_by(|a, b| load(b.2, a.2).cmp(&load(a.2, b.2)).then_with(|| (a.0, a.1).cmp(&(b.0, b.1))));
        if let Some(key) = chosen.map(|(_, key, _)| key.clone()) {
            self.release(&key, ReleaseReason::Evicted, actions);
        }
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

    /// Whether a session has a permit.
    pub(in crate::session::gate) fn is_live(&self, key: &SessionKey) -> bool {
        self.permits.contains_key(key)
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
