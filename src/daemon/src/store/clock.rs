//! The time of day by which kept things grow old.
//!
//! It must never follow a jump of the machine's clock: a jump would delete what is to be kept.

use std::time::{Duration, Instant, SystemTime};

/// The time of day as it was at the start, and what passed since: setting the machine's clock in between
/// moves nothing, so that no jump of it deletes a session or an execution.
#[derive(Debug)]
pub(crate) struct StoreClock {
    day: SystemTime,
    start: Instant,
}

impl StoreClock {
    /// A clock that is right now.
    pub(crate) fn new() -> Self {
        Self::at(SystemTime::now())
    }

    /// A clock that shows this time now.
    pub(crate) fn at(day: SystemTime) -> Self {
        Self { day, start: Instant::now() }
    }

    /// The time.
    pub(crate) fn now(&self) -> SystemTime {
        let passed: Duration = self.start.elapsed();
        self.day.checked_add(passed).unwrap_or(self.day)
    }

    /// How long ago something happened, whose time is known in milliseconds since the epoch; zero if that is
    /// still to come.
    pub(crate) fn since_ms(&self, then_ms: u64) -> Duration {
        let then = SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(then_ms));
        then.and_then(|then| self.now().duration_since(then).ok()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_passes_and_what_is_to_come_is_not_old() {
        let clock = StoreClock::at(SystemTime::UNIX_EPOCH + Duration::from_secs(100));
        let since = clock.since_ms(40_000);
        assert!(since >= Duration::from_secs(60) && since < Duration::from_secs(600), "{since:?}");
        assert_eq!(clock.since_ms(1_000_000), Duration::ZERO);
        assert_eq!(clock.since_ms(u64::MAX), Duration::ZERO);
    }
}
