//! One session's files on disk, and its manifest.
//!
//! Reading opens component by component, without following links, and holds a shared lock on the file as long as it
//! is open: what is written over it meanwhile becomes another file. It must never be changed but through a
//! [`Batch`](super::Batch).

use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use paddock_proto::RelPath;
use paddock_proto::message::{Entry, EntryKind};
use rustix::fs::{FlockOperation, Mode, OFlags, ResolveFlags, flock};
use tokio::sync::OwnedMutexGuard;

use super::about::{self, About};
use super::journal::Ticket;
use super::record::{Op, Record};
use super::shared::Shared;
use super::usage::{Amount, SESSION_ENTRIES};
use super::{Manifest, StoreError, apply, links, log, make_dir};

/// One session's part of the store.
pub struct Space {
    pub(super) shared: Arc<Shared>,
    pub(super) owner: String,
    pub(super) session: String,
    hash: String,
    pub(super) dir: PathBuf,
    /// Held by whoever changes the session, or loads it.
    turn: Arc<tokio::sync::Mutex<()>>,
    loaded: AtomicBool,
    gone: AtomicBool,
    /// Whether [`SESSION_ENTRIES`] are counted for it.
    counted: AtomicBool,
    closed: Mutex<bool>,
    /// Bytes of its logs, as they were counted.
    logs: Mutex<u64>,
    manifest: Mutex<Manifest>,
}

impl Space {
    pub(super) fn new(shared: Arc<Shared>, hash: String, owner: &str, session: &str) -> Self {
        Self {
            owner: owner.to_owned(),
            session: session.to_owned(),
            dir: shared.root.join(&hash),
            turn: Arc::default(),
            loaded: AtomicBool::new(false),
            gone: AtomicBool::new(false),
            counted: AtomicBool::new(false),
            closed: Mutex::new(false),
            logs: Mutex::new(0),
            manifest: Mutex::new(Manifest::default()),
            hash,
            shared,
        }
    }

    /// Waits for the right to change the session.
    pub(super) async fn turn(&self) -> OwnedMutexGuard<()> {
        self.turn.clone().lock_owned().await
    }

    /// The same where a thread may block.
    pub(super) fn turn_blocking(&self) -> OwnedMutexGuard<()> {
        self.turn.clone().blocking_lock_owned()
    }

    /// The same, if nobody has it.
    pub(super) fn try_turn(&self) -> Option<OwnedMutexGuard<()>> {
        self.turn.clone().try_lock_owned().ok()
    }

    /// Brings the disk to what the journal says, and the manifest to what the disk says, if they are not. The
    /// caller has the turn.
    pub(super) fn ready(&self) -> Result<(), StoreError> {
        let settled = self.shared.settle(&self.hash)?;
        if self.loaded.load(Ordering::Acquire) && !settled {
            return Ok(());
        }
        let about = about::read(&self.dir)
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
            self.shared.usage.count(&self.hash, manifest.amount().plus(beside));
            *self.locked() = manifest;
            self.loaded.store(true, Ordering::Release);
        }
        Ok(())
    }

    /// Puts a durable record in place; `after` is what the session then is. The caller has the turn.
    pub(super) fn apply(
        &self,
        record: Arc<Record>,
        ticket: Ticket,
        after: Manifest,
    ) -> Result<(), StoreError> {
        let new = !self.is_stored();
        match apply::apply(&self.shared.root, &self.shared.tmp, &record) {
            Ok(replaced) => ticket.take_over(replaced),
            Err(error) => {
                tracing::error!(%error, session = self.session, "a saved change cannot be put in place; it is kept");
                self.shared.unsettled().insert(self.hash.clone(), vec![(record, ticket)]);
                return Err(StoreError::Pending(Box::new(error)));
            }
        }
        self.replace(after);
        if self.is_stored() {
            self.count_session();
        }
        if new && *self.closed() {
            self.keep_closed(true);
        }
        Ok(())
    }

    fn replace(&self, after: Manifest) {
        let mut manifest = self.locked();
        self.shared.usage.changed(manifest.amount(), after.amount());
        *manifest = after;
    }

    /// Counts what the session itself takes, once.
    fn count_session(&self) {
        if !self.counted.swap(true, Ordering::AcqRel) {
            self.shared.usage.changed(Amount::default(), Amount::entries(SESSION_ENTRIES));
        }
    }

    /// Makes the session's directory, if it is not there.
    pub(super) fn make(&self) -> Result<(), StoreError> {
        if self.is_stored() {
            return Ok(());
        }
        self.shared.usage.admit(Amount::entries(SESSION_ENTRIES))?;
        let what = || format!("cannot make {}", self.dir.display());
        make_dir(&self.files()).map_err(StoreError::io(what()))?;
        self.write_about(*self.closed()).map_err(StoreError::io(what()))?;
        self.count_session();
        Ok(())
    }

    fn write_about(&self, closed: bool) -> io::Result<()> {
        let about = About { owner: self.owner.clone(), session_id: self.session.clone(), closed };
        about::write(&self.dir, &self.shared.tmp, &about, true)
    }

    fn closed(&self) -> MutexGuard<'_, bool> {
        self.closed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether something is stored for it.
    pub(super) fn is_stored(&self) -> bool {
        !self.is_gone() && self.dir.join("session.json").exists()
    }

    /// Whether it was forgotten.
    pub fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    /// Removes it all, durably. The caller has the turn.
    pub(super) fn forget(&self) -> Result<bool, StoreError> {
        if !self.is_stored() {
            return Ok(false);
        }
        let mut logs = self.logs();
        let record = Arc::new(Record {
            owner: self.owner.clone(),
            session: self.session.clone(),
            ops: vec![Op::Forget],
            blob: Vec::new(),
        });
        let ticket = self.shared.journal.append(&record, Vec::new())?;
        self.gone.store(true, Ordering::Release);
        let of_session = if self.counted.swap(false, Ordering::AcqRel) { SESSION_ENTRIES } else { 0 };
        let beside = Amount { bytes: std::mem::take(&mut *logs), entries: of_session };
        self.shared.usage.changed(beside, Amount::default());
        let empty = Manifest::after(&self.locked());
        self.replace(empty);
        let empty = Manifest::after(&self.locked());
        self.apply(record, ticket, empty).map(|()| true)
    }

    /// Notes that the session is used now: the disk keeps the time, as good as a crash lets it. Nothing is made
    /// if nothing is stored.
    pub fn touch(&self) {
        if !self.is_gone() {
            about::touch(&self.dir);
        }
    }

    /// Whether someone closed the session, as said by [`Space::set_closed`].
    pub fn is_closed(&self) -> bool {
        *self.closed()
    }

    /// Keeps whether the session is closed; on disk too if anything is stored for it. That only fails with the
    /// disk, and is then logged: files are not worth less for it.
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
            tracing::warn!(dir = %self.dir.display(), %error, closed, "cannot keep that a session was closed or opened");
        }
    }

    /// The manifest as of now. What is durable and could not be put in place is tried again first; until that is
    /// done, this is the session as it was before.
    pub fn manifest(&self) -> MutexGuard<'_, Manifest> {
        let lacking = self.shared.unsettled().contains_key(&self.hash);
        if lacking
            && let Some(_turn) = self.try_turn()
            && let Err(error) = self.ready()
        {
            tracing::warn!(%error, session = self.session, "a saved change still cannot be put in place");
        }
        self.locked()
    }

    /// The same, as it is.
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

    /// Opens a saved file for reading.
    ///
    /// # Errors
    /// As [`open_saved`].
    pub fn open(&self, path: &RelPath) -> io::Result<File> {
        open_saved(&self.dir, path).map(|(file, _)| file)
    }
}

/// Notes that what is stored in `dir` was used now.
pub fn touch_saved(dir: &Path) {
    about::touch(dir);
}

/// Opens a regular file below `dir/files`, never through a link; with its metadata.
///
/// # Errors
/// `NotFound` also for whatever is no regular file.
pub fn open_saved(dir: &Path, path: &RelPath) -> io::Result<(File, Metadata)> {
    open_beneath(&dir.join("files"), path.as_bytes())
}

/// Opens the whole output of a run.
///
/// # Errors
/// As [`open_saved`].
pub fn open_log(dir: &Path, run_id: &str) -> io::Result<(File, Metadata)> {
    open_beneath(&dir.join("logs"), format!("{run_id}.log").as_bytes())
}

fn open_beneath(dir: &Path, path: &[u8]) -> io::Result<(File, Metadata)> {
    let dir = rustix::fs::open(dir, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOFOLLOW;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let file = File::from(rustix::fs::openat2(&dir, path, flags, Mode::empty(), resolve)?);
    // Whoever writes it has it for microseconds. A file system without locks has none to write with, either.
    let _ = flock(&file, FlockOperation::LockShared);
    let metadata = file.metadata()?;
    if metadata.is_file() { Ok((file, metadata)) } else { Err(io::ErrorKind::NotFound.into()) }
}

fn walk(dir: &Path, at: Option<&RelPath>, manifest: &mut Manifest) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let metadata = fs::symlink_metadata(entry.path())?;
        let name = entry.file_name().into_vec();
        let path = at.map_or_else(|| RelPath::new(name.clone()), |dir| dir.join(&name));
        let Ok(path) = path else { continue }; // nothing of ours
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
