//! Tests of the pool's rules: by examples that read like sentences, and by properties that an oracle checks.

mod examples;
mod fair;
mod gives_way;
mod oracle;
mod properties;
mod replace;
mod stand;

use std::time::Duration;

use super::{Backoff, RawPoolSettings};

/// The settings of the examples: what `config.example.toml` says.
fn usual() -> RawPoolSettings {
    RawPoolSettings {
        idle_per_runner: 2,
        max_starting: 2,
        idle_ttl: Duration::from_secs(30 * 60),
        queue: 64,
        wait: Duration::from_secs(30),
        uid_range: 20_000..=20_999,
        backoff: Backoff { first: Duration::from_millis(500), max: Duration::from_secs(30) },
        max_members: 64,
    }
}
