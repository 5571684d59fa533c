//! The volume of layers: packages that programs share, each layer a directory of its own, mounted read-only
//! in every container whose runner has packages.
//!
//! ```text
//!  container of a runner   /opt/packages (read-only, 0711: to be entered by a name that one knows)
//!  writer, never started   /opt/packages ◄─ write: one archive of the engine, its mark last
//!  tidy, the agent alone   /opt/packages    removes what has no purpose
//! ```
//!
//! The volume belongs to one owner. It survives its daemon, as long as there is a layer in it. Nothing that a
//! caller named ever runs where it can be written: the writer is never started, and in the other one the
//! agent's own program runs, without a network.
//!
//! This must never overwrite a layer, nor call one complete whose mark is missing.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::Stream;
use paddock_proto::limits::{AGENT_PROGRAM, PACKAGES_DIR};
use tokio::time::Instant;
use tracing::{debug, info, warn};

use super::agent;
use super::container::gone;
use super::spec::Blueprint;
use crate::engine::{
    ContainerId, ContainerSpec, ContainerStatus, Engine, EngineError, Healthcheck, HostConfig, ImageRef,
    LogConfig, Mount, MountType, VolumeName, VolumeOptions,
};

/// The label of this volume, and of the containers that have it for a moment. It is not that of the pool's
/// containers, which the pool removes when it does not know them.
const LABEL: (&str, &str) = ("app", "paddock-packages");
/// The label that names the owner.
const MADE_BY: &str = "paddock.made-by";
/// Digits of the owner's id in the volume's name.
const DIGITS: usize = 16;

/// The name of the file in a layer that was written last.
pub(crate) const MARK: &str = ".paddock-layer";

/// How long removing layers may take: an unlink of a file takes microseconds.
const TIDY_WITHIN: Duration = Duration::from_secs(120);
/// The pause between two looks at whether it has ended.
const TIDY_LOOK: Duration = Duration::from_millis(50);
/// Bytes of memory of the agent that removes layers.
const TIDY_MEMORY: i64 = 64 << 20;

/// Why a layer could not be written, looked at or removed.
#[derive(Debug, thiserror::Error)]
pub enum LayerError {
    /// The engine refused a step.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The agent could not remove what has no purpose.
    #[error("layers could not be removed: {0}")]
    Tidy(String),
}

impl LayerError {
    /// Whether the engine's disk is full.
    pub fn is_full(&self) -> bool {
        matches!(self, Self::Engine(error) if error.to_string().contains("no space left on device"))
    }
}

/// The volume's name for this owner.
pub(super) fn volume_name(owner: &str) -> Option<VolumeName> {
    format!("paddock-packages-{}", owner.get(..DIGITS).unwrap_or(owner)).parse().ok()
}

fn labels(owner: &str) -> BTreeMap<String, String> {
    let labels = [LABEL, (MADE_BY, owner)];
    labels.map(|(name, value)| (name.to_owned(), value.to_owned())).into()
}

/// The mount of the volume. The engine gives it its labels if it has to make it.
pub(super) fn mount(volume: &VolumeName, owner: &str, read_only: bool) -> Mount {
    Mount {
        kind: MountType::Volume,
        source: volume.to_string(),
        target: PACKAGES_DIR.to_owned(),
        read_only,
        volume_options: Some(VolumeOptions {
            no_copy: true,
            labels: labels(owner),
            ..VolumeOptions::default()
        }),
        bind_options: None,
    }
}

/// The layers of one owner on one engine.
#[derive(Clone)]
pub struct Layers {
    engine: Engine,
    volume: VolumeName,
    blueprint: Arc<Blueprint>,
}

impl Layers {
    pub(super) fn new(engine: Engine, volume: VolumeName, blueprint: Arc<Blueprint>) -> Self {
        Self { engine, volume, blueprint }
    }

    /// Unpacks an archive whose names begin with the name of [`PACKAGES_DIR`]'s last part. `image` is any
    /// image of the engine: the archive API needs a container, which is never started.
    ///
    /// # Errors
    /// See [`LayerError`]. A part of the archive may be in the volume then.
    pub async fn write<S>(&self, image: &ImageRef, tar: S) -> Result<(), LayerError>
    where
        S: Stream<Item = std::io::Result<Bytes>> + Send + 'static,
    {
        let writer = self.engine.container_create(None, &self.container(image, Vec::new())).await?.id;
        let parent = PACKAGES_DIR.rsplit_once('/').map_or("/", |(parent, _)| parent);
        let written = self.engine.archive_put_stream(&writer, parent, tar).await;
        self.remove(&writer).await;
        Ok(written?)
    }

    /// Whether a layer is there and was written to its end.
    ///
    /// # Errors
    /// The engine's.
    pub async fn holds(&self, image: &ImageRef, layer: &str) -> Result<bool, LayerError> {
        let reader = self.engine.container_create(None, &self.container(image, Vec::new())).await?.id;
        let found = self.engine.archive_stat(&reader, &format!("{PACKAGES_DIR}/{layer}/{MARK}")).await;
        self.remove(&reader).await;
        match found {
            Ok(_) => Ok(true),
            Err(error) if error.is_not_found() => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Removes everything but these layers.
    ///
    /// # Errors
    /// See [`LayerError`].
    pub async fn tidy(&self, image: &ImageRef, keep: &[String]) -> Result<(), LayerError> {
        let arguments = ["tidy".to_owned()].into_iter().chain(keep.iter().cloned()).collect();
        let tidy = self.engine.container_create(None, &self.container(image, arguments)).await?.id;
        let done = self.run(&tidy).await;
        self.remove(&tidy).await;
        debug!(kept = keep.len(), "layers of packages tidied");
        done
    }

    async fn run(&self, tidy: &ContainerId) -> Result<(), LayerError> {
        self.engine.container_start(tidy).await?;
        let late = Instant::now() + TIDY_WITHIN;
        loop {
            let state = self.engine.container_inspect(tidy).await?.state;
            if matches!(state.status, ContainerStatus::Exited | ContainerStatus::Dead) {
                let failed =
                    || LayerError::Tidy(format!("the agent ended with exit code {}", state.exit_code));
                return if state.exit_code == 0 { Ok(()) } else { Err(failed()) };
            }
            if Instant::now() > late {
                return Err(LayerError::Tidy("it took too long".to_owned()));
            }
            tokio::time::sleep(TIDY_LOOK).await;
        }
    }

    async fn remove(&self, container: &ContainerId) {
        if let Err(error) = gone(self.engine.container_remove(container).await) {
            warn!(%container, %error, "a container for layers of packages could not be removed yet");
        }
    }

    /// Removes the containers that a daemon left which died while it wrote or removed a layer. Whether there
    /// is a volume.
    ///
    /// # Errors
    /// The engine's.
    pub async fn recover(&self) -> Result<bool, LayerError> {
        let wanted: Vec<String> = labels(&self.blueprint.owner)
            .into_iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        for left in self.engine.container_list(&wanted).await? {
            info!(container = %left.id, "removed a container for layers that an earlier daemon left");
            self.remove(&left.id).await;
        }
        match self.engine.volume_inspect(&self.volume).await {
            Ok(_) => Ok(true),
            Err(error) if error.is_not_found() => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Removes the volume; to be called when no container and no layer is left.
    pub async fn forget(&self) {
        if let Err(error) = gone(self.engine.volume_remove(&self.volume).await) {
            warn!(volume = %self.volume, %error, "the volume of layers could not be removed");
        }
    }

    /// A container that can write the volume. Without arguments it is never started.
    fn container(&self, image: &ImageRef, arguments: Vec<String>) -> ContainerSpec {
        let owner = &self.blueprint.owner;
        let (agent, _) = self.blueprint.agent_for("");
        let agent = agent::mount(agent, agent::labels(Some(owner)), true);
        ContainerSpec {
            image: image.to_string(),
            entrypoint: Some(vec![AGENT_PROGRAM.to_owned()]),
            cmd: Some(arguments),
            // The owner of what is in the volume. It has no capability, and nothing else to write to.
            user: Some("0:0".to_owned()),
            working_dir: Some("/".to_owned()),
            labels: labels(owner),
            healthcheck: Some(Healthcheck::DISABLED),
            host_config: HostConfig {
                mounts: vec![agent, mount(&self.volume, owner, false)],
                cap_drop: vec!["ALL".to_owned()],
                security_opt: vec!["no-new-privileges".to_owned()],
                network_mode: Some("none".to_owned()),
                memory: Some(TIDY_MEMORY),
                memory_swap: Some(TIDY_MEMORY),
                pids_limit: Some(16),
                log_config: Some(LogConfig::none()),
                ..HostConfig::default()
            },
            ..ContainerSpec::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_volume_is_the_owners_and_is_mounted_as_asked() {
        let owner = "0123456789abcdef0123456789abcdef";
        let name = volume_name(owner).unwrap();
        assert_eq!(name.as_str(), "paddock-packages-0123456789abcdef");
        let mount = mount(&name, owner, true);
        assert!(mount.read_only && mount.target == "/opt/packages");
        let labels = mount.volume_options.unwrap().labels;
        assert_eq!(labels["paddock.made-by"], owner);
        assert_ne!(labels["app"], "paddock", "the pool removes what it does not know");
    }
}
