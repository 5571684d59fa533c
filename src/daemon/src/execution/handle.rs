//! One execution: what it is, its log, how it stands, and the ways to tell it something.
//!
//! It must never be over before its last event can be read.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::end::{Conclusion, ExecutionEnd, ExecutionState};
use super::log::entry::LogEntry;
use super::log::page::Page;
use super::log::writer::{LogItem, LogWriter};
use super::log::{ExecutionLog, LogPosition};
use super::publish::EventPublisher;
use super::stored::{ExecutionSpec, StoredExecution, now_ms};
use crate::egress::{Destination, ModelUsage, NetworkView};
use crate::ports::OpenPort;
use crate::session::{Control, OutputBacklog, SessionError, SessionId};
#[cfg(test)]
use crate::store::WriteBatch;
use crate::store::{LogFile, StoreClock, StoreError, WriteQueue};

/// Pieces of input that wait for a program that does not read.
const INPUT: usize = 2;

/// How long a caller that sends input waits until the program has read what was sent before.
const INPUT_WITHIN: Duration = Duration::from_secs(5);

/// Why an execution takes no input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InputError {
    /// It reads nothing.
    #[error("the execution is not interactive: it has no input; start it with `interactive` true")]
    NotInteractive,
    /// It is over.
    #[error("the execution is over")]
    Finished,
    /// What was sent before was not read.
    #[error("the program has not read what was sent before; send again when it has")]
    Full,
}

/// See the module documentation.
pub struct Execution {
    /// Its name: a UUID.
    pub id: String,
    /// Whose session it is in: the name of a token.
    pub owner: String,
    /// The session.
    pub session: SessionId,
    /// What it was asked for.
    pub spec: ExecutionSpec,
    pub(super) log: Arc<ExecutionLog>,
    /// `None` if it was over before this daemon started.
    writer: Option<WriteQueue<LogWriter>>,
    result: Mutex<ExecutionResult>,
    pub(super) cancel: CancellationToken,
    ask: watch::Sender<Option<Duration>>,
    input: Mutex<Option<mpsc::Sender<Option<Bytes>>>>,
    /// What it reaches outside, if its call asked for a network.
    network: OnceLock<NetworkView>,
}

/// How it came out.
#[derive(Default)]
struct ExecutionResult {
    end: Option<ExecutionEnd>,
    /// When this daemon saw it end; `None` if an earlier daemon did.
    seen_end: Option<Instant>,
    /// Why it could not begin.
    refusal: Option<SessionError>,
}

impl Execution {
    /// One that is under way: its log, and the file to append to. Output also goes to `backlog`, and `cancel`
    /// ends it.
    pub(super) fn running(
        id: String,
        (owner, session): (String, SessionId),
        spec: ExecutionSpec,
        (log, file): (ExecutionLog, LogFile),
        publisher: EventPublisher,
        backlog: Option<OutputBacklog>,
        cancel: CancellationToken,
    ) -> Self {
        let log = Arc::new(log);
        let writer = LogWriter::new(id.clone(), (log.clone(), file), publisher, backlog, cancel.clone());
        Self {
            writer: Some(WriteQueue::new(writer)),
            cancel,
            ..Self::of((id, owner, session), spec, log, None)
        }
    }

    /// One that was over before this daemon started.
    pub(super) fn over_before(
        id: String,
        (owner, session): (String, SessionId),
        spec: ExecutionSpec,
        log: ExecutionLog,
        end: ExecutionEnd,
    ) -> Self {
        Self::of((id, owner, session), spec, Arc::new(log), Some(end))
    }

    fn of(
        (id, owner, session): (String, String, SessionId),
        spec: ExecutionSpec,
        log: Arc<ExecutionLog>,
        end: Option<ExecutionEnd>,
    ) -> Self {
        Self {
            id,
            owner,
            session,
            spec,
            log,
            writer: None,
            result: Mutex::new(ExecutionResult { end, ..ExecutionResult::default() }),
            cancel: CancellationToken::new(),
            ask: watch::Sender::new(None),
            input: Mutex::new(None),
            network: OnceLock::new(),
        }
    }

    fn result(&self) -> MutexGuard<'_, ExecutionResult> {
        self.result.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What tells its program something from now on.
    pub(super) fn control(&self) -> Control {
        let stdin = self.spec.interactive.then(|| {
            let (sender, receiver) = mpsc::channel(INPUT);
            *self.input.lock().unwrap_or_else(PoisonError::into_inner) = Some(sender);
            receiver
        });
        Control { cancel: self.cancel.clone(), ask: self.ask.subscribe(), stdin }
    }

    /// How it ended, once it has.
    pub fn end(&self) -> Option<ExecutionEnd> {
        self.result().end.clone()
    }

    pub(super) fn set_network(&self, network: NetworkView) {
        let _ = self.network.set(network);
    }

    /// Where it connected to, or tried to; `None` if it has no network, as far as that is known.
    pub fn network(&self) -> Option<Vec<Destination>> {
        let told = self.end().map(|end| end.network).filter(|network| !network.is_empty());
        told.or_else(|| self.network.get().map(NetworkView::destinations))
    }

    /// What it has used of models; `None` if that is nothing, as far as that is known.
    pub fn model_usage(&self) -> Option<ModelUsage> {
        let told = self.end().and_then(|end| end.models);
        told.or_else(|| self.network.get().and_then(NetworkView::model_usage))
    }

    /// The ports on which it began to listen, while it is under way: nothing listens after its end.
    pub fn ports(&self) -> Vec<OpenPort> {
        if self.end().is_some() {
            return Vec::new();
        }
        self.log.ports()
    }

    /// How long it has been over; `None` if it is under way.
    pub(super) fn since_end(&self, clock: &StoreClock) -> Option<Duration> {
        let result = self.result();
        let end = result.end.as_ref()?;
        Some(result.seen_end.map_or_else(|| clock.since_ms(end.completed_ms), |seen| seen.elapsed()))
    }

    /// How it stands.
    pub fn state(&self) -> ExecutionState {
        self.result().end.as_ref().map_or(ExecutionState::Running, |end| end.state)
    }

    /// Whether its session, and with it all that was kept of it, was removed.
    pub(super) fn is_gone(&self) -> bool {
        self.log.files().are_gone()
    }

    fn position(&self) -> watch::Receiver<LogPosition> {
        self.log.position()
    }

    /// The number of its last event; 0 before the first.
    pub fn last_event(&self) -> u64 {
        self.position().borrow().last
    }

    /// Resolves when there is an event after `since`, or it is over.
    pub async fn news(&self, since: u64) {
        let _ = self.position().wait_for(|now| now.over || now.last > since).await;
    }

    /// Resolves when it is over.
    pub async fn over(&self) {
        let _ = self.position().wait_for(|now| now.over).await;
    }

    /// The events after `since`, at most `room` bytes of them, about, but one at least. With `join`, lines
    /// that were written at one time are one event, whose `seq` is that of the last of them.
    ///
    /// # Errors
    /// The store's.
    pub async fn page(&self, since: u64, room: usize, join: bool) -> Result<Page, StoreError> {
        self.log.page(since, room, join).await
    }

    /// The last of the events after `since`, joined, at most `room` bytes of them, about, but one at least.
    ///
    /// # Errors
    /// The store's.
    pub async fn tail(&self, since: u64, room: usize) -> Result<Page, StoreError> {
        self.log.tail(since, room).await
    }

    /// Asks it to end (SIGTERM), and has it killed after `grace`; zero: at once. False if it is over.
    pub fn end_within(&self, grace: Duration) -> bool {
        if self.end().is_some() {
            return false;
        }
        if grace.is_zero() {
            self.cancel.cancel();
        } else {
            // Asked once is asked: each word to the agent takes a stream until the end.
            self.ask.send_if_modified(|asked| asked.is_none() && asked.replace(grace).is_none());
        }
        true
    }

    /// It cannot begin. The call that waits for it learns why.
    pub(super) fn refuse(&self, why: SessionError) {
        self.result().refusal = Some(why);
    }

    /// Why it could not begin, if it could not; once.
    pub fn take_refusal(&self) -> Option<SessionError> {
        self.result().refusal.take()
    }

    /// Resolves when somebody wants its end.
    pub(super) async fn told_to_end(&self) {
        let mut ask = self.ask.subscribe();
        tokio::select! {
            () = self.cancel.cancelled() => {}
            _ = ask.wait_for(Option::is_some) => {}
        }
    }

    /// Sends a piece of input, or, with `None`, the end of it.
    ///
    /// # Errors
    /// See [`InputError`].
    pub async fn send(&self, piece: Option<Bytes>) -> Result<(), InputError> {
        if !self.spec.interactive {
            return Err(InputError::NotInteractive);
        }
        let input = self.input.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let input = input.filter(|_| self.end().is_none()).ok_or(InputError::Finished)?;
        match tokio::time::timeout(INPUT_WITHIN, input.send(piece)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(InputError::Finished),
            Err(_) => Err(InputError::Full),
        }
    }

    fn push(&self, items: impl IntoIterator<Item = LogItem>) {
        if let Some(writer) = &self.writer {
            writer.push(items);
        }
    }

    /// Has entries appended to its log, as of now.
    pub(super) fn append(&self, entries: impl IntoIterator<Item = LogEntry>) {
        let now = now_ms();
        self.push(entries.into_iter().map(|entry| LogItem::Entry(entry, now)));
    }

    /// Has the end of its program noted on disk, for a daemon that comes after this one.
    pub(super) fn note(&self, conclusion: Conclusion) {
        self.push([self.noted(None, Some(conclusion))]);
    }

    /// What the execution is, as it is noted on disk.
    fn noted(&self, end: Option<ExecutionEnd>, conclusion: Option<Conclusion>) -> LogItem {
        LogItem::Note(Box::new(StoredExecution { spec: self.spec.clone(), end, conclusion }))
    }

    /// What is written last, in this order: a daemon that is killed in between leaves no last event without
    /// the end that it is the event of.
    fn last_items(&self, conclusion: Conclusion) -> Vec<LogItem> {
        let now = now_ms();
        let mut items = vec![self.noted(None, Some(conclusion.clone()))];
        let Conclusion { steps, end } = conclusion;
        items.extend(steps.into_iter().map(|step| LogItem::Entry(LogEntry::Lifecycle(step), now)));
        items.extend([self.noted(Some(end), None), LogItem::Close]);
        items
    }

    /// Writes what a daemon has written that is killed after so many of the last items; false if there are
    /// fewer.
    #[cfg(test)]
    pub(super) fn die_after(&self, items: usize, conclusion: Conclusion) -> bool {
        let mut all = self.last_items(conclusion);
        let are_enough = items <= all.len();
        all.truncate(items);
        self.push(all);
        are_enough
    }

    /// Ready once everything that was appended is on disk, or has failed.
    pub(super) fn poll_written(&self, context: &mut Context<'_>) -> Poll<()> {
        self.writer.as_ref().map_or(Poll::Ready(()), |writer| writer.poll_written(context))
    }

    /// Whether everything that was appended is on disk, or has failed.
    pub(super) fn is_written(&self) -> bool {
        self.writer.as_ref().is_none_or(WriteQueue::is_written)
    }

    /// Why its output could not be kept, if so, once everything that was appended is on disk or has failed.
    pub(super) async fn log_error(&self) -> Option<StoreError> {
        let writer = self.writer.as_ref()?;
        writer.written().await;
        writer.writer().take_error()
    }

    /// As if its log's writer had panicked.
    #[cfg(test)]
    pub(super) fn note_panic_of_writer(&self) {
        self.writer.iter().for_each(|writer| writer.writer().failed());
    }

    /// Bytes of output that are in its log.
    pub(crate) fn output(&self) -> u64 {
        self.log.output()
    }

    /// It is over. Its last events are written and its end is noted; then its state changes; and only then
    /// readers and subscribers are woken, so that none of them finds it still running.
    pub(super) async fn finish(&self, conclusion: Conclusion) {
        let end = conclusion.end.clone();
        self.push(self.last_items(conclusion));
        if let Some(writer) = &self.writer {
            writer.written().await;
        }
        {
            let mut result = self.result();
            (result.end, result.seen_end) = (Some(end), Some(Instant::now()));
        }
        *self.input.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.log.close();
        if let Some(writer) = &self.writer {
            let mut writer = writer.writer();
            let (publisher, last_events) = writer.take_last_events();
            publisher.publish(&last_events);
        }
    }
}
