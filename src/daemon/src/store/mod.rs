//! Files on disk: the truth of every session's `/data`.
//!
//! ```text
//!  root/
//!    lock              locked while a daemon runs: one daemon at a time uses a store
//!    format            the number of the store's format: an older daemon refuses a newer one
//!    owner             random id; labels everything that the daemon makes on an engine
//!    files.secret      signs links, unless the configuration has a key              0600
//!    agent.secret      the secrets of all containers are derived from it            0600
//!    tokens.toml       the tokens of callers, each by its SHA-256: see the module `tenants`  0600
//!    guarded           there once was a tokens.toml: without any token nobody is served
//!    port              the port of the last temporary daemon, for the next one
//!    journal/<number>  changes acknowledged since the last checkpoint; empty most of the time
//!    mcp.secret        makes the ids of sessions that MCP clients did not name      0600
//!    mcp/…             MCP sessions, for clients that come back after a restart
//!    leases/…          which session has which container, for the daemon that starts after a kill
//!    networks/…        what each run has used of its network, for the same daemon
//!    tmp/              contents being written, and files that the journal names; emptied at every start
//!    restoring/…       a backup that is being restored: see the module `restored`
//!    <hash>/           one for each session: SHA-256 of owner and id
//!      session.json    its owner and id, and whether it was closed; its mtime is the time of last use
//!      files/…         directories and regular files of /data
//!      links           symbolic links of /data, as data
//!      shared          the ledger has or had the session, in a store of many machines
//!      logs/…          output of runs that was too long for an answer
//!      executions/…    the output of executions, a description of each, and what tasks changed
//! ```
//!
//! # What is durable when
//!
//! ```text
//!  Batch   ─ small contents in memory, large ones in tmp/
//!  commit  ─ sync its files in tmp/ ─► one record in the journal ─► fdatasync, shared by all waiting commits
//!          ─► apply (write beside, rename) ─► update the manifest ─► acknowledge
//!  later   ─ checkpoint: sync the file system, then free the journal and the files that it named in tmp/
//!  start   ─ replay the journal from its beginning, sync, empty tmp/
//! ```
//!
//! A commit is durable, as a whole, from the moment that the sync of its record returns. It is not
//! acknowledged and none of it is visible before that; so a crash at any moment leaves all of a commit or
//! none, also of a rename or of a directory that became a file. Applied files are not synced one by one: the
//! journal keeps their contents until a checkpoint has made all of them durable. So a thousand small files
//! cost one sync, and so do fifty sessions that commit at once.
//!
//! Each time that the engine unmounts a container's file system, the kernel syncs the one below it, which may
//! be that of the store. Commits wait behind that too. So logs are given to the disk while they grow, and
//! little of them waits in memory: see the module `behind`.
//!
//! A commit that is durable but cannot be applied yet is [`StoreError::Pending`]: the session is served again
//! once it is applied, which the store tries at the session's next use, in the background, and at the next
//! start. A failed sync fails its commits; that file of the journal is not written again, and the next one
//! records its valid length. Errors of the file system are [`StoreError::Unwritable`], and
//! [`Store::is_writable`] is false until a write succeeds again. Logs and times of last use are only as
//! durable as the file system makes them.
//!
//! # Many machines
//!
//! With [`Store::share`] the truth is in PostgreSQL and S3, and all of this is a cache and a journal before
//! it: see the module `remote`.
//!
//! # Bounds
//!
//! [`Quota`] bounds one file and one session, [`Options::total`] the bytes and entries of all sessions,
//! constants of the module `journal` the journal; the free space of the disk is checked before a record is
//! written. Bytes that are still being written count.
//!
//! The store must never follow a symbolic link, never make one, and never use a name that is not a
//! [`RelPath`](paddock_proto::RelPath).

mod apply;
mod batch;
mod before;
mod behind;
mod beside;
mod checkpoint;
mod clock;
mod error;
mod execution_files;
mod folder;
mod format;
mod journal;
mod links;
mod log;
mod manifest;
mod open;
mod record;
mod remote;
mod replace;
mod replay;
mod restored;
mod session_json;
mod shared;
mod snapshot;
mod space;
mod staged;
pub mod tar;
pub(crate) mod trust;
mod usage;
mod writable;
mod write_queue;

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::SystemTime;

use sha2::{Digest, Sha256};
use tokio::sync::{OwnedMutexGuard, Semaphore};

use folder::{make_dir, random_hex_file, take_lock};

pub(crate) use batch::INLINE_FILE;
pub use batch::{Batch, Committed};
pub use before::KeptState;
pub use error::{Bound, StoreError};
pub use log::LogFile;
pub use manifest::{Difference, Manifest, StoredEntry};
pub use open::SavedFile;
pub use space::Space;

pub use execution_files::ExecutionFiles;

pub(crate) use clock::{StoreClock, utc_day};
pub(crate) use format::{FORMAT, NAME as FORMAT_FILE};
pub(crate) use restored::is_vacant;
pub(crate) use snapshot::{Snapshot, scratch};

use crate::id::{from_hex, hex};
use remote::Wanted;
use shared::SharedState;
pub(crate) use usage::RESERVE;
use usage::Usage;
pub use usage::{Amount, Elsewhere, OwnerBounds};
use writable::Writable;
#[cfg(test)]
pub(crate) use write_queue::slow_disk;
pub(crate) use write_queue::{WriteBatch, WriteQueue};

/// Commits that hold their contents in memory at once; further ones wait.
const COMMITS: usize = 64;

/// The limits of one session.
#[derive(Debug, Clone, Copy)]
pub struct Quota {
    /// Bytes, each file rounded up to a page as `/data` counts them.
    pub bytes: u64,
    /// Files, directories and links.
    pub entries: u64,
    /// Bytes of the largest file.
    pub file: u64,
}

/// The limits of a store.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Limits of each session.
    pub quota: Quota,
    /// Limit of all sessions together.
    pub total: Amount,
}

/// The open store.
pub struct Store {
    shared: Arc<SharedState>,
    threads: Vec<JoinHandle<()>>,
    /// Random id in hex, made once.
    pub owner: String,
}

/// A session that the store has something of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredSession {
    /// Its owner: the name of a token.
    pub owner: String,
    /// Its id.
    pub session: String,
    /// When it was last used, see [`Space::touch`].
    pub used: SystemTime,
}

impl Store {
    /// Opens the store at `root`, making it if it does not exist, and takes its lock.
    ///
    /// # Errors
    /// [`StoreError::InUse`], or an error of the file system.
    pub fn open(root: &Path, options: Options) -> Result<Self, StoreError> {
        let lock = take_lock(root)?;
        let what = |path: &Path| format!("cannot use the store at {}", path.display());
        let on = File::open(root).map_err(StoreError::io(what(root)))?;
        open::check(&on).map_err(StoreError::io(what(root)))?;
        let tmp = root.join("tmp");
        restored::finish(root).map_err(StoreError::io(what(root)))?;
        format::check(root, &tmp)?;
        make_dir(&tmp).map_err(StoreError::io(what(&tmp)))?;
        let (journal, unapplied) = replay::replay(root, &tmp, &on)?;
        let owner = random_hex_file(root, "owner", 16)?;
        let uncounted = checkpoint::sessions(root).map_err(StoreError::io(what(root)))?;
        let shared = Arc::new(SharedState {
            root: root.to_owned(),
            tmp,
            on,
            options,
            journal,
            usage: Usage::new(options.total, uncounted),
            commits: Arc::new(Semaphore::new(COMMITS)),
            spaces: Mutex::default(),
            unapplied: Mutex::new(unapplied),
            stuck: Mutex::new(false),
            sync_failed: Mutex::new(false),
            writable: Writable::default(),
            remote: std::sync::OnceLock::new(),
            _lock: lock,
        });
        let threads = checkpoint::start(&shared)?;
        Ok(Self { shared, threads, owner })
    }

    /// Puts a new store in the place of what is in this folder: `fill` fills it, and checks what it has
    /// filled. A crash leaves what was there before, or the whole new store.
    ///
    /// # Errors
    /// [`StoreError::InUse`], an error of the file system, or that of `fill`.
    pub(crate) async fn put_in_place<E: From<StoreError>>(
        root: &Path,
        fill: impl AsyncFnOnce(&Path) -> Result<(), E>,
    ) -> Result<(), E> {
        let what = || format!("cannot restore a store to {}", root.display());
        let lock = take_lock(root)?;
        restored::finish(root).map_err(StoreError::io(what()))?;
        let new = restored::begin(root).map_err(StoreError::io(what()))?;
        let filled = fill(&new).await;
        let placed = match filled {
            Ok(()) => restored::commit(root).map_err(StoreError::io(what())).map_err(E::from),
            Err(error) => {
                let _ = restored::finish(root); // removes what was filled
                Err(error)
            }
        };
        drop(lock);
        placed
    }

    /// A secret of 32 random bytes, made once and kept in a file of mode 0600.
    ///
    /// # Errors
    /// An error of the file system, or a file that does not hold what a daemon wrote.
    pub fn secret(&self, name: &str) -> Result<[u8; 32], StoreError> {
        let text = random_hex_file(&self.shared.root, name, 32)?;
        from_hex(&text).ok_or_else(|| {
            let what =
                format!("{} does not hold 64 hexadecimal digits", self.shared.root.join(name).display());
            StoreError::io(what)(io::ErrorKind::InvalidData.into())
        })
    }

    /// A folder of this name beside those of the sessions, made if it is missing, for files that belong to no
    /// session.
    ///
    /// # Errors
    /// An error of the file system.
    pub fn folder(&self, name: &str) -> Result<PathBuf, StoreError> {
        let path = self.shared.root.join(name);
        make_dir(&path).map_err(StoreError::io(format!("cannot make {}", path.display())))?;
        Ok(path)
    }

    /// The space of one session: loaded if it is stored, else empty.
    ///
    /// # Errors
    /// An error of the file system.
    pub async fn space(self: &Arc<Self>, owner: &str, session: &str) -> Result<Arc<Space>, StoreError> {
        Ok(self.loaded(owner, session, Wanted::Made).await?.0)
    }

    /// The space of one session if something is stored for it; makes nothing.
    ///
    /// # Errors
    /// An error of the file system.
    pub async fn find(
        self: &Arc<Self>,
        owner: &str,
        session: &str,
    ) -> Result<Option<Arc<Space>>, StoreError> {
        let (space, _lock) = self.loaded(owner, session, Wanted::Existing).await?;
        Ok(space.is_stored().then_some(space))
    }

    /// Removes everything that is stored for a session, for good; false if there was nothing. A [`Space`] of
    /// it that is still in use becomes empty, and writing to it fails with [`StoreError::Gone`]. The next
    /// [`Store::space`] makes a new, empty one.
    ///
    /// # Errors
    /// An error of the file system.
    pub async fn forget(self: &Arc<Self>, owner: &str, session: &str) -> Result<bool, StoreError> {
        let (space, lock) = self.loaded(owner, session, Wanted::Existing).await?;
        let permit = self.shared.commits.clone().acquire_owned().await;
        let forgotten = blocking(move || {
            let _bounds = (lock, permit);
            space.forget()
        });
        self.shared.saved(forgotten.await)
    }

    /// All sessions that something is stored for, in no order.
    ///
    /// # Errors
    /// An error of the file system about the store itself; a session that cannot be read is left out, with a
    /// warning.
    pub async fn stored(&self) -> Result<Vec<StoredSession>, StoreError> {
        let shared = self.shared.clone();
        blocking(move || shared.stored()).await
    }

    /// Reports every sync to `metrics` from now on.
    pub fn count(&self, metrics: crate::metrics::Metrics) {
        let _ = self.shared.journal.metrics.set(metrics); // a second call changes nothing
    }

    /// From now on `limits` says how many bytes and entries all sessions of an owner may have.
    pub fn limit_owners(&self, limits: impl Fn(&str) -> OwnerBounds + Send + Sync + 'static) {
        let _ = self.shared.usage.limits.set(Box::new(limits)); // a second call changes nothing
    }

    /// The bytes and entries of all sessions of an owner, as far as they were counted since the start.
    pub fn used_by(&self, owner: &str) -> Amount {
        self.shared.usage.of_owner(owner)
    }

    /// The bytes and entries of all sessions, as far as they were counted since the start, and their limit.
    pub fn used(&self) -> (Amount, Amount) {
        (self.shared.usage.used().0, self.shared.options.total)
    }

    /// Makes every commit fail from now on, or lets commits succeed again.
    #[cfg(test)]
    pub(crate) fn break_for_test(&self, is_broken: bool) {
        self.shared.journal.hooks.broken.store(is_broken, std::sync::atomic::Ordering::Relaxed);
    }

    /// Whether the last attempt to save something succeeded. After a failure the store retries until one
    /// does.
    pub fn is_writable(&self) -> bool {
        self.shared.writable.is_writable()
    }

    /// Refuses further commits, and frees the journal: the next start has nothing to replay.
    pub async fn close(&self) {
        self.shared.journal.close();
        let shared = self.shared.clone();
        let freed = blocking(move || Ok(shared.checkpoint())).await;
        tracing::debug!(freed = matches!(freed, Ok(true)), "the store is closed");
    }

    /// A space that agrees with the disk, and the disk with the ledger if there is one, and its lock for
    /// changes.
    async fn loaded(
        &self,
        owner: &str,
        session: &str,
        wanted: Wanted,
    ) -> Result<(Arc<Space>, OwnedMutexGuard<()>), StoreError> {
        loop {
            let space = self.shared.space(owner, session);
            let lock = space.lock().await;
            if space.is_gone() {
                continue; // forgotten during the wait; the next round makes a new one
            }
            let (loaded, lock) = {
                let space = space.clone();
                let work = move || {
                    space.ready_for_change()?;
                    space.secure(wanted)?;
                    Ok((space, lock))
                };
                blocking(work).await?
            };
            return Ok((loaded, lock));
        }
    }

    /// The directory of a session, whether it exists or not.
    #[cfg(test)]
    pub(crate) fn session_dir_for_tests(&self, owner: &str, session: &str) -> PathBuf {
        self.session_dir(owner, session)
    }

    /// The directory of a session, whether it exists or not.
    fn session_dir(&self, owner: &str, session: &str) -> PathBuf {
        self.shared.root.join(hash(owner, session))
    }
}

impl Drop for Store {
    /// Refuses further commits, and frees the journal.
    fn drop(&mut self) {
        self.shared.journal.close();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// The name of a session's directory: text of a caller never becomes part of a path.
fn hash(owner: &str, session: &str) -> String {
    let mut digest = Sha256::new();
    digest.update((owner.len() as u64).to_le_bytes());
    digest.update(owner);
    digest.update(session);
    hex(&digest.finalize())
}

fn is_hash(name: &str) -> bool {
    name.len() == 64 && name.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

/// Runs work on the file system on a thread that may block.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
) -> Result<T, StoreError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => Err(StoreError::io(
            "a file operation did not finish: its thread panicked, or the daemon is stopping",
        )(io::Error::other(error))),
    }
}

#[cfg(test)]
mod tests;
