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
//! A tenant that is alone at work is not held back. It saves what it would have beside one like itself: one
//! that uses all processors has spent its credits by the time another comes.
//!
//! So a tenant that uses less than its part is not held back, whoever makes the processors short. One that
//! has spent its credits goes on with its part. If many programs of it wait, and another tenant has credits
//! left, it floods: then it goes on with a part of *all* processors that is smaller the longer they are short
//! ([`super::ease`]). One that is in debt, because programs of it go on, begins another all the same now and
//! then: a program that has waited for [`account::LATE`] is late, and one late program begins in each
//! [`account::BETWEEN`].
//!
//! Nobody knows how short the processors will be before a burst of programs has begun. So while they are not
//! short a tenant begins only a few programs beyond its credits between two looks at them.
//!
//! It must never hold back an operator, nor a tenant that is alone at work, nor keep a program waiting beyond
//! its patience.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use self::account::{Account, DEPOSITED, DEPOSITED_SHORT, SAVED, number};
use super::ease::Ease;
use super::fair::{TenantId, TenantShare};

mod account;

pub(super) use self::account::CreditId;

/// For each processor: programs that begin beyond the credits of a tenant between two looks at the
/// processors, and that wait without their tenant flooding.
const FEW: usize = 4;

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

impl CreditCore {
    pub(super) fn new(processors: usize) -> Self {
        Self { processors: processors.max(1), ease: Ease::of_programs(), accounts: BTreeMap::new(), last: 0 }
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
        account.ask(id, needs_container, patience, now);
        (id, account.waiting.len() == 1 && account.begin_next(few, now).is_some())
    }

    /// A program is under way already: an earlier daemon let it begin.
    pub(super) fn resume(&mut self, share: TenantShare, now: Instant) -> CreditId {
        let id = self.number(share, now);
        if let Some(account) = self.accounts.get_mut(&share.id) {
            account.begin_without_deposit(id);
            account.sent(id, now);
        }
        id
    }

    /// The daemon begins work of its own that a tenant asked for, such as a fetch of packages. It waits for
    /// nothing and is never [sent](Self::sent), so it says nothing of what programs cost.
    pub(super) fn work(&mut self, share: TenantShare, now: Instant) -> CreditId {
        let id = self.number(share, now);
        if let Some(account) = self.accounts.get_mut(&share.id) {
            account.begin_without_deposit(id);
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
        if let Some(account) = self.accounts.get_mut(&tenant) {
            account.sent(id, now);
        }
    }

    /// A program that has begun used a processor for so many seconds more.
    pub(super) fn used(&mut self, tenant: TenantId, id: CreditId, seconds: f64, now: Instant) {
        self.works(tenant, now, |account| account.used(id, seconds));
    }

    /// A program that has begun takes a container.
    pub(super) fn container(&mut self, tenant: TenantId, id: CreditId, now: Instant) {
        self.works(tenant, now, |account| account.container(id));
    }

    /// What a program or work that has begun has cost so far.
    pub(super) fn charged(&self, tenant: TenantId, id: CreditId) -> f64 {
        self.accounts.get(&tenant).map_or(0.0, |account| account.charged(id))
    }

    /// A program has ended, or its caller has gone before it began.
    pub(super) fn end(&mut self, tenant: TenantId, id: CreditId, now: Instant) {
        self.refill(tenant, now);
        if let Some(account) = self.accounts.get_mut(&tenant) {
            account.end(id, now);
        }
    }

    /// A program of this tenant does something that it pays for.
    fn works(&mut self, tenant: TenantId, now: Instant, pay: impl FnOnce(&mut Account)) {
        self.refill(tenant, now);
        if let Some(account) = self.accounts.get_mut(&tenant) {
            account.heard = now;
            pay(account);
        }
    }

    /// This tenant is at work, whether programs of it run or not.
    pub(super) fn heard(&mut self, share: TenantShare, now: Instant) {
        let account = self.accounts.entry(share.id).or_insert_with(|| Account::new(share, now));
        (account.share, account.heard) = (share, now);
    }

    /// Somebody has looked at the processors. From now on tenants that flood have this part of them.
    pub(super) fn ease(&mut self, ease: Ease) {
        self.ease = ease;
        self.accounts.values_mut().for_each(Account::looked_at);
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
        self.accounts.retain(|_, account| account.is_at_work(now) || !account.is_as_new());
        let mut filled = Filled::default();
        let mut at_work = self.at_work(now);
        let tenants: Vec<TenantShare> = self.accounts.values().map(|account| account.share).collect();
        for share in tenants {
            let others =
                self.accounts.get(&share.id).map_or(at_work, |account| at_work.without(account, now));
            self.refill_beside(share.id, others, now);
            let few = self.few(share, others);
            let Some(account) = self.accounts.get_mut(&share.id) else { continue };
            filled.begin.extend(std::iter::from_fn(|| account.begin_next(few, now)));
            filled.refused.extend(account.refuse(now));
            at_work = others.with(account, now);
        }
        filled
    }

    /// Whether a tenant has spent its credits, as far as they were filled last, or programs of it wait for
    /// some, while others are at work. A deposit is not spent.
    pub(super) fn owes(&self, tenant: TenantId, now: Instant) -> bool {
        let has_spent = self.accounts.get(&tenant).is_some_and(|account| !account.spares());
        has_spent && self.others(tenant, now).count > 0
    }

    /// The parts of some tenants together, of 1, among all tenants at work; `None` unless another one is at
    /// work that owes nothing.
    pub(super) fn parts(&self, owing: &BTreeSet<TenantId>, now: Instant) -> Option<f64> {
        let (mut owed, mut all, mut spares) = (0.0, 0.0, false);
        for (id, account) in &self.accounts {
            if account.share.is_operator || !(account.is_at_work(now) || owing.contains(id)) {
                continue;
            }
            all += account.weight();
            if owing.contains(id) {
                owed += account.weight();
            } else {
                spares |= account.spares();
            }
        }
        spares.then(|| owed / all)
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
        let saved = SAVED * self.part(account, others).max(1.0);
        (saved, saved - account.left, account.time_to_begin_all(self.rate(account, others)))
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
        // Nothing is held back while it is alone: this says only what it has saved when another one comes.
        if others.count == 0 {
            return number(self.processors) / 2.0;
        }
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
        if let Some(account) = self.accounts.get_mut(&tenant) {
            account.fill(rate, most, known, now);
        }
    }
}

#[cfg(test)]
mod flood_tests;
#[cfg(test)]
mod sums_tests;
#[cfg(test)]
mod tests;
