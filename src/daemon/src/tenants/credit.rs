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
//!  ask ─┬─ there are credits, or may be, and nobody waits ─► begins: deposit ─► sent ─► uses ─► ends
//!       └─ waits, in the order of arrival ─┬─ credits, or late ─► begins, as above
//!                                          └─ its patience is over ─► refused
//! ```
//!
//! So a tenant that uses less than its part is not held back, whoever makes the processors short. One that
//! has spent its credits goes on with its part. If many programs of it wait, and another tenant has credits
//! left, it floods: then it goes on with a part of *all* processors that is smaller the longer they are short
//! ([`super::ease`]). One that is in debt, because programs of it go on, begins another all the same now and
//! then: a program that has waited for [`LATE`] is late, and one late program begins in each [`BETWEEN`].
//!
//! Nobody knows how short the processors will be before a burst of programs has begun. So while they are not
//! short a tenant begins only a few programs beyond its credits between two looks at them.
//!
//! It must never hold back an operator, nor a tenant that is alone at work, nor keep a program waiting beyond
//! its patience.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use super::ease::Ease;
use super::fair::{TenantId, TenantShare};

/// What the engine and the kernel compute for a container from its start to its removal, in seconds of a
/// processor.
const CONTAINER: f64 = 0.25;
/// Credits that a tenant saves at most, for each processor that is its part, and for one in any case.
const SAVED: f64 = 2.0;
/// Debts beyond this are forgotten.
const DEBT: f64 = 2.0;
/// A tenant is at work for this time after it was heard of: somebody who calls, thinks and calls again.
const AT_WORK: Duration = Duration::from_secs(5);
/// A program that has waited so long begins without credits; sooner if half of its patience is less.
const LATE: Duration = Duration::from_secs(2);
/// Between a program of a tenant that begins, and one that is late.
const BETWEEN: Duration = Duration::from_secs(1);
/// A deposit is given back so long after the program was sent: what it uses is known by then.
const DEPOSITED: Duration = Duration::from_secs(1);
/// The same while the processors are short: it may have had none of them yet.
const DEPOSITED_SHORT: Duration = Duration::from_secs(5);
/// The least that a program is taken to cost.
const COST: f64 = 0.1;
/// How much the last program counts in what those of its tenant cost.
const LAST: f64 = 0.25;
/// For each processor: programs that begin beyond the credits of a tenant between two looks at the
/// processors, and that wait without their tenant flooding.
const FEW: usize = 4;

/// One program or piece of [work](CreditCore::work), from when it asks until it ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct CreditId(u64);

/// The credits of all tenants at work.
#[derive(Debug)]
pub(super) struct CreditCore {
    processors: usize,
    ease: Ease,
    accounts: BTreeMap<TenantId, Account>,
    last: u64,
}

/// Tenants at work, in sums. Operators are not held back, and count as none.
#[derive(Debug, Default, Clone, Copy)]
struct AtWork {
    count: usize,
    /// What all of them weigh.
    weight: f64,
    /// What those weigh that want more than they have.
    short: f64,
    /// How many would have credits left if their programs used nothing more.
    sparing: usize,
}

impl AtWork {
    fn with(mut self, account: &Account, now: Instant) -> Self {
        if !account.share.is_operator && account.is_at_work(now) {
            self.count += 1;
            self.weight += account.weight();
            self.short += if account.is_short() { account.weight() } else { 0.0 };
            self.sparing += usize::from(account.spares());
        }
        self
    }

    /// Without an account that is as it was when it was added.
    fn without(mut self, account: &Account, now: Instant) -> Self {
        let one = Self::default().with(account, now);
        self.count -= one.count;
        self.weight -= one.weight;
        self.short -= one.short;
        self.sparing -= one.sparing;
        self
    }
}

/// What becomes of programs that waited.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Filled {
    /// They begin now, in this order.
    pub(super) begin: Vec<CreditId>,
    /// Their patience is over.
    pub(super) refused: Vec<CreditId>,
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
    /// Programs that began beyond the credits, since the last look at the processors.
    beyond: usize,
}

#[derive(Debug, Clone, Copy)]
struct Waiting {
    id: CreditId,
    needs_container: bool,
    late: Instant,
    until: Instant,
}

/// A program or work that has begun.
#[derive(Debug, Default)]
struct Begun {
    /// What is left of it.
    deposit: f64,
    /// What it used of the processors.
    used: f64,
    /// The same, and its container.
    charged: f64,
    /// When it was sent to its container.
    sent: Option<Instant>,
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

    /// Whether it wants more than it has.
    fn is_short(&self) -> bool {
        self.has_spent_all() || !self.waiting.is_empty()
    }

    /// Whether it would have credits if its programs used nothing more.
    fn spares(&self) -> bool {
        self.waiting.is_empty() && self.left + self.begun.values().map(|one| one.deposit).sum::<f64>() > 0.0
    }

    fn begin(&mut self, id: CreditId, needs_container: bool, now: Instant) {
        if self.has_spent_all() {
            self.beyond = self.beyond.saturating_add(1);
        }
        let deposit = self.cost.max(COST) + if needs_container { CONTAINER } else { 0.0 };
        // What would be forgotten as a debt is not given back.
        let deposit = deposit.min(self.left + DEBT);
        self.spend(deposit);
        self.last = now;
        self.begun.insert(id, Begun { deposit, ..Begun::default() });
    }

    /// The program that waits and begins next: the first one, if there are credits, or fewer than `few` began
    /// beyond them, or it is late.
    fn next(&mut self, few: usize, now: Instant) -> Option<Waiting> {
        let first = self.waiting.front()?;
        let is_late = first.late <= now && now.saturating_duration_since(self.last) >= BETWEEN;
        let may_begin = !self.has_spent_all() || self.beyond < few || is_late;
        if may_begin { self.waiting.pop_front() } else { None }
    }

    /// A program uses something: its deposit pays first.
    fn charge(&mut self, id: CreditId, seconds: f64, is_program: bool) {
        let Some(one) = self.begun.get_mut(&id) else { return };
        let paid = seconds.min(one.deposit);
        one.deposit -= paid;
        one.charged += seconds;
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
        Self { processors: processors.max(1), ease: Ease::default(), accounts: BTreeMap::new(), last: 0 }
    }

    /// A program asks, which waits for so long at most. Returns whether it begins now; if not, it is among
    /// those of [`Self::fill`] later.
    pub(super) fn ask(
        &mut self,
        share: TenantShare,
        needs_container: bool,
        patience: Duration,
        now: Instant,
    ) -> (CreditId, bool) {
        let id = self.number(share, now);
        let few = self.few(share, self.others(share.id, now));
        let Some(account) = self.accounts.get_mut(&share.id) else { return (id, true) };
        let (late, until) = (now + LATE.min(patience / 2), now + patience);
        account.waiting.push_back(Waiting { id, needs_container, late, until });
        let begins = account.waiting.len() == 1 && account.next(few, now).is_some();
        if begins {
            account.begin(id, needs_container, now);
        }
        (id, begins)
    }

    /// A program is under way already: an earlier daemon let it begin.
    pub(super) fn resume(&mut self, share: TenantShare, now: Instant) -> CreditId {
        let id = self.number(share, now);
        if let Some(account) = self.accounts.get_mut(&share.id) {
            account.begun.insert(id, Begun { sent: Some(now), ..Begun::default() });
        }
        id
    }

    /// The daemon begins work of its own that a tenant asked for, such as a fetch of packages. It waits for
    /// nothing and is never [sent](Self::sent), so it says nothing of what programs cost.
    pub(super) fn work(&mut self, share: TenantShare, now: Instant) -> CreditId {
        let id = self.number(share, now);
        if let Some(account) = self.accounts.get_mut(&share.id) {
            account.begun.insert(id, Begun::default());
        }
        id
    }

    fn number(&mut self, share: TenantShare, now: Instant) -> CreditId {
        self.last += 1;
        self.heard(share, now);
        self.refill(share.id, now);
        CreditId(self.last)
    }

    /// A program that has begun was sent to its container.
    pub(super) fn sent(&mut self, tenant: TenantId, id: CreditId, now: Instant) {
        let one = self.accounts.get_mut(&tenant).and_then(|account| account.begun.get_mut(&id));
        one.into_iter().for_each(|one| one.sent = Some(now));
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

    /// What a program or work that has begun has cost so far.
    pub(super) fn charged(&self, tenant: TenantId, id: CreditId) -> f64 {
        let account = self.accounts.get(&tenant);
        account.and_then(|account| account.begun.get(&id)).map_or(0.0, |one| one.charged)
    }

    /// A program has ended, or its caller has gone before it began.
    pub(super) fn end(&mut self, tenant: TenantId, id: CreditId, now: Instant) {
        self.refill(tenant, now);
        let Some(account) = self.accounts.get_mut(&tenant) else { return };
        account.waiting.retain(|waiting| waiting.id != id);
        if let Some(one) = account.begun.remove(&id) {
            account.left += one.deposit;
            account.heard = now;
            // What was never sent says nothing of what programs cost.
            if one.sent.is_some() {
                account.cost += (one.used.min(SAVED) - account.cost) * LAST;
            }
        }
    }

    /// This tenant is at work, whether programs of it run or not.
    pub(super) fn heard(&mut self, share: TenantShare, now: Instant) {
        let account = self.accounts.entry(share.id).or_insert_with(|| Account {
            share,
            left: SAVED,
            filled: now,
            heard: now,
            cost: COST,
            waiting: VecDeque::new(),
            begun: BTreeMap::new(),
            last: now,
            beyond: 0,
        });
        (account.share, account.heard) = (share, now);
    }

    /// Somebody has looked at the processors. From now on tenants that flood have this part of them.
    pub(super) fn ease(&mut self, ease: Ease) {
        self.ease = ease;
        self.accounts.values_mut().for_each(|account| account.beyond = 0);
    }

    /// Whether several tenants are at work. Operators are not held back, and count as none.
    pub(super) fn is_shared(&self, now: Instant) -> bool {
        self.at_work(now).count > 1
    }

    /// Whether a program waits.
    pub(super) fn holds_back(&self) -> bool {
        self.accounts.values().any(|account| !account.waiting.is_empty())
    }

    /// Time has passed.
    pub(super) fn fill(&mut self, now: Instant) -> Filled {
        // A debt is not forgotten by a rest.
        self.accounts.retain(|_, account| {
            let is_paid = account.left >= SAVED && account.waiting.is_empty() && account.begun.is_empty();
            account.is_at_work(now) || !is_paid
        });
        let mut filled = Filled::default();
        let mut at_work = self.at_work(now);
        let tenants: Vec<TenantShare> = self.accounts.values().map(|account| account.share).collect();
        for share in tenants {
            let others =
                self.accounts.get(&share.id).map_or(at_work, |account| at_work.without(account, now));
            self.refill_beside(share.id, others, now);
            let few = self.few(share, others);
            let Some(account) = self.accounts.get_mut(&share.id) else { continue };
            while let Some(Waiting { id, needs_container, .. }) = account.next(few, now) {
                account.begin(id, needs_container, now);
                filled.begin.push(id);
            }
            let impatient = account.waiting.iter().filter(|one| one.until <= now).map(|one| one.id);
            filled.refused.extend(impatient);
            account.waiting.retain(|one| one.until > now);
            at_work = others.with(account, now);
        }
        filled
    }

    /// The programs of a tenant that wait.
    pub(super) fn waiting(&self, tenant: TenantId) -> usize {
        self.accounts.get(&tenant).map_or(0, |account| account.waiting.len())
    }

    #[cfg(test)]
    pub(super) fn left(&self, tenant: TenantId) -> f64 {
        self.accounts[&tenant].left
    }

    /// The credits that a tenant can save, those that it has spent, and how long it takes until everything
    /// that waits has begun.
    pub(super) fn debt(&self, tenant: TenantId, now: Instant) -> (f64, f64, Duration) {
        let Some(account) = self.accounts.get(&tenant) else { return (SAVED, 0.0, Duration::ZERO) };
        let others = self.others(tenant, now);
        let (saved, ahead) = (SAVED * self.part(account, others).max(1.0), number(account.waiting.len()));
        let owed = ahead.mul_add(account.cost.max(COST), -account.left).max(0.0);
        (saved, saved - account.left, Duration::from_secs_f64(owed / self.rate(account, others)))
    }

    /// How many programs of this tenant begin beyond its credits between two looks: any number unless another
    /// tenant is at work, and none while the processors are short.
    fn few(&self, share: TenantShare, others: AtWork) -> usize {
        match share.is_operator || others.count == 0 {
            true => usize::MAX,
            false if self.ease.is_full() => FEW * self.processors,
            false => 0,
        }
    }

    fn at_work(&self, now: Instant) -> AtWork {
        self.accounts.values().fold(AtWork::default(), |all, account| all.with(account, now))
    }

    /// The other tenants at work.
    fn others(&self, tenant: TenantId, now: Instant) -> AtWork {
        let others = self.accounts.values().filter(|account| account.share.id != tenant);
        others.fold(AtWork::default(), |all, account| all.with(account, now))
    }

    /// Seconds of a processor in a second that are a tenant's among all tenants at work.
    fn part(&self, account: &Account, others: AtWork) -> f64 {
        number(self.processors) * account.weight() / (account.weight() + others.weight)
    }

    /// At which its credits fill.
    fn rate(&self, account: &Account, others: AtWork) -> f64 {
        let part = self.part(account, others);
        if !account.is_short() {
            return part;
        }
        let of_short = number(self.processors) * account.weight() / (account.weight() + others.short);
        let floods = account.waiting.len() > FEW * self.processors;
        match (others.sparing > 0, floods) {
            (false, _) => of_short,
            (true, false) => part,
            (true, true) => part.min(of_short * self.ease.part()),
        }
    }

    fn refill(&mut self, tenant: TenantId, now: Instant) {
        self.refill_beside(tenant, self.others(tenant, now), now);
    }

    fn refill_beside(&mut self, tenant: TenantId, others: AtWork, now: Instant) {
        let Some(account) = self.accounts.get(&tenant) else { return };
        let (rate, most) = (self.rate(account, others), SAVED * self.part(account, others).max(1.0));
        let known = if self.ease.is_full() { DEPOSITED } else { DEPOSITED_SHORT };
        let Some(account) = self.accounts.get_mut(&tenant) else { return };
        let passed = now.saturating_duration_since(account.filled).as_secs_f64();
        for one in account.begun.values_mut() {
            if one.sent.is_some_and(|sent| now.saturating_duration_since(sent) >= known) {
                account.left += std::mem::take(&mut one.deposit);
            }
        }
        account.left = (account.left + passed * rate).min(most);
        account.filled = account.filled.max(now);
    }
}

/// A number of things, all of which fit into memory.
fn number(count: usize) -> f64 {
    u32::try_from(count).map_or(f64::from(u32::MAX), f64::from)
}

#[cfg(test)]
#[path = "credit_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "credit_sums_tests.rs"]
mod sums_tests;
