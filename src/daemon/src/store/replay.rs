//! Recovery: replays the journal when the store is opened, before anything else uses it.
//!
//! The journal is replayed in order from the last checkpoint on. Records hold whole contents, so the final
//! state is the same whatever was applied before. A file ends where no whole frame follows, or at the length
//! that a later file states; bytes behind that were never acknowledged. A file that is damaged before that
//! length stops the start: the store never drops a change that it acknowledged.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fs::{self, File};
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::journal::{Journal, JournalPin, Sealed, name, number};
use super::record::{self, JournalFrame, JournalOp, JournalRecord};
use super::{StoreError, apply, hash, make_dir};

/// Changes that are durable and not applied, by session; in their order.
pub(super) type Unapplied = HashMap<String, Vec<(Arc<JournalRecord>, JournalPin)>>;

/// Replays the journal of the store at `root`, empties `tmp`, and begins a new journal. Also returns the
/// changes that could not be applied: the journal keeps them.
///
/// # Errors
/// An error of the file system about the journal itself; damage.
pub(super) fn replay(root: &Path, tmp: &Path, on: &File) -> Result<(Journal, Unapplied), StoreError> {
    let dir = root.join("journal");
    let what = || format!("cannot use the journal in {}", dir.display());
    make_dir(&dir).and_then(|()| File::open(root)?.sync_all()).map_err(StoreError::io(what()))?;
    let files = list(&dir).map_err(StoreError::io(what()))?;
    let next = files.last().map_or(0, |seq| seq + 1);
    if !files.is_empty() {
        hear_of_earlier_failures(on, root);
    }
    let limits = limits(&dir, &files).map_err(StoreError::io(what()))?;

    let mut unapplied = Unapplied::new();
    let mut kept = VecDeque::new();
    for seq in &files {
        let path = dir.join(name(*seq));
        let redone = redo(root, tmp, &path, *seq, limits.get(seq).copied(), &mut unapplied);
        kept.push_back(redone.map_err(StoreError::io(format!("cannot redo {}", path.display())))?);
    }
    if unapplied.is_empty() {
        // No file may be removed before all that it says is durable.
        if kept.iter().any(|file| file.bytes() > 0) {
            rustix::fs::syncfs(on).map_err(|error| StoreError::io(what())(still_failing(error.into())))?;
        }
        for file in kept.drain(..) {
            file.unlink().map_err(StoreError::io(what()))?;
        }
        File::open(&dir).and_then(|dir| dir.sync_all()).map_err(StoreError::io(what()))?;
    }
    let needed = kept.iter().flat_map(|file| file.source_paths()).collect();
    empty(tmp, &needed).map_err(StoreError::io(format!("cannot empty {}", tmp.display())))?;
    Ok((Journal::new(dir, kept, next), unapplied))
}

/// Lets the kernel report failed writes of before this start. It reports each of them once, to the first sync
/// that comes, even if that sync is for other data of a disk that works again. What was lost then is put in
/// place again from the journal, whose own content was synced before it was acknowledged; so only failures
/// after this call count.
fn hear_of_earlier_failures(on: &File, root: &Path) {
    if let Err(error) = rustix::fs::syncfs(on) {
        tracing::warn!(
            %error,
            root = %root.display(),
            "a write to the store's disk failed before this start; all changes in the journal are put in \
             place again"
        );
    }
}

/// The error of a disk that fails while the journal is put in place, with what to do.
fn still_failing(error: io::Error) -> io::Error {
    let what = format!(
        "{error}. The disk fails; what the journal holds is whole, and stays in it. Check the disk (the \
         kernel's log names it), or copy the whole store to another one, and start again"
    );
    io::Error::new(error.kind(), what)
}

fn list(dir: &Path) -> io::Result<Vec<u64>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir)? {
        files.extend(entry?.file_name().to_str().and_then(number));
    }
    files.sort_unstable();
    Ok(files)
}

/// The valid lengths of files, as later files state them.
fn limits(dir: &Path, files: &[u64]) -> io::Result<HashMap<u64, u64>> {
    let mut limits = HashMap::new();
    for seq in files {
        let mut file = BufReader::new(File::open(dir.join(name(*seq)))?);
        if let Some((_, JournalFrame::Seal(said))) = record::read(&mut file, *seq, 0)? {
            limits.extend(said);
        }
    }
    Ok(limits)
}

/// Replays one file.
fn redo(
    root: &Path,
    tmp: &Path,
    path: &Path,
    seq: u64,
    limit: Option<u64>,
    unapplied: &mut Unapplied,
) -> io::Result<Arc<Sealed>> {
    let mut file = BufReader::with_capacity(1 << 20, File::open(path)?);
    let kept = Sealed::new(path.to_owned(), file.get_ref().metadata()?.len(), Vec::new());
    let mut at = 0;
    while limit.is_none_or(|limit| at < limit)
        && let Some((len, framed)) = record::read(&mut file, seq, at)?
    {
        if limit.is_some_and(|limit| at + len > limit) {
            break;
        }
        at += len;
        let JournalFrame::Change(record) = framed else { continue };
        let record = Arc::new(record);
        kept.add_sources(tmp, &record);
        let hash = hash(&record.owner, &record.session);
        if let Some(waiting) = unapplied.get_mut(&hash) {
            waiting.push((record, kept.pin())); // in order, or not at all
        } else if let Err(error) = apply::apply(root, tmp, &record) {
            tracing::error!(%error, session = record.session, "a saved change cannot be put in place; the \
                                                               daemon keeps it and retries");
            unapplied.insert(hash, vec![(record, kept.pin())]);
        }
    }
    match limit {
        Some(limit) if at < limit => {
            let what = format!(
                "it is damaged at byte {at}, though the bytes before {limit} were valid once: the changes \
                 saved there are lost. Restore the store from a copy, or remove this file to continue \
                 without them"
            );
            Err(io::Error::new(io::ErrorKind::InvalidData, what))
        }
        Some(_) | None => Ok(kept),
    }
}

/// Removes everything in `tmp` that is not `needed`; makes the directory if it does not exist.
fn empty(tmp: &Path, needed: &HashSet<PathBuf>) -> io::Result<()> {
    make_dir(tmp)?;
    for entry in fs::read_dir(tmp)? {
        let entry = entry?;
        let path = entry.path();
        if needed.contains(&path) {
            continue;
        }
        if entry.file_type()?.is_dir() { fs::remove_dir_all(path)? } else { fs::remove_file(path)? }
    }
    Ok(())
}

impl JournalRecord {
    /// The names in `tmp/` that it needs, with sizes.
    pub(super) fn sources(&self) -> impl Iterator<Item = (&str, u64)> {
        self.ops.iter().filter_map(|op| match op {
            JournalOp::Staged(entry, name) => {
                Some((name.as_str(), entry.kind.pages() * paddock_proto::limits::PAGE))
            }
            JournalOp::Remove(_)
            | JournalOp::Dir(_)
            | JournalOp::Link(_)
            | JournalOp::Inline(_)
            | JournalOp::Forget => None,
        })
    }
}
