//! One write and one sync for all who wait.
//!
//! It must never tell anyone of success before the sync of the bytes returned, nor write on behind a failure.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Write};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use super::Journal;
use super::file::{Current, Sealed, Ticket};
use crate::store::record::{Framed, Record, frame, framed_len};
use crate::store::staged::Staged;

/// One write and sync covers no more than this, so that the first of it do not wait for ever more.
const GROUP_MAX: u64 = 32 << 20;
/// Records up to this size are gathered for one write.
const COPIED: usize = 64 * 1024;

/// What a leader has while it leads.
pub(super) struct Seat {
    pub(super) current: Option<Current>,
    pub(super) before: Vec<(u64, u64)>,
    pub(super) failed: Option<Arc<Sealed>>,
}

impl Waiting {
    fn tell(&self, done: Result<Ticket, io::Error>) {
        *self.slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(done);
    }
}

/// The first of those who wait, as many as one sync may cover.
pub(super) fn take_group(waiting: &mut VecDeque<Waiting>) -> Vec<Waiting> {
    let mut bytes = 0;
    let fits = |one: &&Waiting| {
        bytes += framed_len(&one.head, &one.record.blob);
        bytes <= GROUP_MAX
    };
    let count = waiting.iter().take_while(fits).count().max(1);
    waiting.drain(..count.min(waiting.len())).collect()
}

/// Someone who waits for a sync.
pub(super) struct Waiting {
    pub(super) head: Vec<u8>,
    pub(super) record: Arc<Record>,
    pub(super) sources: Vec<Arc<Staged>>,
    pub(super) slot: Arc<Mutex<Option<Result<Ticket, io::Error>>>>,
}

impl Journal {
    /// Writes a group and tells those who wait for it.
    pub(super) fn write_group(&self, mut seat: Seat, group: Vec<Waiting>) -> Seat {
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
                    waiting.tell(Ok(file.ticket()));
                }
            }
            Err(error) => {
                let file = seat.current.take().map(|current| {
                    let _ = current.file.set_len(current.len); // what it frees may be what lacked
                    seat.before.push((current.seq, current.len));
                    current.kept
                });
                for waiting in group {
                    if let Some(file) = &file {
                        file.take_over(&waiting.sources); // the record may be on the disk all the same
                    }
                    waiting.tell(Err(copy(&error)));
                }
                seat.failed = file;
            }
        }
        seat
    }

    fn try_write(&self, seat: &mut Seat, group: &[Waiting]) -> io::Result<Arc<Sealed>> {
        if group.iter().any(|waiting| !waiting.sources.is_empty())
            && let Some(tmp) = group.iter().find_map(|waiting| waiting.sources.first()?.path().parent())
        {
            File::open(tmp)?.sync_all()?; // or their names could be lost
        }
        let current = match &mut seat.current {
            Some(current) => current,
            none => none.insert(Current::make(&self.dir, self.next.fetch_add(1, Ordering::Relaxed))?),
        };
        let mut out = Vec::new();
        let mut at = current.len;
        if !seat.before.is_empty() {
            let head = Framed::seal(&seat.before)?;
            out.extend_from_slice(&frame(current.seq, at, &head, &[]));
            out.extend_from_slice(&head);
            at += framed_len(&head, &[]);
        }
        for Waiting { head, record, .. } in group {
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

/// The same error for one more who waited.
fn copy(error: &io::Error) -> io::Error {
    error
        .raw_os_error()
        .map_or_else(|| io::Error::new(error.kind(), error.to_string()), io::Error::from_raw_os_error)
}
