//! How much each container weighs against the others where programs of several tenants want the processors:
//! the containers of a tenant together as much as its weight says, however many it has. Pure: it reads no
//! clock and asks no engine.
//!
//! The kernel divides processors between containers, and knows no tenants: one with nine busy containers
//! would get nine times as much as one with a single run. A container is made at the [whole](WHOLE) weight,
//! before anybody asks for it; so a tenant's only busy container needs no change, and only those of a tenant
//! that has several are made lighter.
//!
//! A tenant that owes CPU credits has used more than its part. All of its containers together weigh a quarter
//! of that: what it began while it was alone would otherwise go before the programs of somebody else, and
//! before the start of a container where the group of each container is beside the engine's.
//!
//! It must never make a container lighter than its tenant's part is, nor ask for changes without end: a
//! container keeps what it has as long as that is near enough.

use std::collections::BTreeMap;

use super::fair::{TenantId, TenantShare};

/// What a container weighs when it is made: the default of the engine (CPU shares).
pub const WHOLE: u64 = 1024;
/// A tenant that owes weighs so many times less.
const OWING: u64 = 4;
/// The least that the kernel takes.
pub const LEAST: u64 = 2;

/// A container in the hands of a tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WeighedContainer {
    /// Whose it is.
    pub tenant: TenantShare,
    /// What it weighs now.
    pub weighs: u64,
    /// Whether programs are at work in it. Such containers of a tenant divide its part; each other one weighs
    /// as much as one of them, for it may be the next that works.
    pub is_working: bool,
}

/// What each of these containers should weigh, where that differs from what it weighs: its place in the
/// list, and its new weight.
pub fn weigh(all: &[WeighedContainer]) -> Vec<(usize, u64)> {
    let mut counts: BTreeMap<TenantId, u64> = BTreeMap::new();
    for container in all.iter().filter(|one| one.is_working) {
        *counts.entry(container.tenant.id).or_default() += 1;
    }
    let weights = all.iter().filter(|one| one.is_working).map(|one| one.tenant.weight.max(1));
    let heaviest = weights.max().unwrap_or(1);
    let should = |tenant: TenantShare| {
        // Who is alone divides its part with nobody; operators are served before others.
        if tenant.tenants < 2 || tenant.is_operator {
            return WHOLE;
        }
        let count = counts.get(&tenant.id).copied().unwrap_or(1).max(1);
        let part = (WHOLE * u64::from(tenant.weight.max(1)) / u64::from(heaviest)).min(WHOLE);
        (part / if tenant.owes { OWING } else { 1 } / count).max(LEAST)
    };
    let of = |(place, one): (usize, &WeighedContainer)| {
        let should = should(one.tenant);
        (!is_near(one.weighs, should)).then_some((place, should))
    };
    all.iter().enumerate().filter_map(of).collect()
}

/// Whether two weights differ by less than half of the smaller one: a container more or less among several
/// changes nothing then, and each change costs the engine some work.
fn is_near(a: u64, b: u64) -> bool {
    let (small, large) = (a.min(b), a.max(b));
    large * 2 < small * 3
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn working(id: u32, weight: u32, weighs: u64) -> WeighedContainer {
        let tenant = TenantShare { id: TenantId(id), weight, tenants: 2, ..TenantShare::default() };
        WeighedContainer { tenant, weighs, is_working: true }
    }

    fn resting(id: u32, weight: u32, weighs: u64) -> WeighedContainer {
        WeighedContainer { is_working: false, ..working(id, weight, weighs) }
    }

    #[test]
    fn the_containers_of_a_tenant_weigh_together_what_one_of_another_does() {
        let mut all = vec![working(1, 1, WHOLE); 8];
        all.push(working(2, 1, WHOLE));
        let changes = weigh(&all);
        assert_eq!(changes, (0..8).map(|place| (place, WHOLE / 8)).collect::<Vec<_>>(), "2 stays whole");
        // One more or less of several is near enough; half of them is not.
        let lighter = [working(1, 1, WHOLE / 8); 9];
        assert_eq!(weigh(&lighter), []);
        assert_eq!(weigh(&lighter[..4]).len(), 4);
        assert_eq!(weigh(&lighter[..1]), [(0, WHOLE)], "the last one is whole again");
    }

    #[test]
    fn those_of_a_tenant_that_owes_weigh_a_quarter() {
        let mut all = vec![working(1, 1, WHOLE); 8];
        all.push(working(2, 1, WHOLE));
        all.iter_mut().filter(|one| one.tenant.id == TenantId(1)).for_each(|one| one.tenant.owes = true);
        assert_eq!(weigh(&all), (0..8).map(|place| (place, WHOLE / 32)).collect::<Vec<_>>());
        assert_eq!(weigh(&all[..1]), [(0, WHOLE / 4)], "also if nobody else is at work");
    }

    #[test]
    fn one_in_which_nothing_works_weighs_as_much_as_one_that_works_and_takes_nothing_of_their_part() {
        let mut all = vec![working(1, 1, WHOLE / 2); 2];
        all.push(resting(1, 1, WHOLE));
        all.push(resting(2, 8, WHOLE));
        assert_eq!(weigh(&all), [(2, WHOLE / 2)], "nor does a heavier tenant count that rests");
        assert_eq!(weigh(&[resting(1, 1, WHOLE / 8)]), [(0, WHOLE)]);
        let mut owing = resting(1, 1, WHOLE);
        owing.tenant.owes = true;
        assert_eq!(weigh(&[owing]), [(0, WHOLE / 4)], "it is light before the first program begins");
    }

    #[test]
    fn weights_count_and_those_who_are_alone_or_operators_are_whole() {
        let changes = weigh(&[working(1, 4, WHOLE), working(2, 1, WHOLE), working(3, 2, 512)]);
        assert_eq!(changes, [(1, WHOLE / 4)]);
        let alone = |one: WeighedContainer| WeighedContainer {
            tenant: TenantShare { tenants: 1, ..one.tenant },
            ..one
        };
        assert_eq!(weigh(&[alone(working(1, 1, WHOLE)), alone(working(1, 1, WHOLE))]), []);
        assert_eq!(weigh(&[alone(working(1, 1, 128)), alone(working(1, 1, WHOLE))]), [(0, WHOLE)]);
        let operator = |one: WeighedContainer| WeighedContainer {
            tenant: TenantShare { is_operator: true, ..one.tenant },
            ..one
        };
        assert_eq!(weigh(&[operator(working(9, 1, WHOLE)), operator(working(9, 1, WHOLE))]), []);
        assert_eq!(weigh(&vec![working(1, 1, WHOLE); 4000])[0], (0, LEAST), "what the kernel takes");
        assert_eq!(weigh(&[]), []);
    }

    proptest! {
        /// Whatever they weighed before, afterwards each tenant has its part within a half, and nothing is
        /// left to change.
        #[test]
        fn it_settles_at_once_and_each_tenant_has_its_part(
            containers in proptest::collection::vec((0..4_u32, 0..11_u32), 1..40),
            weights in proptest::collection::vec(1..9_u32, 4),
        ) {
            let mut all: Vec<_> = containers
                .iter()
                .map(|(id, weighs)| working(*id, weights[*id as usize], LEAST << weighs.min(&9)))
                .collect();
            for (place, weighs) in weigh(&all) {
                prop_assert!((LEAST..=WHOLE).contains(&weighs));
                all[place].weighs = weighs;
            }
            prop_assert_eq!(weigh(&all), []);
            let heaviest = all.iter().map(|one| one.tenant.weight).max().unwrap();
            for id in 0..4 {
                let of: Vec<_> = all.iter().filter(|one| one.tenant.id == TenantId(id)).collect();
                let sum: u64 = of.iter().map(|one| one.weighs).sum();
                let part = WHOLE * u64::from(weights[id as usize]) / u64::from(heaviest);
                let rounding = of.len() as u64 + LEAST;
                prop_assert!(sum <= part * 3 / 2 + rounding, "{sum} of {part}");
                prop_assert!(of.is_empty() || (sum + rounding) * 3 >= part * 2, "{sum} of {part}");
            }
        }
    }
}
