//! What the store, its spaces and its threads have in common: the one space of each session, what is not in place
//! yet, and room.
//!
//! It must never hand out two spaces of one session, nor let anything overtake what is not in place yet.

use std::collections::HashMap;
use std::fs::{self, File};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::sync::Semaphore;

use super::journal::{Journal, Ticket};
use super::record::Record;
use super::recover::Unsettled;
use super::usage::{DiskClaim, Usage};
use super::writable::Writable;
use super::{Options, Space, StoreError, Stored, about, apply, hash, is_hash};

/// What the store, its spaces and its threads have in common. The lock is here: it is held as long as anyone could
/// write.
pub(super) struct Shared {
    pub(super) root: PathBuf,
    pub(super) tmp: PathBuf,
    /// The root, open from the start: a sync through it tells of all that failed since.
    pub(super) on: File,
    pub(super) options: Options,
    pub(super) journal: Journal,
    pub(super) usage: Arc<Usage>,
    /// Commits beyond the session's own turn.
    pub(super) commits: Arc<Semaphore>,
    /// By the name of their directory. There is only ever one that is not gone, or two would write one directory.
    pub(super) spaces: Mutex<HashMap<String, Weak<Space>>>,
    pub(super) unsettled: Mutex<Unsettled>,
    /// Whether a checkpoint failed such that there can be no other.
    pub(super) stuck: Mutex<bool>,
    /// Whether the file system takes what is to be saved.
    pub(super) writable: Writable,
    pub(super) _lock: File,
}

impl Shared {
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

    pub(super) fn unsettled(&self) -> MutexGuard<'_, Unsettled> {
        self.unsettled.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts in place what a session lacks; whether it lacked anything. The caller has the session's turn.
    pub(super) fn settle(&self, hash: &str) -> Result<bool, StoreError> {
        let Some(mut lacking) = self.unsettled().remove(hash) else { return Ok(false) };
        while let Some((record, ticket)) = lacking.first() {
            match apply::apply(&self.root, &self.tmp, record) {
                Ok(replaced) => ticket.take_over(replaced),
                Err(error) => {
                    self.unsettled().insert(hash.to_owned(), lacking);
                    return Err(StoreError::Pending(Box::new(error)));
                }
            }
            lacking.remove(0);
        }
        Ok(true)
    }

    /// Tries that for every session that nobody else is at.
    pub(super) fn settle_all(self: &Arc<Self>) {
        let whose = |(record, _): &(Arc<Record>, Ticket)| (record.owner.clone(), record.session.clone());
        let all: Vec<_> =
            self.unsettled().values().filter_map(|lacking| lacking.first().map(whose)).collect();
        for (owner, session) in all {
            let space = self.space(&owner, &session);
            let Some(_turn) = space.try_turn() else { continue };
            match space.ready() {
                Ok(()) => tracing::info!(session, "a saved change that could not be put in place now is"),
                Err(error) => tracing::warn!(session, %error, "a saved change still cannot be put in place"),
            }
        }
    }

    /// Claims room on the disk for a commit. The journal is freed first if that is what fills it.
    pub(super) fn room(&self, bytes: u64, inodes: u64, frees: bool) -> Result<DiskClaim, StoreError> {
        let claim = || self.usage.disk(&self.on, bytes, inodes, frees);
        match claim() {
            Err(StoreError::Full(_)) if self.checkpoint() => claim(),
            other => other,
        }
    }

    /// Hears how saving something went.
    pub(super) fn saved<T>(&self, done: Result<T, StoreError>) -> Result<T, StoreError> {
        if done.is_ok() {
            self.writable.worked();
        }
        done.map_err(|error| self.not_saved(error))
    }

    /// Hears why something could not be saved; the reason as callers may see it.
    pub(super) fn not_saved(&self, error: StoreError) -> StoreError {
        let error = error.of_saving();
        if matches!(error, StoreError::Unwritable(_) | StoreError::Pending(_)) {
            self.writable.failed();
        }
        error
    }

    pub(super) fn stored(&self) -> Result<Vec<Stored>, StoreError> {
        let what = || format!("cannot list the sessions in {}", self.root.display());
        let mut all = Vec::new();
        for found in fs::read_dir(&self.root).map_err(StoreError::io(what()))? {
            let found = found.map_err(StoreError::io(what()))?;
            let name = found.file_name();
            let Some(name) = name.to_str().filter(|name| is_hash(name)) else { continue };
            match about::read(&found.path()) {
                Ok(Some((about, _))) if hash(&about.owner, &about.session_id) != name => {
                    tracing::warn!(dir = name, "a session's session.json names another session; left alone");
                }
                Ok(Some((about, used))) => {
                    all.push(Stored { owner: about.owner, session: about.session_id, used });
                }
                Ok(None) => {}
                Err(error) => tracing::warn!(dir = name, %error, "a session's session.json cannot be read"),
            }
        }
        Ok(all)
    }
}
