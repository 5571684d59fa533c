//! The deciding half of the pool: which container is started, destroyed or granted to which request, and
//! when.
//!
//! One [`PoolCore`] serves all runners of one engine. Its driver tells it what happened with
//! [`PoolCore::on`], carries out the [`PoolAction`]s it answers in their order, and sends [`PoolEvent::Tick`]
//! at [`PoolCore::next_deadline`]. This module must never read a clock, do I/O, take a lock, await or use a
//! random number: its answers depend on the events alone, so that a test can replay every behaviour.
//!
//! # The life of a member
//!
//! A *member* is one attempt at a container, from the decision to start it until it is known to be gone. It
//! holds a slot of `max_members` and a UID of its own for that whole time.
//!
//! ```text
//!   Start ──> Starting ──Started──> Idle ──Grant──> Leased ──Released──┐
//!                │                   │                                 │
//!            StartFailed     idle_ttl · Died · evicted                 │
//!            or unwanted     runner removed · engine down · Shutdown   │
//!                └───────────────────┴──────────> Destroying <─────────┘
//!                                                  │      ^ DestroyFailed: again, later and later
//!                                              Destroyed ─┘
//!                                                  v
//!                                          slot and UID are free
//! ```
//!
//! There is no way back from `Leased` to `Idle`: a container serves one session in its life. A failed start
//! is destroyed like any other member, because half a container may be there, with its UID.
//!
//! # What is decided, and why
//!
//! * **Oldest idle first.** Any armed container is as fast as any other, so the pool hands out the one
//!   nearest to its `idle_ttl`: traffic then does the recycling, and fewer containers are started only to be
//!   thrown away. A container that has reached its `idle_ttl` is destroyed, never handed out, even if the
//!   tick came late.
//! * **Round by round between the tenants**, within a runner for the containers, and across runners for the
//!   starts; of one tenant the oldest waiter first ([`crate::tenants::fair`]). When one more comes than may
//!   wait, the last waiter of the tenant that has most is refused.
//! * **Where there are several tenants, half of a runner's idle containers are reserved.** A tenant that took
//!   more than others of what is missing of them, or has spent its CPU credits, waits for a container to
//!   start; another tenant then finds one that is armed (`core/reserve.rs`). The waiter that is first in its
//!   round is passed over once at most, and not at all if nobody else may have the container and a start for
//!   each waiter could not begin: a pause is made, or slots are missing.
//! * **Nothing is started without a need**: a runner needs its `idle` containers plus one for each of
//!   its waiters; idle and starting containers count. A container in excess of that (its caller went
//!   away) is kept until its `idle_ttl`.
//! * **An idle member that is outdated is replaced**, one of its runner after the other, when nothing else is
//!   to be started: first another one, then the removal, so that as many stand idle as before.
//! * **Waiters before refills**; the runners take turns at refills. When every slot is taken, and some hold
//!   idle members of another runner, one of those is destroyed for the waiter: an idle set may not starve a
//!   caller.
//! * **What the daemon does for itself gives way** (snapshots of warm parts): its members are started last of
//!   all, in a place that is free, and their places count as free for callers, for whom they are released
//!   ([`PoolEvent::GivesWay`]).
//! * **A runner whose starts fail** is tried again after a growing pause, of 2 s at most if it is the engine
//!   that fails. After [`FAIL_FAST_AFTER`] failures in a row its waiters are refused for as long as the pause
//!   lasts; a request after the pause is the next attempt.
//! * **While the engine is down** the pool asks nothing of it, not even to destroy. Members that were idle or
//!   starting are destroyed afterwards, because nobody knows what became of them; leased ones stay leased.
//! * **A leased member belongs to its lease until it is released**, also when it died: the session may still
//!   be rescuing files out of it.
//! * **A container that an earlier daemon left armed is a member like any other**, idle or leased, with the
//!   UID that its label names. The UIDs in use are those of the members; there is no second list of them.
//!
//! An event costs time in proportion to members plus waiters, both bounded by the settings.

mod member;
mod message;
mod plan;
mod reserve;
mod runner_state;
mod snapshot;
#[cfg(test)]
mod tests;
mod transitions;

use std::collections::BTreeMap;
use std::time::Instant;

use self::member::{MemberState, PoolMember, Removal};
pub use self::message::{
    LeaseRefusal, MemberId, PoolAction, PoolEvent, RunnerId, StartFailure, Uid, WaiterId,
};
pub use self::runner_state::FAIL_FAST_AFTER;
use self::runner_state::RunnerState;
pub use self::snapshot::{RunnerSnapshot, Snapshot};
pub use crate::config::{Backoff, PoolSettings, RawPoolSettings, SettingsError};
use crate::tenants::fair::Rounds;

/// The state of one engine's pool, and its rules.
#[derive(Debug)]
pub struct PoolCore {
    settings: PoolSettings,
    runners: BTreeMap<RunnerId, RunnerState>,
    /// The only record of the members: counts, slots and UIDs in use are all derived from it.
    members: BTreeMap<MemberId, PoolMember>,
    last_member: MemberId,
    last_uid: Option<Uid>,
    last_refilled: Option<RunnerId>,
    /// Whose turn it is.
    rounds: Rounds,
    engine_up: bool,
    shutting_down: bool,
}

impl PoolCore {
    /// An empty pool. The engine counts as up until [`PoolEvent::EngineDown`].
    #[must_use]
    pub fn new(settings: PoolSettings) -> Self {
        Self {
            settings,
            runners: BTreeMap::new(),
            members: BTreeMap::new(),
            last_member: MemberId(0),
            last_uid: None,
            last_refilled: None,
            rounds: Rounds::default(),
            engine_up: true,
            shutting_down: false,
        }
    }

    /// Takes in one event and answers the actions to carry out, in their order.
    ///
    /// Time passes first, then the event happens, then the rules are applied: a deadline that has passed
    /// takes effect before an event of the same instant. `now` must not run backwards from call to call. An
    /// event about a member or waiter that is unknown, has ended or is in another state changes nothing.
    #[must_use = "an action that is not carried out leaves the pool waiting for ever"]
    pub fn on(&mut self, event: PoolEvent, now: Instant) -> Vec<PoolAction> {
        let mut actions = Vec::new();
        self.pass_time(now, &mut actions);
        self.apply(event, now, &mut actions);
        self.decide(now, &mut actions);
        actions
    }

    /// When [`PoolEvent::Tick`] is due at the latest; `None` while only events can change anything.
    ///
    /// After [`PoolCore::on`] this is always later than the `now` it was given.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        let waits = self.runners.values().flat_map(|r| &r.waiters).map(|w| w.asked + self.settings.wait);
        let members = self.members.values().filter_map(|member| match member.state {
            MemberState::Idle { armed } => Some(armed + self.settings.idle_ttl),
            MemberState::Destroying { step: Removal::RetryAt(at), .. } => Some(at),
            MemberState::Starting { .. } | MemberState::Leased | MemberState::Destroying { .. } => None,
        });
        waits.chain(members).chain(self.earliest_retry()).min()
    }

    /// Carries out everything that the clock alone brings about.
    fn pass_time(&mut self, now: Instant, actions: &mut Vec<PoolAction>) {
        let mut gone = Vec::new();
        let full = self.members.len() >= self.settings.max_members as usize;
        for runner in self.runners.values_mut() {
            runner.pass_time(now);
            let last_failure = runner.last_failure();
            for late in runner.take_late(self.settings.wait, now) {
                let waited = now.saturating_duration_since(late.asked);
                let refusal = match last_failure {
                    Some(last) => LeaseRefusal::StartFailing { last },
                    None if full => LeaseRefusal::Full,
                    None => LeaseRefusal::WaitedTooLong { waited },
                };
                gone.push(late.tenant);
                actions.push(PoolAction::Refuse { waiter: late.id, refusal });
            }
        }
        gone.into_iter().for_each(|tenant| self.went_away(tenant));
        let ttl = self.settings.idle_ttl;
        self.destroy_where(actions, |member| match member.state {
            MemberState::Idle { armed } => now.saturating_duration_since(armed) >= ttl,
            MemberState::Starting { .. } | MemberState::Leased | MemberState::Destroying { .. } => false,
        });
        for (&id, member) in &mut self.members {
            if let MemberState::Destroying { step, .. } = &mut member.state
                && matches!(step, Removal::RetryAt(at) if *at <= now)
            {
                *step = Removal::Asked;
                actions.push(PoolAction::Destroy { member: id });
            }
        }
    }

    /// Begins the removal of every member that `condemned` picks.
    fn destroy_where(&mut self, actions: &mut Vec<PoolAction>, condemned: impl Fn(&PoolMember) -> bool) {
        for (&id, member) in self.members.iter_mut().filter(|(_, member)| condemned(member)) {
            actions.extend(member.leave(id, self.engine_up));
        }
    }

    /// Begins the removal of one member.
    fn destroy(&mut self, id: MemberId, actions: &mut Vec<PoolAction>) {
        if let Some(member) = self.members.get_mut(&id) {
            actions.extend(member.leave(id, self.engine_up));
        }
    }
}
