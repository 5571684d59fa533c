//! The pool: containers that are armed before a caller asks for one. Each is handed out once and never taken
//! back.
//!
//! ```text
//!  Pool::lease ──► driver ──► core (pure: decides what is granted, started and removed)
//!                    │ ▲
//!              start │ │ started / failed / died        runner     finds runner images by their labels
//!                    ▼ │                                spec       describes every container to the engine
//!                 container ── engine, link             agent      fills the volume with the agent
//!                                                       layers     keeps packages, mounted in all containers
//!                                                       disk       says where /data lies, and what bounds it
//!                                                       loopback   says who makes the network, and its files
//!                                                       mount      looks at folders of the host for programs
//!                                                       reach      knows whether the engine answers
//!                                                       warm       has the warm part restored or loaded
//!                                                       snapshots  takes snapshots of warm parts
//!                                                       proof      proves that containers are confined
//!                                                       trial      makes one container for `doctor`
//!                                                       weights    weighs containers of tenants
//!                                                       leftovers  adopts or removes old containers
//!                                                       rescue     has those read that are removed
//!                                                       restored   repairs the engine's count of mounts
//!                                                       workspaces keeps /data and home without a container
//!  Lease (RAII) ── drop ──► released ──► destroyed
//! ```
//!
//! Nothing in here may know a tool, a session or HTTP. The pool must never give a container to two sessions,
//! nor touch a container or volume that does not carry its owner's label.

mod agent;
mod bounds;
mod container;
pub mod core;
mod disk;
mod driver;
mod hollow;
mod layers;
mod lease;
mod leftovers;
mod loopback;
pub(crate) mod mount;
mod package_labels;
mod proof;
mod reach;
mod rescue;
mod restored;
mod runner;
mod runner_terms;
pub(crate) mod runtimes;
mod seccomp;
mod secret;
mod snapshots;
mod spec;
mod specimen;
mod start;
pub mod trial;
mod warm;
mod watch;
mod weights;
mod workspaces;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch as latest};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use self::agent::{AgentError, AgentFiles};
pub use self::bounds::Bounds;
pub use self::container::{ArmedContainer, ContainerStartError};
use self::core::{LeaseRefusal, PoolEvent, PoolSettings, RunnerId, Snapshot, WaiterId};
pub use self::disk::{DataPlace, DiskBound};
use self::driver::DriverMessage;
pub(crate) use self::layers::MARK;
pub use self::layers::{LayerError, Layers};
pub use self::lease::{Adopted, AdoptedContainer, Lease};
pub use self::mount::{HostMount, MountError};
pub use self::package_labels::{PackageLabels, Registry, fetcher_of};
pub use self::proof::{Aspect, ProofError, Violation};
pub use self::rescue::{LostContainer, Rescue};
pub use self::runner::{AgentLabels, Runner, is_language};
pub use self::runner_terms::{FetchBounds, RunnerTerms};
use self::runtimes::Runtimes;
pub use self::runtimes::UnknownRuntime;
pub use self::secret::AgentTerms;
pub use self::snapshots::{
    Snapshot as WarmSnapshot, SnapshotLabels, SnapshotMount, SnapshotRecords, SnapshotSettings,
    SnapshotState, TakeOutcome, Unsupported as UnsupportedSnapshot,
};
pub use self::spec::Plan;
pub use self::specimen::{Specimen, SpecimenError};
pub use self::start::PoolConfig;
pub use self::warm::{WarmPart, WarmStage};
use self::weights::Weights;
use self::workspaces::LeaseFrom;
use crate::engine::{EngineError, VolumeName};
use crate::tenants::{TenantId, TenantShare};

/// Containers that are removed at the same time: the engine gets slower with more, not faster.
const REMOVALS: usize = 4;

/// Runners by name, languages and coding agents.
pub type Runners = BTreeMap<String, (RunnerId, Arc<Runner>)>;

/// Why the pool could not start, or cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum PoolError {
    /// The engine refused a call without which no container can be made.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The agent could not be put on the engine.
    #[error(transparent)]
    Agent(#[from] AgentError),
    /// The proof failed: containers on this engine are not confined.
    #[error(transparent)]
    Proof(#[from] ProofError),
    /// A folder of the host cannot be mounted.
    #[error(transparent)]
    Mount(#[from] MountError),
    /// The configuration names a runtime that the engine does not have.
    #[error(transparent)]
    Runtime(#[from] UnknownRuntime),
}

/// A handle on the pool of one engine.
#[derive(Clone)]
pub struct Pool {
    sender: mpsc::UnboundedSender<DriverMessage>,
    runners: latest::Receiver<Arc<Runners>>,
    next_waiter: Arc<AtomicU64>,
    done: latest::Receiver<bool>,
    fatal: latest::Receiver<Option<Arc<PoolError>>>,
    engine_up: latest::Receiver<bool>,
    starved: latest::Receiver<usize>,
    crowded: latest::Receiver<bool>,
    runtimes: Runtimes,
    settings: PoolSettings,
    layers: Option<Layers>,
    weights: Arc<Weights>,
    snapshots: latest::Receiver<BTreeMap<String, SnapshotState>>,
    /// Cancelled when the pool is to end, before its containers go.
    ending: CancellationToken,
    tasks: TaskTracker,
}

impl Pool {
    /// Waits for an armed container that runs `language`, for a tenant. Dropping the future withdraws the
    /// request.
    ///
    /// # Errors
    /// A [`LeaseRefusal`], at the latest when the configured wait is over.
    pub async fn lease(&self, language: &str, tenant: TenantShare) -> Result<Lease, LeaseRefusal> {
        loop {
            match self.ask(LeaseFrom::Runner(language.to_owned()), tenant).await {
                // The image was replaced during the wait: ask again, for a container of the new one.
                Err(LeaseRefusal::UnknownRunner) if self.runners.borrow().contains_key(language) => {}
                answer => return answer,
            }
        }
    }

    /// Waits for an armed container over this kept workspace. The workspace outlives the container again,
    /// unless [`Lease::keep_workspace`] says otherwise. Dropping the future withdraws the request.
    ///
    /// # Errors
    /// A [`LeaseRefusal`], at the latest when the configured wait is over.
    pub async fn lease_over(
        &self,
        workspace: &VolumeName,
        tenant: TenantShare,
    ) -> Result<Lease, LeaseRefusal> {
        self.ask(LeaseFrom::Workspace(workspace.clone()), tenant).await
    }

    /// Waits for an armed container that is made in this way, which no other request gets. It gets only a
    /// place that nobody else wants; drop it as soon as [`Pool::crowded`] resolves.
    ///
    /// # Errors
    /// A [`LeaseRefusal`], at the latest when the configured wait is over.
    async fn lease_made(&self, runner: Arc<Runner>) -> Result<Lease, LeaseRefusal> {
        let own = TenantShare { id: TenantId::DAEMON, ..TenantShare::default() };
        self.ask(LeaseFrom::Made(runner), own).await
    }

    /// Resolves when callers need the places of containers of [`Pool::lease_made`].
    async fn crowded(&self) {
        let mut crowded = self.crowded.clone();
        if crowded.wait_for(|crowded| *crowded).await.is_err() {
            std::future::pending().await // the pool has ended, and refuses every request
        }
    }

    /// The snapshot of each runner that can have one, or why it has none.
    pub fn snapshots(&self) -> BTreeMap<String, SnapshotState> {
        self.snapshots.borrow().clone()
    }

    /// Changes when the engine stops answering, and when it answers again.
    fn engine_up_changes(&self) -> latest::Receiver<bool> {
        self.engine_up.clone()
    }

    /// Removes a kept workspace. Requests for it that come later are refused.
    pub fn discard(&self, workspace: VolumeName) {
        let _ = self.sender.send(DriverMessage::Discard(workspace));
    }

    async fn ask(&self, from: LeaseFrom, tenant: TenantShare) -> Result<Lease, LeaseRefusal> {
        let tenant = self.weights.owing(tenant);
        let waiter = WaiterId(self.next_waiter.fetch_add(1, Ordering::Relaxed));
        let (reply, answer) = oneshot::channel();
        let request = DriverMessage::Request { waiter, from, tenant, reply };
        self.sender.send(request).map_err(|_| LeaseRefusal::ShuttingDown)?;
        let mut pending = PendingRequest { waiter, sender: &self.sender, answered: false };
        let answer = answer.await;
        pending.answered = true;
        let mut lease = answer.unwrap_or(Err(LeaseRefusal::ShuttingDown))?;
        if tenant.id != TenantId::DAEMON {
            lease.belongs_to(tenant);
        }
        Ok(lease)
    }

    /// The runners of languages at this moment: what callers may run their own code in.
    pub fn languages(&self) -> Runners {
        let runners = self.runners.borrow();
        let languages = runners.iter().filter(|(_, (_, runner))| !runner.coding_agent && !runner.fetches);
        languages.map(|(name, runner)| (name.clone(), runner.clone())).collect()
    }

    /// The layers of packages; `None` where none are fetched.
    pub fn layers(&self) -> Option<&Layers> {
        self.layers.as_ref()
    }

    /// All runners at this moment: coding agents too, and those that fetch packages.
    pub fn runners(&self) -> Arc<Runners> {
        self.runners.borrow().clone()
    }

    /// The settings that the pool was started with.
    pub fn settings(&self) -> &PoolSettings {
        &self.settings
    }

    /// False while the engine does not answer.
    pub fn engine_up(&self) -> bool {
        *self.engine_up.borrow()
    }

    /// The state of the pool; `None` after its end.
    pub async fn snapshot(&self) -> Option<Snapshot> {
        let (reply, answer) = oneshot::channel();
        self.sender.send(DriverMessage::Snapshot(reply)).ok()?;
        answer.await.ok()
    }

    /// Requests that only the release of a lease can serve. Every lease that was dropped before this call is
    /// taken into account, since the driver hears of it first.
    pub async fn starved(&self) -> usize {
        self.snapshot().await.map_or(0, |now| now.starved)
    }

    /// Whether the proof saw that containers of this language keep the programs of one run out of the memory
    /// of another; false before the proof.
    pub fn separates_runs(&self, language: &str) -> bool {
        let runners = self.runners.borrow();
        let facts = runners.get(language).and_then(|(_, runner)| self.runtimes.facts(&runner.bounds.runtime));
        facts.is_some_and(|facts| facts.separates)
    }

    /// Changes whenever [`Pool::starved`] does. The driver's end is dropped when the pool ends.
    pub fn starved_changes(&self) -> latest::Receiver<usize> {
        self.starved.clone()
    }

    /// Resolves once the engine has not answered for `patience` without interruption.
    pub async fn engine_lost(&self, patience: Duration) {
        let mut up = self.engine_up.clone();
        while up.wait_for(|up| !up).await.is_ok() {
            if tokio::time::timeout(patience, up.wait_for(|up| *up)).await.is_err() {
                return;
            }
        }
        std::future::pending().await // the pool has ended and no longer pings the engine
    }

    /// Resolves when the proof has failed after the start: the daemon must end.
    pub async fn fatal(&self) -> Arc<PoolError> {
        let mut fatal = self.fatal.clone();
        let error = fatal.wait_for(Option::is_some).await.ok().and_then(|error| error.clone());
        match error {
            Some(error) => error,
            None => std::future::pending().await,
        }
    }

    /// Refuses every request from now on, removes every container, and resolves when the last one is gone. A
    /// leased container is removed when its lease is dropped.
    pub async fn shutdown(&self) {
        // First: it has containers in hand.
        self.ending.cancel();
        let _ = self.sender.send(DriverMessage::Event(PoolEvent::Shutdown));
        let _ = self.done.clone().wait_for(|done| *done).await;
        self.tasks.wait().await;
    }
}

/// A request that waits for its answer. Dropping it before the answer withdraws the request.
struct PendingRequest<'a> {
    waiter: WaiterId,
    sender: &'a mpsc::UnboundedSender<DriverMessage>,
    answered: bool,
}

impl Drop for PendingRequest<'_> {
    fn drop(&mut self) {
        if !self.answered {
            let _ = self.sender.send(DriverMessage::Event(PoolEvent::Abandon { waiter: self.waiter }));
        }
    }
}

/// Milliseconds for a log line.
fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
