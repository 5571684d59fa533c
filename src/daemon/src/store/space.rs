//! One session's files on disk, and its manifest.
//!
//! Reading opens component by component, without following links. It must never be changed but through a
//! [`Batch`](super::Batch).

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use paddock_proto::RelPath;
use paddock_proto::message::{Entry, EntryKind};
use rustix::fs::{Mode, OFlags, ResolveFlags};
use tokio::sync::OwnedMutexGuard;

use super::about::{self, About};
use super::{Manifest, Shared, StoreError, make_dir, sync_dir};

/// Whole outputs that are kept for a session; the oldest goes when there are more.
const MAX_LOGS: usize = 32;

/// One session's part of the store.
pub struct Space {
    pub(super) shared: Arc<Shared>,
    owner: String,
    session: String,
    dir: PathBuf,
    /// Held by whoever changes the session, or loads it.
    turn: Arc<tokio::sync::Mutex<()>>,
    loaded: AtomicBool,
    gone: AtomicBool,
    closed: Mutex<bool>,
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
            closed: Mutex::new(false),
            manifest: Mutex::new(Manifest::default()),
            shared,
        }
    }

    /// Waits for the right to change the session.
    pub(super) async fn turn(&self) -> OwnedMutexGuard<()> {
        self.turn.clone().lock_owned().await
    }

    /// Reads the session off the disk, the first time. The caller has the turn.
    pub(super) fn load(&self) -> Result<(), StoreError> {
        if self.loaded.load(Ordering::Acquire) {
            return Ok(());
        }
        let found = about::read(&self.dir)
            .map_err(StoreError::io(format!("cannot read session.json of {}", self.dir.display())))?;
        if let Some((about, _)) = found {
            *self.closed() = about.closed;
            self.reload()?;
        }
        self.loaded.store(true, Ordering::Release);
        Ok(())
    }

    /// Makes the session's directory, if it is not there.
    pub(super) fn make(&self) -> Result<(), StoreError> {
        if self.is_stored() {
            return Ok(());
        }
        let what = || format!("cannot make {}", self.dir.display());
        make_dir(&self.files()).map_err(StoreError::io(what()))?;
        self.write_about(*self.closed()).map_err(StoreError::io(what()))?;
        sync_dir(&self.dir)?;
        sync_dir(&self.shared.root)
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

    /// Removes it all. The caller has the turn.
    pub(super) fn forget(&self) -> Result<bool, StoreError> {
        if !self.is_stored() {
            return Ok(false);
        }
        let what = || format!("cannot delete {}", self.dir.display());
        let aside = self.shared.tmp.join(crate::id::random_hex::<12>());
        fs::rename(&self.dir, &aside).map_err(StoreError::io(what()))?;
        self.gone.store(true, Ordering::Release);
        let mut manifest = self.manifest();
        *manifest = Manifest::after(&manifest);
        drop(manifest);
        sync_dir(&self.shared.root)?;
        if let Err(error) = fs::remove_dir_all(&aside) {
            tracing::warn!(%error, "what is left of a deleted session goes at the next start");
        }
        Ok(true)
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
        if self.is_stored()
            && let Err(error) = self.write_about(closed)
        {
            tracing::warn!(dir = %self.dir.display(), %error, closed, "cannot keep that a session was closed or opened");
        }
    }

    /// The manifest as of now.
    pub fn manifest(&self) -> MutexGuard<'_, Manifest> {
        self.manifest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the manifest off the disk again.
    pub(super) fn reload(&self) -> Result<(), StoreError> {
        let mut manifest = Manifest::after(&self.manifest());
        let files = self.files();
        walk(&files, None, &mut manifest)
            .map_err(StoreError::io(format!("cannot read the files of a session in {}", files.display())))?;
        *self.manifest() = manifest;
        Ok(())
    }

    pub(super) fn files(&self) -> PathBuf {
        self.dir.join("files")
    }

    /// Where an entry is on the host.
    pub(super) fn path(&self, path: &RelPath) -> PathBuf {
        self.files().join(std::ffi::OsStr::from_bytes(path.as_bytes()))
    }

    /// Opens a saved file for reading.
    ///
    /// # Errors
    /// As [`open_saved`].
    pub fn open(&self, path: &RelPath) -> io::Result<File> {
        open_saved(&self.dir, path).map(|(file, _)| file)
    }

    /// A file for a whole output, named after its run.
    ///
    /// # Errors
    /// [`StoreError::Gone`], and what the file system says.
    pub fn log(&self, run_id: &str) -> Result<LogFile, StoreError> {
        if self.is_gone() {
            return Err(StoreError::Gone);
        }
        self.make()?;
        let dir = self.dir.join("logs");
        let what = || format!("cannot keep the output of {run_id} in {}", dir.display());
        make_dir(&dir).map_err(StoreError::io(what()))?;
        let mut old: Vec<PathBuf> = fs::read_dir(&dir)
            .map_err(StoreError::io(what()))?
            .filter_map(|entry| Some(entry.ok()?.path()))
            .collect();
        old.sort(); // run ids begin with their time
        for gone in old.iter().take((old.len() + 1).saturating_sub(MAX_LOGS)) {
            let _ = fs::remove_file(gone);
        }
        let path = dir.join(format!("{run_id}.log"));
        // A run that is heard again after a restart goes on in the log that it has.
        let file = OpenOptions::new().append(true).create(true).mode(0o600).open(&path);
        Ok(LogFile { file: file.map_err(StoreError::io(what()))? })
    }
}

/// The whole output of one run, while it grows.
pub struct LogFile {
    file: File,
}

impl LogFile {
    /// Bytes that are in it.
    ///
    /// # Errors
    /// What the file system says.
    pub fn size(&self) -> Result<u64, StoreError> {
        self.file.metadata().map(|metadata| metadata.len()).map_err(StoreError::io("cannot look at a log"))
    }

    /// Appends.
    ///
    /// # Errors
    /// What the file system says.
    pub fn append(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        self.file.write_all(bytes).map_err(StoreError::io("cannot write a log"))
    }
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
