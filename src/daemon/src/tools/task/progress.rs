//! Reads a task while it goes on: what happened so far, and what happens next for a caller that listens.
//!
//! It must never hold more of the log than one page.

use std::sync::Arc;

use paddock_proto::OutputStream;

use crate::agents::{AgentEvent, Transcript};
use crate::execution::{EventBody, Execution, ExecutionEvent};
use crate::session::OutputBacklog;
use crate::store::StoreError;

/// Bytes of the log that are read at one time.
const PAGE: usize = 1 << 20;

/// A task's log, read from its beginning to where it is.
pub(super) struct TaskLog {
    /// What happened.
    pub(super) transcript: Transcript,
    /// The number of the last event that was read.
    last: u64,
}

impl TaskLog {
    /// The log of a task, of which nothing is read yet.
    pub(super) fn of(execution: &Execution) -> Self {
        Self { transcript: transcript(execution), last: 0 }
    }

    /// Reads the first page of what is new.
    pub(super) async fn read_page(&mut self, execution: &Execution) -> Result<(), StoreError> {
        let page = execution.page(self.last, PAGE, false).await?;
        self.take(page.events, |_| {});
        Ok(())
    }

    /// Reads up to the event of this number, and no further.
    pub(super) async fn read_to(&mut self, execution: &Execution, last: u64) -> Result<(), StoreError> {
        while self.last < last {
            let before = self.last;
            let mut page = execution.page(before, PAGE, false).await?;
            page.events.retain(|event| event.seq <= last);
            self.take(page.events, |_| {});
            if self.last == before {
                break; // there are no such events
            }
        }
        Ok(())
    }

    /// Reads what is new, and gives each event to `each`.
    pub(super) async fn read_on(
        &mut self,
        execution: &Execution,
        mut each: impl FnMut(&AgentEvent),
    ) -> Result<(), StoreError> {
        loop {
            let page = execution.page(self.last, PAGE, false).await?;
            self.take(page.events, &mut each);
            if !page.more {
                return Ok(());
            }
        }
    }

    fn take(&mut self, events: Vec<ExecutionEvent>, mut each: impl FnMut(&AgentEvent)) {
        for event in events {
            self.last = event.seq;
            if let EventBody::Output { stream, bytes, eol } = &event.body {
                let told = self.transcript.take(*stream, bytes, *eol);
                told.iter().flatten().for_each(&mut each);
            }
        }
    }
}

/// The transcript of a task, of which nothing is read yet.
fn transcript(execution: &Execution) -> Transcript {
    Transcript::of(execution.spec.task.as_ref().map_or("", |task| &task.agent))
}

/// Tells a caller that listens what the agent does, line by line, and resolves when the task is over.
pub(super) async fn follow(execution: &Arc<Execution>, listener: Option<&OutputBacklog>) {
    if let Some(listener) = listener {
        let mut log = TaskLog::of(execution);
        while execution.end().is_none() {
            execution.news(log.last).await;
            let told = log.read_on(execution, |event| {
                if let Some(line) = line(event) {
                    listener.append(OutputStream::Stdout, format!("{line}\n").as_bytes());
                }
            });
            // A log that cannot be read is the answer's to tell.
            if told.await.is_err() {
                break;
            }
        }
    }
    execution.over().await;
}

/// An event for a person to read.
pub(super) fn line(event: &AgentEvent) -> Option<String> {
    match event {
        AgentEvent::Message { text } => Some(text.clone()),
        AgentEvent::Tool { what, .. } => Some(format!("[{what}]")),
        AgentEvent::Denied { what, .. } => Some(format!("[denied: {what}]")),
        AgentEvent::Result(_) => None,
    }
}
