//! Logs that are read from anywhere, while they grow and after a restart.

use bytes::Bytes;

use super::decoder::EventDecoder;
use super::event::{EventBody, ExecutionEvent, Lifecycle};
use super::*;
use crate::store::{Amount, Options, Quota, Space, Store};

const OUT: OutputStream = OutputStream::Stdout;
const ERR: OutputStream = OutputStream::Stderr;

struct Stand {
    _root: tempfile::TempDir,
    space: Arc<Space>,
}

impl Stand {
    async fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let quota = Quota { bytes: 1 << 20, entries: 100, file: 1 << 20 };
        let total = Amount { bytes: 1 << 30, entries: 1 << 30 };
        let store = Store::open(root.path(), Options { quota, total }).unwrap();
        let space = Arc::new(store).space("o", "s").await.unwrap();
        Self { _root: root, space }
    }

    fn files(&self, id: &str) -> ExecutionFiles {
        self.space.execution_files(id)
    }

    /// A new log, and a reader beside it that reads every event.
    fn grown(&self, id: &str) -> Grown {
        let file = self.files(id).append().unwrap();
        Grown { log: ExecutionLog::empty(self.files(id)), file, decoder: EventDecoder::new() }
    }
}

/// A log that grows.
struct Grown {
    log: ExecutionLog,
    file: LogFile,
    decoder: EventDecoder,
}

impl Grown {
    /// Appends an entry; the events that it makes.
    fn append(&mut self, entry: LogEntry, at_ms: u64) -> Vec<ExecutionEvent> {
        let mut expected = Vec::new();
        self.decoder.read(entry.clone(), at_ms, |event| expected.push(event));
        let mut bytes = Vec::new();
        entry.encode(at_ms, &mut bytes);
        self.file.append(&bytes).unwrap();
        let appended = self.log.append(vec![(entry, at_ms)], true);
        let size = expected.iter().map(ExecutionEvent::size).sum::<usize>();
        let is_told = expected.len() <= 200 && size <= 32 * 1024;
        assert_eq!(appended.events, if is_told { expected.clone() } else { Vec::new() });
        if let [first, .., last] = &expected[..] {
            assert_eq!((appended.first, appended.last), (first.seq, last.seq));
        }
        expected
    }
}

fn out(bytes: impl Into<Vec<u8>>) -> LogEntry {
    LogEntry::Output(OUT, Bytes::from(bytes.into()))
}

fn step(step: Lifecycle) -> LogEntry {
    LogEntry::Lifecycle(step)
}

fn read(log: &ExecutionLog, since: u64, room: usize, join: bool) -> Page {
    log.read_blocking(PageRequest { since, room, join, tail: false }).unwrap()
}

fn last(log: &ExecutionLog) -> u64 {
    log.index().as_ref().map_or(0, LogIndex::last)
}

fn all(log: &ExecutionLog, room: usize) -> Vec<ExecutionEvent> {
    let mut events: Vec<ExecutionEvent> = Vec::new();
    loop {
        let since = events.last().map_or(0, |event| event.seq);
        let page = read(log, since, room, false);
        assert!(page.more || since == last(log) || page.events.last().unwrap().seq == last(log));
        if page.events.is_empty() {
            return events;
        }
        events.extend(page.events);
    }
}

fn output(events: &[ExecutionEvent]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for event in events {
        if let EventBody::Output { bytes: line, eol, .. } = &event.body {
            bytes.extend_from_slice(line);
            bytes.extend(eol.then_some(b'\n'));
        }
    }
    bytes
}

#[tokio::test]
async fn all_of_it_can_be_read_from_anywhere_while_it_grows_afterwards_and_after_a_restart() {
    let stand = Stand::new().await;
    let mut grown = stand.grown("aa");
    let mut told = grown.append(step(Lifecycle::Ready), 1);
    let mut wrote = Vec::new();
    for n in 0..100_u32 {
        // Lines that end anywhere, some of them very long, in pieces that end in the middle of characters.
        let piece = format!("{n} é{}", if n % 3 == 0 { "x".repeat(50_000) } else { "ü\n".repeat(500) });
        wrote.extend_from_slice(piece.as_bytes());
        for part in piece.as_bytes().chunks(33_333) {
            told.extend(grown.append(out(part), 2));
        }
    }
    assert!(grown.log.index().as_ref().unwrap().places() > 3);
    assert_eq!(all(&grown.log, 100_000), told);
    told.extend(grown.append(step(Lifecycle::Exit { code: 0, duration_ms: 1 }), 3));
    assert!(grown.log.has_ended());
    grown.log.close();
    assert_eq!(*grown.log.position().borrow(), LogPosition { last: told.len() as u64, over: true });
    assert_eq!(all(&grown.log, 150_000), told);
    assert_eq!(output(&told), wrote);
    assert!((1..).zip(&told).all(|(seq, event)| event.seq == seq));

    let again = ExecutionLog::unloaded(stand.files("aa"));
    assert_eq!(*again.position().borrow(), LogPosition { last: 0, over: true }, "loaded before it is read");
    assert_eq!(all(&again, 1 << 20), told);
    assert_eq!((last(&again), again.output()), (last(&grown.log), wrote.len() as u64));
    assert_eq!(again.position().borrow().last, last(&grown.log));
    for since in [0, 1, 2, 500, told.len() as u64 - 1, told.len() as u64, u64::MAX] {
        let page = read(&again, since, 1 << 30, false);
        let behind = usize::try_from(since).unwrap_or(usize::MAX).min(told.len());
        assert_eq!(page.events, told[behind..], "{since}");
    }
}

#[tokio::test]
async fn half_an_entry_is_removed_and_the_numbers_go_on() {
    let stand = Stand::new().await;
    let mut grown = stand.grown("bb");
    let mut told = grown.append(step(Lifecycle::Ready), 1);
    told.extend(grown.append(out("one\ntw"), 2));
    let mut torn = Vec::new();
    out("o\nthree").encode(3, &mut torn);
    grown.file.append(&torn[..torn.len() - 1]).unwrap();
    let Grown { decoder, .. } = grown;
    let (log, file) = ExecutionLog::resumed(stand.files("bb")).unwrap();
    let mut grown = Grown { log, file, decoder };
    assert_eq!((last(&grown.log), grown.log.output()), (2, 6));
    told.extend(grown.append(out("o\n"), 4));
    assert_eq!(
        told.last().map(|event| (event.seq, output(std::slice::from_ref(event)))),
        Some((3, b"two\n".to_vec()))
    );
    assert_eq!(all(&ExecutionLog::unloaded(stand.files("bb")), 1 << 20), told);
}

#[tokio::test]
async fn lines_of_one_time_are_joined_and_keep_their_numbers() {
    let stand = Stand::new().await;
    let mut grown = stand.grown("cc");
    for (entry, at_ms) in [
        (step(Lifecycle::Ready), 1000),
        (out("one\ntwo\n"), 1000),
        (out("three\n"), 1499),
        (out("late\n"), 1500),
        (LogEntry::Output(ERR, Bytes::from_static(b"wrong\n")), 1500),
        (out(*b"a\n\xff\nb"), 1600),
        (LogEntry::Cut(OUT, true), 1600),
        (out("c\n"), 1600),
        (step(Lifecycle::Exit { code: 0, duration_ms: 1 }), 1600),
    ] {
        grown.append(entry, at_ms);
    }
    let joined = |since, room| read(&grown.log, since, room, true);
    let said = |page: &Page| -> Vec<_> {
        let text = |event: &ExecutionEvent| {
            String::from_utf8_lossy(&output(std::slice::from_ref(event))).into_owned()
        };
        page.events.iter().map(|event| (event.seq, event.at_ms, text(event))).collect()
    };
    let expected = [
        (1, 1000, ""),
        (4, 1000, "one\ntwo\nthree\n"),
        (5, 1500, "late\n"),
        (6, 1500, "wrong\n"),
        (7, 1600, "a\n"),
        (8, 1600, "\u{fffd}\n"),
        (10, 1600, "bc\n"),
        (11, 1600, ""),
    ]
    .map(|(seq, at_ms, text)| (seq, at_ms, text.to_owned()));
    assert_eq!(said(&joined(0, 1 << 20)), expected);
    // From the middle of what is joined elsewhere.
    assert_eq!(said(&joined(2, 1 << 20))[0], (4, 1000, "two\nthree\n".to_owned()));
    // A joined line takes the room of its bytes only.
    let page = joined(0, 64 + 64 + 3 + 4);
    assert_eq!(
        (said(&page), page.more),
        (vec![expected[0].clone(), (3, 1000, "one\ntwo\n".to_owned())], true)
    );
    assert_eq!(output(&joined(0, 1 << 20).events), output(&all(&grown.log, 100)), "no byte is lost");
}

#[tokio::test]
async fn the_end_is_read_without_all_that_is_before_it() {
    let stand = Stand::new().await;
    let mut grown = stand.grown("dd");
    let mut told = Vec::new();
    for n in 0..20_000 {
        told.extend(grown.append(out(format!("line {n}\n")), 1));
    }
    let tail =
        |since, room| grown.log.read_blocking(PageRequest { since, room, join: true, tail: true }).unwrap();
    for closed in [false, true] {
        if closed {
            grown.log.close();
        }
        let from = grown.log.index().as_ref().unwrap().tail(0, 10_000).map(|range| range.from);
        assert!(closed || from > Some(0), "it is read from its beginning");
        let page = tail(0, 10_000);
        let text = output(&page.events);
        assert!(
            output(&told).ends_with(&text) && (1000..=10_000).contains(&text.len()),
            "{} bytes",
            text.len()
        );
        assert_eq!(page.events.last().map(|event| event.seq), Some(20_000));
        // Only what is behind a number.
        assert_eq!(output(&tail(19_999, 10_000).events), b"line 19999\n");
        assert!(tail(20_000, 10_000).events.is_empty());
    }
}
