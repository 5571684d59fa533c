//! One write and one sync for all waiting commits.
//!
//! The leader must never report success before the sync of the bytes returned, nor write to a file in which a
//! write or sync failed.

use std::collections::VecDeque;
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

/// Takes the first records of the queue, as many as one sync may cover.
pub(super) fn take_group(waiting: &mut VecDeque<QueuedRecord>) -> Vec<QueuedRecord> {
    let mut bytes = 0;
    let fits = |one: &&QueuedRecord| {
        bytes += framed_len(&one.head, &one.record.blob);
        bytes <= GROUP_MAX
    };
    let count = waiting.iter().take_while(fits).count().max(1);
    waiting.drain(..count.min(waiting.len())).collect()
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
