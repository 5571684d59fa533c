//! Files that executions keep beside a session's: a log for each, a note that describes it, and of a task
//! what it changed.
//!
//! ```text
//!  <hash>/executions/<id>          the log, as it grows
//!  <hash>/executions/<id>.json     the note; written beside and renamed, so never there in part
//!  <hash>/executions/<id>.before/  the session's files before a task, until its end, see `before`
//!  <hash>/executions/<id>.diff     what a task changed, from its end on; written as the note is
//! ```
//!
//! Logs and diffs count for the store's limit. An execution removes its own files. Files that it has left
//! behind are removed with the session. This module must never write for a session that was forgotten, nor
//! use a name that is not an id.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::log::LogFile;
use super::replace::replace;
use super::usage::Amount;
use super::{Space, Store, StoreError, make_dir};

/// The folder of a session that they are in.
pub(super) const FOLDER: &str = "executions";
/// The extension of a note.
const NOTE: &str = "json";
/// The extension of a diff.
pub(super) const DIFF: &str = "diff";
/// Characters of the longest id.
const LONGEST_ID: usize = 64;

/// Whether a text can be an id: hex digits and `-`.
pub(super) fn is_id(id: &str) -> bool {
    !id.is_empty() && id.len() <= LONGEST_ID && id.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-')
}

/// Whether this is a note. Notes do not count for the store's limit: there is a small one for each log.
pub(super) fn is_note(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == NOTE)
}

/// The files of one execution. All of it may block.
pub struct ExecutionFiles {
    pub(super) space: Arc<Space>,
    pub(super) id: String,
}

impl Store {
    /// Whether anything is kept of a session's executions; for a look without loading anything.
    pub fn has_executions(&self, owner: &str, session: &str) -> bool {
        self.session_dir(owner, session).join(FOLDER).is_dir()
    }
}

impl Space {
    /// The files of this execution, which need not be there yet.
    pub fn execution_files(self: &Arc<Self>, id: &str) -> ExecutionFiles {
        ExecutionFiles { space: self.clone(), id: id.to_owned() }
    }

    /// The id and the note of every execution of the session, in no order.
    pub fn executions(&self) -> Vec<(String, Vec<u8>)> {
        let entries = fs::read_dir(self.dir.join(FOLDER)).into_iter().flatten().flatten();
        let read = |entry: fs::DirEntry| {
            let path = entry.path();
            let id = path.file_stem()?.to_str().filter(|id| is_note(&path) && is_id(id))?.to_owned();
            Some((id, fs::read(path).ok()?))
        };
        entries.filter_map(read).collect()
    }
}

impl ExecutionFiles {
    /// The folder of all executions of the session.
    pub(super) fn folder(&self) -> PathBuf {
        self.space.dir.join(FOLDER)
    }

    /// The path of the log; the others are this path with an extension.
    pub(super) fn log_path(&self) -> io::Result<PathBuf> {
        let invalid =
            || io::Error::new(io::ErrorKind::InvalidInput, "an execution's id is hex digits and `-`");
        if is_id(&self.id) { Ok(self.folder().join(&self.id)) } else { Err(invalid()) }
    }

    fn note_path(&self) -> io::Result<PathBuf> {
        self.log_path().map(|path| path.with_extension(NOTE))
    }

    /// The log for appending; made if it is not there.
    ///
    /// # Errors
    /// [`StoreError::Gone`], and an error of the file system.
    pub fn append(&self) -> Result<LogFile, StoreError> {
        self.open_to_append().map_err(|error| self.space.shared.not_saved(error))
    }

    fn open_to_append(&self) -> Result<LogFile, StoreError> {
        let _counted = self.space.logs();
        if self.space.is_gone() {
            return Err(StoreError::Gone);
        }
        self.space.make()?;
        let what = || format!("cannot keep the output of {} in {}", self.id, self.space.dir.display());
        make_dir(&self.folder()).map_err(StoreError::io(what()))?;
        let path = self.log_path().map_err(StoreError::io(what()))?;
        let file = OpenOptions::new().append(true).read(true).create(true).mode(0o600).open(path);
        Ok(LogFile::of(file.map_err(StoreError::io(what()))?, self.space.clone()))
    }

    /// The log for reading; it may still grow.
    ///
    /// # Errors
    /// An error of the file system.
    pub fn read(&self) -> Result<File, StoreError> {
        let what = || format!("cannot read what is kept of the execution {}", self.id);
        self.log_path().and_then(File::open).map_err(StoreError::io(what()))
    }

    /// Writes the note, in place of the one before.
    ///
    /// # Errors
    /// Those of [`ExecutionFiles::append`].
    pub fn write_note(&self, note: &[u8]) -> Result<(), StoreError> {
        let _counted = self.space.logs();
        if self.space.is_gone() {
            return Err(StoreError::Gone);
        }
        let write = || {
            let path = self.note_path()?;
            let staged = self.space.shared.tmp.join(crate::id::random_hex::<12>());
            replace(&path, &staged, note, false)
        };
        let failed = StoreError::io(format!("cannot note what the execution {} is", self.id));
        write().map_err(|error| self.space.shared.not_saved(failed(error)))
    }

    /// Writes what a task changed, in place of an earlier attempt.
    ///
    /// # Errors
    /// Those of [`ExecutionFiles::append`], and [`StoreError::Quota`] at the store's limit.
    pub fn write_diff(&self, diff: &[u8]) -> Result<(), StoreError> {
        let mut counted = self.space.logs();
        if self.space.is_gone() {
            return Err(StoreError::Gone);
        }
        let what = || format!("cannot keep what the task {} changed", self.id);
        let path = self.log_path().map_err(StoreError::io(what()))?.with_extension(DIFF);
        let (before, after) = (fs::metadata(&path).map_or(0, |old| old.len()), diff.len() as u64);
        let usage = &self.space.shared.usage;
        usage.admit(&self.space.owner, Amount::bytes(after.saturating_sub(before)))?;
        let staged = self.space.shared.tmp.join(crate::id::random_hex::<12>());
        let replaced = replace(&path, &staged, diff, false).map_err(StoreError::io(what()));
        replaced.map_err(|error| self.space.shared.not_saved(error))?;
        usage.changed(&self.space.owner, Amount::bytes(before), Amount::bytes(after));
        *counted = counted.saturating_sub(before) + after;
        Ok(())
    }

    /// Removes all of them.
    pub fn remove(&self) {
        let (Ok(log), Ok(note)) = (self.log_path(), self.note_path()) else { return };
        if !self.space.is_gone() {
            self.forget_before();
        }
        let mut counted = self.space.logs();
        // The note last: nothing would find the others without one.
        for path in [log.with_extension(DIFF), log] {
            let bytes = fs::metadata(&path).map_or(0, |metadata| metadata.len());
            if !self.space.is_gone() && fs::remove_file(&path).is_ok() {
                self.space.shared.usage.changed(&self.space.owner, Amount::bytes(bytes), Amount::default());
                *counted = counted.saturating_sub(bytes);
            }
        }
        let _ = fs::remove_file(note);
        let _ = fs::remove_dir(self.folder()); // fails while it holds another
    }

    /// Whether their session was removed.
    pub fn are_gone(&self) -> bool {
        self.space.is_gone()
    }
}
