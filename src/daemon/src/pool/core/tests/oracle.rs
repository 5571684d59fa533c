//! An oracle: it keeps its own record of members and waiters, from events and actions alone, and fails on
//! every action that breaks a rule. It must never ask the core for anything but what it judges, nor share a
//! function with it.

mod books;
mod sums;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use super::super::{
    LeaseRefusal, MemberId, PoolAction, PoolEvent, RawPoolSettings, RunnerId, Snapshot, StartFailure,
    WaiterId,
};

/// How many refills other runners may get while one is ready for a refill: the tests use at most four
/// runners.
const PATIENCE: usize = 3;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Starting {
        wanted: bool,
        died: bool,
    },
    Idle {
        armed: Instant,
    },
    Leased,
    /// To be destroyed: the driver is removing it, or the removal is due at once or at `retry`.
    Ending {
        asked: bool,
        failures: u32,
        retry: Option<Instant>,
    },
}

const CONDEMNED: Phase = Phase::Ending { asked: false, failures: 0, retry: None };

#[derive(Debug)]
struct Held {
    runner: RunnerId,
    uid: u32,
    phase: Phase,
}

#[derive(Debug, Default, Clone)]
struct Record {
    idle: u32,
    /// The UID of a kept workspace.
    uid: Option<u32>,
    failures: u32,
    last: Option<StartFailure>,
    failed_until: Option<Instant>,
    crashed_until: Option<Instant>,
    passed_over: usize,
}

#[derive(Debug, Clone, Copy)]
struct Waiting {
    id: WaiterId,
    runner: RunnerId,
    asked: Instant,
}

#[derive(Debug)]
pub(super) struct Oracle {
    settings: RawPoolSettings,
    runners: BTreeMap<RunnerId, Record>,
    members: BTreeMap<MemberId, Held>,
    seen: BTreeSet<MemberId>,
    granted: BTreeSet<MemberId>,
    answered: BTreeSet<WaiterId>,
    /// In the order of their requests.
    waiters: Vec<Waiting>,
    up: bool,
    closing: bool,
    // The state at an event, after time has passed:
    /// Removals that the clock alone has made due.
    due: BTreeSet<MemberId>,
    /// Waiters that have waited for the whole bound, and the refusal that each must get.
    late: BTreeMap<WaiterId, LeaseRefusal>,
}

impl Oracle {
    pub(super) fn new(settings: RawPoolSettings) -> Self {
        Self {
            settings,
            runners: BTreeMap::new(),
            members: BTreeMap::new(),
            seen: BTreeSet::new(),
            granted: BTreeSet::new(),
            answered: BTreeSet::new(),
            waiters: Vec::new(),
            up: true,
            closing: false,
            due: BTreeSet::new(),
            late: BTreeMap::new(),
        }
    }

    pub(super) fn judge(
        &mut self,
        event: PoolEvent,
        actions: &[PoolAction],
        now: Instant,
        deadline: Option<Instant>,
        snapshot: &Snapshot,
    ) {
        self.time_has_passed(now);
        self.note(event, now);
        for &action in actions {
            match action {
                PoolAction::Start { member, runner, uid, is_awaited } => {
                    self.judge_start(member, runner, uid.0, is_awaited, now);
                }
                PoolAction::Destroy { member } => self.judge_destroy(member),
                PoolAction::Grant { waiter, member, waited } => self.judge_grant(waiter, member, waited, now),
                PoolAction::Refuse { waiter, refusal } => self.judge_refusal(waiter, refusal, now),
            }
        }
        self.judge_outcome(now);
        assert_eq!(deadline, self.earliest(now), "the next deadline is the earliest thing that time brings");
        assert!(deadline.is_none_or(|at| at > now), "a deadline in the past makes the driver spin");
        self.judge_snapshot(snapshot);
    }

    /// Free slots. Adopted members can exceed the slots until they are gone.
    fn free(&self) -> usize {
        (self.settings.max_members as usize).saturating_sub(self.members.len())
    }

    fn judge_start(&mut self, member: MemberId, runner: RunnerId, uid: u32, is_awaited: bool, now: Instant) {
        assert!(self.seen.insert(member), "{member:?} is started a second time");
        assert!(self.up && !self.closing, "nothing is started while the engine is down or the pool closes");
        assert!(self.settings.uid_range.contains(&uid), "UID {uid} is not ours to give");
        assert!(self.members.values().all(|m| m.uid != uid), "UID {uid} is held by a living member");
        assert!(self.members.len() < self.settings.max_members as usize, "more members than there may be");
        assert!(self.starting().len() < self.settings.max_starting as usize, "more starts than there may be");
        assert!(self.runners.contains_key(&runner), "{runner:?} is not there to be started");
        assert!(!self.is_paused(runner, now), "{runner:?} is started during the pause after a failure");
        let reserved = self.runners.iter().find(|(_, record)| record.uid == Some(uid)).map(|(id, _)| *id);
        let own = self.runners[&runner].uid.map(|_| runner);
        assert_eq!(reserved, own, "UID {uid} is a workspace's, or not that of {runner:?}");
        assert!(self.is_short(runner), "{runner:?} has enough");
        let unserved = self.unserved(now);
        assert_eq!(is_awaited, !unserved.is_empty(), "{member:?} does not know whether someone waits for it");
        if let Some(most_urgent) = unserved.iter().map(|w| w.asked).min() {
            let theirs = unserved.iter().find(|w| w.runner == runner);
            let theirs = theirs.expect("while someone waits, nothing is started for nobody");
            assert_eq!(theirs.asked, most_urgent, "someone else has waited longer");
        } else {
            let ready: Vec<RunnerId> = self.known_runners();
            for other in ready {
                let stands_ready = other != runner && self.is_short(other) && self.can_start(other, now);
                let record = self.runners.get_mut(&other).expect("it is known");
                record.passed_over = if stands_ready { record.passed_over + 1 } else { 0 };
                assert!(record.passed_over <= PATIENCE, "{other:?} does not get its turn");
            }
        }
        let phase = Phase::Starting { wanted: true, died: false };
        self.members.insert(member, Held { runner, uid, phase });
    }

    fn judge_destroy(&mut self, member: MemberId) {
        if self.due.remove(&member) {
            return;
        }
        assert!(self.up, "nothing is asked of an engine that is down");
        let leaving = self.being_destroyed().len();
        let free = self.free();
        let idle_of_all: Vec<usize> = self.members.values().map(|m| self.idle_of(m.runner)).collect();
        let held = self.members.get(&member).expect("what is destroyed may still be there");
        match held.phase {
            Phase::Ending { asked: false, failures, .. } => {
                let phase = Phase::Ending { asked: true, failures, retry: None };
                self.members.get_mut(&member).expect("it is there").phase = phase;
            }
            Phase::Idle { .. } => {
                let unserved: usize = self.runners.keys().map(|r| self.lacking(*r)).sum();
                assert!(unserved > free + leaving, "{member:?} was idle and in nobody's way");
                assert!(
                    !self.waiters.iter().any(|w| w.runner == held.runner),
                    "its own runner is waited for"
                );
                assert_eq!(
                    Some(self.idle_of(held.runner)),
                    idle_of_all.into_iter().max(),
                    "the richest gives first"
                );
                let phase = Phase::Ending { asked: true, failures: 0, retry: None };
                self.members.get_mut(&member).expect("it is there").phase = phase;
            }
            Phase::Ending { asked: true, .. } => panic!("{member:?} is being destroyed already"),
            Phase::Leased => panic!("{member:?} is in someone's hands"),
            Phase::Starting { .. } => panic!("{member:?} is still being started"),
        }
    }

    fn judge_grant(&mut self, waiter: WaiterId, member: MemberId, waited: Duration, now: Instant) {
        assert!(self.up && !self.closing, "nothing is granted while the engine is down or the pool closes");
        assert!(self.granted.insert(member), "{member:?} was someone's before");
        let held = self.members.get(&member).expect("what is granted lives");
        let runner = held.runner;
        let Phase::Idle { armed } = held.phase else { panic!("{member:?} is not armed") };
        let older = self.members.values().filter(|m| m.runner == runner);
        let older = older.filter(|m| matches!(m.phase, Phase::Idle { armed: theirs } if theirs < armed));
        assert_eq!(older.count(), 0, "an older idle member was there");
        let first = self.waiters.iter().find(|w| w.runner == runner).expect("someone waits for that runner");
        assert_eq!(first.id, waiter, "someone was there before");
        assert_eq!(waited, now - first.asked, "the time waited is right");
        self.answer(waiter);
        self.members.get_mut(&member).expect("it lives").phase = Phase::Leased;
    }

    fn judge_refusal(&mut self, waiter: WaiterId, refusal: LeaseRefusal, now: Instant) {
        if let Some(due) = self.late.remove(&waiter) {
            assert_eq!(refusal, due, "{waiter:?} waited to the bound and is told why");
            self.answer(waiter);
            return;
        }
        let Waiting { runner, .. } =
            *self.waiters.iter().find(|w| w.id == waiter).expect("who is refused was waiting");
        match refusal {
            LeaseRefusal::QueueFull => {
                assert!(self.waiters.len() > self.settings.queue as usize, "there was room to wait");
                assert_eq!(self.idle_of(runner), 0, "there was one to be had");
            }
            LeaseRefusal::EngineUnavailable => assert!(!self.up, "the engine is up"),
            LeaseRefusal::UnknownRunner => {
                assert!(!self.runners.contains_key(&runner), "{runner:?} is known")
            }
            LeaseRefusal::ShuttingDown => assert!(self.closing, "the pool is open"),
            LeaseRefusal::StartFailing { last } => {
                let record = &self.runners[&runner];
                assert_eq!(record.last, Some(last), "the refusal has the last failure");
                assert!(record.failures >= 3, "two failures are not yet a reason");
                assert!(record.failed_until.is_some_and(|at| at > now), "the next attempt could begin");
                assert_eq!(self.coming(runner), 0, "an attempt is under way");
            }
            LeaseRefusal::NoWorkspace => panic!("the core knows only runners"),
            LeaseRefusal::WaitedTooLong { .. } | LeaseRefusal::Full => panic!("{waiter:?} has time left"),
        }
        self.answer(waiter);
    }

    fn answer(&mut self, waiter: WaiterId) {
        assert!(self.answered.insert(waiter), "{waiter:?} is answered twice");
        self.waiters.retain(|w| w.id != waiter);
    }

    fn judge_outcome(&self, now: Instant) {
        assert!(self.due.is_empty(), "the time of some had come: {:?}", self.due);
        assert!(self.late.is_empty(), "waiters are kept beyond their bound: {:?}", self.late);
        for w in &self.waiters {
            assert!(now < w.asked + self.settings.wait, "{:?} waits beyond the bound", w.id);
            assert!(self.up && !self.closing, "{:?} waits for nothing", w.id);
            assert!(self.runners.contains_key(&w.runner), "{:?} waits for nothing", w.id);
            assert_eq!(self.idle_of(w.runner), 0, "{:?} waits while a member is idle", w.id);
            let record = &self.runners[&w.runner];
            let hopeless =
                record.failures >= 3 && record.failed_until.is_some() && self.coming(w.runner) == 0;
            assert!(!hopeless, "{:?} waits through a pause", w.id);
        }
        assert!(self.waiters.len() <= self.settings.queue as usize, "more wait than may");
        for (id, held) in &self.members {
            if let Phase::Idle { armed } = held.phase {
                assert!(now < armed + self.settings.idle_ttl, "{id:?} is idle beyond its time");
            }
            let forgotten = self.up && matches!(held.phase, Phase::Ending { asked: false, retry: None, .. });
            assert!(!forgotten, "{id:?} should be on its way out");
        }
        if !self.up || self.closing {
            return;
        }
        let may_start = (self.settings.max_starting as usize).saturating_sub(self.starting().len());
        let free = self.free();
        for &runner in self.runners.keys() {
            let held_back = self.is_short(runner) && self.can_start(runner, now) && may_start > 0 && free > 0;
            assert!(!held_back, "{runner:?} is short and could have been started");
        }
        let somewhere_idle = self.count(|m| matches!(m.phase, Phase::Idle { .. })) > 0;
        let wanted = self.unserved_count(now).min(may_start);
        let starved = somewhere_idle && wanted > free + self.being_destroyed().len();
        assert!(!starved, "waiters starve while another runner's members stand idle");
    }

    fn judge_snapshot(&self, snapshot: &Snapshot) {
        assert_eq!((snapshot.engine_up, snapshot.shutting_down), (self.up, self.closing));
        assert_eq!(snapshot.members(), self.members.len());
        for (&runner, counts) in &snapshot.runners {
            let count = |in_phase: fn(Phase) -> bool| self.count(|m| m.runner == runner && in_phase(m.phase));
            assert_eq!(
                counts.starting,
                count(|p| matches!(p, Phase::Starting { .. })),
                "{runner:?} starting"
            );
            assert_eq!(counts.idle, count(|p| matches!(p, Phase::Idle { .. })), "{runner:?} idle");
            assert_eq!(counts.leased, count(|p| p == Phase::Leased), "{runner:?} leased");
            assert_eq!(
                counts.destroying,
                count(|p| matches!(p, Phase::Ending { .. })),
                "{runner:?} destroying"
            );
            assert_eq!(counts.waiters, self.waiters_of(runner).count(), "{runner:?} waiters");
            let failures = self.runners.get(&runner).map_or(0, |r| r.failures);
            assert_eq!(counts.consecutive_failures, failures, "{runner:?} failures");
        }
    }
}
