//! Takes over what the host put into a drop folder, all or nothing, before a run.
//!
//! A file that changes while it is read is left for the next run: it is not whole.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use paddock_proto::RelPath;
use paddock_proto::message::{Entry, EntryKind};
use tracing::{info, warn};

use super::plan::{FolderStamp, Identity, Incoming, Known, Stored, StoredStamp, incoming};
use super::{DropError, Drops, Held, LOOK, SharedRecord, folder, lock};
use crate::session::{Session, SessionError, SessionId, Sessions, Turn, TurnKind};
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
        let Some(root) = self.folder(owner, id).await? else { return Ok(()) };
        // Files must not change under a program: what is there now waits for the next run.
        let turn = match sessions.try_enter(owner, id, TurnKind::Whole).await {
            Ok(turn) => turn,
            Err(SessionError::Store(error)) => return Err(error.into()),
            Err(_) => return Ok(()),
        };
        self.take_over(turn.session(), Arc::new(root), is_free).await
    }

    /// The same for a call that has its turn already.
    ///
    /// # Errors
    /// As of [`Drops::take`].
    pub async fn take_in(
        &self,
        turn: &Turn,
        is_free: impl Fn(&Manifest, &RelPath) -> bool,
    ) -> Result<(), DropError> {
        let session = turn.session();
        let Some(root) = self.folder(&session.owner, &session.id).await? else { return Ok(()) };
        if !turn.claim() {
            return Ok(());
        }
        self.take_over(session, Arc::new(root), is_free).await
    }

    /// The caller has the session to itself.
    async fn take_over(
        &self,
        session: &Arc<Session>,
        root: Arc<OwnedFd>,
        is_free: impl Fn(&Manifest, &RelPath) -> bool,
    ) -> Result<(), DropError> {
        let (owner, id) = (&session.owner, &session.id);
        let held = self.hold(owner, id).await?;
        let (slot, of, at, most) = (held.slot.clone(), session.clone(), root.clone(), self.entries);
        let looking = move || look(&slot.record(&of), &of, &at, most);
        let (record, identity, plan) = self.at_folder(&held, owner, LOOK, looking).await??;
        if plan.take.is_empty() && plan.remove.is_empty() {
            return Ok(());
        }
        let mut batch = Batch::new(session.space.clone());
        let mut taken = Vec::new();
        let mut left = BTreeMap::new();
        for path in plan.take {
            if !is_free(&session.space.manifest(), &path) {
                left.insert(path, "it is in the session's way".to_owned());
                continue;
            }
            match self.put(&held, owner, &mut batch, &root, &path).await? {
                Put::Taken(stamp) => taken.push((path, stamp)),
                Put::NotWhole => {}
                Put::Refused(error) => drop(left.insert(path, error.to_string())),
            }
        }
        for path in lock(&record).news(left.keys()) {
            let why = left.get(&path);
            let path = path.to_text();
            warn!(session_id = %id, %path, why, "a dropped file is left out");
        }
        if taken.is_empty() && plan.remove.is_empty() {
            return Ok(());
        }
        for path in &plan.remove {
            batch.remove(path.clone());
        }
        batch.commit().await?;
        let (files, removed) = (taken.len(), plan.remove.len());
        let noting = blocking(move || {
            let mut record = lock(&record);
            if let Some(of) = record.of_mut(identity) {
                for path in &plan.remove {
                    of.known.remove(path);
                }
                for (path, folder) in taken {
                    let stored = StoredStamp { size: folder.size, mtime_ns: folder.mtime_ns };
                    of.known.insert(path, Known { folder, stored, is_made: false });
                }
            }
            record.save();
            Ok(())
        });
        noting.await?;
        info!(session_id = %id, files, removed, "took over what was dropped");
        Ok(())
    }

    /// Adds one file to the batch.
    async fn put(
        &self,
        held: &Arc<Held>,
        owner: &str,
        batch: &mut Batch,
        root: &Arc<OwnedFd>,
        path: &RelPath,
    ) -> Result<Put, DropError> {
        let (opening, at) = (root.clone(), path.clone());
        let opened = self.at_folder(held, owner, LOOK, move || folder::open_file(&opening, &at)).await?;
        let (file, stamp) = match opened {
            Ok(Some(opened)) => opened,
            Ok(None) => return Ok(Put::NotWhole),
            Err(error) => return Ok(Put::Refused(error)),
        };
        let kind = EntryKind::File(stamp.size);
        let entry = Entry { path: path.clone(), kind, mode: MODE, mtime_ns: stamp.mtime_ns };
        batch.admit(&entry)?;
        batch.file(entry);
        let mut file = file;
        let mut size = 0;
        loop {
            let reading = move || {
                let mut piece = Vec::new();
                let read = (&mut file).take(PIECE).read_to_end(&mut piece);
                let stamp = rustix::fs::fstat(&file).ok().and_then(|stat| folder::stamp(&stat));
                (read.map(|_| piece), stamp, file)
            };
            let (read, now, same) = self.at_folder(held, owner, LOOK, reading).await?;
            file = same;
            let piece = read?;
            size += piece.len() as u64;
            if !piece.is_empty() && size <= stamp.size {
                batch.write(&piece).await?;
                continue;
            }
            if size == stamp.size && now == Some(stamp) {
                batch.keep();
                return Ok(Put::Taken(stamp));
            }
            batch.discard();
            return Ok(Put::NotWhole);
        }
    }
}

/// What became of a file of the folder.
enum Put {
    Taken(FolderStamp),
    /// It is gone, or changes while it is read.
    NotWhole,
    Refused(io::Error),
}

/// Compares the folder with the session.
fn look(
    record: &SharedRecord,
    session: &Session,
    root: &OwnedFd,
    most: usize,
) -> Result<(SharedRecord, Identity, Incoming), DropError> {
    let mut known = lock(record);
    let identity = folder::identity(root)?;
    let is_made = |path: &RelPath| known.of(identity).is_some_and(|folder| folder.is_made(path));
    let seen = folder::read(root, most, is_made)?;
    let others = known.news(seen.others.iter());
    if let Some(path) = others.first().map(RelPath::to_text) {
        let count = others.len();
        warn!(session_id = %session.id, %path, count, "left out of a drop folder: links, devices, files with \
                                                      a second name, and folders that cannot be read");
    }
    let mut plan = incoming(&known.enter(identity, &seen).known, &seen, &stored(session));
    // A name can be missed by who lists a folder in which files are renamed.
    plan.remove.retain(|path| folder::is_gone(root, path));
    Ok((record.clone(), identity, plan))
}

/// The files of a session.
pub(super) fn stored(session: &Session) -> Stored {
    let manifest = session.space.manifest();
    let files = manifest.files();
    files.map(|(entry, size)| (entry.path.clone(), StoredStamp { size, mtime_ns: entry.mtime_ns })).collect()
}
