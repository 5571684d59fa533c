//! What each event changes in the core's state. Only the event's direct effect belongs here;
//! [`plan`](super::plan) decides what follows from the new state.

use std::time::Instant;

use super::member::{MemberState, Outlook, PoolMember, Removal};
use super::runner_state::PoolWaiter;
use super::{LeaseRefusal, MemberId, PoolAction, PoolCore, PoolEvent, RunnerId, StartFailure, WaiterId};

impl PoolCore {
    pub(super) fn apply(&mut self, event: PoolEvent, now: Instant, actions: &mut Vec<PoolAction>) {
        match event {
            PoolEvent::RunnerAdded { runner, idle } => {
                self.runners.entry(runner).or_default().idle = idle;
            }
            PoolEvent::WorkspaceKept { runner, uid } => {
                self.runners.entry(runner).or_default().uid = Some(uid);
            }
            PoolEvent::RunnerRemoved { runner } => self.runner_removed(runner, actions),
            PoolEvent::Adopted { member, runner, uid, leased } => {
                let state = if leased { MemberState::Leased } else { MemberState::Idle { armed: now } };
                self.adopted(member, PoolMember { runner, uid, state, outdated: false }, actions);
            }
            PoolEvent::Outdated { member } => {
                if let Some(member) = self.members.get_mut(&member) {
                    member.outdated = true;
                }
            }
            PoolEvent::Request { waiter, runner } => self.request(waiter, runner, now, actions),
            PoolEvent::Abandon { waiter } => {
                for runner in self.runners.values_mut() {
                    runner.waiters.retain(|w| w.id != waiter);
                }
            }
            PoolEvent::Started { member } => self.started(member, now, actions),
            PoolEvent::StartFailed { member, failure } => self.start_failed(member, failure, now, actions),
            PoolEvent::Died { member } => self.died(member, now, actions),
            PoolEvent::Released { member } => {
                if matches!(self.members.get(&member), Some(PoolMember { state: MemberState::Leased, .. })) {
                    self.destroy(member, actions);
                }
            }
            PoolEvent::Destroyed { member } => {
                if matches!(
                    self.members.get(&member),
                    Some(PoolMember { state: MemberState::Destroying { .. }, .. })
                ) {
                    self.members.remove(&member);
                }
            }
            PoolEvent::DestroyFailed { member } => self.destroy_failed(member, now),
            PoolEvent::EngineDown => self.engine_down(actions),
            PoolEvent::EngineUp => self.engine_is_up(actions),
            PoolEvent::Tick => {}
            PoolEvent::Shutdown => {
                self.shutting_down = true;
                self.refuse_all(LeaseRefusal::ShuttingDown, actions);
                self.give_up(actions, |_| true);
            }
        }
    }

    fn runner_removed(&mut self, id: RunnerId, actions: &mut Vec<PoolAction>) {
        if let Some(runner) = self.runners.remove(&id) {
            actions.extend(
                runner
                    .waiters
                    .iter()
                    .map(|w| PoolAction::Refuse { waiter: w.id, refusal: LeaseRefusal::UnknownRunner }),
            );
            self.give_up(actions, |member| member.runner == id);
        }
    }

    fn adopted(&mut self, id: MemberId, member: PoolMember, actions: &mut Vec<PoolAction>) {
        if id <= self.last_member {
            return;
        }
        self.last_member = id;
        let unfit = self.members.len() >= self.settings.max_members as usize
            || self.held_uids().contains(&member.uid)
            || !self.settings.uid_range.contains(&member.uid.0);
        let unwanted = matches!(member.state, MemberState::Idle { .. }) && !self.may_start();
        self.members.insert(id, member);
        if unfit || unwanted {
            self.destroy(id, actions);
        }
    }

    fn request(&mut self, id: WaiterId, wanted: RunnerId, now: Instant, actions: &mut Vec<PoolAction>) {
        let mut waiting = self.runners.values().flat_map(|r| &r.waiters);
        if waiting.any(|w| w.id == id) {
            return;
        }
        let waiting = self.runners.values().map(|r| r.waiters.len()).sum::<usize>();
        let refuse = |refusal| PoolAction::Refuse { waiter: id, refusal };
        let served_at_once = self.oldest_idle(wanted).is_some();
        match self.runners.get_mut(&wanted) {
            _ if self.shutting_down => actions.push(refuse(LeaseRefusal::ShuttingDown)),
            None => actions.push(refuse(LeaseRefusal::UnknownRunner)),
            Some(_) if !self.engine_up => actions.push(refuse(LeaseRefusal::EngineUnavailable)),
            Some(_) if !served_at_once && waiting >= self.settings.queue as usize => {
                actions.push(refuse(LeaseRefusal::QueueFull));
            }
            Some(runner) => runner.waiters.push_back(PoolWaiter { id, asked: now }),
        }
    }

    fn started(&mut self, id: MemberId, now: Instant, actions: &mut Vec<PoolAction>) {
        let Some(member) = self.members.get_mut(&id) else { return };
        let MemberState::Starting { outlook } = member.state else { return };
        match outlook {
            Outlook::Wanted => {
                member.state = MemberState::Idle { armed: now };
                if let Some(runner) = self.runners.get_mut(&member.runner) {
                    runner.start_succeeded();
                }
            }
            Outlook::Unwanted => self.destroy(id, actions),
            Outlook::Dead => self.start_failed(id, StartFailure::Died, now, actions),
        }
    }

    fn start_failed(
        &mut self,
        id: MemberId,
        failure: StartFailure,
        now: Instant,
        actions: &mut Vec<PoolAction>,
    ) {
        let Some(&PoolMember { runner, state: MemberState::Starting { outlook }, .. }) =
            self.members.get(&id)
        else {
            return;
        };
        // The failure of an unwanted start says nothing about its runner.
        if outlook != Outlook::Unwanted
            && let Some(runner) = self.runners.get_mut(&runner)
        {
            runner.start_failed(failure, self.settings.backoff, now);
        }
        self.destroy(id, actions);
    }

    fn died(&mut self, id: MemberId, now: Instant, actions: &mut Vec<PoolAction>) {
        let Some(member) = self.members.get_mut(&id) else { return };
        match &mut member.state {
            MemberState::Starting { outlook: outlook @ Outlook::Wanted } => *outlook = Outlook::Dead,
            MemberState::Idle { armed } => {
                let young = now.saturating_duration_since(*armed) < self.settings.backoff.max;
                if young && let Some(runner) = self.runners.get_mut(&member.runner) {
                    runner.crashed(self.settings.backoff, now);
                }
                self.destroy(id, actions);
            }
            MemberState::Starting { outlook: Outlook::Unwanted | Outlook::Dead }
            | MemberState::Leased
            | MemberState::Destroying { .. } => {}
        }
    }

    fn destroy_failed(&mut self, id: MemberId, now: Instant) {
        let Some(member) = self.members.get_mut(&id) else { return };
        // Only an attempt under way can fail: in any other state this answer came twice.
        if let MemberState::Destroying { failures, step: step @ Removal::Asked } = &mut member.state {
            *failures = failures.saturating_add(1);
            *step = if self.engine_up {
                Removal::RetryAt(now + self.settings.backoff.pause_after(*failures))
            } else {
                Removal::Held
            };
        }
    }

    fn engine_down(&mut self, actions: &mut Vec<PoolAction>) {
        self.engine_up = false;
        self.refuse_all(LeaseRefusal::EngineUnavailable, actions);
        self.give_up(actions, |_| true);
        for member in self.members.values_mut() {
            if let MemberState::Destroying { step: step @ Removal::RetryAt(_), .. } = &mut member.state {
                *step = Removal::Held;
            }
        }
    }

    fn engine_is_up(&mut self, actions: &mut Vec<PoolAction>) {
        if self.engine_up {
            return;
        }
        self.engine_up = true;
        for runner in self.runners.values_mut() {
            runner.forgive();
        }
        for (&id, member) in &mut self.members {
            if let MemberState::Destroying { step: step @ Removal::Held, .. } = &mut member.state {
                *step = Removal::Asked;
                actions.push(PoolAction::Destroy { member: id });
            }
        }
    }

    fn refuse_all(&mut self, refusal: LeaseRefusal, actions: &mut Vec<PoolAction>) {
        for waiter in self.runners.values_mut().flat_map(|r| r.waiters.drain(..)) {
            actions.push(PoolAction::Refuse { waiter: waiter.id, refusal });
        }
    }

    /// Destroys the idle members that `whose` picks, and marks the starting ones to be destroyed. Leased
    /// members stay.
    fn give_up(&mut self, actions: &mut Vec<PoolAction>, whose: impl Fn(&PoolMember) -> bool) {
        for member in self.members.values_mut().filter(|member| whose(member)) {
            if let MemberState::Starting { outlook } = &mut member.state {
                *outlook = Outlook::Unwanted;
            }
        }
        self.destroy_where(actions, |member| {
            whose(member) && matches!(member.state, MemberState::Idle { .. })
        });
    }
}
