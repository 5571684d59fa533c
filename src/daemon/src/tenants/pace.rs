//! How much of the daemon's own threads the requests of one tenant may use while another tenant is at work.
//! Pure: it reads no clock, holds no lock and wakes nobody.
//!
//! A flood of calls that cost little fills the queue of the threads, and each step of somebody else's call
//! waits behind all of it. So the polls of a tenant's connections are charged to an account, which fills at
//! a part of what the threads can do: [`PART`] of all processors, divided by weight between the tenants that
//! use much; while the processors are short, and somebody at work uses little, it is less (see
//! [`super::ease`]). Who has used it up is parked, and its connections go on in the order in which they were
//! parked: no more of them at one time than there are processors for all that are held back.
//!
//! ```text
//!  ask ─┬─ nobody else is at work, or the account is not empty, and nobody is parked ─► polled ─► spent
//!       └─ parked ── the account fills: granted, a few at a time ─► woken ─► asks again ─► polled ─► spent
//! ```
//!
//! A tenant is at work for a second after each poll, also of a stream that only listens. What a quiet tenant
//! uses is not enough to empty its account. A poll is charged by the time that it took, in which the thread
//! may have waited for a processor: so the charge has a bound. It must never hold up a tenant that is alone,
//! nor an operator.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use super::ease::Ease;
use super::fair::{TenantId, TenantShare};

/// Of all processors, what the tenants that are held back may use together.
const PART: f64 = 0.5;

/// A tenant is at work if it was polled within this time.
const AT_WORK: Duration = Duration::from_secs(1);

/// What an account holds at most.
const FULL: Duration = Duration::from_millis(10);

/// A poll is charged this at most.
const LONGEST: Duration = FULL;

/// What a tenant uses is counted over this time.
const WINDOW: Duration = Duration::from_millis(100);

/// Less than this in a window is no work, in seconds of a processor: a ping, or a stream that listens.
const TRIFLE: f64 = 0.0005;

/// A tenant uses much if it has used such a part of what all of them may use.
const MUCH: f64 = 0.1;

/// One connection, for its whole life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct PacedId(pub(crate) u64);

/// Those who have no token, or none that is good. They are held back, and hold nobody back.
pub(crate) const STRANGERS: TenantShare = TenantShare {
    id: TenantId(u32::MAX - 1),
    weight: 1,
    is_operator: false,
    tenants: 1,
    sessions: None,
    executions: None,
    owes: false,
};

/// The accounts of the tenants that are at work.
#[derive(Debug)]
pub(crate) struct PaceCore {
    /// Seconds of processors in a second, for all that are held back.
    rate: f64,
    /// The part of it that those who use much have, beside a tenant that is at work and does not.
    ease: Ease,
    accounts: BTreeMap<TenantId, Account>,
}

#[derive(Debug)]
struct Account {
    share: TenantShare,
    /// In seconds of a processor; below zero after a long poll.
    left: f64,
    filled: Instant,
    polled: Instant,
    parked: VecDeque<PacedId>,
    /// Were parked and may go on: they ask at any moment.
    granted: Vec<PacedId>,
    /// Seconds of a processor, in the window before this one and in this one.
    used: [f64; 2],
    /// When this window began.
    window: Instant,
    /// When it last used more than a [`TRIFLE`] in a window.
    busy: Option<Instant>,
}

impl Account {
    fn is_at_work(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.polled) < AT_WORK
    }

    fn use_at(&self, now: Instant) -> f64 {
        match now.saturating_duration_since(self.window) {
            since if since < WINDOW => self.used[0].max(self.used[1]),
            since if since < WINDOW * 2 => self.used[1],
            _ => 0.0,
        }
    }

    fn spend(&mut self, seconds: f64, now: Instant) {
        let since = now.saturating_duration_since(self.window);
        if since >= WINDOW {
            let before = if since < WINDOW * 2 { self.used[1] } else { 0.0 };
            (self.used, self.window) = ([before, 0.0], now);
        }
        self.used[1] += seconds;
        if self.used[1] >= TRIFLE {
            self.busy = Some(now);
        }
        self.left -= seconds;
    }

    /// The next that are parked may go on, if the account is not empty, so many at one time.
    fn grant(&mut self, most: usize) -> Vec<PacedId> {
        let places = if self.left > 0.0 { most.saturating_sub(self.granted.len()) } else { 0 };
        let next: Vec<PacedId> = self.parked.drain(..places.min(self.parked.len())).collect();
        self.granted.extend(&next);
        next
    }
}

impl PaceCore {
    /// Nobody is at work yet, on so many processors.
    pub(crate) fn new(processors: usize) -> Self {
        let processors = u32::try_from(processors.max(1)).unwrap_or(u32::MAX);
        Self { rate: PART * f64::from(processors), ease: Ease::of_threads(), accounts: BTreeMap::new() }
    }

    /// Whether this connection of this tenant may be polled now. If not, it is parked, until [`Self::spent`]
    /// or [`Self::fill`] names it.
    pub(crate) fn ask(&mut self, share: TenantShare, id: PacedId, now: Instant) -> bool {
        let is_paced = !share.is_operator && self.has_other(share.id, now);
        self.refill(share.id, now);
        let account = self.account(share, now);
        (account.share, account.polled) = (share, now);
        if !is_paced {
            account.left = FULL.as_secs_f64();
        }
        let was_granted = account.granted.contains(&id);
        account.granted.retain(|granted| *granted != id);
        let is_next = account.left > 0.0 && account.parked.is_empty() && account.granted.is_empty();
        if !is_paced || was_granted || is_next {
            account.parked.retain(|parked| *parked != id);
            return true;
        }
        if !account.parked.contains(&id) {
            account.parked.push_back(id);
        }
        false
    }

    /// A poll took so long. Returns the connections that go on now.
    pub(crate) fn spent(&mut self, share: TenantShare, took: Duration, now: Instant) -> Vec<PacedId> {
        let most = self.at_one_time();
        self.refill(share.id, now);
        let account = self.account(share, now);
        account.spend(took.min(LONGEST).as_secs_f64(), now);
        account.grant(most)
    }

    /// Connections of one tenant that go on at one time: one for each processor, whole or in part.
    fn at_one_time(&self) -> usize {
        (1_u32..).take_while(|most| f64::from(*most) < self.rate).count() + 1
    }

    fn account(&mut self, share: TenantShare, now: Instant) -> &mut Account {
        self.accounts.entry(share.id).or_insert_with(|| Account {
            share,
            left: FULL.as_secs_f64(),
            filled: now,
            polled: now,
            parked: VecDeque::new(),
            granted: Vec::new(),
            used: [0.0; 2],
            window: now,
            busy: None,
        })
    }

    /// Time has passed. Returns the connections that go on now.
    pub(crate) fn fill(&mut self, now: Instant) -> Vec<PacedId> {
        self.accounts.retain(|_, account| {
            account.is_at_work(now) || !account.parked.is_empty() || !account.granted.is_empty()
        });
        let tenants: Vec<TenantId> = self.accounts.keys().copied().collect();
        let (mut next, most) = (Vec::new(), self.at_one_time());
        for tenant in tenants {
            let is_alone = !self.has_other(tenant, now);
            self.refill(tenant, now);
            let Some(account) = self.accounts.get_mut(&tenant) else { continue };
            if is_alone {
                next.extend(account.parked.drain(..));
            }
            next.extend(account.grant(most));
        }
        next
    }

    /// A connection is gone.
    pub(crate) fn gone(&mut self, id: PacedId) {
        for account in self.accounts.values_mut() {
            account.parked.retain(|parked| *parked != id);
            account.granted.retain(|granted| *granted != id);
        }
    }

    /// Whether anybody is parked, or was told to go on: [`Self::fill`] is due within a moment then.
    pub(crate) fn holds_back(&self) -> bool {
        self.accounts.values().any(|account| !account.parked.is_empty() || !account.granted.is_empty())
    }

    /// Whether another tenant is at work.
    fn has_other(&self, tenant: TenantId, now: Instant) -> bool {
        self.accounts.iter().any(|(id, other)| *id != tenant && *id != STRANGERS.id && other.is_at_work(now))
    }

    /// From now on those who use much have this part of the rate, beside a tenant that does not.
    pub(crate) fn ease(&mut self, ease: Ease) {
        self.ease = ease;
    }

    /// The tenants that are at work, and do more than ask now and then whether there is anything new. Those
    /// who are held back in no case count as none.
    pub(crate) fn at_work(&self, now: Instant) -> Vec<TenantShare> {
        let paced = self.accounts.iter().filter(|(id, account)| {
            **id != STRANGERS.id
                && !account.share.is_operator
                && account.busy.is_some_and(|busy| now.saturating_duration_since(busy) < AT_WORK)
        });
        paced.map(|(_, account)| account.share).collect()
    }

    fn refill(&mut self, tenant: TenantId, now: Instant) {
        let much = self.rate * WINDOW.as_secs_f64() * MUCH;
        let is_light = |(id, account): (&TenantId, &Account)| {
            *id != STRANGERS.id && account.is_at_work(now) && account.use_at(now) <= much
        };
        let uses_much = self.accounts.get(&tenant).is_some_and(|account| account.use_at(now) > much);
        let ease = if uses_much && self.accounts.iter().any(is_light) { self.ease.part() } else { 1.0 };
        let others = self
            .accounts
            .iter()
            .filter(|(id, other)| **id != tenant && **id != STRANGERS.id && other.use_at(now) > much);
        let others: u32 = others.map(|(_, other)| other.share.weight.max(1)).sum();
        let Some(account) = self.accounts.get_mut(&tenant) else { return };
        let weight = f64::from(account.share.weight.max(1));
        let rate = self.rate * ease * weight / (weight + f64::from(others));
        let passed = now.saturating_duration_since(account.filled).as_secs_f64();
        account.left = (account.left + passed * rate).min(FULL.as_secs_f64());
        account.filled = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn tenant(id: u32, weight: u32) -> TenantShare {
        TenantShare { id: TenantId(id), weight, ..TenantShare::default() }
    }

    /// A second in which each of these tenants has 20 connections that want to be polled all the time, for a
    /// tenth of a millisecond, while the tenant 0 is polled every 10 ms: how many polls each has.
    fn second(core: &mut PaceCore, floods: &[TenantShare], quiet: bool) -> Vec<u32> {
        let (begun, poll) = (Instant::now(), MS / 10);
        let mut polls = vec![0; floods.len()];
        let mut ready: VecDeque<(usize, PacedId)> = VecDeque::new();
        for n in 0..20 {
            ready.extend((0..floods.len()).map(|of| (of, PacedId((of * 100 + n) as u64))));
        }
        let find = |id: PacedId| ((id.0 / 100) as usize, id);
        let mut now = begun;
        while now < begun + Duration::from_secs(1) {
            let at = (now - begun).as_millis();
            if quiet && at.is_multiple_of(10) {
                assert!(core.ask(tenant(0, 1), PacedId(9999), now), "it is never held back");
                core.spent(tenant(0, 1), poll, now);
            }
            ready.extend(core.fill(now).into_iter().map(find));
            // A processor has a millisecond until then.
            let until = now + MS;
            while now < until
                && let Some((of, id)) = ready.pop_front()
            {
                if core.ask(floods[of], id, now) {
                    polls[of] += 1;
                    now += poll;
                    ready.extend(core.spent(floods[of], poll, now).into_iter().map(find));
                    ready.push_back((of, id));
                }
            }
            now = until;
        }
        polls
    }

    /// Uses up what the account of a tenant holds.
    fn empty(core: &mut PaceCore, of: TenantShare, now: Instant) {
        assert!(core.spent(of, LONGEST * 3, now).is_empty());
    }

    #[test]
    fn many_processors_go_on_with_several_connections_of_a_tenant() {
        let (mut core, flood) = (PaceCore::new(16), tenant(1, 1));
        let now = Instant::now();
        core.ask(tenant(0, 1), PacedId(99), now);
        core.ask(flood, PacedId(0), now);
        empty(&mut core, flood, now);
        for id in 1..20 {
            assert!(!core.ask(flood, PacedId(id), now));
        }
        assert_eq!(core.fill(now + MS).len(), 8, "half of the processors");
        assert_eq!(core.fill(now + MS * 2), [], "until they have gone on");
    }

    #[test]
    fn a_tenant_that_is_alone_is_never_held_back() {
        let polls = second(&mut PaceCore::new(1), &[tenant(1, 1)], false);
        assert!(polls[0] > 8_000, "{polls:?}");
    }

    #[test]
    fn a_flood_has_its_part_while_somebody_else_is_at_work() {
        let polls = second(&mut PaceCore::new(1), &[tenant(1, 1)], true);
        assert!((4_000..=5_300).contains(&polls[0]), "half of a processor: {polls:?}");
        let both = second(&mut PaceCore::new(1), &[tenant(1, 1), tenant(2, 3)], true);
        assert!((4_000..=5_500).contains(&(both[0] + both[1])), "{both:?}");
        assert!(both[1] > both[0] * 2 && both[1] < both[0] * 4, "by weight: {both:?}");
        let operator = TenantShare { is_operator: true, ..tenant(1, 1) };
        let polls = second(&mut PaceCore::new(1), &[operator], true);
        assert!(polls[0] > 8_000, "{polls:?}");
    }

    #[test]
    fn who_uses_much_has_less_beside_one_who_does_not_while_the_processors_are_short() {
        let of = |is_short, quiet| {
            let (mut core, full) = (PaceCore::new(1), Ease::of_threads());
            core.ease((0..20).fold(full, |ease, _| ease.after(is_short, Some(1.0))));
            let polls = second(&mut core, &[tenant(1, 1), tenant(2, 1)], quiet);
            (polls.iter().sum::<u32>(), core.at_work(Instant::now()).len() > 1)
        };
        let ((full, shared), (less, _), (two, _)) = (of(false, true), of(true, true), of(true, false));
        assert!(shared && (4_000..=5_500).contains(&full), "half of a processor: {full}");
        assert!((900..=2_000).contains(&less), "much less than that: {less}");
        assert!((4_000..=5_500).contains(&two), "nobody uses little: {two}");
    }

    #[test]
    fn strangers_are_held_back_and_hold_nobody_back() {
        let polls = second(&mut PaceCore::new(1), &[STRANGERS], true);
        assert!((4_000..=5_300).contains(&polls[0]), "{polls:?}");
        let mut core = PaceCore::new(1);
        let now = Instant::now();
        assert!(core.ask(STRANGERS, PacedId(1), now));
        for n in 0..100 {
            assert!(core.ask(tenant(1, 1), PacedId(2), now + MS * n));
            assert!(core.spent(tenant(1, 1), MS, now + MS * n).is_empty());
        }
    }

    #[test]
    fn who_only_asks_whether_there_is_anything_new_is_not_at_work() {
        let (mut core, now) = (PaceCore::new(1), Instant::now());
        let mut polls = |took: Duration, at: Instant| {
            core.ask(tenant(1, 1), PacedId(1), at);
            core.spent(tenant(1, 1), took, at);
            core.at_work(at).len()
        };
        assert_eq!((polls(MS / 10, now), polls(MS / 10, now + WINDOW)), (0, 0));
        assert_eq!((polls(MS, now + WINDOW * 2), polls(MS / 10, now + WINDOW * 3)), (1, 1));
        assert_eq!(polls(MS / 10, now + WINDOW * 2 + AT_WORK), 0);
    }

    #[test]
    fn connections_go_on_in_the_order_in_which_they_were_parked() {
        let (mut core, flood) = (PaceCore::new(1), tenant(1, 1));
        let now = Instant::now();
        assert!(core.ask(tenant(0, 1), PacedId(9), now));
        assert!(core.ask(flood, PacedId(1), now));
        empty(&mut core, flood, now);
        for id in [2, 3, 4, 2] {
            assert!(!core.ask(flood, PacedId(id), now));
        }
        assert!(core.holds_back() && core.fill(now).is_empty());
        core.gone(PacedId(3));
        let later = now + MS;
        assert_eq!(core.fill(later), [PacedId(2)]);
        assert!(core.fill(later).is_empty(), "one at a time");
        assert!(!core.ask(flood, PacedId(5), later), "behind the others");
        assert!(core.ask(flood, PacedId(2), later));
        assert_eq!(core.spent(flood, MS / 10, later), [PacedId(4)]);
        core.gone(PacedId(4));
        assert_eq!(core.fill(later + MS), [PacedId(5)], "it waits for nobody who is gone");
    }

    #[test]
    fn everybody_goes_on_once_nobody_else_is_at_work() {
        let (mut core, flood) = (PaceCore::new(1), tenant(1, 1));
        let now = Instant::now();
        core.ask(tenant(0, 1), PacedId(9), now);
        core.ask(flood, PacedId(1), now);
        empty(&mut core, flood, now);
        assert!(!core.ask(flood, PacedId(1), now) && !core.ask(flood, PacedId(2), now));
        assert_eq!(core.fill(now + AT_WORK), [PacedId(1), PacedId(2)]);
        assert!(core.ask(flood, PacedId(1), now + AT_WORK) && core.ask(flood, PacedId(2), now + AT_WORK));
        assert!(!core.holds_back());
        assert!(core.fill(now + AT_WORK * 2).is_empty() && core.accounts.is_empty());
    }
}
