//! Content in `tmp/` that a commit will link into a session.
//!
//! The file is removed when nobody needs it any more, unless the journal owns it by then. It must never be
//! used before it is sealed.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use paddock_proto::message::Entry;
use rustix::io::Errno;

use super::apply::dress;

/// After this many bytes a sync begins while the rest is still written.
const EARLY: u64 = 16 << 20;

/// One file's content in `tmp/`. It keeps no file open: a batch can have more files than the process may
/// open.
pub(super) struct StagedFile {
    path: PathBuf,
    name: String,
    bytes: AtomicU64,
    /// The size at the last early sync.
    early: AtomicU64,
    /// Locked during an early sync. The error of a failed one: the system reports it once, and the last sync
    /// may not see it.
    lost: Mutex<Option<i32>>,
    /// Whether it belongs to a batch that was not committed.
    loose: AtomicBool,
}

impl StagedFile {
    /// A new name in `tmp/`; the file is made by the first write.
    pub(super) fn new(tmp: &Path) -> Self {
        let name = crate::id::random_hex::<12>();
        let path = tmp.join(&name);
        Self {
            path,
            name,
            bytes: AtomicU64::new(0),
            early: AtomicU64::new(0),
            lost: Mutex::new(None),
            loose: AtomicBool::new(true),
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Its name in `tmp/`.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// The number of bytes written.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Appends.
    pub(super) fn append(&self, bytes: &[u8]) -> io::Result<()> {
        let mut file = OpenOptions::new().append(true).create(true).mode(0o600).open(&self.path)?;
        file.write_all(bytes)?;
        self.bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    /// Whether [`StagedFile::sync_early`] is due; true once each time.
    pub(super) fn is_early_due(&self) -> bool {
        let (bytes, early) = (self.bytes(), self.early.load(Ordering::Relaxed));
        let due = bytes >= early + EARLY && self.lost.try_lock().is_ok();
        if due {
            self.early.store(bytes, Ordering::Relaxed);
        }
        due
    }

    /// Syncs what was written, so that less is left for the end.
    pub(super) fn sync_early(&self) {
        let mut lost = self.lost.lock().unwrap_or_else(PoisonError::into_inner);
        let synced = File::open(&self.path).and_then(|file| file.sync_data());
        if let Err(error) = synced {
            tracing::warn!(%error, path = %self.path.display(), "cannot sync content that is being saved");
            *lost = Some(error.raw_os_error().unwrap_or(Errno::IO.raw_os_error()));
        }
    }

    /// Gives it the mode and time of its entry, and syncs it if `sync`.
    pub(super) fn seal(&self, entry: &Entry, sync: bool) -> io::Result<()> {
        // Locked to the end: otherwise an early sync that fails meanwhile could take the error.
        let lost = self.lost.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(code) = *lost {
            return Err(io::Error::from_raw_os_error(code));
        }
        let file = File::open(&self.path)?;
        dress(&file, entry)?;
        if sync { file.sync_all() } else { Ok(()) }
    }

    /// From now on the journal removes it.
    pub(super) fn hand_over(&self) {
        self.loose.store(false, Ordering::Relaxed);
    }
}

impl Drop for StagedFile {
    fn drop(&mut self) {
        if self.loose.load(Ordering::Relaxed) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use paddock_proto::RelPath;
    use paddock_proto::message::EntryKind;

    use super::*;

    #[test]
    fn content_that_an_early_sync_lost_is_never_sealed() {
        let dir = tempfile::tempdir().unwrap();
        let staged = StagedFile::new(dir.path());
        let piece = vec![1; usize::try_from(EARLY).unwrap() / 2];
        staged.append(&piece).unwrap();
        assert!(!staged.is_early_due());
        staged.append(&piece).unwrap();
        assert!(staged.is_early_due());
        assert!(!staged.is_early_due());
        let path = RelPath::new("f").unwrap();
        let entry = Entry { path, kind: EntryKind::File(EARLY), mode: 0o644, mtime_ns: 0 };
        staged.sync_early();
        staged.seal(&entry, true).unwrap();

        fs::remove_file(staged.path()).unwrap();
        staged.sync_early();
        fs::write(staged.path(), "back").unwrap();
        assert_eq!(staged.seal(&entry, true).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
