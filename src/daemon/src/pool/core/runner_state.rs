//! One runner: its waiters, what is kept from them, and its failed starts. It must never look at another
//! runner.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::reserve::{Kept, Reserve};
use super::{Backoff, StartFailure, Uid, WaiterId};
use crate::tenants::TenantShare;
use crate::tenants::fair::Mark;

/// After this many failed starts in a row, waiters are refused instead of kept waiting through the pause.
///
/// One failure may be chance and two may be the two starts that ran side by side; the third is a pattern.
pub const FAIL_FAST_AFTER: u32 = 3;

/// The longest pause after a start that the engine itself refused, or that took too long.
///
/// Nothing says when such an engine works again: it can answer pings, and keep its stream of events, while it
/// makes no containers. Only the next start shows it, and service must be back 5 s after the engine is.
const ENGINE_PAUSE: Duration = Duration::from_secs(2);

/// A request that waits for a container.
#[derive(Debug)]
pub(super) struct PoolWaiter {
    pub(super) id: WaiterId,
    pub(super) asked: Instant,
    pub(super) tenant: TenantShare,
    /// Its place in the order of service.
    pub(super) mark: Mark,
    /// Whether it was the first one, and another one was served before it, for whom an idle member was kept.
    /// It is not passed over twice.
    pub(super) was_passed_over: bool,
}

/// The failed starts since the last success.
#[derive(Debug)]
struct Failing {
    consecutive: u32,
    last: StartFailure,
    /// No attempt before this; `None` once it has passed.
    until: Option<Instant>,
}

/// One runner's queue and failures.
#[derive(Debug, Default)]
pub(super) struct RunnerState {
    /// Armed containers kept when nobody waits.
    pub(super) idle: u32,
    /// The UID of all its members, of which there is one at a time: it is a workspace that is kept. `None`:
    /// each member gets a free one.
    pub(super) uid: Option<Uid>,
    /// It serves the daemon itself, and gives way to callers.
    pub(super) gives_way: bool,
    /// In the order of service. Empty while a member of this runner is idle, but for those from whom it is
    /// kept.
    pub(super) waiters: VecDeque<PoolWaiter>,
    reserve: Reserve,
    failing: Option<Failing>,
    /// A member died soon after it was armed: no attempt before this. This pause is separate from `failing`,
    /// which the next successful start clears; otherwise a container that starts well and then dies would be
    /// restarted without end.
    crashed_until: Option<Instant>,
}

impl RunnerState {
    /// Forgets the pauses that are over.
    pub(super) fn pass_time(&mut self, now: Instant) {
        self.crashed_until.take_if(|until| *until <= now);
        if let Some(failing) = &mut self.failing {
            failing.until.take_if(|until| *until <= now);
        }
    }

    /// Takes out the waiters that have waited for `wait` or longer.
    pub(super) fn take_late(&mut self, wait: Duration, now: Instant) -> Vec<PoolWaiter> {
        let is_late = |w: &PoolWaiter| now.saturating_duration_since(w.asked) >= wait;
        if !self.waiters.iter().any(is_late) {
            return Vec::new();
        }
        let (late, kept): (Vec<_>, Vec<_>) = self.waiters.drain(..).partition(is_late);
        self.waiters = kept.into();
        late
    }

    /// Puts a waiter in its place.
    pub(super) fn wait(&mut self, waiter: PoolWaiter) {
        let at = self.waiters.partition_point(|other| other.mark <= waiter.mark);
        self.waiters.insert(at, waiter);
    }

    /// What this tenant owes is known anew: what its earlier calls said may be out of date.
    pub(super) fn note(&mut self, tenant: TenantShare) {
        let earlier = self.waiters.iter_mut().filter(|waiter| waiter.tenant.id == tenant.id);
        earlier.for_each(|waiter| waiter.tenant.owes = tenant.owes);
        self.reserve.note(tenant);
    }

    /// Takes this waiter out, to be served; so many members stay idle. If it is not the first one, that one
    /// was passed over.
    pub(super) fn serve(&mut self, at: usize, idle: usize) -> Option<PoolWaiter> {
        let waiter = self.waiters.remove(at)?;
        self.reserve.take(waiter.tenant);
        self.count(idle);
        if at > 0
            && let Some(first) = self.waiters.front_mut()
        {
            first.was_passed_over = true;
        }
        Some(waiter)
    }

    /// So many members are idle.
    pub(super) fn count(&mut self, idle: usize) {
        self.reserve.missing((self.idle as usize).saturating_sub(idle));
    }

    /// The place of the first waiter who may have one of so many idle members.
    pub(super) fn first_who_may(&self, idle: usize) -> Option<usize> {
        let kept = self.kept(idle);
        self.waiters.iter().position(|one| one.was_passed_over || !kept.from(one.tenant))
    }

    /// From whom so many idle members are kept.
    pub(super) fn kept(&self, idle: usize) -> Kept {
        self.reserve.kept(idle, self.idle as usize, self.waiters.iter().map(|waiter| waiter.tenant))
    }

    /// A start failed: the next one waits longer.
    pub(super) fn start_failed(&mut self, failure: StartFailure, backoff: Backoff, now: Instant) {
        let consecutive = self.consecutive_failures().saturating_add(1);
        let pause = backoff.pause_after(consecutive);
        let pause = if failure.is_of_engine() { pause.min(ENGINE_PAUSE) } else { pause };
        let until = Some(now + pause);
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

    /// Forgets all failures: the engine is up again, and they say nothing about it.
    pub(super) fn forgive(&mut self) {
        self.failing = None;
        self.crashed_until = None;
    }

    /// When the next start may be tried, if not at once.
    pub(super) fn paused_until(&self) -> Option<Instant> {
        self.failing.as_ref().and_then(|failing| failing.until).max(self.crashed_until)
    }

    /// Whether so many starts in a row have failed that a waiter could only wait for the end of the pause.
    pub(super) fn is_hopeless(&self) -> bool {
        self.failing.as_ref().is_some_and(|f| f.consecutive >= FAIL_FAST_AFTER && f.until.is_some())
    }

    /// The step at which the last start failed, unless one has succeeded since.
    pub(super) fn last_failure(&self) -> Option<StartFailure> {
        self.failing.as_ref().map(|failing| failing.last)
    }

    /// Failed starts since the last success.
    pub(super) fn consecutive_failures(&self) -> u32 {
        self.failing.as_ref().map_or(0, |failing| failing.consecutive)
    }
}
