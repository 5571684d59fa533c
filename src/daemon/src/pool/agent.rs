//! The agent's volume: the embedded program, stored once per engine under a name made of its content.
//!
//! The volume must never be trusted by its name alone: every start of the daemon reads it back and compares
//! it, because an earlier daemon may have died while it wrote.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use paddock_proto::limits::AGENT_DIR;
use sha2::{Digest, Sha256};
use tokio::io::AsyncReadExt;
use tokio_tar::{Archive, Builder, EntryType, Header};

use super::spec::APP;
use crate::engine::{
    ContainerId, ContainerSpec, Engine, EngineError, HostConfig, ImageRef, Mount, MountType, VolumeName,
    VolumeOptions, VolumeSpec,
};
use crate::id::hex;

/// The agent's program, built by the build script.
static PROGRAM: &[u8] = include_bytes!(env!("PADDOCK_AGENT"));

/// Nobody may read the program, so that a process that runs it can be neither dumped nor traced.
const MODE: u32 = 0o111;

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

/// Makes sure that the agent's volume exists and holds the program. `image` is any image of the engine: the
/// archive API needs a container, which is made from that image, never started, and removed.
///
/// Daemons that start at the same time take turns at writing: the name of the writing container is the lock.
///
/// # Errors
/// See [`AgentError`].
pub(super) async fn ensure(engine: &Engine, image: &ImageRef, owner: &[String; 2]) -> Result<(), AgentError> {
    let labels = BTreeMap::from([("app".to_owned(), "paddock-agent".to_owned())]);
    put(engine, image, owner, volume_name()?, labels).await
}

/// The same in a volume of this name, for a caller that must not leave the shared volume behind.
///
/// # Errors
/// See [`AgentError`].
pub(super) async fn put(
    engine: &Engine,
    image: &ImageRef,
    owner: &[String; 2],
    name: VolumeName,
    labels: BTreeMap<String, String>,
) -> Result<(), AgentError> {
    engine.volume_create(&VolumeSpec { labels, ..VolumeSpec::local(name.clone()) }).await?;
    let spec = helper(image, &name, owner);
    let reader = engine.container_create(None, &spec).await?.id;
    let good = holds(engine, &reader).await;
    // Also after a failure. The next start finds a container that is left behind by its label.
    engine.container_remove(&reader).await?;
    if good? {
        return Ok(());
    }
    let writer = lock(engine, &name, &spec).await?;
    let done = fill(engine, &writer, &name).await;
    engine.container_remove(&writer).await?;
    done
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

/// The volume's name, made of its content.
///
/// # Errors
/// None that can happen: see [`AgentError::Name`].
pub(super) fn volume_name() -> Result<VolumeName, AgentError> {
    Ok(format!("paddock-agent-{}", hex(&Sha256::digest(PROGRAM)[..8])).parse()?)
}

fn helper(image: &ImageRef, volume: &VolumeName, owner: &[String; 2]) -> ContainerSpec {
    debug_assert!(owner.iter().any(|label| label == APP));
    let mount = Mount {
        kind: MountType::Volume,
        source: volume.to_string(),
        target: AGENT_DIR.to_owned(),
        read_only: false,
        volume_options: Some(VolumeOptions { no_copy: true, ..VolumeOptions::default() }),
    };
    let labels = owner.iter().filter_map(|label| label.split_once('='));
    ContainerSpec {
        image: image.to_string(),
        entrypoint: Some(vec!["/never-started".to_owned()]),
        labels: labels.map(|(k, v)| (k.to_owned(), v.to_owned())).collect(),
        host_config: HostConfig {
            mounts: vec![mount],
            network_mode: Some("none".to_owned()),
            ..HostConfig::default()
        },
        ..ContainerSpec::default()
    }
}

async fn fill(engine: &Engine, helper: &ContainerId, name: &VolumeName) -> Result<(), AgentError> {
    if holds(engine, helper).await? {
        return Ok(());
    }
    engine.archive_put(helper, AGENT_DIR, archive().await?.into()).await?;
    if holds(engine, helper).await? { Ok(()) } else { Err(AgentError::Differs(name.clone())) }
}

/// Whether the volume has exactly our program, with its mode.
async fn holds(engine: &Engine, helper: &ContainerId) -> Result<bool, AgentError> {
    let path = format!("{AGENT_DIR}/agent");
    let room = PROGRAM.len() as u64 + 64 * 1024;
    let reader = match engine.archive_get(helper, &path, room).await {
        Ok(reader) => reader,
        Err(error) if error.is_not_found() => return Ok(false),
        Err(error) => return Err(error.into()),
    };
    let mut archive = Archive::new(reader.into_async_read());
    let mut entries = archive.entries()?;
    let Some(entry) = futures_util::StreamExt::next(&mut entries).await else { return Ok(false) };
    let Ok(mut entry) = entry else { return Ok(false) };
    let mode = entry.header().mode()? & 0o7777;
    let mut content = Vec::with_capacity(PROGRAM.len());
    if (&mut entry).take(PROGRAM.len() as u64 + 1).read_to_end(&mut content).await.is_err() {
        return Ok(false);
    }
    Ok(mode == MODE && content == PROGRAM)
}

async fn archive() -> std::io::Result<Vec<u8>> {
    let mut builder = Builder::new(Vec::new());
    // The engine guesses the compression from the first bytes, and never takes a directory entry for
    // compressed data.
    let mut root = Header::new_gnu();
    root.set_entry_type(EntryType::Directory);
    root.set_mode(0o755);
    root.set_size(0);
    builder.append_data(&mut root, ".", tokio::io::empty()).await?;
    let mut header = Header::new_gnu();
    header.set_entry_type(EntryType::Regular);
    header.set_mode(MODE);
    header.set_size(PROGRAM.len() as u64);
    builder.append_data(&mut header, "agent", PROGRAM).await?;
    builder.into_inner().await
}
