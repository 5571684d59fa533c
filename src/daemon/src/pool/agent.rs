//! The agent's volume: the embedded program and its [`files`], stored once per engine under a name made of
//! their content.
//!
//! All daemons of one build on an engine share the volume, so it stays when one of them ends. A label names
//! the owner whose daemon made it: a later build of that owner removes it, unless a container uses it. A
//! daemon that shared it, and has no container at that moment, loses it. It therefore fills the volume again
//! when a container cannot be made or does not start because a file of it is missing; the engine makes a
//! volume that a new container needs and that does not exist.
//!
//! The volume must never be trusted by its name alone: every start of the daemon reads it back and compares
//! it, because an earlier daemon may have died while it wrote. The volume that a daemon of another owner made
//! must never be removed.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use paddock_proto::limits::{AGENT_DIR, AGENT_PROGRAM};
use tokio::io::AsyncReadExt;
use tokio_tar::Archive;
use tracing::{debug, info, warn};

pub use self::files::AgentFiles;
use self::files::{AgentFile, FOLDER_MODE};
use super::container::gone;
use super::loopback;
use super::spec::{APP, Blueprint, OWNER};
use crate::engine::{
    ContainerId, ContainerSpec, Engine, EngineError, HostConfig, ImageRef, Mount, MountType, Volume,
    VolumeName, VolumeOptions, VolumeSpec,
};

mod files;

#[cfg(test)]
pub(super) mod tests;

/// The beginning of the names of these volumes; [`DIGITS`] of the content's hash follow.
const PREFIX: &str = "paddock-agent-";
const DIGITS: usize = 16;
/// The label of these volumes. It is not that of containers and their volumes, which have one owner.
const LABEL: (&str, &str) = ("app", "paddock-agent");
/// The label that names the owner whose daemon made the volume.
const MADE_BY: &str = "paddock.made-by";

/// How long this daemon waits for another one to finish writing, which takes well under a second.
const LOCK_PATIENCE: Duration = Duration::from_secs(20);
/// The pause between two attempts to take the lock.
const LOCK_PAUSE: Duration = Duration::from_millis(100);

/// Why the engine has no agent.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// The engine refused a step.
    #[error("the agent could not be put on the engine: {0}")]
    Engine(#[from] EngineError),
    /// The archive could not be made or read.
    #[error("the agent could not be put on the engine: {0}")]
    Archive(#[from] std::io::Error),
    /// The volume's content differs from what was written.
    #[error("volume {0} does not hold the agent that was written into it; is another daemon writing it?")]
    Differs(VolumeName),
    /// Cannot happen: this module makes the name.
    #[error(transparent)]
    Name(#[from] crate::engine::NameError),
}

/// What containers of this runtime need before the first of them is made: the agent's volume exists and holds
/// the program, and it is settled who makes their loopback. `image` is any image of the engine: the archive
/// API needs a container, which is made from that image, never started, and removed.
///
/// Daemons that start at the same time take turns at writing: the name of the writing container is the lock.
/// The engine gives the volume these labels if it has to make it.
///
/// # Errors
/// See [`AgentError`].
pub(super) async fn ready(
    engine: &Engine,
    image: &ImageRef,
    blueprint: &Blueprint,
    runtime: &str,
    labels: BTreeMap<String, String>,
) -> Result<(), AgentError> {
    let (volume, files) = blueprint.agent_for(runtime);
    put(engine, image, &blueprint.owned(), (volume.clone(), &files), labels).await?;
    loopback::settle(engine, image, blueprint, runtime).await
}

/// The labels of the volume, if a daemon of this owner makes it.
pub(super) fn labels(owner: Option<&str>) -> BTreeMap<String, String> {
    let labels = [LABEL].into_iter().chain(owner.map(|owner| (MADE_BY, owner)));
    labels.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// Removes the volumes that daemons of this owner made, no container uses, and that are none of `current`.
/// Failures are only logged: the next start tries again.
pub(super) async fn remove_outdated(engine: &Engine, owner: &str, current: &[VolumeName]) {
    let wanted: Vec<String> =
        labels(Some(owner)).into_iter().map(|(name, value)| format!("{name}={value}")).collect();
    let found = match engine.volume_list(&wanted).await {
        Ok(found) => found,
        Err(error) => return warn!(%error, "the agent's volumes of earlier builds cannot be listed"),
    };
    let mut removed = 0;
    for name in outdated(found, owner, current) {
        match gone(engine.volume_remove(&name).await) {
            Ok(()) => removed += 1,
            Err(error) if error.is_conflict() => debug!(%name, "an earlier build's volume is in use"),
            Err(error) => warn!(%name, %error, "an earlier build's volume could not be removed"),
        }
    }
    if removed > 0 {
        info!(volumes = removed, "removed the agent's volumes of earlier builds");
    }
}

/// The volumes of agents that no container has and that a daemon of this build does not use: those of other
/// builds, whose stores may be gone.
pub(super) async fn unused(engine: &Engine, files: &AgentFiles) -> Result<Vec<VolumeName>, AgentError> {
    let current = [files.volume_name()?, files.readable().volume_name()?];
    let found = engine.volume_list_unused(&[format!("{}={}", LABEL.0, LABEL.1)]).await?;
    Ok(found.into_iter().map(|volume| volume.name).filter(|name| !current.contains(name)).collect())
}

/// The volumes that a daemon of this owner made for an agent other than the current ones.
fn outdated(found: Vec<Volume>, owner: &str, current: &[VolumeName]) -> Vec<VolumeName> {
    let is_ours = |volume: &Volume| labels(Some(owner)).iter().all(|(k, v)| volume.labels.get(k) == Some(v));
    let is_agents = |name: &VolumeName| {
        let digits = name.as_str().strip_prefix(PREFIX);
        digits.is_some_and(|digits| {
            digits.len() == DIGITS && digits.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
        })
    };
    let ours = found.into_iter().filter(is_ours).map(|volume| volume.name);
    ours.filter(|name| !current.contains(name) && is_agents(name)).collect()
}

/// Fills the agent's volume of a container that did not start, if the program is missing in it. Whether it
/// was, so that the container may start now.
///
/// # Errors
/// See [`AgentError`].
pub(super) async fn restore(
    engine: &Engine,
    container: &ContainerId,
    spec: &ContainerSpec,
    files: &AgentFiles,
) -> Result<bool, AgentError> {
    match engine.archive_stat(container, AGENT_PROGRAM).await {
        Ok(_) => return Ok(false),
        Err(error) if error.is_not_found() => {}
        Err(error) => return Err(error.into()),
    }
    warn!("the agent is missing in its volume, which is filled again");
    refill(engine, spec, files).await.map(|_| true)
}

/// Fills the agent's volume of a container that the engine refused to make, if it is not whole. Whether it
/// was not, so that the container can be made now.
///
/// # Errors
/// See [`AgentError`].
pub(super) async fn refill(
    engine: &Engine,
    spec: &ContainerSpec,
    files: &AgentFiles,
) -> Result<bool, AgentError> {
    let mount = spec.host_config.mounts.iter().find(|mount| mount.target == AGENT_DIR);
    let (Some(mount), Some(owner)) = (mount, spec.labels.get(OWNER)) else { return Ok(false) };
    let owned = [APP.to_owned(), format!("{OWNER}={owner}")];
    let labels = mount.volume_options.as_ref().map(|options| options.labels.clone()).unwrap_or_default();
    put(engine, &spec.image.parse()?, &owned, (mount.source.parse()?, files), labels).await
}

/// Makes sure that a volume of this name exists and holds these files. Whether anything was missing.
///
/// # Errors
/// See [`AgentError`].
async fn put(
    engine: &Engine,
    image: &ImageRef,
    owner: &[String; 2],
    (name, files): (VolumeName, &AgentFiles),
    labels: BTreeMap<String, String>,
) -> Result<bool, AgentError> {
    engine.volume_create(&VolumeSpec { labels: labels.clone(), ..VolumeSpec::local(name.clone()) }).await?;
    let spec = helper(image, vec![mount(&name, labels, false)], owner);
    let reader = engine.container_create(None, &spec).await?.id;
    let good = holds(engine, &reader, files).await;
    // Also after a failure. The next start finds a container that is left behind by its label.
    engine.container_remove(&reader).await?;
    if good? {
        return Ok(false);
    }
    let writer = lock(engine, &name, &spec).await?;
    let done = fill(engine, &writer, files, &name).await;
    engine.container_remove(&writer).await?;
    done.map(|()| true)
}

/// The container that may write: only one container at a time can have its name.
async fn lock(engine: &Engine, volume: &VolumeName, spec: &ContainerSpec) -> Result<ContainerId, AgentError> {
    let begun = Instant::now();
    let name = format!("{volume}-writer");
    loop {
        // The container of a daemon that died keeps the name until that daemon starts again: after a while
        // this one writes all the same.
        let name = (begun.elapsed() < LOCK_PATIENCE).then_some(name.as_str());
        match engine.container_create(name, spec).await {
            Ok(created) => return Ok(created.id),
            Err(error) if error.is_conflict() => tokio::time::sleep(LOCK_PAUSE).await,
            Err(error) => return Err(error.into()),
        }
    }
}

/// The mount of the volume. The engine gives it these labels if it has to make it.
pub(super) fn mount(volume: &VolumeName, labels: BTreeMap<String, String>, read_only: bool) -> Mount {
    Mount {
        kind: MountType::Volume,
        source: volume.to_string(),
        target: AGENT_DIR.to_owned(),
        read_only,
        volume_options: Some(VolumeOptions { no_copy: true, labels, ..VolumeOptions::default() }),
        bind_options: None,
    }
}

/// A container that is never started.
pub(super) fn helper(image: &ImageRef, mounts: Vec<Mount>, owner: &[String; 2]) -> ContainerSpec {
    debug_assert!(owner.iter().any(|label| label == APP));
    let labels = owner.iter().filter_map(|label| label.split_once('='));
    ContainerSpec {
        image: image.to_string(),
        entrypoint: Some(vec!["/never-started".to_owned()]),
        labels: labels.map(|(k, v)| (k.to_owned(), v.to_owned())).collect(),
        host_config: HostConfig { mounts, network_mode: Some("none".to_owned()), ..HostConfig::default() },
        ..ContainerSpec::default()
    }
}

async fn fill(
    engine: &Engine,
    helper: &ContainerId,
    files: &AgentFiles,
    name: &VolumeName,
) -> Result<(), AgentError> {
    if holds(engine, helper, files).await? {
        return Ok(());
    }
    engine.archive_put(helper, "/", files.archive().await?.into()).await?;
    if holds(engine, helper, files).await? { Ok(()) } else { Err(AgentError::Differs(name.clone())) }
}

/// Whether the volume has exactly these files, with their modes and its own.
async fn holds(engine: &Engine, helper: &ContainerId, files: &AgentFiles) -> Result<bool, AgentError> {
    match engine.archive_stat(helper, AGENT_DIR).await {
        Ok(folder) if folder.permissions() == FOLDER_MODE => {}
        Ok(_) => return Ok(false),
        Err(error) if error.is_not_found() => return Ok(false),
        Err(error) => return Err(error.into()),
    }
    for file in files.all() {
        if !holds_one(engine, helper, &file).await? {
            return Ok(false);
        }
    }
    Ok(true)
}

async fn holds_one(engine: &Engine, helper: &ContainerId, file: &AgentFile<'_>) -> Result<bool, AgentError> {
    let path = format!("{AGENT_DIR}/{}", file.name);
    let size = file.content.len();
    let reader = match engine.archive_get(helper, &path, size as u64 + 64 * 1024).await {
        Ok(reader) => reader,
        Err(error) if error.is_not_found() => return Ok(false),
        Err(error) => return Err(error.into()),
    };
    let mut archive = Archive::new(reader.into_async_read());
    let mut entries = archive.entries()?;
    let Some(entry) = futures_util::StreamExt::next(&mut entries).await else { return Ok(false) };
    let Ok(mut entry) = entry else { return Ok(false) };
    let mode = entry.header().mode()? & 0o7777;
    let mut content = Vec::with_capacity(size);
    if (&mut entry).take(size as u64 + 1).read_to_end(&mut content).await.is_err() {
        return Ok(false);
    }
    Ok(mode == file.mode && content == file.content)
}
