//! The way out of one container: it accepts what the programs in it ask for, on behalf of the runs that were
//! admitted.
//!
//! ```text
//!  Egress (of the daemon) ─ gateway(link) ─► Gateway ── one task: accept ─► a task for each ask
//!                                              │ admit(run, policy)           │ (connection.rs)
//!                                              └─► RunNetwork ── Runs ◄───────┘ which run, which policy?
//! ```
//!
//! It must never serve an ask of a run that is not admitted, nor keep the link open.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use paddock_proto::limits::MAX_HELD_ASKS;
use paddock_proto::share;
use tokio::sync::Semaphore;
use tokio_util::sync::{CancellationToken, DropGuard};
use tracing::{Instrument, Span};

use super::approval::{Approved, Asker, RunApproval};
use super::connection;
use super::policy::{EgressRules, NetworkPolicy};
use super::resolve::{Lookup, Resolver};
use super::run::{Run, RunNetwork, Share};
use super::service::Services;
use super::settings::{EgressBounds, EgressSettings};
use super::through_proxy::ProxyWay;
use super::token_permits::TokenPermits;
use super::usage::NetworkUsage;
use crate::link::{Asks, Link};
use crate::metrics::Metrics;
use crate::tenants::Tenants;

/// What all ways out of the daemon share.
pub struct Egress {
    pub(super) rules: EgressRules,
    pub(super) bounds: EgressBounds,
    pub(super) resolver: Arc<Resolver>,
    pub(super) services: Services,
    pub(super) metrics: Metrics,
    pub(super) connections: Arc<Semaphore>,
    pub(super) upstream: Option<Arc<ProxyWay>>,
    token_permits: TokenPermits,
    tenants: OnceLock<Arc<Tenants>>,
}

impl Egress {
    /// The way out as an operator set it up. `lookup` answers for the names that the settings do not have;
    /// in the daemon it is [`super::resolve::SystemDns`].
    #[must_use]
    pub fn new(settings: &EgressSettings, lookup: impl Lookup, metrics: Metrics) -> Arc<Self> {
        let resolver = Arc::new(Resolver::new(settings.hosts.clone(), lookup));
        let way = |proxy| ProxyWay::new(proxy, settings.upstream_resolves, settings.rules.private.clone());
        let upstream = settings.upstream_proxy.clone().map(way).map(Arc::new);
        Arc::new(Self {
            rules: settings.rules.clone(),
            bounds: settings.bounds,
            services: Services::new(settings, resolver.clone(), upstream.clone(), &metrics),
            resolver,
            metrics,
            connections: Arc::new(Semaphore::new(settings.bounds.connections)),
            upstream,
            token_permits: TokenPermits::new(settings.bounds.connections_per_token),
            tenants: OnceLock::new(),
        })
    }

    /// From now on the limits of tenants hold: bytes in an hour, and dollars of models in a day.
    pub fn limit_tenants(&self, tenants: Arc<Tenants>) {
        let _ = self.tenants.set(tenants); // a second call changes nothing
    }

    /// The way out of a container, whose session belongs to `owner`: what all its runs have together counts
    /// for that token. `approved` is what was allowed in that session. What its programs ask for waits until
    /// [`Gateway::open`]. Log lines carry the fields of `span`, which names the container and its session.
    #[must_use]
    pub fn gateway(
        self: &Arc<Self>,
        link: &Link,
        owner: &str,
        approved: Arc<Approved>,
        span: Span,
    ) -> Gateway {
        let waiting = WaitingGateway { egress: self.clone(), asks: link.asks(), span };
        let stop = CancellationToken::new();
        Gateway {
            bounds: self.bounds,
            owner: owner.into(),
            of_token: self.token_permits.of(owner),
            tenants: self.tenants.get().cloned(),
            approved,
            runs: Arc::default(),
            waiting: Some(waiting),
            _stop: stop.clone().drop_guard(),
            stop,
        }
    }
}

/// Starts a task for each ask. Their number is bounded by the streams that an agent may have open.
async fn accept(egress: Arc<Egress>, asks: Asks, runs: Arc<Runs>, span: Span) {
    while let Ok(stream) = asks.accept().await {
        let (egress, runs) = (egress.clone(), runs.clone());
        tokio::spawn(async move { connection::serve(&egress, &runs, stream).await }.instrument(span.clone()));
    }
}

/// The way out of one container. Dropping it ends the connections of all its runs.
pub struct Gateway {
    bounds: EgressBounds,
    /// The token that the session belongs to.
    owner: Arc<str>,
    /// The connections of the token that the session belongs to.
    of_token: Arc<Semaphore>,
    tenants: Option<Arc<Tenants>>,
    /// What was allowed in the session.
    approved: Arc<Approved>,
    runs: Arc<Runs>,
    /// `None` from [`Gateway::open`] on.
    waiting: Option<WaitingGateway>,
    stop: CancellationToken,
    _stop: DropGuard,
}

/// What a gateway needs to begin.
struct WaitingGateway {
    egress: Arc<Egress>,
    asks: Asks,
    span: Span,
}

impl Gateway {
    /// Begins to serve what the programs of the container ask for, until the gateway is dropped or the link
    /// is lost. Runs of an earlier daemon must be admitted before.
    #[must_use]
    pub fn open(mut self) -> Self {
        if let Some(WaitingGateway { egress, asks, span }) = self.waiting.take() {
            let accepting = accept(egress, asks, self.runs.clone(), span.clone());
            let stopped = self.stop.clone();
            let task = async move {
                tokio::select! {
                    biased;
                    () = stopped.cancelled() => {}
                    () = accepting => {}
                }
            };
            tokio::spawn(task.instrument(span));
        }
        self
    }

    /// Lets a run reach outside as its policy says, until the value is dropped. The run must be admitted
    /// before its program starts. A run that is admitted twice has only the later policy.
    pub fn admit(&self, run_id: &str, policy: Arc<NetworkPolicy>) -> RunNetwork {
        self.admit_asking(run_id, policy, None)
    }

    /// The same for a run whose caller can be asked for what the policy does not allow.
    pub fn admit_asking(&self, run_id: &str, policy: Arc<NetworkPolicy>, asker: Option<Asker>) -> RunNetwork {
        self.insert(self.run(run_id, policy, asker))
    }

    /// The same for a run of an earlier daemon, which has used this much and has nobody to ask.
    pub fn admit_again(&self, run_id: &str, policy: Arc<NetworkPolicy>, used: NetworkUsage) -> RunNetwork {
        self.insert(self.run(run_id, policy, None).having_used(used))
    }

    fn run(&self, run_id: &str, policy: Arc<NetworkPolicy>, asker: Option<Asker>) -> Run {
        let (over, runs) = (self.stop.child_token(), Arc::downgrade(&self.runs));
        let approval = RunApproval::new(asker, self.approved.clone(), self.bounds.ask);
        let token = (self.owner.clone(), self.of_token.clone());
        Run::new(run_id, policy, self.bounds, token, approval, runs, over).within(self.tenants.clone())
    }

    fn insert(&self, run: Run) -> RunNetwork {
        let run = Arc::new(run);
        if let Some(earlier) = self.runs.lock().insert(run.id.clone(), run.clone()) {
            earlier.over.cancel();
        }
        RunNetwork::new(run)
    }
}

/// The admitted runs of one container.
#[derive(Default)]
pub(super) struct Runs {
    admitted: Mutex<HashMap<String, Arc<Run>>>,
    /// Whether an ask of an unknown run was logged.
    has_logged_unknown: AtomicBool,
}

impl Runs {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<Run>>> {
        // No code that can panic runs under this lock, so even a poisoned one holds valid data.
        self.admitted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn find(&self, id: &str) -> Option<Arc<Run>> {
        self.lock().get(id).cloned()
    }

    pub(super) fn all(&self) -> Vec<Arc<Run>> {
        self.lock().values().cloned().collect()
    }

    /// Forgets a run, unless another was admitted by its id.
    pub(super) fn forget(&self, run: &Arc<Run>) {
        let mut admitted = self.lock();
        if admitted.get(&run.id).is_some_and(|now| Arc::ptr_eq(now, run)) {
            admitted.remove(&run.id);
        }
    }

    /// One more connection for this run, if it may hold one beside the others.
    pub(super) fn share(&self, run: &Run) -> Option<Share> {
        let admitted = self.lock();
        let others = admitted.values().filter(|other| !std::ptr::eq(other.as_ref(), run));
        let others: Vec<usize> = others.map(|other| other.held().load(Relaxed)).collect();
        let may = share::may_open(MAX_HELD_ASKS, run.held().load(Relaxed), &others);
        may.then(|| Share::new(run.held().clone()))
    }

    /// True the first time.
    pub(super) fn is_first_unknown(&self) -> bool {
        !self.has_logged_unknown.swap(true, Relaxed)
    }
}

#[cfg(test)]
#[path = "gateway_tests.rs"]
mod tests;
