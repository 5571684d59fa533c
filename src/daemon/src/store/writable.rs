//! Whether the store's file system takes what is to be saved: what failed is tried again in the background, so that it
//! is known when it works again, also while nobody calls.
//!
//! A full disk is no such failure: it takes what only removes, and each commit asks for its own room. This must never
//! touch anything but a file of its own in `tmp/`.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::fs::StatVfsMountFlags;

use super::shared::Shared;

/// Between two looks.
const LOOK: Duration = Duration::from_secs(1);

/// What is known of it. It is taken for writable until something says otherwise.
#[derive(Debug, Default)]
pub(super) struct Writable {
    failing: AtomicBool,
}

impl Writable {
    /// Whether what was last saved, or tried, worked.
    pub(super) fn is_so(&self) -> bool {
        !self.failing.load(Ordering::Acquire)
    }

    /// Something could not be saved.
    pub(super) fn failed(&self) {
        self.failing.store(true, Ordering::Release);
    }

    /// Something was saved.
    pub(super) fn worked(&self) {
        if self.failing.swap(false, Ordering::AcqRel) {
            tracing::info!("the store can be written again");
        }
    }
}

/// Looks until the store is closed.
pub(super) fn watch(shared: &Arc<Shared>) {
    loop {
        shared.journal.rest(LOOK);
        if shared.journal.is_closed() {
            return;
        }
        look(shared);
    }
}

/// Asks whether the file system is read-only, and tries to write where the last write failed.
pub(super) fn look(shared: &Arc<Shared>) {
    if shared.writable.is_so() {
        // By its path: someone may have mounted over it. An error says nothing of writing.
        let stat = rustix::fs::statvfs(&shared.root);
        if stat.is_ok_and(|stat| stat.f_flag.contains(StatVfsMountFlags::RDONLY)) {
            shared.writable.failed(); // before it is said: whoever reads the line finds it so
            let root = shared.root.display();
            tracing::error!(%root, "the file system of the store is read-only: nothing can be saved");
        }
        return;
    }
    if let Err(error) = attempt(shared) {
        tracing::debug!(%error, "the store still cannot be written");
        return;
    }
    // What is durable and was not put in place is part of the failure.
    shared.settle_all();
    if shared.unsettled().is_empty() {
        shared.writable.worked();
    }
}

/// Writes, syncs and removes a file.
fn attempt(shared: &Shared) -> io::Result<()> {
    let path = shared.tmp.join(crate::id::random_hex::<12>());
    let write = || {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        file.write_all(b"paddock")?;
        shared.journal.sync(&file)
    };
    let written = write();
    // What is left goes at the next start.
    let removed = fs::remove_file(&path);
    written.and(removed)
}
