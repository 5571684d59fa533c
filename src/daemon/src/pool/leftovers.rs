//! Containers and volumes of this owner on the engine. At the start the daemon takes over each container that
//! it would make in the same way now, keeps the workspaces that the notes of its sessions name, and removes
//! all else; later it removes whatever belongs to no member of the pool and to no kept workspace.
//!
//! It must never touch anything that lacks the owner's label, nor keep a container if it does not know what
//! ran in it, nor make a container idle that has files of a session, nor remove the container of a session
//! for the state of its snapshot.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use tokio::task::JoinSet;
use tracing::{debug, info, warn};

use super::REMOVALS;
use super::container::{ArmedContainer, destroy, gone};
use super::core::Uid;
use super::disk::{DataPlace, DiskBound, home_of};
use super::hollow;
use super::rescue::{self, LostContainer, Rescue};
use super::restored::is_miscounted;
use super::runner::Runner;
use super::secret::AgentTerms;
use super::spec::{Blueprint, ContainerLabels, container_of, workspace_of};
use super::workspaces::Workspace;
use crate::engine::{ContainerId, ContainerStatus, Engine, EngineError, VolumeName};
use crate::link::{Bridge, Greeting, Link};

/// The pause before the second and last attempt to reach an agent. One failure is not enough to remove a
/// container, since it can hold files that nobody has saved.
const SECOND_ATTEMPT_AFTER: Duration = Duration::from_secs(1);

/// A container of an earlier daemon that is armed again.
pub(super) struct Survivor {
    pub(super) armed: ArmedContainer,
    /// What its agent reports about its past.
    pub(super) greeting: Greeting,
}

/// The containers and volumes of one owner on an engine.
pub(super) struct Leftovers {
    engine: Engine,
    /// Each container's id, its status, and its labels.
    containers: Vec<(ContainerId, ContainerStatus, Option<ContainerLabels>)>,
    volumes: Vec<FoundVolume>,
}

struct FoundVolume {
    name: VolumeName,
    /// The name of the container that it belongs to.
    of: VolumeName,
    /// The workspace that it has, if it is at `/data`.
    workspace: Option<Workspace>,
}

impl Leftovers {
    /// Lists them.
    ///
    /// # Errors
    /// The engine's.
    pub(super) async fn find(engine: &Engine, owned: &[String; 2]) -> Result<Self, EngineError> {
        let containers = engine.container_list(owned).await?.into_iter();
        let containers = containers.map(|c| (c.id, c.state, ContainerLabels::of(&c.labels))).collect();
        let volumes = engine.volume_list(owned).await?.into_iter();
        let volumes = volumes.map(|volume| {
            let workspace = workspace_of(&volume);
            FoundVolume { name: volume.name.clone(), of: container_of(volume), workspace }
        });
        let volumes = volumes.collect();
        Ok(Self { engine: engine.clone(), containers, volumes })
    }

    /// A UID of `range` that no container and no volume has: the highest, since the pool gives out the lowest
    /// first. If all are in use, the last one.
    pub(super) fn free_uid(&self, range: &RangeInclusive<u32>) -> Uid {
        let containers = self.containers.iter().filter_map(|(.., labels)| Some(labels.as_ref()?.uid.0));
        let volumes = self.volumes.iter().filter_map(|volume| Some(volume.workspace.as_ref()?.uid.0));
        let used: BTreeSet<u32> = containers.chain(volumes).collect();
        Uid(range.clone().rev().find(|uid| !used.contains(uid)).unwrap_or(*range.end()))
    }

    /// Arms every container again that runs and has the spec of one of these `variants` of runners. One with
    /// another spec is armed as well if it is among the `noted`, since programs of a session may run in it.
    /// All others are removed, as is a container whose agent does not answer, or in which code ran without a
    /// session; what only they have is given to `rescue` before. Of those that are removed the workspaces
    /// stay that are among the `noted` and have a UID of `uids`.
    pub(super) async fn take_over(
        self,
        blueprint: &Blueprint,
        variants: &[Runner],
        terms: &AgentTerms,
        (noted, uids): (&BTreeSet<VolumeName>, &RangeInclusive<u32>),
        rescue: Option<Arc<dyn Rescue>>,
    ) -> (Vec<Survivor>, Vec<Workspace>) {
        let specs: BTreeMap<String, Arc<Runner>> =
            variants.iter().map(|runner| (blueprint.hash(runner), Arc::new(runner.clone()))).collect();
        let workspaces = self.workspaces(noted, uids);
        // A container whose `/data` lies on a disk has a volume for its home directory too.
        let volumes: BTreeSet<VolumeName> = self.volumes.iter().map(|volume| volume.name.clone()).collect();
        let lies_on_disk = |name: &VolumeName| home_of(name).is_some_and(|home| volumes.contains(&home));
        let mut taking = JoinSet::new();
        let (mut kept, mut others) = (BTreeSet::new(), Vec::new());
        for (id, status, labels) in self.containers {
            let runs = status == ContainerStatus::Running;
            let is_noted = labels.as_ref().is_some_and(|labels| noted.contains(&labels.name));
            let found = labels.filter(|_| runs || (is_noted && status == ContainerStatus::Paused));
            let Some(labels) = found else {
                others.push(id);
                continue;
            };
            let is_on_disk = lies_on_disk(&labels.name);
            let same = specs.get(&labels.spec).cloned().map(|runner| (runner, false));
            let other = || {
                let is_usable = is_noted && uids.contains(&labels.uid.0);
                let runner =
                    variants.iter().find(|runner| is_usable && runner.language == labels.language)?;
                // Programs of another place are not bounded in the way that this runner says.
                let is_alike = is_on_disk == (runner.bounds.place != DataPlace::Memory);
                is_alike.then(|| (Arc::new(runner.clone()), true))
            };
            let runner = same.or_else(other).filter(|_| runs);
            if runner.is_none() && (!is_noted || is_on_disk) {
                others.push(id);
                continue;
            }
            kept.insert(labels.name.clone());
            let is_workspace = workspaces.iter().any(|workspace| workspace.name == labels.name);
            taking.spawn(
                Leftover { engine: self.engine.clone(), id, labels, is_noted, is_on_disk, is_workspace }
                    .take(runner, terms.clone(), rescue.clone()),
            );
        }
        // Removed before the pool begins, since it may give their UIDs to other containers.
        let is_workspace = |name: &VolumeName| workspaces.iter().any(|workspace| workspace.name == *name);
        let stays = |volume: &FoundVolume| kept.contains(&volume.of) || is_workspace(&volume.of);
        let volumes = self.volumes.into_iter().filter(|volume| !stays(volume)).map(|volume| volume.name);
        remove_all(&self.engine, others, volumes.collect()).await;
        let survivors: Vec<Survivor> = taking.join_all().await.into_iter().flatten().collect();
        let lives = |workspace: &Workspace| survivors.iter().any(|one| one.armed.name == workspace.name);
        let workspaces = workspaces.into_iter().filter(|workspace| !lives(workspace)).collect();
        (survivors, workspaces)
    }

    /// The volumes at `/data` of coding agents' containers that are among the `noted`.
    fn workspaces(&self, noted: &BTreeSet<VolumeName>, uids: &RangeInclusive<u32>) -> Vec<Workspace> {
        let is_ours =
            |workspace: &&Workspace| noted.contains(&workspace.name) && uids.contains(&workspace.uid.0);
        let all = self.volumes.iter().filter_map(|volume| volume.workspace.as_ref());
        all.filter(is_ours).cloned().collect()
    }

    /// Removes everything but the containers and volumes of these names, and counts what it removed. The
    /// names must have been asked for after [`Leftovers::find`], so that they include every container that
    /// the list can have.
    pub(super) async fn remove_all_but(self, names: &BTreeSet<VolumeName>) -> usize {
        let is_stray = |labels: &Option<ContainerLabels>| {
            !labels.as_ref().is_some_and(|labels| names.contains(&labels.name))
        };
        let containers =
            self.containers.into_iter().filter(|(.., labels)| is_stray(labels)).map(|(id, ..)| id);
        let volumes = self.volumes.into_iter().filter(|volume| !names.contains(&volume.of));
        let volumes = volumes.map(|volume| volume.name);
        remove_all(&self.engine, containers.collect(), volumes.collect()).await
    }
}

/// A container that may be taken over.
struct Leftover {
    engine: Engine,
    id: ContainerId,
    labels: ContainerLabels,
    /// Whether a session had it.
    is_noted: bool,
    /// Whether its `/data` lies on a disk, and so outlives it.
    is_on_disk: bool,
    /// Whether its volumes stay when it is removed.
    is_workspace: bool,
}

impl Leftover {
    /// Arms it, or removes it. `runner` is what it runs, and whether that was made in another way then;
    /// `None` for one that cannot be armed.
    async fn take(
        self,
        runner: Option<(Arc<Runner>, bool)>,
        terms: AgentTerms,
        rescue: Option<Arc<dyn Rescue>>,
    ) -> Option<Survivor> {
        let Self { engine, id, labels: ContainerLabels { name, uid, is_over, .. }, .. } = &self;
        let (why, greeting) = if let Some((runner, is_outdated)) = runner {
            let bridge = || Bridge { engine: engine.clone(), container: id.clone() };
            let mut opened = Link::open(bridge(), terms.of(name)).await;
            if opened.is_err() {
                tokio::time::sleep(SECOND_ATTEMPT_AFTER).await;
                opened = Link::open(bridge(), terms.of(name)).await;
            }
            match opened {
                // An idle one that is outdated is of no use.
                Ok((link, greeting))
                    if greeting.claim.is_some() || !(greeting.ran || *is_over || is_outdated) =>
                {
                    let (engine, id, name) = (engine.clone(), id.clone(), name.clone());
                    let warm = Arc::default();
                    let armed =
                        ArmedContainer { engine, id, name, uid: *uid, runner, link, warm, is_outdated };
                    return Some(Survivor { armed, greeting });
                }
                Ok((_, greeting)) => {
                    let why =
                        if is_outdated { "it is outdated" } else { "it was used, and no session has it" };
                    (why.to_owned(), Some(greeting))
                }
                Err(error) => (error.to_string(), None),
            }
        } else {
            ("it cannot be armed by this daemon".to_owned(), None)
        };
        warn!(%name, why, ?greeting, "a container of an earlier daemon is not taken over");
        if self.is_noted && !self.is_on_disk && greeting.is_none() {
            let lost = LostContainer { engine: engine.clone(), id: id.clone(), name: name.clone() };
            rescue::rescue(rescue.as_deref(), lost).await;
        }
        let place = if self.is_on_disk { DataPlace::Disk(DiskBound::Watched) } else { DataPlace::Memory };
        remove(engine, (!self.is_workspace).then_some((name, place)), Some(id)).await;
        None
    }
}

/// Removes these containers, then these volumes, [`REMOVALS`] at a time, and counts what it removed.
async fn remove_all(engine: &Engine, containers: Vec<ContainerId>, volumes: Vec<VolumeName>) -> usize {
    let containers = stream::iter(containers)
        .map(|id| async move { remove(engine, None, Some(&id)).await })
        .buffer_unordered(REMOVALS);
    let gone = containers.filter(|gone| std::future::ready(*gone)).count().await;
    let volumes = stream::iter(volumes)
        .map(|name| async move { remove(engine, Some((&name, DataPlace::Memory)), None).await })
        .buffer_unordered(REMOVALS);
    gone + volumes.filter(|gone| std::future::ready(*gone)).count().await
}

/// Removes a container, or a volume, or both; the next sweep tries again if that fails. Whether it was
/// removed.
async fn remove(engine: &Engine, name: Option<(&VolumeName, DataPlace)>, id: Option<&ContainerId>) -> bool {
    let done = match (name, id) {
        (Some((name, place)), Some(id)) => destroy(engine, name, Some(id), place).await,
        (Some((name, _)), None) => hollow::remove_volume(engine, name).await,
        (None, Some(id)) => gone(engine.container_remove(id).await),
        (None, None) => Ok(()),
    };
    let name = name.map(|(name, _)| tracing::field::display(name));
    let container = id.map(tracing::field::display);
    match done {
        Ok(()) => info!(name, container, "removed a leftover"),
        // The log has a warning from the removal of its container; every sweep comes here again.
        Err(error) if is_miscounted(&error) => {
            debug!(name, container, %error, "the engine still keeps an empty volume");
            return false;
        }
        Err(error) => {
            warn!(name, container, %error, "a leftover could not be removed yet");
            return false;
        }
    }
    true
}
