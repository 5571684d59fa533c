//! Several tenants wait for containers: round by round, and of too many the tenant that has most is refused.

use std::time::{Duration, Instant};

use super::super::{
    Backoff, LeaseRefusal, MemberId, PoolAction, PoolCore, PoolEvent, PoolSettings, RawPoolSettings,
    RunnerId, WaiterId,
};
use proptest::prelude::*;

use crate::tenants::{TenantId, TenantShare};

fn tenant(id: u32, weight: u32) -> TenantShare {
    TenantShare { id: TenantId(id), weight, tenants: 9, ..TenantShare::default() }
}

struct Pool {
    core: PoolCore,
    now: Instant,
    last: u64,
    starting: Vec<MemberId>,
    destroying: Vec<MemberId>,
    granted: Vec<WaiterId>,
    refused: Vec<(WaiterId, LeaseRefusal)>,
}

impl Pool {
    fn new(queue: u32) -> Self {
        Self::of(queue, 0, 50)
    }

    /// With so many idle containers for each of two runners, and so many places.
    fn of(queue: u32, idle: u32, max_members: u32) -> Self {
        let settings = RawPoolSettings {
            idle_per_runner: idle,
            max_starting: 1,
            idle_ttl: Duration::from_secs(60),
            queue,
            wait: Duration::from_secs(90),
            uid_range: 20_000..=20_099,
            backoff: Backoff { first: Duration::from_secs(1), max: Duration::from_secs(9) },
            max_members,
        };
        let mut pool = Self {
            core: PoolCore::new(PoolSettings::try_from(settings).unwrap()),
            now: Instant::now(),
            last: 0,
            starting: Vec::new(),
            destroying: Vec::new(),
            granted: Vec::new(),
            refused: Vec::new(),
        };
        for runner in [RunnerId(1), RunnerId(2)] {
            pool.send(PoolEvent::RunnerAdded { runner, idle });
        }
        pool
    }

    fn send(&mut self, event: PoolEvent) {
        for action in self.core.on(event, self.now) {
            match action {
                PoolAction::Start { member, .. } => self.starting.push(member),
                PoolAction::Grant { waiter, .. } => self.granted.push(waiter),
                PoolAction::Refuse { waiter, refusal } => self.refused.push((waiter, refusal)),
                PoolAction::Destroy { member, .. } => self.destroying.push(member),
            }
        }
    }

    fn ask(&mut self, tenant: TenantShare, runner: u32) -> WaiterId {
        self.last += 1;
        let waiter = WaiterId(self.last);
        self.send(PoolEvent::Request { waiter, runner: RunnerId(runner), tenant });
        waiter
    }

    /// All containers that are to go are gone.
    fn destroy(&mut self) {
        while let Some(member) = self.destroying.pop() {
            self.send(PoolEvent::Destroyed { member });
        }
    }

    /// One container comes up.
    fn start(&mut self) {
        let member = self.starting.remove(0);
        self.send(PoolEvent::Started { member });
    }
}

#[test]
fn a_flood_waits_behind_itself_for_containers_and_for_starts() {
    let mut pool = Pool::new(100);
    let flood: Vec<WaiterId> = (0..10).map(|n| pool.ask(tenant(1, 1), 1 + n % 2)).collect();
    let theirs = pool.ask(tenant(2, 1), 2);
    (0..3).for_each(|_| pool.start());
    assert!(pool.granted.contains(&theirs), "{:?} of {flood:?}", pool.granted);
    (0..8).for_each(|_| pool.start());
    assert_eq!(pool.granted.len(), 11);
    let of_flood: Vec<WaiterId> = pool.granted.iter().copied().filter(|waiter| *waiter != theirs).collect();
    let odd = |list: &[WaiterId]| list.iter().copied().filter(|w| w.0 % 2 == 1).collect::<Vec<_>>();
    assert!(odd(&of_flood).is_sorted(), "of one tenant and runner the oldest first: {of_flood:?}");
}

#[test]
fn containers_go_by_weight() {
    let mut pool = Pool::new(100);
    let light: Vec<WaiterId> = (0..12).map(|_| pool.ask(tenant(1, 1), 1)).collect();
    let heavy: Vec<WaiterId> = (0..12).map(|_| pool.ask(tenant(2, 3), 1)).collect();
    (0..12).for_each(|_| pool.start());
    let count = |of: &[WaiterId]| pool.granted.iter().filter(|waiter| of.contains(waiter)).count();
    assert!((8..=9).contains(&count(&heavy)) && count(&light) + count(&heavy) == 12, "{:?}", pool.granted);
}

#[test]
fn of_too_many_the_last_of_the_flood_is_refused() {
    let mut pool = Pool::new(4);
    let flood: Vec<WaiterId> = (0..5).map(|_| pool.ask(tenant(1, 1), 1)).collect();
    assert_eq!(pool.refused, [(flood[4], LeaseRefusal::QueueFull)]);
    let theirs = pool.ask(tenant(2, 1), 2);
    assert_eq!(pool.refused[1..], [(flood[3], LeaseRefusal::QueueFull)]);
    pool.now += Duration::from_secs(91);
    pool.send(PoolEvent::Tick);
    let late: Vec<WaiterId> = pool.refused[2..].iter().map(|(waiter, _)| *waiter).collect();
    assert!(late.contains(&theirs) && late.len() == 4, "each has its own time: {late:?}");
}

#[test]
fn half_of_what_stands_idle_is_kept_from_those_who_took_the_rest() {
    let mut pool = Pool::of(100, 2, 50);
    (0..4).for_each(|_| pool.start());
    assert!(pool.starting.is_empty(), "two stand idle for each runner");
    let flood: Vec<WaiterId> = (0..5).map(|_| pool.ask(tenant(1, 1), 1)).collect();
    assert_eq!(pool.granted, [flood[0]], "the other one is kept");
    let theirs = pool.ask(tenant(2, 1), 1);
    assert_eq!(pool.granted, [flood[0], theirs]);
    // Who was passed over has the next one; the one after it stands idle, and then the flood goes on.
    pool.start();
    assert_eq!(pool.granted[2..], flood[1..2]);
    pool.start();
    assert_eq!(pool.granted.len(), 3);
    pool.start();
    assert_eq!(pool.granted[3..], flood[2..3]);
    let again = pool.ask(tenant(2, 1), 1);
    assert_eq!(pool.granted.last(), Some(&again));
}

#[test]
fn what_is_taken_counts_until_it_is_replaced() {
    let mut pool = Pool::of(100, 2, 50);
    (0..4).for_each(|_| pool.start());
    let first = pool.ask(tenant(1, 1), 1);
    let second = pool.ask(tenant(1, 1), 1);
    assert_eq!(pool.granted, [first], "there are others");
    pool.send(PoolEvent::Abandon { waiter: second });
    pool.now += Duration::from_secs(59);
    let third = pool.ask(tenant(1, 1), 1);
    assert_eq!(pool.granted, [first], "nothing has started meanwhile");
    pool.start();
    assert_eq!(pool.granted, [first, third]);
}

fn of_two(id: u32, owes: bool) -> TenantShare {
    TenantShare { tenants: 2, owes, ..tenant(id, 1) }
}

#[test]
fn what_stands_idle_is_kept_from_those_who_owe_and_never_for_them() {
    let mut pool = Pool::of(100, 2, 50);
    (0..4).for_each(|_| pool.start());
    let flood: Vec<WaiterId> = (0..4).map(|_| pool.ask(of_two(1, true), 1)).collect();
    assert_eq!(pool.granted, flood[..1]);
    let theirs = pool.ask(of_two(2, false), 1);
    assert_eq!(pool.granted[1..], [theirs]);
    // What the flood took is replaced; but it owes, and the other one does not, which took the last.
    pool.start();
    assert_eq!(pool.granted.len(), 2);
    let again = pool.ask(of_two(2, false), 1);
    assert_eq!(pool.granted[2..], [again]);
    // The flood's first waiter was before that one in the round.
    pool.start();
    assert_eq!(pool.granted[3..], flood[1..2], "it is passed over once");
    pool.start();
    assert_eq!(pool.granted.len(), 4, "the next one was not yet");
    let operator = pool.ask(TenantShare { is_operator: true, owes: true, ..of_two(3, false) }, 1);
    assert_eq!(pool.granted[4..], [operator]);
}

#[test]
fn nothing_is_kept_where_all_owe_and_what_a_tenant_owes_is_what_its_last_call_says() {
    let mut pool = Pool::of(100, 2, 50);
    (0..4).for_each(|_| pool.start());
    let first = [pool.ask(of_two(1, true), 1), pool.ask(of_two(1, true), 1)];
    assert_eq!(pool.granted, first[..1]);
    let other = pool.ask(of_two(2, true), 1);
    assert_eq!(pool.granted.len(), 2, "{other:?}");
}

#[test]
fn what_a_tenant_owes_is_what_its_last_call_says() {
    let mut pool = Pool::of(100, 2, 50);
    (0..4).for_each(|_| pool.start());
    let first = [pool.ask(of_two(1, true), 1), pool.ask(of_two(2, false), 1)];
    let waits = pool.ask(of_two(1, true), 1);
    pool.start();
    assert_eq!(pool.granted, first, "one stands idle, and {waits:?} owes");
    let again = pool.ask(of_two(1, false), 1);
    assert_eq!(pool.granted[2..], [waits], "{again:?}");
    // It owed when it took one: but not any more.
    let mut pool = Pool::of(100, 2, 50);
    (0..4).for_each(|_| pool.start());
    pool.ask(of_two(1, true), 1);
    pool.ask(of_two(1, false), 1);
    pool.ask(of_two(2, false), 1);
    assert_eq!(pool.granted.len(), 2);
    let mut pool = Pool::of(100, 2, 50);
    (0..4).for_each(|_| pool.start());
    pool.ask(of_two(2, false), 1);
    pool.ask(of_two(1, false), 2);
    pool.ask(of_two(2, false), 1);
    assert_eq!(pool.granted.len(), 2, "it is kept for the other one, which owes nothing");
}

#[test]
fn what_is_kept_is_kept_for_somebody() {
    let mut pool = Pool::of(100, 3, 50);
    (0..6).for_each(|_| pool.start());
    let all = [1, 2, 1].map(|id| pool.ask(of_two(id, false), 1));
    assert_eq!(pool.granted, all, "each of the two had as many");
    let mut pool = Pool::of(100, 4, 50);
    (0..8).for_each(|_| pool.start());
    let all = [1, 1, 2, 1, 2].map(|id| pool.ask(of_two(id, false), 1));
    assert_eq!(pool.granted, [all[0], all[1], all[2], all[4]], "one of them had more");
}

#[test]
fn who_owes_is_served_within_three_starts_however_often_another_asks() {
    let mut pool = Pool::of(100, 2, 50);
    (0..4).for_each(|_| pool.start());
    let flood: Vec<WaiterId> = (0..8).map(|_| pool.ask(of_two(1, true), 1)).collect();
    let served = |pool: &Pool| flood.iter().filter(|waiter| pool.granted.contains(waiter)).count();
    for starts in 0..21 {
        pool.ask(of_two(2, false), 1);
        assert!(served(&pool) > starts / 3, "{starts}: {:?}", pool.granted);
        pool.start();
    }
}

#[test]
fn nothing_is_kept_from_the_only_tenant_or_where_no_start_could_begin() {
    let mut pool = Pool::of(100, 2, 50);
    (0..4).for_each(|_| pool.start());
    let alone = TenantShare { tenants: 1, ..tenant(1, 1) };
    let both: Vec<WaiterId> = (0..2).map(|_| pool.ask(alone, 1)).collect();
    assert_eq!(pool.granted, both);
    let mut full = Pool::of(100, 2, 4);
    (0..4).for_each(|_| full.start());
    let both: Vec<WaiterId> = (0..2).map(|_| full.ask(tenant(1, 1), 1)).collect();
    assert_eq!(full.granted, both, "every place is taken");
}

#[test]
fn what_is_kept_lets_no_tenant_wait_beyond_the_queue() {
    let mut pool = Pool::of(2, 2, 50);
    (0..4).for_each(|_| pool.start());
    let flood: Vec<WaiterId> = (0..4).map(|_| pool.ask(tenant(1, 1), 1)).collect();
    assert_eq!(pool.granted, [flood[0]]);
    assert_eq!(pool.refused, [(flood[3], LeaseRefusal::QueueFull)]);
    let theirs = pool.ask(tenant(2, 1), 1);
    assert_eq!((pool.granted.last(), pool.refused.len()), (Some(&theirs), 1), "it does not wait");
}

#[test]
fn who_goes_away_or_has_a_container_of_another_runner_has_no_more_of_what_is_kept() {
    let mut pool = Pool::of(9, 2, 50);
    (0..4).for_each(|_| pool.start());
    let first = pool.ask(tenant(1, 1), 1);
    let second = pool.ask(tenant(1, 1), 1);
    pool.send(PoolEvent::Abandon { waiter: second });
    let third = pool.ask(tenant(1, 1), 1);
    let other = pool.ask(tenant(1, 1), 2);
    assert_eq!(pool.granted, [first, other], "{third:?} is of the tenant that took what is missing");
    // So its waiter is passed over.
    let theirs = [pool.ask(tenant(2, 1), 2), pool.ask(tenant(2, 1), 1)];
    assert_eq!(pool.granted[2..], theirs);
}

proptest! {
    /// Whatever several tenants ask for: no more of them wait than may, nobody waits beside a container that
    /// it may have, and time alone serves nobody.
    #[test]
    fn whatever_is_kept_nobody_waits_for_nothing(
        idle in 0..5_u32,
        queue in 1..6_u32,
        places in 8..20_u32,
        tenants in 3..9_usize,
        steps in proptest::collection::vec((0..4_u8, 0..3_u32, 1..3_u32), 1..80),
    ) {
        let mut pool = Pool::of(queue, idle, places);
        let tenant = |id, weight| TenantShare { tenants, ..tenant(id, weight) };
        let mut waiting: Vec<WaiterId> = Vec::new();
        let mut leased = Vec::new();
        for (what, who, runner) in steps {
            match what {
                0 | 1 => {
                    let asks = TenantShare { owes: what == 1, ..tenant(who, who + 1) };
                    waiting.push(pool.ask(asks, runner));
                }
                2 if !pool.starting.is_empty() => pool.start(),
                3 if !waiting.is_empty() => {
                    let waiter = waiting.remove(who as usize % waiting.len());
                    pool.send(PoolEvent::Abandon { waiter });
                }
                _ => pool.destroy(),
            }
            leased.append(&mut pool.granted);
            waiting.retain(|id| !leased.contains(id) && pool.refused.iter().all(|(gone, _)| gone != id));
            prop_assert!(waiting.len() <= queue as usize, "{waiting:?}");
            for id in [RunnerId(1), RunnerId(2)] {
                // A fourth one has taken nothing.
                let stands_idle = pool.core.serves(id, tenant(7, 1));
                let is_for_somebody = (0..3).any(|who| pool.core.serves(id, tenant(who, 1)));
                prop_assert!(is_for_somebody || !stands_idle || tenants > 3, "{id:?} is kept from all");
            }
            let starting = pool.starting.len();
            pool.send(PoolEvent::Tick);
            prop_assert!(pool.granted.is_empty() && pool.starting.len() == starting, "{:?}", pool.granted);
        }
        // While there are places, each start serves a waiter, until nobody waits.
        pool.destroy();
        while waiting.iter().any(|id| !pool.granted.contains(id)) && !pool.starting.is_empty() {
            pool.start();
            pool.destroy();
        }
        let taken = leased.len() + pool.granted.len();
        let is_served = waiting.iter().all(|id| pool.granted.contains(id));
        prop_assert!(is_served || taken + 2 * idle as usize >= places as usize, "{waiting:?} {taken}");
    }
}
