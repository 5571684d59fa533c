//! Follows the engine: which images it has, which containers ended, whether it answers, and whether it has
//! containers or volumes of ours that belong to no member.
//!
//! It must never let a runner into the pool before a container has been proved to be confined.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use paddock_proto::message::Machine;
use tokio::sync::{mpsc, oneshot, watch as latest};
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;
use tracing::{info, warn};

use super::agent::AgentFiles;
use super::core::Uid;
use super::driver::DriverMessage;
use super::leftovers::{Leftovers, Survivor};
use super::reach::Reachability;
use super::restored;
use super::runner::{self, Runner};
use super::snapshots::{self, SnapshotChecks, SnapshotSettings, WholeSnapshots};
use super::spec::Blueprint;
use super::workspaces::Workspace;
use super::{AgentTerms, PoolConfig, PoolError, Rescue, RunnerTerms, agent, disk, proof};
use crate::degradation::Degradation;
use crate::engine::{
    ContainerAction, Engine, EngineInfo, EventFilter, EventKind, EventStreamItem, Occurrence, VolumeName,
};
use crate::metrics::Metrics;

/// Image events come in groups (a build tags and untags): so long after the last one, one look serves them
/// all.
const SETTLE: Duration = Duration::from_millis(200);

/// The time of the first sweep after the start, and after the engine answers again: by then it may have
/// carried out calls whose answers never came.
const FIRST_SWEEP: Duration = Duration::from_secs(5);

/// The pause between two sweeps.
const SWEEP: Duration = Duration::from_secs(60);

pub(super) struct EngineWatch {
    engine: Engine,
    owner: String,
    terms: AgentTerms,
    agent_files: AgentFiles,
    runners: RunnerTerms,
    warm_parts: bool,
    /// The UIDs of containers. The throwaway container of the proof gets a UID that no other container has.
    uids: std::ops::RangeInclusive<u32>,
    /// The workspaces that the notes of sessions name.
    noted: BTreeSet<VolumeName>,
    rescue: Option<Arc<dyn Rescue>>,
    sender: mpsc::UnboundedSender<DriverMessage>,
    reach: Arc<Reachability>,
    fatal: latest::Sender<Option<Arc<PoolError>>>,
    proved: bool,
    /// Whether the proof saw that containers keep the programs of one run out of the memory of another.
    separates_runs: Arc<AtomicBool>,
    /// Whether the engine maps users, see [`Blueprint`].
    maps_users: bool,
    warned: Vec<String>,
    /// The runners of the last look.
    found: BTreeMap<String, Runner>,
    /// What the proof saw of the machine.
    machine: latest::Sender<Option<Machine>>,
    snapshots: Option<SnapshotSettings>,
    metrics: Metrics,
}

/// What an earlier daemon left, and what the engine has.
pub(super) struct FirstLook {
    pub(super) blueprint: Arc<Blueprint>,
    pub(super) found: Vec<Runner>,
    pub(super) survivors: Vec<Survivor>,
    pub(super) workspaces: Vec<Workspace>,
    /// The snapshots that an earlier daemon took, as far as they were found whole by now.
    pub(super) whole: WholeSnapshots,
    /// The others are compared with their digests meanwhile.
    pub(super) checks: SnapshotChecks,
    /// The engine's default runtime.
    pub(super) runtime: String,
    /// What keeps volumes within their size on the engine's disk.
    pub(super) disk: disk::DiskBound,
}

impl EngineWatch {
    pub(super) fn new(
        engine: Engine,
        config: &PoolConfig,
        sender: mpsc::UnboundedSender<DriverMessage>,
    ) -> Self {
        Self {
            engine,
            owner: config.owner.clone(),
            terms: config.terms.clone(),
            agent_files: config.agent_files.clone(),
            runners: config.runners.clone(),
            warm_parts: config.warm_parts,
            uids: config.settings.uid_range.clone(),
            noted: config.workspaces.clone(),
            rescue: config.rescue.clone(),
            reach: Arc::new(Reachability::new(sender.clone())),
            sender,
            fatal: latest::Sender::new(None),
            proved: false,
            separates_runs: Arc::default(),
            maps_users: false,
            warned: Vec::new(),
            found: BTreeMap::new(),
            machine: latest::Sender::new(None),
            snapshots: config.snapshots.clone(),
            metrics: config.metrics.clone(),
        }
    }

    pub(super) fn engine_up(&self) -> latest::Receiver<bool> {
        self.reach.up()
    }

    /// What is known of the machine; whoever looks again says so here.
    pub(super) fn machine(&self) -> latest::Sender<Option<Machine>> {
        self.machine.clone()
    }

    pub(super) fn separates_runs(&self) -> Arc<AtomicBool> {
        self.separates_runs.clone()
    }

    pub(super) fn fatal(&self) -> latest::Receiver<Option<Arc<PoolError>>> {
        self.fatal.subscribe()
    }

    /// The first look, before the pool serves anyone: proves the confinement and takes over the containers
    /// and workspaces of an earlier daemon.
    pub(super) async fn first_look(&mut self) -> Result<FirstLook, PoolError> {
        let info = self.engine.info().await?;
        self.maps_users = info.maps_users();
        self.look_at_mounts(&info).await?;
        self.runners.disk = disk::bound(&self.engine, &self.owner).await?;
        let blueprint = self.blueprint()?;
        // The engine may have been restarted while there was no daemon.
        restored::repair_mount_counts(&self.engine, &blueprint.owned()).await;
        // In a task of its own: the daemon serves before it has read all of them.
        let mut checks =
            SnapshotChecks::begin(&self.engine, &self.owner, self.snapshots.as_ref(), &self.metrics);
        let left = Leftovers::find(&self.engine, &blueprint.owned()).await?;
        let uid = left.free_uid(&self.uids);
        let found = self.look(&blueprint, uid).await?;
        let whole = checks.whole_by_now();
        let version = blueprint.agent.to_string();
        let (machine, runtime) = (self.machine.borrow().clone(), info.default_runtime.clone());
        let found = whole.given_to(found, machine.as_ref(), (&version, &runtime));
        let mountable = snapshots::mountable(&self.engine, &self.owner, self.snapshots.as_ref()).await?;
        let variants: Vec<Runner> =
            found.iter().flat_map(|runner| snapshots::variants(runner, &mountable)).collect();
        let kept = (&self.noted, &self.uids);
        let rescue = self.rescue.clone();
        let (survivors, workspaces) = left.take_over(&blueprint, &variants, &self.terms, kept, rescue).await;
        // Only now: the containers of an earlier build, which used its volume, are gone, but for those in
        // which programs still run.
        agent::remove_outdated(&self.engine, &self.owner, &self.agent_files).await;
        if !survivors.is_empty() {
            info!(containers = survivors.len(), "containers of an earlier daemon live on");
        }
        let disk = self.runners.disk;
        Ok(FirstLook { blueprint, found, survivors, workspaces, whole, checks, runtime, disk })
    }

    /// Refuses to start with a folder that cannot be mounted: programs would miss it without a word.
    async fn look_at_mounts(&self, info: &EngineInfo) -> Result<(), PoolError> {
        let closed: Vec<_> = info.root().into_iter().collect();
        for mount in &self.runners.mounts {
            mount.look(&closed).await?;
            if let Some(who) = mount.replaceable_by() {
                warn!(mount = mount.name, "what programs read there can be replaced by {who}");
            }
        }
        Ok(())
    }

    fn blueprint(&self) -> Result<Arc<Blueprint>, PoolError> {
        let agent = self.agent_files.volume_name().map_err(PoolError::Agent)?;
        let (owner, files) = (self.owner.clone(), self.agent_files.clone());
        let layers = self.runners.packages.and_then(|_| super::layers::volume_name(&owner));
        Ok(Arc::new(Blueprint { owner, agent, files, layers, maps_users: self.maps_users }))
    }

    /// Finds the runners. When it finds the first ones, it also stores the agent on the engine and runs the
    /// proof.
    async fn look(&mut self, blueprint: &Blueprint, uid: Uid) -> Result<Vec<Runner>, PoolError> {
        let found = runner::find(&self.engine, &self.runners, self.warm_parts, &self.found).await?;
        let refuses = !found.warnings.is_empty();
        for warning in found.warnings {
            if !self.warned.contains(&warning) {
                warn!("{warning}");
                self.warned.push(warning);
            }
        }
        self.metrics.degradations().note(Degradation::ImageRefused, refuses);
        self.found = found.runners.clone();
        let runners: Vec<Runner> = found.runners.into_values().collect();
        // A language if there is one: the container of a coding agent is large.
        let Some(first) = runners.iter().min_by_key(|runner| runner.coding_agent) else {
            warn!("no runner image found: none has the label {}; `make images` builds ours", runner::LABEL);
            return Ok(runners);
        };
        if !self.proved {
            agent::ensure(&self.engine, &first.image_id, &blueprint.owned(), &self.agent_files).await?;
            let first = Arc::new(first.clone());
            let facts = proof::prove(&self.engine, blueprint, &first, uid, &self.terms).await?;
            info!(image = first.image, landlock = facts.landlock, "containers are confined as they must be");
            if !facts.separates {
                warn!("without Landlock, a run that has a network is alone in its session");
            }
            self.separates_runs.store(facts.separates, Ordering::Relaxed);
            self.machine.send_replace(Some(facts.machine));
            self.proved = true;
        }
        Ok(runners)
    }

    /// Follows the engine until the pool has ended.
    pub(super) async fn run(mut self) {
        let Ok(blueprint) = self.blueprint() else { return };
        let filter = EventFilter {
            kinds: vec![EventKind::Container, EventKind::Image],
            actions: ["die", "pause", "tag", "untag", "delete", "import", "load", "pull"]
                .map(String::from)
                .to_vec(),
            ..EventFilter::default()
        };
        let mut events = self.engine.events(filter);
        let (reach, engine) = (self.reach.clone(), self.engine.clone());
        // In a task of its own, since a call to an engine that hangs may hold this one up.
        let _pinging = AbortOnDropHandle::new(tokio::spawn(async move { reach.watch(&engine).await }));
        let mut up = self.reach.up();
        let mut look_again = false;
        let mut sweep_at = Instant::now() + FIRST_SWEEP;
        let mut sweeping = None;
        loop {
            let next = async {
                if look_again {
                    tokio::time::timeout(SETTLE, events.next()).await.ok()
                } else {
                    Some(events.next().await)
                }
            };
            let followed = tokio::select! {
                followed = next => followed,
                Ok(()) = up.changed() => {
                    if *up.borrow_and_update() {
                        look_again = true;
                        sweep_at = Instant::now() + FIRST_SWEEP;
                    }
                    continue;
                }
                () = tokio::time::sleep_until(sweep_at), if *up.borrow() => {
                    // In a task of its own: an engine that died while it started a container may take long to
                    // remove that, and no event may wait for it.
                    if sweeping.as_ref().is_none_or(AbortOnDropHandle::is_finished) {
                        let (engine, sender) = (self.engine.clone(), self.sender.clone());
                        let sweep = sweep(engine, sender, blueprint.clone());
                        sweeping = Some(AbortOnDropHandle::new(tokio::spawn(sweep)));
                    }
                    sweep_at = Instant::now() + SWEEP;
                    continue;
                }
            };
            let Some(followed) = followed else {
                look_again = !self.look_again(&blueprint).await;
                if look_again {
                    tokio::time::sleep(SETTLE).await;
                }
                continue;
            };
            match followed {
                EventStreamItem::Connected => look_again = true,
                EventStreamItem::Reconnected => {
                    // Before the pool learns of it, since the pool then removes containers.
                    restored::repair_mount_counts(&self.engine, &blueprint.owned()).await;
                    self.reach.reconnected();
                    look_again = true;
                    sweep_at = Instant::now() + FIRST_SWEEP;
                }
                EventStreamItem::Disconnected(error) => self.reach.lost(&error),
                EventStreamItem::Event(event) => match event.what {
                    // The daemon pauses only containers that it has given up. Any other paused container
                    // counts as ended, since its agent cannot answer.
                    Occurrence::Container {
                        id,
                        action: ContainerAction::Die { .. } | ContainerAction::Pause,
                        ..
                    } => {
                        let _ = self.sender.send(DriverMessage::Ended(id));
                    }
                    Occurrence::Image { .. } => look_again = true,
                    Occurrence::Container { .. } | Occurrence::Volume { .. } => {}
                },
            }
        }
    }

    /// Looks for runners again. False if that failed and must be repeated.
    async fn look_again(&mut self, blueprint: &Blueprint) -> bool {
        // A proof runs only with the first runners, when no container of the pool has a UID yet.
        match self.look(blueprint, Uid(*self.uids.end())).await {
            Ok(found) => {
                let _ = self.sender.send(DriverMessage::Found(found));
                true
            }
            Err(PoolError::Engine(error)) => {
                warn!(%error, "the images could not be listed");
                !self.reach.is_up()
            }
            Err(error) => {
                self.fatal.send_replace(Some(Arc::new(error)));
                true
            }
        }
    }
}

/// Removes everything of this owner that has no member's name: the engine made it after the daemon had
/// stopped waiting for the answer.
async fn sweep(engine: Engine, sender: mpsc::UnboundedSender<DriverMessage>, blueprint: Arc<Blueprint>) {
    let Ok(left) = Leftovers::find(&engine, &blueprint.owned()).await else { return };
    let (reply, names) = oneshot::channel();
    let _ = sender.send(DriverMessage::Names(reply));
    if let Ok(names) = names.await {
        let removed = left.remove_all_but(&names).await;
        if removed > 0 {
            warn!(removed, "removed containers or volumes that belonged to no member of the pool");
        }
    }
}
