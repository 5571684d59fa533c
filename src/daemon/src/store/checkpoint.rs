//! In the background: what was put in place becomes durable there, and the journal is freed.
//!
//! ```text
//!  seal the file that is written to ─► syncfs ─► unlink the sealed files ─► sync the journal's directory
//!    ─► remove what they named in tmp/
//! ```
//!
//! Commits go on into the next file meanwhile. It must never free a file before all of its records are in place and
//! a sync after that returned without an error: once one failed, what is in place is not known, and the journal is
//! kept for the next start, which redoes it.

use std::collections::HashSet;
use std::fs::{self, File};
use std::path::Path;
use std::sync::{Arc, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::shared::Shared;
use super::usage::Amount;
use super::{StoreError, about, is_hash, writable};

/// The journal is freed when nobody committed for so long,
const IDLE: Duration = Duration::from_secs(5);
/// or when its oldest record is so old.
const AGE: Duration = Duration::from_secs(60);
/// What could not be done is tried again after this.
const AGAIN: Duration = Duration::from_secs(2);

/// Starts what runs beside the store until it is closed.
pub(super) fn start(shared: &Arc<Shared>) -> Result<Vec<JoinHandle<()>>, StoreError> {
    let begin = |name: &str, work: fn(&Arc<Shared>)| {
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

fn keep(shared: &Arc<Shared>) {
    while shared.journal.due(IDLE, AGE) {
        shared.settle_all();
        if !shared.checkpoint() {
            shared.journal.rest(AGAIN);
        }
    }
    shared.checkpoint();
}

/// Counts what the sessions hold that nobody asked for yet.
fn count(shared: &Arc<Shared>) {
    while let Some(hash) = shared.usage.next_uncounted().filter(|_| !shared.journal.is_closed()) {
        let found = about::read(&shared.root.join(&hash));
        let Ok(Some((about, _))) = found else {
            tracing::warn!(
                dir = hash,
                "a directory of the store has no session.json that can be read; not counted"
            );
            shared.usage.count(&hash, Amount::default());
            continue;
        };
        let space = shared.space(&about.owner, &about.session_id);
        let _turn = space.turn_blocking();
        if let Err(error) = space.ready() {
            tracing::warn!(dir = hash, %error, "the files of a session cannot be counted");
        }
        shared.usage.count(&hash, Amount::default()); // nothing is added if it was counted
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

impl Shared {
    /// Frees what can be freed of the journal; whether anything was.
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
            tracing::error!(
                %error,
                "the journal is kept from now on, and redone at the next start; check the disk, then restart"
            );
            return false;
        }
        let unlinked = files.iter().try_for_each(|file| file.unlink());
        let synced = unlinked.and_then(|()| File::open(self.root.join("journal"))?.sync_all());
        if let Err(error) = synced {
            tracing::warn!(%error, "cannot free the store's journal; it is tried again");
            return false;
        }
        files.iter().for_each(|file| file.remove_sources());
        self.journal.done(files.len());
        true
    }

    /// Syncs the whole file system that the store is on.
    pub(super) fn sync_file_system(&self) -> Result<(), StoreError> {
        let failed = format!("cannot sync the file system of {}", self.root.display());
        rustix::fs::syncfs(&self.on).map_err(|error| StoreError::io(failed)(error.into()))
    }
}
