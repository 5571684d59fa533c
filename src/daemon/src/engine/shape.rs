//! Helpers to read the engine's JSON. They must never decide anything.

use serde::{Deserialize, Deserializer};

/// Reads Go's `null` for an empty list or map as an empty one.
pub(super) fn null_is_empty<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Option::<T>::deserialize(deserializer).map(Option::unwrap_or_default)
}
