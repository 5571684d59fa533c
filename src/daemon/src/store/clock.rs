//! The time of day by which kept things grow old, and that by which tokens and links expire.
//!
//! The first must never follow a jump of the machine's clock: a jump would delete what is to be kept. The
//! second must never go back with it: what has expired would be valid again.

use std::sync::LazyLock;
use std::time::{Duration, Instant, SystemTime};

const DAY_SECONDS: u64 = 24 * 60 * 60;

/// The time of day as it was at the start, and what passed since: setting the machine's clock in between
/// moves nothing, so that no jump of it deletes a session or an execution.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StoreClock {
    day: SystemTime,
    start: Instant,
}

/// All parts of a process have the same clock, so that what one notes is not to come for another.
static PROCESS: LazyLock<StoreClock> = LazyLock::new(|| StoreClock::at(SystemTime::now()));

/// Today (UTC), in days since 1970.
pub(crate) fn utc_day() -> u64 {
    StoreClock::new().day()
}

impl StoreClock {
    /// The clock of this process. The first call sets it.
    pub(crate) fn new() -> Self {
        *PROCESS
    }

    /// A clock that shows this time now.
    pub(crate) fn at(day: SystemTime) -> Self {
        Self { day, start: Instant::now() }
    }

    /// The time.
    pub(crate) fn now(&self) -> SystemTime {
        self.day.checked_add(self.start.elapsed()).unwrap_or(self.day)
    }

    /// The time by which tokens and links expire: that of the machine, or this one if that was set back.
    /// A clock that was wrong at the start, as one without a battery, thus counts as soon as it is right.
    pub(crate) fn for_expiry(&self) -> SystemTime {
        self.now().max(SystemTime::now())
    }

    /// The day (UTC), in days since 1970.
    fn day(&self) -> u64 {
        let since = self.now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        since.as_secs() / DAY_SECONDS
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

    #[test]
    fn expiry_follows_the_later_of_two_clocks() {
        let year = Duration::from_secs(365 * 24 * 60 * 60);
        let machine = SystemTime::now();
        // The machine's clock was set back, or forward, since the start.
        let (ahead, behind) = (StoreClock::at(machine + year), StoreClock::at(machine - year));
        assert!(ahead.for_expiry() >= machine + year);
        let expiry = behind.for_expiry();
        assert!(expiry >= machine && expiry < machine + year, "{expiry:?}");
        assert!(behind.now() < machine);
    }
}
