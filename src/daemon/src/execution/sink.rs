//! Takes what the agent says of an execution into its log.
//!
//! It must never let the agent forget what is not in the log.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use paddock_proto::OutputStream;
use paddock_proto::limits::MAX_PORTS;
use paddock_proto::message::{Entry, EntryKind};
use tokio::time::Instant;

use super::Execution;
use super::end::{Conclusion, ExecutionState, NotSaved};
use super::log::entry::LogEntry;
use super::log::event::Lifecycle;
use crate::agents::is_of_agents;
use crate::egress::{Destination, NetworkView};
use crate::ports::{OpenPort, PortLinks};
use crate::session::{OutputBacklog, OutputSink, RunEnd, RunReport};

/// A line that stands so long without its end is told as it is: a prompt.
const PATIENCE: Duration = Duration::from_millis(50);

/// Files that are noted of a task; the session lists all that it has.
const CHANGED: usize = 1000;

/// Files that are noted of a task that they are not saved.
const NOT_SAVED: usize = 50;

/// Takes the output of one execution.
pub(super) struct ExecutionSink {
    execution: Arc<Execution>,
    backlog: Option<OutputBacklog>,
    /// Bytes that come again, and are in the log already.
    again: u64,
    /// Since when the last line of each stream has no end.
    unended: [Option<Instant>; 2],
    links: Arc<PortLinks>,
    /// The ports whose events are in the log, or on their way there.
    ports: BTreeSet<u16>,
}

impl ExecutionSink {
    /// The sink of this execution; it holds the program back for lossless followers of `backlog`.
    pub(super) fn new(
        execution: Arc<Execution>,
        backlog: Option<OutputBacklog>,
        links: Arc<PortLinks>,
    ) -> Self {
        Self { execution, backlog, again: 0, unended: [None; 2], links, ports: BTreeSet::new() }
    }

    /// A port on which a server can be, with its link.
    fn open_port(&self, port: u16) -> Option<OpenPort> {
        let Execution { owner, session, .. } = &*self.execution;
        (port != 0).then(|| self.links.link(owner, session, port))
    }

    /// The execution's conclusion, once everything that it wrote is in the log or has failed.
    pub(super) async fn conclusion(&self, report: &RunReport) -> Conclusion {
        let mut conclusion = Conclusion::of(&report.end, report.duration, &self.execution.spec);
        if let Some(error) = self.execution.log_error().await {
            let message = format!("its output could not be kept, so it was ended: {error}");
            conclusion = Conclusion::error(ExecutionState::Failed, message, conclusion.end.duration_ms);
        } else if let Some(unsaved) = &report.unsaved {
            let unsaved = format!("the files that it made or changed are not saved: {unsaved}");
            let before = conclusion.end.message.map(|message| format!("{message}; ")).unwrap_or_default();
            conclusion.end.message = Some(before + &unsaved);
        }
        conclusion.end.network.clone_from(&report.network);
        conclusion.end.models = report.models;
        if self.execution.spec.task.is_some() {
            conclusion.end.changed =
                report.changed.iter().filter(|entry| is_of_task(entry)).take(CHANGED).cloned().collect();
            conclusion.end.not_saved = report.not_saved.iter().take(NOT_SAVED).map(not_saved).collect();
        }
        conclusion
    }
}

impl OutputSink for ExecutionSink {
    fn begun(&mut self) {
        self.execution.append([LogEntry::Lifecycle(Lifecycle::Ready)]);
    }

    fn resumed(&mut self, heard: u64) {
        self.ports = self.execution.log.ports().iter().map(|open| open.port).collect();
        let has = self.execution.output();
        self.again = has.saturating_sub(heard);
        if heard > has {
            self.execution.append([LogEntry::Lifecycle(Lifecycle::Gap { bytes: heard - has })]);
        } else if self.execution.last_event() == 0 {
            self.begun(); // the daemon before was killed between the two words of a beginning
        }
    }

    fn has_network(&mut self, network: NetworkView) {
        self.execution.set_network(network);
    }

    fn blocked(&mut self, destination: Destination) {
        let Destination { host, port, allowed, reason, .. } = destination;
        let reason = reason.unwrap_or_default();
        self.execution.append([LogEntry::Lifecycle(Lifecycle::Network { host, port, allowed, reason })]);
    }

    fn listens(&mut self, port: u16) {
        if self.ports.len() >= MAX_PORTS || !self.ports.insert(port) {
            return; // a proper agent says each port once, and no more of them
        }
        if let Some(open) = self.open_port(port) {
            self.execution.append([LogEntry::Lifecycle(Lifecycle::Port(open))]);
        }
    }

    fn take(&mut self, stream: OutputStream, mut bytes: Bytes) {
        let known = usize::try_from(self.again).unwrap_or(usize::MAX).min(bytes.len());
        self.again -= known as u64;
        let bytes = bytes.split_off(known);
        let Some(last) = bytes.last() else { return };
        let unended = &mut self.unended[stream.index()];
        if *last == b'\n' {
            *unended = None;
        } else if unended.is_none() || memchr::memchr(b'\n', &bytes).is_some() {
            *unended = Some(Instant::now());
        }
        self.execution.append([LogEntry::Output(stream, bytes)]);
    }

    fn poll_written(&self, context: &mut Context<'_>) -> Poll<()> {
        self.execution.poll_written(context)
    }

    fn is_kept(&self) -> bool {
        self.execution.is_written()
    }

    fn poll_room(&self, context: &mut Context<'_>) -> Poll<()> {
        self.backlog.as_ref().map_or(Poll::Ready(()), |backlog| backlog.poll_room(context))
    }

    fn ended(&mut self, end: &RunEnd, took: Duration) {
        let mut conclusion = Conclusion::of(end, took, &self.execution.spec);
        conclusion.end.network = self.execution.network().unwrap_or_default();
        conclusion.end.models = self.execution.model_usage();
        self.execution.note(conclusion);
    }

    fn due(&self) -> Option<Instant> {
        self.unended.iter().flatten().min().map(|since| *since + PATIENCE)
    }

    fn on_due(&mut self) {
        for stream in OutputStream::BOTH {
            let unended = &mut self.unended[stream.index()];
            if unended.take_if(|since| since.elapsed() >= PATIENCE).is_some() {
                self.execution.append([LogEntry::Cut(stream, false)]);
            }
        }
    }
}

/// A file that stays in the container, as it is told.
fn not_saved((path, reason): &(Vec<u8>, &'static str)) -> NotSaved {
    NotSaved { path: String::from_utf8_lossy(path).into_owned(), reason: (*reason).to_owned() }
}

/// Whether an entry is a file of the task, and not what its agent keeps for itself.
fn is_of_task(entry: &Entry) -> bool {
    matches!(entry.kind, EntryKind::File(_)) && !is_of_agents(&entry.path)
}

/// Takes the output of a program that nobody can read any more.
pub(super) struct DiscardSink;

impl OutputSink for DiscardSink {
    fn resumed(&mut self, _: u64) {}

    fn take(&mut self, _: OutputStream, _: Bytes) {}

    fn is_kept(&self) -> bool {
        true
    }
}

#[cfg(test)]
#[path = "sink_tests.rs"]
mod tests;
