//! The files of the journal, and what depends on each.
//!
//! A file is needed as long as a [`JournalPin`] of it exists, and until its records were applied and synced.
//! It must never be removed before the older files.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::store::record::JournalRecord;
use crate::store::staged::StagedFile;

/// The file that records are appended to.
pub(super) struct Current {
    pub(super) file: File,
    pub(super) seq: u64,
    /// The synced length.
    pub(super) len: u64,
    /// The time of its first record.
    pub(super) begun: Option<Instant>,
    pub(super) kept: Arc<Sealed>,
}

impl Current {
    /// A new, empty file, whose name is durable.
    pub(super) fn make(dir: &Path, seq: u64) -> io::Result<Self> {
        let path = dir.join(name(seq));
        let file = OpenOptions::new().append(true).create_new(true).mode(0o600).open(&path)?;
        File::open(dir)?.sync_all()?;
        Ok(Self { file, seq, len: 0, begun: None, kept: Sealed::new(path, 0, Vec::new()) })
    }
}

/// The name of the file with this number: names sort as their numbers do.
pub(in crate::store) fn name(seq: u64) -> String {
    format!("{seq:016x}")
}

/// The number in a name.
pub(in crate::store) fn number(name: &str) -> Option<u64> {
    let seq = u64::from_str_radix(name, 16).ok()?;
    (self::name(seq) == name).then_some(seq)
}

/// A journal file and what depends on it.
pub(in crate::store) struct Sealed {
    path: PathBuf,
    /// Records that are durable only here.
    unapplied: AtomicUsize,
    bytes: AtomicU64,
    /// Files in `tmp/` that its records name or replaced; with sizes.
    sources: Mutex<Vec<(PathBuf, u64)>>,
}

/// A durable record that is not applied yet: the journal keeps its file while the pin exists.
pub(in crate::store) struct JournalPin {
    file: Arc<Sealed>,
}

impl JournalPin {
    /// Adds files in `tmp/`, with sizes, that are removed with the journal's file.
    pub(in crate::store) fn take_over(&self, files: Vec<(PathBuf, u64)>) {
        self.file.sources().extend(files);
    }
}

impl Drop for JournalPin {
    fn drop(&mut self) {
        self.file.unapplied.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Sealed {
    /// A file of `bytes`, and the files in `tmp/` that its records need.
    pub(in crate::store) fn new(path: PathBuf, bytes: u64, sources: Vec<(PathBuf, u64)>) -> Arc<Self> {
        Arc::new(Self { path, unapplied: AtomicUsize::new(0), bytes: bytes.into(), sources: sources.into() })
    }

    /// A pin for one of its records.
    pub(in crate::store) fn pin(self: &Arc<Self>) -> JournalPin {
        self.unapplied.fetch_add(1, Ordering::AcqRel);
        JournalPin { file: self.clone() }
    }

    pub(super) fn is_applied(&self) -> bool {
        self.unapplied.load(Ordering::Acquire) == 0
    }

    pub(in crate::store) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    pub(super) fn grown(&self, to: u64) {
        self.bytes.store(to, Ordering::Relaxed);
    }

    fn sources(&self) -> MutexGuard<'_, Vec<(PathBuf, u64)>> {
        self.sources.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes of files in `tmp/` that it keeps.
    pub(super) fn staged(&self) -> u64 {
        self.sources().iter().map(|(_, bytes)| bytes).sum()
    }

    /// Takes over these contents: they are kept as long as the file, and then removed.
    pub(super) fn take_over(&self, staged: &[Arc<StagedFile>]) {
        let mut sources = self.sources();
        for one in staged {
            one.hand_over();
            sources.push((one.path().to_owned(), one.bytes()));
        }
    }

    /// Adds the files in `tmp/` that a record of this file needs.
    pub(in crate::store) fn add_sources(&self, tmp: &Path, record: &JournalRecord) {
        self.sources().extend(record.sources().map(|(name, bytes)| (tmp.join(name), bytes)));
    }

    /// The files in `tmp/` that it needs.
    pub(in crate::store) fn source_paths(&self) -> Vec<PathBuf> {
        self.sources().iter().map(|(path, _)| path.clone()).collect()
    }

    /// Removes the file's name; the files in `tmp/` may be removed only once that is durable.
    pub(in crate::store) fn unlink(&self) -> io::Result<()> {
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }

    /// Removes the files in `tmp/`, as far as possible; the next start removes the rest.
    pub(in crate::store) fn remove_sources(&self) {
        self.sources().drain(..).for_each(|(path, _)| drop(fs::remove_file(path)));
    }
}
