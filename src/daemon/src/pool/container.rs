//! The life of one container: planned → created → started → armed, and its removal.
//!
//! It must never leave half a container that nobody can find: everything is made under the plan's name, by
//! which [`destroy`] finds it even if the engine's answer never came.

use std::sync::Arc;

use paddock_proto::limits::HOMES_DIR;
use tracing::warn;

use super::agent;
use super::core::{StartFailure, Uid};
use super::disk::{self, DataPlace};
use super::hollow;
use super::loopback;
use super::mount::MountError;
use super::restored::is_miscounted;
use super::runner::Runner;
use super::secret::AgentTerms;
use super::spec::{Blueprint, Plan};
use super::warm::WarmPart;
use crate::engine::{ContainerId, Engine, EngineError, VolumeName};
use crate::link::{Bridge, Link, LinkError};

/// A running container whose agent answers: the daemon can send it code.
pub struct ArmedContainer {
    /// The engine that runs it.
    pub engine: Engine,
    /// The engine's id for it.
    pub id: ContainerId,
    /// Our name for it, which its volume has too.
    pub name: VolumeName,
    /// The user and group of its processes.
    pub uid: Uid,
    /// Its language and image.
    pub runner: Arc<Runner>,
    /// The link to its agent.
    pub link: Link,
    /// The warm part of its image, in this container.
    pub warm: Arc<WarmPart>,
    /// Whether an earlier daemon made it, in another way than this one would: with another agent, from
    /// another image, or with other bounds.
    pub is_outdated: bool,
}

/// Why a container did not come up.
#[derive(Debug, thiserror::Error)]
pub enum ContainerStartError {
    /// The engine refused or failed a step.
    #[error("{step}: {error}")]
    Engine {
        /// The step, such as "creating the container".
        step: &'static str,
        /// The engine's error.
        error: EngineError,
        /// The step, in the core's terms.
        failure: StartFailure,
    },
    /// It runs, but its agent cannot be reached.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// A folder of the host is not what it was.
    #[error(transparent)]
    Mount(#[from] MountError),
}

impl ContainerStartError {
    /// The step that failed, in the core's terms.
    pub(super) fn failure(&self) -> StartFailure {
        match self {
            Self::Engine { error: EngineError::Deadline { .. }, .. } => StartFailure::Deadline,
            Self::Engine { failure, .. } => *failure,
            Self::Link(_) => StartFailure::Arm,
            Self::Mount(_) => StartFailure::Mount,
        }
    }
}

/// Creates, starts and arms a container.
///
/// # Errors
/// See [`ContainerStartError`]; whatever was made by then is still there, for [`destroy`] to remove.
pub(super) async fn start(
    engine: &Engine,
    plan: Plan,
    uid: Uid,
    runner: Arc<Runner>,
    terms: &AgentTerms,
) -> Result<ArmedContainer, ContainerStartError> {
    let at = |step: &'static str, failure: StartFailure| {
        move |error: EngineError| {
            let failure = if error.is_not_found() { StartFailure::NoImage } else { failure };
            ContainerStartError::Engine { step, error, failure }
        }
    };
    for mount in &runner.mounts {
        mount.look(&[]).await?;
    }
    engine
        .volume_create(&plan.volume)
        .await
        .map_err(at("creating the volume for /data", StartFailure::Create))?;
    let mut created = engine.container_create(Some(plan.name.as_str()), &plan.container).await;
    // The agent's volume may be gone, and with it a file that is mounted by itself.
    if let Err(error) = &created
        && loopback::may_lack_a_file(&plan.container, error)
    {
        match agent::refill(engine, &plan.container, &plan.files).await {
            Ok(false) => {}
            Ok(true) => {
                warn!(name = %plan.name, "a file of the agent is missing in its volume: it was filled again");
                created = engine.container_create(Some(plan.name.as_str()), &plan.container).await;
            }
            Err(why) => {
                warn!(name = %plan.name, error = %why, "the agent's volume could not be filled again");
            }
        }
    }
    let id = created.map_err(at("creating the container", StartFailure::Create))?.id;
    if runner.bounds.place != DataPlace::Memory {
        let owned =
            engine.archive_put(&id, HOMES_DIR, disk::owners(uid).await.unwrap_or_default().into()).await;
        owned.map_err(at("giving the volumes their owner", StartFailure::Create))?;
    }
    if let Err(error) = engine.container_start(&id).await {
        // Another daemon may have removed the agent's volume before this container was made.
        let restored = match error.status() {
            Some(_) => agent::restore(engine, &id, &plan.container, &plan.files).await,
            None => Ok(false),
        };
        let started = match restored {
            Ok(true) => engine.container_start(&id).await,
            Ok(false) => Err(error),
            Err(why) => {
                warn!(name = %plan.name, error = %why, "the agent's volume could not be filled again");
                Err(error)
            }
        };
        started.map_err(at("starting the container", StartFailure::Start))?;
    }
    let bridge = Bridge { engine: engine.clone(), container: id.clone() };
    let (link, _) = Link::open(bridge, terms.of(&plan.name)).await?;
    Ok(ArmedContainer {
        engine: engine.clone(),
        id,
        name: plan.name,
        uid,
        runner,
        link,
        warm: Arc::default(),
        is_outdated: false,
    })
}

/// Removes a container and its volumes, whatever state they are in. That none exists is a success.
///
/// # Errors
/// The engine's: the container or a volume may then still be there.
pub(super) async fn destroy(
    engine: &Engine,
    name: &VolumeName,
    id: Option<&ContainerId>,
    place: DataPlace,
) -> Result<(), EngineError> {
    remove(engine, name, id).await?;
    remove_volumes(engine, name, place).await
}

/// Removes a container, and leaves the volumes that have a name.
///
/// # Errors
/// The engine's: the container may then still be there.
pub(super) async fn remove(
    engine: &Engine,
    name: &VolumeName,
    id: Option<&ContainerId>,
) -> Result<(), EngineError> {
    let ids = match id {
        Some(id) => vec![id.clone()],
        None => {
            let found = engine.container_list(&[Blueprint::named(name)]).await?;
            found.into_iter().map(|container| container.id).collect()
        }
    };
    for id in ids {
        gone(engine.container_remove(&id).await)?;
    }
    Ok(())
}

/// Removes the volumes of a container that is gone.
///
/// # Errors
/// The engine's: a volume may then still be there.
pub(super) async fn remove_volumes(
    engine: &Engine,
    name: &VolumeName,
    place: DataPlace,
) -> Result<(), EngineError> {
    let home = if place == DataPlace::Memory { None } else { disk::home_of(name) };
    for volume in std::iter::once(name).chain(&home) {
        match hollow::remove_volume(engine, volume).await {
            // Nothing here can make the engine remove it; a sweep will, after the engine's next restart.
            Err(error) if is_miscounted(&error) => {
                warn!(name = %volume, %error, "the engine keeps a volume until it is restarted");
            }
            done => done?,
        }
    }
    Ok(())
}

/// Counts "not found" as a success: what was to be removed is gone.
pub(super) fn gone(result: Result<(), EngineError>) -> Result<(), EngineError> {
    match result {
        Err(error) if error.is_not_found() => Ok(()),
        other => other,
    }
}
