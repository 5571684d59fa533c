//! A run that may reach outside: its policy, what it has used of its bounds, and what it is told at its end.
//!
//! Ending it waits for nothing: its connections end by themselves, each with a reset.

use std::collections::HashSet;
use std::fmt::Display;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::{Semaphore, mpsc};
use tokio_util::sync::CancellationToken;
use tracing::info;

use super::approval::{Decision, RunApproval};
use super::gateway::Runs;
use super::host_name::{Host, HostName};
use super::ledger::{Destination, Ledger, Traffic};
use super::policy::{BlockReason, NetworkPolicy};
use super::service::RunClients;
use super::service::model::{Dollars, ModelAccount, ModelUsage};
use super::settings::EgressBounds;
use super::usage::NetworkUsage;
use crate::tenants::{TenantParts, Tenants};

/// An admitted run, as its connections see it.
pub(super) struct Run {
    pub(super) id: String,
    /// The token that its session belongs to.
    pub(super) owner: Arc<str>,
    pub(super) policy: Arc<NetworkPolicy>,
    /// What its caller may allow beyond its policy.
    pub(super) approval: RunApproval,
    pub(super) ledger: Ledger,
    pub(super) connections: Arc<Semaphore>,
    /// Those of all runs of its token.
    pub(super) of_token: Arc<Semaphore>,
    /// What its tenant may do.
    tenants: Option<Arc<Tenants>>,
    /// The runs of its container, itself included.
    runs: Weak<Runs>,
    /// How many connections of its container it holds: all runs of a container share them.
    held: Arc<AtomicUsize>,
    /// Cancelled when the run is over.
    pub(super) over: CancellationToken,
    bounds: EgressBounds,
    bytes_left: AtomicU64,
    requests_left: AtomicU64,
    /// Its connections to services.
    pub(super) clients: RunClients,
    /// What it has used of models.
    pub(super) models: Arc<ModelAccount>,
    totals: Traffic,
    /// Names that this daemon resolved for it.
    names: Mutex<HashSet<HostName>>,
    /// How many names an earlier daemon resolved for it.
    earlier_names: usize,
    has_logged_more: AtomicBool,
}

impl Run {
    pub(super) fn new(
        id: &str,
        policy: Arc<NetworkPolicy>,
        bounds: EgressBounds,
        (owner, of_token): (Arc<str>, Arc<Semaphore>),
        approval: RunApproval,
        runs: Weak<Runs>,
        over: CancellationToken,
    ) -> Self {
        Self {
            id: id.to_owned(),
            owner,
            policy,
            approval,
            ledger: Ledger::default(),
            connections: Arc::new(Semaphore::new(bounds.connections_per_run)),
            of_token,
            tenants: None,
            runs,
            held: Arc::default(),
            over,
            bounds,
            bytes_left: AtomicU64::new(bounds.bytes_per_run),
            requests_left: AtomicU64::new(bounds.requests_per_run),
            clients: RunClients::default(),
            models: Arc::default(),
            totals: Traffic::default(),
            names: Mutex::default(),
            earlier_names: 0,
            has_logged_more: AtomicBool::new(false),
        }
    }

    /// Within the limits of its tenant.
    pub(super) fn within(self, tenants: Option<Arc<Tenants>>) -> Self {
        Self { tenants, ..self }
    }

    /// Whether it may look up a name: its policy has it, or its caller could be asked for it.
    pub(super) fn may_look_up(&self, name: &HostName) -> bool {
        self.policy.may_look_up(name)
            || (self.policy.may_look_up_to_ask(name) && self.approval.may_need(name))
    }

    /// Its policy for this destination, with what its caller allowed in the session.
    ///
    /// # Errors
    /// Why it is blocked, after its caller was asked, where that is possible.
    pub(super) async fn policy_for(&self, host: &Host, port: u16) -> Result<Arc<NetworkPolicy>, BlockReason> {
        let Err(reason) = self.policy.judge(host, port) else { return Ok(self.policy.clone()) };
        if !self.policy.may_ask(host, port) {
            return Err(reason);
        }
        match self.approval.decide(&self.id, host, port).await {
            Decision::Yes => Ok(Arc::new(self.policy.with_approved(host, port))),
            Decision::No => Err(BlockReason::NotApproved),
            Decision::AskedEnough => Err(BlockReason::AskedEnough),
            Decision::Nobody => Err(reason),
        }
    }

    /// Goes on with what it used while an earlier daemon served it.
    pub(super) fn having_used(self, earlier: NetworkUsage) -> Self {
        let NetworkUsage { destinations, unlisted, bytes_in, bytes_out, charged, names, requests, models } =
            earlier;
        Self {
            ledger: Ledger::earlier(destinations, unlisted),
            bytes_left: AtomicU64::new(self.bounds.bytes_per_run.saturating_sub(charged)),
            requests_left: AtomicU64::new(self.bounds.requests_per_run.saturating_sub(requests)),
            totals: Traffic { bytes_in: bytes_in.into(), bytes_out: bytes_out.into() },
            earlier_names: names,
            models: Arc::new(ModelAccount::having(models)),
            ..self
        }
    }

    fn usage(&self) -> NetworkUsage {
        let names = self.names.lock().unwrap_or_else(PoisonError::into_inner).len();
        NetworkUsage {
            destinations: self.ledger.destinations(),
            unlisted: self.ledger.unlisted(),
            bytes_in: self.totals.bytes_in.load(Relaxed),
            bytes_out: self.totals.bytes_out.load(Relaxed),
            charged: self.bounds.bytes_per_run.saturating_sub(self.bytes_left.load(Relaxed)),
            names: names.saturating_add(self.earlier_names),
            requests: self.bounds.requests_per_run.saturating_sub(self.requests_left.load(Relaxed)),
            models: self.models.used(),
        }
    }

    /// Connections that it holds.
    pub(super) fn held(&self) -> &Arc<AtomicUsize> {
        &self.held
    }

    /// Takes one of the connections that the runs of its container share; `None` if the connections that are
    /// left are kept for the other runs.
    pub(super) fn share(&self) -> Option<Share> {
        self.runs.upgrade()?.share(self)
    }

    /// Something was blocked: the run is told, and the log, once for each destination.
    pub(super) fn blocked(&self, host: &str, port: u16, reason: &dyn Display) {
        let reason = reason.to_string();
        if self.ledger.blocked(host, port, &reason) {
            info!(run_id = self.id, host, port, reason, "blocked");
        } else if self.ledger.unlisted() > 0 && !self.has_logged_more.swap(true, Relaxed) {
            info!(
                run_id = self.id,
                "this run asks for more destinations: what is blocked of them is only counted"
            );
        }
    }

    /// Whether it may still connect.
    ///
    /// # Errors
    /// The bound that it has used up.
    pub(super) fn has_bytes_left(&self) -> Result<(), BlockReason> {
        if self.bytes_left.load(Relaxed) == 0 { Err(BlockReason::Limit(BYTES)) } else { Ok(()) }
    }

    /// Whether this name may be resolved too.
    ///
    /// # Errors
    /// The bound that it has used up.
    pub(super) fn count_name(&self, name: &HostName) -> Result<(), BlockReason> {
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        if names.contains(name) {
            return Ok(());
        }
        if names.len().saturating_add(self.earlier_names) >= self.bounds.names_per_run {
            return Err(BlockReason::Limit(NAMES));
        }
        names.insert(name.clone());
        Ok(())
    }

    /// Takes bytes from its bound, before they are passed on. At the first that do not fit it has none left.
    ///
    /// # Errors
    /// The bound that it has used up.
    pub(super) fn spend(&self, bytes: u64) -> Result<(), BlockReason> {
        let spent = self.bytes_left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(bytes));
        if spent.is_err() {
            self.bytes_left.store(0, Relaxed);
            return Err(BlockReason::Limit(BYTES));
        }
        let moved = self.tenants.as_ref().map(|tenants| tenants.move_bytes(&self.owner, bytes));
        moved.transpose().map(drop).map_err(|_| BlockReason::Limit(TENANT_BYTES))
    }

    /// What its tenant may hold of something; `None` if all of it.
    pub(super) fn tenant_part(&self, parts: &TenantParts) -> Option<Arc<Semaphore>> {
        self.tenants.as_ref()?.part(&self.owner, parts)
    }

    /// What its tenant may spend on all models in a day.
    pub(super) fn tenant_budget(&self) -> Option<Dollars> {
        self.tenants.as_ref().and_then(|tenants| tenants.limits(&self.owner).model_usd_per_day)
    }

    /// Takes one request to a service from its bound.
    ///
    /// # Errors
    /// The bound that it has used up.
    pub(super) fn count_request(&self) -> Result<(), BlockReason> {
        let taken = self.requests_left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1));
        taken.map(drop).map_err(|_| BlockReason::Limit(REQUESTS))
    }

    /// Counts bytes that came in to the program.
    pub(super) fn came_in(&self, traffic: &Traffic, bytes: u64) {
        traffic.bytes_in.fetch_add(bytes, Relaxed);
        self.totals.bytes_in.fetch_add(bytes, Relaxed);
    }

    /// Counts bytes that went out of it.
    pub(super) fn went_out(&self, traffic: &Traffic, bytes: u64) {
        traffic.bytes_out.fetch_add(bytes, Relaxed);
        self.totals.bytes_out.fetch_add(bytes, Relaxed);
    }
}

/// One of the connections that the runs of a container share.
pub(super) struct Share(Arc<AtomicUsize>);

impl Share {
    pub(super) fn new(held: Arc<AtomicUsize>) -> Self {
        held.fetch_add(1, Relaxed);
        Self(held)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// What [`BlockReason::Limit`] says where a bound is reached.
pub(super) const CONNECTIONS: &str = "this run has as many connections as it may have";
pub(super) const TOKEN_CONNECTIONS: &str = "all runs of this token have as many connections as they may have";
pub(super) const ALL_CONNECTIONS: &str = "this server has as many connections as it may have";
pub(super) const CONTAINER_CONNECTIONS: &str =
    "the connections that are left are for the other runs of this session";
const BYTES: &str = "this run has moved as many bytes as it may";
const TENANT_BYTES: &str =
    "all runs of this token have moved as many bytes in an hour as they may (limits.egress_bytes_per_hour)";
const REQUESTS: &str = "this run has made as many requests to services as it may";
const NAMES: &str = "this run has looked up as many names as it may";

/// The right of one run to reach outside, as its policy says. Dropping it ends what the run has open.
pub struct RunNetwork {
    run: Arc<Run>,
}

impl RunNetwork {
    pub(super) fn new(run: Arc<Run>) -> Self {
        Self { run }
    }

    /// Refuses everything that the run asks from now on and ends its connections, without waiting for either.
    /// What it reached can still be asked for.
    pub fn end(&self) {
        self.run.over.cancel();
        self.run.clients.close();
        if let Some(runs) = self.run.runs.upgrade() {
            runs.forget(&self.run);
        }
    }

    /// The destinations of the run so far, in the order of their first use: the first
    /// [`super::ledger::MAX_LISTED`].
    pub fn ledger(&self) -> Vec<Destination> {
        self.run.ledger.destinations()
    }

    /// The same for somebody else to look at.
    pub fn view(&self) -> NetworkView {
        NetworkView(self.run.clone())
    }

    /// How many further destinations there were, up to 10,000.
    pub fn unlisted(&self) -> usize {
        self.run.ledger.unlisted()
    }

    /// Bytes of all its connections: in to the program, and out of it.
    pub fn bytes(&self) -> (u64, u64) {
        (self.run.totals.bytes_in.load(Relaxed), self.run.totals.bytes_out.load(Relaxed))
    }

    /// What it has used of models so far; `None` if that is nothing.
    pub fn model_usage(&self) -> Option<ModelUsage> {
        self.view().model_usage()
    }

    /// What it has used so far.
    pub fn usage(&self) -> NetworkUsage {
        self.run.usage()
    }

    /// Receives each destination when it is blocked for the first time, those so far included; at most
    /// [`super::ledger::MAX_LISTED`]. It ends when the value and all connections of the run are gone. A
    /// second call takes the place of the first.
    pub fn blocked(&self) -> mpsc::UnboundedReceiver<Destination> {
        self.run.ledger.listen()
    }
}

/// What a run reached, for a reader that may outlive the right to reach it.
#[derive(Clone)]
pub struct NetworkView(Arc<Run>);

impl NetworkView {
    /// The destinations of the run so far: see [`RunNetwork::ledger`].
    pub fn destinations(&self) -> Vec<Destination> {
        self.0.ledger.destinations()
    }

    /// What it has used of models so far; `None` if that is nothing.
    pub fn model_usage(&self) -> Option<ModelUsage> {
        Some(self.0.models.used()).filter(|used| used.requests > 0)
    }
}

impl Drop for RunNetwork {
    fn drop(&mut self) {
        self.end();
    }
}
