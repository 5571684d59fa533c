//! Sums of the oracle's record, for its own judgements and for the tests that choose their next step by them.

use std::time::Instant;

use super::super::super::{MemberId, RunnerId, WaiterId};
use super::{Held, Oracle, Phase, Waiting};

impl Oracle {
    pub(in super::super) fn starting(&self) -> Vec<MemberId> {
        self.members_where(|m| matches!(m.phase, Phase::Starting { .. }))
    }

    pub(in super::super) fn leased(&self) -> Vec<MemberId> {
        self.members_where(|m| m.phase == Phase::Leased)
    }

    pub(in super::super) fn being_destroyed(&self) -> Vec<MemberId> {
        self.members_where(|m| matches!(m.phase, Phase::Ending { asked: true, .. }))
    }

    pub(in super::super) fn living(&self) -> Vec<MemberId> {
        self.members_where(|_| true)
    }

    /// A number higher than all before.
    pub(in super::super) fn next_member(&self) -> MemberId {
        MemberId(self.seen.last().map_or(1, |last| last.0 + 1))
    }

    pub(in super::super) fn waiting(&self) -> Vec<WaiterId> {
        self.waiters.iter().map(|w| w.id).collect()
    }

    pub(in super::super) fn idle_of(&self, runner: RunnerId) -> usize {
        self.count(|m| m.runner == runner && matches!(m.phase, Phase::Idle { .. }))
    }

    pub(in super::super) fn known_runners(&self) -> Vec<RunnerId> {
        self.runners.keys().copied().collect()
    }

    pub(super) fn earliest(&self, now: Instant) -> Option<Instant> {
        let waits = self.waiters.iter().map(|w| w.asked + self.settings.wait);
        let phases = self.members.values().filter_map(|m| match m.phase {
            Phase::Idle { armed } => Some(armed + self.settings.idle_ttl),
            Phase::Ending { retry, .. } => retry,
            Phase::Starting { .. } | Phase::Leased => None,
        });
        let paused = self
            .runners
            .iter()
            .filter(|(id, _)| self.up && !self.closing && self.is_short(**id) && self.is_paused(**id, now));
        let paused = paused.filter_map(|(_, r)| r.failed_until.max(r.crashed_until));
        waits.chain(phases).chain(paused).min()
    }

    pub(super) fn is_paused(&self, runner: RunnerId, now: Instant) -> bool {
        let record = &self.runners[&runner];
        [record.failed_until, record.crashed_until].into_iter().flatten().any(|at| at > now)
    }

    /// Whether nothing but slots is in the way of a start.
    pub(super) fn can_start(&self, runner: RunnerId, now: Instant) -> bool {
        let is_taken = |uid: u32| self.members.values().any(|m| m.uid == uid);
        !self.is_paused(runner, now) && !self.runners[&runner].uid.is_some_and(is_taken)
    }

    /// UIDs of kept workspaces.
    pub(in super::super) fn reserved(&self) -> Vec<u32> {
        self.runners.values().filter_map(|record| record.uid).collect()
    }

    /// UIDs of members.
    pub(in super::super) fn held(&self) -> Vec<u32> {
        self.members.values().map(|m| m.uid).collect()
    }

    /// Kept workspaces.
    pub(in super::super) fn kept(&self) -> Vec<RunnerId> {
        self.runners.iter().filter(|(_, record)| record.uid.is_some()).map(|(&id, _)| id).collect()
    }

    pub(super) fn coming(&self, runner: RunnerId) -> usize {
        self.count(|m| m.runner == runner && m.phase == Phase::Starting { wanted: true, died: false })
    }

    pub(super) fn lacking(&self, runner: RunnerId) -> usize {
        let most = if self.runners[&runner].uid.is_some() { 1 } else { usize::MAX };
        self.waiters_of(runner).count().saturating_sub(self.coming(runner)).min(most)
    }

    pub(super) fn is_short(&self, runner: RunnerId) -> bool {
        let target = self.runners[&runner].idle as usize + self.waiters_of(runner).count();
        self.idle_of(runner) + self.coming(runner) < target
    }

    /// For each runner that could start now, its oldest waiter without a start.
    pub(super) fn unserved(&self, now: Instant) -> Vec<Waiting> {
        let runners = self.runners.keys().filter(|r| self.can_start(**r, now));
        runners.filter_map(|r| self.waiters_of(*r).nth(self.coming(*r)).copied()).collect()
    }

    pub(super) fn unserved_count(&self, now: Instant) -> usize {
        self.runners.keys().filter(|r| self.can_start(**r, now)).map(|r| self.lacking(*r)).sum()
    }

    pub(super) fn waiters_of(&self, runner: RunnerId) -> impl Iterator<Item = &Waiting> {
        self.waiters.iter().filter(move |w| w.runner == runner)
    }

    fn members_where(&self, which: impl Fn(&Held) -> bool) -> Vec<MemberId> {
        self.members.iter().filter(|(_, m)| which(m)).map(|(&id, _)| id).collect()
    }

    pub(super) fn count(&self, which: impl Fn(&Held) -> bool) -> usize {
        self.members.values().filter(|m| which(m)).count()
    }
}
