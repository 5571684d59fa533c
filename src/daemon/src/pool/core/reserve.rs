//! Which tenants get none of the last idle members of a runner, because these are kept for the others.
//!
//! A container starts in a part of a second, or in seconds while the processors are short. A tenant that
//! makes many sessions would take all that stand idle, and a tenant that makes a session now and then would
//! always wait for a start. So half of the idle members are kept from two kinds of tenants: one that owes CPU
//! credits, and one that took more of the missing members than another tenant did.
//!
//! It must never keep a member from everybody: the tenant that owes nothing and took the fewest may have it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::tenants::{TenantId, TenantShare};

/// What is missing of the idle members of one runner, and who took it.
#[derive(Debug, Default)]
pub(super) struct Reserve {
    /// The tenants that took a member that was not replaced yet, the first one first.
    taken: VecDeque<TenantShare>,
}

/// From whom the idle members of a runner are kept at one moment.
#[derive(Debug, Default)]
pub(super) struct Kept {
    /// So many are idle, if they can be kept from anybody.
    idle: Option<usize>,
    /// How many of the missing ones each tenant took.
    taken: BTreeMap<TenantId, usize>,
    /// Who owes CPU credits, among the tenants that took a missing member or wait for one.
    owing: BTreeSet<TenantId>,
}

impl Reserve {
    /// A tenant takes an idle member.
    pub(super) fn take(&mut self, tenant: TenantShare) {
        self.taken.push_back(tenant);
    }

    /// So many members are missing now. The ones that were taken first have been replaced by others.
    pub(super) fn missing(&mut self, count: usize) {
        let replaced = self.taken.len().saturating_sub(count);
        self.taken.drain(..replaced);
    }

    /// What this tenant owes is known anew.
    pub(super) fn note(&mut self, tenant: TenantShare) {
        self.taken.iter_mut().filter(|one| one.id == tenant.id).for_each(|one| one.owes = tenant.owes);
    }

    /// From whom so many idle members are kept, of a runner that should have `target` of them and for which
    /// these tenants wait.
    pub(super) fn kept(
        &self,
        idle: usize,
        target: usize,
        waiting: impl Iterator<Item = TenantShare>,
    ) -> Kept {
        if idle > target / 2 {
            return Kept::default();
        }
        let mut kept = Kept { idle: Some(idle), ..Kept::default() };
        for tenant in &self.taken {
            *kept.taken.entry(tenant.id).or_default() += 1;
        }
        let owing = self.taken.iter().copied().chain(waiting).filter(|tenant| tenant.owes);
        kept.owing = owing.map(|tenant| tenant.id).collect();
        kept
    }
}

impl Kept {
    /// Whether all of them are kept from this tenant.
    pub(super) fn from(&self, tenant: TenantShare) -> bool {
        let Some(idle) = self.idle.filter(|_| !tenant.is_operator) else { return false };
        let took = self.taken.get(&tenant.id).copied().unwrap_or_default();
        if !tenant.owes && took == 0 {
            return false;
        }
        // All others may come for one, but for those of whom it is known that it would be kept from them.
        let owing = self.owing.iter().filter(|id| **id != tenant.id).count();
        let comes_after = |(id, count): &(&TenantId, &usize)| {
            **id != tenant.id && !self.owing.contains(id) && !tenant.owes && **count >= took
        };
        let others = tenant.tenants.saturating_sub(1 + owing + self.taken.iter().filter(comes_after).count());
        idle <= others
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenant(id: u32) -> TenantShare {
        TenantShare { id: TenantId(id), tenants: 3, ..TenantShare::default() }
    }

    fn after(taken: &[u32], missing: usize) -> Reserve {
        let mut reserve = Reserve::default();
        taken.iter().for_each(|id| reserve.take(tenant(*id)));
        reserve.missing(missing);
        reserve
    }

    /// From which of three tenants one idle member of four is kept.
    fn kept(reserve: &Reserve) -> Vec<u32> {
        let kept = reserve.kept(1, 4, [].into_iter());
        (0..3).filter(|id| kept.from(tenant(*id))).collect()
    }

    #[test]
    fn who_took_more_than_another_comes_after_it() {
        assert!(kept(&after(&[], 3)).is_empty());
        assert_eq!(kept(&after(&[0], 3)), [0]);
        assert_eq!(kept(&after(&[0, 1, 0], 3)), [0, 1]);
        assert!(kept(&after(&[0, 1, 2], 3)).is_empty(), "all are even");
        assert_eq!(kept(&after(&[0, 1, 2, 2], 4)), [2]);
    }

    #[test]
    fn only_what_is_missing_counts_and_the_first_taken_is_replaced_first() {
        assert_eq!(kept(&after(&[0, 1], 3)), [0, 1], "another one is missing: it died");
        assert_eq!(kept(&after(&[0, 1], 1)), [1]);
        assert!(kept(&after(&[0, 1], 0)).is_empty());
        let reserve = after(&[0, 0, 0], 3);
        let from = |idle, target| reserve.kept(idle, target, [].into_iter()).from(tenant(0));
        assert!(
            from(1, 2) && from(2, 4) && !from(2, 3) && !from(3, 6),
            "half, and one for each other tenant"
        );
    }

    #[test]
    fn who_owes_comes_after_all_and_nothing_is_kept_for_it() {
        let owes = |id| TenantShare { owes: true, ..tenant(id) };
        let reserve = after(&[1, 1], 3);
        assert!(reserve.kept(2, 4, [].into_iter()).from(owes(0)), "though it took nothing");
        assert!(reserve.kept(1, 4, [owes(0)].into_iter()).from(tenant(1)), "there is a third one");
        assert!(!reserve.kept(2, 4, [owes(0)].into_iter()).from(tenant(1)));
        let all = [owes(0), owes(1), owes(2)];
        assert!(!reserve.kept(1, 4, all.into_iter()).from(owes(1)), "all owe");
        assert!(!reserve.kept(1, 4, all.into_iter()).from(TenantShare { is_operator: true, ..owes(1) }));
        let mut noted = after(&[1, 1, 2], 3);
        noted.note(owes(2));
        assert!(!noted.kept(2, 4, [].into_iter()).from(tenant(1)));
    }
}
