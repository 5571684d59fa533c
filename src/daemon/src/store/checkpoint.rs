//! In the background: makes durable what was applied, and frees the journal.
//!
//! ```text
//!  seal the current file ─► syncfs ─► unlink the sealed files ─► sync the journal's directory
//!    ─► remove the files that they named in tmp/
//! ```
//!
//! Commits continue in the next file meanwhile. A checkpoint must never free a file before all of its records
//! are applied and a later sync returned without an error. Once a sync has failed, nobody knows what is on
//! the disk: the journal is then kept for the next start, which replays it.

use std::collections::HashSet;
use std::fs::{self, File};
use std::path::Path;
use std::sync::{Arc, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::shared::SharedState;
use super::{StoreError, is_hash, session_json, writable};
use crate::degradation::Degradation;

/// A checkpoint frees the journal when nobody committed for this long,
const IDLE: Duration = Duration::from_secs(5);
/// or when the oldest record is this old.
const AGE: Duration = Duration::from_secs(60);
/// A failed checkpoint is retried after this time.
const RETRY: Duration = Duration::from_secs(2);

/// Starts the store's threads, which run until it is closed.
pub(super) fn start(shared: &Arc<SharedState>) -> Result<Vec<JoinHandle<()>>, StoreError> {
    let begin = |name: &str, work: fn(&Arc<SharedState>)| {
        let shared = shared.clone();
        let failed = StoreError::io(format!("cannot start the thread {name}"));
        thread::Builder::new().name(name.to_owned()).spawn(move || work(&shared)).map_err(failed)
    };
    Ok(vec![
        begin("store-journal", keep)?,
        begin("store-writable", writable::watch)?,
        begin("store-count", count)?,
    ])
}

fn keep(shared: &Arc<SharedState>) {
    while shared.journal.due(IDLE, AGE) {
        shared.apply_all();
        if !shared.checkpoint() {
            shared.journal.sleep(RETRY);
        }
    }
    shared.checkpoint();
}

/// Counts the bytes and entries of sessions that nobody has loaded yet.
fn count(shared: &Arc<SharedState>) {
    while let Some(hash) = shared.usage.next_uncounted().filter(|_| !shared.journal.is_closed()) {
        let found = session_json::read(&shared.root.join(&hash));
        let Ok(Some((about, _))) = found else {
            tracing::warn!(
                dir = hash,
                "a directory of the store has no readable session.json; its files do not count for \
                 store.max_bytes"
            );
            shared.usage.leave_out(&hash);
            continue;
        };
        let space = shared.space(&about.owner, &about.session_id);
        let _lock = space.lock_blocking();
        if let Err(error) = space.ready() {
            tracing::warn!(dir = hash, %error, "cannot count the files of a session for store.max_bytes");
        }
        shared.usage.leave_out(&hash); // if it could not be counted
    }
}

/// The directories of sessions in the store.
pub(super) fn sessions(root: &Path) -> std::io::Result<HashSet<String>> {
    let mut all = HashSet::new();
    for entry in fs::read_dir(root)? {
        let name = entry?.file_name();
        all.extend(name.to_str().filter(|name| is_hash(name)).map(str::to_owned));
    }
    Ok(all)
}

impl SharedState {
    /// Frees as much of the journal as can be freed; whether that was anything.
    pub(super) fn checkpoint(&self) -> bool {
        let mut stuck = self.stuck.lock().unwrap_or_else(PoisonError::into_inner);
        if *stuck {
            return false;
        }
        let files = self.journal.seal();
        if files.is_empty() {
            return false;
        }
        if let Err(error) = self.sync_file_system() {
            *stuck = true;
            if let Some(metrics) = self.journal.metrics.get() {
                metrics.degradations().note(Degradation::JournalKept, true);
            }
            tracing::error!(
                %error,
                "cannot sync the store: the journal is kept from now on, and the next start replays it; \
                 check the disk, then restart"
            );
            return false;
        }
        let unlinked = files.iter().try_for_each(|file| file.unlink());
        let synced = unlinked.and_then(|()| File::open(self.root.join("journal"))?.sync_all());
        if let Err(error) = synced {
            tracing::warn!(%error, "cannot free the store's journal; retrying");
            return false;
        }
        files.iter().for_each(|file| file.remove_sources());
        self.journal.done(files.len());
        true
    }

    /// Syncs the whole file system that the store is on. Once that has failed, it always fails: the kernel
    /// reports a failed write to one sync only, whosever data it was.
    pub(super) fn sync_file_system(&self) -> Result<(), StoreError> {
        let failed = || StoreError::io(format!("cannot sync the file system of {}", self.root.display()));
        // Locked during the sync, so that none that began later can succeed before the failure is noted.
        let mut lost = self.sync_failed.lock().unwrap_or_else(PoisonError::into_inner);
        if *lost {
            return Err(failed()(std::io::Error::other("an earlier sync failed")));
        }
        rustix::fs::syncfs(&self.on).map_err(|error| {
            *lost = true;
            failed()(error.into())
        })
    }
}
