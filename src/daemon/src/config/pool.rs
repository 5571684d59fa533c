//! The limits of the pool, checked once. There must be no default here: those are in `config.example.toml`.

use std::ops::{Deref, RangeInclusive};
use std::time::Duration;

use super::value::human;

/// The longest duration that makes sense; it also keeps `Instant` arithmetic far from overflow.
const LONGEST: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// With a shorter life the pool would only start and destroy containers.
const SHORTEST_IDLE_TTL: Duration = Duration::from_secs(1);
/// Lower ids belong to accounts of images and hosts.
const LOWEST_UID: u32 = 1000;
/// Some file systems and tools take higher ids for negative numbers.
const HIGHEST_UID: u32 = i32::MAX as u32;

/// The limits as written. [`PoolSettings`] is the same, checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawPoolSettings {
    /// Armed containers kept for each runner when nobody waits; 0 starts one for each request.
    pub idle_per_runner: u32,
    /// Containers that may start at one time, on the whole engine.
    pub max_starting: u32,
    /// Age at which an idle container is removed and replaced.
    pub idle_ttl: Duration,
    /// Requests that may wait at one time, for all runners together; 0 serves only from idle containers.
    pub queue: u32,
    /// The longest time that a request waits.
    pub wait: Duration,
    /// The UIDs (and GIDs) for containers.
    pub uid_range: RangeInclusive<u32>,
    /// The pause after failed starts, and after failed removals.
    pub backoff: Backoff,
    /// Containers at one time: starting, idle, leased, and not yet known to be removed.
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

/// Limits that fit together: there is a UID for every container, no pause is empty, and a request can be
/// served.
///
/// It derefs to [`RawPoolSettings`]; only `try_from` makes it, and nothing changes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolSettings(RawPoolSettings);

impl Deref for PoolSettings {
    type Target = RawPoolSettings;

    fn deref(&self) -> &RawPoolSettings {
        &self.0
    }
}

impl PoolSettings {
    /// The same without idle containers: for a daemon with a single caller.
    #[must_use]
    pub fn without_idle(&self) -> Self {
        let queue = self.queue.max(1); // otherwise no request could be served
        Self(RawPoolSettings { idle_per_runner: 0, queue, ..self.0.clone() })
    }
}

/// Why the limits are refused. Each message is one line with the value and what would be right.
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
        /// The value.
        value: Duration,
        /// The least that is allowed.
        least: Duration,
        /// The most that is allowed.
        most: Duration,
    },
    /// A UID range that is empty or reaches beyond the ids that may be used.
    #[error("is {}-{}, must be a range within {LOWEST_UID}-{HIGHEST_UID}, lower end \
             first", range.start(), range.end())]
    UidRange {
        /// The value.
        range: RangeInclusive<u32>,
    },
    /// Fewer UIDs than containers.
    #[error("has {uids} ids for {max_members} containers, must have one for each")]
    TooFewUids {
        /// The size of the range.
        uids: u32,
        /// The containers that may exist at one time.
        max_members: u32,
    },
    /// No container is kept idle and no request may wait.
    #[error(
        "is 0 while no container is kept idle, so nothing could ever run; must be at least 1, or keep some \
         idle"
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
