//! What can still be had of a container whose agent cannot be reached: paused, archived by the engine, then given up.
//!
//! ```text
//!  lost link ─► does it run still? ─► pause ─► GET archive of /data ─► checked entries ─► store
//! ```
//!
//! An engine's archive can lack what was there without saying so: what is missing in it is not taken for removed.
//! It must never take more than the bounds say, nor a file whose bytes are not all there.

use std::io::Read;
use std::sync::Arc;

use paddock_proto::LinkTarget;
use paddock_proto::limits::DATA_DIR;
use paddock_proto::message::{Entry, EntryKind};
use sha2::{Digest, Sha256};
use tracing::{info, warn};

use super::SessionBounds;
use super::carry::Collected;
use crate::engine::ContainerStatus;
use crate::pool::Armed;
use crate::store::tar::{Member, MemberKind, TarLimits, TarReader};
use crate::store::{Batch, Space, StoreError, blocking};

/// Bytes of an archive beside content, for each entry: header, padding, PAX records.
const OVERHEAD: u64 = 4096;

const SECOND: i64 = 1_000_000_000;

/// Saves what `/data` of this container has and the store has not. `None` if there is nothing to be had: the container
/// does not run, and its memory is gone.
///
/// # Errors
/// The store's: nothing is saved then.
pub(super) async fn salvage(
    space: &Arc<Space>,
    armed: &Armed,
    bounds: &SessionBounds,
) -> Result<Option<Collected>, StoreError> {
    let (engine, id) = (&armed.engine, &armed.id);
    let status = engine.container_inspect(id).await.map(|detail| detail.state.status);
    match status {
        Ok(ContainerStatus::Running) => {
            // Programs may run in it still; one that cannot be paused is read all the same.
            if let Err(error) = engine.container_pause(id).await {
                warn!(%error, name = %armed.name, "a container could not be paused");
            }
        }
        Ok(ContainerStatus::Paused) => {}
        Ok(_) | Err(_) => return Ok(None),
    }
    let cap = bounds.data.saturating_add(bounds.data_inodes.saturating_mul(OVERHEAD));
    // `/data/.`: the names in the archive are then relative to it.
    let archive = match engine.archive_get(id, &format!("{DATA_DIR}/."), cap).await {
        Ok(archive) => archive,
        Err(error) => {
            warn!(%error, name = %armed.name, "a container's files could not be salvaged");
            return Ok(None);
        }
    };
    let limits = TarLimits { entries: bounds.data_inodes.saturating_mul(3), bytes: bounds.data };
    let mut tar = TarReader::new(archive.into_async_read(), limits);
    let mut salvage = Salvage { space, batch: Batch::new(space.clone()), done: Collected::default() };
    loop {
        let member = match tar.next().await {
            Ok(Some(member)) => member,
            Ok(None) => break,
            Err(error) => {
                // What came whole before it is kept.
                warn!(%error, name = %armed.name, "the archive of a container is not whole");
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
    info!(name = %armed.name, files = done.changed.len(), "files were salvaged from a lost container");
    Ok(Some(done))
}

struct Salvage<'a> {
    space: &'a Arc<Space>,
    batch: Batch,
    done: Collected,
}

impl Salvage<'_> {
    /// Whether the archive can be read on.
    async fn take<R: tokio::io::AsyncRead + Unpin>(
        &mut self,
        member: Member,
        tar: &mut TarReader<R>,
    ) -> Result<bool, StoreError> {
        let Member { path, kind, mode, mtime_ns } = member;
        let held = self.space.manifest().get(&path).map(|held| held.entry.clone());
        let kind = match kind {
            MemberKind::Dir => EntryKind::Dir,
            MemberKind::File(size) => EntryKind::File(size),
            MemberKind::Link(target) => match LinkTarget::new(target) {
                Ok(target) => EntryKind::Link(target),
                Err(_) => return Ok(true),
            },
            // A second name of a file is carried as a file by the agent; here its content is elsewhere.
            MemberKind::Hard(_) => {
                self.done.leave(path, "it is another name of a file");
                return Ok(true);
            }
        };
        let entry = Entry { path, kind, mode, mtime_ns };
        if self.batch.admit(&entry).is_err() {
            self.done.leave(entry.path, super::carry::OVER_QUOTA);
            return Ok(true);
        }
        let EntryKind::File(size) = entry.kind else {
            let same = held.is_some_and(|held| held.kind == entry.kind);
            match entry.kind {
                EntryKind::Dir if !same => self.batch.dir(entry),
                EntryKind::Link(_) if !same => self.batch.link(entry),
                EntryKind::Dir | EntryKind::Link(_) | EntryKind::File(_) => {}
            }
            return Ok(true);
        };
        self.batch.file(entry.clone());
        let (mut digest, mut left) = (Sha256::new(), size);
        while left > 0 {
            let Ok(Some(piece)) = tar.piece().await else {
                self.batch.discard();
                self.done.leave(entry.path, "the archive ends in it");
                return Ok(false);
            };
            left -= piece.len() as u64;
            digest.update(&piece);
            self.batch.write(&piece).await?;
        }
        // Archives have whole seconds: a file of the same size and second is compared by its content.
        let alike = held.filter(|held| {
            held.kind == entry.kind && held.mtime_ns.div_euclid(SECOND) == entry.mtime_ns.div_euclid(SECOND)
        });
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
