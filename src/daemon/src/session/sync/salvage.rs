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
//! as removed. It must never take more than the bounds say, nor a file whose bytes are not all there.

mod ignored;

use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

use paddock_proto::LinkTarget;
use paddock_proto::ignore::MAX_FILE;
use paddock_proto::message::{Entry, EntryKind};
use sha2::{Digest, Sha256};
use tracing::{info, warn};

use self::ignored::Ignored;
use super::{Collected, DataBounds};
use crate::engine::ContainerStatus;
use crate::pool::{Bounds, DataPlace};
use crate::session::port::Container;
use crate::store::tar::{MemberKind, TarLimits, TarMember, TarReader};
use crate::store::{Batch, Space, StoreError, blocking};

/// Bytes of an archive for each entry beside its content: header, padding, PAX records.
const OVERHEAD: u64 = 4096;

const SECOND: i64 = 1_000_000_000;

/// How long the archive of a workspace is read: the call that lost its container waits.
const WITHIN: Duration = Duration::from_secs(60);

/// Saves what `/data` of this container has and the store has not. `None` if there is nothing to save: the
/// container does not run any more, and its memory is gone.
///
/// # Errors
/// The store's: nothing is saved then.
pub(in crate::session) async fn salvage(
    space: &Arc<Space>,
    container: &dyn Container,
    bounds: DataBounds,
) -> Result<Option<Collected>, StoreError> {
    let name = container.name();
    let is_on_disk = container.runner().bounds.place != DataPlace::Memory;
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
    let has = match container.runner().bounds.place {
        DataPlace::Memory => bounds,
        DataPlace::Disk(_) => {
            let Bounds { data, data_inodes, .. } = container.runner().bounds;
            DataBounds { bytes: data, entries: data_inodes }
        }
    };
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
    let mut salvage =
        Salvage { space, batch: Batch::new(space.clone()), done: Collected::default(), ignored };
    loop {
        if is_on_disk && tokio::time::Instant::now() >= until {
            warn!(name, "the archive of a container is not read to its end: that takes too long");
            break;
        }
        let member = match tar.next().await {
            Ok(Some(member)) => member,
            Ok(None) => break,
            Err(error) => {
                // What came whole before it is kept.
                warn!(%error, name, "the archive of a container is not whole");
                break;
            }
        };
        if !salvage.take(member, &mut tar).await? {
            break;
        }
    }
    let mut done = salvage.done;
    salvage.batch.commit().await?;
    done.changed.retain(|entry| matches!(entry.kind, EntryKind::File(_)));
    info!(name, files = done.changed.len(), "files were salvaged from a lost container");
    Ok(Some(done))
}

struct Salvage<'a> {
    space: &'a Arc<Space>,
    batch: Batch,
    done: Collected,
    /// What git would ignore, where that is left out.
    ignored: Option<Ignored>,
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
            // The agent would send another name of a file as a file; an archive has its content under the
            // first.
            MemberKind::Hard(_) => {
                self.done.leave(path, "it is another name of a file");
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
        if alike.is_some() && self.stored_digest(&entry).await? == digest.finalize()[..] {
            self.batch.discard();
        } else {
            self.batch.keep();
            self.done.changed.push(entry);
        }
        Ok(true)
    }

    async fn stored_digest(&self, entry: &Entry) -> Result<Vec<u8>, StoreError> {
        let (space, path) = (self.space.clone(), entry.path.clone());
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
}

#[cfg(test)]
pub(in crate::session) mod tests;
