//! What follows from the state: which waiters are served or refused, which idle members make room, what is
//! started. It must be idempotent: deciding again without an event in between does nothing.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::time::Instant;

use super::member::{MemberState, Outlook, PoolMember, Removal};
use super::runner_state::RunnerState;
use super::{FAIL_FAST_AFTER, LeaseRefusal, MemberId, PoolAction, PoolCore, RunnerId, Uid};
use crate::tenants::TenantShare;

/// How many members there are and how many are starting, counted once for a decision.
#[derive(Debug, Default)]
struct Stock {
    runners: BTreeMap<RunnerId, RunnerStock>,
    /// Starts under way, including unwanted ones: they load the engine all the same.
    starting: usize,
    /// Slots whose member the driver is removing now.
    leaving: usize,
}

/// One runner's share of the stock.
#[derive(Debug, Default, Clone, Copy)]
struct RunnerStock {
    idle: usize,
    /// Starts under way that will become idle.
    coming: usize,
}

impl Stock {
    fn of(&self, runner: RunnerId) -> RunnerStock {
        self.runners.get(&runner).copied().unwrap_or_default()
    }
}

impl PoolCore {
    /// Applies the rules, in their order.
    pub(super) fn decide(&mut self, now: Instant, actions: &mut Vec<PoolAction>) {
        if !self.may_start() {
            return;
        }
        self.grant(now, actions);
        let mut stock = self.count_stock();
        self.fail_fast(&stock, actions);
        self.make_room(&stock, actions);
        self.start(&mut stock, actions);
        self.replace(&mut stock, actions);
    }

    /// Waiters for whom nothing can be started before a session's member is released: every slot is taken,
    /// and no member will leave its own without that. Members that give way will.
    pub(in crate::pool) fn starved(&self) -> usize {
        let gives_way = |member: &&PoolMember| {
            let is_wanted = matches!(
                member.state,
                MemberState::Leased | MemberState::Starting { outlook: Outlook::Wanted }
            );
            member.gives_way && is_wanted
        };
        self.unplaced().saturating_sub(self.members.values().filter(gives_way).count())
    }

    /// Whether the starts of a runner fail, again and again. It may only wait for the next attempt.
    pub(in crate::pool) fn fails_to_start(&self) -> bool {
        self.runners.values().any(|runner| runner.consecutive_failures() >= FAIL_FAST_AFTER)
    }

    /// Whether callers need the places of members that give way.
    pub(in crate::pool) fn is_crowded(&self) -> bool {
        self.unplaced() > 0
    }

    /// Waiters for whom nothing can be started before a member is released that somebody has.
    fn unplaced(&self) -> usize {
        if !self.may_start() || self.runners.values().all(|runner| runner.waiters.is_empty()) {
            return 0;
        }
        let stock = self.count_stock();
        let free = (self.settings.max_members as usize).saturating_sub(self.members.len());
        let leaves = |member: &&PoolMember| match member.state {
            MemberState::Idle { .. } | MemberState::Destroying { .. } => true,
            MemberState::Starting { outlook } => outlook != Outlook::Wanted,
            MemberState::Leased => false,
        };
        let leaving = self.members.values().filter(leaves).count();
        // Starts that no waiter of their runner needs: once idle, they give way to other waiters.
        let surplus = |(id, runner): (&RunnerId, &RunnerState)| {
            stock.of(*id).coming.saturating_sub(runner.waiters.len())
        };
        let surplus: usize = self.runners.iter().map(surplus).sum();
        self.unserved(&stock).saturating_sub(free + leaving + surplus)
    }

    /// Waiters that need a start of their own, which could begin now; not those that give way. A runner with
    /// a UID of its own can begin one start at a time.
    fn unserved(&self, stock: &Stock) -> usize {
        let ready = self.runners.iter().filter(|(_, runner)| !runner.gives_way && self.is_ready(runner));
        let of_runner = |(&id, runner): (&RunnerId, &RunnerState)| {
            let most = if runner.uid.is_some() { 1 } else { usize::MAX };
            runner.waiters.len().saturating_sub(stock.of(id).coming).min(most)
        };
        ready.map(of_runner).sum()
    }

    /// Whether a start for this runner could begin now, if there is a slot: it makes no pause, and its UID,
    /// if it has one of its own, is no member's.
    fn is_ready(&self, runner: &RunnerState) -> bool {
        let is_taken = |uid| self.members.values().any(|member| member.uid == uid);
        runner.paused_until().is_none() && !runner.uid.is_some_and(is_taken)
    }

    /// When the first paused runner that needs a start may have one.
    pub(super) fn earliest_retry(&self) -> Option<Instant> {
        if !self.may_start() {
            return None;
        }
        let stock = self.count_stock();
        let wanting = self.runners.iter().filter(|&(&id, runner)| Self::wants_more(runner, stock.of(id)));
        wanting.filter_map(|(_, runner)| runner.paused_until()).min()
    }

    /// The member of this runner that has been idle for longest. One that is outdated comes last: it is not
    /// as fast as the others.
    pub(super) fn oldest_idle(&self, runner: RunnerId) -> Option<MemberId> {
        self.idle()
            .filter(|(_, member, _)| member.runner == runner)
            .min_by_key(|&(id, member, armed)| (member.outdated, armed, id))
            .map(|(id, ..)| id)
    }

    pub(super) fn may_start(&self) -> bool {
        self.engine_up && !self.shutting_down
    }

    fn idle(&self) -> impl Iterator<Item = (MemberId, &PoolMember, Instant)> {
        self.members.iter().filter_map(|(&id, member)| match member.state {
            MemberState::Idle { armed } => Some((id, member, armed)),
            MemberState::Starting { .. } | MemberState::Leased | MemberState::Destroying { .. } => None,
        })
    }

    fn count_stock(&self) -> Stock {
        let mut stock = Stock::default();
        for member in self.members.values() {
            let of_runner = stock.runners.entry(member.runner).or_default();
            match member.state {
                MemberState::Starting { outlook } => {
                    stock.starting += 1;
                    of_runner.coming += usize::from(outlook == Outlook::Wanted);
                }
                MemberState::Idle { .. } => of_runner.idle += 1,
                MemberState::Destroying { step: Removal::Asked, .. } => stock.leaving += 1,
                MemberState::Destroying { step: Removal::RetryAt(_) | Removal::Held, .. }
                | MemberState::Leased => {}
            }
        }
        stock
    }

    fn wants_more(runner: &RunnerState, stock: RunnerStock) -> bool {
        stock.idle + stock.coming < runner.idle as usize + runner.waiters.len()
    }

    fn grant(&mut self, now: Instant, actions: &mut Vec<PoolAction>) {
        let waited_for: Vec<RunnerId> =
            self.runners.iter().filter(|(_, r)| !r.waiters.is_empty()).map(|(&id, _)| id).collect();
        for runner in waited_for {
            while let Some(oldest) = self.oldest_idle(runner)
                && let Some(first) = self.first_served(runner)
                && let idle = self.count_idle(runner) - 1
                && let Some(waiter) = self.runners.get_mut(&runner).and_then(|r| r.serve(first, idle))
                && let Some(member) = self.members.get_mut(&oldest)
            {
                member.state = MemberState::Leased;
                self.rounds.served(waiter.mark);
                let waited = now.saturating_duration_since(waiter.asked);
                actions.push(PoolAction::Grant { waiter: waiter.id, member: oldest, waited });
            }
        }
    }

    /// The place of the first waiter from whom the idle members of its runner are not kept; of the very first
    /// one, where they are kept from all while a start for each waiter could not begin (a pause is made, or
    /// slots are missing).
    fn first_served(&self, id: RunnerId) -> Option<usize> {
        let runner = self.runners.get(&id).filter(|runner| !runner.waiters.is_empty())?;
        let idle = self.count_idle(id);
        let first = runner.first_who_may(idle);
        first.or_else(|| (!self.could_start(id, 0)).then_some(0))
    }

    /// Whether one more waiter would be served at once.
    pub(super) fn serves(&self, id: RunnerId, tenant: TenantShare) -> bool {
        let Some(runner) = self.runners.get(&id) else { return false };
        let idle = self.count_idle(id);
        idle > 0 && (!runner.kept(idle).from(tenant) || runner.waiters.is_empty() && !self.could_start(id, 1))
    }

    pub(super) fn count_idle(&self, id: RunnerId) -> usize {
        self.idle().filter(|(_, member, _)| member.runner == id).count()
    }

    /// Whether starts could begin for all waiters, and so many `more` of this runner.
    fn could_start(&self, id: RunnerId, more: usize) -> bool {
        let free = (self.settings.max_members as usize).saturating_sub(self.members.len());
        let mut stock = self.count_stock();
        let is_ready = self.runners.get(&id).is_some_and(|runner| self.is_ready(runner));
        // One more waiter needs what one start less leaves to the others.
        let of_runner = stock.runners.entry(id).or_default();
        let beyond = more.saturating_sub(of_runner.coming);
        of_runner.coming = of_runner.coming.saturating_sub(more);
        is_ready && self.unserved(&stock) + beyond <= free
    }

    /// Refuses waiters that could only wait for the end of a pause. While a start is under way they keep
    /// waiting.
    fn fail_fast(&mut self, stock: &Stock, actions: &mut Vec<PoolAction>) {
        let mut gone = Vec::new();
        for (&id, runner) in &mut self.runners {
            if let Some(last) = runner.last_failure()
                && runner.is_hopeless()
                && stock.of(id).coming == 0
            {
                let refusal = LeaseRefusal::StartFailing { last };
                for waiter in runner.waiters.drain(..) {
                    gone.push(waiter.tenant);
                    actions.push(PoolAction::Refuse { waiter: waiter.id, refusal });
                }
            }
        }
        gone.into_iter().for_each(|tenant| self.went_away(tenant));
    }

    /// Destroys idle members of other runners when every slot is taken and waiters need a start that could
    /// begin now.
    fn make_room(&mut self, stock: &Stock, actions: &mut Vec<PoolAction>) {
        let needed =
            self.unserved(stock).min((self.settings.max_starting as usize).saturating_sub(stock.starting));
        let free = (self.settings.max_members as usize).saturating_sub(self.members.len());
        for _ in 0..needed.saturating_sub(free + stock.leaving) {
            // Where slots are missing a runner with an idle member has no waiter ([`Self::first_served`]), so
            // every idle member is another runner's. The runner with the most idle members gives first.
            let stock = self.count_stock();
            let spare = self
                .idle()
                .min_by_key(|&(id, member, armed)| (Reverse(stock.of(member.runner).idle), armed, id));
            let Some((spare, ..)) = spare else { return };
            self.destroy(spare, actions);
        }
    }

    fn start(&mut self, stock: &mut Stock, actions: &mut Vec<PoolAction>) {
        while stock.starting < self.settings.max_starting as usize
            && self.members.len() < self.settings.max_members as usize
        {
            let next = self.most_urgent(stock, false).or_else(|| self.next_refill(stock));
            let last = || self.most_urgent(stock, true).filter(|_| stock.starting == 0);
            let Some(runner) = next.or_else(last) else { return };
            if !self.start_one(runner, stock, actions) {
                return;
            }
        }
    }

    /// Starts a member of this runner. False if there is no UID for it.
    fn start_one(&mut self, runner: RunnerId, stock: &mut Stock, actions: &mut Vec<PoolAction>) -> bool {
        let (own, gives_way) =
            self.runners.get(&runner).map_or((None, false), |runner| (runner.uid, runner.gives_way));
        let Some(uid) = own.or_else(|| self.free_uid()) else { return false };
        let member = MemberId(self.last_member.0 + 1);
        self.last_member = member;
        if own.is_none() {
            self.last_uid = Some(uid);
        }
        let state = MemberState::Starting { outlook: Outlook::Wanted };
        self.members.insert(member, PoolMember { runner, uid, state, outdated: false, gives_way });
        let waiters = self.runners.get(&runner).map_or(0, |runner| runner.waiters.len());
        stock.starting += 1;
        let of_runner = stock.runners.entry(runner).or_default();
        let is_awaited = of_runner.coming < waiters;
        of_runner.coming += 1;
        actions.push(PoolAction::Start { member, runner, uid, is_awaited });
        true
    }

    /// Replaces idle members that are outdated: a runner has one more than it needs for a moment, and then
    /// loses an outdated one. Nothing else may be starting, and no slot is made free for it.
    fn replace(&mut self, stock: &mut Stock, actions: &mut Vec<PoolAction>) {
        let outdated: BTreeSet<RunnerId> = self
            .idle()
            .filter(|(_, member, _)| member.outdated)
            .map(|(_, member, _)| member.runner)
            .collect();
        for id in outdated {
            let Some(runner) = self.runners.get(&id) else { continue };
            let needed = runner.idle as usize + runner.waiters.len();
            let of_runner = |(_, member, _): &(MemberId, &PoolMember, Instant)| member.runner == id;
            let old = self.idle().filter(of_runner).filter(|(_, member, _)| member.outdated);
            let mut old: Vec<_> = old.map(|(id, _, armed)| (armed, id)).collect();
            old.sort_unstable();
            let surplus = self.idle().filter(of_runner).count().saturating_sub(needed);
            for (_, member) in old.iter().take(surplus) {
                self.destroy(*member, actions);
            }
            let may_start = stock.starting == 0
                && old.len() > surplus
                && self.members.len() < self.settings.max_members as usize
                && self.runners.get(&id).is_some_and(|runner| self.is_ready(runner));
            if may_start {
                self.start_one(id, stock, actions);
            }
        }
    }

    /// The runner with the waiter who is served next, of all waiters without a start of their own; of
    /// runners that give way, or of the others.
    fn most_urgent(&self, stock: &Stock, gives_way: bool) -> Option<RunnerId> {
        self.runners
            .iter()
            .filter(|(_, runner)| runner.gives_way == gives_way && self.is_ready(runner))
            .filter_map(|(&id, runner)| {
                let next = runner.waiters.get(stock.of(id).coming)?;
                Some((next.mark, next.asked, id))
            })
            .min()
            .map(|(.., id)| id)
    }

    /// The next runner in turn that has fewer members than it needs.
    fn next_refill(&mut self, stock: &Stock) -> Option<RunnerId> {
        let after = self.last_refilled.map_or(Bound::Unbounded, Bound::Excluded);
        let turn = self.runners.range((after, Bound::Unbounded)).chain(&self.runners);
        let next = turn
            .filter(|(_, runner)| !runner.gives_way && self.is_ready(runner))
            .find(|&(&id, runner)| Self::wants_more(runner, stock.of(id)))
            .map(|(&id, _)| id)?;
        self.last_refilled = Some(next);
        Some(next)
    }

    /// The UIDs of members and of kept workspaces.
    pub(super) fn held_uids(&self) -> BTreeSet<Uid> {
        let kept = self.runners.values().filter_map(|runner| runner.uid);
        self.members.values().map(|member| member.uid).chain(kept).collect()
    }

    /// The next UID in turn that no member and no workspace has, so that a UID rests for as long as possible
    /// before it is used again: the next container must not get what an earlier one may have left under it
    /// (keys, queues, counts in the kernel).
    fn free_uid(&self) -> Option<Uid> {
        let held = self.held_uids();
        let range = self.settings.uid_range.clone();
        let after = self.last_uid.map_or(*range.start(), |uid| uid.0.saturating_add(1));
        (after..=*range.end()).chain(range).map(Uid).find(|uid| !held.contains(uid))
    }
}
