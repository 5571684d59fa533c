//! The deciding half of the gate: which call is in which session, which one waits, which session has
//! containers and which one loses them, and when.
//!
//! One [`Core`] serves all sessions of the daemon. Its driver tells it what happened with [`Core::on`],
//! carries out the [`Action`]s that it answers, and sends [`Event::Tick`] at [`Core::next_deadline`]. This
//! module must never read a clock, do I/O, take a lock or await: what it is told decides what it answers, so
//! that a test can replay every behaviour.
//!
//! # The states of a session
//!
//! ```text
//!             a call asks for it
//!  unknown ──────────────────────────────► Loading ── LoadFailed: one call is denied, the next tries
//!     ▲                                       │
//!     │ forgotten, or it never existed        │ Loaded
//!     │                                       ▼
//!     ├─────────────────────────────────── Resting ◄───────────────────────────────────┐
//!     │                                    │  │  │                                     │
//!     │        a call that wants it whole  │  │  │ a program                           │
//!     │                                    ▼  │  ▼                                     │
//!     │                                 Whole ─│─ Share ─► Programs ── the last leaves ─┤
//!     │                                    └───│──────────────────────── it leaves ─────┤
//!     │       idle · evicted · lost · closing  │                                        │
//!     │       unused · shutdown                ▼                                        │
//!     │                                      Chore ─── Tidied · KeptClosed ─────────────┘
//!     │                                        │
//!     └─── no call waits ─── Deleted ──────────┴─── calls wait ──► Loading (of a new, empty session)
//! ```
//!
//! *Programs* are any number of programs of one language. *Whole* is one call that has the session to itself.
//! A *chore* is the daemon's own work on a session that no call is in: while it lasts no call comes in.
//!
//! # What is decided, and why
//!
//! * **Ordered calls come in one after the other**: code, changes of the files, closing. Two of them are
//!   never in at the same time. Commands have no order.
//! * **A program that fits beside the programs that are in comes in at once**, before calls that want the
//!   whole session: an upload that waits for a server of five minutes must not hold up an `echo`. When the
//!   session is empty the oldest call that may come in does.
//! * **A program that must be alone has the session to itself**, and waits for it like a change of the files.
//!   So runs with a network take turns with all others where nothing keeps them apart. An earlier daemon's
//!   program that must be alone comes in only if nobody else is.
//! * **One deadline for each call**, `pool.wait` after it asked, bounds its wait for its turn and for a
//!   permit together. The time for which it is held back in between, since its tenant has no CPU credits,
//!   does not count. A call whose time is over is denied even if its turn comes at that very moment: it
//!   could do nothing with it.
//! * **A call that need not wait is not counted** among the `sessions.queue` calls that may wait in its
//!   session.
//! * **A session needs a permit to have containers.** Calls that wait for one are served round by round
//!   between their tenants, and of one tenant in the order in which they asked ([`crate::tenants::fair`]). At
//!   most `pool.queue` of them wait: of too many, the last of the tenant that has most waiting is denied. A
//!   tenant has no more permits than its limit; the last free one is kept, where there are several tenants,
//!   for one that has none, and for one at work that has less than its part ([`parts`]); and operators have
//!   one of their own. Otherwise a free permit never stays free while a call waits. A program that certainly
//!   gets none is refused before anything is done for it ([`Core::refuses`]).
//! * **A session that rests is evicted as soon as another needs its permit**, and only then: first those of
//!   the tenant that needs it, if it has its part, then those of a tenant that has more of them, or that
//!   has not been at work for a while; if it has less, its own go last. The least recently used goes first,
//!   and never more sessions than calls wait. A session whose own calls wait is spared until it has had its
//!   permit for [`SLICE`], so that a long queue in one session neither loses its containers between two
//!   calls nor keeps all other sessions out. A session that a call is in is never evicted. For a container
//!   that the pool has no slot for ([`Event::PoolFull`]), one session of the tenant that has most is
//!   evicted, if one rests at that moment.
//! * **Closing** denies the programs that wait, cancels what runs, waits (without a deadline) for the whole
//!   session, and then drops its containers. A call that comes later waits behind it, and finds its files
//!   again.
//! * **A deleted session is gone for every call**: a call that waited in it keeps its place and its deadline,
//!   and has its turn in a new, empty session. The core loads that session once the deletion is done, and not
//!   before.
//! * **Stored files expire** only in a session that no call is in, waits for, or used since the driver
//!   looked, and that has no permit.
//! * **A session is forgotten** at a sweep if it rests without a permit, nothing in the daemon holds on to
//!   it, and it has no news for its next caller (for `sessions.ttl` at most).
//!
//! The time of an event is proportional to the number of calls that wait in its session. If it frees a permit
//! for which calls wait, its time is proportional to the number of permits. A sweep's time is proportional to
//! the number of sessions in memory.

mod calls;
mod chores;
mod parts;
mod permits;
mod state;
mod sweep;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use self::permits::{PermitHeld, Want};
use self::state::SessionState;
use self::sweep::Sweeping;
use super::message::{Action, CallId, Denial, Event, GateBounds, ReleaseReason, SessionKey, TurnKind};
use crate::tenants::fair::Rounds;

/// How long a session with waiting calls of its own keeps its permit while calls of other sessions wait for
/// one.
pub(super) const SLICE: Duration = Duration::from_secs(5);

/// Time between two notes to the store that a session is used: little beside any `sessions.retention`.
pub(super) const NOTE_USE: Duration = Duration::from_secs(1);

/// The state of all sessions, and the rules.
#[derive(Debug)]
pub(super) struct Core {
    terms: GateBounds,
    sessions: BTreeMap<SessionKey, SessionState>,
    /// The sessions that have a permit.
    permits: BTreeMap<SessionKey, PermitHeld>,
    /// The calls that wait for a permit, in the order of service.
    wants: VecDeque<Want>,
    /// Whose turn it is to get one.
    rounds: Rounds,
    /// When time passed last.
    now: Option<Instant>,
    /// When which waiting call is denied.
    deadlines: BTreeSet<(Instant, CallId, SessionKey)>,
    sweeping: Sweeping,
    shutting_down: bool,
    /// How often a session with a permit came to rest.
    rests: u64,
}

/// How many there are of what, for metrics and tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct GateCounts {
    /// Sessions in memory.
    pub(super) sessions: usize,
    /// Sessions that have a permit.
    pub(super) permits: usize,
    /// Calls that wait for their turn, without the calls that close a session.
    pub(super) waiting: usize,
    /// Calls that wait for a permit.
    pub(super) wanting: usize,
}

impl Core {
    /// No sessions yet.
    pub(super) fn new(terms: GateBounds) -> Self {
        Self {
            terms,
            sessions: BTreeMap::new(),
            permits: BTreeMap::new(),
            wants: VecDeque::new(),
            rounds: Rounds::default(),
            now: None,
            deadlines: BTreeSet::new(),
            sweeping: Sweeping::default(),
            shutting_down: false,
            rests: 0,
        }
    }

    /// Takes in one event and answers what to do.
    ///
    /// Time passes first, then the event happens, then the rules are applied: a deadline that has come counts
    /// before the event that is reported at the same instant. `now` must not run backwards from call to call.
    #[must_use = "an action that is not carried out leaves a session waiting for ever"]
    pub(super) fn on(&mut self, event: Event, now: Instant) -> Vec<Action> {
        let mut actions = Vec::new();
        self.pass_time(now, &mut actions);
        self.apply(event, now, &mut actions);
        actions
    }

    /// When [`Event::Tick`] is due at the latest; `None` while only events can change anything.
    ///
    /// After [`Core::on`] this is always later than the `now` that it was given.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        let waits = self.deadlines.first().map(|(at, ..)| *at);
        waits.into_iter().chain(self.sweeping.next()).chain(self.at_rest()).min()
    }

    /// Whether the gate is shut down and nothing is left to do: every session rests, and none has a permit.
    pub(super) fn is_quiet(&self) -> bool {
        self.shutting_down
            && self.permits.is_empty()
            && self.sessions.values().all(|state| state.is_resting() && state.waiting.is_empty())
    }

    /// How often a session that can be evicted came to rest. While this number does not change, no further
    /// session can be evicted.
    pub(super) fn rests(&self) -> u64 {
        self.rests
    }

    /// How many there are of what.
    pub(super) fn counts(&self) -> GateCounts {
        GateCounts {
            sessions: self.sessions.len(),
            permits: self.permits.len(),
            waiting: self.sessions.values().map(SessionState::counted).sum(),
            wanting: self.wants.len(),
        }
    }

    fn apply(&mut self, event: Event, now: Instant, actions: &mut Vec<Action>) {
        match event {
            Event::Enter { key, call, kind, waits } => self.enter(key, call, kind, waits, now, actions),
            Event::Open { key, call, makes } => self.open(&key, call, makes, now, actions),
            Event::Close { key, call, delete } => self.close(&key, call, delete, now, actions),
            Event::Abandon { key, call } => self.abandon(&key, call, now, actions),
            Event::Delay { key, call, by } => {
                self.sessions.get_mut(&key).into_iter().for_each(|state| state.delay(call, by));
            }
            Event::Share { key, call, language } => self.share(&key, call, language, now, actions),
            Event::Leave { key, call } => self.leave(&key, call, now, actions),
            Event::Want { key, call, waits, tenant } => self.want(key, call, (waits, tenant), now, actions),
            Event::Return { key } => self.give_back(&key, now, actions),
            Event::PoolFull => self.pool_full(now, actions),
            Event::Limit { tenant, gives_up } => self.limit(tenant, gives_up, now, actions),
            Event::Lost { key } => self.lost(&key, actions),
            Event::Loaded { key, found, closed } => self.loaded(&key, found, closed, now, actions),
            Event::LoadFailed { key } => self.load_failed(&key, actions),
            Event::Tidied { key } => self.tidied(&key, now, actions),
            Event::Deleted { key, found } => self.deleted(&key, found, now, actions),
            Event::NotDeleted { key } => self.not_deleted(&key, now, actions),
            Event::KeptClosed { key } => self.kept_closed(&key, now, actions),
            Event::Holders { held, untold } => self.forget(&held, &untold, now, actions),
            Event::Unused { keys } => self.expire(keys, now, actions),
            Event::StartSweeping => self.start_sweeping(now, actions),
            Event::Tick => {}
            Event::Shutdown => self.shut_down(now, actions),
        }
    }

    /// Everything that the clock alone brings about.
    fn pass_time(&mut self, now: Instant, actions: &mut Vec<Action>) {
        let mut changed = BTreeSet::new();
        while let Some((at, call, key)) = self.deadlines.first().cloned()
            && at <= now
        {
            self.deadlines.remove(&(at, call, key.clone()));
            let late = self.too_late(call);
            let why = if self.end_want(call) { late } else { Denial::TurnTooLate };
            self.end_wait(&key, call);
            actions.push(Action::Deny { key: key.clone(), call, why });
            changed.insert(key);
        }
        // After all of them: no call whose time is over comes in because another one's is.
        for key in changed {
            self.settle(&key, now, actions);
        }
        if self.at_rest().is_some_and(|at| at <= now) {
            self.make_room(now, actions);
        }
        self.now = Some(now);
        if self.sweeping.is_due(now) {
            self.sweep(now, actions);
        }
    }

    /// When a session of another tenant has rested for long enough to be evicted.
    fn at_rest(&self) -> Option<Instant> {
        self.now.and_then(|now| self.next_at_rest(now))
    }

    /// Applies the rules to a session in which something changed. Another session may take its permit first:
    /// it rests at this moment, before its own next call comes in.
    fn settle(&mut self, key: &SessionKey, now: Instant, actions: &mut Vec<Action>) {
        self.make_room(now, actions);
        self.let_in(key, now, actions);
        self.rest(key, actions);
        self.count_rest(key);
    }
}
