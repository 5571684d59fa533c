//! Several tenants: each has its limit, waits in its turn, and keeps its part. The oracle of the other tests
//! knows one tenant; here a few rules are checked after every event, whatever happens.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::super::super::message::{Denial, ReleaseReason};
use super::super::permits::AT_REST;
use super::super::{Action, CallId, Core, Event, GateBounds, SessionKey, TurnKind};
use super::usual;
use crate::tenants::{TenantId, TenantShare};

fn tenant(id: u32) -> TenantShare {
    TenantShare { id: TenantId(id), tenants: 2, ..TenantShare::default() }
}

/// A core whose driver does at once what it is told.
struct House {
    core: Core,
    now: Instant,
    last_call: u64,
    /// By session: the calls that are in.
    permits: BTreeMap<SessionKey, usize>,
    denied: Vec<(CallId, Denial)>,
    granted: Vec<CallId>,
    evicted: Vec<SessionKey>,
    /// Where the driver is slow: what it will answer.
    unanswered: Option<Vec<Event>>,
}

fn key(tenant: TenantShare, number: u32) -> SessionKey {
    SessionKey::new(&format!("t{}", tenant.id.0), &format!("s{number}").parse().unwrap())
}

impl House {
    fn new(permits: usize) -> Self {
        Self::of(GateBounds { permits, ..usual() })
    }

    fn of(terms: GateBounds) -> Self {
        Self {
            core: Core::new(terms),
            now: Instant::now(),
            last_call: 0,
            permits: BTreeMap::new(),
            denied: Vec::new(),
            granted: Vec::new(),
            evicted: Vec::new(),
            unanswered: None,
        }
    }

    fn send(&mut self, event: Event) {
        let mut events = vec![event];
        while let Some(event) = events.pop() {
            for action in self.core.on(event, self.now) {
                match action {
                    Action::Load { key } => events.push(Event::Loaded { key, found: true, closed: false }),
                    Action::Grant { key, call } => {
                        *self.permits.entry(key).or_default() += 1;
                        self.granted.push(call);
                    }
                    Action::Deny { call, why, .. } => self.denied.push((call, why)),
                    Action::Release { key, why } => {
                        if why == ReleaseReason::Evicted {
                            self.evicted.push(key.clone());
                        }
                        let copies = self.permits.remove(&key).unwrap_or(0);
                        let answers = self.unanswered.as_mut().unwrap_or(&mut events);
                        answers.push(Event::Tidied { key: key.clone() });
                        (0..copies).for_each(|_| answers.push(Event::Return { key: key.clone() }));
                    }
                    Action::KeepClosed { key } => events.push(Event::KeptClosed { key }),
                    Action::AskHolders
                    | Action::Enter { .. }
                    | Action::Cancel { .. }
                    | Action::Opened { .. }
                    | Action::NotFound { .. }
                    | Action::Closed { .. }
                    | Action::DropLost { .. }
                    | Action::Delete { .. }
                    | Action::Forget { .. }
                    | Action::LookForUnused => {}
                }
            }
        }
    }

    /// A call that is in its session and wants a permit.
    fn work(&mut self, tenant: TenantShare, number: u32) -> CallId {
        self.last_call += 1;
        let (call, key) = (CallId(self.last_call), key(tenant, number));
        let kind = TurnKind::Code("python".into());
        self.send(Event::Enter { key: key.clone(), call, kind, waits: true });
        self.send(Event::Want { key, call, waits: true, tenant });
        call
    }

    fn leave(&mut self, tenant: TenantShare, number: u32, call: CallId) {
        self.send(Event::Leave { key: key(tenant, number), call });
    }

    fn wait(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some(due) = self.core.next_deadline().filter(|due| *due <= end) {
            assert!(due > self.now, "a deadline in the past makes the driver spin");
            self.now = due;
            self.send(Event::Tick);
        }
        self.now = end;
        self.send(Event::Tick);
    }

    /// Whether it waits for a permit.
    fn wants(&self, call: CallId) -> bool {
        self.core.wants.iter().any(|want| want.is_of(call))
    }

    fn has(&self, call: CallId) -> bool {
        self.granted.contains(&call)
    }
}

#[test]
fn the_last_place_is_kept_for_a_tenant_that_has_none() {
    let (a, b, mut house) = (tenant(1), tenant(2), House::new(3));
    let calls: Vec<CallId> = (0..5).map(|n| house.work(a, n)).collect();
    assert_eq!(calls.iter().filter(|call| house.has(**call)).count(), 2);
    let theirs = house.work(b, 0);
    assert!(house.has(theirs), "it does not wait behind the flood");
    let second = house.work(b, 1);
    assert!(!house.has(second));
    house.leave(a, 0, calls[0]);
    house.leave(a, 1, calls[1]);
    let of_a = calls.iter().filter(|call| house.has(**call)).count();
    assert!(house.has(second) && of_a == 3, "each has its turn: {:?}", house.granted);
}

#[test]
fn no_place_is_kept_once_every_tenant_has_one() {
    let three = |id| TenantShare { tenants: 3, ..tenant(id) };
    let mut house = House::new(4);
    let calls: Vec<CallId> = (0..3).map(|n| house.work(three(1), n)).collect();
    let other = house.work(three(2), 0);
    let more = house.work(three(2), 1);
    assert!(house.has(calls[2]) && house.has(other) && !house.has(more), "{:?}", house.granted);
    let mut house = House::new(4);
    let calls: Vec<CallId> = (0..4).map(|n| house.work(three(1), n)).collect();
    assert!(house.has(calls[2]) && !house.has(calls[3]));
}

#[test]
fn a_tenant_alone_has_every_place() {
    let alone = TenantShare { tenants: 1, ..tenant(1) };
    let mut house = House::new(3);
    let calls: Vec<CallId> = (0..3).map(|n| house.work(alone, n)).collect();
    assert!(calls.iter().all(|call| house.has(*call)));
}

#[test]
fn those_who_wait_are_served_round_by_round_and_by_weight() {
    let (a, b) = (tenant(1), TenantShare { weight: 2, ..tenant(2) });
    let mut house = House::of(GateBounds { permits: 4, permit_queue: 32, ..usual() });
    let first: Vec<CallId> = (0..2).map(|n| house.work(a, 10 + n)).collect();
    let second: Vec<CallId> = (0..2).map(|n| house.work(b, 10 + n)).collect();
    assert!(first.iter().chain(&second).all(|call| house.has(*call)));
    let of_a: Vec<CallId> = (1..7).map(|n| house.work(a, n)).collect();
    let of_b: Vec<CallId> = (1..7).map(|n| house.work(b, n)).collect();
    let mut order = Vec::new();
    house.leave(a, 10, first[0]);
    for _ in 0..6 {
        let next = *house.granted.last().unwrap();
        let at = |calls: &[CallId]| (1_u32..).zip(calls).find(|(_, call)| **call == next).map(|(n, _)| n);
        let (of, number) = at(&of_a).map(|n| (a, n)).or_else(|| at(&of_b).map(|n| (b, n))).unwrap();
        order.push(of.id.0);
        house.leave(of, number, next);
    }
    assert_eq!(order.iter().filter(|id| **id == 2).count(), 4, "{order:?}");
}

#[test]
fn a_limit_of_sessions_holds_and_evicts_the_tenants_own() {
    let a = TenantShare { sessions: Some(2), ..tenant(1) };
    let (b, mut house) = (tenant(2), House::new(8));
    let theirs = house.work(b, 0);
    house.leave(b, 0, theirs);
    house.wait(Duration::from_secs(2));
    let calls: Vec<CallId> = (0..2).map(|n| house.work(a, n)).collect();
    house.leave(a, 1, calls[1]);
    let third = house.work(a, 2);
    assert!(house.has(third) && house.evicted == [key(a, 1)], "{:?}", house.evicted);
    let fourth = house.work(a, 3);
    assert!(!house.has(fourth), "both are at work");
    house.wait(usual().wait);
    assert_eq!(house.denied.last(), Some(&(fourth, Denial::TenantFull(2))));
    assert!(house.permits.contains_key(&key(b, 0)), "nobody else's was taken");
}

#[test]
fn a_limit_that_changes_lets_waiting_calls_in_and_takes_sessions_that_rest() {
    let a = TenantShare { sessions: Some(2), ..tenant(1) };
    let (b, mut house) = (tenant(2), House::new(8));
    let other = house.work(b, 0);
    house.leave(b, 0, other);
    house.wait(Duration::from_secs(2));
    let calls: Vec<CallId> = (0..2).map(|n| house.work(a, n)).collect();
    let third = house.work(a, 2);
    assert!(!house.has(third));
    house.send(Event::Limit { tenant: TenantShare { sessions: Some(3), ..a }, gives_up: 0 });
    assert!(house.has(third), "there is room for one more");
    house.leave(a, 0, calls[0]);
    house.wait(Duration::from_secs(1));
    house.leave(a, 1, calls[1]);
    house.send(Event::Limit { tenant: a, gives_up: 1 });
    assert_eq!(house.evicted, [key(a, 0)], "the one that has rested for longest");
    house.send(Event::Limit { tenant: TenantShare { sessions: Some(0), ..a }, gives_up: 9 });
    assert_eq!(house.evicted, [key(a, 0), key(a, 1)], "none that works, and nobody else's");
    assert!(house.has(third) && house.permits.contains_key(&key(b, 0)));
}

#[test]
fn own_sessions_go_first_and_those_of_others_only_from_whoever_has_more_or_is_away() {
    let (a, b) = (tenant(1), tenant(2));
    let mut house = House::new(5);
    let old = house.work(b, 0);
    house.leave(b, 0, old);
    let busy = house.work(b, 1);
    house.wait(Duration::from_secs(1));
    let calls: Vec<CallId> = (0..3).map(|n| house.work(a, n)).collect();
    house.leave(a, 0, calls[0]);
    let fourth = house.work(a, 3);
    assert_eq!(house.evicted, [key(a, 0)], "its own, though another rested for longer");
    assert!(house.has(fourth) && house.has(busy));
    let fifth = house.work(a, 4);
    assert!(!house.has(fifth) && house.evicted.len() == 1, "b has two, and a would have four");
    house.wait(AT_REST);
    assert!(!house.has(fifth) && house.evicted.len() == 1, "b is at work, and has its part");
    house.leave(b, 1, busy);
    house.wait(AT_REST);
    assert!(house.has(fifth) && house.evicted.last() == Some(&key(b, 0)), "it was not used for long");
    // And back, from the tenant that has more.
    house.leave(a, 3, fourth);
    let again = house.work(b, 0);
    assert!(house.has(again) && house.evicted.last() == Some(&key(a, 3)), "{:?}", house.evicted);
    // The last session of a tenant is not taken for one that may not have it: the place is kept.
    house.leave(b, 0, again);
    let evicted = house.evicted.len();
    let sixth = house.work(a, 6);
    house.wait(Duration::from_secs(80));
    assert!(house.has(sixth) && house.evicted.len() == evicted + 1, "{:?}", house.evicted);
    let seventh = house.work(a, 7);
    house.wait(Duration::from_secs(80));
    assert!(!house.has(seventh) && house.evicted.len() == evicted + 1, "{:?}", house.evicted);
}

#[test]
fn a_tenant_that_has_less_than_its_part_keeps_its_sessions_beside_a_flood() {
    let (flood, quiet, mut house) = (tenant(1), tenant(2), House::new(6));
    let first = house.work(quiet, 0);
    house.leave(quiet, 0, first);
    let mut calls: Vec<CallId> = (0..9).map(|n| house.work(flood, n)).collect();
    let served = |house: &House, calls: &[CallId]| calls.iter().filter(|call| house.has(**call)).count();
    assert_eq!(served(&house, &calls), 4, "one is kept, since the other tenant is at work");
    let second = house.work(quiet, 1);
    assert!(house.has(second) && house.evicted.is_empty(), "{:?}", house.evicted);
    house.leave(quiet, 1, second);
    // What the flood gives back is kept again, and then it goes on.
    house.leave(flood, 0, calls[0]);
    assert_eq!((served(&house, &calls), &house.evicted[..]), (4, &[key(flood, 0)][..]));
    let third = house.work(quiet, 2);
    assert!(house.has(third) && house.evicted.len() == 1, "{:?}", house.evicted);
    house.leave(quiet, 2, third);
    house.leave(flood, 1, calls[1]);
    assert_eq!(served(&house, &calls), 5, "the other tenant has its part");
    // Beyond its part it loses its own.
    let fourth = house.work(quiet, 3);
    assert!(house.has(fourth) && house.evicted.last() == Some(&key(quiet, 0)), "{:?}", house.evicted);
    house.leave(quiet, 3, fourth);
    // Nothing is kept for a tenant that is not at work any more.
    house.wait(Duration::from_secs(10));
    calls.push(house.work(flood, 20));
    house.wait(AT_REST);
    house.leave(flood, 2, calls[2]);
    assert!(served(&house, &calls) > 5, "{:?}", house.evicted);
}

#[test]
fn a_burst_takes_no_more_of_another_than_is_beyond_its_part() {
    for (of_flood, of_quiet, wants, lost_by_quiet) in [(0, 8, 8, 3), (4, 6, 3, 1), (5, 5, 3, 0)] {
        let (flood, quiet, mut house) = (tenant(1), tenant(2), House::new(10));
        let mut inside = Vec::new();
        for (of, count) in [(quiet, of_quiet), (flood, of_flood)] {
            inside.extend((0..count).map(|n| (of, n, house.work(of, n))));
        }
        assert!(inside.iter().all(|(.., call)| house.has(*call)));
        for (of, number, call) in inside {
            house.leave(of, number, call);
        }
        // All of them come before the driver has released anything.
        house.unanswered = Some(Vec::new());
        for number in 20..20 + wants {
            house.work(flood, number);
        }
        for event in house.unanswered.take().unwrap().into_iter().rev() {
            house.send(event);
        }
        let lost = house.evicted.iter().filter(|key| key.owner() == "t2").count();
        assert_eq!(lost, lost_by_quiet, "{of_flood}, {of_quiet}, {wants}: {:?}", house.evicted);
    }
}

#[test]
fn no_place_is_kept_for_a_tenant_that_could_not_take_it() {
    let (flood, mut house) = (tenant(1), House::new(6));
    let limited = TenantShare { sessions: Some(2), ..tenant(2) };
    let busy = [house.work(limited, 0), house.work(limited, 1)];
    let calls: Vec<CallId> = (0..4).map(|n| house.work(flood, n)).collect();
    assert!(busy.iter().chain(&calls).all(|call| house.has(*call)));
    // A limit that changes is known of sessions that have a permit already.
    let mut house = House::new(6);
    let busy = [house.work(limited, 0), house.work(limited, 1)];
    let free = TenantShare { sessions: None, ..limited };
    house.send(Event::Limit { tenant: free, gives_up: 0 });
    let calls: Vec<CallId> = (0..4).map(|n| house.work(flood, n)).collect();
    assert!(busy.iter().chain(&calls[..3]).all(|call| house.has(*call)) && !house.has(calls[3]));
    house.send(Event::Limit { tenant: limited, gives_up: 0 });
    assert!(house.has(calls[3]));
}

#[test]
fn below_its_part_a_tenant_gives_up_its_own_before_one_of_a_poorer_tenant() {
    let three = |id| TenantShare { tenants: 3, ..tenant(id) };
    let (rich, own, poor, mut house) = (three(1), three(2), three(3), House::new(9));
    for (of, number) in [(poor, 0), (own, 0), (own, 1)] {
        let call = house.work(of, number);
        house.leave(of, number, call);
    }
    house.wait(AT_REST + Duration::from_secs(1));
    let busy: Vec<CallId> = (0..6).map(|n| house.work(rich, n)).collect();
    assert!(busy.iter().all(|call| house.has(*call)), "{:?}", house.evicted);
    let call = house.work(own, 2);
    assert!(house.has(call) && house.evicted == [key(own, 0)], "{:?}", house.evicted);
}

#[test]
fn one_that_has_less_than_its_part_evicts_a_session_of_whoever_has_more() {
    let (flood, quiet, mut house) = (tenant(1), tenant(2), House::new(4));
    let first = house.work(quiet, 0);
    house.leave(quiet, 0, first);
    house.wait(AT_REST + Duration::from_secs(1));
    let calls: Vec<CallId> = (0..3).map(|n| house.work(flood, n)).collect();
    assert!(calls.iter().all(|call| house.has(*call)), "nothing is kept: the other one is away");
    house.leave(flood, 1, calls[1]);
    let second = house.work(quiet, 1);
    assert!(house.has(second) && house.evicted == [key(flood, 1)], "{:?}", house.evicted);
}

#[test]
fn a_full_queue_refuses_the_tenant_that_filled_it() {
    let (a, b) = (tenant(1), tenant(2));
    let mut house = House::of(GateBounds { permits: 2, permit_queue: 3, ..usual() });
    let _busy = [house.work(a, 0), house.work(b, 0)];
    let waiting: Vec<CallId> = (1..4).map(|n| house.work(a, n)).collect();
    let more = house.work(a, 9);
    assert_eq!(house.denied.last(), Some(&(more, Denial::PermitQueueFull(3))));
    let theirs = house.work(b, 1);
    assert_eq!(house.denied.last(), Some(&(waiting[2], Denial::PermitQueueFull(3))));
    assert!(house.denied.iter().all(|(call, _)| *call != theirs));
}

#[test]
fn a_program_that_certainly_gets_no_place_is_refused_before_its_turn() {
    let (a, b) = (tenant(1), tenant(2));
    let mut house = House::of(GateBounds { permits: 2, permit_queue: 1, ..usual() });
    assert_eq!(house.core.refuses(&key(a, 0), a, house.now), None, "a place is free");
    let _busy = [house.work(a, 0), house.work(b, 0)];
    assert_eq!(house.core.refuses(&key(a, 9), a, house.now), None, "it may wait");
    house.work(a, 1);
    assert_eq!(house.core.refuses(&key(a, 9), a, house.now), Some(Denial::PermitQueueFull(1)));
    assert_eq!(house.core.refuses(&key(a, 0), a, house.now), None, "its session has a place");
    let operator = TenantShare { is_operator: true, ..tenant(9) };
    assert_eq!(house.core.refuses(&key(operator, 0), operator, house.now), None, "an operator gets in");

    let mut house = House::of(GateBounds { permits: 2, evicts: false, ..usual() });
    let limited = TenantShare { sessions: Some(1), ..a };
    let _busy = [house.work(limited, 0), house.work(b, 0)];
    assert_eq!(house.core.refuses(&key(b, 9), b, house.now), Some(Denial::NoEviction));
    assert_eq!(house.core.refuses(&key(a, 9), limited, house.now), Some(Denial::TenantFull(1)));
}

#[test]
fn an_operator_gets_in_when_everything_is_in_use() {
    let (a, operator) = (tenant(1), TenantShare { is_operator: true, ..tenant(9) });
    let mut house = House::new(3);
    let calls: Vec<CallId> = (0..6).map(|n| house.work(a, n)).collect();
    let other = house.work(tenant(2), 0);
    assert!(house.has(calls[1]) && house.has(other));
    let call = house.work(operator, 0);
    assert!(house.has(call));
}

proptest! {
    /// Whatever a few tenants do, no limit is exceeded, nobody is evicted at work, and what is free is given
    /// to whoever may have it.
    #[test]
    fn limits_hold_and_nothing_is_left_lying(
        permits in 1..5_usize,
        limits in proptest::collection::vec(prop::option::of(1..3_usize), 3),
        steps in proptest::collection::vec((0..3_u32, 0..4_u32, 0..4_u8), 1..120),
    ) {
        let tenants: Vec<TenantShare> = (0..3_u32)
            .map(|id| TenantShare { sessions: limits[id as usize], weight: id + 1, ..tenant(id) })
            .collect();
        let mut house = House::new(permits);
        let mut inside: Vec<(TenantShare, u32, CallId)> = Vec::new();
        for (who, number, what) in steps {
            let of = tenants[who as usize];
            match what {
                0 | 1 => inside.push((of, number, house.work(of, number))),
                2 if !inside.is_empty() => {
                    let (of, number, call) = inside.remove(number as usize % inside.len());
                    house.leave(of, number, call);
                    house.send(Event::Abandon { key: key(of, number), call });
                }
                _ => house.wait(Duration::from_millis(u64::from(number) * 9_000)),
            }
            let held = |of: &TenantShare| {
                house.permits.keys().filter(|key| key.owner() == format!("t{}", of.id.0)).count()
            };
            prop_assert!(house.permits.len() <= permits);
            for of in &tenants {
                prop_assert!(of.sessions.is_none_or(|most| held(of) <= most), "{:?}", house.permits);
            }
            let waits = |call: &CallId| {
                !house.granted.contains(call) && house.denied.iter().all(|(denied, _)| denied != call)
            };
            if house.permits.len() + 1 < permits {
                // Two are free: whoever wants one, and is in its session, is at its own limit.
                let wanting = inside.iter().filter(|(of, number, call)| {
                    waits(call) && !house.permits.contains_key(&key(*of, *number)) && house.wants(*call)
                });
                for (of, ..) in wanting {
                    prop_assert!(of.sessions.is_some_and(|most| held(of) >= most), "{:?}", house.permits);
                }
            }
        }
        // In the end everybody is served, or told no.
        for (of, number, call) in inside {
            house.leave(of, number, call);
            house.send(Event::Abandon { key: key(of, number), call });
        }
        house.wait(Duration::from_secs(600));
        prop_assert_eq!(house.core.counts().wanting, 0);
    }
}
