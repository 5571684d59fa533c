//! What metrics and the page of the daemon are told of tenants.
//!
//! It must never give metrics a series for each of any number of names.

use std::collections::HashMap;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::{Tenant, TenantId, Tenants, limited};

/// Names that have series of their own in metrics, in the order in which they were first seen; the rest are
/// `other`. Names come from the operator, but a thousand of them would be a million series.
pub(super) const NAMED: usize = 50;

/// The limits that refuse a tool call, as its answer names them.
const LIMITS: [&str; 6] =
    ["sessions", "executions", "runs", "stored_bytes", "stored_files", limited::CPU_CREDITS];

/// The name in metrics of tenants beyond [`NAMED`].
pub(super) const OTHER: &str = "other";

/// Every name that was ever seen, and its number: no more than an operator has written.
#[derive(Default)]
pub(super) struct Names {
    ids: HashMap<Arc<str>, TenantId>,
    named: Vec<Arc<str>>,
}

/// What a tenant uses at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TenantInUse {
    /// Its name.
    pub name: Arc<str>,
    /// Its name in metrics.
    pub label: Arc<str>,
    /// Runs of code under way.
    pub runs: usize,
    /// Calls that wait for a run of its own to end.
    pub waiting: usize,
    /// Programs that do not begin yet, since the processors are short.
    pub held_back: usize,
    /// Requests in flight.
    pub requests: usize,
    /// Bytes that its programs moved in the last hour.
    pub moved: u64,
}

impl Tenants {
    /// Counts a tool call of a tenant: how it came out, how long it took, and the limit that refused it.
    pub fn called(&self, name: &str, outcome: &'static str, took: Duration, limit: Option<&str>) {
        let label = self.label(name);
        self.metrics.tenant_called(&label, outcome, took);
        if let Some(limit) = limit.and_then(|limit| LIMITS.into_iter().find(|known| *known == limit)) {
            self.metrics.tenant_limited(&label, limit);
        }
    }

    /// The name of a tenant in metrics.
    pub fn label(&self, name: &str) -> Arc<str> {
        let names = self.names();
        let known = names.named.iter().find(|known| ***known == *name);
        known.cloned().unwrap_or_else(|| Arc::from(OTHER))
    }

    /// What each tenant uses now, by its name in metrics: runs, those that wait for one, requests, and bytes
    /// that moved in the last hour.
    pub fn in_use(&self) -> Vec<TenantInUse> {
        let (book, now) = (self.book(), Instant::now());
        let of = |tenant: &Arc<Tenant>| {
            let waiting = self.places.waiting(tenant.id);
            let held_back = self.credits.waiting(tenant.id);
            let mut state = self.places.state();
            TenantInUse {
                name: tenant.name.clone(),
                label: self.label(&tenant.name),
                runs: state.core.runs(tenant.id),
                waiting,
                held_back,
                requests: state.core.requests(tenant.id),
                moved: state.core.moved(tenant.id, now),
            }
        };
        book.tenants().map(of).collect()
    }

    /// The number of a name, and its place among those that metrics name.
    pub(super) fn number(&self, name: &str) -> TenantId {
        let mut names = self.names();
        if let Some(id) = names.ids.get(name) {
            return *id;
        }
        let (id, name) =
            (TenantId(u32::try_from(names.ids.len()).unwrap_or(u32::MAX)), Arc::<str>::from(name));
        names.ids.insert(name.clone(), id);
        if names.named.len() < NAMED {
            self.metrics.know_tenant(&name, &LIMITS);
            names.named.push(name);
        }
        id
    }

    fn names(&self) -> MutexGuard<'_, Names> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
