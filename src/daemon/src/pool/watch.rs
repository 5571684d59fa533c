//! Follows the engine: which images it has, which containers ended, whether it answers, and whether it has
//! containers or volumes of ours that belong to no member.
//!
//! It must never let a runner into the pool before a container has been proved to be confined.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use paddock_proto::message::{Machine, ProbeReport};
use tokio::sync::{mpsc, oneshot, watch as latest};
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;
use tracing::{info, warn};

use super::agent::AgentFiles;
use super::bounds::Bounds;
use super::core::Uid;
use super::driver::DriverMessage;
use super::leftovers::{Leftovers, Survivor};
use super::proof::ProofError;
use super::reach::Reachability;
use super::restored;
use super::runner::{self, Runner};
use super::runtimes::{self, RuntimeFacts, Runtimes};
use super::snapshots::{self, SnapshotChecks, SnapshotSettings, WholeSnapshots};
use super::spec::Blueprint;
use super::workspaces::Workspace;
use super::{AgentTerms, PoolConfig, PoolError, Rescue, RunnerTerms, agent, disk, loopback, proof};
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
    /// Whether the engine maps users, and to which, see [`Blueprint`].
    maps_users: bool,
    first_user: (u32, u32),
    /// The kernel of its containers, as it says itself.
    kernel: String,
    runtimes: Runtimes,
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
            maps_users: false,
            first_user: (0, 0),
            kernel: String::new(),
            runtimes: Runtimes::default(),
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

    pub(super) fn fatal(&self) -> latest::Receiver<Option<Arc<PoolError>>> {
        self.fatal.subscribe()
    }

    /// The first look, before the pool serves anyone: proves the confinement and takes over the containers
    /// and workspaces of an earlier daemon.
    pub(super) async fn first_look(&mut self) -> Result<FirstLook, PoolError> {
        let info = self.engine.info().await?;
        self.maps_users = info.maps_users();
        self.first_user = info.first_user();
        self.kernel.clone_from(&info.kernel_version);
        self.runtimes = Runtimes::new(&info.default_runtime);
        runtimes::unknown(&info, self.runners.runtimes())?;
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
        let machine = self.machine.borrow().clone();
        let found = whole.given_to(found, machine.as_ref(), (&version, &self.runtimes));
        let mountable = snapshots::mountable(&self.engine, &self.owner, self.snapshots.as_ref()).await?;
        let variants: Vec<Runner> =
            found.iter().flat_map(|runner| snapshots::variants(runner, &mountable)).collect();
        let kept = (&self.noted, &self.uids);
        let rescue = self.rescue.clone();
        let (survivors, workspaces) = left.take_over(&blueprint, &variants, &self.terms, kept, rescue).await;
        // Only now: the containers of an earlier build, which used its volume, are gone, but for those in
        // which programs still run.
        agent::remove_outdated(&self.engine, &self.owner, &blueprint.agents()).await;
        if !survivors.is_empty() {
            info!(containers = survivors.len(), "containers of an earlier daemon live on");
        }
        let disk = self.runners.disk;
        Ok(FirstLook { blueprint, found, survivors, workspaces, whole, checks, disk })
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
        let layers = self.runners.packages.and_then(|_| super::layers::volume_name(&self.owner));
        Ok(Arc::new(Blueprint {
            owner: self.owner.clone(),
            agent: self.agent_files.volume_name().map_err(PoolError::Agent)?,
            readable: self.agent_files.readable().volume_name().map_err(PoolError::Agent)?,
            files: self.agent_files.clone(),
            layers,
            maps_users: self.maps_users,
            first_user: self.first_user,
            runtimes: self.runtimes.clone(),
        }))
    }

    /// Finds the runners. When it finds the first ones, it also stores the agent on the engine and runs the
    /// proof.
    async fn look(&mut self, blueprint: &Blueprint, uid: Uid) -> Result<Vec<Runner>, PoolError> {
        let found = runner::find(&self.engine, &self.runners, self.warm_parts, &self.found).await?;
        // Before the log says why: whoever reads that line and asks `/ready` finds it there.
        self.metrics.degradations().note(Degradation::ImageRefused, !found.warnings.is_empty());
        for warning in found.warnings {
            if !self.warned.contains(&warning) {
                warn!("{warning}");
                self.warned.push(warning);
            }
        }
        self.found = found.runners.clone();
        let runners: Vec<Runner> = found.runners.into_values().collect();
        // A language if there is one: the container of a coding agent is large.
        let Some(first) = runners.iter().min_by_key(|runner| runner.coding_agent) else {
            warn!("no runner image found: none has the label {}; `make images` builds ours", runner::LABEL);
            return Ok(runners);
        };
        if !self.proved {
            // Every runtime that is asked for, even if no image uses it yet: no container of it is made
            // before.
            let asked = self.runners.runtimes().into_iter().map(|(_, name)| name);
            for runtime in asked.collect::<BTreeSet<_>>() {
                self.prove(blueprint, first, &runtime, uid).await?;
            }
            self.proved = true;
        }
        Ok(runners)
    }

    /// Proves the confinement of containers of this runtime, with the image of this runner.
    async fn prove(
        &self,
        blueprint: &Blueprint,
        first: &Runner,
        runtime: &str,
        uid: Uid,
    ) -> Result<(), PoolError> {
        if self.runtimes.facts(runtime).is_some() {
            return Ok(()); // it is the engine's default
        }
        let name = self.runtimes.name(runtime).to_owned();
        let bounds = Bounds { runtime: runtime.to_owned(), ..first.bounds.clone() };
        let runner = Arc::new(Runner { bounds, ..first.clone() });
        let prove = async || -> Result<ProbeReport, PoolError> {
            let labels = agent::labels(Some(&self.owner));
            agent::ready(&self.engine, &runner.image_id, blueprint, runtime, labels).await?;
            Ok(proof::prove(&self.engine, blueprint, &runner, uid, &self.terms).await?)
        };
        let facts = match prove().await {
            Err(PoolError::Proof(ProofError::Start { error, .. })) if runtimes::could_not_read(&error) => {
                info!(runtime = name, "it starts only programs that everybody may read");
                self.runtimes.reads(runtime);
                // The files are mounted from the other volume, which no container has any more.
                loopback::leave_to_engine(&self.runtimes, runtime);
                prove().await?
            }
            Err(PoolError::Proof(error))
                if error.may_be_the_network() && loopback::leave_to_engine(&self.runtimes, runtime) =>
            {
                warn!(runtime = name, %error, "with a loopback of the runtime's: now the engine makes it");
                prove().await?
            }
            proved => proved?,
        };
        let (image, landlock) = (&first.image, facts.landlock);
        info!(image, runtime = name, landlock, "containers are confined as they must be");
        for lack in runtimes::lacks(&facts, &self.kernel) {
            warn!(runtime = name, "{lack}");
        }
        let seen = RuntimeFacts::of(&facts, &self.kernel);
        if !seen.separates && seen.shares_kernel {
            warn!("without Landlock, a run that has a network is alone in its session");
        }
        self.runtimes.proved(runtime, seen);
        // Snapshots are taken and restored where the kernel is the engine's: that machine counts.
        if seen.shares_kernel || self.machine.borrow().is_none() {
            self.machine.send_replace(Some(facts.machine));
        }
        Ok(())
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
                        loopback::follow(&self.engine, &blueprint).await;
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
