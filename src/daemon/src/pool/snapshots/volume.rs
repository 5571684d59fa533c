//! The volumes of snapshots: made by the daemon from what a container wrote, and read again before they are
//! trusted.
//!
//! ```text
//!  container that saves   /warm (its own, bounded) ── read: digest ──┐ must be the same
//!  writer, never started  /warm ◄── one archive of the engine          ├─► a snapshot
//!  reader, never started  /warm (read-only) ── read: digest ───────────┘
//! ```
//!
//! No container that runs can ever write to one. Whatever comes out of a container counts as hostile: only
//! regular files and directories pass, within bounds; they belong to root, and nobody may write them. This
//! must never touch a volume that lacks the owner's labels.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Component, Path};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};

use futures_util::StreamExt;
use paddock_proto::limits::SNAPSHOT_DIR;
use sha2::{Digest, Sha256};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};
use tokio_tar::{Archive, Builder, EntryType};
use tokio_util::io::{InspectReader, ReaderStream};
use tracing::{debug, info, warn};

use super::super::container::gone;
use crate::engine::{
    ContainerId, ContainerSpec, Engine, EngineError, Healthcheck, HostConfig, ImageRef, LogConfig, Mount,
    MountType, Volume, VolumeName, VolumeOptions, VolumeSpec, entry_of_root,
};
use crate::id::hex;

/// Bytes of the files of one snapshot: more than twice what Python takes with all its libraries and levels,
/// 770 MB.
pub(in crate::pool) const SNAPSHOT_BYTES: u64 = 2 << 30;
/// Files and directories of one snapshot; ours has a few.
pub(in crate::pool) const SNAPSHOT_FILES: u64 = 1024;
/// Bytes of an archive beside the files' content, for each entry: headers, long names, padding.
const PER_ENTRY: u64 = 8 * 1024;
/// Characters of a path below the directory.
const LONGEST_PATH: usize = 200;
/// Bytes on their way from the reader of an archive to its writer.
const PIPE: usize = 256 * 1024;

/// The label of these volumes, and of the containers that have one for a moment. It is not that of the pool's
/// containers, which the pool removes when it does not know them.
const LABEL: (&str, &str) = ("app", "paddock-snapshot");
/// The label that names the owner.
const MADE_BY: &str = "paddock.made-by";

/// Why a snapshot's files cannot be had.
#[derive(Debug, thiserror::Error)]
pub(super) enum VolumeError {
    /// The engine refused a step.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The archive broke off or is none.
    #[error("the files could not be read: {0}")]
    Archive(#[from] io::Error),
    /// They are more than a snapshot may have.
    #[error("the snapshot has more than {SNAPSHOT_BYTES} bytes or {SNAPSHOT_FILES} files")]
    TooLarge,
    /// They cannot be a snapshot.
    #[error("the snapshot has {0}")]
    Unfit(String),
    /// Two looks at the same files saw different ones.
    #[error("the files changed on their way to the engine")]
    Differs,
    /// Cannot happen: this module makes the name.
    #[error(transparent)]
    Name(#[from] crate::engine::NameError),
}

/// What the files of a snapshot are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Contents {
    /// SHA-256 over all paths, kinds and contents, in hexadecimal.
    pub(super) digest: String,
    pub(super) bytes: u64,
}

fn labels(owner: &str) -> BTreeMap<String, String> {
    let labels = [LABEL, (MADE_BY, owner)];
    labels.map(|(name, value)| (name.to_owned(), value.to_owned())).into()
}

/// The mount of a snapshot's volume. The engine gives it its labels if it has to make it.
pub(in crate::pool) fn mount(volume: &VolumeName, owner: &str, read_only: bool) -> Mount {
    let labels = labels(owner);
    Mount {
        kind: MountType::Volume,
        source: volume.to_string(),
        target: SNAPSHOT_DIR.to_owned(),
        read_only,
        volume_options: Some(VolumeOptions { no_copy: true, labels, ..VolumeOptions::default() }),
        bind_options: None,
    }
}

/// The volumes of snapshots that no container has and that others than this owner made.
///
/// # Errors
/// The engine's.
pub(in crate::pool) async fn unused_of_others(
    engine: &Engine,
    owner: Option<&str>,
) -> Result<Vec<VolumeName>, EngineError> {
    let found = engine.volume_list_unused(&[format!("{}={}", LABEL.0, LABEL.1)]).await?;
    let is_foreign = |volume: &Volume| volume.labels.get(MADE_BY).map(String::as_str) != owner;
    Ok(found.into_iter().filter(is_foreign).map(|volume| volume.name).collect())
}

/// The volumes of one owner's snapshots on one engine.
#[derive(Clone)]
pub(super) struct SnapshotVolumes {
    pub(super) engine: Engine,
    pub(super) owner: String,
}

impl SnapshotVolumes {
    /// Makes a volume of what a running container has written.
    pub(super) async fn make(
        &self,
        from: &ContainerId,
        image: &ImageRef,
        key: &str,
    ) -> Result<(VolumeName, Contents), VolumeError> {
        let seen = self.read(from, None).await?;
        let (owner, key) = (self.owner.get(..8).unwrap_or(&self.owner), key.get(..8).unwrap_or(key));
        // A name that was never used, so that no container can have a volume of this name mounted already.
        let name =
            format!("paddock-snapshot-{owner}-{key}-{}-{}", &seen.digest[..16], crate::id::random_hex::<4>());
        let name: VolumeName = name.parse()?;
        let spec = VolumeSpec { labels: labels(&self.owner), ..VolumeSpec::local(name.clone()) };
        self.engine.volume_create(&spec).await?;
        let writer = self.holder(image, &name, false).await?;
        let written = self.copy(from, &writer).await;
        self.discard(&writer).await;
        written?;
        if self.contents(image, &name, None).await? == seen {
            Ok((name, seen))
        } else {
            Err(VolumeError::Differs)
        }
    }

    /// Reads a volume's files, and adds the bytes to `read`.
    pub(super) async fn contents(
        &self,
        image: &ImageRef,
        name: &VolumeName,
        read: Option<&Arc<AtomicU64>>,
    ) -> Result<Contents, VolumeError> {
        let reader = self.holder(image, name, true).await?;
        let contents = self.read(&reader, read).await;
        self.discard(&reader).await;
        contents
    }

    /// Removes a volume. False if a container mounts it, or the engine refuses for another reason.
    pub(super) async fn remove(&self, name: &VolumeName) -> bool {
        match gone(self.engine.volume_remove(name).await) {
            Ok(()) => {
                info!(volume = %name, "a snapshot of a warm part was removed");
                true
            }
            Err(error) if error.is_conflict() => {
                debug!(volume = %name, "containers still have this snapshot");
                false
            }
            Err(error) => {
                warn!(volume = %name, %error, "a snapshot could not be removed yet");
                false
            }
        }
    }

    /// Removes the owner's containers for snapshots, and every volume of one but these. Whether all are gone.
    pub(super) async fn sweep(&self, known: &BTreeSet<VolumeName>) -> Result<bool, EngineError> {
        for left in self.engine.container_list(&self.wanted()).await? {
            self.discard(&left.id).await;
        }
        let mut all_gone = true;
        for volume in self.all().await?.difference(known) {
            all_gone &= self.remove(volume).await;
        }
        Ok(all_gone)
    }

    /// All of them that the engine has, known or not.
    pub(super) async fn all(&self) -> Result<BTreeSet<VolumeName>, EngineError> {
        Ok(self.engine.volume_list(&self.wanted()).await?.into_iter().map(|volume| volume.name).collect())
    }

    /// The labels that the engine looks for.
    fn wanted(&self) -> Vec<String> {
        labels(&self.owner).into_iter().map(|(name, value)| format!("{name}={value}")).collect()
    }

    /// A container that has the volume and is never started: the archive API needs one.
    async fn holder(
        &self,
        image: &ImageRef,
        volume: &VolumeName,
        read_only: bool,
    ) -> Result<ContainerId, EngineError> {
        let spec = ContainerSpec {
            image: image.to_string(),
            entrypoint: Some(vec!["/never-started".to_owned()]),
            labels: labels(&self.owner),
            healthcheck: Some(Healthcheck::DISABLED),
            host_config: HostConfig {
                mounts: vec![mount(volume, &self.owner, read_only)],
                network_mode: Some("none".to_owned()),
                log_config: Some(LogConfig::none()),
                ..HostConfig::default()
            },
            ..ContainerSpec::default()
        };
        Ok(self.engine.container_create(None, &spec).await?.id)
    }

    async fn discard(&self, container: &ContainerId) {
        if let Err(error) = gone(self.engine.container_remove(container).await) {
            warn!(%container, %error, "a container for a snapshot could not be removed yet");
        }
    }

    async fn archive(&self, of: &ContainerId) -> Result<impl AsyncRead + Send + Unpin + use<>, EngineError> {
        let cap = SNAPSHOT_BYTES + SNAPSHOT_FILES * PER_ENTRY;
        Ok(self.engine.archive_get(of, SNAPSHOT_DIR, cap).await?.into_async_read())
    }

    async fn read(&self, of: &ContainerId, read: Option<&Arc<AtomicU64>>) -> Result<Contents, VolumeError> {
        let read = read.cloned().unwrap_or_default();
        let count = move |piece: &[u8]| {
            read.fetch_add(piece.len() as u64, Ordering::Relaxed);
        };
        take(InspectReader::new(self.archive(of).await?, count), tokio::io::sink()).await
    }

    async fn copy(&self, from: &ContainerId, to: &ContainerId) -> Result<(), VolumeError> {
        let archive = self.archive(from).await?;
        let (ours, theirs) = tokio::io::duplex(PIPE);
        let taking = async move {
            match take(archive, ours).await {
                Ok(_) => Ok(()),
                Err(error) => Err(error),
            }
        };
        // An archive that breaks off has no end mark, and the volume is compared afterwards.
        let putting = self.engine.archive_put_stream(to, "/", ReaderStream::new(theirs));
        let (taken, put) = tokio::join!(taking, putting);
        // If the engine refused, the rest could not be given to it.
        put?;
        taken
    }
}

/// Reads an archive of the directory, and writes it again as a snapshot has it.
async fn take(
    from: impl AsyncRead + Send + Unpin,
    to: impl AsyncWrite + Send + Unpin + 'static,
) -> Result<Contents, VolumeError> {
    let mut out = Builder::new(to);
    let mut archive = Archive::new(from);
    let mut entries = archive.entries()?;
    let (mut bytes, mut files) = (0_u64, BTreeMap::new());
    let directory = || entry_of_root(EntryType::Directory, 0o555, 0);
    // The engine guesses a compression from the first bytes, and takes no directory for compressed data.
    let mut root = entry_of_root(EntryType::Directory, 0o755, 0);
    out.append_data(&mut root, ".", tokio::io::empty()).await?;
    while let Some(entry) = entries.next().await {
        let mut entry = entry?;
        let path = path_of(&entry.path()?)?;
        if files.len() as u64 >= SNAPSHOT_FILES {
            return Err(VolumeError::TooLarge);
        }
        let name = format!("{}{path}", SNAPSHOT_DIR.trim_start_matches('/'));
        let (kind, size) = (entry.header().entry_type(), entry.effective_size());
        let note = if kind.is_dir() {
            out.append_data(&mut directory(), &name, tokio::io::empty()).await?;
            "directory".to_owned()
        } else if kind.is_file() {
            bytes = bytes.saturating_add(size);
            if bytes > SNAPSHOT_BYTES {
                return Err(VolumeError::TooLarge);
            }
            // Whoever may execute it may: nothing else of a mode counts.
            let mode = if entry.header().mode()? & 0o111 == 0 { 0o444 } else { 0o555 };
            let mut content = Hashing { inner: (&mut entry).take(size), digest: Sha256::new(), seen: 0 };
            out.append_data(&mut entry_of_root(kind, mode, size), &name, &mut content).await?;
            if content.seen != size {
                return Err(VolumeError::Unfit(format!("{path:?}, whose content is not whole")));
            }
            format!("file {mode:o} {size} {}", hex(&content.digest.finalize()))
        } else {
            return Err(VolumeError::Unfit(format!("{path:?}, which is neither a file nor a directory")));
        };
        if files.insert(path.clone(), note).is_some() {
            return Err(VolumeError::Unfit(format!("{path:?} twice")));
        }
    }
    out.finish().await?;
    if bytes == 0 {
        return Err(VolumeError::Unfit("no content".to_owned()));
    }
    let text = files.into_iter().map(|(path, note)| format!("{path}\0{note}\n")).collect::<String>();
    Ok(Contents { digest: hex(&Sha256::digest(text)), bytes })
}

/// The path of an entry below the directory, with a slash before it; empty for the directory itself.
fn path_of(path: &Path) -> Result<String, VolumeError> {
    let unfit = || VolumeError::Unfit(format!("the path {:?}", path.display().to_string()));
    let mut parts = path.components();
    let first = Path::new(SNAPSHOT_DIR).file_name();
    match parts.next() {
        Some(Component::Normal(name)) if Some(name) == first => {}
        _ => return Err(unfit()),
    }
    let mut below = String::new();
    for part in parts {
        let Component::Normal(part) = part else { return Err(unfit()) };
        below.push('/');
        below.push_str(part.to_str().ok_or_else(unfit)?);
    }
    if below.len() > LONGEST_PATH || below.chars().any(char::is_control) { Err(unfit()) } else { Ok(below) }
}

/// A reader that hashes what it reads.
struct Hashing<R> {
    inner: R,
    digest: Sha256,
    seen: u64,
}

impl<R: AsyncRead + Unpin> AsyncRead for Hashing<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.inner).poll_read(cx, buf))?;
        let read = &buf.filled()[before..];
        self.digest.update(read);
        self.seen += read.len() as u64;
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
#[path = "volume_tests.rs"]
mod tests;
