//! What the store, its spaces and its threads share: the one space of each session, changes that are not
//! applied yet, and free space.
//!
//! It must never create two spaces of one session, nor let a later change of a session overtake an earlier
//! change that is not applied yet.

use std::collections::HashMap;
use std::fs::{self, File};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use tokio::sync::Semaphore;

use super::journal::{Journal, JournalPin};
use super::record::JournalRecord;
use super::remote::Remote;
use super::replay::Unapplied;
use super::usage::{DiskClaim, Usage};
use super::writable::Writable;
use super::{Options, Space, StoreError, StoredSession, apply, hash, is_hash, session_json};

/// What the store, its spaces and its threads share. The store's lock is in it, so it is kept as long as any
/// of them could write.
pub(super) struct SharedState {
    pub(super) root: PathBuf,
    pub(super) tmp: PathBuf,
    /// The root directory, open from the start: a sync through it reports every failure since then.
    pub(super) on: File,
    pub(super) options: Options,
    pub(super) journal: Journal,
    pub(super) usage: Arc<Usage>,
    /// Permits for commits of all sessions; within one session its own lock allows one commit at a time.
    pub(super) commits: Arc<Semaphore>,
    /// By the name of the directory. At most one of a session is not gone, or two would write to one
    /// directory.
    pub(super) spaces: Mutex<HashMap<String, Weak<Space>>>,
    pub(super) unapplied: Mutex<Unapplied>,
    /// Whether a checkpoint failed in a way that allows no other.
    pub(super) stuck: Mutex<bool>,
    /// Whether a sync of the whole file system failed.
    pub(super) sync_failed: Mutex<bool>,
    /// Whether the file system accepts writes.
    pub(super) writable: Writable,
    /// The ledger, in a store of many machines.
    pub(super) remote: OnceLock<Remote>,
    pub(super) _lock: File,
}

impl SharedState {
    pub(super) fn spaces(&self) -> MutexGuard<'_, HashMap<String, Weak<Space>>> {
        self.spaces.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The one space of a session, loaded or not.
    pub(super) fn space(self: &Arc<Self>, owner: &str, session: &str) -> Arc<Space> {
        let hash = hash(owner, session);
        let mut spaces = self.spaces();
        if let Some(space) = spaces.get(&hash).and_then(Weak::upgrade).filter(|space| !space.is_gone()) {
            return space;
        }
        spaces.retain(|_, space| space.strong_count() > 0);
        let space = Arc::new(Space::new(self.clone(), hash.clone(), owner, session));
        spaces.insert(hash, Arc::downgrade(&space));
        space
    }

    pub(super) fn unapplied(&self) -> MutexGuard<'_, Unapplied> {
        self.unapplied.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Applies the changes of a session that are not applied yet; whether there were any. The caller has the
    /// session's lock.
    pub(super) fn apply_pending(&self, hash: &str) -> Result<bool, StoreError> {
        let Some(mut lacking) = self.unapplied().remove(hash) else { return Ok(false) };
        while let Some((record, pin)) = lacking.first() {
            match apply::apply(&self.root, &self.tmp, record) {
                Ok(replaced) => pin.take_over(replaced),
                Err(error) => {
                    self.unapplied().insert(hash.to_owned(), lacking);
                    return Err(StoreError::Pending(Box::new(error)));
                }
            }
            lacking.remove(0);
        }
        Ok(true)
    }

    /// Applies those of every session whose lock is free.
    pub(super) fn apply_all(self: &Arc<Self>) {
        let whose =
            |(record, _): &(Arc<JournalRecord>, JournalPin)| (record.owner.clone(), record.session.clone());
        let all: Vec<_> =
            self.unapplied().values().filter_map(|lacking| lacking.first().map(whose)).collect();
        for (owner, session) in all {
            let space = self.space(&owner, &session);
            let Some(_lock) = space.try_lock() else { continue };
            match space.ready() {
                Ok(()) => {
                    tracing::info!(session, "a saved change that could not be put in place is in place now")
                }
                Err(error) => {
                    tracing::warn!(session, %error, "a saved change still cannot be put in place; retrying")
                }
            }
        }
    }

    /// Claims free space of the disk for a commit. If the disk is full, the journal is freed first.
    pub(super) fn claim_disk(&self, bytes: u64, inodes: u64, frees: bool) -> Result<DiskClaim, StoreError> {
        claim_or_free(
            || self.usage.disk(&self.on, bytes, inodes, frees),
            || {
                self.checkpoint();
            },
        )
    }

    /// Notes the result of an attempt to save something.
    pub(super) fn saved<T>(&self, done: Result<T, StoreError>) -> Result<T, StoreError> {
        if done.is_ok() {
            self.writable.worked();
        }
        done.map_err(|error| self.not_saved(error))
    }

    /// Notes why something could not be saved; returns the error for callers.
    pub(super) fn not_saved(&self, error: StoreError) -> StoreError {
        let error = error.of_saving();
        if matches!(error, StoreError::Unwritable(_) | StoreError::Pending(_)) {
            self.writable.failed();
        }
        error
    }

    /// All sessions of this node.
    pub(super) fn stored(self: &Arc<Self>) -> Result<Vec<StoredSession>, StoreError> {
        let here = self.stored_here()?;
        match self.remote.get() {
            Some(remote) => remote.sessions(self, here),
            None => Ok(here),
        }
    }

    fn stored_here(&self) -> Result<Vec<StoredSession>, StoreError> {
        let what = || format!("cannot list the sessions in {}", self.root.display());
        let mut all = Vec::new();
        for found in fs::read_dir(&self.root).map_err(StoreError::io(what()))? {
            let found = found.map_err(StoreError::io(what()))?;
            let name = found.file_name();
            let Some(name) = name.to_str().filter(|name| is_hash(name)) else { continue };
            match session_json::read(&found.path()) {
                Ok(Some((about, _))) if hash(&about.owner, &about.session_id) != name => {
                    tracing::warn!(
                        dir = name,
                        "a session.json names another session than its directory; ignored"
                    );
                }
                Ok(Some((about, used))) => {
                    all.push(StoredSession { owner: about.owner, session: about.session_id, used });
                }
                Ok(None) => {}
                Err(error) => {
                    tracing::warn!(dir = name, %error, "cannot read a session.json; its session is ignored")
                }
            }
        }
        Ok(all)
    }
}

/// Claims space, and once more after the journal was freed if the disk is full: also if that freed nothing,
/// since the background may have freed it just before.
pub(super) fn claim_or_free<T>(
    mut claim: impl FnMut() -> Result<T, StoreError>,
    free: impl FnOnce(),
) -> Result<T, StoreError> {
    match claim() {
        Err(StoreError::Full(_)) => {
            free();
            claim()
        }
        other => other,
    }
}
