//! Records that are read from anywhere, while they grow and after a restart.

use super::*;
use crate::execution::event::{Mark, What};
use crate::store::{Amount, Options, Quota, Store};

async fn space(root: &std::path::Path) -> Arc<Space> {
    let quota = Quota { bytes: 1 << 20, entries: 100, file: 1 << 20 };
    let store =
        Store::open(root, Options { quota, total: Amount { bytes: 1 << 30, entries: 1 << 30 } }).unwrap();
    Arc::new(store).space("o", "s").await.unwrap()
}

/// Keeps a record; the events that it makes.
fn put(recording: &mut Recording, reader: &mut Reader, record: Record, at_ms: u64) -> Vec<Event> {
    let mut wanted = Vec::new();
    reader.read(record.clone(), at_ms, |event| wanted.push(event));
    let told = recording.put(record, at_ms, true).unwrap();
    assert!(told.events.is_empty() || told.events == wanted);
    assert_eq!(
        told.events.is_empty(),
        wanted.is_empty() || wanted.len() > 200 || wanted.iter().map(Event::size).sum::<usize>() > TOLD_BYTES
    );
    if let [first, .., last] = &wanted[..] {
        assert_eq!((told.first, told.last), (first.seq, last.seq));
    }
    wanted
}

fn read(recording: &Recording, since: u64, room: usize) -> Page {
    recording.page(since, room, false).map(Wanted::read).transpose().unwrap().unwrap_or_default()
}

fn all(recording: &Recording, room: usize) -> Vec<Event> {
    let mut events: Vec<Event> = Vec::new();
    loop {
        let since = events.last().map_or(0, |event| event.seq);
        let page = read(recording, since, room);
        assert!(
            page.more || since == recording.last() || page.events.last().unwrap().seq == recording.last()
        );
        if page.events.is_empty() {
            return events;
        }
        events.extend(page.events);
    }
}

fn output(events: &[Event]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for event in events {
        if let What::Output { bytes: line, eol, .. } = &event.what {
            bytes.extend_from_slice(line);
            bytes.extend(eol.then_some(b'\n'));
        }
    }
    bytes
}

#[tokio::test]
async fn all_of_it_is_had_from_anywhere_while_it_grows_afterwards_and_after_a_restart() {
    let root = tempfile::tempdir().unwrap();
    let space = space(root.path()).await;
    let (mut recording, mut reader) = (Recording::begin(&space, "aa").unwrap(), Reader::from(1));
    let mut told = put(&mut recording, &mut reader, Record::Mark(Mark::Ready), 1);
    let mut wrote = Vec::new();
    for n in 0..100_u32 {
        // Lines that end anywhere, some of them very long, in pieces that end in the middle of characters.
        let piece = format!("{n} é{}", if n % 3 == 0 { "x".repeat(50_000) } else { "ü\n".repeat(500) });
        wrote.extend_from_slice(piece.as_bytes());
        for part in piece.as_bytes().chunks(33_333) {
            told.extend(put(&mut recording, &mut reader, Record::Bytes(Channel::Stdout, part.to_vec()), 2));
        }
    }
    assert!(recording.index.len() > 3);
    assert_eq!(all(&recording, 100_000), told);
    told.extend(put(&mut recording, &mut reader, Record::Mark(Mark::Exit { code: 0, duration_ms: 1 }), 3));
    recording.close();
    assert_eq!(all(&recording, 150_000), told);
    assert_eq!(output(&told), wrote);
    assert!((1..).zip(&told).all(|(seq, event)| event.seq == seq));

    let again = Recording::load(&space, "aa", false).unwrap();
    assert_eq!((again.last(), again.output()), (recording.last(), wrote.len() as u64));
    assert_eq!(all(&again, 1 << 20), told);
    for since in [0, 1, 2, 500, told.len() as u64 - 1, told.len() as u64, u64::MAX] {
        let page = read(&again, since, 1 << 30);
        assert_eq!(
            page.events,
            told[usize::try_from(since).unwrap_or(usize::MAX).min(told.len())..],
            "{since}"
        );
    }
}

#[tokio::test]
async fn a_part_of_a_record_is_taken_back_and_the_numbers_go_on() {
    let root = tempfile::tempdir().unwrap();
    let space = space(root.path()).await;
    let (mut recording, mut reader) = (Recording::begin(&space, "bb").unwrap(), Reader::from(1));
    let mut told = put(&mut recording, &mut reader, Record::Mark(Mark::Ready), 1);
    told.extend(put(&mut recording, &mut reader, Record::Bytes(Channel::Stdout, b"one\ntw".to_vec()), 2));
    drop(recording);
    let mut torn = Vec::new();
    Record::Bytes(Channel::Stdout, b"o\nthree".to_vec()).encode(3, &mut torn);
    space.recording("bb").unwrap().append(&torn[..torn.len() - 1]).unwrap();
    let mut recording = Recording::load(&space, "bb", true).unwrap();
    assert_eq!((recording.last(), recording.output()), (2, 6));
    told.extend(put(&mut recording, &mut reader, Record::Bytes(Channel::Stdout, b"o\n".to_vec()), 4));
    assert_eq!(
        told.last().map(|event| (event.seq, output(std::slice::from_ref(event)))),
        Some((3, b"two\n".to_vec()))
    );
    drop(recording);
    assert_eq!(all(&Recording::load(&space, "bb", false).unwrap(), 1 << 20), told);
}

#[tokio::test]
async fn lines_of_one_time_are_joined_and_keep_their_numbers() {
    let root = tempfile::tempdir().unwrap();
    let space = space(root.path()).await;
    let (mut recording, mut reader) = (Recording::begin(&space, "cc").unwrap(), Reader::from(1));
    let out = |text: &[u8]| Record::Bytes(Channel::Stdout, text.to_vec());
    let err = |text: &[u8]| Record::Bytes(Channel::Stderr, text.to_vec());
    for (record, at_ms) in [
        (Record::Mark(Mark::Ready), 1000),
        (out(b"one\ntwo\n"), 1000),
        (out(b"three\n"), 1499),
        (out(b"late\n"), 1500),
        (err(b"wrong\n"), 1500),
        (out(b"a\n\xff\nb"), 1600),
        (Record::Cut(Channel::Stdout, true), 1600),
        (out(b"c\n"), 1600),
        (Record::Mark(Mark::Exit { code: 0, duration_ms: 1 }), 1600),
    ] {
        put(&mut recording, &mut reader, record, at_ms);
    }
    let joined = |since, room| recording.page(since, room, true).unwrap().read().unwrap();
    let said = |page: &Page| -> Vec<_> {
        let text = |event: &Event| String::from_utf8_lossy(&output(std::slice::from_ref(event))).into_owned();
        page.events.iter().map(|event| (event.seq, event.at_ms, text(event))).collect()
    };
    let wanted = [
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
    assert_eq!(said(&joined(0, 1 << 20)), wanted);
    // From the middle of what is joined elsewhere.
    assert_eq!(said(&joined(2, 1 << 20))[0], (4, 1000, "two\nthree\n".to_owned()));
    // A joined line takes the room of its bytes only.
    let page = joined(0, 64 + 64 + 3 + 4);
    assert_eq!((said(&page), page.more), (vec![wanted[0].clone(), (3, 1000, "one\ntwo\n".to_owned())], true));
    assert_eq!(output(&joined(0, 1 << 20).events), output(&all(&recording, 100)), "no byte is lost");
}

#[tokio::test]
async fn the_end_is_read_without_all_that_is_before_it() {
    let root = tempfile::tempdir().unwrap();
    let space = space(root.path()).await;
    let (mut recording, mut reader) = (Recording::begin(&space, "dd").unwrap(), Reader::from(1));
    let mut told = Vec::new();
    for n in 0..20_000 {
        let line = Record::Bytes(Channel::Stdout, format!("line {n}\n").into_bytes());
        told.extend(put(&mut recording, &mut reader, line, 1));
    }
    for closed in [false, true] {
        if closed {
            recording.close();
        }
        let wanted = recording.tail(0, 10_000).unwrap();
        assert!(closed || wanted.from > 0, "it is read from its beginning");
        let tail = wanted.read_tail().unwrap();
        let text = output(&tail.events);
        assert!(
            output(&told).ends_with(&text) && (1000..=10_000).contains(&text.len()),
            "{} bytes",
            text.len()
        );
        assert_eq!(tail.events.last().map(|event| event.seq), Some(20_000));
        // Only what is behind a number.
        let last = recording.tail(19_999, 10_000).unwrap().read_tail().unwrap();
        assert_eq!(output(&last.events), b"line 19999\n");
        assert!(recording.tail(20_000, 10_000).is_none());
    }
}
