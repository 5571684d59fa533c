//! One runner: who waits for it, and how its starts have fared. It must never look at another runner.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::{Backoff, StartFailure, WaiterId};

/// After this many failed starts in a row, waiters are refused instead of kept waiting through the pause.
///
/// One failure may be chance and two may be the two starts that ran side by side; the third is a pattern.
pub const FAIL_FAST_AFTER: u32 = 3;

/// One who waits.
#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) id: WaiterId,
    pub(super) asked: Instant,
}

/// The failed starts since the last success.
#[derive(Debug)]
struct Failing {
    consecutive: u32,
    last: StartFailure,
    /// No attempt before this; `None` once it has passed.
    until: Option<Instant>,
}

/// One runner's queue and record.
#[derive(Debug, Default)]
pub(super) struct Runner {
    /// Oldest first. Never non-empty while a member of this runner is idle.
    pub(super) waiters: VecDeque<Waiter>,
    failing: Option<Failing>,
    /// A member died soon after it was armed: no attempt before this. A pause of its own, because the next
    /// start that succeeds ends the other one, and a container that starts well and then dies would be
    /// restarted without end.
    crashed_until: Option<Instant>,
}

impl Runner {
    /// Forgets the pauses that are over.
    pub(super) fn pass_time(&mut self, now: Instant) {
        self.crashed_until.take_if(|until| *until <= now);
        if let Some(failing) = &mut self.failing {
            failing.until.take_if(|until| *until <= now);
        }
    }

    /// Takes out those who have waited as long as anyone may.
    pub(super) fn take_late(&mut self, wait: Duration, now: Instant) -> impl Iterator<Item = Waiter> {
        let late = self.waiters.iter().take_while(|w| now.saturating_duration_since(w.asked) >= wait).count();
        self.waiters.drain(..late)
    }

    /// A start failed: the next one waits longer.
    pub(super) fn start_failed(&mut self, failure: StartFailure, backoff: Backoff, now: Instant) {
        let consecutive = self.consecutive_failures().saturating_add(1);
        let until = Some(now + backoff.pause_after(consecutive));
        self.failing = Some(Failing { consecutive, last: failure, until });
    }

    /// A start succeeded.
    pub(super) fn start_succeeded(&mut self) {
        self.failing = None;
    }

    /// An idle member died soon after it was armed.
    pub(super) fn crashed(&mut self, backoff: Backoff, now: Instant) {
        self.crashed_until = Some(now + backoff.first);
    }

    /// What failed before says nothing any more.
    pub(super) fn forgive(&mut self) {
        self.failing = None;
        self.crashed_until = None;
    }

    /// When the next start may be tried, if not at once.
    pub(super) fn paused_until(&self) -> Option<Instant> {
        self.failing.as_ref().and_then(|failing| failing.until).max(self.crashed_until)
    }

    /// Whether it makes sense to wait only for the end of a pause after a row of failures.
    pub(super) fn is_hopeless(&self) -> bool {
        self.failing.as_ref().is_some_and(|f| f.consecutive >= FAIL_FAST_AFTER && f.until.is_some())
    }

    /// What the last start died of, unless one has succeeded since.
    pub(super) fn last_failure(&self) -> Option<StartFailure> {
        self.failing.as_ref().map(|failing| failing.last)
    }

    /// Failed starts since the last success.
    pub(super) fn consecutive_failures(&self) -> u32 {
        self.failing.as_ref().map_or(0, |failing| failing.consecutive)
    }
}
