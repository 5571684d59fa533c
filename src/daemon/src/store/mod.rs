//! Files on disk: the truth of every session's `/data`.
//!
//! ```text
//!  root/
//!    lock              held while a daemon lives: a store has one owner at a time
//!    owner             random id; labels everything that the daemon makes on an engine
//!    files.secret      signs links, unless the configuration has one        0600
//!    agent.secret      what PID 1 of every container demands                0600
//!    tmp/              files being written; emptied at every start
//!    <hash>/           one per session: SHA-256 of owner and id
//!      session.json    whose it is, for people
//!      files/…         /data as it was last saved
//!      logs/…          output of runs that was too long for an answer
//! ```
//!
//! A file is written to `tmp`, synced, renamed, and its directory synced, before anyone is told that it is
//! saved. It must never follow a symbolic link, never make one, and never use a name that is no [`RelPath`](paddock_proto::RelPath).

mod batch;
mod manifest;
mod space;
pub mod tar;

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use rustix::fs::FlockOperation;
use sha2::{Digest, Sha256};

pub use batch::Batch;
pub use manifest::{Difference, Held, Manifest};
pub use space::{LogFile, Space, open_log, open_saved};

use crate::id::{hex, random_hex};

/// Why the store could not do something.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Another daemon has it.
    #[error("{} is in use by another paddock daemon; give this one another store.root, or stop that one", .0.display())]
    InUse(PathBuf),
    /// No room on its disk.
    #[error("the disk of the store is full ({0}); nothing of this call was saved")]
    Full(String),
    /// What a session may hold would be exceeded.
    #[error("the files of this session would take {wanted} {unit}, of {allowed} allowed; delete some first")]
    Quota {
        /// What it would be.
        wanted: u64,
        /// What is allowed.
        allowed: u64,
        /// Bytes or files.
        unit: &'static str,
    },
    /// Anything else the file system said.
    #[error("{what}: {source}")]
    Io {
        /// What was tried, with the path.
        what: String,
        /// What the system said.
        source: io::Error,
    },
}

impl StoreError {
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        move |source| {
            let full = matches!(source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
            if full { Self::Full(what.into()) } else { Self::Io { what: what.into(), source } }
        }
    }
}

/// What a session may hold.
#[derive(Debug, Clone, Copy)]
pub struct Quota {
    /// Bytes, each file rounded up to a page as `/data` counts them.
    pub bytes: u64,
    /// Files and directories.
    pub entries: u64,
}

/// The open store.
pub struct Store {
    root: PathBuf,
    /// Random id, hex; made once.
    pub owner: String,
    quota: Quota,
    spaces: Mutex<HashMap<String, Weak<Space>>>,
    _lock: File,
}

impl Store {
    /// Opens the store at `root`, making it if it is not there, and takes its lock.
    ///
    /// # Errors
    /// [`StoreError::InUse`], or what the file system says.
    pub fn open(root: &Path, quota: Quota) -> Result<Self, StoreError> {
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
        let tmp = root.join("tmp");
        match fs::remove_dir_all(&tmp) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(StoreError::io(what(&tmp))(error));
            }
            _ => make_dir(&tmp).map_err(StoreError::io(what(&tmp)))?,
        }
        let owner = kept(root, "owner", 16)?;
        Ok(Self { root: root.to_owned(), owner, quota, spaces: Mutex::default(), _lock: lock })
    }

    /// A secret of 32 random bytes, made once and kept 0600.
    ///
    /// # Errors
    /// What the file system says, or that the file is not what was written.
    pub fn secret(&self, name: &str) -> Result<[u8; 32], StoreError> {
        let text = kept(&self.root, name, 32)?;
        let mut secret = [0; 32];
        for (byte, digits) in secret.iter_mut().zip(text.as_bytes().chunks(2)) {
            let digits = std::str::from_utf8(digits).unwrap_or("");
            *byte = u8::from_str_radix(digits, 16).map_err(|_| {
                let what = format!("{} does not hold 64 hexadecimal digits", self.root.join(name).display());
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
        let path = self.root.join(name);
        make_dir(&path).map_err(StoreError::io(format!("cannot make {}", path.display())))?;
        Ok(path)
    }

    /// The space of one session, loaded if it was there before.
    ///
    /// # Errors
    /// What the file system says.
    pub async fn space(self: &Arc<Self>, owner: &str, session: &str) -> Result<Arc<Space>, StoreError> {
        let hash = hash(owner, session);
        if let Some(space) = self.known(&hash) {
            return Ok(space);
        }
        let store = self.clone();
        let (owner, session) = (owner.to_owned(), session.to_owned());
        let load = move || {
            let space = Arc::new(Space::load(&store.root, &hash, &owner, &session, store.quota)?);
            let mut spaces = store.spaces.lock().unwrap_or_else(PoisonError::into_inner);
            // Someone may have been faster; there must be only one manifest.
            if let Some(first) = spaces.get(&hash).and_then(Weak::upgrade) {
                return Ok(first);
            }
            spaces.retain(|_, space| space.strong_count() > 0);
            spaces.insert(hash, Arc::downgrade(&space));
            Ok(space)
        };
        blocking(load).await
    }

    fn known(&self, hash: &str) -> Option<Arc<Space>> {
        self.spaces.lock().unwrap_or_else(PoisonError::into_inner).get(hash).and_then(Weak::upgrade)
    }

    /// Where the files of a session would be; for reading what was saved, without loading anything.
    pub fn place(&self, owner: &str, session: &str) -> PathBuf {
        self.root.join(hash(owner, session))
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
