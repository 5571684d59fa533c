//! One container exactly as the pool makes them, without a pool: what the benchmark measures the engine with.
//!
//! It must never be anything but the same blueprint, or the comparison means nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::container::{self, Armed, StartError};
use super::core::Uid;
use super::spec::{Blueprint, Plan};
use super::{AgentError, PoolConfig, agent, runner, warm};
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
    /// It did not come up.
    #[error(transparent)]
    Start(#[from] StartError),
}

/// A running, armed container and what was asked of the engine for it. It is there until it is removed.
pub struct Specimen {
    /// The container.
    pub armed: Armed,
    /// What it was made from.
    pub plan: Plan,
}

impl Specimen {
    /// Makes, starts and arms a container of `language` that runs as `uid`.
    ///
    /// # Errors
    /// See [`SpecimenError`]; what was made of it then is removed again.
    pub async fn start(
        engine: &Engine,
        config: &PoolConfig,
        language: &str,
        uid: u32,
    ) -> Result<Self, SpecimenError> {
        let unknown = || SpecimenError::NoRunner(language.to_owned());
        let runner = runner::find(engine, &config.images, config.warm_parts, &BTreeMap::new())
            .await?
            .runners
            .remove(language);
        let runner = Arc::new(runner.ok_or_else(unknown)?);
        let agent = agent::volume_name().map_err(SpecimenError::Agent)?;
        let maps_users = engine.info().await?.maps_users();
        let blueprint =
            Blueprint { owner: config.owner.clone(), agent, bounds: config.bounds.clone(), maps_users };
        agent::ensure(engine, &runner.image_id, &blueprint.owned()).await?;
        let plan = blueprint.plan(&runner, Uid(uid)).ok_or_else(unknown)?;
        match container::start(engine, plan.clone(), Uid(uid), runner, &config.terms).await {
            Ok(armed) => {
                warm::ask(&armed, &warm::turns(engine).await);
                armed.warm.settled().await; // without it, its runs start their interpreters
                Ok(Self { armed, plan })
            }
            Err(error) => {
                let _ = container::destroy(engine, &plan.name, None).await;
                Err(error.into())
            }
        }
    }

    /// Removes the container and its volume.
    ///
    /// # Errors
    /// The engine's.
    pub async fn remove(self) -> Result<(), EngineError> {
        let Armed { engine, id, name, .. } = &self.armed;
        container::destroy(engine, name, Some(id)).await
    }
}
