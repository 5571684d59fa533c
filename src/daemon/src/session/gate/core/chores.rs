//! The daemon's own work on a session that no call is in: when it begins, and what follows it.

use std::time::Instant;

use super::state::{Chore, CloseStep, Occupancy, SessionState};
use super::{Action, Core, Denial, ReleaseReason, SessionKey};

impl Core {
    /// A container of a session was lost: it is dropped as soon as the session rests, or replaced before.
    pub(super) fn lost(&mut self, key: &SessionKey, actions: &mut Vec<Action>) {
        if let Some(state) = self.sessions.get_mut(key) {
            state.lost = true;
            self.rest(key, actions);
        }
    }

    /// What a session that rests, and that no call waits for, does not keep.
    pub(super) fn rest(&mut self, key: &SessionKey, actions: &mut Vec<Action>) {
        let has_permit = self.permits.contains_key(key);
        let Some(state) = self.sessions.get_mut(key).filter(|state| state.is_idle()) else { return };
        let was_lost = std::mem::take(&mut state.lost);
        if !has_permit && !state.exists {
            self.drop_from_memory(key, actions);
        } else if has_permit && self.shutting_down {
            self.release(key, ReleaseReason::Shutdown, actions);
        } else if has_permit && was_lost {
            state.occupancy = Occupancy::Chore(Chore::DropLost);
            actions.push(Action::DropLost { key: key.clone() });
        }
    }

    /// Begins to drop the containers of a session that rests.
    pub(super) fn release(&mut self, key: &SessionKey, why: ReleaseReason, actions: &mut Vec<Action>) {
        if let Some(state) = self.sessions.get_mut(key) {
            state.occupancy = Occupancy::Chore(Chore::Release(why));
            actions.push(Action::Release { key: key.clone(), why });
        }
    }

    pub(super) fn drop_from_memory(&mut self, key: &SessionKey, actions: &mut Vec<Action>) {
        if self.sessions.remove(key).is_some_and(|state| state.loaded) {
            actions.push(Action::Forget { key: key.clone() });
        }
    }

    pub(super) fn tidied(&mut self, key: &SessionKey, now: Instant, actions: &mut Vec<Action>) {
        let Some(state) = self.sessions.get_mut(key) else { return };
        match &mut state.occupancy {
            Occupancy::Chore(Chore::Release(_)) => {
                state.lost = false;
                self.end_chore(key, now, actions);
            }
            Occupancy::Chore(Chore::DropLost) => self.end_chore(key, now, actions),
            Occupancy::Chore(Chore::Close { step: CloseStep::Release, .. }) => {
                state.lost = false;
                self.go_on_closing(key, now, actions);
            }
            Occupancy::Chore(Chore::Close { .. } | Chore::Expire)
            | Occupancy::Loading
            | Occupancy::Resting
            | Occupancy::Programs { .. }
            | Occupancy::Whole { .. } => {}
        }
    }

    /// The containers of a session that is being closed are gone. Its files follow, or what the store says of
    /// it.
    pub(super) fn go_on_closing(&mut self, key: &SessionKey, now: Instant, actions: &mut Vec<Action>) {
        let Some(state) = self.sessions.get_mut(key) else { return };
        let Occupancy::Chore(Chore::Close { call, delete, was_closed, step }) = &mut state.occupancy else {
            return;
        };
        let (call, key) = (*call, key.clone());
        if *delete {
            *step = CloseStep::Delete;
            actions.push(Action::Delete { key, call: Some(call) });
        } else if *was_closed {
            actions.push(Action::Closed { key: key.clone(), call, found: false });
            self.end_chore(&key, now, actions);
        } else {
            *step = CloseStep::Keep;
            actions.push(Action::KeepClosed { key });
        }
    }

    pub(super) fn kept_closed(&mut self, key: &SessionKey, now: Instant, actions: &mut Vec<Action>) {
        let Some(state) = self.sessions.get_mut(key) else { return };
        if let Occupancy::Chore(Chore::Close { call, step: CloseStep::Keep, .. }) = state.occupancy {
            state.closed = true;
            actions.push(Action::Closed { key: key.clone(), call, found: true });
            self.end_chore(key, now, actions);
        }
    }

    pub(super) fn deleted(&mut self, key: &SessionKey, found: bool, now: Instant, actions: &mut Vec<Action>) {
        let Some(state) = self.sessions.get_mut(key) else { return };
        match state.occupancy {
            Occupancy::Chore(Chore::Expire) => {}
            Occupancy::Chore(Chore::Close { call, was_closed, step: CloseStep::Delete, .. }) => {
                actions.push(Action::Closed { key: key.clone(), call, found: found || !was_closed });
            }
            Occupancy::Chore(Chore::Close { .. } | Chore::Release(_) | Chore::DropLost)
            | Occupancy::Loading
            | Occupancy::Resting
            | Occupancy::Programs { .. }
            | Occupancy::Whole { .. } => return,
        }
        if state.loaded {
            actions.push(Action::Forget { key: key.clone() });
        }
        self.load_anew(key, now, actions);
    }

    pub(super) fn not_deleted(&mut self, key: &SessionKey, now: Instant, actions: &mut Vec<Action>) {
        let Some(state) = self.sessions.get_mut(key) else { return };
        match state.occupancy {
            Occupancy::Chore(Chore::Expire) if state.loaded => self.end_chore(key, now, actions),
            Occupancy::Chore(Chore::Expire) => self.load_anew(key, now, actions),
            Occupancy::Chore(Chore::Close { call, step: CloseStep::Delete, .. }) => {
                actions.push(Action::Deny { key: key.clone(), call, why: Denial::StoreFailed });
                self.end_chore(key, now, actions);
            }
            Occupancy::Chore(Chore::Close { .. } | Chore::Release(_) | Chore::DropLost)
            | Occupancy::Loading
            | Occupancy::Resting
            | Occupancy::Programs { .. }
            | Occupancy::Whole { .. } => {}
        }
    }

    /// The session is not in memory any more: the calls that wait for it get the next one.
    fn load_anew(&mut self, key: &SessionKey, now: Instant, actions: &mut Vec<Action>) {
        let Some(state) = self.sessions.get_mut(key) else { return };
        if state.waiting.is_empty() && state.openers.is_empty() {
            self.sessions.remove(key);
        } else {
            let next = SessionState::new(Occupancy::Loading, now);
            let before = std::mem::replace(state, next);
            (state.waiting, state.openers) = (before.waiting, before.openers);
            actions.push(Action::Load { key: key.clone() });
        }
    }

    /// The session rests again: the calls that came meanwhile are next.
    fn end_chore(&mut self, key: &SessionKey, now: Instant, actions: &mut Vec<Action>) {
        if let Some(state) = self.sessions.get_mut(key) {
            state.occupancy = Occupancy::Resting;
            self.answer_openers(key, now, actions);
            self.settle(key, now, actions);
        }
    }
}
