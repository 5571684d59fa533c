//! What a program wrote, for the answer of its call: the beginning and the end of each stream in memory, all
//! of it in a log if that is more than a model is shown. A run that writes less costs no write to the disk.
//!
//! It must never hold more in memory than twice its bound for each stream and what its agent has under way.

use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use paddock_proto::OutputStream;
use paddock_proto::frame::HEADER;
use paddock_proto::limits::WINDOW;

use crate::session::output::live::OutputBacklog;
use crate::session::output::run_log::{LogPiece, RunLog};
use crate::session::output::stream::CapturedStream;
use crate::session::run::follow::OutputSink;
use crate::store::{Space, WriteQueue};

/// Output that the agent keeps until it is in a log, as its window counts it, frame by frame: half of that,
/// since frames under way count too.
const HELD: u64 = (WINDOW / 2) as u64;

/// What a program wrote.
#[derive(Debug, Default)]
pub struct CapturedOutput {
    /// Its standard output.
    pub stdout: CapturedStream,
    /// Its standard error.
    pub stderr: CapturedStream,
    /// Whether the whole output is kept as a log.
    pub logged: bool,
}

/// Captures the output of one run.
pub(in crate::session) struct Capture {
    /// Bytes of both streams together, beyond which the output is kept as a log.
    shown: usize,
    /// Bytes of each stream that an answer has at most.
    bound: usize,
    streams: [CapturedStream; 2],
    /// All pieces so far, in their order, until there is a log.
    unlogged: Vec<Bytes>,
    /// What the output takes of the agent's window.
    held: u64,
    log: Option<WriteQueue<RunLog>>,
    space: Arc<Space>,
    run_id: String,
    backlog: Option<OutputBacklog>,
}

impl Capture {
    /// For a run of which an answer has at most `bound` bytes of each stream, and a model is shown `shown`
    /// bytes. Followers of `backlog` read the output while it is written.
    pub(in crate::session) fn new(
        space: Arc<Space>,
        run_id: &str,
        (bound, shown): (usize, usize),
        backlog: Option<OutputBacklog>,
    ) -> Self {
        Self {
            shown: shown.min(bound),
            bound,
            streams: [CapturedStream::within(bound), CapturedStream::within(bound)],
            unlogged: Vec::new(),
            held: 0,
            log: None,
            space,
            run_id: run_id.to_owned(),
            backlog,
        }
    }

    /// The queue in front of the log, which begins now if there was none.
    fn log(&mut self) -> &WriteQueue<RunLog> {
        let (space, unlogged) = (&self.space, &mut self.unlogged);
        self.log.get_or_insert_with(|| {
            let log = WriteQueue::new(RunLog::new(space.clone(), &self.run_id));
            log.push(std::mem::take(unlogged).into_iter().map(LogPiece::Output));
            log
        })
    }

    /// All of it, once the log is written.
    pub(in crate::session) async fn finish(mut self) -> CapturedOutput {
        self.backlog = None;
        if self.streams.iter().any(|stream| stream.excerpt(self.bound).lossy) {
            self.log();
        }
        let mut logged = false;
        if let Some(log) = &self.log {
            log.written().await;
            let error = log.writer().take_error();
            logged = error.is_none();
            if let Some(error) = error {
                tracing::warn!(run_id = self.run_id, %error, "the whole output of a run could not be kept");
            }
        }
        let [stdout, stderr] = self.streams;
        CapturedOutput { stdout, stderr, logged }
    }
}

impl OutputSink for Capture {
    fn resumed(&mut self, heard: u64) {
        self.log().push([LogPiece::Resumed(heard)]);
    }

    fn take(&mut self, stream: OutputStream, bytes: Bytes) {
        if let Some(backlog) = &self.backlog {
            backlog.append(stream, &bytes);
        }
        self.streams[stream.index()].take(&bytes);
        if let Some(log) = &self.log {
            log.push([LogPiece::Output(bytes)]);
            return;
        }
        self.held += (HEADER + bytes.len()) as u64;
        self.unlogged.push(bytes);
        let wrote: u64 = self.streams.iter().map(CapturedStream::bytes).sum();
        if wrote > self.shown as u64 || self.held > HELD {
            self.log();
        }
    }

    fn is_kept(&self) -> bool {
        self.log.as_ref().is_some_and(WriteQueue::is_written)
    }

    fn poll_written(&self, context: &mut Context<'_>) -> Poll<()> {
        self.log.as_ref().map_or(Poll::Ready(()), |log| log.poll_written(context))
    }

    fn poll_room(&self, context: &mut Context<'_>) -> Poll<()> {
        self.backlog.as_ref().map_or(Poll::Ready(()), |backlog| backlog.poll_room(context))
    }
}

#[cfg(test)]
#[path = "capture_tests.rs"]
mod tests;
