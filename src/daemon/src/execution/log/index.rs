//! What is in a log, without its bytes: how many events and how much output, and from where on to read for
//! any of them.
//!
//! A flood costs its index the count of its lines: nothing is held in memory but the lines that have not
//! ended, and a place every [`STRIDE`] bytes.

use paddock_proto::OutputStream;
use paddock_proto::limits::MAX_PORTS;

use super::decoder::EventDecoder;
use super::entry::LogEntry;
use super::event::{ExecutionEvent, Lifecycle};
use crate::ports::OpenPort;

/// Bytes of the file from one place in the index to the next, where lines are short.
const STRIDE: u64 = 64 * 1024;

/// A place is not put where longer lines than this wait for their ends, which would be part of it...
const LONG: usize = 4 * 1024;

/// ...unless there was none for so long. Also the distance of places once the execution has ended.
const LONG_STRIDE: u64 = 1 << 20;

/// Events of one write that subscribers receive, and their bytes. Of more they receive the numbers, and can
/// read them.
const NOTIFIED: u64 = 200;
const NOTIFIED_BYTES: usize = 32 * 1024;

/// The index of one log.
pub(super) struct LogIndex {
    /// Bytes in the file.
    bytes: u64,
    /// Bytes of output in it.
    output: u64,
    decoder: EventDecoder,
    /// From where on a reader can begin, and how reading stands there.
    places: Vec<(u64, EventDecoder)>,
    /// The ports that its events tell of, at most [`MAX_PORTS`].
    ports: Vec<OpenPort>,
    /// Whether its last event is the last for good.
    ended: bool,
}

/// Events that were appended: from one number to another, and the events themselves if they are wanted and
/// few.
#[derive(Debug, Default)]
pub(in crate::execution) struct AppendedEvents {
    /// The number of the first.
    pub(in crate::execution) first: u64,
    /// The number of the last; before the first where there is none.
    pub(in crate::execution) last: u64,
    /// All of them, or none.
    pub(in crate::execution) events: Vec<ExecutionEvent>,
}

impl AppendedEvents {
    pub(in crate::execution) fn is_empty(&self) -> bool {
        self.last < self.first || self.last == 0
    }
}

/// From where to where a reader reads.
pub(super) struct ReadRange {
    pub(super) from: u64,
    pub(super) to: u64,
    pub(super) decoder: EventDecoder,
}

impl LogIndex {
    /// Of an empty log.
    pub(super) fn new() -> Self {
        let decoder = EventDecoder::new();
        let places = vec![(0, decoder.clone())];
        Self { bytes: 0, output: 0, places, decoder, ports: Vec::new(), ended: false }
    }

    /// Bytes in the file.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes of output, of both streams together.
    pub(super) fn output(&self) -> u64 {
        self.output
    }

    /// The number of the last event; 0 before the first.
    pub(super) fn last(&self) -> u64 {
        self.decoder.next() - 1
    }

    /// The ports that its events tell of.
    pub(super) fn ports(&self) -> &[OpenPort] {
        &self.ports
    }

    /// Whether its last event is the last for good.
    pub(super) fn has_ended(&self) -> bool {
        self.ended
    }

    /// Whether a part of a line of this stream waits for its end.
    pub(super) fn is_waiting(&self, stream: OutputStream) -> bool {
        self.decoder.is_waiting(stream)
    }

    /// Counts entries that are in the file now.
    pub(super) fn append(&mut self, entries: Vec<(LogEntry, u64)>, wanted: bool) -> AppendedEvents {
        let before = wanted.then(|| self.decoder.clone());
        let first = self.decoder.next();
        entries.iter().for_each(|(entry, _)| self.count(entry));
        let mut appended = AppendedEvents { first, last: self.last(), events: Vec::new() };
        if let Some(mut decoder) = before.filter(|_| appended.last + 1 - first <= NOTIFIED) {
            for (entry, at_ms) in entries {
                decoder.read(entry, at_ms, |event| appended.events.push(event));
            }
            if appended.events.iter().map(ExecutionEvent::size).sum::<usize>() > NOTIFIED_BYTES {
                appended.events = Vec::new();
            }
        }
        appended
    }

    /// Counts one entry that is in the file.
    pub(super) fn count(&mut self, entry: &LogEntry) {
        let behind = self.places.last().map_or(u64::MAX, |(at, _)| self.bytes - at);
        if behind >= LONG_STRIDE || (behind >= STRIDE && self.decoder.waiting() <= LONG) {
            self.places.push((self.bytes, self.decoder.clone()));
        }
        self.bytes += entry.length() as u64;
        if let LogEntry::Output(_, bytes) = entry {
            self.output += bytes.len() as u64;
        }
        if let LogEntry::Lifecycle(Lifecycle::Port(open)) = entry
            && self.ports.len() < MAX_PORTS
        {
            self.ports.push(open.clone());
        }
        self.ended = matches!(entry, LogEntry::Lifecycle(step) if step.is_last());
        self.decoder.count(entry);
    }

    /// Nothing more comes: fewer places will do.
    pub(super) fn thin(&mut self) {
        let mut next = 0;
        self.places.retain(|(at, _)| {
            let keep = *at >= next;
            next = if keep { at + LONG_STRIDE } else { next };
            keep
        });
        self.places.shrink_to_fit();
    }

    /// Where the events after `since` are; `None` if there are none.
    pub(super) fn after(&self, since: u64) -> Option<ReadRange> {
        let at = self.places.partition_point(|(_, decoder)| decoder.next() <= since.saturating_add(1));
        self.range(at, since)
    }

    /// Where the last of the events after `since` are, in `room` bytes and some before them; `None` if there
    /// are none.
    pub(super) fn tail(&self, since: u64, room: usize) -> Option<ReadRange> {
        let from = self.bytes.saturating_sub(room as u64);
        let at = self.places.partition_point(|(at, _)| *at <= from);
        self.range(at, since)
    }

    /// From the place before `at` to the end.
    fn range(&self, at: usize, since: u64) -> Option<ReadRange> {
        if since >= self.last() {
            return None;
        }
        let (from, decoder) = self.places[at.saturating_sub(1)].clone();
        Some(ReadRange { from, to: self.bytes, decoder })
    }

    #[cfg(test)]
    pub(super) fn places(&self) -> usize {
        self.places.len()
    }
}
