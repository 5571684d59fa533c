//! The notation of values: sizes, durations, secrets. It must never print a secret.

use std::fmt;
use std::time::Duration;

use bytesize::ByteSize;
use serde::{Deserialize, Deserializer, de};

/// What a size accepts, for messages.
pub(super) const TAKES_SIZE: &str = "a size such as \"512MiB\" or \"100KB\", or a number of bytes";
/// What a duration accepts, for messages.
pub(super) const TAKES_DURATION: &str = "a duration such as \"30s\" or \"5m\"";

/// A string that is never shown: its `Debug` hides it.
#[derive(Clone)]
#[cfg_attr(test, derive(PartialEq))]
pub struct Secret(String);

impl Secret {
    /// A secret that was read from elsewhere.
    pub(super) fn of(text: &str) -> Self {
        Self(text.to_owned())
    }

    /// The secret itself.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[redacted]")
    }
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // Serde's own message would quote the value.
        String::deserialize(deserializer).map(Self).map_err(|_| de::Error::custom("takes a string"))
    }
}

/// A number of bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Size(pub(crate) u64);

impl Size {
    /// Parses a size; `None` for anything else. A size that 64 bits cannot hold becomes the largest number,
    /// which every bound refuses.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let unit = text.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.').trim_start();
        // bytesize takes a single letter as decimal; Docker, whose notation this is, as binary.
        if unit.len() == 1 && !unit.eq_ignore_ascii_case("b") {
            return format!("{text}iB").parse::<ByteSize>().ok().map(|size| Self(size.as_u64()));
        }
        text.parse::<ByteSize>().ok().map(|size| Self(size.as_u64()))
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = Size;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(TAKES_SIZE)
            }
            fn visit_i64<E: de::Error>(self, bytes: i64) -> Result<Size, E> {
                u64::try_from(bytes)
                    .map(Size)
                    .map_err(|_| E::custom(format!("is {bytes}, takes {TAKES_SIZE}")))
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Size, E> {
                Size::parse(text).ok_or_else(|| E::custom(format!("is {text:?}, takes {TAKES_SIZE}")))
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

/// A duration.
#[derive(Debug, Clone, Copy)]
pub(super) struct Time(pub(super) Duration);

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = Time;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(TAKES_DURATION)
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Time, E> {
                let time = humantime::parse_duration(text.trim());
                time.map(Time).map_err(|_| E::custom(format!("is {text:?}, takes {TAKES_DURATION}")))
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

/// A duration as an operator would write it.
pub(super) fn human(time: Duration) -> humantime::FormattedDuration {
    humantime::format_duration(time)
}
