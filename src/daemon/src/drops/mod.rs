//! Drop folders: a folder on the host for each conversation, `<path>/<conversationId>/files`, whose files are
//! in the session before its next run, and where the files that a run makes appear.
//!
//! ```text
//!  before a run   folder::read ─► plan::incoming ─► a batch of the store ─► record
//!  after a run    plan::outgoing ─► a new file beside the old one, renamed in its place ─► record
//! ```
//!
//! The folder is a mirror, and the store remains the truth: what is in the folder becomes a file of the
//! session only by a batch, in the session's turn, and what leaves it is a copy. The record says what both
//! sides had when they were last equal, so that it is known which side a difference is from; a difference on
//! both sides is settled for the host. It lies beside the session's files in the store, and goes with them. A
//! session takes part if its folder exists; other calls pay for one look before and one after the run, and
//! for none where no drop folders are configured.
//!
//! Other programs of the host write there, and programs in containers choose the names of what comes out. So
//! this must never follow a link, leave the folder, open anything but a regular file with one name, or take
//! a file that is not whole. It must never fail a run because a copy could not be made, nor because of what a
//! program made. A folder that does not answer must never cost more than one thread for each session.

mod folder;
mod forget;
mod give;
mod plan;
mod record;
mod take;

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedMutexGuard, Semaphore};
use tracing::warn;

use self::record::Record;
use crate::session::{Session, SessionId, SessionKey};
use crate::store::blocking;

/// Records in memory; those of other sessions are on disk.
const RECORDS: usize = 1000;

/// Time for a folder to be looked at, or a piece of a file to be read: a file system whose server is gone
/// never answers.
const LOOK: Duration = Duration::from_secs(10);

/// How long a call waits until the copies of all its files are in the folder. They go on without it.
const GIVE: Duration = Duration::from_secs(60);

/// Threads that are at folders of one root at one time; the daemon has 512 for all its files.
const LOOKS: usize = 64;

type SharedRecord = Arc<Mutex<Record>>;

/// The drop folders of one daemon.
#[derive(Debug)]
pub struct Drops {
    /// By the name of the token whose sessions they are.
    roots: HashMap<String, Root>,
    /// Entries of one folder that are looked at.
    entries: usize,
    open: Mutex<HashMap<SessionKey, Arc<Slot>>>,
}

#[derive(Debug)]
struct Root {
    path: PathBuf,
    looks: Arc<Semaphore>,
}

/// The folder of one session.
#[derive(Debug, Default)]
struct Slot {
    /// Held while the folder is opened.
    opening: Arc<tokio::sync::Mutex<()>>,
    /// Held while the folder and the session are compared and made equal.
    work: Arc<tokio::sync::Mutex<()>>,
    /// Whether the look that holds `work` gave no answer in time.
    hangs: AtomicBool,
    record: Mutex<Option<SharedRecord>>,
}

/// The right to work with a folder. A thread that hangs there keeps it.
#[derive(Debug)]
struct Held {
    slot: Arc<Slot>,
    _work: OwnedMutexGuard<()>,
}

/// Why the files of a drop folder could not be taken over.
#[derive(Debug, thiserror::Error)]
pub enum DropError {
    /// There are too many.
    #[error("the drop folder of this session has more than {0} files and folders, which is the most")]
    TooMany(usize),
    /// The folder, or the record, cannot be read or written.
    #[error("the drop folder of this session cannot be read: {0}")]
    Folder(#[from] io::Error),
    /// Its file system hangs.
    #[error("the drop folder of this session does not answer within {0:?}: its file system hangs")]
    Hangs(Duration),
    /// The session cannot have them.
    #[error(transparent)]
    Store(#[from] crate::store::StoreError),
}

impl Drops {
    /// Drop folders below these roots, by the names of tokens.
    pub fn new(roots: HashMap<String, PathBuf>, entries: u64) -> Self {
        let root = |path| Root { path, looks: Arc::new(Semaphore::new(LOOKS)) };
        let roots = roots.into_iter().map(|(owner, path)| (owner, root(path))).collect();
        let entries = usize::try_from(entries).unwrap_or(usize::MAX);
        Self { roots, entries, open: Mutex::default() }
    }

    /// Whether sessions of this owner can have a folder.
    pub fn has(&self, owner: &str) -> bool {
        self.roots.contains_key(owner)
    }

    /// The folder of a session, if it has one.
    async fn folder(&self, owner: &str, id: &SessionId) -> Result<Option<OwnedFd>, DropError> {
        let (Some(root), Some(name)) = (self.roots.get(owner), folder::name_of(id)) else { return Ok(None) };
        let slot = self.slot(owner, id);
        let opening = tokio::time::timeout(LOOK, slot.opening.clone().lock_owned()).await;
        let opening = opening.map_err(|_| DropError::Hangs(LOOK))?;
        let (path, name) = (root.path.clone(), name.to_owned());
        let opened = at(root, LOOK, move || {
            let _held = (slot, opening);
            folder::open(&path, &name)
        });
        Ok(opened.await?.unwrap_or_else(|error| {
            warn!(session_id = %id, %error, "a drop folder is not used");
            None
        }))
    }

    fn slot(&self, owner: &str, id: &SessionId) -> Arc<Slot> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if open.len() >= RECORDS {
            open.retain(|_, slot| Arc::strong_count(slot) > 1);
        }
        open.entry(SessionKey::new(owner, id)).or_default().clone()
    }

    /// Waits until nobody else works with a session's folder.
    async fn hold(&self, owner: &str, id: &SessionId) -> Result<Arc<Held>, DropError> {
        let slot = self.slot(owner, id);
        let work = match slot.work.clone().try_lock_owned() {
            Ok(work) => work,
            Err(_) if slot.hangs.load(Ordering::Acquire) => return Err(DropError::Hangs(LOOK)),
            Err(_) => {
                let waiting = tokio::time::timeout(GIVE, slot.work.clone().lock_owned());
                waiting.await.map_err(|_| DropError::Hangs(GIVE))?
            }
        };
        slot.hangs.store(false, Ordering::Release);
        Ok(Arc::new(Held { slot, _work: work }))
    }

    /// Does something with a folder that may not answer. A thread that hangs keeps what is held.
    async fn at_folder<T: Send + 'static>(
        &self,
        held: &Arc<Held>,
        owner: &str,
        within: Duration,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, DropError> {
        let Some(root) = self.roots.get(owner) else { return Err(DropError::Hangs(within)) };
        let kept = held.clone();
        let work = at(root, within, move || {
            let _kept = kept;
            work()
        });
        let done = work.await;
        if let Err(DropError::Hangs(_)) = &done {
            held.slot.hangs.store(true, Ordering::Release);
        }
        done
    }
}

impl Slot {
    /// What is known of the folder and these files. Blocks.
    fn record(&self, session: &Session) -> SharedRecord {
        let mut record = self.record.lock().unwrap_or_else(PoisonError::into_inner);
        match &*record {
            Some(known) if lock(known).is_of(&session.space) => known.clone(),
            _ => record.insert(Arc::new(Mutex::new(Record::load(&session.space)))).clone(),
        }
    }
}

fn lock(record: &SharedRecord) -> std::sync::MutexGuard<'_, Record> {
    record.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Does something at a root on a thread that may block, of which each root has so many.
async fn at<T: Send + 'static>(
    root: &Root,
    within: Duration,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, DropError> {
    let looks = root.looks.clone();
    let done = async move {
        let permit = looks.acquire_owned().await.map_err(io::Error::other)?;
        let work = move || {
            let _permit = permit;
            Ok(work())
        };
        Ok(blocking(work).await?)
    };
    tokio::time::timeout(within, done).await.unwrap_or(Err(DropError::Hangs(within)))
}

#[cfg(test)]
mod tests;
