//! What each event changes. Only what the event itself says is done here; what follows from it is decided in
//! [`plan`](super::plan).

use std::time::Instant;

use super::member::{Member, Outlook, Removal, State};
use super::runner::Waiter;
use super::{Action, Core, Event, MemberId, Refusal, RunnerId, StartFailure, WaiterId};

impl Core {
    pub(super) fn apply(&mut self, event: Event, now: Instant, actions: &mut Vec<Action>) {
        match event {
            Event::RunnerAdded { runner } => {
                self.runners.entry(runner).or_default();
            }
            Event::RunnerRemoved { runner } => self.runner_removed(runner, actions),
            Event::Adopted { member, runner, uid, leased } => {
                let state = if leased { State::Leased } else { State::Idle { armed: now } };
                self.adopted(member, Member { runner, uid, state }, actions);
            }
            Event::Request { waiter, runner } => self.request(waiter, runner, now, actions),
            Event::Abandon { waiter } => {
                for runner in self.runners.values_mut() {
                    runner.waiters.retain(|w| w.id != waiter);
                }
            }
            Event::Started { member } => self.started(member, now, actions),
            Event::StartFailed { member, failure } => self.start_failed(member, failure, now, actions),
            Event::Died { member } => self.died(member, now, actions),
            Event::Released { member } => {
                if matches!(self.members.get(&member), Some(Member { state: State::Leased, .. })) {
                    self.destroy(member, actions);
                }
            }
            Event::Destroyed { member } => {
                if matches!(self.members.get(&member), Some(Member { state: State::Destroying { .. }, .. })) {
                    self.members.remove(&member);
                }
            }
            Event::DestroyFailed { member } => self.destroy_failed(member, now),
            Event::EngineDown => self.engine_down(actions),
            Event::EngineUp => self.engine_is_up(actions),
            Event::Tick => {}
            Event::Shutdown => {
                self.shutting_down = true;
                self.refuse_all(Refusal::ShuttingDown, actions);
                self.give_up(actions, |_| true);
            }
        }
    }

    fn runner_removed(&mut self, id: RunnerId, actions: &mut Vec<Action>) {
        if let Some(runner) = self.runners.remove(&id) {
            actions.extend(
                runner
                    .waiters
                    .iter()
                    .map(|w| Action::Refuse { waiter: w.id, refusal: Refusal::UnknownRunner }),
            );
            self.give_up(actions, |member| member.runner == id);
        }
    }

    fn adopted(&mut self, id: MemberId, member: Member, actions: &mut Vec<Action>) {
        if id <= self.last_member {
            return;
        }
        self.last_member = id;
        let unfit = self.members.len() >= self.settings.max_members as usize
            || self.members.values().any(|other| other.uid == member.uid)
            || !self.settings.uid_range.contains(&member.uid.0);
        let unwanted = matches!(member.state, State::Idle { .. }) && !self.may_start();
        self.members.insert(id, member);
        if unfit || unwanted {
            self.destroy(id, actions);
        }
    }

    fn request(&mut self, id: WaiterId, wanted: RunnerId, now: Instant, actions: &mut Vec<Action>) {
        let mut waiting = self.runners.values().flat_map(|r| &r.waiters);
        if waiting.any(|w| w.id == id) {
            return;
        }
        let waiting = self.runners.values().map(|r| r.waiters.len()).sum::<usize>();
        let refuse = |refusal| Action::Refuse { waiter: id, refusal };
        let served_at_once = self.oldest_idle(wanted).is_some();
        match self.runners.get_mut(&wanted) {
            _ if self.shutting_down => actions.push(refuse(Refusal::ShuttingDown)),
            None => actions.push(refuse(Refusal::UnknownRunner)),
            Some(_) if !self.engine_up => actions.push(refuse(Refusal::EngineUnavailable)),
            Some(_) if !served_at_once && waiting >= self.settings.queue as usize => {
                actions.push(refuse(Refusal::QueueFull));
            }
            Some(runner) => runner.waiters.push_back(Waiter { id, asked: now }),
        }
    }

    fn started(&mut self, id: MemberId, now: Instant, actions: &mut Vec<Action>) {
        let Some(member) = self.members.get_mut(&id) else { return };
        let State::Starting { outlook } = member.state else { return };
        match outlook {
            Outlook::Wanted => {
                member.state = State::Idle { armed: now };
                if let Some(runner) = self.runners.get_mut(&member.runner) {
                    runner.start_succeeded();
                }
            }
            Outlook::Unwanted => self.destroy(id, actions),
            Outlook::Dead => self.start_failed(id, StartFailure::Died, now, actions),
        }
    }

    fn start_failed(&mut self, id: MemberId, failure: StartFailure, now: Instant, actions: &mut Vec<Action>) {
        let Some(&Member { runner, state: State::Starting { outlook }, .. }) = self.members.get(&id) else {
            return;
        };
        // A start that nobody wants any more says nothing about its runner.
        if outlook != Outlook::Unwanted
            && let Some(runner) = self.runners.get_mut(&runner)
        {
            runner.start_failed(failure, self.settings.backoff, now);
        }
        self.destroy(id, actions);
    }

    fn died(&mut self, id: MemberId, now: Instant, actions: &mut Vec<Action>) {
        let Some(member) = self.members.get_mut(&id) else { return };
        match &mut member.state {
            State::Starting { outlook: outlook @ Outlook::Wanted } => *outlook = Outlook::Dead,
            State::Idle { armed } => {
                let young = now.saturating_duration_since(*armed) < self.settings.backoff.max;
                if young && let Some(runner) = self.runners.get_mut(&member.runner) {
                    runner.crashed(self.settings.backoff, now);
                }
                self.destroy(id, actions);
            }
            State::Starting { outlook: Outlook::Unwanted | Outlook::Dead }
            | State::Leased
            | State::Destroying { .. } => {}
        }
    }

    fn destroy_failed(&mut self, id: MemberId, now: Instant) {
        let Some(member) = self.members.get_mut(&id) else { return };
        // Only an attempt under way can fail: anything else is an answer that came twice.
        if let State::Destroying { failures, step: step @ Removal::Asked } = &mut member.state {
            *failures = failures.saturating_add(1);
            *step = if self.engine_up {
                Removal::RetryAt(now + self.settings.backoff.pause_after(*failures))
            } else {
                Removal::Held
            };
        }
    }

    fn engine_down(&mut self, actions: &mut Vec<Action>) {
        self.engine_up = false;
        self.refuse_all(Refusal::EngineUnavailable, actions);
        self.give_up(actions, |_| true);
        for member in self.members.values_mut() {
            if let State::Destroying { step: step @ Removal::RetryAt(_), .. } = &mut member.state {
                *step = Removal::Held;
            }
        }
    }

    fn engine_is_up(&mut self, actions: &mut Vec<Action>) {
        if self.engine_up {
            return;
        }
        self.engine_up = true;
        for runner in self.runners.values_mut() {
            runner.forgive();
        }
        for (&id, member) in &mut self.members {
            if let State::Destroying { step: step @ Removal::Held, .. } = &mut member.state {
                *step = Removal::Asked;
                actions.push(Action::Destroy { member: id });
            }
        }
    }

    fn refuse_all(&mut self, refusal: Refusal, actions: &mut Vec<Action>) {
        for waiter in self.runners.values_mut().flat_map(|r| r.waiters.drain(..)) {
            actions.push(Action::Refuse { waiter: waiter.id, refusal });
        }
    }

    /// Destroys what is idle and will destroy what is starting; leased members are their holders'.
    fn give_up(&mut self, actions: &mut Vec<Action>, whose: impl Fn(&Member) -> bool) {
        for member in self.members.values_mut().filter(|member| whose(member)) {
            if let State::Starting { outlook } = &mut member.state {
                *outlook = Outlook::Unwanted;
            }
        }
        self.destroy_where(actions, |member| whose(member) && matches!(member.state, State::Idle { .. }));
    }
}
