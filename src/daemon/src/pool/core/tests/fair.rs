//! Several tenants wait for containers: round by round, and of too many the tenant that has most is refused.

use std::time::{Duration, Instant};

use super::super::{
    Backoff, LeaseRefusal, MemberId, PoolAction, PoolCore, PoolEvent, PoolSettings, RawPoolSettings,
    RunnerId, WaiterId,
};
use crate::tenants::{TenantId, TenantShare};

fn tenant(id: u32, weight: u32) -> TenantShare {
    TenantShare { id: TenantId(id), weight, tenants: 9, ..TenantShare::default() }
}

struct Pool {
    core: PoolCore,
    now: Instant,
    last: u64,
    starting: Vec<MemberId>,
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
                PoolAction::Destroy { .. } => {}
            }
        }
    }

    fn ask(&mut self, tenant: TenantShare, runner: u32) -> WaiterId {
        self.last += 1;
        let waiter = WaiterId(self.last);
        self.send(PoolEvent::Request { waiter, runner: RunnerId(runner), tenant });
        waiter
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
fn half_of_what_stands_idle_is_kept_for_those_whose_turn_it_is() {
    let mut pool = Pool::of(100, 2, 50);
    (0..4).for_each(|_| pool.start());
    assert!(pool.starting.is_empty(), "two stand idle for each runner");
    let flood: Vec<WaiterId> = (0..5).map(|_| pool.ask(tenant(1, 1), 1)).collect();
    assert_eq!(pool.granted, [flood[0]], "the other one is kept");
    let theirs = pool.ask(tenant(2, 1), 1);
    assert_eq!(pool.granted, [flood[0], theirs]);
    // The next start stands idle in its place, and then the flood goes on with starts of its own.
    pool.start();
    assert_eq!(pool.granted.len(), 2);
    (0..2).for_each(|_| pool.start());
    assert_eq!(pool.granted[2..], flood[1..3]);
    let again = pool.ask(tenant(2, 1), 1);
    assert_eq!(pool.granted.last(), Some(&again));
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
