//! The connections that each owner has together, over all its sessions and both ways in.
//!
//! It must never grow with the owners that once had a connection: who has none is forgotten.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

type Counts = Arc<Mutex<BTreeMap<Arc<str>, usize>>>;

/// How many connections each owner has that has any.
#[derive(Debug, Default)]
pub(super) struct OwnerCounts(Counts);

/// A connection of an owner. Dropping it ends it.
#[derive(Debug)]
pub(super) struct OwnerPlace {
    counts: Counts,
    owner: Arc<str>,
}

impl OwnerCounts {
    /// One more connection of this owner, if it has fewer than `most`.
    pub(super) fn begin(&self, owner: &str, most: usize) -> Option<OwnerPlace> {
        let mut counts = locked(&self.0);
        let known = counts.get_key_value(owner).map(|(owner, count)| (owner.clone(), *count));
        let (owner, count) = known.unwrap_or_else(|| (Arc::from(owner), 0));
        if count >= most {
            return None;
        }
        counts.insert(owner.clone(), count + 1);
        Some(OwnerPlace { counts: self.0.clone(), owner })
    }
}

impl Drop for OwnerPlace {
    fn drop(&mut self) {
        let mut counts = locked(&self.counts);
        match counts.get_mut(&self.owner) {
            Some(count) if *count > 1 => *count -= 1,
            Some(_) | None => drop(counts.remove(&self.owner)),
        }
    }
}

fn locked(counts: &Counts) -> MutexGuard<'_, BTreeMap<Arc<str>, usize>> {
    // No code that can panic runs under this lock, so even a poisoned one holds valid data.
    counts.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_has_its_part_and_what_nobody_uses_is_forgotten() {
        let counts = OwnerCounts::default();
        let mut of_ann: Vec<_> = (0..3).filter_map(|_| counts.begin("ann", 3)).collect();
        assert_eq!(of_ann.len(), 3);
        assert!(counts.begin("ann", 3).is_none());
        assert!(counts.begin("bob", 3).is_some(), "another has its own part");
        drop(of_ann.pop());
        assert!(counts.begin("ann", 3).is_some(), "and a place that was left is free");
        assert!(counts.begin("ann", 2).is_none(), "a smaller part holds at once");
        drop(of_ann);
        assert!(locked(&counts.0).is_empty());
    }
}
