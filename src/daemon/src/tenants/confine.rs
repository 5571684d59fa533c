//! How many processors are left to the programs of tenants that owe CPU credits, while a tenant is at work
//! that owes none. Pure: it reads no clock and asks no kernel.
//!
//! A weight says how much of a processor programs get, not how soon others get theirs. Where light
//! containers sleep and wake thousands of times a second, the Linux 6.18 on which this was measured lets a
//! heavy program that rarely works wait for its processor for 35 ms and more (`bench/README.md`), and with it
//! every call of a tenant that uses little. On a processor without such programs it waits for nothing.
//!
//! So the tenants that owe have all processors but those on which the daemon computes, and but one more for
//! each container in which programs of others are at work; or their own parts, if those are more. The daemon
//! keeps off what they have (`processors.rs`), unless it computes on more processors than are left. It
//! must always leave one processor to everybody else, and one to them.

/// The processors of a machine, and who wants them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Demand {
    /// How many there are.
    pub processors: usize,
    /// The parts of all tenants that owe CPU credits, of 1 together.
    pub parts: f64,
    /// Containers of other tenants in which programs are at work.
    pub working: usize,
    /// On how many processors the daemon computes.
    pub daemon: f64,
}

/// How many processors are left to the daemon for each on which it computes. With no more than that, it could
/// never be seen to compute on more.
const ROOM: f64 = 1.25;

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
    let Demand { processors, parts, working, daemon } = demand;
    if processors < 2 {
        return Confinement::All;
    }
    #[expect(clippy::cast_precision_loss, reason = "few processors")]
    let as_f64 = |count: usize| count as f64;
    let for_daemon = (1..processors).find(|count| as_f64(*count) >= daemon * ROOM).unwrap_or(processors);
    let unused = processors.saturating_sub(for_daemon + working);
    let parts = (parts * as_f64(processors)).round();
    let count = (1..processors).find(|count| *count >= unused && as_f64(*count) >= parts);
    Confinement::Last(count.unwrap_or(processors - 1))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(processors: usize, parts: f64, working: usize) -> Option<usize> {
        beside(0.0, processors, parts, working)
    }

    fn beside(daemon: f64, processors: usize, parts: f64, working: usize) -> Option<usize> {
        match confine(Demand { processors, parts, working, daemon }) {
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

    #[test]
    fn a_daemon_that_computes_on_several_has_these_and_room_for_more() {
        assert_eq!(
            [0.1, 0.8, 0.81, 1.6, 1.7].map(|daemon| beside(daemon, 16, 0.1, 2)),
            [13, 13, 12, 12, 11].map(Some)
        );
        assert_eq!(beside(11.0, 16, 0.1, 2), Some(2), "those who owe have their part");
        assert_eq!(beside(2.0, 2, 0.1, 0), Some(1));
        assert_eq!(beside(f64::NAN, 16, 0.1, 0), Some(2), "whatever is measured");
    }

    proptest! {
        #[test]
        fn both_sides_have_at_least_one_and_those_who_owe_their_parts(
            processors in 0..300_usize, parts in 0.0..1.0_f64, working in 0..400_usize,
            daemon in 0.0..400.0_f64,
        ) {
            let Some(count) = beside(daemon, processors, parts, working) else {
                prop_assert!(processors < 2);
                return Ok(());
            };
            prop_assert!((1..processors).contains(&count));
            let parts = parts * processors as f64;
            let rounded = (1..=processors).filter(|count| *count as f64 <= parts + 0.5).count();
            prop_assert!(count >= rounded.min(processors - 1));
            let for_daemon = (1..processors).filter(|count| (*count as f64) < daemon * ROOM).count() + 1;
            let least = processors.saturating_sub(for_daemon).saturating_sub(working).max(rounded).max(1);
            prop_assert_eq!(count, least.min(processors - 1));
        }
    }
}
