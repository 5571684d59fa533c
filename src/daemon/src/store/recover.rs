//! What the journal holds at the start: done again, in order, before anything else.
//!
//! Redone from the last checkpoint on, whole contents make the final state whatever of them was in place before.
//! The end of a file is where no whole frame is, or where a later file says; what is behind was never acknowledged.
//! A file that is bad before the length that a later one vouches for is damage, and stops the start: nothing is
//! dropped that someone was told is saved.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fs::{self, File};
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::journal::{Journal, Sealed, Ticket, name, number};
use super::record::{self, Framed, Op, Record};
use super::{StoreError, apply, hash, make_dir};

/// Changes that are durable and not in place, by session; in their order.
pub(super) type Unsettled = HashMap<String, Vec<(Arc<Record>, Ticket)>>;

/// Redoes the journal of the store at `root`, empties `tmp`, and begins a new journal. Sessions whose files could
/// not be put in place are given too: the journal keeps what they lack.
///
/// # Errors
/// What the file system says of the journal itself; damage.
pub(super) fn recover(root: &Path, tmp: &Path, on: &File) -> Result<(Journal, Unsettled), StoreError> {
    let dir = root.join("journal");
    let what = || format!("cannot use the journal in {}", dir.display());
    make_dir(&dir).and_then(|()| File::open(root)?.sync_all()).map_err(StoreError::io(what()))?;
    let files = list(&dir).map_err(StoreError::io(what()))?;
    let next = files.last().map_or(0, |seq| seq + 1);
    let limits = limits(&dir, &files).map_err(StoreError::io(what()))?;

    let mut unsettled = Unsettled::new();
    let mut kept = VecDeque::new();
    for seq in &files {
        let path = dir.join(name(*seq));
        let redone = redo(root, tmp, &path, *seq, limits.get(seq).copied(), &mut unsettled);
        kept.push_back(redone.map_err(StoreError::io(format!("cannot redo {}", path.display())))?);
    }
    if unsettled.is_empty() {
        // Nothing may go before all that it said is durable.
        if kept.iter().any(|file| file.bytes() > 0) {
            rustix::fs::syncfs(on).map_err(|e| StoreError::io(what())(e.into()))?;
        }
        for file in kept.drain(..) {
            file.unlink().map_err(StoreError::io(what()))?;
        }
        File::open(&dir).and_then(|dir| dir.sync_all()).map_err(StoreError::io(what()))?;
    }
    let needed = kept.iter().flat_map(|file| file.source_paths()).collect();
    empty(tmp, &needed).map_err(StoreError::io(format!("cannot empty {}", tmp.display())))?;
    Ok((Journal::new(dir, kept, next), unsettled))
}

fn list(dir: &Path) -> io::Result<Vec<u64>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir)? {
        files.extend(entry?.file_name().to_str().and_then(number));
    }
    files.sort_unstable();
    Ok(files)
}

/// How far files are good, as later ones say it.
fn limits(dir: &Path, files: &[u64]) -> io::Result<HashMap<u64, u64>> {
    let mut limits = HashMap::new();
    for seq in files {
        let mut file = BufReader::new(File::open(dir.join(name(*seq)))?);
        if let Some((_, Framed::Seal(said))) = record::read(&mut file, *seq, 0)? {
            limits.extend(said);
        }
    }
    Ok(limits)
}

/// Redoes one file.
fn redo(
    root: &Path,
    tmp: &Path,
    path: &Path,
    seq: u64,
    limit: Option<u64>,
    unsettled: &mut Unsettled,
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
        let Framed::Change(record) = framed else { continue };
        let record = Arc::new(record);
        kept.add_sources(tmp, &record);
        let hash = hash(&record.owner, &record.session);
        if let Some(waiting) = unsettled.get_mut(&hash) {
            waiting.push((record, kept.ticket())); // only in order
        } else if let Err(error) = apply::apply(root, tmp, &record) {
            tracing::error!(%error, session = record.session, "a saved change cannot be put in place; it is kept");
            unsettled.insert(hash, vec![(record, kept.ticket())]);
        }
    }
    match limit {
        Some(limit) if at < limit => {
            let what = format!(
                "it is damaged at byte {at}, and was good up to byte {limit}: what was saved there is lost. Restore \
                 the store from a copy, or remove this file to go on without"
            );
            Err(io::Error::new(io::ErrorKind::InvalidData, what))
        }
        Some(_) | None => Ok(kept),
    }
}

/// Removes all of `tmp` that nobody needs; makes it, if it is not there.
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

impl Record {
    /// The names in `tmp/` that it needs, with sizes.
    pub(super) fn sources(&self) -> impl Iterator<Item = (&str, u64)> {
        self.ops.iter().filter_map(|op| match op {
            Op::Staged(entry, name) => {
                Some((name.as_str(), entry.kind.pages() * paddock_proto::limits::PAGE))
            }
            Op::Remove(_) | Op::Dir(_) | Op::Link(_) | Op::Inline(_) | Op::Forget => None,
        })
    }
}
