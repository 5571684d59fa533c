//! Whether a node may still acknowledge and answer, by its own monotonic clock. It must never count from the
//! arrival of an answer: the database has counted since before.

use std::time::Instant;

use crate::terms::Terms;

/// The right of one node to serve its sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease {
    until: Instant,
}

impl Lease {
    /// A lease that the database has granted or renewed; `asked` is the moment before the request was sent.
    #[must_use]
    pub fn granted(asked: Instant, terms: &Terms) -> Lease {
        Lease { until: asked + terms.lease }
    }

    /// Whether the node may still serve.
    #[must_use]
    pub fn holds(&self, now: Instant) -> bool {
        now < self.until
    }

    /// When the node must have ended everything if the lease is not renewed before.
    #[must_use]
    pub fn until(&self) -> Instant {
        self.until
    }

    /// The later of two: answers to renewals may come in another order than the requests left.
    #[must_use]
    pub fn or_later(self, other: Lease) -> Lease {
        Lease { until: self.until.max(other.until) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn it_ends_a_lease_after_it_was_asked_for() {
        let (asked, terms) = (Instant::now(), Terms::new(Duration::from_secs(5), Duration::ZERO));
        let lease = Lease::granted(asked, &terms);
        assert!(lease.holds(asked + Duration::from_millis(4999)));
        assert!(!lease.holds(asked + Duration::from_secs(5)));
        let later = Lease::granted(asked + Duration::from_secs(1), &terms);
        assert_eq!(later.or_later(lease), later);
    }
}
