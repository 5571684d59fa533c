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
//! both sides is settled for the host. A session takes part if its folder exists; other calls pay for one
//! look before and one after the run, and for none where no drop folders are configured.
//!
//! Other programs of the host write there, and programs in containers choose the names of what comes out. So
//! this must never follow a link, leave the folder, open anything but a regular file with one name, or take
//! a file that is not whole. It must never fail a run because a copy could not be made.

mod folder;
mod give;
mod plan;
mod record;
mod take;

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use tracing::warn;

use self::record::Record;
use crate::session::{Session, SessionId, SessionKey};
use crate::store::blocking;

/// Records in memory; those of other sessions are on disk.
const RECORDS: usize = 1000;

type SharedRecord = Arc<tokio::sync::Mutex<Record>>;

/// The drop folders of one daemon.
#[derive(Debug)]
pub struct Drops {
    /// By the name of the token whose sessions they are.
    roots: HashMap<String, PathBuf>,
    /// Where the records are.
    records: PathBuf,
    /// Entries of one folder that are looked at.
    entries: usize,
    open: Mutex<HashMap<SessionKey, SharedRecord>>,
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
    /// The session cannot have them.
    #[error(transparent)]
    Store(#[from] crate::store::StoreError),
}

impl Drops {
    /// Drop folders below these roots, by the names of tokens. `records` is a folder of the daemon's own.
    pub fn new(roots: HashMap<String, PathBuf>, records: PathBuf, entries: u64) -> Self {
        let entries = usize::try_from(entries).unwrap_or(usize::MAX);
        Self { roots, records, entries, open: Mutex::default() }
    }

    /// Whether sessions of this owner can have a folder.
    pub fn has(&self, owner: &str) -> bool {
        self.roots.contains_key(owner)
    }

    /// The folder of a session, if it has one.
    async fn folder(&self, owner: &str, id: &SessionId) -> Option<OwnedFd> {
        let root = self.roots.get(owner)?.clone();
        let name = folder::name_of(id)?.to_owned();
        let opening = blocking(move || Ok(folder::open(&root, &name)));
        match opening.await {
            Ok(Ok(found)) => found,
            Ok(Err(error)) => {
                warn!(session_id = %id, %error, "a drop folder is not used");
                None
            }
            Err(_) => None,
        }
    }

    fn record(&self, session: &Session) -> SharedRecord {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if open.len() >= RECORDS {
            open.retain(|_, record| Arc::strong_count(record) > 1);
        }
        let key = SessionKey::new(&session.owner, &session.id);
        open.entry(key).or_insert_with(|| Arc::new(tokio::sync::Mutex::new(self.load(session)))).clone()
    }

    fn load(&self, session: &Session) -> Record {
        Record::load(self.records.join(record::name(&session.owner, session.id.as_str())))
    }
}

#[cfg(test)]
mod tests;
