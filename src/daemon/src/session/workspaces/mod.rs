//! The workspaces of coding agents outlive their containers: what git ignores, and the home directory, are
//! there again for the session's next task.
//!
//! ```text
//!  a lease is dropped ─► Keeper: list, note, `keep` ─► kept ─► Continuing ─► the next lease of the session
//!                                                       │
//!                                                       └─ retention · bound · session deleted ─► removed
//!
//!  core     which are kept, and which is removed when; pure
//!  agreed   what each has of the session's files, on disk
//! ```
//!
//! That a workspace is kept stands in the note of its lease, so that the next daemon finds it, also after a
//! `kill -9`. The engine's side of it is in `pool/workspaces.rs`. It must never give a workspace to another
//! session, nor to another coding agent of the same session; nor keep one without knowing what it has of the
//! session's files, since a deleted file could come back from it.

mod agreed;
mod core;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::sync::Notify;
use tracing::{info, warn};

use self::agreed::AgreedFiles;
use self::core::Books;
use super::gate::message::SessionKey;
use super::lease::notes::{LeaseNote, LeaseNotes, NoteFile};
use super::port::ContainerPool;
use super::registry::Session;
use super::sync::baseline::Baseline;
use crate::config::KeptWorkspaces;
use crate::link::{Link, LinkError};
use crate::metrics::{Metrics, WorkspaceEvent};
use crate::store::{Space, StoreClock, StoreError, blocking};

/// All workspaces that are kept without a container.
pub(in crate::session) struct Workspaces {
    books: Mutex<Books>,
    pool: Arc<dyn ContainerPool>,
    notes: LeaseNotes,
    files: AgreedFiles,
    clock: StoreClock,
    metrics: Metrics,
    /// Told when the next one may be due earlier.
    changed: Notify,
}

/// What keeps the workspace of one leased container when its lease is dropped.
pub(in crate::session) struct Keeper {
    workspaces: Arc<Workspaces>,
    key: SessionKey,
    language: String,
    /// Whether the list on disk is of this container: without one its workspace is not kept.
    is_listed: bool,
}

/// A workspace over which a container is being started. Dropped before the end, it is kept as before.
pub(in crate::session) struct Continuing {
    workspaces: Arc<Workspaces>,
    name: String,
    is_over: bool,
}

impl Workspaces {
    /// None yet. Notes and lists are in these directories.
    pub(in crate::session) fn new(
        bounds: Option<KeptWorkspaces>,
        pool: Arc<dyn ContainerPool>,
        (notes, lists): (LeaseNotes, PathBuf),
        metrics: Metrics,
    ) -> Arc<Self> {
        let (books, files) = (Mutex::new(Books::new(bounds)), AgreedFiles::new(lists));
        Arc::new(Self {
            books,
            pool,
            notes,
            files,
            clock: StoreClock::new(),
            metrics,
            changed: Notify::new(),
        })
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes workspaces after their retention, for as long as something else holds on to them.
    pub(in crate::session) async fn expire(self: Arc<Self>) {
        loop {
            let gone = self.books().expire(self.clock.now());
            self.remove(gone, WorkspaceEvent::Expired);
            let next = self.books().next_expiry(self.clock.now());
            let due = async {
                match next {
                    Some(after) => tokio::time::sleep(after).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = due => {}
                () = self.changed.notified() => {}
            }
        }
    }

    /// What keeps the workspace of this session's container, if any is ever kept.
    pub(in crate::session) fn keeper(self: &Arc<Self>, session: &Session, language: &str) -> Option<Keeper> {
        self.books().keeps().then(|| Keeper {
            workspaces: self.clone(),
            key: session.key.clone(),
            language: language.to_owned(),
            is_listed: false,
        })
    }

    /// The kept workspace of this session and coding agent, for a container that is to be started over it.
    pub(in crate::session) fn continuing(
        self: &Arc<Self>,
        session: &Session,
        language: &str,
    ) -> Option<Continuing> {
        let name = self.books().begin(&session.key, language)?;
        Some(Continuing { workspaces: self.clone(), name, is_over: false })
    }

    /// Keeps a workspace that an earlier daemon left, by its note; or removes it.
    pub(in crate::session) fn found(&self, name: &str, note: LeaseNote) {
        let key = note.session.parse().ok().map(|id| SessionKey::new(&note.owner, &id));
        let Some(key) = key.filter(|_| self.files.has(name)) else {
            return self.remove(vec![name.to_owned()], WorkspaceEvent::Unusable);
        };
        let since = note.kept_since_ms.map_or_else(|| self.clock.now(), time);
        info!(name, session_id = %key.id(), "a workspace of an earlier daemon is kept");
        let language = note.language.clone();
        if note.kept_since_ms.is_none() {
            self.notes.write(name, LeaseNote { runs: Vec::new(), ..note }).keep(millis(since));
        }
        self.keep(name, key, &language, since);
    }

    /// Removes the lists of containers for which this is false.
    pub(in crate::session) fn keep_lists(&self, is_known: impl Fn(&str) -> bool) {
        self.files.keep_only(is_known);
    }

    /// The session is deleted, and with it what is kept for it. Whether there was something.
    pub(in crate::session) fn delete(&self, key: &SessionKey) -> bool {
        let gone = self.books().delete(key);
        let was_some = !gone.is_empty();
        self.remove(gone, WorkspaceEvent::Deleted);
        was_some
    }

    /// How many there are, and the most there may be.
    pub(in crate::session) fn counts(&self) -> (usize, usize) {
        self.books().counts()
    }

    fn keep(&self, name: &str, key: SessionKey, language: &str, since: SystemTime) {
        let gone = self.books().keep(name, (key, language), since);
        self.metrics.workspace(WorkspaceEvent::Kept);
        self.remove(gone, WorkspaceEvent::Displaced);
        self.changed.notify_one();
    }

    fn remove(&self, names: Vec<String>, why: WorkspaceEvent) {
        for name in names {
            info!(name, why = why.as_str(), "a kept workspace is removed");
            // The note first: what has none is removed by the next daemon.
            self.notes.forget(&name);
            self.files.remove(&name);
            self.pool.discard(&name);
            self.metrics.workspace(why);
        }
    }
}

impl Keeper {
    /// Writes down what the container may have of the session's files.
    pub(in crate::session) async fn list(&mut self, name: &str, baseline: &Baseline, space: &Space) {
        let list = agreed::list(baseline, &space.manifest());
        let (files, of) = (self.workspaces.files.clone(), name.to_owned());
        let written = blocking(move || {
            files.write(&of, &list).map_err(StoreError::io("cannot write what a workspace has"))
        });
        let written = written.await;
        self.is_listed = written.is_ok();
        if let Err(error) = written {
            warn!(name, %error, "a workspace will go with its container");
            self.workspaces.files.remove(name);
        }
    }

    /// Whether the workspace outlives its container: then the note says so from now on, and `tell_pool` has
    /// told the pool.
    pub(super) fn keep(self, name: &str, note: &mut NoteFile, tell_pool: impl FnOnce()) {
        let since = self.workspaces.clock.now();
        if !self.is_listed || !note.keep(millis(since)) {
            return self.workspaces.files.remove(name);
        }
        tell_pool();
        // Last: from here on the workspace can be removed.
        self.workspaces.keep(name, self.key, &self.language, since);
    }

    /// The workspace goes with its container.
    pub(super) fn give_up(self, name: &str) {
        self.workspaces.files.remove(name);
    }
}

impl Continuing {
    /// The name of the workspace and of its container.
    pub(in crate::session) fn name(&self) -> &str {
        &self.name
    }

    /// Makes daemon and agent of the new container agree on what is in the workspace: the answer says what it
    /// has.
    pub(in crate::session) async fn settle(&self, space: &Space, link: &Link) -> Result<Baseline, LinkError> {
        let (files, name) = (self.workspaces.files.clone(), self.name.clone());
        let read =
            blocking(move || files.read(&name).map_err(StoreError::io("cannot read what a workspace has")));
        match read.await {
            Ok(list) => agreed::settle(space, link, list).await,
            Err(error) => {
                warn!(name = self.name, %error, "nobody knows what a workspace has");
                Err(LinkError::Refused)
            }
        }
    }

    /// The session has its container.
    pub(in crate::session) fn done(mut self) {
        self.is_over = true;
        self.workspaces.books().forget(&self.name);
        self.workspaces.metrics.workspace(WorkspaceEvent::Continued);
    }

    /// No container can be had over it: it is removed.
    pub(in crate::session) fn cannot(mut self) {
        self.is_over = true;
        self.workspaces.books().forget(&self.name);
        self.workspaces.remove(vec![self.name.clone()], WorkspaceEvent::Unusable);
    }
}

impl Drop for Continuing {
    fn drop(&mut self) {
        if !self.is_over {
            self.workspaces.books().give_back(&self.name);
            self.workspaces.changed.notify_one();
        }
    }
}

fn millis(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

fn time(ms: u64) -> SystemTime {
    UNIX_EPOCH.checked_add(Duration::from_millis(ms)).unwrap_or(UNIX_EPOCH)
}
