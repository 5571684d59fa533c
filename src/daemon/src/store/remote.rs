//! The store of many machines: PostgreSQL and S3 have the truth, and the store on this disk is what is before
//! them.
//!
//! ```text
//!  hold     is the session this node's? ─ no ─► claim it ─► bring: make this disk what the ledger says
//!  commit   seal ─► publish (contents in S3, then names in PostgreSQL) ─► journal ─► apply ─► acknowledge
//! ```
//!
//! What was published and did not come as far as this disk's journal is brought here at the next use.
//! Whatever fails in a way that leaves open what the ledger has makes the node claim the session anew before
//! the next change: the new fence stops a statement that is still under way.
//!
//! All of it is called on threads that may block. It must never acknowledge what the ledger does not have,
//! nor let anything of a session be read that this node does not own.

mod bring;
mod caches;

use std::collections::HashMap;
use std::sync::{Arc, MutexGuard, PoisonError, Weak};

use bytes::Bytes;
use paddock_ledger::{
    Change, Content, FileKind, FileRow, Grant, Hash, Ledger, LedgerError, SessionKey, Source,
};
use paddock_proto::RelPath;
use paddock_proto::message::{Entry, EntryKind};
use sha2::{Digest, Sha256};
use tokio::runtime::Handle;

use super::record::{JournalOp, JournalRecord};
use super::staged::StagedFile;
use super::{Manifest, Space, Store, StoreError};

/// The ledger of a store, and how threads that block wait for it.
pub(super) struct Remote {
    pub(super) ledger: Ledger,
    runtime: Handle,
}

/// What this node has of a session.
#[derive(Debug, Default)]
pub(super) struct Hold {
    /// Its claim.
    grant: Option<Grant>,
    /// Whether this disk is what the ledger says.
    is_here: bool,
    /// Whether the ledger has anything of it but its row.
    is_saved: bool,
}

/// Whether a session may be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wanted {
    /// It is claimed also if nobody has it.
    Made,
    /// Only if the ledger or this disk has it.
    Existing,
}

impl Store {
    /// From now on PostgreSQL and S3 have the truth. To be called once, within a runtime, before any session
    /// is used.
    pub fn share(&self, ledger: Ledger) {
        let remote = Remote { ledger, runtime: Handle::current() };
        let _ = self.shared.remote.set(remote); // a second call changes nothing
    }

    /// The ledger, if the store is one of many machines.
    pub fn ledger(&self) -> Option<&Ledger> {
        self.shared.remote.get().map(|remote| &remote.ledger)
    }

    /// Whether this node holds a session at this moment; asks nobody. False of a session that nothing here
    /// has used for a while.
    pub fn holds(&self, owner: &str, session: &str) -> bool {
        let space = self.shared.spaces().get(&super::hash(owner, session)).and_then(Weak::upgrade);
        space.is_some_and(|space| !space.is_gone() && space.check_hold().is_ok())
    }

    /// Gives a session to another node, with all that is saved of it. Whoever still holds its [`Space`]
    /// cannot change it any more.
    ///
    /// # Errors
    /// [`StoreError::Ledger`], and an error of the file system.
    pub async fn hand_over(self: &Arc<Self>, owner: &str, session: &str, to: &str) -> Result<(), StoreError> {
        let (space, lock) = self.loaded(owner, session, Wanted::Existing).await?;
        let to = to.to_owned();
        super::blocking(move || {
            let _lock = lock;
            space.give_to(&to)
        })
        .await
    }
}

impl Remote {
    fn wait<T>(&self, work: impl Future<Output = Result<T, LedgerError>>) -> Result<T, StoreError> {
        self.runtime.block_on(work).map_err(StoreError::from)
    }
}

impl From<LedgerError> for StoreError {
    fn from(error: LedgerError) -> Self {
        Self::Ledger(error)
    }
}

impl Space {
    pub(super) fn remote(&self) -> Option<&Remote> {
        self.shared.remote.get()
    }

    fn key(&self) -> SessionKey {
        SessionKey::new(&self.owner, &self.session)
    }

    pub(super) fn hold(&self) -> MutexGuard<'_, Hold> {
        self.hold.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this node may answer for the session at this moment; asks nobody. Always, where there is one
    /// machine.
    ///
    /// # Errors
    /// [`LedgerError::NoLease`] in [`StoreError::Ledger`].
    pub(super) fn check_hold(&self) -> Result<(), StoreError> {
        let Some(remote) = self.remote() else { return Ok(()) };
        let hold = self.hold();
        let is_held = hold.is_here && hold.grant.is_some_and(|grant| remote.ledger.owns(grant));
        if is_held { Ok(()) } else { Err(LedgerError::NoLease.into()) }
    }

    /// Makes the session this node's, and this disk what the ledger says of it; false if nobody has it, and
    /// it is not to be made. The caller has the lock, and the disk agrees with the journal.
    ///
    /// # Errors
    /// [`StoreError::Ledger`], and an error of the file system.
    pub(super) fn secure(&self, wanted: Wanted) -> Result<bool, StoreError> {
        let Some(remote) = self.remote() else { return Ok(true) };
        if self.check_hold().is_ok() {
            return Ok(true);
        }
        *self.hold() = Hold::default();
        let key = self.key();
        let is_new_here = self.is_stored() && !self.is_cache();
        let claim = if wanted == Wanted::Made || is_new_here {
            Some(remote.wait(remote.ledger.claim(&key))?)
        } else {
            remote.wait(remote.ledger.claim_existing(&key))?
        };
        let Some(claim) = claim else {
            self.drop_cache()?; // another node had it after this one, and it was deleted there
            return Ok(false);
        };
        *self.hold() = Hold { grant: Some(claim.grant), is_here: false, is_saved: claim.is_saved };
        if claim.is_saved {
            let rows = remote.wait(remote.ledger.read(&key))?;
            self.bring(remote, rows)?;
        } else if is_new_here {
            self.adopt(remote, &key, claim.grant)?;
        } else {
            self.drop_cache()?;
        }
        self.hold().is_here = true;
        self.check_hold()?; // it took long, perhaps longer than the lease
        Ok(true)
    }

    /// Publishes a change that is sealed on this disk and not journalled yet. The caller has the lock.
    ///
    /// # Errors
    /// [`StoreError::Ledger`].
    pub(super) fn publish(
        &self,
        record: &JournalRecord,
        staged: &[Arc<StagedFile>],
        after: &Manifest,
    ) -> Result<(), StoreError> {
        let Some(remote) = self.remote() else { return Ok(()) };
        record.head()?; // whatever the journal would refuse must not be in the ledger
        let difference = after.lacking(&self.locked().known());
        let contents = contents(record, staged)?;
        let mut change = Change { remove: paths(difference.remove), ..Change::default() };
        for held in difference.put {
            let (row, content) = row(&held.entry, |path| contents.get(path))?;
            change.put.push(row);
            change.contents.extend(content.cloned());
        }
        self.send(remote, &change)
    }

    fn send(&self, remote: &Remote, change: &Change) -> Result<(), StoreError> {
        let grant = self.hold().grant.ok_or(LedgerError::NoLease)?;
        let sent = remote.wait(remote.ledger.publish(&self.key(), grant, change));
        match &sent {
            Ok(()) => self.hold().is_saved = true,
            // Whose it is, and what the ledger has, is asked again before the next change.
            Err(StoreError::Ledger(
                LedgerError::Unsettled(_) | LedgerError::Fenced | LedgerError::NoLease,
            )) => *self.hold() = Hold::default(),
            Err(_) => {}
        }
        sent
    }

    /// What the ledger has did not come as far as this disk: it is brought here at the next use.
    pub(super) fn lost_here(&self, error: StoreError) -> StoreError {
        if self.remote().is_none() {
            return error;
        }
        self.hold().is_here = false;
        StoreError::Pending(Box::new(error))
    }

    /// Deletes the session in the ledger. The caller has the lock.
    pub(super) fn forget_remote(&self) -> Result<(), StoreError> {
        let Some(remote) = self.remote() else { return Ok(()) };
        let Some(grant) = self.hold().grant else { return Ok(()) };
        let gone = remote.wait(remote.ledger.forget(&self.key(), grant));
        *self.hold() = Hold::default();
        if gone? { Ok(()) } else { Err(LedgerError::Fenced.into()) }
    }

    fn give_to(&self, to: &str) -> Result<(), StoreError> {
        let Some(remote) = self.remote() else { return Ok(()) };
        let Some(grant) = self.hold().grant else { return Err(StoreError::Gone) };
        let given = remote.wait(remote.ledger.hand_over(&self.key(), grant, to));
        *self.hold() = Hold::default();
        given
    }

    /// Publishes a session that only this disk has: from before the store was one of many machines.
    fn adopt(&self, remote: &Remote, key: &SessionKey, grant: Grant) -> Result<(), StoreError> {
        let mut change = Change::default();
        let all = self.locked().lacking(&std::collections::BTreeMap::new()).put;
        for held in all {
            let content = match held.entry.kind {
                EntryKind::File(bytes) => Some(self.on_disk(&held.entry.path, bytes)?),
                EntryKind::Dir | EntryKind::Link(_) => None,
            };
            let (row, content) = row(&held.entry, |_| content.as_ref())?;
            change.contents.extend(content.cloned());
            change.put.push(row);
        }
        remote.wait(remote.ledger.publish(key, grant, &change))?;
        self.hold().is_saved = true;
        self.mark_cache();
        tracing::info!(session = self.session, "a session that only this disk had is in the ledger now");
        Ok(())
    }

    /// The content of a file of the session as it is on this disk.
    fn on_disk(&self, path: &RelPath, bytes: u64) -> Result<Content, StoreError> {
        let what = format!("cannot read {path:?}");
        let hashed = self.open(path).and_then(|mut file| hash_of(&mut file)).map_err(StoreError::io(what))?;
        Ok(Content { hash: hashed, bytes, source: Source::File(self.disk_path(path)) })
    }
}

impl Drop for Space {
    /// Gives up the row of a session that was claimed and never saved.
    fn drop(&mut self) {
        let Some(remote) = self.shared.remote.get() else { return };
        let hold = std::mem::take(&mut *self.hold());
        if let Some(grant) = hold.grant.filter(|_| !hold.is_saved && !self.is_stored()) {
            let (ledger, key) = (remote.ledger.clone(), self.key());
            remote.runtime.spawn(async move {
                if let Err(error) = ledger.release(&key, grant).await {
                    tracing::debug!(%error, session = key.session, "a row that nobody needs stays");
                }
            });
        }
    }
}

/// The contents of a record by path; of a path that it writes twice, the last.
fn contents(
    record: &JournalRecord,
    staged: &[Arc<StagedFile>],
) -> Result<HashMap<RelPath, Content>, StoreError> {
    let by_name: HashMap<&str, &Arc<StagedFile>> = staged.iter().map(|file| (file.name(), file)).collect();
    let blob = Bytes::copy_from_slice(&record.blob);
    let (mut at, mut contents) = (0, HashMap::new());
    for op in &record.ops {
        match op {
            JournalOp::Inline(entry) => {
                let size = if let EntryKind::File(size) = entry.kind { size } else { 0 };
                let end = at + usize::try_from(size).unwrap_or(usize::MAX);
                let bytes = blob.slice(at..end);
                at = end;
                let hash = Sha256::digest(&bytes).into();
                contents
                    .insert(entry.path.clone(), Content { hash, bytes: size, source: Source::Memory(bytes) });
            }
            JournalOp::Staged(entry, name) => {
                let Some(file) = by_name.get(name.as_str()) else { continue };
                let what = || format!("cannot read {}", file.path().display());
                let mut open = std::fs::File::open(file.path()).map_err(StoreError::io(what()))?;
                let hash = hash_of(&mut open).map_err(StoreError::io(what()))?;
                let source = Source::File(file.path().to_owned());
                contents.insert(entry.path.clone(), Content { hash, bytes: file.bytes(), source });
            }
            JournalOp::Remove(_) | JournalOp::Dir(_) | JournalOp::Link(_) | JournalOp::Forget => {}
        }
    }
    Ok(contents)
}

/// An entry as a row, and its content.
fn row<'a>(
    entry: &Entry,
    content: impl FnOnce(&RelPath) -> Option<&'a Content>,
) -> Result<(FileRow, Option<&'a Content>), StoreError> {
    let (kind, content) = match &entry.kind {
        EntryKind::Dir => (FileKind::Dir, None),
        EntryKind::Link(target) => (FileKind::Link(target.as_bytes().to_vec()), None),
        EntryKind::File(bytes) => {
            let lost = || LedgerError::Damaged(format!("{:?} has no content", entry.path));
            let content = content(&entry.path).ok_or_else(lost)?;
            (FileKind::File { bytes: *bytes, hash: content.hash }, Some(content))
        }
    };
    let path = entry.path.as_bytes().to_vec();
    Ok((FileRow { path, kind, mode: entry.mode & 0o777, mtime_ns: entry.mtime_ns }, content))
}

fn paths(all: Vec<RelPath>) -> Vec<Vec<u8>> {
    all.iter().map(|path| path.as_bytes().to_vec()).collect()
}

fn hash_of(from: &mut impl std::io::Read) -> std::io::Result<Hash> {
    let mut hash = Sha256::new();
    let mut piece = vec![0; 256 << 10];
    loop {
        match from.read(&mut piece)? {
            0 => return Ok(hash.finalize().into()),
            read => hash.update(piece.get(..read).unwrap_or_default()),
        }
    }
}
