//! What part of the permits each tenant has, and may have: all of them, divided by weight between the tenants
//! that have one or ask for one. It must never know sessions, nor time.

use std::collections::BTreeMap;

use crate::tenants::{TenantId, TenantShare};

/// Who has how many permits.
#[derive(Debug)]
pub(super) struct Parts {
    permits: u64,
    held: BTreeMap<TenantId, Held>,
}

#[derive(Debug)]
struct Held {
    count: u64,
    weight: u64,
}

impl Parts {
    /// Of so many permits, each of these tenants has one; a tenant that has several comes several times.
    pub(super) fn new(permits: usize, held: impl Iterator<Item = TenantShare>) -> Self {
        let mut parts = Self { permits: permits as u64, held: BTreeMap::new() };
        for tenant in held {
            let weight = u64::from(tenant.weight.max(1));
            parts.held.entry(tenant.id).or_insert(Held { count: 0, weight }).count += 1;
        }
        parts
    }

    /// Permits of this tenant.
    pub(super) fn held(&self, tenant: TenantId) -> u64 {
        self.held.get(&tenant).map_or(0, |held| held.count)
    }

    pub(super) fn has_none(&self, tenant: TenantId) -> bool {
        !self.held.contains_key(&tenant)
    }

    /// Tenants that have one.
    pub(super) fn holders(&self) -> usize {
        self.held.len()
    }

    /// Whether one more is within the part of this tenant.
    pub(super) fn has_room(&self, tenant: TenantShare) -> bool {
        let own = u64::from(tenant.weight.max(1));
        let others = self.held.iter().filter(|(id, _)| **id != tenant.id);
        let all = own + others.map(|(_, held)| held.weight).sum::<u64>();
        (self.held(tenant.id) + 1) * all <= self.permits * own
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenant(id: u32, weight: u32) -> TenantShare {
        TenantShare { id: TenantId(id), weight, ..TenantShare::default() }
    }

    #[test]
    fn the_permits_are_divided_by_weight_between_those_who_have_or_ask_for_one() {
        let (a, b) = (tenant(1, 1), tenant(2, 3));
        let parts = |of_a: usize, of_b: usize| {
            let held = std::iter::repeat_n(a, of_a).chain(std::iter::repeat_n(b, of_b));
            Parts::new(8, held)
        };
        assert!(parts(7, 0).has_room(a), "it is alone");
        assert!(!parts(8, 0).has_room(a));
        assert!(parts(1, 1).has_room(a) && !parts(2, 1).has_room(a), "a quarter of 8");
        assert!(parts(2, 5).has_room(b) && !parts(2, 6).has_room(b), "the rest of them");
        assert!(parts(8, 0).has_room(b), "it has none");
        let both = parts(2, 5);
        assert_eq!((both.holders(), both.held(a.id), both.has_none(TenantId(3))), (2, 2, true));
    }
}
