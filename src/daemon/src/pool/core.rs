//! The deciding half of the pool: which container is started, destroyed or handed to whom, and when.
//!
//! One [`Core`] serves all runners of one engine. Its driver tells it what happened with [`Core::on`],
//! carries out the [`Action`]s it answers in their order, and sends [`Event::Tick`] at
//! [`Core::next_deadline`]. This module must never read a clock, do I/O, take a lock, await or roll a die:
//! what it is told decides what it answers, so that every behaviour can be replayed in a test.
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
//! * **Oldest idle first.** Any armed container is as fast as any other, so the one nearest to its `idle_ttl`
//!   is handed out: traffic then does the recycling, and fewer containers are started only to be thrown away.
//!   One that has reached its `idle_ttl` is destroyed, never handed out, even if the tick came late.
//! * **Oldest waiter first**, within a runner for the containers, and across runners for the starts.
//! * **Nothing is started without a need**: idle and coming containers of a runner are held against
//!   `idle_per_runner` plus its waiters. What turns up in excess (a caller went away) is kept until its
//!   `idle_ttl`.
//! * **Waiters before refills**, refills in turn between runners. When every slot is taken and some are
//!   merely idle for another runner, one of those is destroyed for the waiter: an idle set may not starve a
//!   caller.
//! * **A runner whose starts fail** is tried again after a growing pause. After [`FAIL_FAST_AFTER`] failures
//!   in a row its waiters are refused for as long as the pause lasts; a request after the pause is the next
//!   attempt.
//! * **While the engine is down** nothing is asked of it, not even to destroy. What was idle or starting is
//!   not trusted afterwards; what is leased belongs to its holder.
//! * **A leased member is its holder's until it is released**, also when it died: the holder may still be
//!   rescuing files out of it.
//! * **What an earlier daemon left and is armed is a member like any other**, idle or leased, with the UID that its
//!   label names. UIDs in use are read off the members, never from a list of their own.
//!
//! An event costs time in proportion to members plus waiters, both bounded by the settings.

mod events;
mod member;
mod message;
mod plan;
mod runner;
mod snapshot;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::Instant;

use self::member::{Member, Removal, State};
pub use self::message::{Action, Event, MemberId, Refusal, RunnerId, StartFailure, Uid, WaiterId};
pub use self::runner::FAIL_FAST_AFTER;
use self::runner::Runner;
pub use self::snapshot::{RunnerSnapshot, Snapshot};
pub use crate::config::{Backoff, PoolSettings, RawPoolSettings, SettingsError};

/// The state of one engine's pool, and its rules.
#[derive(Debug)]
pub struct Core {
    settings: PoolSettings,
    runners: BTreeMap<RunnerId, Runner>,
    /// The one record of what lives: counts, slots and UIDs are all read off it.
    members: BTreeMap<MemberId, Member>,
    last_member: MemberId,
    last_uid: Option<Uid>,
    last_refilled: Option<RunnerId>,
    engine_up: bool,
    shutting_down: bool,
}

impl Core {
    /// An empty pool on an engine that is taken to be up until [`Event::EngineDown`] says otherwise.
    #[must_use]
    pub fn new(settings: PoolSettings) -> Self {
        Self {
            settings,
            runners: BTreeMap::new(),
            members: BTreeMap::new(),
            last_member: MemberId(0),
            last_uid: None,
            last_refilled: None,
            engine_up: true,
            shutting_down: false,
        }
    }

    /// Takes in one event and answers what to do, to be done in this order.
    ///
    /// Time passes first, then the event happens, then the rules are applied: a deadline that has come counts
    /// before the event that is reported at the same instant. `now` must not run backwards from call to call.
    /// An event about a member or waiter that is unknown, has ended or is in another state changes nothing.
    #[must_use = "an action that is not carried out leaves the pool waiting for ever"]
    pub fn on(&mut self, event: Event, now: Instant) -> Vec<Action> {
        let mut actions = Vec::new();
        self.pass_time(now, &mut actions);
        self.apply(event, now, &mut actions);
        self.decide(now, &mut actions);
        actions
    }

    /// When [`Event::Tick`] is due at the latest; `None` while only events can change anything.
    ///
    /// After [`Core::on`] this is always later than the `now` it was given.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        let waits =
            self.runners.values().filter_map(|r| r.waiters.front()).map(|w| w.asked + self.settings.wait);
        let members = self.members.values().filter_map(|member| match member.state {
            State::Idle { armed } => Some(armed + self.settings.idle_ttl),
            State::Destroying { step: Removal::RetryAt(at), .. } => Some(at),
            State::Starting { .. } | State::Leased | State::Destroying { .. } => None,
        });
        waits.chain(members).chain(self.earliest_retry()).min()
    }

    /// Everything that the clock alone brings about.
    fn pass_time(&mut self, now: Instant, actions: &mut Vec<Action>) {
        let full = self.members.len() >= self.settings.max_members as usize;
        for runner in self.runners.values_mut() {
            runner.pass_time(now);
            let last_failure = runner.last_failure();
            for late in runner.take_late(self.settings.wait, now) {
                let waited = now.saturating_duration_since(late.asked);
                let refusal = match last_failure {
                    Some(last) => Refusal::StartFailing { last },
                    None if full => Refusal::Full,
                    None => Refusal::WaitedTooLong { waited },
                };
                actions.push(Action::Refuse { waiter: late.id, refusal });
            }
        }
        let ttl = self.settings.idle_ttl;
        self.destroy_where(actions, |member| match member.state {
            State::Idle { armed } => now.saturating_duration_since(armed) >= ttl,
            State::Starting { .. } | State::Leased | State::Destroying { .. } => false,
        });
        for (&id, member) in &mut self.members {
            if let State::Destroying { step, .. } = &mut member.state
                && matches!(step, Removal::RetryAt(at) if *at <= now)
            {
                *step = Removal::Asked;
                actions.push(Action::Destroy { member: id });
            }
        }
    }

    /// Puts every member that `condemned` picks on its way out.
    fn destroy_where(&mut self, actions: &mut Vec<Action>, condemned: impl Fn(&Member) -> bool) {
        for (&id, member) in self.members.iter_mut().filter(|(_, member)| condemned(member)) {
            actions.extend(member.leave(id, self.engine_up));
        }
    }

    /// Puts one member on its way out.
    fn destroy(&mut self, id: MemberId, actions: &mut Vec<Action>) {
        if let Some(member) = self.members.get_mut(&id) {
            actions.extend(member.leave(id, self.engine_up));
        }
    }
}
