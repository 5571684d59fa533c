//! One write and one sync for all waiting commits.
//!
//! The leader must never report success before the sync of the bytes returned, nor write to a file in which a
//! write or sync failed.

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::io::{self, Write};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use super::Journal;
use super::file::{Current, JournalPin, Sealed};
use crate::store::record::{JournalFrame, JournalRecord, frame, framed_len};
use crate::store::staged::StagedFile;

/// The largest group that one write and sync covers, so that the first commits of it do not wait too long.
const GROUP_MAX: u64 = 32 << 20;
/// Records up to this size are copied together for one write.
const COPIED: usize = 64 * 1024;

/// The part of the journal that a leader owns while it leads.
pub(super) struct LeaderState {
    pub(super) current: Option<Current>,
    pub(super) before: Vec<(u64, u64)>,
    pub(super) failed: Option<Arc<Sealed>>,
}

impl QueuedRecord {
    fn tell(&self, done: Result<JournalPin, io::Error>) {
        *self.slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(done);
    }
}

/// Takes records of the queue, as many as one sync may cover: one of each owner, then the second of each, and
/// so on, so that nobody waits behind all that another one saves. Those of one owner stay in their order.
pub(super) fn take_group(waiting: &mut VecDeque<QueuedRecord>) -> Vec<QueuedRecord> {
    let mut seen: HashMap<&str, usize> = HashMap::new();
    let mut order: Vec<(usize, usize)> = Vec::with_capacity(waiting.len());
    for (place, one) in waiting.iter().enumerate() {
        let of_owner = seen.entry(one.record.owner.as_str()).or_default();
        order.push((*of_owner, place));
        *of_owner += 1;
    }
    order.sort_unstable();
    let mut bytes = 0;
    let fits = |(_, place): &&(usize, usize)| {
        bytes += waiting.get(*place).map_or(0, |one| framed_len(&one.head, &one.record.blob));
        bytes <= GROUP_MAX
    };
    let count = order.iter().take_while(fits).count().max(1);
    order.truncate(count);
    let mut all: Vec<_> = waiting.drain(..).map(Some).collect();
    let group = order.iter().filter_map(|(_, place)| all.get_mut(*place)?.take()).collect();
    waiting.extend(all.into_iter().flatten());
    group
}

/// A record whose commit waits for a sync.
pub(super) struct QueuedRecord {
    pub(super) head: Vec<u8>,
    pub(super) record: Arc<JournalRecord>,
    pub(super) sources: Vec<Arc<StagedFile>>,
    pub(super) slot: Arc<Mutex<Option<Result<JournalPin, io::Error>>>>,
}

impl Journal {
    /// Writes a group of records and reports the result to each commit.
    pub(super) fn write_group(&self, mut seat: LeaderState, group: Vec<QueuedRecord>) -> LeaderState {
        let begun = Instant::now();
        let written = self.try_write(&mut seat, &group);
        if let Some(metrics) = self.metrics.get() {
            metrics.synced(begun.elapsed(), written.is_ok());
        }
        match written {
            Ok(file) => {
                self.counts.records.fetch_add(group.len() as u64, Ordering::Relaxed);
                for waiting in group {
                    file.take_over(&waiting.sources);
                    waiting.tell(Ok(file.pin()));
                }
            }
            Err(error) => {
                let file = seat.current.take().map(|current| {
                    let _ = current.file.set_len(current.len); // this may free the space that was missing
                    seat.before.push((current.seq, current.len));
                    current.kept
                });
                for waiting in group {
                    if let Some(file) = &file {
                        file.take_over(&waiting.sources); // the record may still be on the disk
                    }
                    waiting.tell(Err(copy(&error)));
                }
                seat.failed = file;
            }
        }
        seat
    }

    fn try_write(&self, seat: &mut LeaderState, group: &[QueuedRecord]) -> io::Result<Arc<Sealed>> {
        if group.iter().any(|waiting| !waiting.sources.is_empty())
            && let Some(tmp) = group.iter().find_map(|waiting| waiting.sources.first()?.path().parent())
        {
            File::open(tmp)?.sync_all()?; // otherwise a crash could lose the names
        }
        let current = match &mut seat.current {
            Some(current) => current,
            none => none.insert(Current::make(&self.dir, self.next.fetch_add(1, Ordering::Relaxed))?),
        };
        let mut out = Vec::new();
        let mut at = current.len;
        if !seat.before.is_empty() {
            let head = JournalFrame::seal(&seat.before)?;
            out.extend_from_slice(&frame(current.seq, at, &head, &[]));
            out.extend_from_slice(&head);
            at += framed_len(&head, &[]);
        }
        for QueuedRecord { head, record, .. } in group {
            out.extend_from_slice(&frame(current.seq, at, head, &record.blob));
            out.extend_from_slice(head);
            at += framed_len(head, &record.blob);
            if record.blob.len() <= COPIED {
                out.extend_from_slice(&record.blob);
            } else {
                current.file.write_all(&out)?;
                current.file.write_all(&record.blob)?;
                out.clear();
            }
        }
        current.file.write_all(&out)?;
        self.sync(&current.file)?;
        seat.before.clear();
        current.len = at;
        current.begun.get_or_insert_with(Instant::now);
        current.kept.grown(at);
        Ok(current.kept.clone())
    }

    /// Syncs the content of a file.
    pub(in crate::store) fn sync(&self, file: &File) -> io::Result<()> {
        #[cfg(test)]
        {
            drop(self.hooks.hold.lock());
            if self.hooks.fail.swap(false, Ordering::Relaxed) || self.hooks.broken.load(Ordering::Relaxed) {
                return Err(io::Error::from_raw_os_error(5));
            }
        }
        self.counts.syncs.fetch_add(1, Ordering::Relaxed);
        file.sync_data()
    }
}

/// The same error for one more commit.
fn copy(error: &io::Error) -> io::Error {
    error
        .raw_os_error()
        .map_or_else(|| io::Error::new(error.kind(), error.to_string()), io::Error::from_raw_os_error)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A record of this owner, with so many MiB.
    fn record(owner: &str, session: &str, mib: usize) -> QueuedRecord {
        let record = JournalRecord {
            owner: owner.to_owned(),
            session: session.to_owned(),
            ops: Vec::new(),
            blob: vec![0; mib << 20],
        };
        QueuedRecord { head: Vec::new(), record: Arc::new(record), sources: Vec::new(), slot: Arc::default() }
    }

    fn names(records: impl IntoIterator<Item = QueuedRecord>) -> Vec<String> {
        records.into_iter().map(|one| format!("{}{}", one.record.owner, one.record.session)).collect()
    }

    #[test]
    fn what_one_owner_saves_does_not_wait_behind_all_that_another_saves() {
        let flood = ["1", "2", "3", "4", "5", "6"].map(|session| record("a", session, 15));
        let mut waiting: VecDeque<_> =
            flood.into_iter().chain([record("b", "1", 0), record("b", "2", 0)]).collect();
        assert_eq!(names(take_group(&mut waiting)), ["a1", "b1", "a2", "b2"]);
        assert_eq!(names(take_group(&mut waiting)), ["a3", "a4"], "the rest is in its order");
        waiting.push_back(record("b", "3", 0));
        assert_eq!(names(take_group(&mut waiting)), ["a5", "b3", "a6"]);
        assert!(waiting.is_empty() && take_group(&mut waiting).is_empty());
        // One that is larger than a group is one by itself.
        waiting.extend([record("a", "1", 40), record("a", "2", 0)]);
        assert_eq!(names(take_group(&mut waiting)), ["a1"]);
        assert_eq!(names(take_group(&mut waiting)), ["a2"]);
    }
}
