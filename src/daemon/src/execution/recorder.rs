//! What the agent says of an execution, into its record.
//!
//! It must never let the agent forget what is not in the record.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use paddock_proto::Channel;
use tracing::warn;

use super::about::State;
use super::ending::Ending;
use super::event::Mark;
use super::record::Record;
use super::recording::Told;
use super::{Execution, Teller};
use crate::session::{Hearer, RunEnd, RunReport};
use crate::store::StoreError;

/// A line that stands so long without its end is told as it is: a prompt.
const PATIENCE: Duration = Duration::from_millis(50);

/// Hears one execution.
pub(super) struct Recorder {
    execution: Arc<Execution>,
    teller: Teller,
    /// Bytes that come again, and are in the record.
    again: u64,
    /// Since when what each stream has of a line waits for its end.
    waits: [Option<Instant>; 2],
    /// Why its record could not be gone on with.
    failed: Option<StoreError>,
}

impl Recorder {
    pub(super) fn new(execution: Arc<Execution>, teller: Teller) -> Self {
        Self { execution, teller, again: 0, waits: [None; 2], failed: None }
    }

    /// What its end is to those who hear of it.
    pub(super) fn ending(&self, report: &RunReport) -> Ending {
        let mut ending = Ending::of(&report.end, report.duration, self.execution.about.timeout);
        if let Some(error) = &self.failed {
            let message = format!("its output could not be kept, so it was ended: {error}");
            ending = Ending::error(State::Failed, message, ending.end.duration_ms);
        } else if let Some(error) = &report.unsaved {
            let message = format!(
                "the files that it made or changed are not saved: {error}; the next call saves them if it can"
            );
            ending.end.message = Some(message);
        }
        ending
    }

    fn is_wanted(&self) -> bool {
        self.teller.is_wanted(&self.execution)
    }

    fn told(&mut self, told: Result<Told, StoreError>) {
        match told {
            Ok(told) => self.teller.tell(&self.execution, &told),
            Err(error) => {
                // Output that is nowhere would be lost without a word: it ends here, and says why.
                warn!(execution_id = self.execution.id, %error, "the output of an execution cannot be kept; it is ended");
                self.execution.cancel.cancel();
                self.failed.get_or_insert(error);
            }
        }
    }
}

impl Hearer for Recorder {
    fn begun(&mut self) {
        let ready = self.execution.put(Record::Mark(Mark::Ready), self.is_wanted());
        self.told(ready);
    }

    fn go_on(&mut self, heard: u64) {
        let has = self.execution.output();
        self.again = has.saturating_sub(heard);
        if heard > has {
            let gap = self.execution.put(Record::Mark(Mark::Gap { bytes: heard - has }), self.is_wanted());
            self.told(gap);
        }
        // One that was killed between the two words of a beginning.
        if self.execution.progress().borrow().last == 0 {
            self.begun();
        }
    }

    fn take(&mut self, channel: Channel, bytes: Bytes) {
        let known = usize::try_from(self.again).unwrap_or(usize::MAX).min(bytes.len());
        self.again -= known as u64;
        if known == bytes.len() || self.failed.is_some() {
            return;
        }
        let events = self.execution.put(Record::Bytes(channel, bytes[known..].to_vec()), self.is_wanted());
        self.told(events);
        let since = &mut self.waits[usize::from(channel == Channel::Stderr)];
        if !self.execution.is_waiting(channel) {
            *since = None;
        } else if since.is_none() || memchr::memchr(b'\n', &bytes).is_some() {
            *since = Some(Instant::now());
        }
    }

    fn is_kept(&self) -> bool {
        true
    }

    fn ended(&mut self, end: &RunEnd, took: Duration) {
        let heard = Ending::of(end, took, self.execution.about.timeout);
        self.execution.note(None, Some(&heard));
    }

    fn due(&self) -> Option<Instant> {
        self.waits.iter().flatten().min().map(|since| *since + PATIENCE)
    }

    fn on_due(&mut self) {
        for (at, channel) in [Channel::Stdout, Channel::Stderr].into_iter().enumerate() {
            let is_due = self.waits[at].is_some_and(|since| since.elapsed() >= PATIENCE);
            if is_due {
                self.waits[at] = None;
            }
            if is_due && self.failed.is_none() && self.execution.is_waiting(channel) {
                let cut = self.execution.put(Record::Cut(channel, false), self.is_wanted());
                self.told(cut);
            }
        }
    }
}

/// Hears one that nobody can read of any more.
pub(super) struct Deaf;

impl Hearer for Deaf {
    fn go_on(&mut self, _: u64) {}

    fn take(&mut self, _: Channel, _: Bytes) {}

    fn is_kept(&self) -> bool {
        true
    }
}
