//! One execution's record while it grows and afterwards: written before it is told, read from any number on.
//!
//! ```text
//!  put  ─► appended to the file ─► counted, line by line ─► a place in the index now and then
//!  page ─► the file, from the last place in the index before it ─► numbered events
//! ```
//!
//! Nothing is held in memory but the line that is not ended yet and the index; what was written a moment ago is in the
//! system's cache. Events are made for whoever reads them, so that a flood that nobody reads costs next to nothing. It must
//! never tell an event that is not in the file.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use paddock_proto::Channel;

use super::event::Event;
use super::record::{HEADER, LONGEST, Reader, Record};
use crate::store::{LogFile, Space, StoreError};

/// From one place in the index to the next, in bytes of the file, where lines are short.
const STRIDE: u64 = 64 * 1024;

/// Lines that are longer than this, and not ended, are not remembered at a place in the index...
const LONG: usize = 4 * 1024;

/// ...unless there was none for so long; also from one place to the next once nothing more comes.
const LONG_STRIDE: u64 = 1 << 20;

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
    /// What to read from where.
    index: Vec<(u64, Reader)>,
    /// Whether its last event is the last for good.
    ended: bool,
}

/// Events of one piece of output that whoever watches is told of, and their bytes; of more it is told that they are there.
const TOLD: u64 = 200;
const TOLD_BYTES: usize = 32 * 1024;

/// What whoever watches is told: from one number to another, and the events if they are few.
#[derive(Debug, Default)]
pub(super) struct Told {
    /// The number of the first.
    pub(super) first: u64,
    /// The number of the last; before the first where there is none.
    pub(super) last: u64,
    /// All of them, or none.
    pub(super) events: Vec<Event>,
}

impl Told {
    pub(super) fn is_empty(&self) -> bool {
        self.last < self.first || self.last == 0
    }

    /// With what follows.
    pub(super) fn add(&mut self, more: Self) {
        if self.is_empty() {
            *self = more;
        } else if !more.is_empty() {
            self.last = more.last;
            self.events.extend(more.events);
        }
    }
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
            ended: false,
        }
    }

    /// What an earlier daemon wrote; `goes_on` if there is more to come. The part of a record at its end is taken back.
    pub(super) fn load(space: &Arc<Space>, id: &str, goes_on: bool) -> Result<Self, StoreError> {
        let what = || format!("cannot read what is kept of the execution {id}");
        let file = if goes_on { Some(space.recording(id)?) } else { None };
        let mut this = Self::at_its_beginning(space, id, file);
        let source = space.read_recording(id).map_err(StoreError::io(what()))?;
        let to = source.metadata().map_err(StoreError::io(what()))?.len();
        let stretch = Stretch { file: source, from: 0, to };
        let read = stretch.each(|record, _| {
            this.count(&record);
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
        self.ended
    }

    /// Whether a part of a line of this stream waits.
    pub(super) fn is_waiting(&self, channel: Channel) -> bool {
        self.reader.is_waiting(channel)
    }

    /// Keeps a record; the events that it makes, if they are `wanted` and few.
    ///
    /// # Errors
    /// The store's: nothing of it is kept, and nothing told.
    pub(super) fn put(&mut self, record: Record, now_ms: u64, wanted: bool) -> Result<Told, StoreError> {
        let Some(file) = &mut self.file else { return Ok(Told::default()) };
        let mut bytes = Vec::new();
        record.encode(now_ms, &mut bytes);
        match record {
            Record::Mark(_) => file.append_last(&bytes)?,
            Record::Bytes(..) | Record::Cut(..) => file.append(&bytes)?,
        }
        let before = wanted.then(|| self.reader.clone());
        let first = self.reader.next();
        self.count(&record);
        let mut told = Told { first, last: self.last(), events: Vec::new() };
        if let Some(mut reader) = before.filter(|_| told.last + 1 - first <= TOLD) {
            reader.read(record, now_ms, |event| told.events.push(event));
            if told.events.iter().map(Event::size).sum::<usize>() > TOLD_BYTES {
                told.events = Vec::new();
            }
        }
        Ok(told)
    }

    /// Counts a record that is in the file.
    fn count(&mut self, record: &Record) {
        let behind = self.index.last().map_or(u64::MAX, |(at, _)| self.bytes - at);
        if behind >= LONG_STRIDE || (behind >= STRIDE && self.reader.waits_for() <= LONG) {
            self.index.push((self.bytes, self.reader.clone()));
        }
        self.bytes += record.length() as u64;
        if let Record::Bytes(_, bytes) = record {
            self.output += bytes.len() as u64;
        }
        self.ended = matches!(record, Record::Mark(mark) if mark.is_last());
        self.reader.count(record);
    }

    /// Nothing more comes.
    pub(super) fn close(&mut self) {
        self.file = None;
        let mut next = 0;
        self.index.retain(|(at, _)| {
            let keep = *at >= next;
            next = if keep { at + LONG_STRIDE } else { next };
            keep
        });
        self.index.shrink_to_fit();
    }

    /// The events after `since`, as long as they have no more than `room` bytes together, but one at least: what has to be
    /// read for them; `None` if there are none. With `join`, lines that were written at one time are one event.
    pub(super) fn page(&self, since: u64, room: usize, join: bool) -> Option<Wanted> {
        let at = self.index.partition_point(|(_, reader)| reader.next() <= since.saturating_add(1));
        self.wanted(at, since, room, join)
    }

    /// The last of the events after `since`, in `room` bytes, joined.
    pub(super) fn tail(&self, since: u64, room: usize) -> Option<Wanted> {
        let from = self.bytes.saturating_sub(room as u64);
        let at = self.index.partition_point(|(at, _)| *at <= from);
        self.wanted(at, since, room, true)
    }

    /// From the place in the index before `at` on.
    fn wanted(&self, at: usize, since: u64, room: usize, join: bool) -> Option<Wanted> {
        if since >= self.last() {
            return None;
        }
        let (from, reader) = self.index[at.saturating_sub(1)].clone();
        Some(Wanted {
            space: self.space.clone(),
            id: self.id.clone(),
            from,
            to: self.bytes,
            reader,
            since,
            room,
            join,
        })
    }
}

/// Events that are to be read.
pub(super) struct Wanted {
    space: Arc<Space>,
    id: String,
    from: u64,
    to: u64,
    reader: Reader,
    since: u64,
    room: usize,
    join: bool,
}

impl Wanted {
    /// Reads it.
    ///
    /// # Errors
    /// What the file system says.
    pub(super) fn read(self) -> io::Result<Page> {
        let file = self.space.read_recording(&self.id)?;
        let mut page = Filling::new(self.since, self.room, self.join);
        let mut reader = self.reader;
        Stretch { file, from: self.from, to: self.to }.each(|record, at_ms| {
            let mut goes_on = true;
            reader.read(record, at_ms, |event| goes_on = goes_on && page.take(event));
            goes_on
        })?;
        Ok(page.done())
    }

    /// Reads all of it, and gives the last events that have room.
    ///
    /// # Errors
    /// What the file system says.
    pub(super) fn read_tail(self) -> io::Result<Page> {
        let file = self.space.read_recording(&self.id)?;
        let (mut reader, mut last, mut bytes) = (self.reader, VecDeque::new(), 0);
        Stretch { file, from: self.from, to: self.to }.each(|record, at_ms| {
            reader.read(record, at_ms, |event| {
                if event.seq > self.since {
                    bytes += event.size();
                    last.push_back(event);
                }
                while bytes > self.room && last.len() > 1 {
                    bytes -= last.pop_front().map_or(0, |event| event.size());
                }
            });
            true
        })?;
        let mut page = Filling::new(self.since, usize::MAX, true);
        for event in last {
            page.take(event);
        }
        Ok(page.done())
    }
}

impl Stretch {
    /// Every whole record in it, until `each` says no.
    fn each(mut self, mut each: impl FnMut(Record, u64) -> bool) -> io::Result<()> {
        let mut buffer = Vec::new();
        loop {
            let mut used = 0;
            while let Some((record, at_ms, length)) = Record::decode(&buffer[used..]) {
                used += length;
                if !each(record, at_ms) {
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
    join: bool,
}

impl Filling {
    fn new(since: u64, room: usize, join: bool) -> Self {
        Self { page: Page::default(), since, room, join }
    }

    /// False if it does not fit any more.
    fn take(&mut self, event: Event) -> bool {
        if event.seq <= self.since {
            return true;
        }
        let joins = self.join && self.page.events.last().is_some_and(|before| before.goes_on_with(&event));
        let size = if joins { event.output_size() } else { event.size() };
        if size > self.room && !self.page.events.is_empty() {
            self.page.more = true;
            return false;
        }
        self.room = self.room.saturating_sub(size);
        match self.page.events.last_mut().filter(|_| joins) {
            Some(before) => before.join(event),
            None => self.page.events.push(event),
        }
        true
    }

    fn done(self) -> Page {
        self.page
    }
}

#[cfg(test)]
mod tests;
