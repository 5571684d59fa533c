//! How long a lease lasts, and how much longer a takeover waits. It must never let a takeover begin while the
//! earlier owner can still hold its lease, whatever the rates of the two clocks are within [`DRIFT`].

use std::time::Duration;

/// By how much the rates of two clocks may differ: one part in so many. Quartz is a hundred times better.
pub const DRIFT: u32 = 50;

/// The times that all nodes of a cluster agree on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    /// How long a node may acknowledge after it asked for its lease, by its own clock.
    pub lease: Duration,
    /// How often a node renews its lease.
    pub renew: Duration,
    /// How long after the last renewal another node may take a session over, by the database's clock.
    pub takeover: Duration,
    /// How long an object that no manifest names is kept, by the clock of S3.
    pub grace: Duration,
}

impl Terms {
    /// The terms that follow from the length of a lease, and from the time in which a node ends its
    /// containers when its lease has run out.
    #[must_use]
    pub fn new(lease: Duration, ending: Duration) -> Terms {
        let longest = lease + ending;
        Terms { lease, renew: lease / 3, takeover: longest + longest / DRIFT, grace: lease * 720 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_takeover_waits_longer_than_the_slowest_owner() {
        let ending = Duration::from_secs(1);
        let terms = Terms::new(Duration::from_secs(5), ending);
        // An owner whose clock is slow by all that is allowed.
        let held = (terms.lease + ending) * (DRIFT + 1) / DRIFT;
        assert!(terms.takeover >= held, "{terms:?} {held:?}");
        assert!(terms.renew * 2 < terms.lease, "one renewal may fail");
    }
}
