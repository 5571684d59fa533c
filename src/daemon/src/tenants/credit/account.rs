//! The account of one tenant: its credits, its programs that wait, and those that have begun.
//!
//! It must never look at another tenant, nor know how many processors there are.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use crate::tenants::fair::TenantShare;

/// What the engine and the kernel compute for a container from its start to its removal, in seconds of a
/// processor.
pub(super) const CONTAINER: f64 = 0.25;
/// Credits that a tenant saves at most, for each processor that is its part, and for one in any case.
pub(super) const SAVED: f64 = 2.0;
/// Debts beyond this are forgotten.
pub(super) const DEBT: f64 = 2.0;
/// A tenant is at work for this time after it was heard of: somebody who calls, thinks and calls again.
pub(super) const AT_WORK: Duration = Duration::from_secs(5);
/// A program that has waited so long begins without credits; sooner if half of its patience is less.
pub(super) const LATE: Duration = Duration::from_secs(2);
/// Between a program of a tenant that begins, and one that is late.
pub(super) const BETWEEN: Duration = Duration::from_secs(1);
/// A deposit is given back so long after the program was sent: what it uses is known by then.
pub(super) const DEPOSITED: Duration = Duration::from_secs(1);
/// The same while the processors are short: it may have had none of them yet.
pub(super) const DEPOSITED_SHORT: Duration = Duration::from_secs(5);
/// The least that a program is taken to cost.
pub(super) const COST: f64 = 0.1;
/// How much the last program counts in what those of its tenant cost.
const LAST: f64 = 0.25;
/// One program or piece of [work](super::CreditCore::work), from when it asks until it ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(in crate::tenants) struct CreditId(pub(super) u64);

/// What one tenant has, owes and waits for.
#[derive(Debug)]
pub(super) struct Account {
    pub(super) share: TenantShare,
    pub(super) left: f64,
    pub(super) filled: Instant,
    /// When it was heard of last.
    pub(super) heard: Instant,
    /// What a program costs.
    pub(super) cost: f64,
    pub(super) waiting: VecDeque<Waiting>,
    pub(super) begun: BTreeMap<CreditId, Begun>,
    /// When a program of it began last.
    last: Instant,
    /// Programs that began beyond the credits, since the last look at the processors.
    beyond: usize,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Waiting {
    pub(super) id: CreditId,
    needs_container: bool,
    late: Instant,
    until: Instant,
}

/// A program or work that has begun.
#[derive(Debug, Default)]
pub(super) struct Begun {
    /// What is left of it.
    pub(super) deposit: f64,
    /// What it used of the processors.
    used: f64,
    /// The same, and its container.
    charged: f64,
    /// When it was sent to its container.
    sent: Option<Instant>,
}

impl Account {
    /// The account of a tenant that is heard of for the first time.
    pub(super) fn new(share: TenantShare, now: Instant) -> Self {
        Self {
            share,
            left: SAVED,
            filled: now,
            heard: now,
            cost: COST,
            waiting: VecDeque::new(),
            begun: BTreeMap::new(),
            last: now,
            beyond: 0,
        }
    }

    pub(super) fn is_at_work(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.heard) < AT_WORK
    }

    pub(super) fn weight(&self) -> f64 {
        f64::from(self.share.weight.max(1))
    }

    pub(super) fn has_spent_all(&self) -> bool {
        self.left <= 0.0
    }

    /// Whether it wants more than it has.
    pub(super) fn is_short(&self) -> bool {
        self.has_spent_all() || !self.waiting.is_empty()
    }

    /// Whether it would have credits if its programs used nothing more.
    pub(super) fn spares(&self) -> bool {
        self.waiting.is_empty() && self.left + self.begun.values().map(|one| one.deposit).sum::<f64>() > 0.0
    }

    /// Whether nothing is lost with it: a tenant without an account begins with these credits.
    pub(super) fn is_as_new(&self) -> bool {
        self.left >= SAVED && self.waiting.is_empty() && self.begun.is_empty()
    }

    /// How long it takes at this rate until everything that waits has begun.
    pub(super) fn time_to_begin_all(&self, rate: f64) -> Duration {
        let owed = number(self.waiting.len()).mul_add(self.cost.max(COST), -self.left).max(0.0);
        Duration::from_secs_f64(owed / rate)
    }

    /// A program asks, and waits for so long at most.
    pub(super) fn ask(&mut self, id: CreditId, needs_container: bool, patience: Duration, now: Instant) {
        let (late, until) = (now + LATE.min(patience / 2), now + patience);
        self.waiting.push_back(Waiting { id, needs_container, late, until });
    }

    /// The first program that waits begins, if there are credits, or fewer than `few` began beyond them, or
    /// it is late.
    pub(super) fn begin_next(&mut self, few: usize, now: Instant) -> Option<CreditId> {
        let first = self.waiting.front()?;
        let is_late = first.late <= now && now.saturating_duration_since(self.last) >= BETWEEN;
        if self.has_spent_all() && self.beyond >= few && !is_late {
            return None;
        }
        let Waiting { id, needs_container, .. } = self.waiting.pop_front()?;
        if self.has_spent_all() {
            self.beyond = self.beyond.saturating_add(1);
        }
        let deposit = self.cost.max(COST) + if needs_container { CONTAINER } else { 0.0 };
        // What would be forgotten as a debt is not given back.
        let deposit = deposit.min(self.left + DEBT);
        self.spend(deposit);
        self.last = now;
        self.begun.insert(id, Begun { deposit, ..Begun::default() });
        Some(id)
    }

    /// Somebody looked at the processors: a few may begin beyond the credits again.
    pub(super) fn looked_at(&mut self) {
        self.beyond = 0;
    }

    /// The programs whose patience is over, which wait no longer.
    pub(super) fn refuse(&mut self, now: Instant) -> Vec<CreditId> {
        let refused = self.waiting.iter().filter(|one| one.until <= now).map(|one| one.id).collect();
        self.waiting.retain(|one| one.until > now);
        refused
    }

    /// A program or work begins that leaves no deposit.
    pub(super) fn begin_without_deposit(&mut self, id: CreditId) {
        self.begun.insert(id, Begun::default());
    }

    /// A program was sent to its container.
    pub(super) fn sent(&mut self, id: CreditId, now: Instant) {
        if let Some(one) = self.begun.get_mut(&id) {
            one.sent = Some(now);
        }
    }

    /// A program used a processor for so many seconds.
    pub(super) fn used(&mut self, id: CreditId, seconds: f64) {
        if let Some(one) = self.begun.get_mut(&id) {
            one.used += seconds;
            self.charge(id, seconds);
        }
    }

    /// A program takes a container.
    pub(super) fn container(&mut self, id: CreditId) {
        self.charge(id, CONTAINER);
    }

    /// Its deposit pays first.
    fn charge(&mut self, id: CreditId, seconds: f64) {
        let Some(one) = self.begun.get_mut(&id) else { return };
        let paid = seconds.min(one.deposit);
        one.deposit -= paid;
        one.charged += seconds;
        self.spend(seconds - paid);
    }

    /// What a program or work has cost so far.
    pub(super) fn charged(&self, id: CreditId) -> f64 {
        self.begun.get(&id).map_or(0.0, |one| one.charged)
    }

    fn spend(&mut self, seconds: f64) {
        self.left = (self.left - seconds).max(-DEBT);
    }

    /// A program has ended, or its caller has gone before it began.
    pub(super) fn end(&mut self, id: CreditId, now: Instant) {
        self.waiting.retain(|waiting| waiting.id != id);
        if let Some(one) = self.begun.remove(&id) {
            self.left += one.deposit;
            self.heard = now;
            // What was never sent says nothing of what programs cost.
            if one.sent.is_some() {
                self.cost += (one.used.min(SAVED) - self.cost) * LAST;
            }
        }
    }

    /// Time has passed, in which its credits filled at this rate, up to so many. Deposits are given back so
    /// long after their programs were sent.
    pub(super) fn fill(&mut self, rate: f64, most: f64, known_after: Duration, now: Instant) {
        for one in self.begun.values_mut() {
            if one.sent.is_some_and(|sent| now.saturating_duration_since(sent) >= known_after) {
                self.left += std::mem::take(&mut one.deposit);
            }
        }
        let passed = now.saturating_duration_since(self.filled).as_secs_f64();
        self.left = (self.left + passed * rate).min(most);
        self.filled = self.filled.max(now);
    }
}

/// A number of things, all of which fit into memory.
pub(super) fn number(count: usize) -> f64 {
    u32::try_from(count).map_or(f64::from(u32::MAX), f64::from)
}
