//! All sessions of one daemon: the door by which the rest of the daemon comes in, and where their parts are
//! wired.
//!
//! It must never decide anything itself: the gate decides who comes in, and [`Runs`] what a program's way is.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::bounds::{SessionBounds, SessionsInUse};
use super::error::SessionError;
use super::gate::Gate;
use super::gate::message::{GateBounds, SessionKey, TurnKind};
use super::gate::turn::Turn;
use super::id::SessionId;
use super::lease::eviction::evict_for_pool;
use super::lease::lessor::Lessor;
use super::lease::notes::LeaseNotes;
use super::lease::usage_notes::UsageNotes;
use super::output::fairness::OutputFairness;
use super::port::ContainerPool;
use super::registry::Session;
use super::run::Runs;
use super::run::start::Starter;
use super::workspaces::Workspaces;
use crate::config::WhenFull;
use crate::egress::Egress;
use crate::engine::VolumeName;
use crate::link::Dials;
use crate::metrics::Metrics;
use crate::pool::Pool;
use crate::store::{Store, StoreError};
use crate::tenants::ProgramCredit;

/// All sessions of one daemon.
pub struct Sessions {
    runs: Runs,
    pub(in crate::session) bounds: SessionBounds,
    pub(in crate::session) gate: Gate,
    /// Ends what is followed without a caller.
    pub(in crate::session) ending: CancellationToken,
    pub(crate) metrics: Metrics,
    _background: [AbortOnDropHandle<()>; 2],
}

impl Sessions {
    /// No sessions yet; one is loaded from the store when a call asks for it. To be called in a runtime.
    ///
    /// # Errors
    /// The store's.
    pub fn new(
        store: Arc<Store>,
        pool: Pool,
        egress: Arc<Egress>,
        bounds: SessionBounds,
        metrics: Metrics,
    ) -> Result<Arc<Self>, StoreError> {
        Self::with_pool(store, Arc::new(pool), egress, bounds, metrics)
    }

    /// The same over any pool: tests have one of their own.
    pub(in crate::session) fn with_pool(
        store: Arc<Store>,
        pool: Arc<dyn ContainerPool>,
        egress: Arc<Egress>,
        bounds: SessionBounds,
        metrics: Metrics,
    ) -> Result<Arc<Self>, StoreError> {
        let terms = GateBounds {
            wait: bounds.wait,
            queue: bounds.queue,
            permits: bounds.max,
            permit_queue: bounds.waiting,
            evicts: bounds.when_full == WhenFull::Evict,
            ttl: bounds.ttl,
            sweep: bounds.sweep,
            expires: bounds.retention.is_some(),
        };
        let notes = LeaseNotes::new(store.folder("leases")?);
        let usage = UsageNotes::new(store.folder("networks")?);
        let lists = store.folder("workspaces")?;
        let workspaces = Workspaces::new(bounds.kept, pool.clone(), (notes.clone(), lists), metrics.clone());
        let tenants = bounds.tenants.clone();
        let gate = Gate::new(store, (terms, tenants), bounds.retention, workspaces.clone(), metrics.clone());
        let (data, wait) = (bounds.data_bounds(), bounds.wait);
        let evicting = tokio::spawn(evict_for_pool(pool.clone(), gate.clone()));
        let expiring = AbortOnDropHandle::new(tokio::spawn(workspaces.clone().expire()));
        let lessor = Lessor {
            pool,
            notes,
            usage,
            workspaces,
            gate: gate.clone(),
            metrics: metrics.clone(),
            data,
            egress,
            wait,
        };
        let fairness = OutputFairness::default();
        let starter = Starter { lessor, data, max_log: bounds.max_log, metrics: metrics.clone() };
        let runs = Runs { bounds: bounds.clone(), starter, fairness, metrics: metrics.clone() };
        let (ending, evicting) = (CancellationToken::new(), AbortOnDropHandle::new(evicting));
        Ok(Arc::new(Self { runs, bounds, gate, ending, metrics, _background: [evicting, expiring] }))
    }

    /// Waits for the turn of a call in the session of this owner and id, at most for `pool.wait`. Dropping
    /// the future gives the place in the queue up.
    ///
    /// # Errors
    /// [`SessionError::QueueFull`], [`SessionError::TurnTooLate`], [`SessionError::Closed`], and the store's.
    pub async fn enter(&self, owner: &str, id: &SessionId, kind: TurnKind) -> Result<Turn, SessionError> {
        let is_program = !matches!(kind, TurnKind::Whole);
        let turn = self.gate.enter(&SessionKey::new(owner, id), kind).await?;
        if is_program {
            self.metrics.queued(turn.waited());
        }
        Ok(turn)
    }

    /// Whether a program of this session may get a container, before anything is done for it: a call that
    /// certainly gets none takes no place for which others wait.
    ///
    /// # Errors
    /// [`SessionError::TooManyWait`], [`SessionError::NoEviction`], [`SessionError::Limited`].
    pub fn admits(&self, owner: &str, id: &SessionId) -> Result<(), SessionError> {
        self.gate.admits(&SessionKey::new(owner, id))
    }

    /// Waits until the owner may have one more program, in this session, at most for `pool.wait`: while the
    /// processors are short each tenant has its part of them.
    ///
    /// # Errors
    /// [`SessionError::Limited`].
    pub async fn may_begin(&self, owner: &str, id: &SessionId) -> Result<ProgramCredit, SessionError> {
        let needs_container = !self.gate.is_live(&SessionKey::new(owner, id));
        let tenants = &self.bounds.tenants;
        let begin = tenants.begin_program(self.gate.share(owner), needs_container, self.bounds.wait);
        begin.await.map_err(SessionError::Limited)
    }

    /// The turn that code needs, or a command: beside other programs of its language, unless it has a network
    /// and nothing in a container keeps the programs of one run out of the memory of another.
    pub fn turn_for(&self, language: &str, is_command: bool, has_network: bool) -> TurnKind {
        match is_command {
            _ if has_network && !self.separates_runs(language) => TurnKind::Alone { is_command },
            true => TurnKind::Command(language.to_owned()),
            false => TurnKind::Code(language.to_owned()),
        }
    }

    /// Whether containers of this language keep the programs of one run out of the memory of another.
    pub(in crate::session) fn separates_runs(&self, language: &str) -> bool {
        self.runs.separates_runs(language)
    }

    /// The turn of a call that does not wait for other calls.
    ///
    /// # Errors
    /// [`SessionError::Busy`] if another call is in the way, and the store's.
    pub async fn try_enter(&self, owner: &str, id: &SessionId, kind: TurnKind) -> Result<Turn, SessionError> {
        self.gate.try_enter(&SessionKey::new(owner, id), kind).await
    }

    /// The session of this owner and id, new or not, for looking at it: a call that changes or runs something
    /// needs a [`Turn`], and goes by the session that the turn names.
    ///
    /// # Errors
    /// The store's.
    pub async fn get(&self, owner: &str, id: &SessionId) -> Result<Arc<Session>, StoreError> {
        self.gate.open(&SessionKey::new(owner, id)).await
    }

    /// The session of this owner and id, if there is one: at work, or with something stored.
    ///
    /// # Errors
    /// The store's.
    pub async fn find(&self, owner: &str, id: &SessionId) -> Result<Option<Arc<Session>>, StoreError> {
        self.gate.find(&SessionKey::new(owner, id)).await
    }

    /// The ways to servers in the containers of the session of this owner and id: none if there is no such
    /// session, or it has no container.
    ///
    /// # Errors
    /// The store's.
    pub async fn dials(&self, owner: &str, id: &SessionId) -> Result<Vec<Dials>, StoreError> {
        Ok(self.find(owner, id).await?.map(|session| session.dials()).unwrap_or_default())
    }

    /// Ends a session: what runs or waits in it is cancelled (what it did is still saved), its containers go,
    /// and, if `delete`, its files. False if there is none, or it is closed already and there is nothing to
    /// delete.
    ///
    /// # Errors
    /// The store's; with `delete` the files are then still there.
    pub async fn close(&self, owner: &str, id: &SessionId, delete: bool) -> Result<bool, StoreError> {
        let key = SessionKey::new(owner, id);
        let found = self.gate.close(&key, delete).await?;
        // Also of a session of which nothing is stored.
        Ok((delete && self.workspaces().delete(&key)) || found)
    }

    /// Ends every session of an owner that is in memory: what runs or waits in it is cancelled, and its
    /// containers go. The files stay.
    pub async fn close_owner(&self, owner: &str) {
        let closing = self.gate.of_owner(owner).into_iter().map(|key| async move {
            if let Err(error) = self.gate.close(&key, false).await {
                tracing::warn!(%error, session_id = %key, "a session could not be closed");
            }
        });
        futures_util::future::join_all(closing).await;
    }

    /// The workspaces of coding agents that are kept without a container, and the most there may be.
    pub fn kept_workspaces(&self) -> (usize, usize) {
        self.workspaces().counts()
    }

    /// The names of the containers whose workspaces an earlier daemon kept, or had for a session, by its
    /// notes in this store. For [`PoolConfig::workspaces`](crate::pool::PoolConfig::workspaces).
    ///
    /// # Errors
    /// The store's.
    pub fn noted_workspaces(store: &Store) -> Result<BTreeSet<VolumeName>, StoreError> {
        let notes = LeaseNotes::new(store.folder("leases")?).read();
        Ok(notes.into_iter().filter_map(|(name, _)| name.parse().ok()).collect())
    }

    pub(in crate::session) fn workspaces(&self) -> &Arc<Workspaces> {
        &self.runs.lessor().workspaces
    }

    /// From now on idle sessions lose their containers, unused files expire, and resting sessions are
    /// forgotten.
    pub fn start_sweeping(&self) {
        self.gate.start_sweeping();
    }

    /// Takes every container back, once its session's calls are over. No call gets a turn any more.
    pub async fn close_all(&self) {
        self.ending.cancel();
        self.gate.close_all().await;
    }

    /// What runs programs in the sessions.
    pub fn runs(&self) -> &Runs {
        &self.runs
    }

    /// The bounds.
    pub fn bounds(&self) -> &SessionBounds {
        &self.bounds
    }

    /// Sessions of each owner that have a container, or are about to.
    pub fn live_by_owner(&self) -> BTreeMap<String, usize> {
        self.gate.live_by_owner()
    }

    /// What each owner uses.
    pub fn use_by_owner(&self) -> BTreeMap<String, SessionsInUse> {
        self.gate.use_by_owner()
    }

    /// An owner may have more or fewer sessions with containers at this node. So many that rest lose theirs.
    pub fn limit_changed(&self, owner: &str, gives_up: u64) {
        self.gate.limit_changed(owner, gives_up);
    }

    /// Sessions that have a container, or are about to.
    pub fn live(&self) -> usize {
        self.gate.live()
    }

    /// Sessions in memory, and calls that wait for their turn in one, or for a container.
    pub fn known(&self) -> (usize, usize) {
        self.gate.known()
    }
}
