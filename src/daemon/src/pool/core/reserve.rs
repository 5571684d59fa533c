//! Which idle members of a runner are kept for other tenants than the one that asks.
//!
//! A container takes a part of a second to start, and much longer while the processors are short. A tenant
//! that makes many sessions would take every one that stands idle, and one that makes a session now and then
//! would always wait. So half of them are kept from whoever took those that are missing now, until they are
//! replaced, and from a tenant that has spent its CPU credits.
//!
//! It must never keep a member for nobody, nor from the same waiter twice.

use std::collections::{BTreeSet, VecDeque};

use crate::tenants::{TenantId, TenantShare};

/// What is missing of the idle members of one runner, and who took it.
#[derive(Debug, Default)]
pub(super) struct Reserve {
    /// The tenants that took a member that is not replaced yet; the first one is replaced first.
    taken: VecDeque<TenantShare>,
}

impl Reserve {
    /// A tenant takes an idle member.
    pub(super) fn take(&mut self, tenant: TenantShare) {
        self.taken.push_back(tenant);
    }

    /// Another member stands idle.
    pub(super) fn replace(&mut self) {
        self.taken.pop_front();
    }

    /// The tenants that owe CPU credits, of those that took what is missing and those that wait.
    pub(super) fn owing(&self, waiting: impl Iterator<Item = TenantShare>) -> BTreeSet<TenantId> {
        self.taken.iter().copied().chain(waiting).filter(|one| one.owes).map(|one| one.id).collect()
    }

    /// Whether all of so many idle members are kept from this tenant. The runner should have `full` of them.
    /// There are others for whom they may be, unless they are `owing`.
    pub(super) fn keeps(
        &self,
        (idle, full): (usize, usize),
        tenant: TenantShare,
        owing: &BTreeSet<TenantId>,
    ) -> bool {
        let is_behind = tenant.owes || self.taken.iter().any(|one| one.id == tenant.id);
        if tenant.is_operator || !is_behind {
            return false;
        }
        let others = tenant.tenants.saturating_sub(1);
        let others = others.saturating_sub(owing.iter().filter(|id| **id != tenant.id).count());
        idle <= (full / 2).min(others)
    }
}
