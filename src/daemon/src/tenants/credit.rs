//! When the programs of a tenant begin while the processors are short and several tenants are at work. Pure:
//! it reads no clock, holds no lock and wakes nobody.
//!
//! Each tenant has CPU credits, in seconds of a processor. They fill at its part of the processors, by weight
//! among the tenants at work, and are spent by what its containers use, and by each container that it takes:
//! the engine computes for that one outside of every container. A program that begins leaves a deposit, from
//! which what it uses is taken first, and gets back at its end what is left: what a program of its tenant
//! has cost lately, and the container if it needs one.
//!
//! ```text
//!  ask ─┬─ nobody is held back, or there are credits and nobody waits ─► begins: deposit ─► uses ─► ends
//!       └─ waits, in the order of arrival ── credits, or late, or its time is over ─► begins, as above
//! ```
//!
//! So a tenant that uses less than its part is not held back, whoever makes the processors short. One that
//! has spent its credits gets new ones at a part of *all* processors, which is smaller the longer they are
//! short ([`super::ease`]). One that is in debt, because programs of it go on, begins another all the same
//! now and then: a program that has waited for [`LATE`] is late, and one late program begins in each
//! [`BETWEEN`].
//!
//! It must never hold back an operator, nor anybody while no other tenant is at work that has credits left,
//! nor a program beyond the time until which it waits.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use super::ease::Ease;
use super::fair::{TenantId, TenantShare};

/// What the engine and the kernel compute for a container from its start to its removal, in seconds of a
/// processor.
const CONTAINER: f64 = 0.5;
/// Credits that a tenant saves at most, for each processor that is its part, and for one in any case.
const SAVED: f64 = 2.0;
/// Debts beyond this are forgotten.
const DEBT: f64 = 2.0;
/// A tenant is at work for this time after it was heard of: somebody who calls, thinks and calls again.
const AT_WORK: Duration = Duration::from_secs(5);
/// A program that has waited so long begins without credits.
const LATE: Duration = Duration::from_secs(2);
/// Between a program of a tenant that begins, and one that is late.
const BETWEEN: Duration = Duration::from_secs(1);
/// A deposit is given back after this time: what the program uses is known by then.
const DEPOSITED: Duration = Duration::from_secs(1);
/// What a program of a tenant costs of which none has ended yet.
const FIRST: f64 = 0.1;
/// How much the last program counts in what those of its tenant cost.
const LAST: f64 = 0.25;

/// One program, from when it asks until it ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct CreditId(u64);

/// The credits of all tenants at work.
#[derive(Debug)]
pub(super) struct CreditCore {
    processors: f64,
    ease: Ease,
    accounts: BTreeMap<TenantId, Account>,
    last: u64,
}

#[derive(Debug)]
struct Account {
    share: TenantShare,
    left: f64,
    filled: Instant,
    /// When it was heard of last.
    heard: Instant,
    /// What a program costs.
    cost: f64,
    waiting: VecDeque<Waiting>,
    begun: BTreeMap<CreditId, Begun>,
    /// When a program of it began last.
    last: Instant,
}

#[derive(Debug, Clone, Copy)]
struct Waiting {
    id: CreditId,
    needs_container: bool,
    since: Instant,
    until: Instant,
}

/// A program that has begun.
#[derive(Debug)]
struct Begun {
    /// What is left of it.
    deposit: f64,
    used: f64,
    since: Instant,
}

impl Account {
    fn is_at_work(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.heard) < AT_WORK
    }

    fn weight(&self) -> f64 {
        f64::from(self.share.weight.max(1))
    }

    fn has_spent_all(&self) -> bool {
        self.left <= 0.0
    }

    fn begin(&mut self, id: CreditId, needs_container: bool, now: Instant) {
        let deposit = self.cost + if needs_container { CONTAINER } else { 0.0 };
        // What would be forgotten as a debt is not given back.
        let deposit = deposit.min(self.left + DEBT);
        self.spend(deposit);
        self.last = now;
        self.begun.insert(id, Begun { deposit, used: 0.0, since: now });
    }

    /// The program that waits and begins next: the first one if there are credits, or nobody is held back;
    /// one whose time is over, wherever it stands; the first one if it is late.
    fn next(&self, is_held: bool, now: Instant) -> Option<usize> {
        let first = self.waiting.front()?;
        let is_late = now.saturating_duration_since(first.since) >= LATE
            && now.saturating_duration_since(self.last) >= BETWEEN;
        if !is_held || !self.has_spent_all() || is_late {
            return Some(0);
        }
        self.waiting.iter().position(|waiting| waiting.until <= now)
    }

    /// A program uses something: its deposit pays first.
    fn charge(&mut self, id: CreditId, seconds: f64, is_program: bool) {
        let Some(one) = self.begun.get_mut(&id) else { return };
        let paid = seconds.min(one.deposit);
        one.deposit -= paid;
        if is_program {
            one.used += seconds;
        }
        self.spend(seconds - paid);
    }

    fn spend(&mut self, seconds: f64) {
        self.left = (self.left - seconds).max(-DEBT);
    }
}

impl CreditCore {
    pub(super) fn new(processors: usize) -> Self {
        let processors = f64::from(u32::try_from(processors.max(1)).unwrap_or(u32::MAX));
        Self { processors, ease: Ease::default(), accounts: BTreeMap::new(), last: 0 }
    }

    /// A program asks, which waits until `until` at most. Returns whether it begins now; if not, it is among
    /// those of [`Self::fill`] later.
    pub(super) fn ask(
        &mut self,
        share: TenantShare,
        needs_container: bool,
        until: Instant,
        now: Instant,
    ) -> (CreditId, bool) {
        let id = self.next(share, now);
        let is_held = self.is_held(share.id, now);
        let Some(account) = self.accounts.get_mut(&share.id) else { return (id, true) };
        if is_held && until > now && (account.has_spent_all() || !account.waiting.is_empty()) {
            account.waiting.push_back(Waiting { id, needs_container, since: now, until });
            return (id, false);
        }
        account.begin(id, needs_container, now);
        (id, true)
    }

    /// A program is under way already: an earlier daemon let it begin.
    pub(super) fn resume(&mut self, share: TenantShare, now: Instant) -> CreditId {
        let id = self.next(share, now);
        if let Some(account) = self.accounts.get_mut(&share.id) {
            account.begun.insert(id, Begun { deposit: 0.0, used: 0.0, since: now });
        }
        id
    }

    fn next(&mut self, share: TenantShare, now: Instant) -> CreditId {
        self.last += 1;
        self.heard(share, now);
        self.refill(share.id, now);
        CreditId(self.last)
    }

    /// A program that has begun used a processor for so many seconds more.
    pub(super) fn used(&mut self, tenant: TenantId, id: CreditId, seconds: f64, now: Instant) {
        self.charge(tenant, id, (seconds, true), now);
    }

    /// A program that has begun takes a container.
    pub(super) fn container(&mut self, tenant: TenantId, id: CreditId, now: Instant) {
        self.charge(tenant, id, (CONTAINER, false), now);
    }

    fn charge(&mut self, tenant: TenantId, id: CreditId, (seconds, is_program): (f64, bool), now: Instant) {
        self.refill(tenant, now);
        if let Some(account) = self.accounts.get_mut(&tenant) {
            account.heard = now;
            account.charge(id, seconds, is_program);
        }
    }

    /// A program has ended, or its caller has gone before it began.
    pub(super) fn end(&mut self, tenant: TenantId, id: CreditId, now: Instant) {
        self.refill(tenant, now);
        let Some(account) = self.accounts.get_mut(&tenant) else { return };
        account.waiting.retain(|waiting| waiting.id != id);
        if let Some(one) = account.begun.remove(&id) {
            account.left += one.deposit;
            account.cost += (one.used.min(SAVED) - account.cost) * LAST;
            account.heard = now;
        }
    }

    /// This tenant is at work, whether programs of it run or not.
    pub(super) fn heard(&mut self, share: TenantShare, now: Instant) {
        let account = self.accounts.entry(share.id).or_insert_with(|| Account {
            share,
            left: SAVED,
            filled: now,
            heard: now,
            cost: FIRST,
            waiting: VecDeque::new(),
            begun: BTreeMap::new(),
            last: now,
        });
        (account.share, account.heard) = (share, now);
    }

    /// From now on those who have spent their credits get new ones at this part of the processors.
    pub(super) fn ease(&mut self, ease: Ease) {
        self.ease = ease;
    }

    /// Whether several tenants are at work. Operators are not held back, and count as none.
    pub(super) fn is_shared(&self, now: Instant) -> bool {
        self.accounts.values().filter(|one| !one.share.is_operator && one.is_at_work(now)).count() > 1
    }

    /// Whether a program waits.
    pub(super) fn holds_back(&self) -> bool {
        self.accounts.values().any(|account| !account.waiting.is_empty())
    }

    /// Time has passed. Returns the programs that begin now.
    pub(super) fn fill(&mut self, now: Instant) -> Vec<CreditId> {
        // A debt is not forgotten by a rest.
        self.accounts.retain(|_, account| {
            let is_paid = account.left >= SAVED && account.waiting.is_empty() && account.begun.is_empty();
            account.is_at_work(now) || !is_paid
        });
        let tenants: Vec<TenantId> = self.accounts.keys().copied().collect();
        let mut next = Vec::new();
        for tenant in tenants {
            self.refill(tenant, now);
            let is_held = self.is_held(tenant, now);
            let Some(account) = self.accounts.get_mut(&tenant) else { continue };
            while let Some(place) = account.next(is_held, now)
                && let Some(Waiting { id, needs_container, .. }) = account.waiting.remove(place)
            {
                account.begin(id, needs_container, now);
                next.push(id);
            }
        }
        next
    }

    /// The programs of a tenant that wait.
    pub(super) fn waiting(&self, tenant: TenantId) -> usize {
        self.accounts.get(&tenant).map_or(0, |account| account.waiting.len())
    }

    /// Whether programs of this tenant begin only if it has credits: the processors are short, and another
    /// tenant at work has credits left.
    fn is_held(&self, tenant: TenantId, now: Instant) -> bool {
        let Some(account) = self.accounts.get(&tenant) else { return false };
        let spares = |(id, other): (&TenantId, &Account)| {
            *id != tenant && !other.share.is_operator && other.is_at_work(now) && !other.has_spent_all()
        };
        !self.ease.is_full() && !account.share.is_operator && self.accounts.iter().any(spares)
    }

    fn refill(&mut self, tenant: TenantId, now: Instant) {
        let weight_of_others = |counts: fn(&Account) -> bool| -> f64 {
            let others = self.accounts.iter().filter(|(id, other)| {
                **id != tenant && !other.share.is_operator && other.is_at_work(now) && counts(other)
            });
            others.map(|(_, other)| other.weight()).sum()
        };
        let (at_work, spent) = (weight_of_others(|_| true), weight_of_others(Account::has_spent_all));
        let (processors, ease) = (self.processors, self.ease.part());
        let Some(account) = self.accounts.get_mut(&tenant) else { return };
        let weight = account.weight();
        let part = processors * weight / (weight + at_work);
        let rate = match account.has_spent_all() {
            true => processors * ease * weight / (weight + spent),
            false => part,
        };
        let passed = now.saturating_duration_since(account.filled).as_secs_f64();
        for one in account.begun.values_mut() {
            if now.saturating_duration_since(one.since) >= DEPOSITED {
                account.left += std::mem::take(&mut one.deposit);
            }
        }
        account.left = (account.left + passed * rate).min(SAVED * part.max(1.0));
        account.filled = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const LONG: Duration = Duration::from_secs(15);

    fn tenant(id: u32, weight: u32) -> TenantShare {
        TenantShare { id: TenantId(id), weight, tenants: 2, ..TenantShare::default() }
    }

    /// As after a time in which the processors were short.
    fn least() -> Ease {
        (0..20).fold(Ease::default(), |ease, _| ease.after(true, Some(1.0)))
    }

    /// Two processors that are short, and a tenant 0 at work that has credits.
    fn short(now: Instant) -> CreditCore {
        let mut core = CreditCore::new(2);
        core.ease(least());
        core.heard(tenant(0, 1), now);
        core
    }

    /// A tenant for whose programs, each of which computes for so long, so many callers wait all the time:
    /// how many end in ten seconds, on so many processors, beside the tenant 0.
    fn ended(core: &mut CreditCore, of: TenantShare, callers: usize, takes: Duration, new: bool) -> usize {
        let begun = Instant::now();
        let (mut now, mut count) = (begun, 0);
        let mut running: Vec<(CreditId, Duration)> = Vec::new();
        let mut waiting = 0;
        while now < begun + Duration::from_secs(10) {
            core.heard(tenant(0, 1), now);
            while running.len() + waiting < callers {
                match core.ask(of, new, now + LONG, now) {
                    (id, true) => running.push((id, Duration::ZERO)),
                    (_, false) => waiting += 1,
                }
            }
            for id in core.fill(now) {
                waiting -= 1;
                running.push((id, Duration::ZERO));
            }
            // Two processors have ten milliseconds until then, for the first ones.
            for (id, had) in running.iter_mut().take(2) {
                if had.is_zero() && new {
                    core.container(of.id, *id, now);
                }
                *had += MS * 10;
                core.used(of.id, *id, 0.01, now);
            }
            running.retain(|(id, had)| {
                let is_over = *had >= takes;
                if is_over {
                    core.end(of.id, *id, now);
                    count += 1;
                }
                !is_over
            });
            now += MS * 10;
        }
        count
    }

    #[test]
    fn a_flood_has_a_part_of_the_processors_that_is_smaller_the_longer_they_are_short() {
        let now = Instant::now();
        let flood = ended(&mut short(now), tenant(1, 1), 64, MS * 250, false);
        // A quarter of two processors, and what it had saved.
        assert!((24..=34).contains(&flood), "{flood}");
        let mut core = short(now);
        core.ease(Ease::default().after(true, Some(1.0)));
        let more = ended(&mut core, tenant(1, 1), 64, MS * 250, false);
        assert!((55..=66).contains(&more), "{more}");
        let mut core = short(now);
        core.ease(Ease::default());
        let all = ended(&mut core, tenant(1, 1), 64, MS * 250, false);
        assert!((75..=80).contains(&all), "they are not short: {all}");
    }

    #[test]
    fn containers_are_paid_for() {
        let new = ended(&mut short(Instant::now()), tenant(1, 1), 32, MS * 10, true);
        assert!((12..=18).contains(&new), "half a second each: {new}");
        let known = ended(&mut short(Instant::now()), tenant(1, 1), 32, MS * 10, false);
        assert!(known > 400, "{known}");
    }

    #[test]
    fn a_tenant_within_its_part_is_never_held_back_whoever_makes_the_processors_short() {
        let begun = Instant::now();
        let (mut core, light) = (short(begun), tenant(1, 1));
        for _ in 0..64 {
            core.ask(tenant(2, 1), true, begun + LONG, begun);
        }
        let mut now = begun;
        for n in 0..200 {
            // 0.3 of its 0.66 processors, in programs of a tenth of a second, one after the other or five at
            // one time.
            let at_once = if n % 2 == 0 { 1 } else { 5 };
            let programs: Vec<CreditId> = (0..at_once)
                .map(|_| {
                    let (id, begins) = core.ask(light, false, now + LONG, now);
                    assert!(begins, "{n}: {:?}", core.accounts[&light.id]);
                    id
                })
                .collect();
            now += MS * 100;
            core.heard(tenant(0, 1), now);
            for _ in 0..5 {
                core.ask(tenant(2, 1), true, now + LONG, now);
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
    fn the_weight_is_a_part() {
        let mut core = short(Instant::now());
        for heavy in [tenant(1, 1), tenant(2, 3)] {
            let (id, _) = core.ask(heavy, false, Instant::now() + LONG, Instant::now());
            core.used(heavy.id, id, 99.0, Instant::now());
        }
        let now = Instant::now();
        let gained = |core: &mut CreditCore, id| {
            core.refill(id, now);
            let before = core.accounts[&id].left;
            core.refill(id, now + Duration::from_secs(1));
            core.accounts[&id].left - before
        };
        let gains = [gained(&mut core, TenantId(1)), gained(&mut core, TenantId(2))];
        assert!((gains[0] - 0.125).abs() < 0.01 && (gains[1] - 0.375).abs() < 0.01, "{gains:?}");
    }

    /// Spends all that a tenant has.
    fn spend(core: &mut CreditCore, of: TenantShare, now: Instant) {
        let id = core.resume(of, now);
        core.used(of.id, id, 99.0, now);
        core.end(of.id, id, now);
    }

    #[test]
    fn a_program_begins_at_the_end_of_its_time_wherever_it_stands() {
        let (now, flood) = (Instant::now(), tenant(1, 1));
        let mut core = short(now);
        spend(&mut core, flood, now);
        let mut ask = |wait: Duration| {
            let (id, begins) = core.ask(flood, false, now + wait, now);
            assert!(!begins);
            id
        };
        let (gone, _first, hasty, other) = (ask(MS), ask(LONG), ask(MS), ask(MS));
        assert_eq!((core.fill(now), core.waiting(flood.id), core.holds_back()), (Vec::new(), 4, true));
        core.end(flood.id, gone, now); // its caller has gone
        assert_eq!(core.fill(now + MS * 2), [hasty, other]);
        assert!(core.ask(flood, false, now, now + MS).1, "it cannot wait");
        assert_eq!(core.waiting(flood.id), 1);
    }

    #[test]
    fn beside_a_program_that_goes_on_a_tenant_in_debt_begins_one_now_and_then() {
        let (begun, heavy) = (Instant::now(), tenant(1, 1));
        let mut core = short(begun);
        let job = core.resume(heavy, begun);
        let mut at = begun;
        core.used(heavy.id, job, 9.0, at);
        let ids: Vec<CreditId> = (0..3).map(|_| core.ask(heavy, false, begun + LONG, begun).0).collect();
        let mut begins = Vec::new();
        while begins.len() < 3 {
            at += MS * 10;
            core.heard(tenant(0, 1), at);
            core.used(heavy.id, job, 0.02, at); // both processors
            begins.extend(core.fill(at).into_iter().map(|id| (id, (at - begun).as_secs())));
        }
        assert_eq!(begins, [(ids[0], 2), (ids[1], 3), (ids[2], 4)]);
    }

    #[test]
    fn programs_that_sleep_cost_nothing_for_long() {
        let (now, one) = (Instant::now(), tenant(1, 1));
        let mut core = short(now);
        for _ in 0..10 {
            core.ask(one, true, now, now);
        }
        assert!(core.accounts[&one.id].has_spent_all());
        let later = now + DEPOSITED;
        core.heard(tenant(0, 1), later);
        core.fill(later);
        assert!((core.accounts[&one.id].left - SAVED).abs() < 1e-9, "{:?}", core.accounts[&one.id]);
    }

    #[test]
    fn those_who_wait_begin_in_their_order_once_there_are_credits_or_nobody_is_held_back() {
        let (now, flood) = (Instant::now(), tenant(1, 1));
        let mut core = short(now);
        spend(&mut core, flood, now);
        let ids: Vec<CreditId> = (0..4).map(|_| core.ask(flood, false, now + LONG, now).0).collect();
        // As much debt as half a processor pays in one second.
        core.accounts.get_mut(&flood.id).unwrap().left = -0.5;
        let mut at = now;
        let mut begun = Vec::new();
        while begun.is_empty() {
            at += MS * 10;
            core.heard(tenant(0, 1), at);
            begun = core.fill(at);
        }
        assert_eq!(begun, [ids[0]]);
        let waited = at - now;
        assert!((900..1_100).contains(&waited.as_millis()), "{waited:?}");
        core.ease(Ease::default());
        assert_eq!(core.fill(at), ids[1..]);
    }

    #[test]
    fn nobody_is_held_back_for_operators_for_those_who_are_gone_nor_for_another_flood() {
        let now = Instant::now();
        let operator = TenantShare { is_operator: true, ..tenant(2, 1) };
        let mut core = CreditCore::new(2);
        core.ease(least());
        core.heard(operator, now);
        spend(&mut core, tenant(1, 1), now);
        assert!(core.ask(tenant(1, 1), false, now + LONG, now).1 && !core.is_shared(now));
        spend(&mut core, tenant(3, 1), now);
        assert!(core.ask(tenant(1, 1), false, now + LONG, now).1 && core.is_shared(now));
        core.heard(tenant(0, 1), now);
        assert!(!core.ask(tenant(1, 1), false, now + LONG, now).1);
        spend(&mut core, operator, now);
        assert!(core.ask(operator, false, now + LONG, now).1, "operators are never held back");
        let rested = now + AT_WORK;
        spend(&mut core, tenant(1, 1), rested);
        assert!(core.ask(tenant(1, 1), false, rested + LONG, rested).1);
    }

    #[test]
    fn what_is_left_of_a_deposit_is_given_back_and_no_more() {
        let (now, one) = (Instant::now(), tenant(1, 1));
        let mut core = CreditCore::new(2);
        let left = |core: &CreditCore| core.accounts[&one.id].left;
        let (id, _) = core.ask(one, true, now, now);
        assert!((left(&core) - (SAVED - FIRST - CONTAINER)).abs() < 1e-9);
        core.end(one.id, id, now);
        assert!((left(&core) - SAVED).abs() < 1e-9, "it took no container and used nothing");
        // A debt that is forgotten was not paid.
        let ids: Vec<CreditId> = (0..40).map(|_| core.ask(one, true, now, now).0).collect();
        assert!((left(&core) + DEBT).abs() < 1e-9);
        ids.iter().for_each(|id| core.end(one.id, *id, now));
        assert!((left(&core) - SAVED).abs() < 1e-9, "{}", left(&core));
        // Who says that it used a lot pays for no more than that.
        let (id, _) = core.ask(one, true, now, now);
        core.used(one.id, id, f64::MAX, now);
        core.end(one.id, id, now);
        assert!((left(&core) + DEBT).abs() < 1e-9);
        assert!(core.fill(now + AT_WORK).is_empty() && !core.accounts.is_empty(), "a rest pays for nothing");
        let later = now + AT_WORK * 2;
        assert!(core.fill(later).is_empty() && core.fill(later).is_empty() && core.accounts.is_empty());
    }
}
