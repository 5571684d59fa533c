//! The files of the journal, and what depends on each.
//!
//! A file is needed as long as a [`Ticket`] of it lives, and until what its records say was synced in place. It
//! must never be removed before the files that are older.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::store::record::Record;
use crate::store::staged::Staged;

/// The file that is written to.
pub(super) struct Current {
    pub(super) file: File,
    pub(super) seq: u64,
    /// Up to here it is synced.
    pub(super) len: u64,
    /// When its first record came.
    pub(super) begun: Option<Instant>,
    pub(super) kept: Arc<Sealed>,
}

impl Current {
    /// A new file, empty; its name is durable.
    pub(super) fn make(dir: &Path, seq: u64) -> io::Result<Self> {
        let path = dir.join(name(seq));
        let file = OpenOptions::new().append(true).create_new(true).mode(0o600).open(&path)?;
        File::open(dir)?.sync_all()?;
        Ok(Self { file, seq, len: 0, begun: None, kept: Sealed::new(path, 0, Vec::new()) })
    }
}

/// The name of the file of a number: names sort as numbers do.
pub(in crate::store) fn name(seq: u64) -> String {
    format!("{seq:016x}")
}

/// The number of a name.
pub(in crate::store) fn number(name: &str) -> Option<u64> {
    let seq = u64::from_str_radix(name, 16).ok()?;
    (self::name(seq) == name).then_some(seq)
}

/// A journal file and what depends on it.
pub(in crate::store) struct Sealed {
    path: PathBuf,
    /// Records that are durable here only.
    unapplied: AtomicUsize,
    bytes: AtomicU64,
    /// What its records name in `tmp/`, and what they replaced; with sizes.
    sources: Mutex<Vec<(PathBuf, u64)>>,
}

/// A durable record that is not in place yet: while this lives, the journal keeps it.
pub(in crate::store) struct Ticket {
    file: Arc<Sealed>,
}

impl Ticket {
    /// These files in `tmp/`, with sizes, go with the journal's file.
    pub(in crate::store) fn take_over(&self, files: Vec<(PathBuf, u64)>) {
        self.file.sources().extend(files);
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.file.unapplied.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Sealed {
    /// A file of `bytes`, with what its records need of `tmp/`.
    pub(in crate::store) fn new(path: PathBuf, bytes: u64, sources: Vec<(PathBuf, u64)>) -> Arc<Self> {
        Arc::new(Self { path, unapplied: AtomicUsize::new(0), bytes: bytes.into(), sources: sources.into() })
    }

    /// One of its records is not in place.
    pub(in crate::store) fn ticket(self: &Arc<Self>) -> Ticket {
        self.unapplied.fetch_add(1, Ordering::AcqRel);
        Ticket { file: self.clone() }
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

    /// Bytes that it keeps in `tmp/`.
    pub(super) fn staged(&self) -> u64 {
        self.sources().iter().map(|(_, bytes)| bytes).sum()
    }

    /// These are needed as long as the file is, and then removed.
    pub(super) fn take_over(&self, staged: &[Arc<Staged>]) {
        let mut sources = self.sources();
        for one in staged {
            one.hand_over();
            sources.push((one.path().to_owned(), one.bytes()));
        }
    }

    /// A record of the file needs these.
    pub(in crate::store) fn add_sources(&self, tmp: &Path, record: &Record) {
        self.sources().extend(record.sources().map(|(name, bytes)| (tmp.join(name), bytes)));
    }

    /// What it needs of `tmp/`.
    pub(in crate::store) fn source_paths(&self) -> Vec<PathBuf> {
        self.sources().iter().map(|(path, _)| path.clone()).collect()
    }

    /// Takes the file's name away; what it names in `tmp/` may only go once that is durable.
    pub(in crate::store) fn unlink(&self) -> io::Result<()> {
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }

    /// Removes what it named in `tmp/`, as it can; the next start does the rest.
    pub(in crate::store) fn remove_sources(&self) {
        self.sources().drain(..).for_each(|(path, _)| drop(fs::remove_file(path)));
    }
}
