//! The permits: which session has one, which calls wait for one, and which resting session is evicted for it.

use std::collections::BTreeSet;
use std::time::Instant;

use super::state::{Chore, Occupancy, SessionState};
use super::{Action, CallId, Core, Denial, ReleaseReason, SLICE, SessionKey};

/// The permit of one session.
#[derive(Debug)]
pub(super) struct PermitHeld {
    /// When it was granted.
    since: Instant,
    /// How often it was granted and not returned.
    copies: usize,
}

/// A call that waits for a permit. It is in its session meanwhile.
#[derive(Debug)]
pub(super) struct Want {
    key: SessionKey,
    call: CallId,
    deadline: Instant,
}

impl Core {
    pub(super) fn want(
        &mut self,
        key: SessionKey,
        call: CallId,
        waits: bool,
        now: Instant,
        actions: &mut Vec<Action>,
    ) {
        let inside = self.sessions.get(&key).and_then(|state| state.find_inside(call));
        let deadline = inside.map(|inside| inside.since + self.terms.wait);
        let is_free = self.permits.len() < self.terms.permits; // a call waits only while none is
        let why = match deadline {
            _ if self.shutting_down => Denial::ShuttingDown,
            _ if self.permits.contains_key(&key) || is_free => return self.grant(key, call, now, actions),
            Some(_) if waits && !self.terms.evicts => Denial::NoEviction,
            Some(deadline) if waits && deadline > now => {
                if self.wants.len() < self.terms.permit_queue {
                    self.deadlines.insert((deadline, call, key.clone()));
                    self.wants.push_back(Want { key, call, deadline });
                    return self.make_room(now, actions);
                }
                Denial::PermitQueueFull(self.wants.len())
            }
            _ => Denial::PermitTooLate,
        };
        actions.push(Action::Deny { key, call, why });
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

    /// The call that has waited for a permit for longest, and its session.
    pub(super) fn first_want(&self) -> Option<(SessionKey, CallId)> {
        self.wants.front().map(|want| (want.key.clone(), want.call))
    }

    /// The call waits for no permit any more; false if it did not.
    pub(super) fn end_want(&mut self, call: CallId) -> bool {
        let Some(at) = self.wants.iter().position(|want| want.call == call) else { return false };
        if let Some(want) = self.wants.remove(at) {
            self.deadlines.remove(&(want.deadline, call, want.key));
        }
        true
    }

    fn grant(&mut self, key: SessionKey, call: CallId, now: Instant, actions: &mut Vec<Action>) {
        self.permits.entry(key.clone()).or_insert(PermitHeld { since: now, copies: 0 }).copies += 1;
        self.count_rest(&key); // a session that no call is in gets a container of an earlier daemon
        actions.push(Action::Grant { key, call });
    }

    /// Grants what is free, and evicts as many resting sessions as there are others that want a permit.
    pub(super) fn make_room(&mut self, now: Instant, actions: &mut Vec<Action>) {
        while self.permits.len() < self.terms.permits
            && let Some(key) = self.wants.front().map(|want| want.key.clone())
        {
            let of_session = self.wants.iter().filter(|want| want.key == key);
            for call in of_session.map(|want| want.call).collect::<Vec<_>>() {
                self.end_want(call);
                self.grant(key.clone(), call, now, actions);
            }
        }
        if self.wants.is_empty() {
            return;
        }
        let wanting = self.wants.iter().map(|want| &want.key).collect::<BTreeSet<_>>().len();
        let gives_back = |key: &&SessionKey| {
            let occupancy = self.sessions.get(*key).map(|state| &state.occupancy);
            matches!(occupancy, Some(Occupancy::Chore(Chore::Release(_) | Chore::Close { .. })))
        };
        let coming = self.permits.keys().filter(gives_back).count();
        for _ in coming..wanting {
            if !self.evict(now, actions) {
                return;
            }
        }
    }

    /// A container cannot be started beside all others: a session that rests gives its own up.
    pub(super) fn pool_full(&mut self, now: Instant, actions: &mut Vec<Action>) {
        if self.terms.evicts {
            self.evict(now, actions);
        }
    }

    /// Counts that a session came to rest, if it has a permit: from now on it can be evicted.
    pub(super) fn count_rest(&mut self, key: &SessionKey) {
        let rests = self.sessions.get(key).is_some_and(SessionState::is_resting);
        if rests && self.permits.contains_key(key) {
            self.rests += 1;
        }
    }

    /// Evicts the least recently used session that rests; false if there is none.
    fn evict(&mut self, now: Instant, actions: &mut Vec<Action>) -> bool {
        let candidates = self.permits.iter().filter_map(|(key, permit)| {
            let state = self.sessions.get(key).filter(|state| state.is_resting())?;
            let is_spared = state.counted() > 0 && now.saturating_duration_since(permit.since) < SLICE;
            (!is_spared).then_some((state.used, key))
        });
        let Some(key) = candidates.min().map(|(_, key)| key.clone()) else { return false };
        self.release(&key, ReleaseReason::Evicted, actions);
        true
    }
}
