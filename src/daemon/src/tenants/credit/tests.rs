//! The rules of CPU credits, by numbers.

use super::account::{AT_WORK, BETWEEN, CONTAINER, COST, DEBT, LATE};
use super::*;

pub(super) const MS: Duration = Duration::from_millis(1);
pub(super) const SECOND: Duration = Duration::from_secs(1);
pub(super) const LONG: Duration = Duration::from_secs(15);

pub(super) fn tenant(id: u32, weight: u32) -> TenantShare {
    TenantShare { id: TenantId(id), weight, tenants: 2, ..TenantShare::default() }
}

/// As after a time in which the processors were short.
pub(super) fn least() -> Ease {
    (0..20).fold(Ease::of_programs(), |ease, _| ease.after(true, Some(1.0)))
}

/// Two processors that are short, and a tenant 0 at work that has credits.
pub(super) fn short(now: Instant) -> CreditCore {
    let mut core = CreditCore::new(2);
    core.ease(least());
    core.heard(tenant(0, 1), now);
    core
}

/// Spends all that a tenant has.
pub(super) fn spend(core: &mut CreditCore, of: TenantShare, now: Instant) {
    let id = core.resume(of, now);
    core.used(of.id, id, 99.0, now);
    core.end(of.id, id, now);
}

#[test]
fn work_of_the_daemon_is_charged_and_is_no_measure_of_programs() {
    let (now, of) = (Instant::now(), tenant(1, 1));
    let mut core = short(now);
    core.heard(of, now);
    let before = (core.left(of.id), core.accounts[&of.id].cost);
    let id = core.work(of, now);
    core.container(of.id, id, now);
    core.used(of.id, id, 1.0, now);
    assert_eq!((core.charged(of.id, id), core.charged(TenantId(7), id)), (CONTAINER + 1.0, 0.0));
    core.end(of.id, id, now);
    assert_eq!((core.left(of.id) + CONTAINER + 1.0, core.accounts[&of.id].cost), before);
    let (id, begins) = (core.work(of, now), core.ask(of, false, LATE, now).1);
    core.used(of.id, id, 5.0, now);
    assert!(begins && !core.ask(of, false, LATE, now).1, "what it asks for waits until it has credits again");
    core.work(of, now);
    assert!(core.accounts[&of.id].waiting.len() == 1, "and the daemon's work does not");
}

#[test]
fn a_few_programs_begin_before_anybody_knows_how_short_the_processors_will_be() {
    let (now, one) = (Instant::now(), tenant(1, 1));
    let mut core = CreditCore::new(2);
    core.heard(tenant(0, 1), now);
    let begin = |core: &mut CreditCore| (0..64).filter(|_| core.ask(one, true, LONG, now).1).count();
    // With a deposit of 0.35 six of them spend the credits.
    assert_eq!((begin(&mut core), core.waiting(one.id)), (6 + FEW * 2, 64 - 6 - FEW * 2));
    assert_eq!(core.fill(now), Filled::default());
    core.ease(Ease::of_programs());
    assert_eq!(core.fill(now).begin.len(), FEW * 2, "they are not short yet");
    core.ease(least());
    assert_eq!(core.fill(now), Filled::default());
    // Nobody else is at work any more.
    let rested = now + AT_WORK;
    core.heard(one, rested);
    assert_eq!((core.fill(rested).begin.len(), core.waiting(one.id)), (64 - 6 - FEW * 4, 0));
}

#[test]
fn a_tenant_within_its_part_is_never_held_back_whoever_makes_the_processors_short() {
    let begun = Instant::now();
    let (mut core, light) = (short(begun), tenant(1, 1));
    for _ in 0..64 {
        core.ask(tenant(2, 1), true, LONG, begun);
    }
    let mut now = begun;
    for n in 0..200 {
        // 0.3 of its 0.66 processors, in programs of a tenth of a second, one after the other or five at
        // one time.
        let at_once = if n % 2 == 0 { 1 } else { 5 };
        let programs: Vec<CreditId> = (0..at_once)
            .map(|_| {
                let (id, begins) = core.ask(light, false, LONG, now);
                assert!(begins, "{n}: {:?}", core.accounts[&light.id]);
                core.sent(light.id, id, now);
                id
            })
            .collect();
        now += MS * 100;
        core.heard(tenant(0, 1), now);
        for _ in 0..5 {
            core.ask(tenant(2, 1), true, LONG, now);
        }
        core.fill(now);
        for id in programs {
            core.used(light.id, id, 0.1, now);
            core.end(light.id, id, now);
        }
        now += MS * 900;
    }
    assert!(core.waiting(TenantId(2)) > 0, "the flood does wait");
}

#[test]
fn who_uses_all_processors_while_it_is_alone_owes_once_another_comes() {
    let (one, other) = (tenant(1, 1), tenant(2, 1));
    let after_using = |each_tenth: f64| {
        let (mut core, mut now) = (CreditCore::new(2), Instant::now());
        let id = core.resume(one, now);
        for _ in 0..50 {
            now += MS * 100;
            core.used(one.id, id, each_tenth, now);
            assert!(core.fill(now) == Filled::default() && core.ask(one, true, LONG, now).1, "nothing waits");
            core.end(one.id, CreditId(core.last), now);
            assert!(!core.owes(one.id, now), "it is alone");
        }
        core.heard(other, now);
        core.fill(now);
        (core.owes(one.id, now), core.owes(other.id, now))
    };
    assert_eq!(after_using(0.2), (true, false));
    assert_eq!(after_using(0.1), (false, false), "its part of two is one");
}

#[test]
fn the_weight_is_a_part() {
    let now = Instant::now();
    let gains = |floods: bool| {
        let mut core = short(now);
        for heavy in [tenant(1, 1), tenant(2, 3)] {
            spend(&mut core, heavy, now);
            for _ in 0..if floods { 20 } else { 1 } {
                core.ask(heavy, false, LONG, now);
            }
        }
        [TenantId(1), TenantId(2)].map(|id| {
            let before = core.accounts[&id].left;
            core.refill(id, now + SECOND);
            core.accounts[&id].left - before
        })
    };
    let is = |gains: [f64; 2], parts: [f64; 2]| {
        assert!(
            gains.iter().zip(parts).all(|(gain, part)| (gain - part).abs() < 0.01),
            "{gains:?} {parts:?}"
        );
    };
    is(gains(true), [0.0625, 0.1875]);
    is(gains(false), [0.4, 1.2]);
}

#[test]
fn the_deposits_of_a_tenant_do_not_set_a_flood_free() {
    let (now, quiet) = (Instant::now(), tenant(0, 1));
    let mut core = short(now);
    spend(&mut core, tenant(1, 1), now);
    let gain = |core: &mut CreditCore, at| {
        let before = core.accounts[&TenantId(1)].left;
        core.refill(TenantId(1), at + SECOND);
        core.accounts[&TenantId(1)].left - before
    };
    for _ in 0..20 {
        core.ask(tenant(1, 1), false, LONG, now);
    }
    let new: Vec<CreditId> = (0..6).map(|_| core.ask(quiet, true, LONG, now).0).collect();
    assert!(core.accounts[&quiet.id].has_spent_all() && core.fill(now) == Filled::default());
    assert!((gain(&mut core, now) - 0.125).abs() < 0.01);
    // It has paid for what it did.
    let later = now + SECOND;
    for id in new {
        core.container(quiet.id, id, later);
        core.used(quiet.id, id, 0.5, later);
        core.end(quiet.id, id, later);
    }
    let gained = gain(&mut core, later);
    assert!((gained - 1.0).abs() < 0.01, "half of the processors, and no more: {gained}");
}

#[test]
fn a_program_whose_patience_is_over_is_refused_wherever_it_stands() {
    let (now, heavy) = (Instant::now(), tenant(1, 1));
    let mut core = short(now);
    spend(&mut core, heavy, now);
    let mut ask = |patience: Duration| {
        let (id, begins) = core.ask(heavy, false, patience, now);
        assert!(!begins);
        id
    };
    let (gone, _first, hasty, other) = (ask(MS), ask(LONG), ask(MS), ask(MS));
    assert_eq!((core.fill(now), core.waiting(heavy.id), core.holds_back()), (Filled::default(), 4, true));
    let (saved, used, again) = core.debt(heavy.id, now);
    assert!((saved - SAVED).abs() < 1e-9 && (used - SAVED - DEBT).abs() < 1e-9, "{saved} {used}");
    assert!((2..=6).contains(&again.as_secs()), "at one processor: {again:?}");
    core.end(heavy.id, gone, now); // its caller has gone
    let filled = core.fill(now + MS * 2);
    assert_eq!((filled.begin, filled.refused), (Vec::new(), vec![hasty, other]));
    assert_eq!(core.waiting(heavy.id), 1);
}

#[test]
fn beside_a_program_that_goes_on_a_tenant_in_debt_begins_one_now_and_then() {
    let begins = |patience: Duration| {
        let (begun, heavy) = (Instant::now(), tenant(1, 1));
        let mut core = short(begun);
        let job = core.resume(heavy, begun);
        core.used(heavy.id, job, 9.0, begun);
        let mut at = begun;
        let first = core.ask(heavy, false, patience, begun);
        let mut begins = if first.1 { vec![(first.0, 0)] } else { Vec::new() };
        let ids: Vec<CreditId> = (0..2).map(|_| core.ask(heavy, false, patience, begun).0).collect();
        for _ in 0..450 {
            at += MS * 10;
            core.heard(tenant(0, 1), at);
            core.used(heavy.id, job, 0.02, at); // both processors
            begins.extend(core.fill(at).begin.into_iter().map(|id| (id, (at - begun).as_secs())));
        }
        (begins, [first.0, ids[0], ids[1]])
    };
    let (begun, ids) = begins(LONG);
    assert_eq!(begun, [(ids[0], 2), (ids[1], 3), (ids[2], 4)]);
    let (begun, ids) = begins(MS * 3100);
    assert_eq!(begun, [(ids[0], 1), (ids[1], 2)], "the third has no more patience");
}

#[test]
fn who_has_no_patience_begins_one_now_and_then_too() {
    let (now, heavy) = (Instant::now(), tenant(1, 1));
    let mut core = short(now);
    spend(&mut core, heavy, now);
    assert!(!core.ask(heavy, false, Duration::ZERO, now).1, "one began just now");
    assert_eq!(core.fill(now).refused.len(), 1);
    core.accounts.get_mut(&heavy.id).unwrap().left = -DEBT;
    let later = now + BETWEEN;
    core.accounts.get_mut(&heavy.id).unwrap().filled = later;
    assert!(core.ask(heavy, false, Duration::ZERO, later).1);
}

#[test]
fn programs_that_sleep_cost_nothing_for_long() {
    let (now, one) = (Instant::now(), tenant(1, 1));
    let mut core = CreditCore::new(2);
    let ids: Vec<CreditId> = (0..6).map(|_| core.ask(one, true, LONG, now).0).collect();
    assert!(core.accounts[&one.id].has_spent_all());
    let sent = now + DEPOSITED * 2;
    core.refill(one.id, sent);
    assert!(core.accounts[&one.id].begun.values().all(|one| one.deposit > 0.0), "they were not sent yet");
    ids.into_iter().for_each(|id| core.sent(one.id, id, sent));
    core.refill(one.id, sent + DEPOSITED);
    assert!((core.accounts[&one.id].left - SAVED * 2.0).abs() < 1e-9, "{:?}", core.accounts[&one.id]);
}

#[test]
fn what_programs_cost_is_known_of_those_that_were_sent_and_is_never_nothing() {
    let (now, one) = (Instant::now(), tenant(1, 1));
    let mut core = CreditCore::new(2);
    let mut run = |uses: Option<f64>| {
        let (id, _) = core.ask(one, false, LONG, now);
        let deposit = core.accounts[&one.id].begun[&id].deposit;
        if let Some(seconds) = uses {
            core.sent(one.id, id, now);
            core.used(one.id, id, seconds, now);
        }
        core.end(one.id, id, now);
        core.accounts.get_mut(&one.id).unwrap().left = SAVED;
        (deposit * 1000.0).round()
    };
    assert_eq!((run(Some(0.5)), run(None), run(None)), (100.0, 200.0, 200.0));
    for _ in 0..99 {
        run(Some(0.0));
    }
    assert_eq!(run(None), 100.0);
}

#[test]
fn those_who_wait_begin_in_their_order_once_there_are_credits_or_the_others_are_gone() {
    let (now, heavy) = (Instant::now(), tenant(1, 1));
    let mut core = short(now);
    spend(&mut core, heavy, now);
    let ids: Vec<CreditId> = (0..4).map(|_| core.ask(heavy, false, LONG, now).0).collect();
    // As much debt as one processor pays in a second.
    core.accounts.get_mut(&heavy.id).unwrap().left = -1.0;
    let mut at = now;
    let mut begun = Vec::new();
    while begun.is_empty() {
        at += MS * 10;
        core.heard(tenant(0, 1), at);
        begun = core.fill(at).begin;
    }
    assert_eq!(begun, [ids[0]]);
    let waited = at - now;
    assert!((900..1_100).contains(&waited.as_millis()), "{waited:?}");
    core.accounts.get_mut(&heavy.id).unwrap().left = -DEBT;
    core.accounts.remove(&TenantId(0));
    assert_eq!(core.fill(at).begin, ids[1..]);
}

#[test]
fn nobody_is_held_back_for_operators_nor_for_those_who_are_gone() {
    let now = Instant::now();
    let operator = TenantShare { is_operator: true, ..tenant(2, 1) };
    let mut core = CreditCore::new(2);
    core.ease(least());
    core.heard(operator, now);
    spend(&mut core, tenant(1, 1), now);
    assert!(core.ask(tenant(1, 1), false, LONG, now).1 && !core.is_shared(now));
    core.heard(tenant(0, 1), now);
    assert!(!core.ask(tenant(1, 1), false, LONG, now).1 && core.is_shared(now));
    spend(&mut core, operator, now);
    assert!(core.ask(operator, false, LONG, now).1, "operators are never held back");
    let rested = now + AT_WORK;
    spend(&mut core, tenant(3, 1), rested);
    assert!(core.ask(tenant(3, 1), false, LONG, rested).1);
}

#[test]
fn what_is_left_of_a_deposit_is_given_back_and_no_more() {
    let (now, one) = (Instant::now(), tenant(1, 1));
    let mut core = CreditCore::new(2);
    let left = |core: &CreditCore| core.accounts[&one.id].left;
    let (id, _) = core.ask(one, true, LONG, now);
    assert!((left(&core) - (SAVED - COST - CONTAINER)).abs() < 1e-9);
    core.end(one.id, id, now);
    assert!((left(&core) - SAVED).abs() < 1e-9, "it took no container and used nothing");
    // A debt that is forgotten was not paid.
    let ids: Vec<CreditId> = (0..40).map(|_| core.ask(one, true, LONG, now).0).collect();
    assert!((left(&core) + DEBT).abs() < 1e-9);
    ids.iter().for_each(|id| core.end(one.id, *id, now));
    assert!((left(&core) - SAVED).abs() < 1e-9, "{}", left(&core));
    // Who says that it used a lot pays for no more than that.
    let (id, _) = core.ask(one, true, LONG, now);
    core.used(one.id, id, f64::MAX, now);
    core.end(one.id, id, now);
    assert!((left(&core) + DEBT).abs() < 1e-9);
    assert!(core.fill(now + SECOND).begin.is_empty() && !core.accounts.is_empty(), "a rest pays for nothing");
    let later = now + AT_WORK * 2;
    assert!(
        core.fill(later).begin.is_empty() && core.fill(later).begin.is_empty() && core.accounts.is_empty()
    );
}
