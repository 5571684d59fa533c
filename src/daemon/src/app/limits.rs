//! The limits of tenants that hold for all nodes of a cluster, wired to where each of them is counted.
//!
//! Sessions, executions, runs and requests are divided between the nodes ([`crate::cluster::limits`]). Each
//! node tells the others what bytes moved and what dollars were spent there ([`crate::cluster::amounts`]).
//! What a tenant has stored, the ledger counts: this module asks it now and then, beside the calls. It must
//! never ask for a call, and does nothing on a single machine.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use paddock_ledger::Ledger;
use tokio_util::sync::CancellationToken;
use tracing::debug;

use crate::cluster::Cluster;
use crate::cluster::amounts::ToldAmounts;
use crate::cluster::limits::{ChangedPart, LimitUse, LimitedUse, SharedLimit};
use crate::services::Services;
use crate::store::{Elsewhere, OwnerBounds, Store};
use crate::tenants::Tenants;

/// How often the ledger is asked what tenants that have a limit have stored: what is written at other nodes
/// in this time is not counted here.
const COUNT: Duration = Duration::from_secs(2);

/// From now on limits hold for all nodes.
pub(super) fn divide(cluster: &Cluster, services: &Arc<Services>) {
    services.tenants.divide(cluster.limits().clone());
    services.egress.add_spending_elsewhere(cluster.limits().amounts().clone());
    cluster.divide_limits(OfServices(Arc::downgrade(services)));
}

/// Where this node counts.
struct OfServices(Weak<Services>);

impl LimitedUse for OfServices {
    fn measure(&self) -> Vec<LimitUse> {
        let Some(services) = self.0.upgrade() else { return Vec::new() };
        let mut uses = services.tenants.measure();
        let (sessions, executions) = (services.sessions.use_by_owner(), services.executions.use_by_owner());
        for tenant in services.tenants.book().tenants() {
            let (limits, name) = (&tenant.terms.limits, &*tenant.name);
            let of = |limit, allowed: u32, (used, idle, wants): (usize, usize, usize)| LimitUse {
                tenant: tenant.name.clone(),
                limit,
                allowed: allowed.into(),
                used: used as u64,
                idle: idle as u64,
                wants: wants as u64,
            };
            if let Some(allowed) = limits.sessions {
                let used = sessions.get(name).copied().unwrap_or_default();
                uses.push(of(SharedLimit::Sessions, allowed, (used.live, used.resting, used.waiting)));
            }
            if let Some(allowed) = limits.executions {
                let (used, waiting) = executions.get(name).copied().unwrap_or_default();
                uses.push(of(SharedLimit::Executions, allowed, (used, 0, waiting)));
            }
        }
        uses
    }

    fn amounts(&self) -> ToldAmounts {
        let Some(services) = self.0.upgrade() else { return ToldAmounts::new() };
        let mut amounts = services.tenants.moved_here();
        let book = services.tenants.book();
        let has_budget = |name: &str| {
            book.tenant(name).is_some_and(|tenant| tenant.terms.limits.model_usd_per_day.is_some())
        };
        for (tenant, spent) in services.egress.spent_today() {
            if has_budget(&tenant) {
                amounts.entry(tenant).or_default().spent = Some(spent);
            }
        }
        amounts
    }

    fn changed(&self, parts: &[ChangedPart]) {
        let Some(services) = self.0.upgrade() else { return };
        for part in parts {
            match part.limit {
                SharedLimit::Sessions => services.sessions.limit_changed(&part.tenant, part.gives_up),
                SharedLimit::Executions => services.executions.limit_changed(&part.tenant),
                SharedLimit::Runs => services.tenants.runs_changed(&part.tenant),
                SharedLimit::Requests => {}
            }
        }
    }
}

/// What tenants have stored at other nodes.
#[derive(Default)]
pub(super) struct StoredElsewhere(Mutex<HashMap<Arc<str>, Elsewhere>>);

impl StoredElsewhere {
    /// What an owner may have stored, and has elsewhere.
    pub(super) fn bounds(&self, tenants: &Tenants, owner: &str) -> OwnerBounds {
        let limits = tenants.limits(owner);
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        OwnerBounds {
            bytes: limits.stored_bytes,
            entries: limits.stored_files,
            elsewhere: all.get(owner).copied().unwrap_or_default(),
        }
    }

    /// Asks the ledger until `stop`.
    pub(super) async fn count(
        self: Arc<Self>,
        (store, tenants, ledger): (Weak<Store>, Arc<Tenants>, Ledger),
        stop: CancellationToken,
    ) {
        let mut tick = tokio::time::interval(COUNT);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        while stop.run_until_cancelled(tick.tick()).await.is_some() {
            let book = tenants.book();
            let limited = book.tenants().filter(|tenant| {
                let limits = &tenant.terms.limits;
                limits.stored_bytes.is_some() || limits.stored_files.is_some()
            });
            let names: Vec<Arc<str>> = limited.map(|tenant| tenant.name.clone()).collect();
            if names.is_empty() {
                continue;
            }
            let Some(store) = store.upgrade() else { return };
            // Before the question: what is written meanwhile is counted twice rather than not at all.
            let here: Vec<_> = names.iter().map(|name| store.used_by(name)).collect();
            match ledger.stored_by(&names).await {
                Ok(stored) => {
                    let all = names.iter().zip(here).map(|(name, here)| {
                        let stored = stored.get(&**name).copied().unwrap_or_default();
                        (name.clone(), Elsewhere::beside(here, stored))
                    });
                    *self.0.lock().unwrap_or_else(PoisonError::into_inner) = all.collect();
                }
                // The last counts stay good; nothing new can be stored meanwhile anyway.
                Err(error) => debug!(%error, "what tenants have stored is not counted"),
            }
        }
    }
}
