//! Records that are read from anywhere, while they grow and after a restart.

use super::*;
use crate::execution::event::{Mark, What};
use crate::store::{Options, Quota, Store};

async fn space(root: &std::path::Path) -> Arc<Space> {
    let quota = Quota { bytes: 1 << 20, entries: 100, file: 1 << 20 };
    let store = Store::open(root, Options { quota, total: 1 << 30 }).unwrap();
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
