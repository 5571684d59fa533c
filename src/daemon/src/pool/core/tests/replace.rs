//! Idle members that are outdated are replaced, one of a runner after the other, and never at a caller's
//! cost.

use std::collections::BTreeSet;
use std::time::Instant;

use super::super::{
    MemberId, PoolAction, PoolCore, PoolEvent, PoolSettings, RawPoolSettings, RunnerId, WaiterId,
};
use super::usual;
use crate::tenants::TenantShare;

const RUNNER: RunnerId = RunnerId(0);

/// A pool of one runner, whose driver finishes nothing by itself.
struct Replacing {
    core: PoolCore,
    now: Instant,
    idle: BTreeSet<MemberId>,
}

impl Replacing {
    /// With its idle members, all of them outdated.
    fn new(settings: RawPoolSettings) -> Self {
        let core = PoolCore::new(PoolSettings::try_from(settings).expect("settings"));
        let mut pool = Self { core, now: Instant::now(), idle: BTreeSet::new() };
        let mut actions = pool.send(PoolEvent::RunnerAdded { runner: RUNNER, idle: 2 });
        while let Some(member) = started(&actions) {
            actions.remove(0);
            pool.idle.insert(member);
            actions.extend(pool.send(PoolEvent::Started { member }));
        }
        pool
    }

    fn send(&mut self, event: PoolEvent) -> Vec<PoolAction> {
        self.core.on(event, self.now)
    }

    fn counts(&self) -> (usize, usize) {
        let now = self.core.snapshot().runners[&RUNNER];
        (now.idle, now.starting)
    }
}

fn started(actions: &[PoolAction]) -> Option<MemberId> {
    match actions.first() {
        Some(PoolAction::Start { member, .. }) => Some(*member),
        _ => None,
    }
}

#[test]
fn one_after_the_other_is_replaced_and_as_many_stand_idle_as_before() {
    let mut pool = Replacing::new(usual());
    let old: Vec<_> = pool.idle.iter().copied().collect();
    let first = pool.send(PoolEvent::Outdated { member: old[0] });
    let new = started(&first).expect("a start");
    assert_eq!(first.len(), 1, "nothing is removed yet");
    assert_eq!(pool.send(PoolEvent::Outdated { member: old[1] }), [], "one at a time");
    assert_eq!(pool.counts(), (2, 1));
    // The first is there: an outdated one goes, and the second is started.
    let actions = pool.send(PoolEvent::Started { member: new });
    assert!(matches!(actions[0], PoolAction::Destroy { member } if member == old[0]), "{actions:?}");
    let second = started(&actions[1..]).expect("the second");
    assert_eq!(pool.send(PoolEvent::Destroyed { member: old[0] }), []);
    let actions = pool.send(PoolEvent::Started { member: second });
    assert_eq!(actions, [PoolAction::Destroy { member: old[1] }]);
    assert_eq!(pool.send(PoolEvent::Destroyed { member: old[1] }), []);
    assert_eq!(pool.counts(), (2, 0));
}

#[test]
fn a_caller_gets_one_that_is_not_outdated_first_and_an_outdated_one_rather_than_none() {
    let mut pool = Replacing::new(usual());
    let old: Vec<_> = pool.idle.iter().copied().collect();
    pool.send(PoolEvent::Outdated { member: old[0] });
    let granted = |actions: &[PoolAction]| {
        let PoolAction::Grant { member, .. } = actions[0] else { panic!("{actions:?}") };
        member
    };
    let actions =
        pool.send(PoolEvent::Request { waiter: WaiterId(1), runner: RUNNER, tenant: TenantShare::default() });
    assert_eq!(granted(&actions), old[1]);
    let actions =
        pool.send(PoolEvent::Request { waiter: WaiterId(2), runner: RUNNER, tenant: TenantShare::default() });
    assert_eq!(granted(&actions), old[0]);
    // Once it is leased, nobody replaces it.
    assert_eq!(pool.send(PoolEvent::Outdated { member: old[0] }), []);
}

#[test]
fn without_a_free_slot_nothing_is_replaced() {
    let mut pool = Replacing::new(RawPoolSettings { max_members: 2, ..usual() });
    for member in pool.idle.clone() {
        assert_eq!(pool.send(PoolEvent::Outdated { member }), []);
    }
    assert_eq!(pool.counts(), (2, 0));
}
