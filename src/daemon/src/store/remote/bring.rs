//! Makes this disk what the ledger says of a session.
//!
//! ```text
//!  what is here, by content ─ compare ─ rows ─► fetch what is missing to tmp/ ─► apply ─► read the disk
//! ```
//!
//! A file that is here already is read and hashed, not trusted: the daemon may have died between the ledger
//! and this disk. Nothing of it goes through the journal: the ledger has it, and after a crash it is compared
//! again. It must never change the ledger.

use std::collections::BTreeMap;

use paddock_ledger::{FileKind, FileRow, Hash, LedgerError};
use paddock_proto::message::{Entry, EntryKind};
use paddock_proto::{LinkTarget, RelPath};

use super::super::manifest::StoredEntry;
use super::super::record::{JournalOp, JournalRecord};
use super::super::staged::StagedFile;
use super::super::{Space, StoreError, apply};
use super::{Remote, hash_of};

/// Operations that are applied at once: as many files are in `tmp/` meanwhile.
const AT_ONCE: usize = 1000;

impl Space {
    pub(super) fn bring(&self, remote: &Remote, rows: Vec<FileRow>) -> Result<(), StoreError> {
        let mut wanted = BTreeMap::new();
        for row in rows {
            let (entry, hash) = entry(row)?;
            wanted.insert(entry.path.clone(), (entry, hash));
        }
        let here: BTreeMap<RelPath, StoredEntry> = {
            let all = self.locked().lacking(&BTreeMap::new()).put;
            all.into_iter().map(|held| (held.entry.path.clone(), held)).collect()
        };
        let mut ops: Vec<JournalOp> = here
            .keys()
            .rev()
            .filter(|path| !wanted.contains_key(*path))
            .cloned()
            .map(JournalOp::Remove)
            .collect();
        let removed = ops.len();
        let mut missing = Vec::new();
        for (path, (entry, hash)) in &wanted {
            if here.get(path).is_some_and(|held| self.is_as(&held.entry, entry, *hash)) {
                continue;
            }
            match (&entry.kind, hash) {
                (EntryKind::Dir, _) => ops.push(JournalOp::Dir(entry.clone())),
                (EntryKind::Link(_), _) => ops.push(JournalOp::Link(entry.clone())),
                (EntryKind::File(_), Some(hash)) => missing.push((entry, *hash)),
                (EntryKind::File(_), None) => {}
            }
        }
        let (dirs, fetched) = (ops.len() - removed, missing.len());
        self.put(ops)?;
        for some in missing.chunks(AT_ONCE) {
            self.fetch(remote, some)?;
        }
        let made = self.make_about()?;
        self.mark_cache();
        if made || removed + dirs + fetched > 0 {
            self.reload()?;
            tracing::info!(session = self.session, removed, dirs, fetched, "brought a session here");
        }
        Ok(())
    }

    /// Whether what is on this disk is what is wanted.
    fn is_as(&self, held: &Entry, wanted: &Entry, hash: Option<Hash>) -> bool {
        match (&held.kind, &wanted.kind) {
            // What is put into a directory changes its time.
            (EntryKind::Dir, EntryKind::Dir) => held.mode == wanted.mode | 0o700,
            (EntryKind::Link(held), EntryKind::Link(wanted)) => held == wanted,
            (EntryKind::File(size), EntryKind::File(wanted_size)) => {
                let content = || self.open(&wanted.path).and_then(|mut file| hash_of(&mut file)).ok();
                size == wanted_size
                    && held.mode == wanted.mode | 0o400
                    && held.mtime_ns == wanted.mtime_ns
                    && content() == hash
            }
            (EntryKind::Dir | EntryKind::Link(_) | EntryKind::File(_), _) => false,
        }
    }

    /// Fetches files and puts them in place. A content that several of them have is fetched once for each.
    fn fetch(&self, remote: &Remote, files: &[(&Entry, Hash)]) -> Result<(), StoreError> {
        let staged: Vec<StagedFile> = files.iter().map(|_| StagedFile::new(&self.shared.tmp)).collect();
        let wanted: Vec<_> =
            files.iter().zip(&staged).map(|((_, hash), staged)| (*hash, staged.path().to_owned())).collect();
        remote.wait(remote.ledger.fetch(&wanted))?;
        let mut ops = Vec::new();
        for ((entry, _), staged) in files.iter().zip(&staged) {
            let what = || format!("cannot keep {:?}", entry.path);
            staged.seal(entry, false).map_err(StoreError::io(what()))?;
            ops.push(JournalOp::Staged((*entry).clone(), staged.name().to_owned()));
        }
        self.put(ops)
    }

    fn put(&self, ops: Vec<JournalOp>) -> Result<(), StoreError> {
        if ops.is_empty() {
            return Ok(());
        }
        let (owner, session) = (self.owner.clone(), self.session.clone());
        let record = JournalRecord { owner, session, ops, blob: Vec::new() };
        let replaced = apply::apply(&self.shared.root, &self.shared.tmp, &record)?;
        for (path, _) in replaced {
            let _ = std::fs::remove_file(path); // or the next start removes it
        }
        Ok(())
    }
}

/// A row as an entry, and the hash of its content.
fn entry(row: FileRow) -> Result<(Entry, Option<Hash>), LedgerError> {
    let damaged =
        |what: &str| LedgerError::Damaged(format!("a row of a session has {what} that no paddock writes"));
    let path = RelPath::new(row.path).map_err(|_| damaged("a path"))?;
    let (kind, hash) = match row.kind {
        FileKind::Dir => (EntryKind::Dir, None),
        FileKind::File { bytes, hash } => (EntryKind::File(bytes), Some(hash)),
        FileKind::Link(target) => {
            (EntryKind::Link(LinkTarget::new(target).map_err(|_| damaged("a target"))?), None)
        }
    };
    Ok((Entry { path, kind, mode: row.mode & 0o777, mtime_ns: row.mtime_ns }, hash))
}
