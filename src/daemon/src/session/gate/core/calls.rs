//! The calls of a session: how they come, wait, come in and go.

use std::time::Instant;

use super::state::{Chore, CloseStep, Occupancy, Purpose, SessionState, WaitingCall};
use super::{Action, CallId, Core, Denial, ReleaseReason, SessionKey, TurnKind};

impl Core {
    pub(super) fn enter(
        &mut self,
        key: SessionKey,
        call: CallId,
        kind: TurnKind,
        waits: bool,
        now: Instant,
        actions: &mut Vec<Action>,
    ) {
        if self.shutting_down {
            return actions.push(Action::Deny { key, call, why: Denial::ShuttingDown });
        }
        let (deadline, queue) = (now + self.terms.wait, self.terms.queue);
        let state = self.known(&key, now, actions);
        if !kind.is_ordered() && kind.is_ended_by_close() && state.is_to_be_closed() {
            return actions.push(Action::Deny { key, call, why: Denial::Closed });
        }
        // While the daemon itself keeps calls out, the first of them waits for no other call.
        let bound = queue + usize::from(state.is_held_by_daemon());
        let before = state.counted();
        state.waiting.push_back(WaitingCall { call, purpose: Purpose::Enter { kind, waits, since: now } });
        self.let_in(&key, now, actions);
        if !self.sessions.get(&key).is_some_and(|state| state.waits(call)) {
            return;
        }
        if waits && before >= bound {
            self.end_wait(&key, call);
            actions.push(Action::Deny { key, call, why: Denial::QueueFull(before) });
        } else {
            self.deadlines.insert((deadline, call, key));
        }
    }

    pub(super) fn open(
        &mut self,
        key: &SessionKey,
        call: CallId,
        makes: bool,
        now: Instant,
        actions: &mut Vec<Action>,
    ) {
        let state = self.known(key, now, actions);
        state.openers.insert(call, makes);
        self.answer_openers(key, now, actions);
    }

    /// Answers the calls that want to look at a session, once it is loaded and not about to be deleted.
    pub(super) fn answer_openers(&mut self, key: &SessionKey, now: Instant, actions: &mut Vec<Action>) {
        let Some(state) = self.sessions.get_mut(key) else { return };
        let may_be_deleted = match state.occupancy {
            Occupancy::Loading | Occupancy::Chore(Chore::Expire | Chore::Close { delete: true, .. }) => true,
            Occupancy::Resting | Occupancy::Programs { .. } | Occupancy::Whole { .. } => false,
            Occupancy::Chore(Chore::Release(_) | Chore::DropLost | Chore::Close { delete: false, .. }) => {
                false
            }
        };
        if may_be_deleted {
            return;
        }
        let openers = std::mem::take(&mut state.openers);
        state.exists |= openers.values().any(|makes| *makes);
        if !openers.is_empty() && state.exists {
            state.opened = Some(now);
        }
        for call in openers.into_keys() {
            let key = key.clone();
            actions.push(match state.exists {
                true => Action::Opened { key, call },
                false => Action::NotFound { key, call },
            });
        }
    }

    pub(super) fn close(
        &mut self,
        key: &SessionKey,
        call: CallId,
        delete: bool,
        now: Instant,
        actions: &mut Vec<Action>,
    ) {
        let state = self.known(key, now, actions);
        state.waiting.push_back(WaitingCall { call, purpose: Purpose::Close { delete } });
        for call in state.inside() {
            actions.push(Action::Cancel { key: key.clone(), call });
        }
        let ends =
            |purpose: &Purpose| matches!(purpose, Purpose::Enter { kind, .. } if kind.is_ended_by_close());
        for call in self.end_waits(key, ends) {
            actions.push(Action::Deny { key: key.clone(), call, why: Denial::Closed });
        }
        self.let_in(key, now, actions);
        self.rest(key, actions);
    }

    pub(super) fn abandon(
        &mut self,
        key: &SessionKey,
        call: CallId,
        now: Instant,
        actions: &mut Vec<Action>,
    ) {
        let was_waiting = self.end_wait(key, call);
        let was_wanting = self.end_want(call);
        if let Some(state) = self.sessions.get_mut(key) {
            state.openers.remove(&call);
        }
        if was_waiting || was_wanting {
            self.settle(key, now, actions);
        }
    }

    /// Gives a call that is in its session alone the session to itself, until it shares it; false if others
    /// are in.
    pub(in crate::session::gate) fn claim(&mut self, key: &SessionKey, call: CallId) -> bool {
        self.sessions.get_mut(key).is_some_and(|state| state.become_whole(call))
    }

    pub(super) fn share(
        &mut self,
        key: &SessionKey,
        call: CallId,
        language: String,
        now: Instant,
        actions: &mut Vec<Action>,
    ) {
        let Some(state) = self.sessions.get_mut(key) else { return };
        if let Occupancy::Whole { call: whole, inside } = state.occupancy
            && whole == call
        {
            state.become_programs(language, call, inside);
            self.let_in(key, now, actions);
        }
    }

    pub(super) fn leave(&mut self, key: &SessionKey, call: CallId, now: Instant, actions: &mut Vec<Action>) {
        let Some(state) = self.sessions.get_mut(key) else { return };
        if state.go_out(call, now) {
            self.end_want(call);
            self.settle(key, now, actions);
        }
    }

    /// The session. If it was unknown, the driver is to load it.
    fn known(&mut self, key: &SessionKey, now: Instant, actions: &mut Vec<Action>) -> &mut SessionState {
        self.sessions.entry(key.clone()).or_insert_with(|| {
            actions.push(Action::Load { key: key.clone() });
            SessionState::new(Occupancy::Loading, now)
        })
    }

    /// Takes a call out of the queue of its session; false if it did not wait there.
    pub(super) fn end_wait(&mut self, key: &SessionKey, gone: CallId) -> bool {
        let Some(state) = self.sessions.get_mut(key) else { return false };
        let at = state.waiting.iter().position(|waiting| waiting.call == gone);
        let Some(ended) = at.and_then(|at| state.waiting.remove(at)) else { return false };
        self.end_deadline(key, &ended);
        true
    }

    /// Takes all such calls out of the queue of a session.
    pub(super) fn end_waits(&mut self, key: &SessionKey, which: impl Fn(&Purpose) -> bool) -> Vec<CallId> {
        let Some(state) = self.sessions.get_mut(key) else { return Vec::new() };
        let all = std::mem::take(&mut state.waiting);
        let (ended, kept): (Vec<_>, Vec<_>) = all.into_iter().partition(|waiting| which(&waiting.purpose));
        state.waiting = kept.into();
        for waiting in &ended {
            self.end_deadline(key, waiting);
        }
        ended.into_iter().map(|waiting| waiting.call).collect()
    }

    fn end_deadline(&mut self, key: &SessionKey, waiting: &WaitingCall) {
        if let Purpose::Enter { since, .. } = waiting.purpose {
            self.deadlines.remove(&(since + self.terms.wait, waiting.call, key.clone()));
        }
    }

    /// Lets in every call that may come in now, and denies the calls that do not wait for others.
    pub(super) fn let_in(&mut self, key: &SessionKey, now: Instant, actions: &mut Vec<Action>) {
        self.let_in_fitting(key, now, actions);
        // One at a time: a call that is denied may have been in the way of an ordered call behind it.
        while self.deny_impatient(key, actions) {
            self.let_in_fitting(key, now, actions);
        }
    }

    fn let_in_fitting(&mut self, key: &SessionKey, now: Instant, actions: &mut Vec<Action>) {
        while let Some(state) = self.sessions.get_mut(key)
            && let Some(at) = state.next_in()
            && let Some(next) = state.waiting.remove(at)
        {
            match &next.purpose {
                Purpose::Enter { kind, since, .. } => {
                    let (call, since) = (next.call, *since);
                    state.come_in(call, kind, since, now);
                    let note = state.note_use(now);
                    actions.push(Action::Enter { key: key.clone(), call, since, note });
                    if state.is_to_be_closed() {
                        actions.push(Action::Cancel { key: key.clone(), call });
                    }
                    self.end_deadline(key, &next);
                }
                Purpose::Close { delete } => self.begin_close(key, next.call, *delete, now, actions),
            }
        }
    }

    /// Denies the oldest call that does not wait for others; false if there is none.
    fn deny_impatient(&mut self, key: &SessionKey, actions: &mut Vec<Action>) -> bool {
        let state = self.sessions.get(key).filter(|state| !state.is_held_by_daemon());
        let Some(call) = state.and_then(SessionState::first_impatient) else { return false };
        self.end_wait(key, call);
        actions.push(Action::Deny { key: key.clone(), call, why: Denial::Busy });
        true
    }

    /// A call that closes the session has its turn.
    fn begin_close(
        &mut self,
        key: &SessionKey,
        call: CallId,
        delete: bool,
        now: Instant,
        actions: &mut Vec<Action>,
    ) {
        let has_permit = self.permits.contains_key(key);
        let Some(state) = self.sessions.get_mut(key) else { return };
        if !state.exists {
            return actions.push(Action::Closed { key: key.clone(), call, found: false });
        }
        let (was_closed, step) = (state.closed && !has_permit, CloseStep::Release);
        state.occupancy = Occupancy::Chore(Chore::Close { call, delete, was_closed, step });
        if has_permit {
            let why = if delete { ReleaseReason::Deleted } else { ReleaseReason::Closed };
            actions.push(Action::Release { key: key.clone(), why });
        } else {
            self.go_on_closing(key, now, actions);
        }
    }

    pub(super) fn loaded(
        &mut self,
        key: &SessionKey,
        found: bool,
        closed: bool,
        now: Instant,
        actions: &mut Vec<Action>,
    ) {
        let Some(state) = self.sessions.get_mut(key) else { return };
        if !matches!(state.occupancy, Occupancy::Loading) {
            return;
        }
        state.occupancy = Occupancy::Resting;
        (state.loaded, state.closed, state.used) = (true, closed, now);
        let comes_in = |waiting: &WaitingCall| matches!(waiting.purpose, Purpose::Enter { .. });
        state.exists = found || state.waiting.iter().any(comes_in);
        self.answer_openers(key, now, actions);
        self.settle(key, now, actions);
    }

    /// The oldest call is told; each of the others tries for itself, with the next load.
    pub(super) fn load_failed(&mut self, key: &SessionKey, actions: &mut Vec<Action>) {
        let Some(state) = self.sessions.get_mut(key) else { return };
        if !matches!(state.occupancy, Occupancy::Loading) {
            return;
        }
        let opener = state.openers.keys().next().copied();
        let waiting = state.waiting.front().map(|first| first.call);
        if let Some(call) = opener.into_iter().chain(waiting).min() {
            state.openers.remove(&call);
            self.end_wait(key, call);
            actions.push(Action::Deny { key: key.clone(), call, why: Denial::StoreFailed });
        }
        let Some(state) = self.sessions.get(key) else { return };
        if state.waiting.is_empty() && state.openers.is_empty() {
            self.sessions.remove(key);
        } else {
            actions.push(Action::Load { key: key.clone() });
        }
    }
}
