//! The gate's rules, held against examples that read like sentences, and against an oracle that keeps its own
//! books.

mod ends;
mod examples;
mod oracle;
mod properties;
mod stand;
mod tenants;

use std::time::Duration;

use super::GateBounds;

/// The bounds of the examples: what `config.example.toml` says, with few permits and short queues.
fn usual() -> GateBounds {
    GateBounds {
        wait: Duration::from_secs(90),
        queue: 3,
        permits: 2,
        permit_queue: 3,
        evicts: true,
        ttl: Duration::from_secs(30 * 60),
        sweep: Duration::from_secs(5 * 60),
        expires: true,
    }
}
