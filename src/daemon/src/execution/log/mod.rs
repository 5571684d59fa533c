//! An execution's log: written before anybody is told, read from any number on, also by the next daemon.
//!
//! ```text
//!  sink ─► write queue ─► writer ─► file ─► index ─► position, notifications, backlog
//!  page ─► file, from the last place in the index before it ─► decoder ─► numbered events
//! ```
//!
//! Readers name a position, which is the number of the last event that they have, and wait for the log to
//! pass it. The number is good for ever: it counts lines from the beginning of the log, so that a reader who
//! comes back after an hour, or after a restart of the daemon, goes on where it was. That is why these
//! readers read the file and not the bounded backlog of `session::output`: nothing may be missing for them.
//! What was written a moment ago is in the system's cache, and events are made only when a client reads them.
//!
//! It must never tell an event that is not in the file, nor hold more in memory than lines that have not
//! ended and the index.

pub(in crate::execution) mod decoder;
pub(in crate::execution) mod entry;
pub(in crate::execution) mod event;
pub(in crate::execution) mod index;
pub(in crate::execution) mod lines;
pub(in crate::execution) mod page;
pub(in crate::execution) mod writer;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use paddock_proto::OutputStream;
use tokio::sync::watch;

use self::entry::LogEntry;
use self::index::{AppendedEvents, LogIndex};
use self::page::{Page, PageRequest};
use crate::ports::OpenPort;
use crate::store::{ExecutionFiles, LogFile, StoreError, blocking};

/// How far an execution's log is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LogPosition {
    /// The number of its last event.
    pub last: u64,
    /// Whether it was the last for good.
    pub over: bool,
}

/// See the module documentation.
pub(super) struct ExecutionLog {
    files: ExecutionFiles,
    /// `None` until somebody asks for what an earlier daemon wrote.
    index: Mutex<Option<LogIndex>>,
    position: watch::Sender<LogPosition>,
}

impl ExecutionLog {
    /// A log with nothing in it.
    pub(super) fn empty(files: ExecutionFiles) -> Self {
        Self::of(files, Some(LogIndex::new()), false)
    }

    /// The log of an execution that was over before this daemon started. It is loaded when somebody reads it.
    pub(super) fn unloaded(files: ExecutionFiles) -> Self {
        Self::of(files, None, true)
    }

    /// The log of an execution that goes on, as an earlier daemon left it, and its file to append to. Half an
    /// entry at its end is removed. It blocks.
    ///
    /// # Errors
    /// The store's.
    pub(super) fn resumed(files: ExecutionFiles) -> Result<(Self, LogFile), StoreError> {
        let mut file = files.append()?;
        let index = load(&files)?;
        file.truncate(index.bytes())?;
        Ok((Self::of(files, Some(index), false), file))
    }

    fn of(files: ExecutionFiles, index: Option<LogIndex>, over: bool) -> Self {
        let last = index.as_ref().map_or(0, LogIndex::last);
        let position = watch::Sender::new(LogPosition { last, over });
        Self { files, index: Mutex::new(index), position }
    }

    fn index(&self) -> MutexGuard<'_, Option<LogIndex>> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its files.
    pub(super) fn files(&self) -> &ExecutionFiles {
        &self.files
    }

    /// How far it is, now and from now on.
    pub(super) fn position(&self) -> watch::Receiver<LogPosition> {
        self.position.subscribe()
    }

    /// Bytes of output in it.
    pub(super) fn output(&self) -> u64 {
        self.index().as_ref().map_or(0, LogIndex::output)
    }

    /// The ports that its events tell of.
    pub(super) fn ports(&self) -> Vec<OpenPort> {
        self.index().as_ref().map_or_else(Vec::new, |index| index.ports().to_vec())
    }

    /// Whether its last event is the last for good.
    pub(super) fn has_ended(&self) -> bool {
        self.index().as_ref().is_some_and(LogIndex::has_ended)
    }

    /// Whether a part of a line of this stream waits for its end.
    fn is_waiting(&self, stream: OutputStream) -> bool {
        self.index().as_ref().is_some_and(|index| index.is_waiting(stream))
    }

    /// Counts entries that are in the file now; returns their events, if they are `wanted` and few. They can
    /// be read from now on, but no reader is woken yet.
    fn append(&self, entries: Vec<(LogEntry, u64)>, wanted: bool) -> AppendedEvents {
        self.index().as_mut().map_or_else(AppendedEvents::default, |index| index.append(entries, wanted))
    }

    /// Wakes readers that wait for what was appended.
    fn advance(&self) {
        let last = self.index().as_ref().map_or(0, LogIndex::last);
        self.position.send_if_modified(|now| {
            let is_news = last > now.last;
            now.last = now.last.max(last);
            is_news
        });
    }

    /// Nothing more comes: says so to readers.
    pub(super) fn close(&self) {
        let last = self.index().as_mut().map_or(0, |index| {
            index.thin();
            index.last()
        });
        self.position.send_modify(|now| *now = LogPosition { last: now.last.max(last), over: true });
    }

    /// The events after `since`, at most `room` bytes of them, about, but one at least. With `join`, lines
    /// that were written at one time are one event, whose number is that of the last of them.
    ///
    /// # Errors
    /// The store's.
    pub(super) async fn page(
        self: &Arc<Self>,
        since: u64,
        room: usize,
        join: bool,
    ) -> Result<Page, StoreError> {
        self.read(PageRequest { since, room, join, tail: false }).await
    }

    /// The last of the events after `since`, joined, at most `room` bytes of them, about, but one at least.
    ///
    /// # Errors
    /// The store's.
    pub(super) async fn tail(self: &Arc<Self>, since: u64, room: usize) -> Result<Page, StoreError> {
        self.read(PageRequest { since, room, join: true, tail: true }).await
    }

    async fn read(self: &Arc<Self>, asked: PageRequest) -> Result<Page, StoreError> {
        let this = self.clone();
        blocking(move || this.read_blocking(asked)).await
    }

    fn read_blocking(&self, asked: PageRequest) -> Result<Page, StoreError> {
        if self.index().is_none() {
            let mut loaded = load(&self.files)?;
            loaded.thin();
            let last = self.index().get_or_insert(loaded).last();
            self.position.send_modify(|now| now.last = now.last.max(last));
        }
        let range = self.index().as_ref().and_then(|index| {
            if asked.tail { index.tail(asked.since, asked.room) } else { index.after(asked.since) }
        });
        let Some(range) = range else { return Ok(Page::default()) };
        let file = self.files.read()?;
        page::read(&file, range, asked).map_err(StoreError::io("cannot read what an execution wrote"))
    }
}

/// Reads a log from its beginning to the last whole entry.
fn load(files: &ExecutionFiles) -> Result<LogIndex, StoreError> {
    let file = files.read()?;
    let mut index = LogIndex::new();
    let read = page::read_all(&file, |entry| index.count(entry));
    read.map_err(StoreError::io("cannot read what an execution wrote"))?;
    Ok(index)
}

#[cfg(test)]
mod tests;
