//! One container's way: planned → created → started → armed, and its end.
//!
//! It must never leave half of one without a trace: everything is made under the plan's name, by which
//! [`destroy`] finds it even if the engine's answer never came.

use std::sync::Arc;

use super::core::{StartFailure, Uid};
use super::runner::Runner;
use super::secret::AgentTerms;
use super::spec::{Blueprint, Plan};
use crate::engine::{ContainerId, Engine, EngineError, VolumeName};
use crate::link::{Bridge, Link, LinkError};

/// A running container whose agent answers: code may be sent.
pub struct Armed {
    /// Where it runs.
    pub engine: Engine,
    /// The engine's id for it.
    pub id: ContainerId,
    /// Our name for it.
    pub name: VolumeName,
    /// What its processes run as.
    pub uid: Uid,
    /// What it runs.
    pub runner: Arc<Runner>,
    /// The way in.
    pub link: Link,
}

/// Why a container did not come up.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The engine refused or failed a step.
    #[error("{step}: {error}")]
    Engine {
        /// Which step.
        step: &'static str,
        /// What the engine said.
        error: EngineError,
        /// The step as the core counts it.
        failure: StartFailure,
    },
    /// It runs, but its agent cannot be reached.
    #[error(transparent)]
    Link(#[from] LinkError),
}

impl StartError {
    /// The step as the core counts it.
    pub(super) fn failure(&self) -> StartFailure {
        match self {
            Self::Engine { error: EngineError::Deadline { .. }, .. } => StartFailure::Deadline,
            Self::Engine { failure, .. } => *failure,
            Self::Link(_) => StartFailure::Arm,
        }
    }
}

/// Makes, starts and arms a container.
///
/// # Errors
/// See [`StartError`]; whatever was made then is still there, for [`destroy`].
pub(super) async fn start(
    engine: &Engine,
    plan: Plan,
    uid: Uid,
    runner: Arc<Runner>,
    terms: &AgentTerms,
) -> Result<Armed, StartError> {
    let at = |step: &'static str, failure: StartFailure| {
        move |error: EngineError| {
            let failure = if error.is_not_found() { StartFailure::NoImage } else { failure };
            StartError::Engine { step, error, failure }
        }
    };
    engine
        .volume_create(&plan.volume)
        .await
        .map_err(at("creating the volume for /data", StartFailure::Create))?;
    let created = engine.container_create(Some(plan.name.as_str()), &plan.container).await;
    let id = created.map_err(at("creating the container", StartFailure::Create))?.id;
    engine.container_start(&id).await.map_err(at("starting the container", StartFailure::Start))?;
    let bridge = Bridge { engine: engine.clone(), container: id.clone() };
    let (link, _) = Link::open(bridge, terms.of(&plan.name)).await?;
    Ok(Armed { engine: engine.clone(), id, name: plan.name, uid, runner, link })
}

/// Removes a container and its volume, whatever state they are in; that there are none is fine.
///
/// # Errors
/// The engine's: something may then still be there.
pub(super) async fn destroy(
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
    gone(engine.volume_remove(name).await)
}

/// That there is none is what was wanted.
pub(super) fn gone(result: Result<(), EngineError>) -> Result<(), EngineError> {
    match result {
        Err(error) if error.is_not_found() => Ok(()),
        other => other,
    }
}
