//! Makes numbered events of the entries of a log. The same entries make the same events, with the same
//! numbers, for every reader: after a lost connection, after a restart.

use paddock_proto::OutputStream;

use super::entry::LogEntry;
use super::event::{EventBody, ExecutionEvent};
use super::lines::LineSplitter;

/// Where the reading of a log stands: the number of the next event, and what of lines has not ended.
#[derive(Debug, Clone)]
pub(super) struct EventDecoder {
    streams: [LineSplitter; 2],
    next: u64,
}

impl EventDecoder {
    /// At the beginning of a log.
    pub(super) fn new() -> Self {
        Self { streams: Default::default(), next: 1 }
    }

    /// The number of the next event.
    pub(super) fn next(&self) -> u64 {
        self.next
    }

    /// Whether a stream has a part of a line that waits for its end.
    pub(super) fn is_waiting(&self, stream: OutputStream) -> bool {
        self.streams[stream.index()].is_waiting()
    }

    /// Bytes of lines that wait for their ends.
    pub(super) fn waiting(&self) -> usize {
        self.streams.iter().map(LineSplitter::waiting).sum()
    }

    /// Goes on behind an entry, as [`EventDecoder::read`], without making its events.
    pub(super) fn count(&mut self, entry: &LogEntry) {
        let Self { streams, next } = self;
        match entry {
            LogEntry::Output(stream, bytes) => *next += streams[stream.index()].count(bytes),
            LogEntry::Cut(stream, all) => *next += u64::from(streams[stream.index()].cut(*all).is_some()),
            LogEntry::Lifecycle(_) => {
                let cuts = streams.iter_mut().filter_map(|lines| lines.cut(true)).count();
                *next += cuts as u64 + 1;
            }
        }
    }

    /// Goes on behind an entry, and gives each of its events.
    pub(super) fn read(&mut self, entry: LogEntry, at_ms: u64, mut each: impl FnMut(ExecutionEvent)) {
        let Self { streams, next } = self;
        let mut event = |body| {
            each(ExecutionEvent { seq: *next, at_ms, body });
            *next += 1;
        };
        match entry {
            LogEntry::Output(stream, bytes) => {
                streams[stream.index()].take(&bytes, |line| event(EventBody::line(stream, line)));
            }
            LogEntry::Cut(stream, all) => {
                streams[stream.index()]
                    .cut(all)
                    .into_iter()
                    .for_each(|line| event(EventBody::line(stream, line)));
            }
            LogEntry::Lifecycle(step) => {
                for stream in OutputStream::BOTH {
                    let rest = streams[stream.index()].cut(true);
                    rest.into_iter().for_each(|line| event(EventBody::line(stream, line)));
                }
                event(EventBody::Lifecycle(step));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use proptest::prelude::*;

    use super::super::event::Lifecycle;
    use super::*;

    const OUT: OutputStream = OutputStream::Stdout;
    const ERR: OutputStream = OutputStream::Stderr;

    fn events(mut bytes: &[u8]) -> Vec<ExecutionEvent> {
        let (mut decoder, mut events) = (EventDecoder::new(), Vec::new());
        while let Some((entry, at_ms, length)) = LogEntry::decode(bytes) {
            decoder.read(entry, at_ms, |event| events.push(event));
            bytes = &bytes[length..];
        }
        events
    }

    #[test]
    fn a_log_gives_the_same_events_each_time_and_none_of_half_an_entry() {
        let mut file = Vec::new();
        let output = |stream, bytes: &'static [u8]| LogEntry::Output(stream, Bytes::from_static(bytes));
        for (at_ms, entry) in (1..).zip([
            LogEntry::Lifecycle(Lifecycle::Ready),
            output(OUT, b"one\ntw"),
            output(ERR, b"name: "),
            LogEntry::Cut(ERR, false),
            output(OUT, b"o\nthree"),
            LogEntry::Lifecycle(Lifecycle::Exit { code: 0, duration_ms: 5 }),
        ]) {
            entry.encode(at_ms, &mut file);
        }
        let line = |stream, text: &str, eol| EventBody::Output { stream, bytes: text.into(), eol };
        let expected = [
            (1, EventBody::Lifecycle(Lifecycle::Ready)),
            (2, line(OUT, "one", true)),
            (4, line(ERR, "name: ", false)),
            (5, line(OUT, "two", true)),
            (6, line(OUT, "three", false)),
            (6, EventBody::Lifecycle(Lifecycle::Exit { code: 0, duration_ms: 5 })),
        ];
        let expected: Vec<_> =
            (1..).zip(expected).map(|(seq, (at_ms, body))| ExecutionEvent { seq, at_ms, body }).collect();
        assert_eq!(events(&file), expected);
        for end in 0..file.len() {
            let before = events(&file[..end]);
            assert_eq!(before, expected[..before.len()], "of {end} bytes");
        }
    }

    proptest! {
        #[test]
        fn counting_is_reading_without_events(
            pieces in proptest::collection::vec(
                (any::<bool>(), any::<bool>(), 0_usize..70_000, 1_usize..70_000),
                0..8,
            ),
        ) {
            let (mut counting, mut reading, mut read) = (EventDecoder::new(), EventDecoder::new(), 0);
            for (err, cut, length, line) in pieces {
                let stream = if err { ERR } else { OUT };
                let bytes = (0..length).map(|at| if at % line == line - 1 { b'\n' } else { 0xE2 }).collect();
                let entry = match cut {
                    true => LogEntry::Cut(stream, length % 2 == 0),
                    false => LogEntry::Output(stream, bytes),
                };
                counting.count(&entry);
                reading.read(entry, 1, |_| read += 1);
                prop_assert_eq!((counting.next(), counting.waiting()), (reading.next(), reading.waiting()));
            }
            let last = LogEntry::Lifecycle(Lifecycle::Cancelled);
            counting.count(&last);
            reading.read(last, 1, |_| read += 1);
            prop_assert_eq!((counting.next(), reading.next()), (read + 1, read + 1));
        }
    }
}
