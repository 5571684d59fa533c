//! Takes over what the host put into a drop folder, all or nothing, before a run.
//!
//! A file that changes while it is read is left for the next run: it is not whole.

use std::io::Read;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use paddock_proto::RelPath;
use paddock_proto::message::{Entry, EntryKind};
use tracing::{info, warn};

use super::plan::{FolderStamp, Known, Stored, StoredStamp, incoming};
use super::{DropError, Drops, folder};
use crate::session::{Session, SessionError, SessionId, Sessions, TurnKind};
use crate::store::{Batch, Manifest, blocking};

/// One read of a file.
const PIECE: u64 = 256 * 1024;

/// The mode of a file that was taken over.
const MODE: u32 = 0o644;

impl Drops {
    /// Takes over what the host changed, if the session has a folder and nothing runs in it.
    ///
    /// # Errors
    /// The files cannot be taken; the session is then as it was.
    pub async fn take(
        &self,
        sessions: &Sessions,
        owner: &str,
        id: &SessionId,
        is_free: impl Fn(&Manifest, &RelPath) -> bool,
    ) -> Result<(), DropError> {
        let Some(root) = self.folder(owner, id).await else { return Ok(()) };
        // Files must not change under a program: what is there now waits for the next run.
        let turn = match sessions.try_enter(owner, id, TurnKind::Whole).await {
            Ok(turn) => turn,
            Err(SessionError::Store(error)) => return Err(error.into()),
            Err(_) => return Ok(()),
        };
        let session = turn.session().clone();
        let record = self.record(&session);
        let mut record = record.lock().await;
        if !session.space.is_stored() {
            // The session was deleted, or is new: whatever is in the folder is new to it.
            record.known.clear();
        }
        let root = Arc::new(root);
        let (reading, most) = (root.clone(), self.entries);
        let found = blocking(move || Ok(folder::read(&reading, most))).await??;
        let stored = stored(&session);
        let plan = incoming(&record.known, &found, &stored);
        if plan.take.is_empty() && plan.remove.is_empty() {
            return Ok(());
        }
        let mut batch = Batch::new(session.space.clone());
        let mut taken = Vec::new();
        for path in plan.take {
            if !is_free(&session.space.manifest(), &path) {
                let path = path.to_text();
                warn!(session_id = %id, %path, "a dropped file is left out: it is in the session's way");
                continue;
            }
            if let Some(stamp) = put(&mut batch, &root, &path).await? {
                taken.push((path, stamp));
            }
        }
        for path in &plan.remove {
            batch.remove(path.clone());
        }
        batch.commit().await?;
        for path in &plan.remove {
            record.known.remove(path);
        }
        let (files, removed) = (taken.len(), plan.remove.len());
        for (path, folder) in taken {
            let stored = StoredStamp { size: folder.size, mtime_ns: folder.mtime_ns };
            record.known.insert(path, Known { folder, stored });
        }
        record.save();
        info!(session_id = %id, files, removed, "took over what was dropped");
        Ok(())
    }
}

/// Adds one file to the batch. `None` if it is gone, or not whole.
async fn put(
    batch: &mut Batch,
    root: &Arc<OwnedFd>,
    path: &RelPath,
) -> Result<Option<FolderStamp>, DropError> {
    let (opening, at) = (root.clone(), path.clone());
    let Some((file, stamp)) = blocking(move || Ok(folder::open_file(&opening, &at))).await? else {
        return Ok(None);
    };
    let entry =
        Entry { path: path.clone(), kind: EntryKind::File(stamp.size), mode: MODE, mtime_ns: stamp.mtime_ns };
    batch.admit(&entry)?;
    batch.file(entry);
    let mut file = file;
    let mut size = 0;
    loop {
        let reading = blocking(move || {
            let mut piece = Vec::new();
            let read = (&mut file).take(PIECE).read_to_end(&mut piece);
            Ok((read.map(|_| piece), file))
        });
        let (read, same) = reading.await?;
        file = same;
        let piece = read?;
        if piece.is_empty() {
            break;
        }
        size += piece.len() as u64;
        if size > stamp.size {
            break;
        }
        batch.write(&piece).await?;
    }
    let is_whole =
        size == stamp.size && rustix::fs::fstat(&file).is_ok_and(|stat| folder::stamp(&stat) == Some(stamp));
    if is_whole {
        batch.keep();
        return Ok(Some(stamp));
    }
    batch.discard();
    Ok(None)
}

/// The files of a session.
pub(super) fn stored(session: &Session) -> Stored {
    let manifest = session.space.manifest();
    let files = manifest.files();
    files.map(|(entry, size)| (entry.path.clone(), StoredStamp { size, mtime_ns: entry.mtime_ns })).collect()
}
