//! Appends to an execution's log, on a thread that may block, and then tells of it.
//!
//! It must never tell of an event that is not in the file, nor publish the last events of an execution: that
//! has to wait until its state has changed, see [`LogWriter::take_last_events`].

use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::ExecutionLog;
use super::entry::LogEntry;
use super::index::AppendedEvents;
use crate::execution::publish::EventPublisher;
use crate::execution::stored::StoredExecution;
use crate::session::OutputBacklog;
use crate::store::{LogFile, StoreError, WriteBatch};

/// Small entries are joined to one write of about so many bytes.
const JOINED: usize = 256 * 1024;

/// What is written.
pub(in crate::execution) enum LogItem {
    /// An entry of the log, and when it reached the daemon, in milliseconds since the epoch.
    Entry(LogEntry, u64),
    /// A description of the execution, which replaces the previous note.
    Note(Box<StoredExecution>),
    /// Nothing more comes.
    Close,
}

/// The writing side of one log.
pub(in crate::execution) struct LogWriter {
    id: String,
    log: Arc<ExecutionLog>,
    /// `None` once nothing more comes.
    file: Option<LogFile>,
    publisher: EventPublisher,
    /// For a follower of the output.
    backlog: Option<OutputBacklog>,
    /// Ends the execution.
    cancel: CancellationToken,
    /// Entries that are to be written next, and their bytes.
    group: EntryGroup,
    /// Why the output could not be kept.
    error: Option<StoreError>,
    /// The last events of the execution, which are not published yet.
    last_events: AppendedEvents,
}

#[derive(Default)]
struct EntryGroup {
    entries: Vec<(LogEntry, u64)>,
    bytes: Vec<u8>,
    /// Whether these are steps, which are written beyond the store's bound: an execution that fills it still
    /// ends.
    steps: bool,
}

impl LogWriter {
    pub(in crate::execution) fn new(
        id: String,
        (log, file): (Arc<ExecutionLog>, LogFile),
        publisher: EventPublisher,
        backlog: Option<OutputBacklog>,
        cancel: CancellationToken,
    ) -> Self {
        Self {
            id,
            log,
            file: Some(file),
            publisher,
            backlog,
            cancel,
            group: EntryGroup::default(),
            error: None,
            last_events: AppendedEvents::default(),
        }
    }

    /// Why output could not be kept, if so; the execution was told to end then.
    pub(in crate::execution) fn take_error(&mut self) -> Option<StoreError> {
        self.error.take()
    }

    /// The last events, to be published now, and the publisher.
    pub(in crate::execution) fn take_last_events(&mut self) -> (&EventPublisher, AppendedEvents) {
        (&self.publisher, std::mem::take(&mut self.last_events))
    }

    fn add(&mut self, entry: LogEntry, at_ms: u64) {
        let is_step = matches!(entry, LogEntry::Lifecycle(_));
        let is_cut = matches!(entry, LogEntry::Cut(..));
        // Whether there is anything to cut is known once all before it is counted.
        if is_step != self.group.steps || is_cut || self.group.bytes.len() >= JOINED {
            self.flush();
        }
        if let LogEntry::Cut(stream, _) = &entry
            && !self.log.is_waiting(*stream)
        {
            return;
        }
        entry.encode(at_ms, &mut self.group.bytes);
        self.group.entries.push((entry, at_ms));
        self.group.steps = is_step;
    }

    fn flush(&mut self) {
        let EntryGroup { entries, bytes, steps } = std::mem::take(&mut self.group);
        let Some(file) = self.file.as_mut().filter(|_| !entries.is_empty()) else { return };
        if self.error.is_some() && !steps {
            return; // its output would have a hole
        }
        let written = if steps { file.append_last(&bytes) } else { file.append(&bytes) };
        if let Err(error) = written {
            return self.give_up(error);
        }
        if let Some(backlog) = &self.backlog {
            for (entry, _) in &entries {
                if let LogEntry::Output(stream, bytes) = entry {
                    backlog.append(*stream, bytes);
                }
            }
        }
        let ends =
            entries.iter().any(|(entry, _)| matches!(entry, LogEntry::Lifecycle(step) if step.is_last()));
        let appended = self.log.append(entries, self.publisher.is_wanted());
        if ends {
            self.last_events = appended;
        } else {
            self.log.advance();
            self.publisher.publish(&appended);
        }
        if let Some(file) = &mut self.file {
            file.write_behind();
        }
    }

    /// Output that is kept nowhere would be lost without a word: the execution ends here, and says why.
    fn give_up(&mut self, error: StoreError) {
        warn!(execution_id = self.id, %error, "the output of an execution cannot be kept; it is ended");
        self.cancel.cancel();
        self.error.get_or_insert(error);
    }

    fn note(&self, stored: &StoredExecution) {
        let written = serde_json::to_vec(stored).map_err(std::io::Error::from);
        let written = written.map_err(StoreError::io("cannot write what an execution is"));
        if let Err(error) = written.and_then(|note| self.log.files().write_note(&note)) {
            warn!(execution_id = self.id, %error, "the note of an execution could not be written");
        }
    }
}

impl WriteBatch for LogWriter {
    type Item = LogItem;

    fn write(&mut self, batch: Vec<LogItem>) {
        for item in batch {
            match item {
                LogItem::Entry(entry, at_ms) => self.add(entry, at_ms),
                LogItem::Note(stored) => {
                    self.flush();
                    self.note(&stored);
                }
                LogItem::Close => {
                    self.flush();
                    (self.file, self.backlog) = (None, None);
                }
            }
        }
        self.flush();
    }

    fn failed(&mut self) {
        self.group = EntryGroup::default();
        self.give_up(StoreError::panicked());
    }
}
