//! Counts over time, for limits: requests in a second, bytes in an hour. Pure: time is an argument.
//!
//! They must never let more pass in a long time than the limit allows, nor owe anybody anything from before.

use std::time::{Duration, Instant};

/// A rate: so many in a second over time, and as many as in one second, at least one, at once.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Rate {
    /// When what was taken is paid for.
    paid: Option<Instant>,
}

impl Rate {
    /// Takes one.
    ///
    /// # Errors
    /// After how long there is one again.
    pub(super) fn take(&mut self, per_second: f64, now: Instant) -> Result<(), Duration> {
        let each = Duration::from_secs_f64(1.0 / per_second);
        let at_once = each.max(Duration::from_secs(1));
        let next = self.paid.map_or(now, |paid| paid.max(now)) + each;
        let over = next.saturating_duration_since(now + at_once);
        if over.is_zero() {
            self.paid = Some(next);
            return Ok(());
        }
        Err(over)
    }
}

/// The minutes of an hour.
const MINUTES: usize = 60;
const MINUTE: Duration = Duration::from_secs(60);

/// How much there was in the last hour, minute by minute.
#[derive(Debug, Clone)]
pub(super) struct Hour {
    minutes: [u64; MINUTES],
    sum: u64,
    /// The beginning of the latest minute, and its place.
    latest: Option<(Instant, usize)>,
}

/// How much of an hour counts, and for how long still.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct HourLeft {
    pub(super) used: u64,
    /// After how long some of it is forgotten.
    pub(super) frees_in: Duration,
    /// After how long all of it is.
    pub(super) ends_in: Duration,
}

impl Default for Hour {
    fn default() -> Self {
        Self { minutes: [0; MINUTES], sum: 0, latest: None }
    }
}

impl Hour {
    fn pass(&mut self, now: Instant) -> usize {
        let Some((begun, at)) = self.latest else {
            self.latest = Some((now, 0));
            return 0;
        };
        let passed = now.saturating_duration_since(begun).as_secs() / MINUTE.as_secs();
        if passed == 0 {
            return at;
        }
        let steps = usize::try_from(passed).unwrap_or(MINUTES).min(MINUTES);
        for step in 1..=steps {
            let minute = &mut self.minutes[(at + step) % MINUTES];
            self.sum -= std::mem::take(minute);
        }
        let at = (at + steps) % MINUTES;
        let whole = u32::try_from(passed).unwrap_or(u32::MAX);
        self.latest = Some((begun + MINUTE * whole, at));
        at
    }

    /// How much there was.
    pub(super) fn used(&mut self, now: Instant) -> u64 {
        self.pass(now);
        self.sum
    }

    /// Adds some.
    ///
    /// # Errors
    /// The hour would have more than `most`; and after how long some of it is forgotten.
    pub(super) fn add(&mut self, more: u64, most: Option<u64>, now: Instant) -> Result<(), Duration> {
        let at = self.pass(now);
        if most.is_some_and(|most| self.sum.saturating_add(more) > most) {
            return Err(self.next_free(at, now));
        }
        self.minutes[at] = self.minutes[at].saturating_add(more);
        self.sum = self.minutes.iter().fold(0, |sum, minute| sum.saturating_add(*minute));
        Ok(())
    }

    /// How much there was, after how long some of it is forgotten, and after how long all of it; `None` if
    /// there was nothing.
    pub(super) fn left(&mut self, now: Instant) -> Option<HourLeft> {
        let at = self.pass(now);
        let newest = (1..=MINUTES).rev().find(|step| self.minutes[(at + step) % MINUTES] > 0)?;
        Some(HourLeft { used: self.sum, frees_in: self.next_free(at, now), ends_in: self.due(newest, now) })
    }

    /// After how long the oldest minute with anything in it is forgotten.
    fn next_free(&self, at: usize, now: Instant) -> Duration {
        let oldest = (1..=MINUTES).find(|step| self.minutes[(at + step) % MINUTES] > 0).unwrap_or(1);
        self.due(oldest, now)
    }

    /// After how long the minute is forgotten that is so many steps after the latest one in the ring.
    fn due(&self, step: usize, now: Instant) -> Duration {
        let begun = self.latest.map_or(now, |(begun, _)| begun);
        let due = begun + MINUTE * u32::try_from(step).unwrap_or(1);
        due.saturating_duration_since(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_holds_over_time_and_lets_a_second_s_worth_come_at_once() {
        let (mut rate, start) = (Rate::default(), Instant::now());
        let at_once = (0..50).filter(|_| rate.take(10.0, start).is_ok()).count();
        assert_eq!(at_once, 10);
        assert_eq!(rate.take(10.0, start), Err(Duration::from_millis(100)));
        assert_eq!(rate.take(10.0, start + Duration::from_millis(100)), Ok(()));
        let taken =
            (0..10_000).filter(|ms| rate.take(10.0, start + Duration::from_millis(*ms)).is_ok()).count();
        assert!((98..=101).contains(&taken), "{taken}");
        let mut slow = Rate::default();
        assert_eq!(slow.take(0.1, start), Ok(()));
        assert_eq!(
            slow.take(0.1, start),
            Err(Duration::from_secs(10)),
            "less than one a second is one at once"
        );
    }

    #[test]
    fn an_hour_forgets_minute_by_minute() {
        let (mut hour, start) = (Hour::default(), Instant::now());
        let at = |minutes: u64| start + Duration::from_secs(60 * minutes);
        assert_eq!(hour.add(60, Some(100), at(0)), Ok(()));
        assert_eq!(hour.add(40, Some(100), at(30)), Ok(()));
        assert_eq!(hour.add(1, Some(100), at(30)), Err(Duration::from_secs(30 * 60)));
        assert_eq!(
            (hour.used(at(59)), hour.used(at(60)), hour.used(at(89)), hour.used(at(90))),
            (100, 40, 40, 0)
        );
        assert_eq!(hour.left(at(90)), None);
        assert_eq!(hour.add(100, Some(100), at(1000)), Ok(()));
        assert_eq!(hour.add(7, None, at(1030)), Ok(()));
        let (frees_in, ends_in) = (Duration::from_secs(20 * 60), Duration::from_secs(50 * 60));
        assert_eq!(hour.left(at(1040)), Some(HourLeft { used: 107, frees_in, ends_in }));
        let (frees_in, ends_in) = (Duration::from_secs(1), Duration::from_secs(30 * 60 + 1));
        let late = at(1060) - Duration::from_secs(1);
        assert_eq!(hour.left(late), Some(HourLeft { used: 107, frees_in, ends_in }));
        let ends_in = Duration::from_secs(30 * 60);
        assert_eq!(hour.left(at(1060)), Some(HourLeft { used: 7, frees_in: ends_in, ends_in }));
        assert_eq!(hour.used(at(100_000)), 0);
        assert_eq!(hour.add(7, None, at(100_000)), Ok(()));
        assert_eq!(hour.used(at(100_000)), 7);
    }
}
