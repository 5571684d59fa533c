//! The fetches that wait for their turn or are under way, and whose they are. Pure: no clock, no I/O.
//!
//! ```text
//!           admit             begin
//!  (none) ──────► waiting ───────────► under way ─► ended
//!                    └─ nobody waits for it ─► given up
//! ```
//!
//! One tenant must never hold all places: the calls of the others would be refused as long as its fetches
//! wait.

use std::collections::HashMap;

use super::list::LayerKey;

/// The bounds of the fetches that are under way or wait for their turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct QueueBounds {
    /// Of all tenants together.
    pub(super) all: usize,
    /// Of one tenant.
    pub(super) of_tenant: usize,
}

/// Why a fetch is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum QueueRefusal {
    /// The places of this tenant are taken.
    #[error(
        "{0} other fetches of packages that you asked for are under way, the most for one caller; wait until \
         one of them has ended, and ask for all packages of a program in one list"
    )]
    Tenant(usize),
    /// All places are taken.
    #[error("{0} other fetches of packages are under way; try again later")]
    All(usize),
}

/// A fetch, with what those who wait for it hear of.
#[derive(Debug)]
struct Queued<N> {
    tenant: String,
    news: N,
}

/// The fetches of one daemon. `N` is the way to those who wait for one.
#[derive(Debug)]
pub(super) struct FetchQueue<N> {
    bounds: QueueBounds,
    fetches: HashMap<LayerKey, Queued<N>>,
}

impl<N> FetchQueue<N> {
    pub(super) fn new(bounds: QueueBounds) -> Self {
        Self { bounds, fetches: HashMap::new() }
    }

    /// The way to those who wait for this fetch, if there is one: to join it takes no place.
    pub(super) fn news(&self, key: &LayerKey) -> Option<&N> {
        self.fetches.get(key).map(|queued| &queued.news)
    }

    /// Whether this tenant may ask for one more fetch.
    pub(super) fn has_room(&self, tenant: &str) -> Result<(), QueueRefusal> {
        let QueueBounds { all, of_tenant } = self.bounds;
        if self.fetches.values().filter(|queued| queued.tenant == tenant).count() >= of_tenant {
            return Err(QueueRefusal::Tenant(of_tenant));
        }
        if self.fetches.len() >= all {
            return Err(QueueRefusal::All(all));
        }
        Ok(())
    }

    /// Takes a fetch in, on behalf of the tenant who asked for it first.
    pub(super) fn admit(&mut self, key: LayerKey, tenant: &str, news: N) {
        self.fetches.insert(key, Queued { tenant: tenant.to_owned(), news });
    }

    /// A fetch has ended, well or not.
    pub(super) fn ended(&mut self, key: &LayerKey) {
        self.fetches.remove(key);
    }

    /// Takes a fetch out whose turn has not come, if `has_waiters` says that nobody waits for it any more.
    /// True if it is out: it must not begin.
    pub(super) fn give_up(&mut self, key: &LayerKey, has_waiters: impl FnOnce(&N) -> bool) -> bool {
        let is_unwanted = self.news(key).is_some_and(|news| !has_waiters(news));
        if is_unwanted {
            self.fetches.remove(key);
        }
        is_unwanted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue() -> FetchQueue<u32> {
        FetchQueue::new(QueueBounds { all: 5, of_tenant: 2 })
    }

    #[test]
    fn one_tenant_never_holds_the_places_of_the_others() {
        let mut queue = queue();
        for key in [1, 2] {
            assert_eq!(queue.has_room("ann"), Ok(()));
            queue.admit([key; 32], "ann", 0);
        }
        let refusal = queue.has_room("ann").unwrap_err();
        assert_eq!(refusal, QueueRefusal::Tenant(2));
        assert!(refusal.to_string().contains("in one list"), "{refusal}");
        for (key, tenant) in [(3, "bob"), (4, "bob"), (5, "eve")] {
            assert_eq!(queue.has_room(tenant), Ok(()), "{tenant}");
            queue.admit([key; 32], tenant, 0);
        }
        assert_eq!(queue.has_room("eve"), Err(QueueRefusal::All(5)));
        // A place is free when its fetch has ended.
        queue.ended(&[1; 32]);
        assert_eq!((queue.has_room("ann"), queue.has_room("bob")), (Ok(()), Err(QueueRefusal::Tenant(2))));
    }

    #[test]
    fn a_fetch_that_nobody_waits_for_is_given_up_and_its_place_is_free() {
        let mut queue = queue();
        queue.admit([1; 32], "ann", 1);
        queue.admit([2; 32], "ann", 0);
        let has_waiters = |waiters: &u32| *waiters > 0;
        assert!(!queue.give_up(&[1; 32], has_waiters), "one waits");
        assert!(queue.give_up(&[2; 32], has_waiters));
        assert_eq!((queue.news(&[1; 32]), queue.news(&[2; 32])), (Some(&1), None));
        assert_eq!(queue.has_room("ann"), Ok(()));
        // One that has ended meanwhile is no longer there to be given up.
        queue.ended(&[1; 32]);
        assert!(!queue.give_up(&[1; 32], |_| false));
    }
}
