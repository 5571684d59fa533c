//! One session's files on disk, and its manifest.
//!
//! Reading opens component by component, without following links. It must never be changed but through a
//! [`Batch`](super::Batch).

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use paddock_proto::RelPath;
use paddock_proto::message::{Entry, EntryKind};
use rustix::fs::{Mode, OFlags, ResolveFlags};

use super::{Manifest, Quota, StoreError, make_dir, sync_dir};

/// Whole outputs that are kept for a session; the oldest goes when there are more.
const MAX_LOGS: usize = 32;

/// One session's part of the store.
pub struct Space {
    dir: PathBuf,
    pub(super) tmp: PathBuf,
    pub(super) quota: Quota,
    manifest: Mutex<Manifest>,
}

impl Space {
    pub(super) fn load(
        root: &Path,
        hash: &str,
        owner: &str,
        session: &str,
        quota: Quota,
    ) -> Result<Self, StoreError> {
        let dir = root.join(hash);
        let space = Self {
            dir: dir.clone(),
            tmp: root.join("tmp"),
            quota,
            manifest: Mutex::new(Manifest::default()),
        };
        if !dir.join("session.json").exists() {
            let what = || format!("cannot make {}", dir.display());
            make_dir(&dir.join("files")).map_err(StoreError::io(what()))?;
            let about = serde_json::json!({ "owner": owner, "session_id": session }).to_string();
            let write = || {
                let mut file = OpenOptions::new()
                    .write(true)
                    .create(true)
                    .truncate(true)
                    .mode(0o600)
                    .open(dir.join("session.json"))?;
                file.write_all(about.as_bytes())?;
                file.sync_all()
            };
            write().map_err(StoreError::io(what()))?;
            sync_dir(&dir)?;
            sync_dir(root)?;
        }
        space.reload()?;
        Ok(space)
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
    /// What the file system says.
    pub fn log(&self, run_id: &str) -> Result<LogFile, StoreError> {
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
        // A run that is heard again after a restart begins its log again.
        let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&path);
        Ok(LogFile { file: file.map_err(StoreError::io(what()))? })
    }
}

/// The whole output of one run, while it grows.
pub struct LogFile {
    file: File,
}

impl LogFile {
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
