//! The files of a session as they were before a task, kept until its diff is made.
//!
//! ```text
//!  <hash>/executions/<id>.before/index    the entries, in their order
//!  <hash>/executions/<id>.before/<n>      the file of the nth entry: a second name of the one in files/
//! ```
//!
//! A change of the session puts another file in place of the one that it changes, and never writes over a
//! file that has two names (see `apply`). So a second name of a file keeps its content, and takes no space
//! until the session's file is replaced or removed. Until the task ends, the contents that it replaced are on
//! the disk without being counted: at most one quota of a session for each task that runs.
//!
//! The folder is complete before it has its name, and outlives the daemon as logs do. It must never be
//! readable by a caller, and its files must never be written to.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use paddock_proto::RelPath;
use paddock_proto::message::{Entry, EntryKind};
use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use super::execution_files::ExecutionFiles;
use super::{StoreError, make_dir};

/// The extension of the folder.
const BEFORE: &str = "before";
/// The file in it that lists the entries.
const INDEX: &str = "index";

const DIR: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// The files of a session at the time when they were kept.
pub struct KeptState {
    folder: PathBuf,
    entries: Vec<Entry>,
    numbers: BTreeMap<RelPath, usize>,
}

impl KeptState {
    /// The entries that were kept.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Opens a file that was kept.
    ///
    /// # Errors
    /// What the file system says.
    pub fn open(&self, path: &RelPath) -> io::Result<File> {
        let number = self.numbers.get(path).ok_or(io::ErrorKind::NotFound)?;
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = rustix::fs::open(self.folder.join(number.to_string()), flags, Mode::empty())?;
        Ok(File::from(file))
    }
}

impl ExecutionFiles {
    /// Keeps the session's files as they are now, as far as they are `wanted`. It blocks.
    ///
    /// # Errors
    /// [`StoreError::Gone`], and an error of the file system: then nothing is kept.
    pub fn keep_before(&self, wanted: impl Fn(&RelPath) -> bool) -> Result<(), StoreError> {
        let _lock = self.space.lock_blocking();
        if self.space.is_gone() {
            return Err(StoreError::Gone);
        }
        self.space.ready()?;
        let everything = self.space.locked().lacking(&BTreeMap::new()).put;
        let entries: Vec<Entry> =
            everything.into_iter().map(|held| held.entry).filter(|entry| wanted(&entry.path)).collect();
        let staged = self.space.shared.tmp.join(crate::id::random_hex::<12>());
        let kept = self.before_path().and_then(|to| {
            make_dir(&staged)?;
            link_all(&self.space.files(), &staged, &entries)?;
            fs::write(staged.join(INDEX), postcard::to_stdvec(&entries).map_err(io::Error::other)?)?;
            make_dir(&self.folder())?;
            fs::rename(&staged, to)
        });
        kept.map_err(|error| {
            let _ = fs::remove_dir_all(&staged); // or else the next start does it
            let what = format!("cannot keep the files of {} as they are", self.space.dir.display());
            self.space.shared.not_saved(StoreError::io(what)(error))
        })
    }

    /// What was kept; `None` if nothing was.
    ///
    /// # Errors
    /// An error of the file system.
    pub fn before(&self) -> Result<Option<KeptState>, StoreError> {
        let what = || format!("cannot read what was kept for the task {}", self.id);
        let folder = self.before_path().map_err(StoreError::io(what()))?;
        let index = match fs::read(folder.join(INDEX)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other.map_err(StoreError::io(what()))?,
        };
        let entries: Vec<Entry> = postcard::from_bytes(&index)
            .map_err(|error| StoreError::io(what())(io::Error::new(io::ErrorKind::InvalidData, error)))?;
        let numbers =
            entries.iter().enumerate().map(|(number, entry)| (entry.path.clone(), number)).collect();
        Ok(Some(KeptState { folder, entries, numbers }))
    }

    /// Removes what was kept, if anything was.
    pub fn forget_before(&self) {
        let Ok(folder) = self.before_path() else { return };
        // Not in place: a folder that was removed in part must not be taken for the whole.
        let aside = self.space.shared.tmp.join(crate::id::random_hex::<12>());
        let removed = match fs::rename(&folder, &aside) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return,
            renamed => renamed.and_then(|()| fs::remove_dir_all(&aside)),
        };
        if let Err(error) = removed {
            tracing::warn!(%error, "what was kept for a task could not be removed");
        }
    }

    /// The entries of the session as they are now, and how to open its files.
    ///
    /// # Errors
    /// [`StoreError::Gone`].
    pub fn entries_now(&self) -> Result<Vec<Entry>, StoreError> {
        if self.space.is_gone() {
            return Err(StoreError::Gone);
        }
        let everything = self.space.manifest().lacking(&BTreeMap::new()).put;
        Ok(everything.into_iter().map(|held| held.entry).collect())
    }

    /// Opens a file of the session as it is now.
    ///
    /// # Errors
    /// What the file system says.
    pub fn open_now(&self, path: &RelPath) -> io::Result<File> {
        self.space.open(path)
    }

    fn before_path(&self) -> io::Result<PathBuf> {
        self.log_path().map(|path| path.with_extension(BEFORE))
    }
}

/// Gives every file of these entries below `files` a second name in `to`: its number.
fn link_all(files: &std::path::Path, to: &std::path::Path, entries: &[Entry]) -> io::Result<()> {
    let open = |path: &std::path::Path| rustix::fs::open(path, DIR, Mode::empty());
    let (files, to) = (open(files), open(to)?);
    let files = match files {
        Err(Errno::NOENT) => return Ok(()), // a session without files
        other => other?,
    };
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let mut last: Option<(RelPath, OwnedFd)> = None; // files come directory by directory
    for (number, entry) in entries.iter().enumerate() {
        if !matches!(entry.kind, EntryKind::File(_)) {
            continue;
        }
        let parent = entry.path.parent();
        if let Some(parent) = &parent
            && last.as_ref().is_none_or(|(open, _)| open != parent)
        {
            let opened = rustix::fs::openat2(&files, parent.as_bytes(), DIR, Mode::empty(), resolve)?;
            last = Some((parent.clone(), opened));
        }
        let from = match (&parent, &last) {
            (Some(_), Some((_, opened))) => opened,
            _ => &files,
        };
        rustix::fs::linkat(from, entry.path.file_name(), &to, number.to_string(), AtFlags::empty())?;
    }
    Ok(())
}
