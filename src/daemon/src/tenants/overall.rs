//! Limits that hold for all nodes together: what tenants may use of them at this node, and what they are told
//! when a limit is reached. On a single machine nothing of this runs.
//!
//! It must never ask another node: it looks up the part that the last round has left this one.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::fair::TenantShare;
use super::limited::Limited;
use super::places::RunPlace;
use super::token::TenantLimits;
use super::{Tenant, Tenants};
use crate::cluster::amounts::{ToldAmount, ToldAmounts, ToldBytes};
use crate::cluster::limits::{LimitParts, LimitUse, SharedLimit};

/// A call that has waited for this long has its node ask for more.
const PATIENCE: Duration = Duration::from_millis(5);
/// The name of the limit of requests.
const RATE: &str = "requests_per_second";
/// The least part of it that a node uses, in thousandths: a request in four seconds.
const SLOWEST: u64 = 250;
/// How soon a request that was refused is worth another try: the part of a node is settled every second.
const AGAIN: Duration = Duration::from_secs(1);

impl Tenants {
    /// From now on limits hold for all nodes, and this one has these parts of them.
    pub fn divide(&self, parts: Arc<LimitParts>) {
        let _ = self.parts.set(parts);
    }

    /// What queues must know of a tenant at this node.
    pub(super) fn share_here(&self, name: &str, share: TenantShare) -> TenantShare {
        let Some(parts) = self.parts.get() else { return share };
        let name: Arc<str> = Arc::from(name);
        let here = |limit, allowed: Option<usize>| {
            allowed.map(|allowed| count(parts.part(&name, limit, allowed as u64)))
        };
        TenantShare {
            sessions: here(SharedLimit::Sessions, share.sessions),
            executions: here(SharedLimit::Executions, share.executions),
            ..share
        }
    }

    /// The same of its runs.
    fn runs_here(parts: &LimitParts, tenant: &Tenant) -> TenantLimits {
        let allowed = tenant.terms.limits.runs;
        let here = |allowed: u32| parts.part(&tenant.name, SharedLimit::Runs, allowed.into());
        let runs = allowed.map(|allowed| u32::try_from(here(allowed)).unwrap_or(allowed));
        TenantLimits { runs, ..tenant.terms.limits.clone() }
    }

    /// A place of one more run, within `wait`.
    pub(super) async fn run_here(
        &self,
        parts: &LimitParts,
        tenant: &Tenant,
        wait: Duration,
    ) -> Result<RunPlace, Limited> {
        let limits = Self::runs_here(parts, tenant);
        let entered = self.places.enter(tenant.id, &limits, wait);
        let entered = self.patiently(entered).await;
        entered.map_err(|limited| self.over_all_nodes(&tenant.name, limited))
    }

    /// Waits for a place; if that takes more than a moment, this node asks for more of the limit.
    pub(crate) async fn patiently<T>(&self, place: impl Future<Output = T>) -> T {
        let Some(parts) = self.parts.get() else { return place.await };
        let mut place = std::pin::pin!(place);
        tokio::select! {
            biased;
            got = &mut place => got,
            () = tokio::time::sleep(PATIENCE) => {
                parts.ask_soon();
                place.await
            }
        }
    }

    /// Admits a request by the part of its limit that this node has.
    pub(super) fn request_here(
        &self,
        parts: &LimitParts,
        tenant: &Tenant,
        most: usize,
        is_passed_on: bool,
    ) -> Result<(), Limited> {
        let none = TenantLimits::default();
        let Some(allowed) = tenant.terms.limits.requests_per_second.filter(|_| !is_passed_on) else {
            return self.request(tenant, most, &none);
        };
        let part = parts.part(&tenant.name, SharedLimit::Requests, thousandths(allowed));
        // One request at a very small rate would keep all others out for long after the rate has grown.
        let begun = if part < SLOWEST.min(thousandths(allowed)) {
            Err(Limited { limit: RATE, allowed, used: allowed, retry_after: Some(AGAIN) })
        } else {
            let requests_per_second = Some(rate(part));
            self.request(tenant, most, &TenantLimits { requests_per_second, ..none })
        };
        parts.count_request(&tenant.name, begun.is_ok());
        begun.map_err(|limited| {
            // By then this node may have more of it.
            let retry_after = limited.retry_after.map(|wait| wait.min(AGAIN));
            match limited.limit {
                RATE => Limited { allowed, used: allowed, retry_after, ..limited },
                _ => limited,
            }
        })
    }

    /// Admits bytes by what all nodes have moved.
    pub(super) fn moves_here(
        &self,
        parts: &LimitParts,
        tenant: &Tenant,
        bytes: u64,
        now: Instant,
    ) -> Result<(), Limited> {
        let Some(most) = tenant.terms.limits.egress_bytes_per_hour else {
            return self.moves(tenant, bytes, &tenant.terms.limits, now);
        };
        let elsewhere = parts.amounts().moved(&tenant.name, now);
        let left = Some(most.saturating_sub(elsewhere.bytes));
        let limits = TenantLimits { egress_bytes_per_hour: left, ..TenantLimits::default() };
        self.moves(tenant, bytes, &limits, now).map_err(|limited| {
            let here = self.places.state().core.hour(tenant.id, now);
            let frees_in = here.map(|hour| hour.frees_in).into_iter().chain(elsewhere.frees_in).min();
            let used = here.map_or(0, |hour| hour.used).saturating_add(elsewhere.bytes);
            Limited::amount(limited.limit, most, used, frees_in.or(limited.retry_after))
        })
    }

    /// What each tenant that has a limit of it has moved here in the last hour.
    pub(crate) fn moved_here(&self) -> ToldAmounts {
        let (book, now) = (self.book(), Instant::now());
        let mut state = self.places.state();
        let limited = book.tenants().filter(|one| one.terms.limits.egress_bytes_per_hour.is_some());
        let told = limited.filter_map(|tenant| {
            let hour = state.core.hour(tenant.id, now)?;
            let (frees_s, ends_s) = (seconds(hour.frees_in), seconds(hour.ends_in));
            let moved = Some(ToldBytes { bytes: hour.used, frees_s, ends_s });
            Some((tenant.name.to_string(), ToldAmount { moved, spent: None }))
        });
        told.collect()
    }

    /// A limit that is reached here, as it is for all nodes.
    pub(crate) fn over_all_nodes(&self, name: &str, limited: Limited) -> Limited {
        let Some(parts) = self.parts.get() else { return limited };
        let (limits, name) = (self.limits(name), Arc::from(name));
        let (limit, allowed) = match limited.limit {
            "runs" => (SharedLimit::Runs, limits.runs),
            "sessions" => (SharedLimit::Sessions, limits.sessions),
            "executions" => (SharedLimit::Executions, limits.executions),
            _ => return limited,
        };
        let others = u32::try_from(parts.others_use(&name, limit)).unwrap_or(u32::MAX);
        Limited {
            allowed: allowed.map_or(limited.allowed, f64::from),
            used: limited.used + f64::from(others),
            ..limited
        }
    }

    /// What each tenant uses here of the limits that this module counts.
    pub(crate) fn measure(&self) -> Vec<LimitUse> {
        let book = self.book();
        let mut uses = Vec::new();
        for one in self.in_use() {
            let Some(tenant) = book.tenant(&one.name) else { continue };
            let limits = &tenant.terms.limits;
            let runs = limits.runs.map(|allowed| (SharedLimit::Runs, allowed.into(), one.runs, one.waiting));
            let requests = limits.requests_per_second;
            let requests = requests.map(|allowed| (SharedLimit::Requests, thousandths(allowed), 0, 0));
            for (limit, allowed, used, wants) in runs.into_iter().chain(requests) {
                let (tenant, used, wants) = (one.name.clone(), used as u64, wants as u64);
                uses.push(LimitUse { tenant, limit, allowed, used, idle: 0, wants });
            }
        }
        uses
    }

    /// This node may have more or fewer runs of a tenant: its calls that wait have their turn.
    pub(crate) fn runs_changed(&self, name: &str) {
        let (Some(parts), book) = (self.parts.get(), self.book()) else { return };
        let Some(tenant) = book.tenant(name) else { return };
        self.places.limit(tenant.id, &Self::runs_here(parts, tenant));
    }
}

fn seconds(time: Duration) -> u64 {
    time.as_secs() + u64::from(time.subsec_nanos() > 0)
}

fn count(part: u64) -> usize {
    usize::try_from(part).unwrap_or(usize::MAX)
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rate is positive, and small")]
fn thousandths(a_second: f64) -> u64 {
    (a_second * 1000.0).ceil() as u64
}

#[expect(clippy::cast_precision_loss, reason = "a rate is small")]
fn rate(thousandths: u64) -> f64 {
    thousandths as f64 / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::limits::OtherNode;
    use crate::metrics::Metrics;
    use crate::tenants::KnownToken;

    /// `ann`, who may have four runs and two requests a second at all nodes together.
    fn tenants() -> (Arc<Tenants>, Arc<LimitParts>) {
        let mut token = KnownToken::plain("ann", [1; 32]);
        token.terms.limits = TenantLimits {
            runs: Some(4),
            sessions: Some(4),
            requests_per_second: Some(2.0),
            egress_bytes_per_hour: Some(100),
            ..TenantLimits::default()
        };
        let (tenants, parts) =
            (Tenants::open(vec![token], None, Metrics::default()).unwrap(), Arc::<LimitParts>::default());
        tenants.divide(parts.clone());
        (tenants, parts)
    }

    fn other(held: u64, used: u64) -> Vec<OtherNode> {
        let limits = [(SharedLimit::Runs, [held, used, 0, 0])].into();
        vec![OtherNode { name: "b".to_owned(), told: [("ann".to_owned(), limits)].into(), is_fresh: true }]
    }

    #[tokio::test(start_paused = true)]
    async fn a_run_waits_for_this_node_s_part_and_is_told_of_the_whole_limit() {
        let (tenants, parts) = tenants();
        let first = tenants.begin_run("ann", Duration::ZERO).await.unwrap();
        let waiting = tenants.clone();
        let second = tokio::spawn(async move { waiting.begin_run("ann", Duration::from_secs(9)).await });
        tokio::time::timeout(Duration::from_millis(50), parts.wanted()).await.expect("it asks for more");
        parts.publish("a", tenants.measure(), &other(4, 3), Duration::from_secs(1));
        parts.settle(&other(4, 3));
        tenants.runs_changed("ann");
        assert!(!second.is_finished(), "the other holds all");
        parts.publish("a", tenants.measure(), &other(4, 2), Duration::from_secs(1));
        for part in parts.settle(&other(2, 2)) {
            tenants.runs_changed(&part.tenant);
        }
        let _second = second.await.unwrap().unwrap();
        let limited = tenants.begin_run("ann", Duration::ZERO).await.map(drop).unwrap_err();
        assert_eq!((limited.allowed, limited.used), (4.0, 4.0));
        drop(first);
        drop(tenants.begin_run("ann", Duration::ZERO).await.unwrap());
        assert_eq!(tenants.share("ann").sessions, Some(1));
    }

    #[test]
    fn bytes_are_refused_when_all_nodes_have_moved_as_many_as_the_limit() {
        let (tenants, parts) = tenants();
        let now = Instant::now();
        let moved = |bytes| tenants.move_bytes("ann", bytes);
        let hear = |instance, bytes, frees_s, ends_s| {
            let moved = Some(ToldBytes { bytes, frees_s, ends_s });
            let told = [("ann".to_owned(), ToldAmount { moved, spent: None })].into();
            parts.amounts().hear(("b", instance), &told, 0, now);
        };
        assert_eq!(tenants.moved_here(), ToldAmounts::new());
        assert_eq!(moved(30), Ok(()));
        hear("1", 60, 120, 1800);
        let over = moved(11).unwrap_err();
        assert_eq!((over.limit, over.allowed, over.used), ("egress_bytes_per_hour", 100.0, 90.0));
        let wait = over.retry_after.unwrap();
        assert!(wait > Duration::from_secs(110) && wait <= Duration::from_secs(120), "{wait:?}");
        assert_eq!(moved(10), Ok(()));
        // Whatever the others have moved beyond it.
        hear("1", u64::MAX, 3599, 3600);
        let over = moved(1).unwrap_err();
        assert_eq!((over.allowed, over.used >= 1e19), (100.0, true));
        // This node tells its own, and only its own.
        let told = tenants.moved_here()["ann"].moved.unwrap();
        assert_eq!((told.bytes, told.ends_s), (40, 3600));
        hear("1", 0, 0, 0);
        assert_eq!((moved(60), moved(1).map_err(|over| over.used)), (Ok(()), Err(100.0)));
        let nothing =
            Tenants::open(vec![KnownToken::plain("ann", [1; 32])], None, Metrics::default()).unwrap();
        nothing.divide(parts.clone());
        hear("1", u64::MAX, 3600, 3600);
        assert_eq!(nothing.move_bytes("ann", 1), Ok(()), "without the limit nobody is refused");
        assert_eq!(nothing.moved_here(), ToldAmounts::new(), "nor told of");
    }

    #[test]
    fn a_request_that_was_passed_on_is_not_counted_again() {
        let (tenants, _) = tenants();
        let ann = tenants.book().tenant("ann").unwrap().clone();
        let request = |passed| tenants.begin_request(&ann, 99, passed).map(drop).map_err(|over| over.allowed);
        assert_eq!([request(false), request(false)], [Ok(()), Err(2.0)], "one of two, unasked");
        assert!((0..9).all(|_| request(true).is_ok()));
    }
}
