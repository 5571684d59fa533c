//! What part of the permits each tenant has, and may have: all of them, divided by weight between the tenants
//! that have one or ask for one. It must never know sessions, nor time.

use std::collections::BTreeMap;

use super::permits::FOR_OPERATORS;
use crate::tenants::{TenantId, TenantShare};

/// Who has how many permits.
#[derive(Debug, Clone)]
pub(super) struct Parts {
    permits: usize,
    taken: usize,
    held: BTreeMap<TenantId, Held>,
}

/// The permits of one tenant.
#[derive(Debug, Clone)]
struct Held {
    tenant: TenantShare,
    count: usize,
    /// Whether one of its sessions is at work.
    works: bool,
}

fn weight(tenant: TenantShare) -> usize {
    tenant.weight.max(1) as usize
}

impl Parts {
    /// Of so many permits, each of these tenants has one; a tenant that has several comes several times. With
    /// each comes whether its session is at work.
    pub(super) fn new(permits: usize, held: impl IntoIterator<Item = (TenantShare, bool)>) -> Self {
        let mut parts = Self { permits, taken: 0, held: BTreeMap::new() };
        for (tenant, works) in held {
            parts.take(tenant).works |= works;
        }
        parts
    }

    /// This tenant has one more.
    fn take(&mut self, tenant: TenantShare) -> &mut Held {
        self.taken += 1;
        let held = self.held.entry(tenant.id).or_insert(Held { tenant, count: 0, works: false });
        held.count += 1;
        held
    }

    /// A call of this tenant gets one: it is at work.
    pub(super) fn give(&mut self, tenant: TenantShare) {
        self.take(tenant).works = true;
    }

    /// This tenant has one less.
    pub(super) fn lose(&mut self, tenant: TenantId) {
        let Some(held) = self.held.get_mut(&tenant) else { return };
        self.taken -= 1;
        held.count -= 1;
        if held.count == 0 {
            self.held.remove(&tenant);
        }
    }

    /// Permits of this tenant.
    pub(super) fn held(&self, tenant: TenantId) -> usize {
        self.held.get(&tenant).map_or(0, |held| held.count)
    }

    /// Whether this tenant has as many as its limit says.
    pub(super) fn is_full(&self, tenant: TenantShare) -> bool {
        tenant.sessions.is_some_and(|most| self.held(tenant.id) >= most)
    }

    /// Whether one more is within the part of this tenant.
    pub(super) fn has_room(&self, tenant: TenantShare) -> bool {
        let others = self.held.values().filter(|held| held.tenant.id != tenant.id);
        let all = weight(tenant) + others.map(|held| weight(held.tenant)).sum::<usize>();
        (self.held(tenant.id) + 1) * all <= self.permits * weight(tenant)
    }

    /// Whether the second tenant has more than the first would have with one more, each by its weight.
    pub(super) fn has_more(&self, tenant: TenantShare, other: TenantShare) -> bool {
        self.held(other.id) * weight(tenant) > (self.held(tenant.id) + 1) * weight(other)
    }

    /// Whether a permit is free that this tenant may have. Where there are several tenants, the last permit
    /// is kept for a tenant that has none. It is also kept for a tenant at work that has less than its part,
    /// if its own limit allows it one more.
    pub(super) fn may_have(&self, tenant: TenantShare) -> bool {
        if self.is_full(tenant) {
            return false;
        }
        if tenant.is_operator {
            return self.taken < self.permits + FOR_OPERATORS;
        }
        if self.taken + 1 != self.permits || self.permits == 1 {
            return self.taken < self.permits;
        }
        let is_kept_for = |Held { tenant: other, works, .. }: &Held| {
            let could_have = *works && !other.is_operator && !self.is_full(*other);
            other.id != tenant.id && could_have && self.has_room(*other)
        };
        !self.held.contains_key(&tenant.id)
            || self.held.len() >= tenant.tenants
                && (self.has_room(tenant) || !self.held.values().any(is_kept_for))
    }

    /// Whether this tenant may have the permit of a session of the other one, if that gives it up.
    pub(super) fn may_have_of(&self, tenant: TenantShare, owner: TenantId) -> bool {
        let mut without = self.clone();
        without.lose(owner);
        without.may_have(tenant)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenant(id: u32, weight: u32) -> TenantShare {
        TenantShare { id: TenantId(id), weight, tenants: 2, ..TenantShare::default() }
    }

    fn parts(permits: usize, held: &[(TenantShare, usize)]) -> Parts {
        let each = held.iter().flat_map(|(tenant, count)| std::iter::repeat_n((*tenant, true), *count));
        Parts::new(permits, each)
    }

    #[test]
    fn the_permits_are_divided_by_weight_between_those_who_have_or_ask_for_one() {
        let (a, b) = (tenant(1, 1), tenant(2, 3));
        let has_room = |of_a, of_b, tenant| parts(8, &[(a, of_a), (b, of_b)]).has_room(tenant);
        assert!(has_room(7, 0, a), "it is alone");
        assert!(!has_room(8, 0, a));
        assert!(has_room(1, 1, a) && !has_room(2, 1, a), "a quarter of 8");
        assert!(has_room(2, 5, b) && !has_room(2, 6, b), "the rest of them");
        assert!(has_room(8, 0, b), "it has none");
        assert!(parts(8, &[(a, 2), (b, 4)]).has_more(a, b) == (4 > 3 * 3));
        assert!(parts(8, &[(a, 3), (b, 2)]).has_more(b, a));
    }

    #[test]
    fn the_last_one_is_kept_for_whoever_could_have_it() {
        let (a, b) = (tenant(1, 1), tenant(2, 1));
        assert!(!parts(8, &[(a, 6), (b, 1)]).may_have(a) && parts(8, &[(a, 6), (b, 1)]).may_have(b));
        assert!(parts(8, &[(a, 5), (b, 1)]).may_have(a), "two are free");
        assert!(parts(8, &[(a, 3), (b, 4)]).may_have(a), "each has its part");
        let idle = Parts::new(8, parts(8, &[(a, 6)]).each().chain([(b, false)]));
        assert!(idle.may_have(a), "the other one is not at work");
        let full = TenantShare { sessions: Some(1), ..b };
        assert!(parts(8, &[(a, 6), (full, 1)]).may_have(a), "the other one may have no more");
        let operator = TenantShare { is_operator: true, ..b };
        assert!(parts(8, &[(a, 6), (operator, 1)]).may_have(a), "the other one has places of its own");
        let nobody_yet = parts(8, &[(a, 7)]);
        assert!(!nobody_yet.may_have(a) && nobody_yet.may_have(b));
        assert!(!parts(8, &[(a, 6), (b, 2)]).may_have_of(a, b.id), "the other one keeps its part");
        assert!(parts(8, &[(a, 6), (b, 2)]).may_have_of(b, a.id));
    }

    impl Parts {
        fn each(&self) -> impl Iterator<Item = (TenantShare, bool)> {
            let each = |held: &Held| std::iter::repeat_n((held.tenant, held.works), held.count);
            self.held.values().flat_map(each)
        }
    }
}
