//! Events that are read from a log: a page of them from any number on, or the last of them.
//!
//! It must never hold more events than the room that was given, nor read more of the file than it has to.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use super::entry::{HEADER, LONGEST, LogEntry};
use super::event::ExecutionEvent;
use super::index::ReadRange;

/// Some events in a row.
#[derive(Debug, Default)]
pub struct Page {
    /// The events.
    pub events: Vec<ExecutionEvent>,
    /// Whether there are more behind them already.
    pub more: bool,
}

/// Which events are asked for.
#[derive(Debug, Clone, Copy)]
pub(super) struct PageRequest {
    /// Those after this number.
    pub(super) since: u64,
    /// Bytes that they may have together, about; one event is always given.
    pub(super) room: usize,
    /// Whether lines that were written at one time are one event.
    pub(super) join: bool,
    /// Whether the last of them are asked for, not the first.
    pub(super) tail: bool,
}

/// Reads the events that are asked for.
///
/// # Errors
/// What the file system says.
pub(super) fn read(file: &File, range: ReadRange, asked: PageRequest) -> io::Result<Page> {
    if asked.tail { read_tail(file, range, asked) } else { read_first(file, range, asked) }
}

fn read_first(file: &File, range: ReadRange, asked: PageRequest) -> io::Result<Page> {
    let mut page = PageBuilder::new(asked);
    let ReadRange { from, to, mut decoder } = range;
    entries(file, (from, to), |entry, at_ms| {
        let mut goes_on = true;
        decoder.read(entry, at_ms, |event| goes_on = goes_on && page.take(event));
        goes_on
    })?;
    Ok(page.page)
}

fn read_tail(file: &File, range: ReadRange, asked: PageRequest) -> io::Result<Page> {
    let ReadRange { from, to, mut decoder } = range;
    let (mut last, mut bytes) = (VecDeque::new(), 0);
    entries(file, (from, to), |entry, at_ms| {
        decoder.read(entry, at_ms, |event| {
            if event.seq > asked.since {
                bytes += event.size();
                last.push_back(event);
            }
            while bytes > asked.room && last.len() > 1 {
                bytes -= last.pop_front().map_or(0, |event: ExecutionEvent| event.size());
            }
        });
        true
    })?;
    let mut page = PageBuilder::new(PageRequest { room: usize::MAX, ..asked });
    for event in last {
        page.take(event);
    }
    Ok(page.page)
}

/// Gives every whole entry of a part of the file to `each`, until that says no.
pub(super) fn entries(
    file: &File,
    (mut from, to): (u64, u64),
    mut each: impl FnMut(LogEntry, u64) -> bool,
) -> io::Result<()> {
    let mut buffer = Vec::new();
    loop {
        let mut used = 0;
        while let Some((entry, at_ms, length)) = LogEntry::decode(&buffer[used..]) {
            used += length;
            if !each(entry, at_ms) {
                return Ok(());
            }
        }
        buffer.drain(..used);
        let left = usize::try_from(to.saturating_sub(from)).unwrap_or(usize::MAX);
        let want = left.min(HEADER + LONGEST);
        if want == 0 || buffer.len() > HEADER + LONGEST {
            return Ok(());
        }
        let had = buffer.len();
        buffer.resize(had + want, 0);
        let n = file.read_at(&mut buffer[had..], from)?;
        buffer.truncate(had + n);
        if n == 0 {
            return Ok(());
        }
        from += n as u64;
    }
}

/// A page while it fills.
struct PageBuilder {
    page: Page,
    asked: PageRequest,
}

impl PageBuilder {
    fn new(asked: PageRequest) -> Self {
        Self { page: Page::default(), asked }
    }

    /// Takes an event; false if there is no room for it.
    fn take(&mut self, event: ExecutionEvent) -> bool {
        if event.seq <= self.asked.since {
            return true;
        }
        let before = self.page.events.last_mut();
        let joined = before.filter(|before| self.asked.join && before.goes_on_with(&event));
        let size = if joined.is_some() { event.output_size() } else { event.size() };
        let Some(room) = self.asked.room.checked_sub(size) else {
            if self.page.events.is_empty() {
                self.asked.room = 0;
                self.page.events.push(event);
                return true;
            }
            self.page.more = true;
            return false;
        };
        self.asked.room = room;
        match joined {
            Some(before) => before.join(event),
            None => self.page.events.push(event),
        }
        true
    }
}

/// Reads a whole log: its entries up to the first that is not whole.
pub(super) fn read_all(file: &File, mut each: impl FnMut(&LogEntry)) -> io::Result<()> {
    let to = file.metadata()?.len();
    entries(file, (0, to), |entry, _| {
        each(&entry);
        true
    })
}
