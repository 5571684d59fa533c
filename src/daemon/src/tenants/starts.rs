//! When runs begin while the processors are short: see [`super::ease`]. Pure: it reads no clock, holds no
//! lock and wakes nobody.
//!
//! A tenant begins no other run while it has as many as the ease allows, or as many as its part of the
//! processors, if that is more. Only runs count that began lately: one that waits for something for a long
//! time takes no processor from anybody. What waits begins in the order in which it came, and after
//! [`LONGEST`] in any case.
//!
//! It must never hold back an operator, nor a run of a tenant that has none under way.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use super::fair::{TenantId, TenantShare};

/// A run that began before this time is not counted any more.
const LATELY: Duration = Duration::from_secs(10);
/// A tenant is at work for this time after its last run.
const AT_WORK: Duration = Duration::from_secs(1);
/// A run waits no longer than this.
pub(super) const LONGEST: Duration = Duration::from_secs(30);

/// One run, from when it asks until it ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct StartId(u64);

/// The runs of all tenants that began lately, and those that wait.
#[derive(Debug)]
pub(super) struct StartsCore {
    processors: usize,
    /// The runs of a tenant from which on no other begins; `None`: nobody is held back.
    most: Option<usize>,
    tenants: BTreeMap<TenantId, TenantRuns>,
    last: u64,
}

#[derive(Debug)]
struct TenantRuns {
    weight: u32,
    /// When a run of it asked or ended last.
    last: Instant,
    /// In the order in which they began.
    begun: VecDeque<(StartId, Instant)>,
    waiting: VecDeque<StartId>,
}

impl StartsCore {
    pub(super) fn new(processors: usize) -> Self {
        Self { processors: processors.max(1), most: None, tenants: BTreeMap::new(), last: 0 }
    }

    /// A run asks. Returns those that begin now: the run itself, or it waits until it is among them later.
    pub(super) fn ask(&mut self, share: TenantShare, now: Instant) -> (StartId, Vec<StartId>) {
        self.last += 1;
        let id = StartId(self.last);
        let weight = share.weight.max(1);
        let new = || TenantRuns { weight, last: now, begun: VecDeque::new(), waiting: VecDeque::new() };
        let runs = self.tenants.entry(share.id).or_insert_with(new);
        (runs.weight, runs.last) = (weight, now);
        runs.waiting.push_back(id);
        if share.is_operator {
            self.begin(share.id, id, now);
            return (id, vec![id]);
        }
        (id, self.next(share.id, now))
    }

    /// A run that has waited for [`LONGEST`] begins.
    pub(super) fn begin(&mut self, tenant: TenantId, id: StartId, now: Instant) {
        let Some(runs) = self.tenants.get_mut(&tenant) else { return };
        runs.waiting.retain(|waiting| *waiting != id);
        runs.begun.push_back((id, now));
    }

    /// A run has ended, or its caller has gone before it began. Returns those that begin now.
    pub(super) fn end(&mut self, tenant: TenantId, id: StartId, now: Instant) -> Vec<StartId> {
        if let Some(runs) = self.tenants.get_mut(&tenant) {
            runs.waiting.retain(|waiting| *waiting != id);
            runs.begun.retain(|(begun, _)| *begun != id);
            runs.last = now;
        }
        self.next(tenant, now)
    }

    /// From now on a tenant begins no other run while it has so many. Returns those that begin now.
    pub(super) fn hold(&mut self, most: Option<usize>, now: Instant) -> Vec<StartId> {
        self.most = most;
        let tenants: Vec<TenantId> = self.tenants.keys().copied().collect();
        tenants.into_iter().flat_map(|tenant| self.next(tenant, now)).collect()
    }

    /// The runs of a tenant that wait.
    pub(super) fn waiting(&self, tenant: TenantId) -> usize {
        self.tenants.get(&tenant).map_or(0, |runs| runs.waiting.len())
    }

    fn next(&mut self, tenant: TenantId, now: Instant) -> Vec<StartId> {
        // Somebody else is at work, with runs or without.
        let others = self.tenants.iter().filter(|(id, _)| **id != tenant).map(|(_, runs)| runs.weight);
        let others = others.sum::<u32>().max(1);
        let (most, processors) = (self.most, self.processors);
        let Some(runs) = self.tenants.get_mut(&tenant) else { return Vec::new() };
        while runs.begun.front().is_some_and(|(_, at)| now.saturating_duration_since(*at) >= LATELY) {
            runs.begun.pop_front();
        }
        let part = processors * runs.weight as usize / (runs.weight + others) as usize;
        let most = most.map_or(usize::MAX, |most| most.max(part).max(1));
        let places = most.saturating_sub(runs.begun.len()).min(runs.waiting.len());
        let next: Vec<StartId> = runs.waiting.drain(..places).collect();
        runs.begun.extend(next.iter().map(|id| (*id, now)));
        if runs.begun.is_empty()
            && runs.waiting.is_empty()
            && now.saturating_duration_since(runs.last) >= AT_WORK
        {
            self.tenants.remove(&tenant);
        }
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: TenantId = TenantId(1);

    fn share(id: u32) -> TenantShare {
        TenantShare { id: TenantId(id), tenants: 2, ..TenantShare::default() }
    }

    fn ask(core: &mut StartsCore, share: TenantShare, now: Instant) -> (StartId, bool) {
        let (id, begun) = core.ask(share, now);
        (id, begun.contains(&id))
    }

    #[test]
    fn nobody_waits_before_the_processors_are_short_and_then_in_order() {
        let (mut core, now) = (StartsCore::new(2), Instant::now());
        let early: Vec<StartId> = (0..9).map(|_| ask(&mut core, share(1), now).0).collect();
        assert_eq!(core.hold(Some(3), now), []);
        let (tenth, begins) = ask(&mut core, share(1), now);
        assert!(!begins);
        let (_, begins) = ask(&mut core, share(2), now);
        assert!(begins, "it has none under way");
        let (gone, _) = ask(&mut core, share(1), now);
        let (last, _) = ask(&mut core, share(1), now);
        assert_eq!(core.waiting(A), 3);
        assert_eq!(core.end(A, gone, now), [], "its caller has gone");
        for id in &early[..6] {
            assert_eq!(core.end(A, *id, now), [], "three are under way, or more");
        }
        assert_eq!(core.end(A, early[6], now), [tenth]);
        assert_eq!(core.hold(Some(4), now), [last]);
    }

    #[test]
    fn a_run_that_began_long_ago_is_not_counted_and_nobody_waits_for_ever() {
        let (mut core, now) = (StartsCore::new(2), Instant::now());
        core.hold(Some(1), now);
        let (old, begins) = ask(&mut core, share(1), now);
        assert!(begins);
        let (second, begins) = ask(&mut core, share(1), now);
        let (third, _) = ask(&mut core, share(1), now);
        assert!(!begins);
        assert_eq!(core.hold(Some(1), now + LATELY), [second]);
        core.begin(A, third, now + LATELY);
        assert_eq!((core.waiting(A), core.tenants[&A].begun.len()), (0, 2));
        for id in [old, second, third] {
            assert_eq!(core.end(A, id, now + LATELY), []);
        }
        assert_eq!(core.hold(None, now + LATELY + AT_WORK), []);
        assert!(core.tenants.is_empty());
    }

    #[test]
    fn a_tenant_has_its_part_of_many_processors_and_an_operator_never_waits() {
        let (mut core, now) = (StartsCore::new(16), Instant::now());
        core.hold(Some(1), now);
        let heavy = TenantShare { weight: 3, ..share(2) };
        let _ = ask(&mut core, share(1), now);
        let begun = |core: &mut StartsCore, share| (0..20).filter(|_| ask(core, share, now).1).count();
        assert_eq!(begun(&mut core, heavy), 12, "three quarters");
        assert_eq!(begun(&mut core, share(1)), 3, "four with the first");
        let operator = TenantShare { is_operator: true, ..share(3) };
        assert_eq!(begun(&mut core, operator), 20);
    }
}
