//! Who is served next where calls of several tenants wait: round by round between the tenants, each with its
//! weight, and in the order of arrival within a tenant. Pure: it reads no clock and holds no lock.
//!
//! It is start-time fair queueing (Goyal, Vin and Cheng, 1996). Every call gets a mark when it arrives: the
//! place of its tenant's next turn. The smallest mark is served first, so a queue is a list in the order of
//! marks. A tenant's next mark lies `1 / weight` of a round behind its last one; one that has not asked for a
//! while begins at the present round, so it saves nothing up and pays for nothing old. Calls of a single
//! tenant have growing marks: they are served in the order in which they came.
//!
//! It must never depend on how many calls a tenant has waiting: a flood waits behind itself.

use std::collections::BTreeMap;

/// A tenant, as queues know it: a small number that [`Tenants`](super::Tenants) gives each name, for the life
/// of the process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TenantId(pub u32);

impl TenantId {
    /// The daemon itself, where it waits for something of its own. No tenant ever has this number.
    pub const DAEMON: Self = Self(u32::MAX);
}

/// What a queue must know of the tenant of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TenantShare {
    /// The tenant.
    pub id: TenantId,
    /// Its part of what all wait for, against the weights of others. At least 1.
    pub weight: u32,
    /// Whether it is served before all others, and may use the reserved places.
    pub is_operator: bool,
    /// How many tenants there are: while one of them has no place, the last one is kept for it.
    pub tenants: usize,
    /// Sessions with containers that it may have; `None`: as many as anybody.
    pub sessions: Option<usize>,
    /// Executions under way that it may have.
    pub executions: Option<usize>,
    /// Whether it has spent its CPU credits, and is no operator. Only the pool notes it: when a tenant asks
    /// for a container, and when it weighs those of several.
    pub owes: bool,
}

impl Default for TenantShare {
    /// The only tenant, without limits.
    fn default() -> Self {
        Self {
            id: TenantId(0),
            weight: 1,
            is_operator: false,
            tenants: 1,
            sessions: None,
            executions: None,
            owes: false,
        }
    }
}

/// The largest weight.
pub const MAX_WEIGHT: u32 = 1000;

/// The length of a round: a multiple of a thousand, so that weights divide it well.
const ROUND: u64 = 1_000_000;

/// The place of a call in the order of service. Marks of operators are before all others.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mark {
    at: u64,
    /// How many calls of its tenant came just before it: of equal marks, that of the quieter tenant is first.
    behind: u32,
}

/// The rounds of one queue.
#[derive(Debug)]
pub struct Rounds {
    /// The mark of the call that was served last.
    present: u64,
    /// The next mark of each tenant that is ahead of the present.
    next: BTreeMap<TenantId, Mark>,
}

impl Default for Rounds {
    fn default() -> Self {
        Self { present: 1, next: BTreeMap::new() } // 0 is before everybody
    }
}

impl Rounds {
    /// The mark of a call that arrives now.
    pub fn arrive(&mut self, tenant: TenantShare) -> Mark {
        if tenant.is_operator {
            return Mark::default();
        }
        let mark = match self.next.get(&tenant.id) {
            Some(next) if next.at > self.present => *next,
            Some(_) | None => Mark { at: self.present, behind: 0 },
        };
        let next = Mark { at: mark.at + cost(tenant), behind: mark.behind.saturating_add(1) };
        self.next.insert(tenant.id, next);
        mark
    }

    /// A call was served.
    pub fn served(&mut self, Mark { at, .. }: Mark) {
        if at > self.present {
            self.present = at;
            self.next.retain(|_, next| next.at > at);
        }
    }

    /// A call went away unserved, and `last` is the last mark of those of its tenant that still wait. The
    /// tenant does not pay for what it did not get.
    pub fn went_away(&mut self, tenant: TenantShare, last: Option<Mark>) {
        match last {
            None => drop(self.next.remove(&tenant.id)),
            Some(last) => {
                let next = Mark { at: last.at + cost(tenant), behind: last.behind.saturating_add(1) };
                self.next.insert(tenant.id, next);
            }
        }
    }
}

fn cost(tenant: TenantShare) -> u64 {
    (ROUND / u64::from(tenant.weight.clamp(1, MAX_WEIGHT))).max(1)
}

/// Who is refused when one more call comes to a queue that is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// The call that comes.
    Newcomer,
    /// The last call of this tenant, which has more waiting, for its weight, than the newcomer would have.
    LastOf(TenantId),
}

/// Who is refused for one more call of `newcomer`, when these calls wait. A tenant that fills a queue is the
/// one that loses places, whoever comes.
pub fn refused(newcomer: TenantShare, waiting: impl IntoIterator<Item = TenantShare>) -> Refused {
    let mut counts: BTreeMap<TenantId, (u64, TenantShare)> = BTreeMap::new();
    for share in waiting {
        counts.entry(share.id).or_insert((0, share)).0 += 1;
    }
    let own = counts.get(&newcomer.id).map_or(0, |(count, _)| *count) + 1;
    // a / b < c / d  ⇔  a · d < c · b
    let load = |(count, share): &(u64, TenantShare), other: u32| {
        if share.is_operator { 0 } else { count * u64::from(other.max(1)) }
    };
    let worst = counts.values().max_by(|a, b| load(a, b.1.weight).cmp(&load(b, a.1.weight)));
    match worst {
        Some(worst) if newcomer.is_operator && !worst.1.is_operator => Refused::LastOf(worst.1.id),
        Some(worst) if load(worst, newcomer.weight) > own * u64::from(worst.1.weight.max(1)) => {
            Refused::LastOf(worst.1.id)
        }
        Some(_) | None => Refused::Newcomer,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn tenant(id: u32, weight: u32) -> TenantShare {
        TenantShare { id: TenantId(id), weight, tenants: 9, ..TenantShare::default() }
    }

    /// Serves the first of a queue, again and again.
    struct Queue {
        rounds: Rounds,
        waiting: Vec<(Mark, u32, TenantShare)>,
        arrived: u32,
    }

    impl Queue {
        fn new() -> Self {
            Self { rounds: Rounds::default(), waiting: Vec::new(), arrived: 0 }
        }

        fn come(&mut self, tenant: TenantShare) {
            self.arrived += 1;
            let mark = self.rounds.arrive(tenant);
            self.waiting.push((mark, self.arrived, tenant));
            self.waiting.sort_by_key(|(mark, arrived, _)| (*mark, *arrived));
        }

        fn serve(&mut self) -> u32 {
            let (mark, _, tenant) = self.waiting.remove(0);
            self.rounds.served(mark);
            tenant.id.0
        }

        fn serve_all(&mut self) -> Vec<u32> {
            (0..self.waiting.len()).map(|_| self.serve()).collect()
        }
    }

    #[test]
    fn a_flood_waits_behind_itself_and_one_tenant_is_served_in_order() {
        let mut queue = Queue::new();
        (0..100).for_each(|_| queue.come(tenant(1, 1)));
        assert_eq!((queue.serve(), queue.serve()), (1, 1));
        queue.come(tenant(2, 1));
        queue.come(tenant(2, 1));
        let next: Vec<u32> = (0..5).map(|_| queue.serve()).collect();
        assert_eq!(next.iter().filter(|id| **id == 2).count(), 2, "{next:?}");
        assert!(next.iter().position(|id| *id == 2) <= Some(1), "{next:?}");
        let mut one = Queue::new();
        (0..50).for_each(|_| one.come(tenant(1, 3)));
        assert!(one.waiting.is_sorted_by_key(|(_, arrived, _)| *arrived));
    }

    #[test]
    fn a_tenant_saves_nothing_up_and_does_not_pay_for_what_went_away() {
        let mut queue = Queue::new();
        (0..40).for_each(|_| queue.come(tenant(1, 1)));
        queue.serve_all();
        (0..4).for_each(|_| queue.come(tenant(1, 1)));
        (0..4).for_each(|_| queue.come(tenant(2, 1)));
        assert_eq!(queue.serve_all(), [2, 2, 1, 2, 1, 2, 1, 1], "2 was away, and has only its turns");
        let mut gone = Queue::new();
        gone.come(tenant(1, 1));
        (0..20).for_each(|_| {
            gone.rounds.arrive(tenant(2, 1));
            gone.rounds.went_away(tenant(2, 1), None);
        });
        gone.come(tenant(1, 1));
        gone.come(tenant(2, 1));
        assert_eq!(gone.serve_all(), [1, 2, 1]);
    }

    #[test]
    fn operators_are_first() {
        let mut queue = Queue::new();
        (0..3).for_each(|_| queue.come(tenant(1, MAX_WEIGHT)));
        queue.come(TenantShare { is_operator: true, ..tenant(9, 1) });
        assert_eq!(queue.serve_all(), [9, 1, 1, 1]);
    }

    #[test]
    fn the_tenant_that_fills_a_queue_loses_places() {
        let (a, b) = (tenant(1, 1), tenant(2, 1));
        assert_eq!(refused(a, [a, a, a]), Refused::Newcomer);
        assert_eq!(refused(b, [a, a, a]), Refused::LastOf(TenantId(1)));
        assert_eq!(refused(b, [a, a, b]), Refused::Newcomer, "they would have as many");
        assert_eq!(refused(b, []), Refused::Newcomer);
        let heavy = tenant(3, 4);
        assert_eq!(refused(b, [heavy, heavy, heavy, heavy]), Refused::Newcomer);
        assert_eq!(refused(heavy, [b, b, heavy]), Refused::LastOf(TenantId(2)));
        let operator = TenantShare { is_operator: true, ..tenant(9, 1) };
        assert_eq!(refused(operator, [a, operator, operator]), Refused::LastOf(TenantId(1)));
        assert_eq!(refused(a, [operator, operator, operator]), Refused::Newcomer);
    }

    /// The longest time from a call of tenant 2 to its end, in ticks, where `places` calls are served at a
    /// time, tenant 2 makes one call after the other of `own` ticks, and `flood` callers of tenant 1 wait all
    /// the time for calls of `theirs` ticks.
    fn longest(places: usize, flood: u32, (own, theirs): (u32, u32), weights: (u32, u32)) -> u32 {
        const FLOOD: u32 = 1;
        const QUIET: u32 = 2;
        let (flooder, quiet) = (tenant(FLOOD, weights.0), tenant(QUIET, weights.1));
        let mut queue = Queue::new();
        let mut serving: Vec<(u32, u32)> = Vec::new(); // who, and until when
        let (mut asked, mut longest, mut calls) = (None, 0, 0);
        (0..flood).for_each(|_| queue.come(flooder));
        for now in 0.. {
            let (ended, others): (Vec<_>, Vec<_>) = serving.into_iter().partition(|(_, end)| *end == now);
            serving = others;
            for (who, _) in ended {
                if who == FLOOD {
                    queue.come(flooder);
                } else if let Some(at) = asked.take() {
                    (longest, calls) = (longest.max(now - at), calls + 1);
                }
            }
            if calls == 50 {
                return longest;
            }
            // The worst moment: everything is in use already.
            if asked.is_none() && (now > 0 || flood == 0) {
                asked = Some(now);
                queue.come(quiet);
            }
            while serving.len() < places && !queue.waiting.is_empty() {
                let who = queue.serve();
                serving.push((who, now + if who == FLOOD { theirs } else { own }));
            }
        }
        longest
    }

    #[test]
    fn beside_a_flood_of_the_same_calls_a_tenant_waits_at_most_as_long_as_one_of_them_takes() {
        for places in 1..6 {
            let alone = longest(places, 0, (10, 10), (1, 1));
            assert_eq!(alone, 10);
            for flood in [1, 6, 48, 500] {
                let beside = longest(places, flood, (10, 10), (1, 1));
                assert!(beside <= 2 * alone, "{beside} beside {flood}, {alone} alone, {places} places");
            }
        }
    }

    proptest! {
        /// Whatever others ask for, one that asks for less than its part waits for no more than one end of
        /// theirs, however many they are.
        #[test]
        fn the_wait_beside_a_flood_is_bounded(
            places in 1..6_usize,
            flood in 1..200_u32,
            own in 1..20_u32,
            theirs in 1..20_u32,
            weight in 1..8_u32,
        ) {
            // Its part is what it gets at least: one place in two, or more by its weight.
            let beside = longest(places, flood, (own, theirs), (1, weight));
            prop_assert!(beside <= own + theirs, "{beside}");
        }

        /// However many tenants flood, and however full the queue is: one that comes with a call finds a
        /// place, and at most one call of each other is served before it.
        #[test]
        fn a_quiet_tenant_finds_a_place_and_is_served_within_one_round(
            floods in 1..6_u32,
            more in 1..40_usize,
            order in proptest::collection::vec(0..6_u32, 60),
            served in 0..80_usize,
        ) {
            let most = floods as usize + more; // so that one of them has several
            let mut queue = Queue::new();
            let mut flooders = order.iter().map(|id| tenant(id % floods, 1)).cycle();
            let mut come = |queue: &mut Queue| {
                while queue.waiting.len() < most && let Some(one) = flooders.next() {
                    queue.come(one);
                }
            };
            come(&mut queue);
            for _ in 0..served {
                queue.serve();
                come(&mut queue);
            }
            let quiet = tenant(9, 1);
            let waiting = queue.waiting.iter().map(|(.., one)| *one);
            let Refused::LastOf(worst) = refused(quiet, waiting) else {
                return Err(TestCaseError::fail("the quiet tenant has no place"));
            };
            let last = queue.waiting.iter().rposition(|(.., one)| one.id == worst);
            queue.waiting.remove(last.expect("who loses a place has one"));
            queue.come(quiet);
            let before: Vec<u32> = (0..=most).map(|_| queue.serve()).take_while(|id| *id != 9).collect();
            let mut once = before.clone();
            once.sort_unstable();
            once.dedup();
            prop_assert_eq!(once.len(), before.len(), "{:?}", before);
        }

        /// Of tenants that always wait, each is served by its weight, within one round, at every moment.
        #[test]
        fn service_goes_by_weight(
            weights in proptest::collection::vec(1..8_u32, 1..6),
            served in 1..400_usize,
        ) {
            let mut queue = Queue::new();
            let tenants: Vec<_> = (0..).zip(&weights).map(|(id, w)| tenant(id, *w)).collect();
            for one in &tenants {
                (0..3).for_each(|_| queue.come(*one));
            }
            let mut counts = vec![0.0_f64; tenants.len()];
            for _ in 0..served {
                let id = queue.serve();
                counts[id as usize] += 1.0;
                queue.come(tenants[id as usize]);
                let rounds: Vec<f64> = counts.iter().zip(&weights).map(|(c, w)| c / f64::from(*w)).collect();
                let least = rounds.iter().copied().fold(f64::MAX, f64::min);
                let most = rounds.iter().copied().fold(0.0, f64::max);
                prop_assert!(most - least <= 1.01, "{counts:?} of {weights:?}");
            }
        }
    }
}
