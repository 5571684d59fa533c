//! What happens every so often: idle sessions lose their containers, unused files expire, resting sessions
//! are forgotten. And the end of the daemon.

use std::collections::BTreeSet;
use std::time::Instant;

use super::state::{Chore, Occupancy, Purpose, SessionState};
use super::{Action, Core, Denial, ReleaseReason, SessionKey};

/// When the next sweep is due, and how far the last one is.
#[derive(Debug, Default)]
pub(super) struct Sweeping {
    /// `None` before the first one, and once the daemon shuts down.
    next: Option<Instant>,
    /// When the driver began to look for unused files, if it has not answered yet.
    looking: Option<Instant>,
}

impl Sweeping {
    pub(super) fn next(&self) -> Option<Instant> {
        self.next
    }

    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.next.is_some_and(|next| next <= now)
    }
}

impl Core {
    pub(super) fn start_sweeping(&mut self, now: Instant, actions: &mut Vec<Action>) {
        if self.sweeping.next.is_none() && !self.shutting_down {
            self.sweep(now, actions);
        }
    }

    pub(super) fn sweep(&mut self, now: Instant, actions: &mut Vec<Action>) {
        // A `ttl` below `sweep` would else be kept late.
        self.sweeping.next = Some(now + self.terms.sweep.min(self.terms.ttl));
        let ttl = self.terms.ttl;
        let is_over =
            |state: &SessionState| state.is_resting() && now.saturating_duration_since(state.used) >= ttl;
        let with_permit = self.permits.keys().filter(|key| self.sessions.get(*key).is_some_and(is_over));
        for key in with_permit.cloned().collect::<Vec<_>>() {
            self.release(&key, ReleaseReason::Idle, actions);
        }
        actions.push(Action::AskHolders);
        if self.terms.expires && self.sweeping.looking.is_none() {
            self.sweeping.looking = Some(now);
            actions.push(Action::LookForUnused);
        }
    }

    /// Forgets the sessions that rest without containers, unless something still needs them in memory.
    pub(super) fn forget(
        &mut self,
        held: &[SessionKey],
        untold: &[SessionKey],
        now: Instant,
        actions: &mut Vec<Action>,
    ) {
        let held: BTreeSet<_> = held.iter().collect();
        let untold: BTreeSet<_> = untold.iter().collect();
        let is_needed = |key: &SessionKey, state: &SessionState| {
            let is_news = untold.contains(key) && now.saturating_duration_since(state.used) < self.terms.ttl;
            !state.is_idle() || self.permits.contains_key(key) || held.contains(key) || is_news
        };
        let unneeded = self.sessions.iter().filter(|(key, state)| !is_needed(key, state));
        for key in unneeded.map(|(key, _)| key.clone()).collect::<Vec<_>>() {
            self.drop_from_memory(&key, actions);
        }
    }

    /// Deletes the files of these sessions, except sessions that a call used since the driver began to look.
    pub(super) fn expire(&mut self, keys: Vec<SessionKey>, now: Instant, actions: &mut Vec<Action>) {
        let Some(looked) = self.sweeping.looking.take() else { return };
        for key in keys {
            let has_permit = self.permits.contains_key(&key);
            let occupancy = Occupancy::Chore(Chore::Expire);
            match self.sessions.get_mut(&key) {
                Some(state) if has_permit || !state.is_idle() || state.is_used_since(looked) => continue,
                Some(state) => state.occupancy = occupancy,
                None => drop(self.sessions.insert(key.clone(), SessionState::new(occupancy, now))),
            }
            actions.push(Action::Delete { key, call: None });
        }
    }

    pub(super) fn shut_down(&mut self, now: Instant, actions: &mut Vec<Action>) {
        self.shutting_down = true;
        self.sweeping = Sweeping::default();
        let why = Denial::ShuttingDown;
        while let Some((key, call)) = self.first_want() {
            self.end_want(call);
            actions.push(Action::Deny { key, call, why });
        }
        for key in self.sessions.keys().cloned().collect::<Vec<_>>() {
            for call in self.end_waits(&key, |purpose| matches!(purpose, Purpose::Enter { .. })) {
                actions.push(Action::Deny { key: key.clone(), call, why });
            }
            self.settle(&key, now, actions);
        }
    }
}
