//! The files of a container whose agent cannot be reached: the engine pauses the container and archives
//! `/data`, and then the container is given up.
//!
//! ```text
//!  lost link ─► does it still run? ─► pause ─► archive of /data ─► checked entries ─► store
//! ```
//!
//! A workspace on a disk outlives the processes of its container, and can be far larger than what is saved of
//! it: what git would ignore is left out, and the reading ends after a while.
//!
//! An engine's archive can leave out what was there without saying so, so a file that it lacks does not count
//! as removed. For a moment an engine also says of a container that it runs whose processes are dead, and
//! archives what its memory leaves behind: nothing. So the engine is asked again afterwards. It must never
//! take more than the bounds say, nor a file whose bytes are not all there, nor say that all is saved where
//! it cannot know.

mod ignored;

use std::io::Read;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Duration;

use paddock_proto::ignore::MAX_FILE;
use paddock_proto::message::{Entry, EntryKind};
use paddock_proto::{LinkTarget, RelPath};
use sha2::{Digest, Sha256};
use tracing::{info, warn};

use self::ignored::Ignored;
use super::{Collected, DataBounds};
use crate::engine::ContainerStatus;
use crate::session::port::Readable;
use crate::store::tar::{MemberKind, TarLimits, TarMember, TarReader};
use crate::store::{Batch, Space, StoreError, blocking};

/// Bytes of an archive for each entry beside its content: header, padding, PAX records.
const OVERHEAD: u64 = 4096;

const SECOND: i64 = 1_000_000_000;

/// Bytes that are copied in one go.
const COPY: usize = 256 * 1024;

/// How long the archive of a workspace is read: the call that lost its container waits.
const WITHIN: Duration = Duration::from_secs(60);

/// Saves what `/data` of this container has and the store has not. `None` if nothing can be read of it: the
/// container does not run any more, and its memory is gone.
///
/// # Errors
/// The store's: nothing is saved then.
pub(in crate::session) async fn salvage(
    space: &Arc<Space>,
    container: &dyn Readable,
    bounds: DataBounds,
) -> Result<Option<Collected>, StoreError> {
    let name = container.name();
    let on_disk = container.on_disk();
    let is_on_disk = on_disk.is_some();
    match container.status().await {
        Ok(ContainerStatus::Running) => {
            // Its programs may still run. A container that cannot be paused is read all the same.
            if let Err(error) = container.pause().await {
                warn!(%error, name, "a container could not be paused");
            }
        }
        Ok(ContainerStatus::Paused) => {}
        Ok(ContainerStatus::Exited) if is_on_disk => {}
        Ok(_) | Err(_) => return Ok(None),
    }
    let has = on_disk.unwrap_or(bounds);
    let limits = TarLimits { entries: has.reported(), bytes: has.bytes };
    let cap = has.bytes.saturating_add(has.entries.saturating_mul(OVERHEAD));
    let archive = match container.pack_data(cap).await {
        Ok(archive) => archive,
        Err(error) => {
            warn!(%error, name, "a container's files could not be salvaged");
            return Ok(None);
        }
    };
    let until = tokio::time::Instant::now() + WITHIN;
    let mut tar = TarReader::new(archive, limits);
    let ignored = is_on_disk.then(Ignored::default);
    let mut salvage = Salvage {
        space,
        batch: Batch::new(space.clone()),
        done: Collected::default(),
        ignored,
        names: Vec::new(),
    };
    loop {
        if is_on_disk && tokio::time::Instant::now() >= until {
            warn!(name, "the archive of a container is not read to its end: that takes too long");
            salvage.done.is_partial = true;
            break;
        }
        let member = match tar.next().await {
            Ok(Some(member)) => member,
            Ok(None) => break,
            Err(error) => {
                // What came whole before it is kept.
                warn!(%error, name, "the archive of a container is not whole");
                salvage.done.is_partial = true;
                break;
            }
        };
        if !salvage.take(member, &mut tar).await? {
            salvage.done.is_partial = true;
            break;
        }
    }
    if !is_on_disk
        && !matches!(container.status().await, Ok(ContainerStatus::Running | ContainerStatus::Paused))
    {
        warn!(name, "a container ended while its files were read");
        salvage.done.is_partial = true;
    }
    let Salvage { batch, mut done, names, .. } = salvage;
    batch.commit().await?;
    copy(space, names, &mut done).await?;
    done.changed.retain(|entry| matches!(entry.kind, EntryKind::File(_)));
    if done.is_partial && done.changed.is_empty() && done.not_saved.is_empty() {
        return Ok(None);
    }
    let (files, is_partial) = (done.changed.len(), done.is_partial);
    info!(name, files, is_partial, "files were salvaged from a lost container");
    Ok(Some(done))
}

struct Salvage<'a> {
    space: &'a Arc<Space>,
    batch: Batch,
    done: Collected,
    /// What git would ignore, where that is left out.
    ignored: Option<Ignored>,
    /// Further names of files, and the name under which the archive has the content.
    names: Vec<(RelPath, RelPath)>,
}

/// Saves files under their further names, each a file of its own as an agent would send it. The content is
/// that of the name that was saved.
async fn copy(
    space: &Arc<Space>,
    names: Vec<(RelPath, RelPath)>,
    done: &mut Collected,
) -> Result<(), StoreError> {
    let mut batch = Batch::new(space.clone());
    for (path, first) in names {
        let of = |path: &RelPath| space.manifest().get(path).map(|stored| stored.entry.clone());
        let Some(source) = of(&first).filter(|entry| matches!(entry.kind, EntryKind::File(_))) else {
            done.leave(path, "it is another name of a file that is not saved");
            continue;
        };
        let entry = Entry { path, ..source.clone() };
        let alike = of(&entry.path).is_some_and(|stored| stored.kind == entry.kind);
        if alike && stored_digest(space, &entry).await? == stored_digest(space, &source).await? {
            continue;
        }
        if let Err(error) = batch.admit(&entry) {
            done.leave(entry.path, error.left_out());
            continue;
        }
        batch.file(entry.clone());
        let mut at = 0;
        loop {
            let (space, path) = (space.clone(), source.path.clone());
            let what = format!("cannot read {path:?} from the store");
            let read = move || {
                let mut piece = vec![0; COPY];
                let n = space.open(&path)?.read_at(&mut piece, at)?;
                piece.truncate(n);
                Ok(piece)
            };
            let piece = blocking(move || read().map_err(StoreError::io(what))).await?;
            if piece.is_empty() {
                break;
            }
            at += piece.len() as u64;
            batch.write(&piece).await?;
        }
        batch.keep();
        done.changed.push(entry);
    }
    batch.commit().await?;
    Ok(())
}

async fn stored_digest(space: &Arc<Space>, entry: &Entry) -> Result<Vec<u8>, StoreError> {
    let (space, path) = (space.clone(), entry.path.clone());
    let what = format!("cannot read {path:?} from the store");
    let read = move || {
        let mut file = space.open(&path)?;
        let mut digest = Sha256::new();
        let mut piece = vec![0; 64 * 1024];
        loop {
            match file.read(&mut piece)? {
                0 => return Ok(digest.finalize().to_vec()),
                n => digest.update(&piece[..n]),
            }
        }
    };
    blocking(move || read().map_err(StoreError::io(what))).await
}

impl Salvage<'_> {
    /// Whether the archive can be read on.
    async fn take<R: tokio::io::AsyncRead + Unpin>(
        &mut self,
        member: TarMember,
        tar: &mut TarReader<R>,
    ) -> Result<bool, StoreError> {
        let TarMember { path, kind, mode, mtime_ns } = member;
        let stored = self.space.manifest().get(&path).map(|stored| stored.entry.clone());
        if let Some(ignored) = &mut self.ignored
            && ignored.has(&path, matches!(kind, MemberKind::Dir))
            && stored.is_none()
        {
            return Ok(true);
        }
        let has_rules = self.ignored.is_some() && Ignored::is_about(&path);
        let kind = match kind {
            MemberKind::Dir => EntryKind::Dir,
            MemberKind::File(size) => EntryKind::File(size),
            MemberKind::Link(target) => match LinkTarget::new(target) {
                Ok(target) => EntryKind::Link(target),
                Err(_) => return Ok(true),
            },
            // An archive has the content of a file only under its first name.
            MemberKind::Hard(first) => {
                self.names.push((path, first));
                return Ok(true);
            }
        };
        let entry = Entry { path, kind, mode, mtime_ns };
        if let Err(error) = self.batch.admit(&entry) {
            self.done.leave(entry.path, error.left_out());
            return Ok(true);
        }
        let EntryKind::File(size) = entry.kind else {
            let same = stored.is_some_and(|stored| stored.kind == entry.kind);
            match entry.kind {
                EntryKind::Dir if !same => self.batch.dir(entry),
                EntryKind::Link(_) if !same => self.batch.link(entry),
                EntryKind::Dir | EntryKind::Link(_) | EntryKind::File(_) => {}
            }
            return Ok(true);
        };
        self.batch.file(entry.clone());
        let (mut digest, mut left, mut rules) = (Sha256::new(), size, Vec::new());
        while left > 0 {
            let Ok(Some(piece)) = tar.piece().await else {
                self.batch.discard();
                self.done.leave(entry.path, "the archive ends in it");
                return Ok(false);
            };
            left -= piece.len() as u64;
            digest.update(&piece);
            if has_rules && rules.len() < MAX_FILE {
                rules.extend_from_slice(&piece);
            }
            self.batch.write(&piece).await?;
        }
        if let Some(ignored) = &mut self.ignored {
            ignored.take(&entry.path, &rules);
        }
        // Archives have whole seconds: a file of the same size and second is compared by its content.
        let seconds = |entry: &Entry| entry.mtime_ns.div_euclid(SECOND);
        let alike = stored.filter(|stored| stored.kind == entry.kind && seconds(stored) == seconds(&entry));
        if alike.is_some() && stored_digest(self.space, &entry).await? == digest.finalize()[..] {
            self.batch.discard();
        } else {
            self.batch.keep();
            self.done.changed.push(entry);
        }
        Ok(true)
    }
}

#[cfg(test)]
pub(in crate::session) mod tests;
