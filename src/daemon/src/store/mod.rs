//! Files on disk: the truth of every session's `/data`.
//!
//! ```text
//!  root/
//!    lock              held while a daemon lives: a store has one owner at a time
//!    owner             random id; labels everything that the daemon makes on an engine
//!    files.secret      signs links, unless the configuration has one        0600
//!    agent.secret      what the secrets of all containers are derived from    0600
//!    journal/<number>  what was acknowledged since the last checkpoint; empty most of the time
//!    mcp.secret        makes the ids of sessions that MCP clients did not name   0600
//!    mcp/…             MCP sessions, for clients that come back after a restart
//!    leases/…          which container is whose, for the daemon that comes after a kill
//!    tmp/              contents on their way, and what the journal names; emptied at every start
//!    <hash>/           one per session: SHA-256 of owner and id
//!      session.json    whose it is, and whether it was closed; its time is that of the last use
//!      files/…         directories and regular files of /data
//!      links           symbolic links of /data, as data
//!      logs/…          output of runs that was too long for an answer
//!      executions/…    what was heard of executions, and what they are
//! ```
//!
//! # What is durable when
//!
//! ```text
//!  Batch   ─ small contents in memory, large ones in tmp/
//!  commit  ─ sync what is in tmp/ ─► one record in the journal ─► fdatasync, shared by all who wait
//!          ─► put in place (write beside, rename) ─► the manifest ─► acknowledged
//!  later   ─ checkpoint: sync the file system, then free the journal and what it named in tmp/
//!  start   ─ redo the journal from its beginning, sync, empty tmp/
//! ```
//!
//! A commit is durable, as a whole, from the moment that the sync of its record returns. Nobody is told before, and
//! until then nothing of it is in place; so a crash at any moment leaves all of a commit or none, also of a rename
//! or of a directory that became a file. What is put in place is not synced by itself: the journal has it until a
//! checkpoint made all of it durable. So a thousand small files cost one sync, and so do fifty sessions that commit
//! at once.
//!
//! What is durable and cannot be put in place is [`StoreError::Pending`]: the session is served again once it is,
//! which is tried at its next use, in the background, and at the next start. A sync that failed fails its commits;
//! that file of the journal is not written to again, and the next one says how far it was good. Logs and times of
//! use are as durable as the file system makes them.
//!
//! # Bounds
//!
//! One file and one session by [`Quota`], all sessions by [`Options::total`], the journal by its own constants, the
//! disk by asking before a record is written. What is being written counts.
//!
//! The store must never follow a symbolic link, never make one, and never use a name that is no
//! [`RelPath`](paddock_proto::RelPath).

mod about;
mod apply;
mod batch;
mod checkpoint;
mod error;
mod journal;
mod links;
mod log;
mod manifest;
mod record;
mod recording;
mod recover;
mod shared;
mod space;
mod staged;
pub mod tar;
mod usage;

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::SystemTime;

use rustix::fs::FlockOperation;
use sha2::{Digest, Sha256};
use tokio::sync::{OwnedMutexGuard, Semaphore};

pub use batch::Batch;
pub use error::{Bound, StoreError};
pub use log::LogFile;
pub use manifest::{Difference, Held, Manifest};
pub use space::{Space, open_log, open_saved, touch_saved};

use crate::id::{hex, random_hex};
use shared::Shared;
pub(crate) use usage::RESERVE;
use usage::Usage;

/// Commits that are in memory for the disk at once; others wait.
const COMMITS: usize = 64;

/// What one session may hold.
#[derive(Debug, Clone, Copy)]
pub struct Quota {
    /// Bytes, each file rounded up to a page as `/data` counts them.
    pub bytes: u64,
    /// Files, directories and links.
    pub entries: u64,
    /// Bytes of the largest file.
    pub file: u64,
}

/// The bounds of a store.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// What one session may hold.
    pub quota: Quota,
    /// Bytes that all sessions together may hold.
    pub total: u64,
}

/// The open store.
pub struct Store {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    /// Random id, hex; made once.
    pub owner: String,
}

/// A session that the store keeps something of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// Whose it is: the name of a token.
    pub owner: String,
    /// Its id.
    pub session: String,
    /// When it was last used, see [`Space::touch`].
    pub used: SystemTime,
}

impl Store {
    /// Opens the store at `root`, making it if it is not there, and takes its lock.
    ///
    /// # Errors
    /// [`StoreError::InUse`], or what the file system says.
    pub fn open(root: &Path, options: Options) -> Result<Self, StoreError> {
        let what = |path: &Path| format!("cannot use the store at {}", path.display());
        make_dir(root).map_err(StoreError::io(what(root)))?;
        let lock_path = root.join("lock");
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(&lock_path)
            .map_err(StoreError::io(what(&lock_path)))?;
        match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => return Err(StoreError::InUse(root.to_owned())),
            Err(error) => return Err(StoreError::io(what(&lock_path))(error.into())),
        }
        let on = File::open(root).map_err(StoreError::io(what(root)))?;
        let tmp = root.join("tmp");
        make_dir(&tmp).map_err(StoreError::io(what(&tmp)))?;
        let (journal, unsettled) = recover::recover(root, &tmp, &on)?;
        let owner = kept(root, "owner", 16)?;
        let uncounted = checkpoint::sessions(root).map_err(StoreError::io(what(root)))?;
        let shared = Arc::new(Shared {
            root: root.to_owned(),
            tmp,
            on,
            options,
            journal,
            usage: Usage::new(options.total, uncounted),
            commits: Arc::new(Semaphore::new(COMMITS)),
            spaces: Mutex::default(),
            unsettled: Mutex::new(unsettled),
            stuck: Mutex::new(false),
            _lock: lock,
        });
        let threads = checkpoint::start(&shared)?;
        Ok(Self { shared, threads, owner })
    }

    /// A secret of 32 random bytes, made once and kept 0600.
    ///
    /// # Errors
    /// What the file system says, or that the file is not what was written.
    pub fn secret(&self, name: &str) -> Result<[u8; 32], StoreError> {
        let text = kept(&self.shared.root, name, 32)?;
        let mut secret = [0; 32];
        for (byte, digits) in secret.iter_mut().zip(text.as_bytes().chunks(2)) {
            let digits = std::str::from_utf8(digits).unwrap_or("");
            *byte = u8::from_str_radix(digits, 16).map_err(|_| {
                let what =
                    format!("{} does not hold 64 hexadecimal digits", self.shared.root.join(name).display());
                StoreError::io(what)(io::ErrorKind::InvalidData.into())
            })?;
        }
        Ok(secret)
    }

    /// A folder of this name beside the sessions', made if it is missing, for what is not a session's file.
    ///
    /// # Errors
    /// What the file system says.
    pub fn folder(&self, name: &str) -> Result<PathBuf, StoreError> {
        let path = self.shared.root.join(name);
        make_dir(&path).map_err(StoreError::io(format!("cannot make {}", path.display())))?;
        Ok(path)
    }

    /// The space of one session, loaded if it was there before, else empty.
    ///
    /// # Errors
    /// What the file system says.
    pub async fn space(self: &Arc<Self>, owner: &str, session: &str) -> Result<Arc<Space>, StoreError> {
        Ok(self.loaded(owner, session).await?.0)
    }

    /// The space of one session if something is stored for it; nothing is made if not.
    ///
    /// # Errors
    /// What the file system says.
    pub async fn find(
        self: &Arc<Self>,
        owner: &str,
        session: &str,
    ) -> Result<Option<Arc<Space>>, StoreError> {
        let (space, _turn) = self.loaded(owner, session).await?;
        Ok(space.is_stored().then_some(space))
    }

    /// Removes all that is stored for a session, for good; false if there was nothing. A [`Space`] of it that
    /// someone still holds is gone then: it is empty, and what is written to it fails with [`StoreError::Gone`].
    /// The next [`Store::space`] makes a new, empty one.
    ///
    /// # Errors
    /// What the file system says.
    pub async fn forget(self: &Arc<Self>, owner: &str, session: &str) -> Result<bool, StoreError> {
        let (space, turn) = self.loaded(owner, session).await?;
        blocking(move || {
            let _turn = turn;
            space.forget()
        })
        .await
    }

    /// All sessions that something is stored for, in no order.
    ///
    /// # Errors
    /// What the file system says of the store itself; a session that cannot be read is left out, with a warning.
    pub async fn stored(&self) -> Result<Vec<Stored>, StoreError> {
        let shared = self.shared.clone();
        blocking(move || shared.stored()).await
    }

    /// Tells `metrics` of every sync from now on.
    pub fn count(&self, metrics: crate::metrics::Metrics) {
        let _ = self.shared.journal.metrics.set(metrics); // the first that was set is told
    }

    /// Bytes of all sessions together, as far as they were counted since the start, and how many there may be.
    pub fn used(&self) -> (u64, u64) {
        (self.shared.usage.used().0, self.shared.options.total)
    }

    /// Takes no more commits, and frees the journal: the next start has nothing to redo.
    pub async fn close(&self) {
        self.shared.journal.close();
        let shared = self.shared.clone();
        let freed = blocking(move || Ok(shared.checkpoint())).await;
        tracing::debug!(freed = matches!(freed, Ok(true)), "the store is closed");
    }

    /// A space as it is on disk, and the turn to change it.
    async fn loaded(
        &self,
        owner: &str,
        session: &str,
    ) -> Result<(Arc<Space>, OwnedMutexGuard<()>), StoreError> {
        loop {
            let space = self.shared.space(owner, session);
            let turn = space.turn().await;
            if space.is_gone() {
                continue; // forgotten while this waited; there is a new one
            }
            let (loaded, turn) = {
                let space = space.clone();
                blocking(move || space.ready().map(|()| (space, turn))).await?
            };
            return Ok((loaded, turn));
        }
    }

    /// Whether anything is recorded of a session's executions; for looking without loading anything.
    pub fn has_recordings(&self, owner: &str, session: &str) -> bool {
        self.place(owner, session).join(recording::FOLDER).is_dir()
    }

    /// Where the files of a session would be; for reading what was saved, without loading anything.
    pub fn place(&self, owner: &str, session: &str) -> PathBuf {
        self.shared.root.join(hash(owner, session))
    }
}

impl Drop for Store {
    /// Takes no more commits, and frees the journal.
    fn drop(&mut self) {
        self.shared.journal.close();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// The name of a session's directory: no text of a caller ever is part of a path.
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

/// Runs file system work where it may block.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
) -> Result<T, StoreError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => Err(StoreError::io("a file operation was broken off")(io::Error::other(error))),
    }
}

fn make_dir(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Syncs a directory, so that what was renamed into it stays there.
fn sync_dir(path: &Path) -> Result<(), StoreError> {
    let sync = || File::open(path)?.sync_all();
    sync().map_err(StoreError::io(format!("cannot sync {}", path.display())))
}

/// A file of `bytes` random bytes in hex, made the first time.
fn kept(root: &Path, name: &str, bytes: usize) -> Result<String, StoreError> {
    let path = root.join(name);
    let what = || format!("cannot use {}", path.display());
    match File::open(&path) {
        Ok(file) => {
            let mut text = String::new();
            file.take(1024).read_to_string(&mut text).map_err(StoreError::io(what()))?;
            let text = text.trim().to_owned();
            if text.len() == bytes * 2 && text.bytes().all(|b| b.is_ascii_hexdigit()) {
                return Ok(text);
            }
            let error =
                io::Error::new(io::ErrorKind::InvalidData, "it is not what a daemon wrote; remove it");
            Err(StoreError::io(what())(error))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let text: String = random_hex::<32>().chars().take(bytes * 2).collect();
            let staged = root.join("tmp").join(name);
            let write = || {
                let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&staged)?;
                writeln!(file, "{text}")?;
                file.sync_all()?;
                fs::rename(&staged, &path)
            };
            write().map_err(StoreError::io(what()))?;
            sync_dir(root)?;
            Ok(text)
        }
        Err(error) => Err(StoreError::io(what())(error)),
    }
}

#[cfg(test)]
mod tests;
