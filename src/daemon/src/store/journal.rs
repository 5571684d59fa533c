//! The redo journal: one append-only file at a time, one sync for all waiting commits.
//!
//! ```text
//!  append ─► queue ─► leader: write all, one fdatasync ─► JournalPin: durable; apply it, then drop the pin
//!  seal   ─► the file is not written again; `done` forgets it once all its pins are dropped
//! ```
//!
//! A thread that appends and finds no leader becomes the leader: it writes and syncs its own record and all
//! that were queued before. A file in which a write or sync failed is sealed at its last valid length, which
//! the next file states first: bytes behind that length were never acknowledged, and are never replayed. The
//! journal must never return a pin before the sync that covers its record returned without an error.

use std::collections::VecDeque;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use super::StoreError;
use super::record::JournalRecord;
use super::staged::StagedFile;
use crate::metrics::Metrics;

mod file;
mod write;

use file::Current;
pub(super) use file::{JournalPin, Sealed, name, number};
use write::{LeaderState, QueuedRecord, take_group};

/// A file is sealed at this size.
const FILE_MAX: u64 = 64 << 20;
/// Content in `tmp/` that one file may keep from being freed, after it was replaced or removed.
const STAGED_MAX: u64 = 1 << 30;
/// The size of all files together at which commits wait for a checkpoint.
const JOURNAL_MAX: u64 = 1 << 30;
/// How long they wait.
const JOURNAL_WAIT: Duration = Duration::from_secs(20);

/// The journal of a store.
pub(super) struct Journal {
    dir: PathBuf,
    /// The number of the next file; numbers only grow.
    next: AtomicU64,
    state: Mutex<JournalState>,
    /// Signals that a file was written, synced, sealed or removed.
    changed: Condvar,
    /// Syncs, and the records that they covered.
    pub(super) counts: SyncCounts,
    /// SyncCounts the syncs, once it is set.
    pub(super) metrics: OnceLock<Metrics>,
    #[cfg(test)]
    pub(super) hooks: Hooks,
}

/// Hooks for tests.
#[cfg(test)]
#[derive(Default)]
pub(super) struct Hooks {
    /// Makes the next sync fail.
    pub(super) fail: std::sync::atomic::AtomicBool,
    /// Makes every sync fail while it is set.
    pub(super) broken: std::sync::atomic::AtomicBool,
    /// A sync waits for this lock.
    pub(super) hold: Mutex<()>,
    /// Records that were appended.
    pub(super) asked: AtomicU64,
}

/// Totals since the start.
#[derive(Default)]
pub(super) struct SyncCounts {
    pub(super) syncs: AtomicU64,
    pub(super) records: AtomicU64,
}

struct JournalState {
    waiting: VecDeque<QueuedRecord>,
    leading: bool,
    closed: bool,
    /// `None` after a failure: the next leader makes a new file.
    current: Option<Current>,
    /// Made in advance, so that nobody waits for a rotation.
    spare: Option<Current>,
    /// Sealed files that are still needed, oldest first.
    sealed: VecDeque<Arc<Sealed>>,
    /// Numbers and valid lengths of earlier files, until the current file states them.
    before: Vec<(u64, u64)>,
    appended: Instant,
}

impl Journal {
    /// A journal in `dir` behind the `sealed` files that are still needed; the next file has the number
    /// `next`.
    pub(super) fn new(dir: PathBuf, sealed: VecDeque<Arc<Sealed>>, next: u64) -> Self {
        let state = JournalState {
            waiting: VecDeque::new(),
            leading: false,
            closed: false,
            current: None,
            spare: None,
            sealed,
            before: Vec::new(),
            appended: Instant::now(),
        };
        Self {
            dir,
            next: AtomicU64::new(next),
            state: Mutex::new(state),
            changed: Condvar::new(),
            counts: SyncCounts::default(),
            metrics: OnceLock::new(),
            #[cfg(test)]
            hooks: Hooks::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, JournalState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, JournalState>) -> MutexGuard<'a, JournalState> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a record durable. `sources` are the files in `tmp/` that it names, already synced; once anything
    /// was written, the journal owns them.
    ///
    /// # Errors
    /// The record is not durable, or may not be; in both cases it is not replayed once a later record is
    /// durable.
    pub(super) fn append(
        &self,
        record: &Arc<JournalRecord>,
        sources: Vec<Arc<StagedFile>>,
    ) -> Result<JournalPin, StoreError> {
        let failed = || format!("cannot write the journal in {}", self.dir.display());
        let head = record.head()?;
        let slot = Arc::default();
        let mut state = self.wait_for_space()?;
        state.waiting.push_back(QueuedRecord {
            head,
            record: record.clone(),
            sources,
            slot: Arc::clone(&slot),
        });
        #[cfg(test)]
        self.hooks.asked.fetch_add(1, Ordering::Relaxed);
        let slot = || slot.lock().unwrap_or_else(PoisonError::into_inner).take();
        loop {
            if let Some(done) = slot() {
                return done.map_err(StoreError::io(failed()));
            }
            if state.leading {
                state = self.wait(state);
                continue;
            }
            state.leading = true;
            let group = take_group(&mut state.waiting);
            let seat =
                LeaderState { current: take_file(&mut state), before: state.before.clone(), failed: None };
            drop(state);
            let seat = self.write_group(seat, group);
            state = self.state();
            state.before = seat.before;
            state.appended = Instant::now();
            if let Some(current) = seat.current {
                if current.len >= FILE_MAX || current.kept.staged() >= STAGED_MAX {
                    seal(&mut state, current);
                } else {
                    state.current = Some(current);
                }
            }
            state.sealed.extend(seat.failed);
            state.leading = false;
            self.changed.notify_all();
        }
    }

    /// Waits until the journal may grow.
    fn wait_for_space(&self) -> Result<MutexGuard<'_, JournalState>, StoreError> {
        let end = Instant::now() + JOURNAL_WAIT;
        let mut state = self.state();
        loop {
            let refuse = |why: String| {
                let what = format!("cannot write the journal in {}", self.dir.display());
                StoreError::io(what)(io::Error::other(why))
            };
            if state.closed {
                return Err(refuse("the daemon is stopping".to_owned()));
            }
            let bytes: u64 = state.sealed.iter().map(|file| file.bytes()).sum();
            if bytes < JOURNAL_MAX {
                return Ok(state);
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(refuse(format!(
                    "the journal holds {bytes} bytes, at most {JOURNAL_MAX} are allowed, and they cannot be \
                     put in place; the daemon's log says why"
                )));
            }
            (state, _) = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Waits until a checkpoint is due: nobody appended for `idle`, the oldest record is `age` old, or the
    /// journal is large. False once the store is closed.
    pub(super) fn due(&self, idle: Duration, age: Duration) -> bool {
        let mut state = self.state();
        loop {
            if state.closed {
                return false;
            }
            if !state.sealed.is_empty() {
                return true;
            }
            let begun = state.current.as_ref().and_then(|current| current.begun);
            state = match begun {
                None => self.wait(state),
                Some(begun) => {
                    let at = (state.appended + idle).min(begun + age);
                    let left = at.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return true;
                    }
                    self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }

    /// Waits for `time`, or until the store is closed.
    pub(super) fn sleep(&self, time: Duration) {
        let end = Instant::now() + time;
        let mut state = self.state();
        while !state.closed {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Seals the current file, and returns the oldest files whose records are all applied: they can go after
    /// a sync.
    pub(super) fn seal(&self) -> Vec<Arc<Sealed>> {
        self.prepare();
        let mut state = self.state();
        while state.leading {
            state = self.wait(state);
        }
        if let Some(current) = state.current.take() {
            if current.len == 0 { state.current = Some(current) } else { seal(&mut state, current) }
        }
        state.sealed.iter().take_while(|file| file.is_applied()).cloned().collect()
    }

    /// Forgets the oldest `count` files, which were removed.
    pub(super) fn done(&self, count: usize) {
        let mut state = self.state();
        let count = count.min(state.sealed.len());
        state.sealed.drain(..count);
        self.changed.notify_all();
    }

    /// Makes the next file in advance, if possible; nobody depends on it.
    fn prepare(&self) {
        if self.state().spare.is_some() {
            return;
        }
        match Current::make(&self.dir, self.next.fetch_add(1, Ordering::Relaxed)) {
            Ok(spare) => self.state().spare = Some(spare),
            Err(error) => tracing::warn!(%error, "cannot make the next file of the store's journal"),
        }
    }

    /// Sealed files that were not freed yet.
    #[cfg(test)]
    pub(super) fn sealed(&self) -> usize {
        self.state().sealed.len()
    }

    pub(super) fn is_closed(&self) -> bool {
        self.state().closed
    }

    /// Refuses further records.
    pub(super) fn close(&self) {
        self.state().closed = true;
        self.changed.notify_all();
    }
}

/// The file to write to, if there is one.
fn take_file(state: &mut JournalState) -> Option<Current> {
    let last = state.before.last().map(|(seq, _)| *seq);
    // A leader that found no file made one with a higher number: the older spare is useless, and empty.
    let usable = |spare: &Current| last.is_none_or(|last| spare.seq > last);
    state.current.take().or_else(|| state.spare.take().filter(usable))
}

fn seal(state: &mut JournalState, current: Current) {
    state.before.push((current.seq, current.len));
    state.sealed.push_back(current.kept);
}
