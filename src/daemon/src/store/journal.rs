//! The redo journal: one append-only file at a time, one sync for all who wait.
//!
//! ```text
//!  append ─► waiting ─► leader: write all, one fdatasync ─► Ticket: durable; apply it, then drop it
//!  seal   ─► the file takes no more; `done` gives it up once all its tickets are dropped
//! ```
//!
//! Whoever finds nobody leading leads: it writes and syncs for itself and all who came before it was done. The file
//! that a failed write or sync touched is sealed at its last good length, which is said first in the next file: what
//! stands behind that length was never acknowledged, and is never replayed. It must never return a ticket before
//! the sync that covers its record returned without an error.

use std::collections::VecDeque;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use super::StoreError;
use super::record::Record;
use super::staged::Staged;
use crate::metrics::Metrics;

mod file;
mod write;

use file::Current;
pub(super) use file::{Sealed, Ticket, name, number};
use write::{Seat, Waiting, take_group};

/// A file takes no more from this size on.
const FILE_MAX: u64 = 64 << 20;
/// Content in `tmp/` that one file may keep from being freed, after it was replaced or removed.
const STAGED_MAX: u64 = 1 << 30;
/// All files together; over it, commits wait for a checkpoint.
const JOURNAL_MAX: u64 = 1 << 30;
/// How long they wait.
const JOURNAL_WAIT: Duration = Duration::from_secs(20);

/// The journal of a store.
pub(super) struct Journal {
    dir: PathBuf,
    /// The number of the next file; numbers only grow.
    next: AtomicU64,
    state: Mutex<State>,
    /// Something was written, synced, sealed or given up.
    turned: Condvar,
    /// Syncs, and the records that they covered.
    pub(super) counts: Counts,
    /// Told of syncs.
    pub(super) metrics: OnceLock<Metrics>,
    #[cfg(test)]
    pub(super) hooks: Hooks,
}

/// Where tests come between.
#[cfg(test)]
#[derive(Default)]
pub(super) struct Hooks {
    /// Makes the next sync fail.
    pub(super) fail: std::sync::atomic::AtomicBool,
    /// Every sync fails as long as this is set.
    pub(super) broken: std::sync::atomic::AtomicBool,
    /// A sync waits for it.
    pub(super) hold: Mutex<()>,
    /// Records that someone wants to be durable.
    pub(super) asked: AtomicU64,
}

/// What was done so far.
#[derive(Default)]
pub(super) struct Counts {
    pub(super) syncs: AtomicU64,
    pub(super) records: AtomicU64,
}

struct State {
    waiting: VecDeque<Waiting>,
    leading: bool,
    closed: bool,
    /// `None` after a failure: the next leader makes one.
    current: Option<Current>,
    /// Made ahead, so that a rotation holds up nobody.
    spare: Option<Current>,
    /// From the oldest on; still needed.
    sealed: VecDeque<Arc<Sealed>>,
    /// Files before the current one, and how far they are good; until the current one says so.
    before: Vec<(u64, u64)>,
    appended: Instant,
}

impl Journal {
    /// A journal in `dir`, behind the files that `sealed` holds back; the next file has the number `next`.
    pub(super) fn new(dir: PathBuf, sealed: VecDeque<Arc<Sealed>>, next: u64) -> Self {
        let state = State {
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
            turned: Condvar::new(),
            counts: Counts::default(),
            metrics: OnceLock::new(),
            #[cfg(test)]
            hooks: Hooks::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.turned.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a record durable. `sources` are the files in `tmp/` that it names, synced; once anything was written,
    /// they belong to the journal.
    ///
    /// # Errors
    /// The record is then not durable, or not known to be; either way it will not be replayed once anything else
    /// was made durable.
    pub(super) fn append(
        &self,
        record: &Arc<Record>,
        sources: Vec<Arc<Staged>>,
    ) -> Result<Ticket, StoreError> {
        let failed = || format!("cannot write the journal in {}", self.dir.display());
        let head = record.head()?;
        let slot = Arc::default();
        let mut state = self.room()?;
        state.waiting.push_back(Waiting { head, record: record.clone(), sources, slot: Arc::clone(&slot) });
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
            let seat = Seat { current: take_file(&mut state), before: state.before.clone(), failed: None };
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
            self.turned.notify_all();
        }
    }

    /// Waits until the journal may grow.
    fn room(&self) -> Result<MutexGuard<'_, State>, StoreError> {
        let end = Instant::now() + JOURNAL_WAIT;
        let mut state = self.state();
        loop {
            let refuse = |why: String| {
                let what = format!("cannot write the journal in {}", self.dir.display());
                StoreError::io(what)(io::Error::other(why))
            };
            if state.closed {
                return Err(refuse("the daemon is about to end".to_owned()));
            }
            let bytes: u64 = state.sealed.iter().map(|file| file.bytes()).sum();
            if bytes < JOURNAL_MAX {
                return Ok(state);
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(refuse(format!(
                    "the journal holds {bytes} bytes, at most {JOURNAL_MAX} are allowed, and they cannot be put \
                     in place; the daemon's log says why"
                )));
            }
            (state, _) = self.turned.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Waits until a checkpoint is due: the journal rested for `idle`, its oldest record is `age` old, or it is
    /// large. False once the store is closed.
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
                    self.turned.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }

    /// Waits for `time` at most, or until the store is closed.
    pub(super) fn rest(&self, time: Duration) {
        let end = Instant::now() + time;
        let mut state = self.state();
        while !state.closed {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            state = self.turned.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Seals the file that is written to, and gives the oldest ones that nothing depends on but what is to be
    /// synced now.
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

    /// These were removed.
    pub(super) fn done(&self, count: usize) {
        let mut state = self.state();
        let count = count.min(state.sealed.len());
        state.sealed.drain(..count);
        self.turned.notify_all();
    }

    /// Makes the file that comes after the current one, if it can; nobody waits for it.
    fn prepare(&self) {
        if self.state().spare.is_some() {
            return;
        }
        match Current::make(&self.dir, self.next.fetch_add(1, Ordering::Relaxed)) {
            Ok(spare) => self.state().spare = Some(spare),
            Err(error) => tracing::warn!(%error, "cannot make the next file of the store's journal"),
        }
    }

    /// Files that wait to be freed.
    #[cfg(test)]
    pub(super) fn sealed(&self) -> usize {
        self.state().sealed.len()
    }

    pub(super) fn is_closed(&self) -> bool {
        self.state().closed
    }

    /// Nothing more is taken.
    pub(super) fn close(&self) {
        self.state().closed = true;
        self.turned.notify_all();
    }
}

/// The file to write to, if there is one.
fn take_file(state: &mut State) -> Option<Current> {
    let last = state.before.last().map(|(seq, _)| *seq);
    // A leader that found none made one with a higher number: the older spare is of no use, and empty.
    let usable = |spare: &Current| last.is_none_or(|last| spare.seq > last);
    state.current.take().or_else(|| state.spare.take().filter(usable))
}

fn seal(state: &mut State, current: Current) {
    state.before.push((current.seq, current.len));
    state.sealed.push_back(current.kept);
}
