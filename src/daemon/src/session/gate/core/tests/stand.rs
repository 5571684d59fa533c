//! A core on a test stand: a clock that the test turns, a driver that does what it is told when the test lets
//! it, and the oracle looking on at every event.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use super::super::super::message::{Denial, ReleaseReason};
use super::super::{Action, CallId, Core, Event, GateBounds, GateCounts, SessionKey, TurnKind};
use super::oracle::{Oracle, Owed, Step};
use crate::tenants::TenantShare;

/// More ticks than any stretch of a test needs: beyond it the core is spinning.
const MANY_TICKS: usize = 20_000;

pub(super) struct Stand {
    core: Core,
    pub(super) oracle: Oracle,
    pub(super) now: Instant,
    last_call: u64,
    /// The sessions that something is stored for, and whether each is stored as closed.
    pub(super) stored: BTreeMap<SessionKey, bool>,
    /// What the daemon holds on to, and what has news.
    pub(super) held: BTreeSet<SessionKey>,
    pub(super) untold: BTreeSet<SessionKey>,
    holders_wanted: bool,
}

/// The session of this number.
pub(super) fn key(number: u8) -> SessionKey {
    SessionKey::new("owner", &format!("s{number}").parse().expect("an id"))
}

pub(super) fn code(language: &str) -> TurnKind {
    TurnKind::Code(language.to_owned())
}

pub(super) fn command(language: &str) -> TurnKind {
    TurnKind::Command(language.to_owned())
}

impl Stand {
    pub(super) fn new(terms: GateBounds) -> Self {
        Self {
            core: Core::new(terms.clone()),
            oracle: Oracle::new(terms),
            now: Instant::now(),
            last_call: 0,
            stored: BTreeMap::new(),
            held: BTreeSet::new(),
            untold: BTreeSet::new(),
            holders_wanted: false,
        }
    }

    /// Reports an event; what time alone has brought about goes before it, in a tick of its own.
    pub(super) fn send(&mut self, event: Event) -> Vec<Action> {
        if event != Event::Tick && self.core.next_deadline().is_some_and(|due| due <= self.now) {
            self.judged(Event::Tick);
        }
        self.judged(event)
    }

    fn judged(&mut self, event: Event) -> Vec<Action> {
        let actions = self.core.on(event.clone(), self.now);
        let (deadline, counts) = (self.core.next_deadline(), self.core.counts());
        self.oracle.judge(&event, &actions, self.now, deadline, counts);
        for action in &actions {
            if let Action::KeepClosed { key } = action {
                self.stored.entry(key.clone()).and_modify(|closed| *closed = true);
            } else if let Action::Enter { key, note: true, .. } = action {
                self.stored.entry(key.clone()).and_modify(|closed| *closed = false);
            }
            self.holders_wanted |= *action == Action::AskHolders;
        }
        actions
    }

    pub(super) fn call(&mut self) -> CallId {
        self.last_call += 1;
        CallId(self.last_call)
    }

    pub(super) fn ask(&mut self, number: u8, kind: TurnKind) -> (CallId, Vec<Action>) {
        let call = self.call();
        (call, self.send(Event::Enter { key: key(number), call, kind, waits: true }))
    }

    pub(super) fn try_ask(&mut self, number: u8, kind: TurnKind) -> (CallId, Vec<Action>) {
        let call = self.call();
        (call, self.send(Event::Enter { key: key(number), call, kind, waits: false }))
    }

    /// A call that is in, in a session that is loaded.
    pub(super) fn enter(&mut self, number: u8, kind: TurnKind) -> CallId {
        let (call, _) = self.ask(number, kind);
        self.finish_all();
        assert!(self.is_in(number, call), "{call:?} is not in");
        call
    }

    /// A call that is in, in a session with a permit.
    pub(super) fn work(&mut self, number: u8, kind: TurnKind) -> CallId {
        let call = self.enter(number, kind);
        let actions = self.want(number, call);
        assert!(granted(&actions).contains(&call) || self.has_permit(number), "{actions:?}");
        call
    }

    pub(super) fn want(&mut self, number: u8, call: CallId) -> Vec<Action> {
        self.send(Event::Want { key: key(number), call, waits: true, tenant: TenantShare::default() })
    }

    pub(super) fn leave(&mut self, number: u8, call: CallId) -> Vec<Action> {
        self.send(Event::Leave { key: key(number), call })
    }

    pub(super) fn abandon(&mut self, number: u8, call: CallId) -> Vec<Action> {
        self.send(Event::Abandon { key: key(number), call })
    }

    pub(super) fn close(&mut self, number: u8, delete: bool) -> (CallId, Vec<Action>) {
        let call = self.call();
        (call, self.send(Event::Close { key: key(number), call, delete }))
    }

    pub(super) fn open(&mut self, number: u8, makes: bool) -> (CallId, Vec<Action>) {
        let call = self.call();
        (call, self.send(Event::Open { key: key(number), call, makes }))
    }

    /// Every copy of a session's permit is dropped.
    pub(super) fn give_back(&mut self, key: &SessionKey) -> Vec<Action> {
        let copies = self.oracle.permits.get(key).map_or(0, |(_, copies)| *copies);
        (0..copies).flat_map(|_| self.send(Event::Return { key: key.clone() })).collect()
    }

    /// Does what the driver owes for a session; `works` says whether the store does.
    pub(super) fn finish(&mut self, key: &SessionKey, works: bool) -> Vec<Action> {
        let owed = self.oracle.books.get(key).and_then(|book| book.owed);
        let key = key.clone();
        match owed {
            None => Vec::new(),
            Some(Owed::Load) if works => {
                let (found, closed) = (self.stored.contains_key(&key), self.stored.get(&key) == Some(&true));
                self.send(Event::Loaded { key, found, closed })
            }
            Some(Owed::Load) => self.send(Event::LoadFailed { key }),
            Some(Owed::Release | Owed::Close { step: Step::Release, .. }) => {
                let mut actions = self.give_back(&key);
                actions.extend(self.send(Event::Tidied { key }));
                actions
            }
            Some(Owed::DropLost) => {
                let mut actions = if works { self.give_back(&key) } else { Vec::new() };
                actions.extend(self.send(Event::Tidied { key }));
                actions
            }
            Some(Owed::Expire | Owed::Close { step: Step::Delete, .. }) if works => {
                let found = self.stored.remove(&key).is_some();
                self.send(Event::Deleted { key, found })
            }
            Some(Owed::Expire | Owed::Close { step: Step::Delete, .. }) => {
                self.send(Event::NotDeleted { key })
            }
            Some(Owed::Close { .. }) => self.send(Event::KeptClosed { key }),
        }
    }

    /// The driver does all that it owes, and what follows from that, until it owes nothing.
    pub(super) fn finish_all(&mut self) -> Vec<Action> {
        let mut all = Vec::new();
        for _ in 0..MANY_TICKS {
            if let Some(key) = self.oracle.owing().first() {
                all.extend(self.finish(key, true));
            } else if std::mem::take(&mut self.holders_wanted) {
                all.extend(self.say_holders());
            } else {
                return all;
            }
        }
        panic!("chores follow each other without end");
    }

    pub(super) fn say_holders(&mut self) -> Vec<Action> {
        let (held, untold) = (self.held.iter().cloned().collect(), self.untold.iter().cloned().collect());
        self.holders_wanted = false;
        self.send(Event::Holders { held, untold })
    }

    /// Lets time pass, with a tick at each deadline.
    pub(super) fn wait(&mut self, time: Duration) -> Vec<Action> {
        let end = self.now + time;
        let mut all = Vec::new();
        for _ in 0..MANY_TICKS {
            let Some(due) = self.core.next_deadline().filter(|due| *due <= end) else {
                self.now = end;
                return all;
            };
            self.now = due.max(self.now);
            all.extend(self.send(Event::Tick));
        }
        panic!("the core asks for ticks without end");
    }

    /// Lets time pass while the driver is too busy to tick.
    pub(super) fn oversleep(&mut self, time: Duration) {
        self.now += time;
    }

    pub(super) fn is_in(&self, number: u8, call: CallId) -> bool {
        self.oracle.inside().iter().any(|(of, inmate)| *of == key(number) && inmate.call == call)
    }

    pub(super) fn waits(&self, call: CallId) -> bool {
        self.oracle.waiting().iter().any(|(_, waiting)| *waiting == call)
    }

    pub(super) fn has_permit(&self, number: u8) -> bool {
        self.oracle.permits.contains_key(&key(number))
    }

    pub(super) fn rests(&self) -> u64 {
        self.core.rests()
    }

    pub(super) fn counts(&self) -> GateCounts {
        self.core.counts()
    }

    pub(super) fn is_quiet(&self) -> bool {
        self.core.is_quiet()
    }

    pub(super) fn has_deadline(&self) -> bool {
        self.core.next_deadline().is_some()
    }
}

/// The calls that these actions let in, in order.
pub(super) fn entered(actions: &[Action]) -> Vec<CallId> {
    let enter = |action: &Action| if let Action::Enter { call, .. } = action { Some(*call) } else { None };
    actions.iter().filter_map(enter).collect()
}

/// The calls that these actions grant a permit.
pub(super) fn granted(actions: &[Action]) -> Vec<CallId> {
    let grant = |action: &Action| if let Action::Grant { call, .. } = action { Some(*call) } else { None };
    actions.iter().filter_map(grant).collect()
}

/// The calls that these actions deny, and why.
pub(super) fn denied(actions: &[Action]) -> Vec<(CallId, Denial)> {
    let deny = |action: &Action| {
        if let Action::Deny { call, why, .. } = action { Some((*call, *why)) } else { None }
    };
    actions.iter().filter_map(deny).collect()
}

/// The calls whose work these actions cancel.
pub(super) fn cancelled(actions: &[Action]) -> Vec<CallId> {
    let cancel = |action: &Action| if let Action::Cancel { call, .. } = action { Some(*call) } else { None };
    actions.iter().filter_map(cancel).collect()
}

/// The sessions whose containers these actions drop, and why.
pub(super) fn released(actions: &[Action]) -> Vec<(SessionKey, ReleaseReason)> {
    let release = |action: &Action| {
        if let Action::Release { key, why } = action { Some((key.clone(), *why)) } else { None }
    };
    actions.iter().filter_map(release).collect()
}

/// The calls that closed a session by these actions, and whether there was one.
pub(super) fn closed(actions: &[Action]) -> Vec<(CallId, bool)> {
    let close = |action: &Action| {
        if let Action::Closed { call, found, .. } = action { Some((*call, *found)) } else { None }
    };
    actions.iter().filter_map(close).collect()
}
