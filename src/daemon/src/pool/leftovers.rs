//! What an engine holds of this owner: at the start taken over where it is still what would be made now, removed
//! otherwise; later, whatever nobody here knows of.
//!
//! It must never touch what does not carry the owner's label, nor keep a container of which it is not known what
//! ran in it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use tokio::task::JoinSet;
use tracing::{info, warn};

use super::REMOVALS;
use super::container::{Armed, destroy, gone};
use super::core::Uid;
use super::runner::Runner;
use super::secret::AgentTerms;
use super::spec::{Blueprint, Mark};
use crate::engine::{ContainerId, ContainerStatus, Engine, EngineError, VolumeName};
use crate::link::{Bridge, Greeting, Link};

/// Before one that did not answer is asked again: it can hold what nobody saved.
const AGAIN: Duration = Duration::from_secs(1);

/// A container of an earlier daemon that is armed again.
pub(super) struct Survivor {
    pub(super) armed: Armed,
    /// What its agent says happened in it.
    pub(super) greeting: Greeting,
}

/// What an engine holds of one owner.
pub(super) struct Leftovers {
    engine: Engine,
    /// Of every container: its id, whether it runs, and what its labels say.
    containers: Vec<(ContainerId, bool, Option<Mark>)>,
    volumes: Vec<VolumeName>,
}

impl Leftovers {
    /// Looks.
    ///
    /// # Errors
    /// The engine's.
    pub(super) async fn find(engine: &Engine, owned: &[String; 2]) -> Result<Self, EngineError> {
        let containers = engine.container_list(owned).await?.into_iter();
        let containers =
            containers.map(|c| (c.id, c.state == ContainerStatus::Running, Mark::of(&c.labels))).collect();
        let volumes = engine.volume_list(owned).await?.into_iter().map(|volume| volume.name).collect();
        Ok(Self { engine: engine.clone(), containers, volumes })
    }

    /// UIDs that its containers have.
    pub(super) fn uids(&self) -> BTreeSet<Uid> {
        self.containers.iter().filter_map(|(.., mark)| Some(mark.as_ref()?.uid)).collect()
    }

    /// Arms those again that run and are what `runners` would be now, and removes all others. One that does not
    /// answer, or in which code ran for a session that it does not know, is removed as well.
    pub(super) async fn take_over(
        self,
        blueprint: &Blueprint,
        runners: &[Runner],
        terms: &AgentTerms,
    ) -> Vec<Survivor> {
        let specs: BTreeMap<String, Arc<Runner>> =
            runners.iter().map(|runner| (blueprint.hash(runner), Arc::new(runner.clone()))).collect();
        let mut arming = JoinSet::new();
        let (mut kept, mut others) = (BTreeSet::new(), Vec::new());
        for (id, running, mark) in self.containers {
            let mark = mark.filter(|_| running);
            let runner = mark.as_ref().and_then(|mark| specs.get(&mark.spec)).cloned();
            let (Some(Mark { name, uid, .. }), Some(runner)) = (mark, runner) else {
                others.push(id);
                continue;
            };
            kept.insert(name.clone());
            let (engine, terms) = (self.engine.clone(), terms.of(&name));
            arming.spawn(async move {
                let open =
                    || Link::open(Bridge { engine: engine.clone(), container: id.clone() }, terms.clone());
                let mut opened = open().await;
                if opened.is_err() {
                    tokio::time::sleep(AGAIN).await;
                    opened = open().await;
                }
                let (why, greeting) = match opened {
                    Ok((link, greeting)) if greeting.claim.is_some() || !greeting.ran => {
                        let armed = Armed { engine, id, name, uid, runner, link };
                        return Some(Survivor { armed, greeting });
                    }
                    Ok((_, greeting)) => ("code ran in it for nobody".to_owned(), Some(greeting)),
                    Err(error) => (error.to_string(), None),
                };
                warn!(name = %name, why, ?greeting, "a container of an earlier daemon is not taken over");
                remove(&engine, Some(&name), Some(&id)).await;
                None
            });
        }
        // Gone before the pool begins: it may give their UIDs to others.
        let volumes = self.volumes.into_iter().filter(|name| !kept.contains(name)).collect();
        remove_all(&self.engine, others, volumes).await;
        arming.join_all().await.into_iter().flatten().collect()
    }

    /// Removes everything but what has one of these names; how many that was. Only for what was looked at before
    /// the names were: a container that is being made now has its name already.
    pub(super) async fn remove_all_but(self, names: &BTreeSet<VolumeName>) -> usize {
        let stray = |mark: &Option<Mark>| !mark.as_ref().is_some_and(|mark| names.contains(&mark.name));
        let containers = self.containers.into_iter().filter(|(.., mark)| stray(mark)).map(|(id, ..)| id);
        let volumes = self.volumes.into_iter().filter(|name| !names.contains(name)).collect();
        remove_all(&self.engine, containers.collect(), volumes).await
    }
}

/// Some at a time: the engine gets slower with more. How many went.
async fn remove_all(engine: &Engine, containers: Vec<ContainerId>, volumes: Vec<VolumeName>) -> usize {
    let containers = stream::iter(containers)
        .map(|id| async move { remove(engine, None, Some(&id)).await })
        .buffer_unordered(REMOVALS);
    let gone = containers.filter(|gone| std::future::ready(*gone)).count().await;
    let volumes = stream::iter(volumes)
        .map(|name| async move { remove(engine, Some(&name), None).await })
        .buffer_unordered(REMOVALS);
    gone + volumes.filter(|gone| std::future::ready(*gone)).count().await
}

/// Removes a container, and the volume of its name; what does not go now goes at the next sweep.
async fn remove(engine: &Engine, name: Option<&VolumeName>, id: Option<&ContainerId>) -> bool {
    let done = match (name, id) {
        (Some(name), Some(id)) => destroy(engine, name, Some(id)).await,
        (Some(name), None) => gone(engine.volume_remove(name).await),
        (None, Some(id)) => gone(engine.container_remove(id).await),
        (None, None) => Ok(()),
    };
    let name = name.map(tracing::field::display);
    let container = id.map(tracing::field::display);
    match done {
        Ok(()) => info!(name, container, "removed a leftover"),
        Err(error) => {
            warn!(name, container, %error, "a leftover could not be removed yet");
            return false;
        }
    }
    true
}
