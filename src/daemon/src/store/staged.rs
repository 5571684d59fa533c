//! Content in `tmp/` on its way to a place.
//!
//! It goes when nobody needs it any more, unless the journal took it over. Until it is sealed it is good for
//! nothing.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use paddock_proto::message::Entry;

use super::apply::dress;

/// One file's content in `tmp/`. Only a name: a batch can have more files than the process may open.
pub(super) struct Staged {
    path: PathBuf,
    name: String,
    bytes: AtomicU64,
    /// Whether it belongs to a batch that was not committed.
    loose: AtomicBool,
}

impl Staged {
    /// A place for content; nothing is there yet.
    pub(super) fn new(tmp: &Path) -> Self {
        let name = crate::id::random_hex::<12>();
        let path = tmp.join(&name);
        Self { path, name, bytes: AtomicU64::new(0), loose: AtomicBool::new(true) }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Its name in `tmp/`.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// What was written to it.
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

    /// Gives it the mode and time of its entry; and syncs it, if `sync`.
    pub(super) fn seal(&self, entry: &Entry, sync: bool) -> io::Result<()> {
        let file = File::open(&self.path)?;
        dress(&file, entry)?;
        if sync { file.sync_all() } else { Ok(()) }
    }

    /// From now on someone else removes it.
    pub(super) fn hand_over(&self) {
        self.loose.store(false, Ordering::Relaxed);
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        if self.loose.load(Ordering::Relaxed) {
            let _ = fs::remove_file(&self.path);
        }
    }
}
