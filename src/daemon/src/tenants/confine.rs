//! How many processors are left to the programs of tenants that owe CPU credits, while a tenant is at work
//! that owes none. Pure: it reads no clock and asks no kernel.
//!
//! A weight says how much of a processor programs get, not how soon others get theirs. Where light
//! containers sleep and wake thousands of times a second, the Linux 6.18 on which this was measured lets a
//! heavy program that rarely works wait for its processor for 35 ms and more (`bench/README.md`), and with it
//! every call of a tenant that uses little. On a processor without such programs it waits for nothing.
//!
//! So the tenants that owe have all processors but one, and but one more for each container in which programs
//! of others are at work; or their own parts, if those are more. It must always leave one processor to
//! everybody else, and one to them.

/// The processors of a machine, and who wants them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Demand {
    /// How many there are.
    pub processors: usize,
    /// The parts of all tenants that owe CPU credits, of 1 together.
    pub parts: f64,
    /// Containers of other tenants in which programs are at work.
    pub working: usize,
}

/// On which processors the programs of a container may run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Confinement {
    /// On all that it was made with.
    All,
    /// On the last of them, so many.
    Last(usize),
}

/// What is left to the tenants that owe.
#[must_use]
pub fn confine(demand: Demand) -> Confinement {
    let Demand { processors, parts, working } = demand;
    if processors < 2 {
        return Confinement::All;
    }
    let unused = processors.saturating_sub(1 + working);
    #[expect(clippy::cast_precision_loss, reason = "few processors")]
    let parts = (parts * processors as f64).round();
    let is_part = |count: &usize| {
        #[expect(clippy::cast_precision_loss, reason = "few processors")]
        let count = *count as f64;
        count >= parts
    };
    let count = (1..processors).find(|count| *count >= unused && is_part(count));
    Confinement::Last(count.unwrap_or(processors - 1))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(processors: usize, parts: f64, working: usize) -> Option<usize> {
        match confine(Demand { processors, parts, working }) {
            Confinement::All => None,
            Confinement::Last(count) => Some(count),
        }
    }

    #[test]
    fn one_processor_is_left_to_others_and_one_more_for_each_container_that_works() {
        assert_eq!(of(16, 0.1, 0), Some(15));
        assert_eq!(of(16, 0.1, 5), Some(10));
        assert_eq!(of(16, 0.1, 99), Some(2), "its part");
        assert_eq!(of(16, 0.5, 99), Some(8));
        assert_eq!(of(16, 0.0, 99), Some(1), "one in any case");
    }

    #[test]
    fn of_two_each_has_one_and_the_only_one_is_for_all() {
        assert_eq!([of(2, 0.5, 0), of(2, 0.9, 0), of(2, 0.1, 7)], [Some(1); 3]);
        assert_eq!([of(1, 0.5, 0), of(0, 0.5, 0)], [None; 2]);
    }

    proptest! {
        #[test]
        fn both_sides_have_at_least_one_and_those_who_owe_their_parts(
            processors in 0..300_usize, parts in 0.0..1.0_f64, working in 0..400_usize,
        ) {
            let Some(count) = of(processors, parts, working) else {
                prop_assert!(processors < 2);
                return Ok(());
            };
            prop_assert!((1..processors).contains(&count));
            let parts = parts * processors as f64;
            let rounded = (1..=processors).filter(|count| *count as f64 <= parts + 0.5).count();
            prop_assert!(count >= rounded.min(processors - 1));
            let least = (processors - 1).saturating_sub(working).max(rounded).max(1);
            prop_assert_eq!(count, least.min(processors - 1));
        }
    }
}
