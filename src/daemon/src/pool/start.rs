//! The start of a pool: what it needs, and in which order its tasks begin.
//!
//! It must never let a task begin before the containers of an earlier daemon are known to it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use tokio::sync::{Semaphore, mpsc, watch as latest};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::core::{PoolCore, PoolSettings};
use super::driver::PoolDriver;
use super::snapshots::SnapshotKeeper;
use super::watch::{self, FirstLook};
use super::weights::Weights;
use super::workspaces::Workspaces;
use super::{
    Adopted, AgentFiles, AgentTerms, Layers, Pool, PoolError, REMOVALS, Rescue, RunnerTerms, Runners,
    SnapshotSettings, warm,
};
use crate::engine::{Engine, VolumeName};
use crate::metrics::Metrics;
use crate::tenants::Tenants;

/// Everything that a pool needs to start.
pub struct PoolConfig {
    /// How many containers there may be, and how long each step may take.
    pub settings: PoolSettings,
    /// What the containers of each runner may use, and which images the operator chose.
    pub runners: RunnerTerms,
    /// The owner of all containers: the store's random id, in hexadecimal.
    pub owner: String,
    /// How the daemon identifies itself to each container's agent.
    pub terms: AgentTerms,
    /// What each container finds beside the agent.
    pub agent_files: AgentFiles,
    /// Whether the warm parts of images are loaded.
    pub warm_parts: bool,
    /// Snapshots of warm parts; `None` for a pool without a store, which takes none.
    pub snapshots: Option<SnapshotSettings>,
    /// The workspaces that an earlier daemon kept for sessions, or had in the container of one.
    pub workspaces: BTreeSet<VolumeName>,
    /// Reads containers of an earlier daemon that cannot be taken over, before they are removed.
    pub rescue: Option<Arc<dyn Rescue>>,
    /// Which tenants have spent their CPU credits, and what their parts are.
    pub tenants: Arc<Tenants>,
    /// Counts leases and starts.
    pub metrics: Metrics,
}

impl Pool {
    /// Finds the runners, proves the confinement, takes over or removes what an earlier daemon of this owner
    /// left, and begins to keep containers warm. Without any runner image the pool starts all the same and
    /// waits for one.
    ///
    /// # Errors
    /// See [`PoolError`].
    pub async fn start(engine: Engine, config: PoolConfig) -> Result<(Self, Adopted), PoolError> {
        let (sender, messages) = mpsc::unbounded_channel();
        let (runners, runners_now) = latest::channel(Arc::new(Runners::new()));
        let mut watch = watch::EngineWatch::new(engine.clone(), &config, sender.clone());
        let engine_up = watch.engine_up();
        let fatal = watch.fatal();
        let machine = watch.machine();
        let FirstLook { blueprint, found, survivors, workspaces, whole, checks, disk } =
            watch.first_look().await?;
        let (restore_news, news) = mpsc::unbounded_channel();
        let warming = warm::Warming::of(&engine, Some(restore_news)).await;
        let settings = config.settings.clone();
        let layers =
            blueprint.layers.clone().map(|volume| Layers::new(engine.clone(), volume, blueprint.clone()));
        let (starved, starved_now) = latest::channel(0);
        let (crowded, crowded_now) = latest::channel(false);
        let (kept_engine, metrics) = (engine.clone(), config.metrics.clone());
        let version = blueprint.agent.to_string();
        let runtimes = blueprint.runtimes.clone();
        let weights = Arc::new(Weights::new(config.tenants));
        let mut driver = PoolDriver {
            engine,
            blueprint,
            terms: config.terms,
            metrics: config.metrics,
            core: PoolCore::new(config.settings),
            messages,
            sender: sender.clone(),
            runners,
            starved,
            crowded,
            by_id: HashMap::new(),
            members: HashMap::new(),
            waiters: HashMap::new(),
            removals: Arc::new(Semaphore::new(REMOVALS)),
            warming,
            made: HashMap::new(),
            next_runner: 0,
            workspaces: Workspaces::default(),
            weights: weights.clone(),
            discarding: 0,
            closing: false,
        };
        let kept = workspaces.iter().map(|workspace| workspace.name.clone()).collect();
        // First: no container may get the UID of a workspace.
        workspaces.into_iter().for_each(|workspace| driver.keep(workspace));
        let adopted = Adopted { containers: driver.found(found, survivors), workspaces: kept };
        let (finished, done) = latest::channel(false);
        let watching = tokio::spawn(watch.run());
        tokio::spawn(async move {
            driver.run().await;
            watching.abort();
            finished.send_replace(true);
        });
        let (states, snapshots) = latest::channel(BTreeMap::new());
        let pool = Self {
            sender: sender.clone(),
            runners: runners_now,
            next_waiter: Arc::default(),
            done,
            fatal,
            engine_up,
            starved: starved_now,
            crowded: crowded_now,
            runtimes: runtimes.clone(),
            settings,
            layers,
            weights,
            snapshots,
            ending: CancellationToken::new(),
            tasks: TaskTracker::new(),
        };
        pool.tasks.spawn(pool.weights.clone().run(kept_engine.clone(), pool.ending.clone()));
        if let Some(settings) = config.snapshots {
            let keeper = SnapshotKeeper {
                settings,
                pool: pool.clone(),
                engine: kept_engine,
                owner: config.owner,
                version,
                runtimes,
                disk,
                whole,
                checks,
                runners: pool.runners.clone(),
                machine,
                news,
                sender,
                states,
                metrics,
            };
            pool.tasks.spawn(keeper.run(pool.ending.clone()));
        }
        pool.tasks.close();
        Ok((pool, adopted))
    }
}
