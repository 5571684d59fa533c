//! A run that may reach outside: its policy, what it has used of its bounds, and what it is told at its end.
//!
//! Ending it waits for nothing: its connections end by themselves, each with a reset.

use std::collections::HashSet;
use std::fmt::Display;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
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
use super::settings::EgressBounds;

/// An admitted run, as its connections see it.
pub(super) struct Run {
    pub(super) id: String,
    pub(super) policy: Arc<NetworkPolicy>,
    /// What its caller may allow beyond its policy.
    pub(super) approval: RunApproval,
    pub(super) ledger: Ledger,
    pub(super) connections: Arc<Semaphore>,
    /// Those of all runs of its token.
    pub(super) of_token: Arc<Semaphore>,
    /// Cancelled when the run is over.
    pub(super) over: CancellationToken,
    bounds: EgressBounds,
    bytes_left: AtomicU64,
    requests_left: AtomicU64,
    /// Its connections to services.
    pub(super) clients: RunClients,
    totals: Traffic,
    /// Names that were resolved for it.
    names: Mutex<HashSet<HostName>>,
    has_logged_more: AtomicBool,
}

impl Run {
    pub(super) fn new(
        id: &str,
        policy: Arc<NetworkPolicy>,
        bounds: EgressBounds,
        of_token: Arc<Semaphore>,
        approval: RunApproval,
        over: CancellationToken,
    ) -> Self {
        Self {
            id: id.to_owned(),
            policy,
            approval,
            ledger: Ledger::default(),
            connections: Arc::new(Semaphore::new(bounds.connections_per_run)),
            of_token,
            over,
            bounds,
            bytes_left: AtomicU64::new(bounds.bytes_per_run),
            requests_left: AtomicU64::new(bounds.requests_per_run),
            clients: RunClients::default(),
            totals: Traffic::default(),
            names: Mutex::default(),
            has_logged_more: AtomicBool::new(false),
        }
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
        if names.len() >= self.bounds.names_per_run {
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
        Ok(())
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

/// What [`BlockReason::Limit`] says where a bound is reached.
pub(super) const CONNECTIONS: &str = "this run has as many connections as it may have";
pub(super) const TOKEN_CONNECTIONS: &str = "all runs of this token have as many connections as they may have";
pub(super) const ALL_CONNECTIONS: &str = "this server has as many connections as it may have";
const BYTES: &str = "this run has moved as many bytes as it may";
const REQUESTS: &str = "this run has made as many requests to services as it may";
const NAMES: &str = "this run has looked up as many names as it may";

/// The right of one run to reach outside, as its policy says. Dropping it ends what the run has open.
pub struct RunNetwork {
    run: Arc<Run>,
    runs: Weak<Runs>,
}

impl RunNetwork {
    pub(super) fn new(run: Arc<Run>, runs: Weak<Runs>) -> Self {
        Self { run, runs }
    }

    /// Refuses everything that the run asks from now on and ends its connections, without waiting for either.
    /// What it reached can still be asked for.
    pub fn end(&self) {
        self.run.over.cancel();
        self.run.clients.close();
        if let Some(runs) = self.runs.upgrade() {
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
}

impl Drop for RunNetwork {
    fn drop(&mut self) {
        self.end();
    }
}
