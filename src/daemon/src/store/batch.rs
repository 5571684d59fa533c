//! Changes to a session's files that become visible, and durable, together: all of them or none.
//!
//! ```text
//!  file ─ write… ─ keep        small contents stay in memory, others go to tmp/
//!  dir, link, remove           are noted
//!  commit: sync the files in tmp/, append one record to the journal, then apply it
//! ```
//!
//! A batch that is dropped without a commit leaves nothing. It must never acknowledge a change before the
//! journal has made it durable.

use std::fs::Metadata;
use std::io;
use std::sync::Arc;

use paddock_proto::RelPath;
use paddock_proto::limits::PAGE;
use paddock_proto::message::{Entry, EntryKind};

use super::record::{JournalOp, JournalRecord};
use super::remote::Wanted;
use super::staged::StagedFile;
use super::usage::{Amount, QuotaClaim, SESSION_ENTRIES};
use super::{Bound, Manifest, Space, StoreError, blocking};

/// The content of a file up to this size goes into the journal itself; a larger one is written to `tmp/`, and
/// linked. That writes it once and not twice, but needs three syncs, one after the other, in place of one.
pub(crate) const INLINE_FILE: usize = 256 << 10;
/// At most this many bytes of one batch go into the journal.
pub(super) const INLINE_BATCH: usize = 16 << 20;
/// Content for `tmp/` that may wait in memory, over all files of a batch.
const UNWRITTEN: usize = 1 << 20;
/// With more files than this in `tmp/`, the whole file system is synced: 16,000 files one by one take 16 s.
const MANY: usize = 128;

/// Changes that are being put together.
pub struct Batch {
    space: Arc<Space>,
    changes: Vec<FileChange>,
    writing: Option<Content>,
    /// Indices of `changes` whose content is still partly in memory, though it belongs in `tmp/`.
    unwritten: Vec<usize>,
    unwritten_bytes: usize,
    claim: QuotaClaim,
    look_at: Option<RelPath>,
    /// The manifest that `changes` would lead to, and the generation that it was planned from.
    planned: Option<(u64, Manifest)>,
}

enum FileChange {
    Remove(RelPath),
    Dir(Entry),
    Link(Entry),
    File(Content),
}

impl FileChange {
    fn note(&self, manifest: &mut Manifest) {
        match self {
            Self::Remove(path) => manifest.remove(path),
            Self::Dir(entry) | Self::Link(entry) => manifest.put(entry.clone()),
            Self::File(content) => manifest.put(content.entry.clone()),
        }
    }

    fn entry(&self) -> Option<&Entry> {
        match self {
            Self::Remove(_) => None,
            Self::Dir(entry) | Self::Link(entry) => Some(entry),
            Self::File(content) => Some(&content.entry),
        }
    }
}

/// The new content of one file.
struct Content {
    /// Its size is the number of bytes written so far.
    entry: Entry,
    /// The part that is not in `tmp/`.
    buffer: Vec<u8>,
    /// The part in `tmp/`; `None` if the content is small.
    staged: Option<Arc<StagedFile>>,
    /// The largest size that it may have, and which bound sets it.
    allowed: (u64, Bound),
}

impl Content {
    fn size(&self) -> u64 {
        if let EntryKind::File(size) = self.entry.kind { size } else { 0 }
    }
}

/// What a batch has changed.
#[derive(Debug)]
pub struct Committed {
    /// The entries that were put, with the sizes as written.
    pub put: Vec<Entry>,
    /// The generation of the session's files just before. The caller may have seen an older one: a change
    /// that waited for its place may have got it since.
    pub before: u64,
    /// Their generation just after: the same if nothing was changed.
    pub after: u64,
    /// The file of [`Batch::look_at`], as it was just after.
    pub looked: Option<Metadata>,
}

impl Batch {
    /// A batch without changes.
    pub fn new(space: Arc<Space>) -> Self {
        let claim = QuotaClaim::new(space.shared.usage.clone(), &space.owner);
        Self {
            space,
            changes: Vec::new(),
            writing: None,
            unwritten: Vec::new(),
            unwritten_bytes: 0,
            claim,
            look_at: None,
            planned: None,
        }
    }

    /// Has the commit look at a file, before anyone else can change it again. A batch without changes commits
    /// nothing, and looks at nothing.
    pub fn look_at(&mut self, path: RelPath) {
        self.look_at = Some(path);
    }

    /// Removes a path and everything below it.
    pub fn remove(&mut self, path: RelPath) {
        self.change(FileChange::Remove(path));
    }

    /// Makes a directory.
    pub fn dir(&mut self, entry: Entry) {
        self.change(FileChange::Dir(entry));
    }

    /// Makes a symbolic link.
    pub fn link(&mut self, entry: Entry) {
        self.change(FileChange::Link(entry));
    }

    /// Checks that an entry would fit the limits of the session and of the store, together with the changes
    /// so far.
    ///
    /// # Errors
    /// [`StoreError::Quota`].
    pub fn admit(&mut self, entry: &Entry) -> Result<(), StoreError> {
        let quota = self.space.shared.options.quota;
        let held = self.space.locked().amount().entries;
        let planned = self.planned();
        planned.admit(entry, quota)?;
        let more = planned.amount().entries.saturating_sub(held) + planned.fresh(entry);
        let more = Amount { bytes: entry.kind.pages() * PAGE, entries: more };
        self.space.shared.usage.admit(&self.space.owner, more)
    }

    fn planned(&mut self) -> &mut Manifest {
        let (_, planned) = self.planned.get_or_insert_with(|| {
            let mut planned = self.space.manifest().clone();
            let began = planned.generation();
            self.changes.iter().for_each(|change| change.note(&mut planned));
            (began, planned)
        });
        planned
    }

    fn change(&mut self, change: FileChange) {
        if let Some((_, planned)) = &mut self.planned {
            change.note(planned);
        }
        self.changes.push(change);
    }

    /// Begins a file's new content; its size will be the number of bytes written. A content that was begun
    /// before and not kept is dropped.
    pub fn file(&mut self, mut entry: Entry) {
        self.discard();
        let quota = self.space.shared.options.quota;
        let room = self.planned().largest_file(&entry.path, quota);
        let allowed = if room < quota.file { (room, Bound::Bytes) } else { (quota.file, Bound::File) };
        entry.kind = EntryKind::File(0);
        self.writing = Some(Content { entry, buffer: Vec::new(), staged: None, allowed });
    }

    /// Adds to the content begun last.
    ///
    /// # Errors
    /// [`StoreError::Quota`], [`StoreError::Full`] and [`StoreError::Unwritable`]; the batch can then only be
    /// dropped.
    pub async fn write(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        let Some(content) = &mut self.writing else { return Ok(()) };
        let before = content.entry.kind.pages();
        let size = content.size().saturating_add(bytes.len() as u64);
        let (allowed, bound) = content.allowed;
        if size > allowed {
            let quota = self.space.shared.options.quota;
            let (wanted, allowed) = match bound {
                Bound::Bytes => {
                    ((quota.bytes - allowed).saturating_add(size.next_multiple_of(PAGE)), quota.bytes)
                }
                Bound::File
                | Bound::Entries
                | Bound::Total
                | Bound::TotalEntries
                | Bound::Owner
                | Bound::OwnerEntries
                | Bound::Changes => (size, allowed),
            };
            return Err(StoreError::Quota { bound, wanted, allowed });
        }
        content.entry.kind = EntryKind::File(size);
        self.claim.grow(Amount::bytes((content.entry.kind.pages() - before) * PAGE))?;
        content.buffer.extend_from_slice(bytes);
        if content.staged.is_none() {
            let small = content.buffer.len() <= INLINE_FILE
                && self.claim.inline() + bytes.len() <= INLINE_BATCH
                && self.claim.take_inline(bytes.len());
            if small {
                return Ok(());
            }
            self.claim.give_inline(content.buffer.len() - bytes.len());
            content.staged = Some(Arc::new(StagedFile::new(&self.space.shared.tmp)));
            self.unwritten_bytes += content.buffer.len();
        } else {
            self.unwritten_bytes += bytes.len();
        }
        if self.unwritten_bytes <= UNWRITTEN {
            return Ok(());
        }
        self.spill().await.map_err(|error| self.space.shared.not_saved(error))
    }

    /// Completes the content begun last.
    pub fn keep(&mut self) {
        if let Some(content) = self.writing.take() {
            if content.staged.is_some() && !content.buffer.is_empty() {
                self.unwritten.push(self.changes.len());
            }
            self.change(FileChange::File(content));
        }
    }

    /// Drops the content begun last.
    pub fn discard(&mut self) {
        if let Some(content) = self.writing.take() {
            self.claim.shrink(content.entry.kind.pages() * PAGE);
            match content.staged {
                Some(_) => self.unwritten_bytes -= content.buffer.len(),
                None => self.claim.give_inline(content.buffer.len()),
            }
        }
    }

    /// Writes everything that belongs in `tmp/` there.
    async fn spill(&mut self) -> Result<(), StoreError> {
        let jobs = self.unwritten_parts();
        let last = jobs.last().map(|(staged, _)| staged.clone());
        blocking(move || jobs.into_iter().try_for_each(|(staged, bytes)| append(&staged, &bytes))).await?;
        if let Some(staged) = last.filter(|staged| staged.is_early_due()) {
            tokio::task::spawn_blocking(move || staged.sync_early());
        }
        Ok(())
    }

    fn unwritten_parts(&mut self) -> Vec<(Arc<StagedFile>, Vec<u8>)> {
        self.unwritten_bytes = 0;
        let mut parts = Vec::new();
        let mut take = |content: &mut Content| {
            let staged = content.staged.clone().filter(|_| !content.buffer.is_empty());
            parts.extend(staged.map(|staged| (staged, std::mem::take(&mut content.buffer))));
        };
        for index in self.unwritten.drain(..) {
            if let Some(FileChange::File(content)) = self.changes.get_mut(index) {
                take(content);
            }
        }
        self.writing.iter_mut().for_each(take);
        parts
    }

    /// Makes all changes, durably: all of them or none, whatever else happens.
    ///
    /// # Errors
    /// [`StoreError::Gone`], [`StoreError::Quota`], [`StoreError::Full`] and [`StoreError::Unwritable`]:
    /// nothing has changed. [`StoreError::Pending`]: the changes are durable, and will be applied once the
    /// file system allows it. [`StoreError::Ledger`]: as that error says.
    pub async fn commit(mut self) -> Result<Committed, StoreError> {
        self.discard();
        if self.changes.is_empty() {
            self.space.clone().confirm().await?;
            let now = self.space.locked().generation();
            return Ok(Committed { put: Vec::new(), before: now, after: now, looked: None });
        }
        let lock = self.space.lock().await;
        let commits = self.space.shared.commits.clone();
        let permit = commits.acquire_owned().await;
        let shared = self.space.shared.clone();
        let done = blocking(move || {
            let _bounds = (lock, permit);
            self.commit_now()
        });
        shared.saved(done.await)
    }

    fn commit_now(mut self) -> Result<Committed, StoreError> {
        if self.space.is_gone() {
            return Err(StoreError::Gone);
        }
        let (space, shared) = (self.space.clone(), self.space.shared.clone());
        space.ready_for_change()?;
        space.secure(Wanted::Made)?;
        let before = space.locked().generation();
        let after = self.plan()?;
        self.seal()?;

        let put = self.changes.iter().filter_map(|change| change.entry().cloned()).collect();
        let frees = self.changes.iter().all(|change| change.entry().is_none());
        let (ops, blob, staged) = self.ops();
        let (bytes, inodes) = needs(&ops, &blob);
        let record =
            Arc::new(JournalRecord { owner: space.owner.clone(), session: space.session.clone(), ops, blob });
        let _disk = shared.claim_disk(bytes, inodes, frees)?;
        space.publish(&record, &staged, &after)?;
        let pin = shared.journal.append(&record, staged).map_err(|error| space.lost_here(error))?;
        tracing::debug!(bytes, inodes, "journalled");
        let generation = after.generation();
        space.apply(record, pin, after)?;
        let looked = self.look_at.and_then(|path| space.open(&path).ok()?.metadata().ok());
        Ok(Committed { put, before, after: generation, looked })
    }

    /// The manifest as it will be.
    fn plan(&mut self) -> Result<Manifest, StoreError> {
        let before = self.space.locked();
        let current = (before.generation(), before.bytes(), before.len());
        let entries = before.amount().entries;
        drop(before);
        // Another batch may have committed since this was planned.
        if self.planned.as_ref().is_some_and(|(began, _)| *began != current.0) {
            self.planned = None;
        }
        self.planned();
        let (_, after) = self.planned.take().unwrap_or_default();
        let quota = self.space.shared.options.quota;
        let grown = [
            (Bound::Bytes, current.1, after.bytes(), quota.bytes),
            (Bound::Entries, current.2, after.len(), quota.entries),
        ];
        for (bound, before, wanted, allowed) in grown {
            if wanted > allowed && wanted > before {
                return Err(StoreError::Quota { bound, wanted, allowed });
            }
        }
        // The bytes of files were claimed as they were written; those of links were not, nor was any entry.
        let more = after.bytes().saturating_sub(current.1);
        let of_session = if self.space.is_stored() { 0 } else { SESSION_ENTRIES };
        self.claim.grow(Amount {
            bytes: more.saturating_sub(self.claim.bytes()),
            entries: after.amount().entries.saturating_sub(entries) + of_session,
        })?;
        Ok(after)
    }

    /// Writes everything that belongs in `tmp/` there, and syncs it.
    fn seal(&mut self) -> Result<(), StoreError> {
        self.unwritten_parts().into_iter().try_for_each(|(staged, bytes)| append(&staged, &bytes))?;
        let contents = self.changes.iter().filter_map(|change| match change {
            FileChange::File(content) => Some((&content.entry, content.staged.as_ref()?)),
            FileChange::Remove(_) | FileChange::Dir(_) | FileChange::Link(_) => None,
        });
        let many = contents.clone().count() > MANY;
        let seal = |sync| {
            contents.clone().try_for_each(|(entry, staged)| {
                staged.seal(entry, sync).map_err(StoreError::io(format!("cannot save {:?}", entry.path)))
            })
        };
        seal(!many)?;
        // A failure may be that of others' data: each file knows of its own.
        if many && self.space.shared.sync_file_system().is_err() { seal(true) } else { Ok(()) }
    }

    /// The operations of the record, the contents in it, and the files in `tmp/` that it names.
    fn ops(&mut self) -> (Vec<JournalOp>, Vec<u8>, Vec<Arc<StagedFile>>) {
        let mut blob = Vec::with_capacity(self.claim.inline());
        let mut sources = Vec::new();
        let mut op = |change| match change {
            FileChange::Remove(path) => JournalOp::Remove(path),
            FileChange::Dir(entry) => JournalOp::Dir(entry),
            FileChange::Link(entry) => JournalOp::Link(entry),
            FileChange::File(Content { entry, buffer, staged: None, .. }) => {
                blob.extend_from_slice(&buffer);
                JournalOp::Inline(entry)
            }
            FileChange::File(Content { entry, staged: Some(staged), .. }) => {
                let name = staged.name().to_owned();
                sources.push(staged);
                JournalOp::Staged(entry, name)
            }
        };
        let ops = std::mem::take(&mut self.changes).into_iter().map(&mut op).collect();
        (ops, blob, sources)
    }
}

/// Bytes and inodes that a record will take on the disk: once in the journal, once applied.
fn needs(ops: &[JournalOp], blob: &[u8]) -> (u64, u64) {
    let mut bytes = PAGE + blob.len() as u64;
    let mut inodes = 0;
    for op in ops {
        let (content, path) = match op {
            JournalOp::Remove(path) => (0, path),
            JournalOp::Dir(entry) | JournalOp::Link(entry) => (PAGE, &entry.path),
            JournalOp::Inline(entry) => (entry.kind.pages() * PAGE, &entry.path),
            JournalOp::Staged(entry, _) => (0, &entry.path),
            JournalOp::Forget => continue,
        };
        bytes += content + 2 * path.as_bytes().len() as u64 + 64;
        inodes += u64::from(content > 0);
    }
    (bytes, inodes)
}

fn append(staged: &StagedFile, bytes: &[u8]) -> Result<(), StoreError> {
    let failed =
        |error: io::Error| StoreError::io(format!("cannot write {}", staged.path().display()))(error);
    staged.append(bytes).map_err(failed)
}
