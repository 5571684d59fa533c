//! The bounds that the pool keeps, checked once. Nothing here may carry a default: those stand in
//! `config.example.toml`.

use std::ops::{Deref, RangeInclusive};
use std::time::Duration;

/// The longest duration that makes sense here; also keeps `Instant` arithmetic far from its end.
const LONGEST: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// A shorter life would be spent starting and destroying.
const SHORTEST_IDLE_TTL: Duration = Duration::from_secs(1);
/// Below this are the accounts of images and hosts.
const LOWEST_UID: u32 = 1000;
/// Above this some file systems and tools take an id for a negative number.
const HIGHEST_UID: u32 = i32::MAX as u32;

/// The bounds as someone wrote them. [`PoolSettings`] is the same, checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawPoolSettings {
    /// Armed containers kept per runner when nobody waits; 0 starts one for each request.
    pub idle_per_runner: u32,
    /// Starts under way at one time on the whole engine.
    pub max_starting: u32,
    /// Age at which an idle container is destroyed and replaced.
    pub idle_ttl: Duration,
    /// Waiters at one time, all runners together; 0 serves only from what is idle.
    pub queue: u32,
    /// The longest that a waiter is kept.
    pub wait: Duration,
    /// The UIDs (and GIDs) to give to containers.
    pub uid_range: RangeInclusive<u32>,
    /// The pause after failed starts, and after failed removals.
    pub backoff: Backoff,
    /// Members at one time: starting, idle, leased and not yet known to be gone.
    pub max_members: u32,
}

/// A pause that doubles with each failure in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    /// The pause after the first failure.
    pub first: Duration,
    /// The longest pause.
    pub max: Duration,
}

impl Backoff {
    /// The pause after this many failures in a row.
    #[must_use]
    pub fn pause_after(self, failures: u32) -> Duration {
        let factor = 2_u32.saturating_pow(failures.saturating_sub(1));
        self.first.saturating_mul(factor).min(self.max)
    }
}

/// Bounds that hold together: there is a UID for every member, no pause is empty, and a request can be
/// served.
///
/// Read through to [`RawPoolSettings`]; made only by `try_from`, and never changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolSettings(RawPoolSettings);

impl Deref for PoolSettings {
    type Target = RawPoolSettings;

    fn deref(&self) -> &RawPoolSettings {
        &self.0
    }
}

impl PoolSettings {
    /// The same with nothing idle: for a daemon that has one caller.
    #[must_use]
    pub fn without_idle(&self) -> Self {
        let queue = self.queue.max(1); // or nobody could be served
        Self(RawPoolSettings { idle_per_runner: 0, queue, ..self.0.clone() })
    }
}

/// Why bounds cannot hold. Each message is one line that says the value and what would be right.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// A number that must be at least 1 is 0.
    #[error("is 0, must be at least 1")]
    Zero {
        /// The field of [`RawPoolSettings`].
        field: &'static str,
    },
    /// A duration out of its bounds.
    #[error("is {}, must be {} to {}", human(*value), human(*least), human(*most))]
    Duration {
        /// The field of [`RawPoolSettings`].
        field: &'static str,
        /// What it is.
        value: Duration,
        /// The least it may be.
        least: Duration,
        /// The most it may be.
        most: Duration,
    },
    /// A UID range that is empty or reaches outside of what may be given away.
    #[error("is {}-{}, must be a range within {LOWEST_UID}-{HIGHEST_UID}, lower end first", range.start(), range.end())]
    UidRange {
        /// What it is.
        range: RangeInclusive<u32>,
    },
    /// Fewer UIDs than members.
    #[error("has {uids} ids for {max_members} containers, must have one for each")]
    TooFewUids {
        /// The size of the range.
        uids: u32,
        /// The members that may live at one time.
        max_members: u32,
    },
    /// Nothing is kept idle and nobody may wait.
    #[error(
        "is 0 while nothing is kept idle, so nothing could ever run; must be at least 1, or keep some idle"
    )]
    NothingServed,
}

impl SettingsError {
    /// The field of [`RawPoolSettings`] to change.
    #[must_use]
    pub fn field(&self) -> &'static str {
        match self {
            Self::Zero { field } | Self::Duration { field, .. } => field,
            Self::UidRange { .. } | Self::TooFewUids { .. } => "uid_range",
            Self::NothingServed => "queue",
        }
    }
}

fn human(duration: Duration) -> humantime::FormattedDuration {
    humantime::format_duration(duration)
}

impl TryFrom<RawPoolSettings> for PoolSettings {
    type Error = SettingsError;

    fn try_from(raw: RawPoolSettings) -> Result<Self, SettingsError> {
        for (field, value) in [("max_starting", raw.max_starting), ("max_members", raw.max_members)] {
            if value == 0 {
                return Err(SettingsError::Zero { field });
            }
        }
        let shortest = Duration::from_millis(1);
        for (field, value, least, most) in [
            ("idle_ttl", raw.idle_ttl, SHORTEST_IDLE_TTL, LONGEST),
            ("wait", raw.wait, shortest, LONGEST),
            ("backoff.first", raw.backoff.first, shortest, LONGEST),
            ("backoff.max", raw.backoff.max, raw.backoff.first, LONGEST),
        ] {
            if !(least..=most).contains(&value) {
                return Err(SettingsError::Duration { field, value, least, most });
            }
        }
        let (low, high) = (*raw.uid_range.start(), *raw.uid_range.end());
        if low < LOWEST_UID || high > HIGHEST_UID || low > high {
            return Err(SettingsError::UidRange { range: raw.uid_range });
        }
        let uids = high - low + 1;
        if uids < raw.max_members {
            return Err(SettingsError::TooFewUids { uids, max_members: raw.max_members });
        }
        if raw.queue == 0 && raw.idle_per_runner == 0 {
            return Err(SettingsError::NothingServed);
        }
        Ok(Self(raw))
    }
}
