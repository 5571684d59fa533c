//! Which connection a statement takes, and which connections are open: one at rest, more while statements
//! wait for each other, and again one a while later. Pure: the time comes in as an argument.
//!
//! ```text
//!  statement ─► is one open and free? ─ yes ─► that one
//!                    └ no ─► may another be opened? ─ yes ─► that one
//!                                   └ no ─► the one where the fewest wait
//! ```
//!
//! It must never close the first one, nor one in which a statement waits.

use std::time::Duration;

/// The most connections beside that of the lease.
pub(crate) const MOST: usize = 4;
/// A connection beside the first that had nothing to do for this long is closed; one that could not be opened
/// is not tried again for as long: the server may have no more.
const IDLE: Duration = Duration::from_secs(30);

#[derive(Debug, Clone, Copy, Default)]
struct Line {
    is_open: bool,
    /// Statements that were sent and have no answer.
    waiting: usize,
    /// When the last answer came.
    used: Duration,
    /// Not opened before.
    shut_until: Duration,
}

/// The connections that all statements share but those of the lease.
#[derive(Debug, Default)]
pub(crate) struct Lines([Line; MOST]);

impl Lines {
    /// The connection that a statement takes; it is to be opened if it is not open.
    pub(crate) fn take(&mut self, now: Duration) -> usize {
        let may_open = |(at, line): (usize, &Line)| !line.is_open && (at == 0 || line.shut_until <= now);
        let free = self.0.iter().position(|line| line.is_open && line.waiting == 0);
        let closed = || self.0.iter().enumerate().position(may_open);
        let fewest = || {
            let open = self.0.iter().enumerate().filter(|(at, line)| *at == 0 || line.is_open);
            open.min_by_key(|(_, line)| line.waiting).map(|(at, _)| at)
        };
        let at = free.or_else(closed).or_else(fewest).unwrap_or(0);
        if let Some(line) = self.0.get_mut(at) {
            line.is_open = true;
            line.waiting += 1;
        }
        at
    }

    /// A statement has its answer, or gave up waiting for it.
    pub(crate) fn done(&mut self, at: usize, now: Duration) {
        if let Some(line) = self.0.get_mut(at) {
            line.waiting = line.waiting.saturating_sub(1);
            line.used = now;
        }
    }

    /// A connection could not be opened. Whether the statement is to take another one: that which is open
    /// always.
    pub(crate) fn failed(&mut self, at: usize, now: Duration) -> bool {
        if let Some(line) = self.0.get_mut(at) {
            line.is_open = false;
        }
        for line in self.0.iter_mut().filter(|line| !line.is_open) {
            line.shut_until = now + IDLE;
        }
        at > 0
    }

    /// Those that are to be closed now.
    pub(crate) fn idle(&mut self, now: Duration) -> Vec<usize> {
        let is_idle =
            |line: &Line| line.is_open && line.waiting == 0 && now.saturating_sub(line.used) >= IDLE;
        let idle: Vec<usize> = (1..MOST).filter(|at| self.0.get(*at).is_some_and(is_idle)).collect();
        for at in &idle {
            if let Some(line) = self.0.get_mut(*at) {
                line.is_open = false;
            }
        }
        idle
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Duration = Duration::ZERO;

    #[test]
    fn one_connection_is_enough_for_statements_one_after_another() {
        let mut lines = Lines::default();
        for _ in 0..10 {
            assert_eq!(lines.take(START), 0);
            lines.done(0, START);
        }
    }

    #[test]
    fn statements_that_would_wait_for_each_other_open_more_up_to_a_bound() {
        let mut lines = Lines::default();
        let taken: Vec<usize> = (0..6).map(|_| lines.take(START)).collect();
        assert_eq!(taken, [0, 1, 2, 3, 0, 1], "then they share");
        lines.done(2, START);
        assert_eq!(lines.take(START), 2, "the free one");
    }

    #[test]
    fn what_is_not_needed_for_a_while_is_closed_but_for_the_first() {
        let mut lines = Lines::default();
        for at in 0..3 {
            assert_eq!(lines.take(START), at);
        }
        lines.done(0, START);
        lines.done(1, START);
        assert_eq!(lines.idle(IDLE - Duration::from_millis(1)), [0; 0]);
        assert_eq!(lines.idle(IDLE), [1], "the first stays, and a statement waits in the third");
        assert_eq!(lines.idle(IDLE), [0; 0], "it is closed");
        lines.done(2, IDLE);
        assert_eq!(lines.idle(2 * IDLE), [2]);
    }

    #[test]
    fn a_server_without_room_is_asked_for_no_more_for_a_while() {
        let mut lines = Lines::default();
        assert_eq!((lines.take(START), lines.take(START)), (0, 1));
        assert!(lines.failed(1, START), "the first is there");
        lines.done(1, START);
        assert_eq!(lines.take(START), 0);
        assert_eq!(lines.take(IDLE), 1);
    }

    #[test]
    fn the_first_is_tried_every_time() {
        let mut lines = Lines::default();
        for _ in 0..3 {
            assert_eq!(lines.take(START), 0);
            assert!(!lines.failed(0, START), "there is no other");
            lines.done(0, START);
        }
    }
}
