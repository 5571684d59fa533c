//! The part of something bounded that one tenant may hold at one time, while others have tokens too: three
//! quarters of it. Nobody queues round by round for such a thing, so this is what keeps some of it for the
//! others. An operator, and a tenant that is alone, may hold all of it.
//!
//! It must never let what one tenant holds keep all others out.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Semaphore;

use super::Tenants;

/// The parts of all tenants of one thing.
#[derive(Debug)]
pub struct TenantParts {
    /// What one tenant may hold.
    most: usize,
    /// One for each tenant that has ever held any: no more than an operator has named.
    parts: Mutex<BTreeMap<Arc<str>, Arc<Semaphore>>>,
}

impl TenantParts {
    /// Parts of a thing of which there is so much.
    #[must_use]
    pub fn of(all: usize) -> Self {
        Self { most: (all / 4 * 3).max(1), parts: Mutex::default() }
    }

    fn part(&self, owner: &str) -> Arc<Semaphore> {
        let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(part) = parts.get(owner) {
            return part.clone();
        }
        let part = Arc::new(Semaphore::new(self.most));
        parts.insert(Arc::from(owner), part.clone());
        part
    }
}

impl Tenants {
    /// The part that this tenant may hold; `None` if it may hold all.
    pub fn part(&self, owner: &str, parts: &TenantParts) -> Option<Arc<Semaphore>> {
        let book = self.book();
        let is_operator = book.tenant(owner).is_some_and(|tenant| tenant.terms.is_operator);
        (!is_operator && book.has_neighbours()).then(|| parts.part(owner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_tenant_holds_leaves_a_quarter_to_the_others() {
        let parts = TenantParts::of(8);
        let _held = parts.part("ann").try_acquire_many_owned(6).unwrap();
        assert!(parts.part("ann").try_acquire_owned().is_err());
        assert!(parts.part("bob").try_acquire_many_owned(6).is_ok(), "another has its own part");
        assert!(Tenants::default().part("ann", &parts).is_none(), "it is alone");
    }
}
