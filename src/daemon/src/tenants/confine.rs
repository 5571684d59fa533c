//! Which processors are left to the programs of tenants that owe CPU credits: as many as are their part, and
//! never the first one. Pure: it reads no clock and asks no kernel.
//!
//! A weight says how much of a processor programs get, not how soon others get theirs. Where light
//! containers sleep and wake thousands of times a second, Linux 6.18 lets a heavy program that rarely works
//! wait for its processor for 35 ms and more (`bench/README.md`), and with it every call of a tenant that
//! uses little. On a processor without such programs it waits for nothing.
//!
//! It must never leave a tenant less than its part of the processors, within a half of one, nor less than one
//! of them; and it must always leave one to everybody else.

use std::collections::BTreeMap;

use super::fair::TenantId;

/// For tenants that owe CPU credits, and how many processors are the part of each: the places, in ascending
/// order, of those on which its programs may run, in a list of so many processors. A tenant that may use all
/// of them is missing.
#[must_use]
pub fn confine(owing: &BTreeMap<TenantId, f64>, processors: usize) -> BTreeMap<TenantId, Vec<usize>> {
    let mut confined = BTreeMap::new();
    // The first one is left to others.
    let most = processors.saturating_sub(1);
    let mut next = 0;
    for (tenant, part) in owing {
        let count = whole(*part);
        if count >= processors {
            continue;
        }
        // From the last one on, so that several of these tenants share none as long as there are enough.
        let mut places: Vec<_> = (0..count).map(|n| processors - 1 - (next + n) % most).collect();
        places.sort_unstable();
        next = (next + count) % most;
        confined.insert(*tenant, places);
    }
    confined
}

/// Processors that are nearest to a part of them, and at least one.
fn whole(part: f64) -> usize {
    // A part is no more than the processors of a machine.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is small and positive")]
    let whole = part.round().clamp(1.0, 1e6) as usize;
    whole
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(parts: &[f64], processors: usize) -> Vec<Vec<usize>> {
        let ids = (0..).map(TenantId);
        confine(&ids.zip(parts.iter().copied()).collect(), processors).into_values().collect()
    }

    #[test]
    fn a_tenant_has_its_part_and_others_have_the_first_one() {
        assert_eq!(of(&[1.0], 2), [[1]]);
        assert_eq!(of(&[0.01], 2), [[1]], "at least one");
        assert_eq!(of(&[1.0, 1.0], 2), [[1], [1]], "of two, both have the second one");
        assert_eq!(of(&[4.0, 4.0], 12), [[8, 9, 10, 11], [4, 5, 6, 7]]);
        assert_eq!(of(&[4.0, 4.0, 4.0], 12), [vec![8, 9, 10, 11], vec![4, 5, 6, 7], vec![1, 2, 3, 11]]);
    }

    #[test]
    fn who_may_use_all_is_not_confined() {
        assert_eq!(of(&[2.0], 2), [[0; 0]; 0], "it is alone");
        assert_eq!(of(&[1.8], 2), [[0; 0]; 0], "nearer to both than to one");
        assert_eq!(of(&[0.5], 1), [[0; 0]; 0], "there is one for all");
        assert_eq!(of(&[], 8), [[0; 0]; 0]);
    }

    proptest! {
        #[test]
        fn whatever_they_owe_each_has_its_part_and_the_first_one_is_free(
            parts in proptest::collection::vec(0.0..1.0_f64, 0..9),
            processors in 0..40_usize,
        ) {
            let sum: f64 = parts.iter().sum::<f64>().max(1.0);
            let parts: BTreeMap<_, _> = (0..).map(TenantId)
                .zip(parts.iter().map(|part| part / sum * processors as f64))
                .collect();
            let confined = confine(&parts, processors);
            for (tenant, part) in parts {
                let Some(places) = confined.get(&tenant) else {
                    prop_assert!(part + 0.5 >= processors as f64 || processors < 2, "{part} of {processors}");
                    continue;
                };
                prop_assert!(places.is_sorted_by(|a, b| a < b), "{places:?}");
                prop_assert!(places.iter().all(|place| (1..processors).contains(place)), "{places:?}");
                prop_assert!((places.len() as f64 - part.max(1.0)).abs() <= 0.5 + 1e-9, "{places:?}, {part}");
            }
        }

        #[test]
        fn they_share_none_as_long_as_there_are_enough(parts in proptest::collection::vec(1..5_usize, 0..9)) {
            let processors = parts.iter().sum::<usize>() + 1;
            let parts: Vec<_> = parts.iter().map(|part| *part as f64).collect();
            let mut all: Vec<_> = of(&parts, processors).concat();
            all.sort_unstable();
            prop_assert_eq!(all, (1..processors).collect::<Vec<_>>());
        }
    }
}
