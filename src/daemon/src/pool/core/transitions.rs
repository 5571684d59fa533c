//! What each event changes in the core's state. Only the event's direct effect belongs here;
//! [`plan`](super::plan) decides what follows from the new state.

use std::time::Instant;

use super::member::{MemberState, Outlook, PoolMember, Removal};
use super::runner_state::PoolWaiter;
use super::{LeaseRefusal, MemberId, PoolAction, PoolCore, PoolEvent, RunnerId, StartFailure, WaiterId};
use crate::tenants::TenantShare;
use crate::tenants::fair::{Refused, refused};

impl PoolCore {
    pub(super) fn apply(&mut self, event: PoolEvent, now: Instant, actions: &mut Vec<PoolAction>) {
        match event {
            PoolEvent::RunnerAdded { runner, idle } => {
                self.runners.entry(runner).or_default().idle = idle;
            }
            PoolEvent::GivesWay { runner } => {
                if let Some(runner) = self.runners.get_mut(&runner) {
                    runner.gives_way = true;
                }
            }
            PoolEvent::WorkspaceKept { runner, uid } => {
                self.runners.entry(runner).or_default().uid = Some(uid);
            }
            PoolEvent::RunnerRemoved { runner } => self.runner_removed(runner, actions),
            PoolEvent::Adopted { member, runner, uid, leased } => {
                let state = if leased { MemberState::Leased } else { MemberState::Idle { armed: now } };
                let adopted = PoolMember { runner, uid, state, outdated: false, gives_way: false };
                self.adopted(member, adopted, actions);
            }
            PoolEvent::Outdated { member } => {
                if let Some(member) = self.members.get_mut(&member) {
                    member.outdated = true;
                }
            }
            PoolEvent::Request { waiter, runner, tenant } => {
                self.request(waiter, runner, tenant, now, actions);
            }
            PoolEvent::Abandon { waiter } => drop(self.take_out(|w| w.id == waiter)),
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
            runner.waiters.iter().for_each(|w| self.went_away(w.tenant));
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

    /// Takes the last waiter in the order of service that `which` picks out of its queue.
    fn take_out(&mut self, which: impl Fn(&PoolWaiter) -> bool) -> Option<PoolWaiter> {
        let all = self.runners.iter().flat_map(|(id, runner)| runner.waiters.iter().map(move |w| (w, *id)));
        let last = all.filter(|(w, _)| which(w)).max_by_key(|(w, _)| (w.mark, w.asked, w.id));
        let (id, runner) = last.map(|(w, runner)| (w.id, runner))?;
        let waiters = &mut self.runners.get_mut(&runner)?.waiters;
        let at = waiters.iter().position(|w| w.id == id)?;
        let gone = waiters.remove(at)?;
        self.went_away(gone.tenant);
        Some(gone)
    }

    /// A waiter of this tenant waits no more, and was not served.
    pub(super) fn went_away(&mut self, tenant: TenantShare) {
        let all = self.runners.values().flat_map(|runner| &runner.waiters);
        let last = all.filter(|w| w.tenant.id == tenant.id).map(|w| w.mark).max();
        self.rounds.went_away(tenant, last);
    }

    fn request(
        &mut self,
        id: WaiterId,
        wanted: RunnerId,
        tenant: TenantShare,
        now: Instant,
        actions: &mut Vec<PoolAction>,
    ) {
        let mut waiting = self.runners.values().flat_map(|r| &r.waiters);
        if waiting.any(|w| w.id == id) {
            return;
        }
        let refuse = |waiter, refusal| PoolAction::Refuse { waiter, refusal };
        if self.shutting_down {
            return actions.push(refuse(id, LeaseRefusal::ShuttingDown));
        }
        if !self.runners.contains_key(&wanted) {
            return actions.push(refuse(id, LeaseRefusal::UnknownRunner));
        }
        if !self.engine_up {
            return actions.push(refuse(id, LeaseRefusal::EngineUnavailable));
        }
        if let Some(runner) = self.runners.get_mut(&wanted) {
            runner.note(tenant);
        }
        let waiting = self.runners.values().map(|r| r.waiters.len()).sum::<usize>();
        if !self.serves(wanted, tenant) && waiting >= self.settings.queue as usize {
            let all = self.runners.values().flat_map(|runner| &runner.waiters).map(|w| w.tenant);
            let gone = match refused(tenant, all) {
                Refused::Newcomer => None,
                Refused::LastOf(worst) => self.take_out(|w| w.tenant.id == worst),
            };
            match gone {
                None => return actions.push(refuse(id, LeaseRefusal::QueueFull)),
                Some(gone) => actions.push(refuse(gone.id, LeaseRefusal::QueueFull)),
            }
        }
        let mark = self.rounds.arrive(tenant);
        if let Some(runner) = self.runners.get_mut(&wanted) {
            runner.wait(PoolWaiter { id, asked: now, tenant, mark, was_passed_over: false });
        }
    }

    fn started(&mut self, id: MemberId, now: Instant, actions: &mut Vec<PoolAction>) {
        let Some(member) = self.members.get_mut(&id) else { return };
        let MemberState::Starting { outlook } = member.state else { return };
        match outlook {
            Outlook::Wanted => {
                member.state = MemberState::Idle { armed: now };
                let id = member.runner;
                let idle = self.count_idle(id);
                if let Some(runner) = self.runners.get_mut(&id) {
                    runner.start_succeeded();
                    runner.count(idle);
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
        let all = self.runners.values_mut().flat_map(|r| r.waiters.drain(..));
        for waiter in all.collect::<Vec<_>>() {
            self.went_away(waiter.tenant);
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
