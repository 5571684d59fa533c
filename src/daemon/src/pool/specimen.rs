//! One container made exactly as the pool makes them, but without a pool: the benchmark measures the engine
//! with it.
//!
//! It must always use the pool's blueprint, or the comparison means nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::container::{self, ArmedContainer, ContainerStartError};
use super::core::Uid;
use super::runtimes::Runtimes;
use super::spec::{Blueprint, Plan};
use super::{AgentError, PoolConfig, RunnerTerms, agent, disk, layers, runner, warm};
use crate::engine::{Engine, EngineError};

/// Why there is no specimen.
#[derive(Debug, thiserror::Error)]
pub enum SpecimenError {
    /// The images could not be listed.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// No image runs this language.
    #[error("the engine has no runner image for {0}")]
    NoRunner(String),
    /// The agent could not be put on the engine.
    #[error(transparent)]
    Agent(#[from] AgentError),
    /// The container did not come up.
    #[error(transparent)]
    Start(#[from] ContainerStartError),
}

/// A running, armed container and its plan. It stays until [`Specimen::remove`].
pub struct Specimen {
    /// The container.
    pub armed: ArmedContainer,
    /// The plan that it was made from.
    pub plan: Plan,
}

impl Specimen {
    /// Creates, starts and arms a container of `language` that runs as `uid`.
    ///
    /// # Errors
    /// See [`SpecimenError`]; a container that was made by then is removed again.
    pub async fn start(
        engine: &Engine,
        config: &PoolConfig,
        language: &str,
        uid: u32,
    ) -> Result<Self, SpecimenError> {
        let unknown = || SpecimenError::NoRunner(language.to_owned());
        let terms = RunnerTerms { disk: disk::bound(engine, &config.owner).await?, ..config.runners.clone() };
        let runner =
            runner::find(engine, &terms, config.warm_parts, &BTreeMap::new()).await?.runners.remove(language);
        let runner = Arc::new(runner.ok_or_else(unknown)?);
        let info = engine.info().await?;
        let (owner, files) = (&config.owner, &config.agent_files);
        let blueprint = Blueprint {
            owner: owner.clone(),
            agent: files.volume_name().map_err(SpecimenError::Agent)?,
            readable: files.readable().volume_name().map_err(SpecimenError::Agent)?,
            files: files.clone(),
            layers: terms.packages.and_then(|_| layers::volume_name(owner)),
            maps_users: info.maps_users(),
            first_user: info.first_user(),
            runtimes: Runtimes::new(&info.default_runtime),
        };
        let runtime = runner.bounds.runtime.as_str();
        agent::ready(engine, &runner.image_id, &blueprint, runtime, agent::labels(Some(owner))).await?;
        let plan = blueprint.plan(&runner, Uid(uid)).ok_or_else(unknown)?;
        let place = runner.bounds.place;
        match container::start(engine, plan.clone(), Uid(uid), runner, &config.terms).await {
            Ok(armed) => {
                warm::load(&armed, &warm::Warming::of(engine, None).await);
                armed.warm.settled().await; // until then, runs start their interpreters
                Ok(Self { armed, plan })
            }
            Err(error) => {
                let _ = container::destroy(engine, &plan.name, None, place).await;
                Err(error.into())
            }
        }
    }

    /// Removes the container and its volumes.
    ///
    /// # Errors
    /// The engine's.
    pub async fn remove(self) -> Result<(), EngineError> {
        let ArmedContainer { engine, id, name, runner, .. } = &self.armed;
        container::destroy(engine, name, Some(id), runner.bounds.place).await
    }
}
