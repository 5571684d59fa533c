//! One execution: what it is, what was heard of it, how it stands, and the ways to tell it something.
//!
//! It must never be over before its last event can be read.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use paddock_proto::Channel;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::about::{About, End, Kept, State, now_ms};
use super::ending::Ending;
use super::event::Mark;
use super::record::Record;
use super::recording::{Page, Recording, Told, Wanted};
use crate::session::{Control, SessionError, SessionId};
use crate::store::{Space, StoreError, blocking};

/// Pieces of input that wait for a program that does not read.
const INPUT: usize = 2;

/// How long whoever sends input waits for room.
const ROOM_WITHIN: Duration = Duration::from_secs(5);

/// How far it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Progress {
    /// The number of its last event.
    pub last: u64,
    /// Whether it was the last for good.
    pub over: bool,
}

/// Why it cannot be told something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TellError {
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
    /// What it is.
    pub about: About,
    pub(super) space: Arc<Space>,
    inner: Mutex<Inner>,
    progress: watch::Sender<Progress>,
    pub(super) cancel: CancellationToken,
    ask: watch::Sender<Option<Duration>>,
    input: Mutex<Option<mpsc::Sender<Option<Bytes>>>>,
}

struct Inner {
    /// `None` until somebody asks for what an earlier daemon kept.
    recording: Option<Recording>,
    end: Option<End>,
    /// Why it could not begin.
    refusal: Option<SessionError>,
}

impl Execution {
    pub(super) fn new(
        id: String,
        (owner, session): (String, SessionId),
        about: About,
        space: Arc<Space>,
        recording: Option<Recording>,
        end: Option<End>,
    ) -> Self {
        let last = recording.as_ref().map_or(0, Recording::last);
        let progress = Progress { last, over: end.is_some() };
        Self {
            id,
            owner,
            session,
            about,
            space,
            inner: Mutex::new(Inner { recording, end, refusal: None }),
            progress: watch::Sender::new(progress),
            cancel: CancellationToken::new(),
            ask: watch::Sender::new(None),
            input: Mutex::new(None),
        }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What tells its program something from now on.
    pub(super) fn control(&self) -> Control {
        let stdin = self.about.interactive.then(|| {
            let (sender, receiver) = mpsc::channel(INPUT);
            *self.input.lock().unwrap_or_else(PoisonError::into_inner) = Some(sender);
            receiver
        });
        Control { cancel: self.cancel.clone(), ask: self.ask.subscribe(), stdin }
    }

    /// How it ended, once it has.
    pub fn end(&self) -> Option<End> {
        self.inner().end.clone()
    }

    /// How it stands.
    pub fn state(&self) -> State {
        self.inner().end.as_ref().map_or(State::Running, |end| end.state)
    }

    /// How far it is, now and from now on.
    pub fn progress(&self) -> watch::Receiver<Progress> {
        self.progress.subscribe()
    }

    /// Resolves when there is an event after `since`, or it is over.
    pub async fn news(&self, since: u64) {
        let _ = self.progress().wait_for(|now| now.over || now.last > since).await;
    }

    /// Resolves when it is over.
    pub async fn over(&self) {
        let _ = self.progress().wait_for(|now| now.over).await;
    }

    /// The events after `since`, at most `room` bytes of them, about, but one at least. With `join`, lines that were
    /// written at one time are one event, whose `seq` is that of the last of them.
    ///
    /// # Errors
    /// The store's.
    pub async fn page(self: &Arc<Self>, since: u64, room: usize, join: bool) -> Result<Page, StoreError> {
        self.load().await?;
        let wanted = self.inner().recording.as_ref().and_then(|recording| recording.page(since, room, join));
        self.read(wanted, Wanted::read).await
    }

    /// The last of the events after `since`, joined, at most `room` bytes of them, about, but one at least.
    ///
    /// # Errors
    /// The store's.
    pub async fn tail(self: &Arc<Self>, since: u64, room: usize) -> Result<Page, StoreError> {
        self.load().await?;
        let wanted = self.inner().recording.as_ref().and_then(|recording| recording.tail(since, room));
        self.read(wanted, Wanted::read_tail).await
    }

    async fn read(
        &self,
        wanted: Option<Wanted>,
        read: fn(Wanted) -> io::Result<Page>,
    ) -> Result<Page, StoreError> {
        let Some(wanted) = wanted else { return Ok(Page::default()) };
        let what = format!("cannot read what is kept of the execution {}", self.id);
        blocking(move || read(wanted).map_err(StoreError::io(what))).await
    }

    /// Reads what an earlier daemon kept, if nobody asked for it yet.
    async fn load(self: &Arc<Self>) -> Result<(), StoreError> {
        if self.inner().recording.is_none() {
            let this = self.clone();
            blocking(move || {
                let loaded = Recording::load(&this.space, &this.id, false)?;
                let mut inner = this.inner();
                let recording = inner.recording.get_or_insert(loaded);
                recording.close();
                let last = recording.last();
                drop(inner);
                this.progress.send_modify(|now| now.last = now.last.max(last));
                Ok(())
            })
            .await?;
        }
        Ok(())
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

    /// It cannot begin; whoever waits for it is told why.
    pub(super) fn refuse(&self, why: SessionError) {
        self.inner().refusal = Some(why);
    }

    /// Why it could not begin, if it could not; once.
    pub fn take_refusal(&self) -> Option<SessionError> {
        self.inner().refusal.take()
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
    /// See [`TellError`].
    pub async fn send(&self, piece: Option<Bytes>) -> Result<(), TellError> {
        if !self.about.interactive {
            return Err(TellError::NotInteractive);
        }
        let input = self.input.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let input = input.filter(|_| self.end().is_none()).ok_or(TellError::Finished)?;
        match tokio::time::timeout(ROOM_WITHIN, input.send(piece)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(TellError::Finished),
            Err(_) => Err(TellError::Full),
        }
    }

    /// Keeps a record; its events, if they are `wanted`.
    pub(super) fn put(&self, record: Record, wanted: bool) -> Result<Told, StoreError> {
        let mut inner = self.inner();
        let Some(recording) = &mut inner.recording else { return Ok(Told::default()) };
        let told = recording.put(record, now_ms(), wanted)?;
        let last = recording.last();
        drop(inner);
        self.progress.send_if_modified(|now| {
            let more = last > now.last;
            now.last = now.last.max(last);
            more
        });
        Ok(told)
    }

    /// Whether a part of a line of this stream waits for its end.
    pub(super) fn is_waiting(&self, channel: Channel) -> bool {
        self.inner().recording.as_ref().is_some_and(|recording| recording.is_waiting(channel))
    }

    /// Bytes of output that are kept.
    pub(crate) fn output(&self) -> u64 {
        self.inner().recording.as_ref().map_or(0, Recording::output)
    }

    /// It is over: its last marks are kept, then its end, and only then it is said.
    pub(super) fn finish(&self, marks: Vec<Mark>, end: End, wanted: bool) -> Told {
        let mut told = Told::default();
        for mark in marks {
            match self.put(Record::Mark(mark), wanted) {
                Ok(more) => told.add(more),
                Err(error) => {
                    warn!(execution_id = self.id, %error, "the end of an execution could not be kept")
                }
            }
        }
        self.note(Some(&end), None);
        let mut inner = self.inner();
        if let Some(recording) = &mut inner.recording {
            recording.close();
        }
        inner.end = Some(end);
        drop(inner);
        *self.input.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.progress.send_modify(|now| now.over = true);
        told
    }

    /// Notes on disk what it is, for a daemon that comes after this one.
    pub(super) fn note(&self, end: Option<&End>, heard: Option<&Ending>) {
        let kept = Kept { about: self.about.clone(), end: end.cloned(), heard: heard.cloned() };
        let noted = serde_json::to_vec(&kept).map_err(io::Error::from);
        let noted = noted.map_err(StoreError::io("cannot write what an execution is"));
        if let Err(error) = noted.and_then(|note| self.space.note_recording(&self.id, &note)) {
            warn!(execution_id = self.id, %error, "it could not be noted what an execution is");
        }
    }
}
