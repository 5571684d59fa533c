//! How the runs of one container share the streams that the agent may open: each can hold many, and none all.
//!
//! Both sides apply it. The daemon applies it to the connections of each run, and tells the run. PID 1
//! applies it to everything that a run has asked for, so that a run which asks faster than the daemon
//! refuses takes no streams from others. Nothing is taken back: a run keeps what it held before another
//! began. It must never give a run all of the room, even if it is the only one: another may begin.

use crate::limits::RESERVED_ASKS;

/// Whether a run that holds `own` streams may have one more of `room`, beside other runs that hold `others`.
/// Up to its reserve it may as long as there is any room. Beyond, it must leave to each other run, and to one
/// that is yet to begin, what they lack of theirs. Where the reserves of all do not fit, each is smaller.
#[must_use]
pub fn may_open(room: usize, own: usize, others: &[usize]) -> bool {
    let reserve = RESERVED_ASKS.min(room / (others.len() + 2)).max(1);
    let held = own + others.iter().sum::<usize>();
    if own < reserve {
        return held < room;
    }
    let lacking: usize = others.iter().map(|other| reserve.saturating_sub(*other)).sum();
    held + lacking + reserve < room
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// How many a run comes to hold that takes all that it may.
    fn most(room: usize, mut own: usize, others: &[usize]) -> usize {
        while may_open(room, own, others) {
            own += 1;
        }
        own
    }

    #[test]
    fn a_run_alone_leaves_a_reserve_for_the_next_and_gets_its_own_beside_a_greedy_one() {
        let alone = most(160, 0, &[]);
        assert_eq!(alone, 160 - RESERVED_ASKS);
        assert_eq!(most(160, 0, &[alone]), RESERVED_ASKS);
        // Both began before either took anything.
        let greedy = most(160, 0, &[0]);
        assert_eq!(greedy, 160 - 2 * RESERVED_ASKS);
        assert_eq!(most(160, 0, &[greedy]), RESERVED_ASKS);
        // What a run gives back is had by the others.
        assert_eq!(most(160, RESERVED_ASKS, &[10]), 160 - 2 * RESERVED_ASKS);
    }

    #[test]
    fn where_the_reserves_do_not_fit_each_is_smaller() {
        let others = [0; 30];
        assert_eq!(most(64, 0, &others), 2);
        assert_eq!(most(64, 0, &[0; 200]), 1);
    }

    proptest! {
        /// Whatever order runs ask in, none of those that were there from the start goes without.
        #[test]
        fn each_run_gets_its_reserve(order in proptest::collection::vec(0_usize..6, 0..2000)) {
            const ROOM: usize = 160;
            let mut held = [0_usize; 6];
            let others = |held: &[usize; 6], run: usize| -> Vec<usize> {
                held.iter().enumerate().filter(|(other, _)| *other != run).map(|(_, held)| *held).collect()
            };
            for run in order {
                if may_open(ROOM, held[run], &others(&held, run)) {
                    held[run] += 1;
                }
                prop_assert!(held.iter().sum::<usize>() <= ROOM);
            }
            for run in 0..held.len() {
                held[run] = most(ROOM, held[run], &others(&held, run));
                prop_assert!(held[run] >= RESERVED_ASKS, "{held:?}");
            }
        }
    }
}
