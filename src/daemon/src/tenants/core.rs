//! What each tenant uses at this moment, and whether it may use more: the deciding half of [`Tenants`]. Pure:
//! time is an argument, and nothing here waits.
//!
//! What takes places that others wait for (sessions, executions, containers) is counted where the queues are;
//! they ask for the [share](super::fair::TenantShare) of a tenant. Here is the rest: requests, bytes that
//! move, runs.
//!
//! It must never forget what is in use, and never remember a tenant that uses nothing.
//!
//! [`Tenants`]: super::Tenants

use std::collections::HashMap;
use std::time::Instant;

use super::fair::TenantId;
use super::limited::Limited;
use super::token::TenantLimits;
use super::window::{Hour, HourLeft, Rate};

/// What a tenant does.
#[derive(Debug, Clone, Copy)]
pub(super) enum TenantEvent {
    /// It sends a request, and may have so many in flight.
    Request { most: usize },
    /// A request was answered.
    Answered,
    /// Its programs move bytes.
    Moves(u64),
    /// A program of a run begins.
    RunBegins,
    /// A program of a run has ended.
    RunEnds,
}

#[derive(Debug, Default)]
struct InUse {
    requests: usize,
    runs: usize,
    rate: Rate,
    moved: Option<Box<Hour>>,
}

/// What all tenants use.
#[derive(Debug, Default)]
pub(super) struct Core {
    tenants: HashMap<TenantId, InUse>,
}

impl Core {
    /// Whether it may.
    ///
    /// # Errors
    /// The limit that it has reached; nothing has changed then.
    pub(super) fn on(
        &mut self,
        tenant: TenantId,
        event: TenantEvent,
        limits: &TenantLimits,
        now: Instant,
    ) -> Result<(), Limited> {
        let used = self.tenants.entry(tenant).or_default();
        match event {
            TenantEvent::Request { most } => {
                if used.requests >= most {
                    return Err(Limited::places("requests_in_flight", most, used.requests));
                }
                if let Some(allowed) = limits.requests_per_second {
                    used.rate.take(allowed, now).map_err(|wait| Limited {
                        limit: "requests_per_second",
                        allowed,
                        used: allowed,
                        retry_after: Some(wait),
                    })?;
                }
                used.requests += 1;
            }
            TenantEvent::Answered => used.requests = used.requests.saturating_sub(1),
            TenantEvent::Moves(bytes) => {
                let most = limits.egress_bytes_per_hour;
                let hour = used.moved.get_or_insert_default();
                hour.add(bytes, most, now).map_err(|wait| {
                    Limited::amount("egress_bytes_per_hour", most.unwrap_or(0), hour.used(now), Some(wait))
                })?;
            }
            TenantEvent::RunBegins => {
                if let Some(most) = limits.runs.map(|most| most as usize).filter(|most| used.runs >= *most) {
                    return Err(Limited::places("runs", most, used.runs));
                }
                used.runs += 1;
            }
            TenantEvent::RunEnds => used.runs = used.runs.saturating_sub(1),
        }
        Ok(())
    }

    /// Runs under way.
    pub(super) fn runs(&self, tenant: TenantId) -> usize {
        self.tenants.get(&tenant).map_or(0, |used| used.runs)
    }

    /// Requests that are not answered yet.
    pub(super) fn requests(&self, tenant: TenantId) -> usize {
        self.tenants.get(&tenant).map_or(0, |used| used.requests)
    }

    /// Bytes that its programs moved in the last hour.
    pub(super) fn moved(&mut self, tenant: TenantId, now: Instant) -> u64 {
        let used = self.tenants.get_mut(&tenant);
        used.and_then(|used| used.moved.as_mut()).map_or(0, |hour| hour.used(now))
    }

    /// The same, and for how long they count still.
    pub(super) fn hour(&mut self, tenant: TenantId, now: Instant) -> Option<HourLeft> {
        self.tenants.get_mut(&tenant)?.moved.as_mut()?.left(now)
    }

    /// Forgets a tenant that has no token any more, once it uses nothing.
    pub(super) fn forget(&mut self, tenant: TenantId) {
        if self.tenants.get(&tenant).is_some_and(|used| used.requests == 0 && used.runs == 0) {
            self.tenants.remove(&tenant);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const A: TenantId = TenantId(1);
    const B: TenantId = TenantId(2);

    #[test]
    fn each_limit_holds_for_its_tenant_alone_and_a_refusal_changes_nothing() {
        let (mut core, now) = (Core::default(), Instant::now());
        let limits = TenantLimits {
            runs: Some(2),
            requests_per_second: Some(1.0),
            egress_bytes_per_hour: Some(100),
            ..TenantLimits::default()
        };
        let name = |done: Result<(), Limited>| done.unwrap_err().limit;
        for _ in 0..2 {
            assert_eq!(core.on(A, TenantEvent::RunBegins, &limits, now), Ok(()));
        }
        assert_eq!(name(core.on(A, TenantEvent::RunBegins, &limits, now)), "runs");
        assert_eq!((core.runs(A), core.on(B, TenantEvent::RunBegins, &limits, now)), (2, Ok(())));
        assert_eq!(core.on(A, TenantEvent::RunEnds, &limits, now), Ok(()));
        assert_eq!(core.on(A, TenantEvent::RunBegins, &limits, now), Ok(()));

        let request = TenantEvent::Request { most: 2 };
        assert_eq!(core.on(A, request, &limits, now), Ok(()));
        assert_eq!(name(core.on(A, request, &limits, now)), "requests_per_second");
        assert_eq!(core.on(A, request, &limits, now + Duration::from_secs(1)), Ok(()));
        assert_eq!(name(core.on(A, request, &limits, now + Duration::from_secs(9))), "requests_in_flight");
        assert_eq!((core.requests(A), core.on(B, request, &limits, now)), (2, Ok(())));
        assert_eq!(core.on(A, TenantEvent::Answered, &limits, now), Ok(()));
        assert_eq!(core.on(A, request, &limits, now + Duration::from_secs(9)), Ok(()));

        assert_eq!(core.on(A, TenantEvent::Moves(100), &limits, now), Ok(()));
        let over = core.on(A, TenantEvent::Moves(1), &limits, now).unwrap_err();
        assert_eq!((over.limit, over.used, over.retry_after), ("egress_bytes_per_hour", 100.0, Some(HOUR)));
        assert_eq!((core.moved(A, now), core.moved(A, now + HOUR)), (100, 0));
        core.forget(A);
        assert_eq!(core.runs(A), 2, "what is in use is not forgotten");
        for event in
            [TenantEvent::RunEnds, TenantEvent::RunEnds, TenantEvent::Answered, TenantEvent::Answered]
        {
            assert_eq!(core.on(A, event, &limits, now), Ok(()));
        }
        core.forget(A);
        assert!(!core.tenants.contains_key(&A));
    }

    const HOUR: Duration = Duration::from_secs(3600);

    #[test]
    fn without_limits_everything_is_counted_and_nothing_refused() {
        let (mut core, now, none) = (Core::default(), Instant::now(), TenantLimits::default());
        for _ in 0..10_000 {
            assert_eq!(core.on(A, TenantEvent::Request { most: usize::MAX }, &none, now), Ok(()));
            assert_eq!(core.on(A, TenantEvent::RunBegins, &none, now), Ok(()));
            assert_eq!(core.on(A, TenantEvent::Moves(1 << 40), &none, now), Ok(()));
        }
        assert_eq!((core.requests(A), core.runs(A)), (10_000, 10_000));
    }
}
