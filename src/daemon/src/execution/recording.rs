//! One execution's record while it grows and afterwards: written before it is told, read from any number on.
//!
//! ```text
//!  put ─► appended to the file ─► numbered events ─► the last of them in memory (TAIL)
//!  page ─► in memory? ─ no ─► the file, from the last place in the index before it
//! ```
//!
//! It must never tell an event that is not in the file, nor hold more than [`TAIL`] bytes of them.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use paddock_proto::Channel;

use super::event::{Event, What};
use super::record::{HEADER, LONGEST, Reader, Record};
use crate::store::{LogFile, Space, StoreError};

/// Bytes of events that are kept in memory while an execution runs, about.
const TAIL: usize = 256 * 1024;

/// The same once it is over.
const REST: usize = 16 * 1024;

/// From one place in the index to the next, in bytes of the file.
const STRIDE: u64 = 1 << 20;

/// The record of one execution.
pub(super) struct Recording {
    space: Arc<Space>,
    id: String,
    /// `None` once nothing more comes.
    file: Option<LogFile>,
    /// Bytes in the file.
    bytes: u64,
    /// Bytes of output in it.
    output: u64,
    reader: Reader,
    /// What to read from where: after a place nothing waits but half a character of each stream.
    index: Vec<(u64, Reader)>,
    tail: VecDeque<Event>,
    tail_bytes: usize,
}

/// Some events in a row.
#[derive(Debug, Default)]
pub struct Page {
    /// The events.
    pub events: Vec<Event>,
    /// Whether there are more behind them already.
    pub more: bool,
}

/// A part of the file that holds what is asked for.
struct Stretch {
    file: File,
    from: u64,
    to: u64,
    reader: Reader,
}

impl Recording {
    /// A new one.
    pub(super) fn begin(space: &Arc<Space>, id: &str) -> Result<Self, StoreError> {
        let file = space.recording(id)?;
        Ok(Self::at_its_beginning(space, id, Some(file)))
    }

    fn at_its_beginning(space: &Arc<Space>, id: &str, file: Option<LogFile>) -> Self {
        let reader = Reader::from(1);
        Self {
            space: space.clone(),
            id: id.to_owned(),
            file,
            bytes: 0,
            output: 0,
            index: vec![(0, reader.clone())],
            reader,
            tail: VecDeque::new(),
            tail_bytes: 0,
        }
    }

    /// What an earlier daemon wrote; `goes_on` if there is more to come. The part of a record at its end is taken back.
    pub(super) fn load(space: &Arc<Space>, id: &str, goes_on: bool) -> Result<Self, StoreError> {
        let what = || format!("cannot read what is kept of the execution {id}");
        let file = if goes_on { Some(space.recording(id)?) } else { None };
        let mut this = Self::at_its_beginning(space, id, file);
        let source = space.read_recording(id).map_err(StoreError::io(what()))?;
        let to = source.metadata().map_err(StoreError::io(what()))?.len();
        let stretch = Stretch { file: source, from: 0, to, reader: Reader::from(1) };
        let read = stretch.each(|record, at_ms, _| {
            this.number(record, at_ms);
            true
        });
        read.map_err(StoreError::io(what()))?;
        if let Some(file) = &mut this.file {
            file.truncate(this.bytes)?;
        }
        Ok(this)
    }

    /// Bytes of output, of both streams together.
    pub(super) fn output(&self) -> u64 {
        self.output
    }

    /// The number of the last event; 0 before the first.
    pub(super) fn last(&self) -> u64 {
        self.reader.next() - 1
    }

    /// Whether its last event is the last for good.
    pub(super) fn has_ended(&self) -> bool {
        self.tail.back().is_some_and(|event| match &event.what {
            What::Mark(mark) => mark.is_last(),
            What::Output { .. } => false,
        })
    }

    /// Which streams have a part of a line that waits.
    pub(super) fn waiting(&self) -> Vec<Channel> {
        self.reader.waiting().collect()
    }

    /// Keeps a record; the events that it makes.
    ///
    /// # Errors
    /// The store's: nothing of it is kept, and nothing told.
    pub(super) fn put(&mut self, record: Record, now_ms: u64) -> Result<Vec<Event>, StoreError> {
        let Some(file) = &mut self.file else { return Ok(Vec::new()) };
        let mut bytes = Vec::new();
        let stride = self.index.last().is_some_and(|(at, _)| self.bytes - at >= STRIDE);
        let cuts = if stride { self.reader.waiting().collect() } else { Vec::new() };
        let cuts: Vec<Record> = cuts.into_iter().map(|channel| Record::Cut(channel, false)).collect();
        cuts.iter().chain([&record]).for_each(|record| record.encode(now_ms, &mut bytes));
        if let Err(error) = file.append(&bytes) {
            let _ = file.truncate(self.bytes); // a part of it can be there
            return Err(error);
        }
        let first = self.reader.next();
        let mut events = Vec::new();
        for record in cuts.into_iter().chain([record]) {
            events.extend(self.number(record, now_ms));
        }
        debug_assert!(events.first().is_none_or(|event| event.seq == first), "numbers without a gap");
        Ok(events)
    }

    /// Counts and remembers a record that is in the file.
    fn number(&mut self, record: Record, at_ms: u64) -> Vec<Event> {
        if self.index.last().is_some_and(|(at, _)| self.bytes - at >= STRIDE)
            && self.reader.waiting().next().is_none()
        {
            self.index.push((self.bytes, self.reader.clone()));
        }
        self.bytes += record.length() as u64;
        if let Record::Bytes(_, bytes) = &record {
            self.output += bytes.len() as u64;
        }
        let mut events = Vec::new();
        self.reader.read(record, at_ms, |event| events.push(event));
        // What would not fit is not copied first.
        let mut room = TAIL;
        let fitting = events.iter().rev().take_while(|event| {
            room = room.saturating_sub(event.size());
            room > 0
        });
        let from = events.len() - fitting.count();
        if from > 0 {
            self.tail.clear();
            self.tail_bytes = 0;
        }
        for event in &events[from..] {
            self.tail_bytes += event.size();
            self.tail.push_back(event.clone());
        }
        self.shrink(TAIL);
        events
    }

    fn shrink(&mut self, to: usize) {
        while self.tail_bytes > to
            && let Some(event) = self.tail.pop_front()
        {
            self.tail_bytes -= event.size();
        }
    }

    /// Nothing more comes.
    pub(super) fn close(&mut self) {
        self.file = None;
        self.shrink(REST);
        self.tail.shrink_to_fit();
    }

    /// The events after `since`, as long as they have no more than `room` bytes together (but one at least); or what has to be
    /// read for them.
    pub(super) fn page(&self, since: u64, room: usize) -> Result<Page, Missing> {
        let last = self.last();
        if since >= last {
            return Ok(Page::default());
        }
        let first = self.tail.front().map_or(u64::MAX, |event| event.seq);
        if since.saturating_add(1) >= first {
            let skipped = usize::try_from(since.saturating_add(1) - first).unwrap_or(usize::MAX);
            let mut page = Filling::new(since, room);
            let _ = self.tail.iter().skip(skipped).all(|event| page.take(event.clone()));
            return Ok(page.done());
        }
        let at = self.index.partition_point(|(_, reader)| reader.next() <= since.saturating_add(1));
        let (from, reader) = self.index[at.saturating_sub(1)].clone();
        Err(Missing {
            space: self.space.clone(),
            id: self.id.clone(),
            from,
            to: self.bytes,
            reader,
            since,
            room,
        })
    }
}

/// What is not in memory any more.
pub(super) struct Missing {
    space: Arc<Space>,
    id: String,
    from: u64,
    to: u64,
    reader: Reader,
    since: u64,
    room: usize,
}

impl Missing {
    /// Reads it.
    ///
    /// # Errors
    /// What the file system says.
    pub(super) fn read(self) -> io::Result<Page> {
        let file = self.space.read_recording(&self.id)?;
        let mut page = Filling::new(self.since, self.room);
        let mut reader = self.reader.clone();
        Stretch { file, from: self.from, to: self.to, reader: self.reader }.each(|record, at_ms, _| {
            let mut goes_on = true;
            reader.read(record, at_ms, |event| goes_on = goes_on && page.take(event));
            goes_on
        })?;
        Ok(page.done())
    }
}

impl Stretch {
    /// Every whole record in it, until `each` says no.
    fn each(mut self, mut each: impl FnMut(Record, u64, &mut Reader) -> bool) -> io::Result<()> {
        let mut buffer = Vec::new();
        loop {
            let mut used = 0;
            while let Some((record, at_ms, length)) = Record::decode(&buffer[used..]) {
                used += length;
                if !each(record, at_ms, &mut self.reader) {
                    return Ok(());
                }
            }
            buffer.drain(..used);
            let left = usize::try_from(self.to.saturating_sub(self.from)).unwrap_or(usize::MAX);
            let want = left.min(HEADER + LONGEST);
            if want == 0 || buffer.len() > HEADER + LONGEST {
                return Ok(());
            }
            let had = buffer.len();
            buffer.resize(had + want, 0);
            let n = self.file.read_at(&mut buffer[had..], self.from)?;
            buffer.truncate(had + n);
            if n == 0 {
                return Ok(());
            }
            self.from += n as u64;
        }
    }
}

/// A page while it fills.
struct Filling {
    page: Page,
    since: u64,
    room: usize,
}

impl Filling {
    fn new(since: u64, room: usize) -> Self {
        Self { page: Page::default(), since, room }
    }

    /// False if it does not fit any more.
    fn take(&mut self, event: Event) -> bool {
        if event.seq <= self.since {
            return true;
        }
        let size = event.size();
        if size > self.room && !self.page.events.is_empty() {
            self.page.more = true;
            return false;
        }
        self.room = self.room.saturating_sub(size);
        self.page.events.push(event);
        true
    }

    fn done(self) -> Page {
        self.page
    }
}

#[cfg(test)]
mod tests;
