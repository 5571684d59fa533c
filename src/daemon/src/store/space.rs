//! One session's files on disk, and its manifest.
//!
//! It must never be changed but through a [`Batch`](super::Batch).

use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use paddock_proto::RelPath;
use paddock_proto::message::{Entry, EntryKind};
use tokio::sync::OwnedMutexGuard;

use super::journal::JournalPin;
use super::record::{JournalOp, JournalRecord};
use super::remote::{Hold, Wanted};
use super::session_json::{self, SessionJson};
use super::shared::SharedState;
use super::usage::{Amount, SESSION_ENTRIES};
use super::{Manifest, StoreError, apply, links, log, make_dir};

/// One session's part of the store.
pub struct Space {
    pub(super) shared: Arc<SharedState>,
    pub(super) owner: String,
    pub(super) session: String,
    hash: String,
    pub(super) dir: PathBuf,
    /// StoredEntry while the session is changed or loaded.
    write_lock: Arc<tokio::sync::Mutex<()>>,
    loaded: AtomicBool,
    gone: AtomicBool,
    /// Whether [`SESSION_ENTRIES`] are counted for it.
    counted: AtomicBool,
    closed: Mutex<bool>,
    /// Bytes of its logs that were counted.
    logs: Mutex<u64>,
    manifest: Mutex<Manifest>,
    /// What this node has of it, in a store of many machines.
    pub(super) hold: Mutex<Hold>,
}

impl Space {
    pub(super) fn new(shared: Arc<SharedState>, hash: String, owner: &str, session: &str) -> Self {
        Self {
            owner: owner.to_owned(),
            session: session.to_owned(),
            dir: shared.root.join(&hash),
            write_lock: Arc::default(),
            loaded: AtomicBool::new(false),
            gone: AtomicBool::new(false),
            counted: AtomicBool::new(false),
            closed: Mutex::new(false),
            logs: Mutex::new(0),
            manifest: Mutex::new(Manifest::default()),
            hold: Mutex::default(),
            hash,
            shared,
        }
    }

    /// Waits for the lock under which the session is changed.
    pub(super) async fn lock(&self) -> OwnedMutexGuard<()> {
        self.write_lock.clone().lock_owned().await
    }

    /// The same on a thread that may block.
    pub(super) fn lock_blocking(&self) -> OwnedMutexGuard<()> {
        self.write_lock.clone().blocking_lock_owned()
    }

    /// The same, if it is free.
    pub(super) fn try_lock(&self) -> Option<OwnedMutexGuard<()>> {
        self.write_lock.clone().try_lock_owned().ok()
    }

    /// Makes the disk agree with the journal, and the manifest with the disk, where they do not. The caller
    /// has the lock.
    pub(super) fn ready(&self) -> Result<(), StoreError> {
        let settled = self.shared.apply_pending(&self.hash)?;
        if self.loaded.load(Ordering::Acquire) && !settled {
            return Ok(());
        }
        let (is_there, manifest) = self.read_disk()?;
        if self.loaded.load(Ordering::Acquire) {
            self.replace(manifest);
            if is_there {
                self.count_session();
            }
        } else {
            let mut logs = self.logs();
            *logs = log::size_of_logs(&self.dir);
            let of_session = if is_there { SESSION_ENTRIES } else { 0 };
            self.counted.store(is_there, Ordering::Release);
            let beside = Amount { bytes: *logs, entries: of_session };
            self.shared.usage.count(&self.hash, &self.owner, manifest.amount().plus(beside));
            *self.locked() = manifest;
            self.loaded.store(true, Ordering::Release);
        }
        Ok(())
    }

    /// The same before a change of the caller's own. If an earlier one still waits for its place, this one
    /// must wait too: nothing of it is saved, and the error is the disk's, never [`StoreError::Pending`].
    pub(super) fn ready_for_change(&self) -> Result<(), StoreError> {
        let ready = self.ready();
        if let Err(StoreError::Pending(why)) = ready { Err(why.of_saving()) } else { ready }
    }

    /// What is on the disk, and whether anything is.
    fn read_disk(&self) -> Result<(bool, Manifest), StoreError> {
        let about = session_json::read(&self.dir)
            .map_err(StoreError::io(format!("cannot read session.json of {}", self.dir.display())))?;
        let mut manifest = Manifest::after(&self.locked());
        let is_there = about.is_some();
        if let Some((about, _)) = about {
            *self.closed() = about.closed;
            let what = || format!("cannot read the files of a session in {}", self.dir.display());
            walk(&self.files(), None, &mut manifest).map_err(StoreError::io(what()))?;
            for (path, target) in links::read(&self.dir).map_err(StoreError::io(what()))? {
                manifest.put(Entry { path, kind: EntryKind::Link(target), mode: 0o777, mtime_ns: 0 });
            }
        }
        Ok((is_there, manifest))
    }

    /// Makes the manifest agree with the disk after the disk was changed past it. The caller has the lock,
    /// and the session is loaded.
    pub(super) fn reload(&self) -> Result<(), StoreError> {
        let (is_there, manifest) = self.read_disk()?;
        self.replace(manifest);
        if is_there {
            self.count_session();
        } else {
            self.uncount();
        }
        Ok(())
    }

    /// The session and its logs do not count any more.
    fn uncount(&self) {
        let of_session = if self.counted.swap(false, Ordering::AcqRel) { SESSION_ENTRIES } else { 0 };
        let beside = Amount { bytes: std::mem::take(&mut *self.logs()), entries: of_session };
        self.shared.usage.changed(&self.owner, beside, Amount::default());
    }

    /// Makes sure that this node may answer for the session at this moment: in a store of many machines it
    /// asks the ledger again once its lease has been over. Everything that is read of a session in memory
    /// comes after this.
    ///
    /// # Errors
    /// [`StoreError::Ledger`], and an error of the file system.
    pub(crate) async fn confirm(self: Arc<Self>) -> Result<(), StoreError> {
        if self.check_hold().is_ok() {
            return Ok(());
        }
        let lock = self.lock().await;
        super::blocking(move || {
            let _lock = lock;
            self.ready()?;
            self.secure(Wanted::Made).map(drop)
        })
        .await
    }

    /// Applies a durable record; `after` is the manifest that it leads to. The caller has the lock.
    pub(super) fn apply(
        &self,
        record: Arc<JournalRecord>,
        pin: JournalPin,
        after: Manifest,
    ) -> Result<(), StoreError> {
        let new = !self.is_stored();
        match apply::apply(&self.shared.root, &self.shared.tmp, &record) {
            Ok(replaced) => pin.take_over(replaced),
            Err(error) => {
                tracing::error!(%error, session = self.session, "a saved change cannot be put in place; the \
                                                                 daemon keeps it and retries");
                self.shared.unapplied().insert(self.hash.clone(), vec![(record, pin)]);
                return Err(StoreError::Pending(Box::new(error)));
            }
        }
        self.replace(after);
        if self.is_stored() {
            self.count_session();
            self.mark_cache();
        }
        if new && *self.closed() {
            self.keep_closed(true);
        }
        Ok(())
    }

    fn replace(&self, after: Manifest) {
        let mut manifest = self.locked();
        self.shared.usage.changed(&self.owner, manifest.amount(), after.amount());
        *manifest = after;
    }

    /// SyncCounts the entries of the session itself, once.
    fn count_session(&self) {
        if !self.counted.swap(true, Ordering::AcqRel) {
            self.shared.usage.changed(&self.owner, Amount::default(), Amount::entries(SESSION_ENTRIES));
        }
    }

    /// Makes the session's directory, if it does not exist.
    pub(super) fn make(&self) -> Result<(), StoreError> {
        if self.is_stored() {
            return Ok(());
        }
        self.shared.usage.admit(&self.owner, Amount::entries(SESSION_ENTRIES))?;
        let what = || format!("cannot make {}", self.dir.display());
        make_dir(&self.files()).map_err(StoreError::io(what()))?;
        self.write_about(*self.closed()).map_err(StoreError::io(what()))?;
        self.count_session();
        Ok(())
    }

    fn write_about(&self, closed: bool) -> io::Result<()> {
        let about = SessionJson { owner: self.owner.clone(), session_id: self.session.clone(), closed };
        session_json::write(&self.dir, &self.shared.tmp, &about, true)
    }

    fn closed(&self) -> MutexGuard<'_, bool> {
        self.closed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether something is stored for the session.
    pub fn is_stored(&self) -> bool {
        !self.is_gone() && self.dir.join("session.json").exists()
    }

    /// Whether the session was forgotten.
    pub fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    /// Removes the session, durably. The caller has the lock.
    pub(super) fn forget(&self) -> Result<bool, StoreError> {
        if !self.is_stored() {
            return Ok(false);
        }
        self.forget_remote()?;
        let mut logs = self.logs();
        let record = Arc::new(JournalRecord {
            owner: self.owner.clone(),
            session: self.session.clone(),
            ops: vec![JournalOp::Forget],
            blob: Vec::new(),
        });
        let append = self.shared.journal.append(&record, Vec::new());
        let pin = append.map_err(|error| self.lost_here(error))?;
        self.gone.store(true, Ordering::Release);
        let of_session = if self.counted.swap(false, Ordering::AcqRel) { SESSION_ENTRIES } else { 0 };
        let beside = Amount { bytes: std::mem::take(&mut *logs), entries: of_session };
        self.shared.usage.changed(&self.owner, beside, Amount::default());
        let empty = Manifest::after(&self.locked());
        self.replace(empty);
        let empty = Manifest::after(&self.locked());
        self.apply(record, pin, empty).map(|()| true)
    }

    /// Notes on disk that the session is used now; a crash may lose the time. Makes nothing if nothing is
    /// stored.
    pub fn touch(&self) {
        if !self.is_gone() {
            session_json::touch(&self.dir);
        }
    }

    /// Whether the session is closed, see [`Space::set_closed`].
    pub fn is_closed(&self) -> bool {
        *self.closed()
    }

    /// Sets whether the session is closed; on disk too if anything is stored for it. A failure is only
    /// logged: the session's files are still good.
    pub fn set_closed(&self, closed: bool) {
        let mut now = self.closed();
        if *now == closed {
            return;
        }
        *now = closed;
        self.keep_closed(closed);
    }

    fn keep_closed(&self, closed: bool) {
        if self.is_stored()
            && let Err(error) = self.write_about(closed)
        {
            tracing::warn!(dir = %self.dir.display(), %error, closed, "cannot save whether a session is \
                                                                       closed");
        }
    }

    /// The current manifest. Durable changes that could not be applied are tried again first; until that
    /// succeeds, this is the session before them.
    pub fn manifest(&self) -> MutexGuard<'_, Manifest> {
        let lacking = self.shared.unapplied().contains_key(&self.hash);
        if lacking
            && let Some(_lock) = self.try_lock()
            && let Err(error) = self.ready()
        {
            tracing::warn!(%error, session = self.session, "a saved change still cannot be put in place; \
                                                            retrying");
        }
        self.locked()
    }

    /// The current manifest, without applying anything first.
    pub(super) fn locked(&self) -> MutexGuard<'_, Manifest> {
        self.manifest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes of its logs.
    pub(super) fn logs(&self) -> MutexGuard<'_, u64> {
        self.logs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn files(&self) -> PathBuf {
        self.dir.join("files")
    }

    /// Where a file of the session is.
    pub(super) fn disk_path(&self, path: &RelPath) -> PathBuf {
        self.files().join(std::ffi::OsStr::from_bytes(path.as_bytes()))
    }
}

fn walk(dir: &Path, at: Option<&RelPath>, manifest: &mut Manifest) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let metadata = fs::symlink_metadata(entry.path())?;
        let name = entry.file_name().into_vec();
        let path = at.map_or_else(|| RelPath::new(name.clone()), |dir| dir.join(&name));
        let Ok(path) = path else { continue }; // not a name that the store makes
        let kind = match metadata.file_type() {
            kind if kind.is_dir() => EntryKind::Dir,
            kind if kind.is_file() => EntryKind::File(metadata.len()),
            _ => continue,
        };
        let mtime_ns = metadata.mtime().saturating_mul(1_000_000_000).saturating_add(metadata.mtime_nsec());
        let dir = kind == EntryKind::Dir;
        manifest.put(Entry { path: path.clone(), kind, mode: metadata.mode() & 0o777, mtime_ns });
        if dir {
            walk(&entry.path(), Some(&path), manifest)?;
        }
    }
    Ok(())
}
