//! The connections that all runs of one token have together.
//!
//! It must never grow with the tokens that once had a connection: what no container uses is forgotten.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::Semaphore;

/// The permits of each token that has containers.
pub(super) struct TokenPermits {
    each: usize,
    by_token: Mutex<HashMap<String, Weak<Semaphore>>>,
}

impl TokenPermits {
    /// So many connections for each token.
    pub(super) fn new(each: usize) -> Self {
        Self { each, by_token: Mutex::default() }
    }

    /// The permits of this token, which all its containers share.
    pub(super) fn of(&self, token: &str) -> Arc<Semaphore> {
        // No code that can panic runs under this lock, so even a poisoned one holds valid data.
        let mut by_token = self.by_token.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = by_token.get(token).and_then(Weak::upgrade) {
            return known;
        }
        by_token.retain(|_, permits| permits.strong_count() > 0);
        let permits = Arc::new(Semaphore::new(self.each));
        by_token.insert(token.to_owned(), Arc::downgrade(&permits));
        permits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn containers_of_a_token_share_and_what_nobody_uses_is_forgotten() {
        let all = TokenPermits::new(3);
        let (one, same, other) = (all.of("a"), all.of("a"), all.of("b"));
        let _held = one.clone().try_acquire_owned().unwrap();
        assert_eq!((same.available_permits(), other.available_permits()), (2, 3));
        drop(other);
        let _third = all.of("c");
        let mut kept: Vec<_> = all.by_token.lock().unwrap().keys().cloned().collect();
        kept.sort();
        assert_eq!(kept, ["a", "c"]);
    }
}
