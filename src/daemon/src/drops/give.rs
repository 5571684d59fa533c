//! Puts copies of what a session changed into its drop folder, after a run.
//!
//! A copy is written beside its place and renamed, so a reader sees a whole file, the old or the new one.
//! What the host changed meanwhile is never replaced.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use paddock_proto::RelPath;
use rustix::fs::{AtFlags, Mode, OFlags, Timespec, Timestamps, UTIME_OMIT};
use tracing::warn;

use super::plan::{AllKnown, Known, Seen, Stored, StoredStamp, is_left_alone, outgoing, unused};
use super::record::FolderRecord;
use super::take::stored;
use super::{DropError, Drops, GIVE, Slot, folder, lock};
use crate::session::{Session, SessionId, Sessions};

impl Drops {
    /// Puts what the session changed into its folder, if it has one. What cannot be put there is tried again
    /// after the next run.
    pub async fn give(&self, sessions: &Sessions, owner: &str, id: &SessionId) {
        if !self.has(owner) {
            return;
        }
        if let Err(error) = self.try_give(sessions, owner, id).await {
            warn!(session_id = %id, %error, "the copies of a session's files may not be in its drop folder");
        }
    }

    async fn try_give(&self, sessions: &Sessions, owner: &str, id: &SessionId) -> Result<(), DropError> {
        let Some(root) = self.folder(owner, id).await? else { return Ok(()) };
        let Some(session) = sessions.find(owner, id).await? else { return Ok(()) };
        let held = self.hold(owner, id).await?;
        let (slot, most) = (held.slot.clone(), self.entries);
        self.at_folder(&held, owner, GIVE, move || give_all(&slot, &session, &root, most)).await?
    }
}

pub(super) fn give_all(
    slot: &Slot,
    session: &Arc<Session>,
    root: &OwnedFd,
    most: usize,
) -> Result<(), DropError> {
    let record = slot.record(session);
    let mut record = lock(&record);
    let identity = folder::identity(root)?;
    let seen = {
        let is_made = |path: &RelPath| record.of(identity).is_some_and(|folder| folder.is_made(path));
        folder::read(root, most, is_made)?
    };
    // Links and names of their own stay in the session.
    let mut all = stored(session);
    all.retain(|path, _| !path.components().any(is_left_alone));
    if session.space.is_gone() {
        // Its files are not removed by a run.
        return Ok(());
    }
    if give_changed(session, root, &seen, &all, (record.enter(identity, &seen), most)) {
        record.save();
    }
    Ok(())
}

/// True if the record changed.
fn give_changed(
    session: &Arc<Session>,
    root: &OwnedFd,
    seen: &Seen,
    all: &Stored,
    (record, most): (&mut FolderRecord, usize),
) -> bool {
    let FolderRecord { known, made, .. } = record;
    let plan = outgoing(known, seen, all, most);
    let mut is_changed = !plan.give.is_empty() || !plan.remove.is_empty();
    let mut failed: Option<(RelPath, io::Error)> = None;
    // First, since a folder may come in the place of a file.
    for path in plan.remove {
        let Some(held) = known.get(&path).copied() else { continue };
        match folder::remove(root, &path, held.folder) {
            Ok(_) => drop(known.remove(&path)),
            Err(error) => failed = Some((path, error)),
        }
    }
    for path in unused(made, all) {
        if folder::remove_empty(root, &path) {
            is_changed |= made.remove(&path);
        }
    }
    for path in plan.give {
        let Some(stamp) = all.get(&path) else { continue };
        match give(session, root, &path, *stamp, (known, made)) {
            Ok(Some(held)) => drop(known.insert(path, held)),
            Ok(None) => {}
            Err(error) => failed = Some((path, error)),
        }
    }
    if let Some((path, error)) = failed {
        let path = path.to_text();
        warn!(session_id = %session.id, %path, %error, "a file could not be put into a drop folder");
    }
    if plan.left_out > 0 {
        let files = plan.left_out;
        warn!(session_id = %session.id, files, most, "a drop folder is full: some files stay in the session");
    }
    is_changed
}

/// Puts one file there; `None` if the host or the session changed it meanwhile.
fn give(
    session: &Arc<Session>,
    root: &OwnedFd,
    path: &RelPath,
    stored: StoredStamp,
    (known, made): (&AllKnown, &mut BTreeSet<RelPath>),
) -> io::Result<Option<Known>> {
    let mut saved = session.space.open(path)?;
    let dir = folder::parent(root, path, made)?;
    let temporary = format!("{}{}{}", folder::OURS.0, crate::id::random_hex::<8>(), folder::OURS.1);
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let copy = rustix::fs::openat(&dir, temporary.as_str(), flags, Mode::from_raw_mode(0o644))?;
    let mut copy = std::fs::File::from(copy);
    let mut written = || -> io::Result<Option<Known>> {
        let size = io::copy(&mut saved, &mut copy)?;
        if size != stored.size {
            return Ok(None);
        }
        folder::as_the_folder(root, &copy);
        let nanos = stored.mtime_ns;
        let modified = Timespec {
            tv_sec: nanos.div_euclid(1_000_000_000),
            tv_nsec: nanos.rem_euclid(1_000_000_000) as _,
        };
        let omitted = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT as _ };
        rustix::fs::futimens(&copy, &Timestamps { last_access: omitted, last_modification: modified })?;
        let Some(folder) = folder::stamp(&rustix::fs::fstat(&copy)?) else { return Ok(None) };
        let held = known.get(path).map(|known| known.folder);
        if folder::is_other(dir.as_fd(), path.file_name(), held) {
            return Ok(None);
        }
        rustix::fs::renameat(&dir, temporary.as_str(), &dir, path.file_name())?;
        let is_made = known.get(path).is_none_or(|known| known.is_made);
        Ok(Some(Known { folder, stored, is_made }))
    };
    let given = written();
    if !matches!(given, Ok(Some(_))) {
        let _ = rustix::fs::unlinkat(&dir, temporary.as_str(), AtFlags::empty());
    }
    given
}
