//! Whether the store's file system accepts writes. After a failure a background thread retries, so that the
//! daemon learns of the recovery even while nobody calls.
//!
//! A full disk is not such a failure: commits that only remove still work on it, and each commit checks the
//! free space. This module must never touch anything but a file of its own in `tmp/`.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::fs::StatVfsMountFlags;

use super::shared::SharedState;

/// Time between two checks.
const LOOK: Duration = Duration::from_secs(1);

/// The last known state. The file system counts as writable until something fails.
#[derive(Debug, Default)]
pub(super) struct Writable {
    failing: AtomicBool,
}

impl Writable {
    /// Whether the last attempt to save something succeeded.
    pub(super) fn is_writable(&self) -> bool {
        !self.failing.load(Ordering::Acquire)
    }

    /// Notes that something could not be saved.
    pub(super) fn failed(&self) {
        self.failing.store(true, Ordering::Release);
    }

    /// Notes that something was saved.
    pub(super) fn worked(&self) {
        if self.failing.swap(false, Ordering::AcqRel) {
            tracing::info!("the store can be written again");
        }
    }
}

/// Checks again and again until the store is closed.
pub(super) fn watch(shared: &Arc<SharedState>) {
    loop {
        shared.journal.sleep(LOOK);
        if shared.journal.is_closed() {
            return;
        }
        look(shared);
    }
}

/// Checks whether the file system is read-only, and retries a write if the last one failed.
pub(super) fn look(shared: &Arc<SharedState>) {
    if shared.writable.is_writable() {
        // By the path: something may be mounted over it by now. An error says nothing about writing.
        let stat = rustix::fs::statvfs(&shared.root);
        if stat.is_ok_and(|stat| stat.f_flag.contains(StatVfsMountFlags::RDONLY)) {
            shared.writable.failed(); // before the log line: a reader of the line then finds it set
            let root = shared.root.display();
            tracing::error!(%root, "the file system of the store is read-only: nothing can be saved");
        }
        return;
    }
    if let Err(error) = attempt(shared) {
        tracing::debug!(%error, "the store still cannot be written");
        return;
    }
    // Durable changes that were not applied are part of the failure.
    shared.apply_all();
    if shared.unapplied().is_empty() {
        shared.writable.worked();
    }
}

/// Writes, syncs and removes a file.
fn attempt(shared: &SharedState) -> io::Result<()> {
    let path = shared.tmp.join(crate::id::random_hex::<12>());
    let write = || {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        file.write_all(b"paddock")?;
        shared.journal.sync(&file)
    };
    let written = write();
    // A remaining file is removed at the next start.
    let removed = fs::remove_file(&path);
    written.and(removed)
}
