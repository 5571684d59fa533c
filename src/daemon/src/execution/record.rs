//! What is kept of an execution on disk: its bytes as they came, where they were cut, and the steps of its life. The same
//! record gives the same events, with the same numbers, to whoever reads it: after a lost connection, after a restart.
//!
//! ```text
//!  length u32 LE · kind u8 · milliseconds u64 LE · payload       kinds: stdout, stderr, cut of either, step (JSON)
//! ```
//!
//! A record that was being written when the daemon was killed is not there. It must never give an event of a part of one.

use paddock_proto::Channel;

use super::event::{Event, Mark, What};
use super::lines::Lines;

/// Bytes in front of a payload.
pub(super) const HEADER: usize = 13;

/// Bytes of the longest payload that is read; none that is written is longer.
pub(super) const LONGEST: usize = 1 << 20;

/// One record.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Record {
    /// Bytes of a stream.
    Bytes(Channel, Vec<u8>),
    /// What there is of a line is an event of its own; all of it, or without half a character.
    Cut(Channel, bool),
    /// A step. Whatever is left of lines comes before an end.
    Mark(Mark),
}

impl Record {
    /// Appends it as it is kept.
    pub(super) fn encode(&self, at_ms: u64, out: &mut Vec<u8>) {
        let (kind, payload) = match self {
            Self::Bytes(Channel::Stderr, bytes) => (2, bytes.as_slice().into()),
            Self::Bytes(_, bytes) => (1, bytes.as_slice().into()),
            Self::Cut(Channel::Stderr, all) => (4, vec![u8::from(*all)].into()),
            Self::Cut(_, all) => (3, vec![u8::from(*all)].into()),
            Self::Mark(mark) => (5, std::borrow::Cow::Owned(serde_json::to_vec(mark).unwrap_or_default())),
        };
        let payload: std::borrow::Cow<'_, [u8]> = payload;
        out.extend_from_slice(&u32::try_from(payload.len()).unwrap_or(u32::MAX).to_le_bytes());
        out.push(kind);
        out.extend_from_slice(&at_ms.to_le_bytes());
        out.extend_from_slice(&payload);
    }

    /// Bytes that it takes where it is kept.
    pub(super) fn length(&self) -> usize {
        HEADER
            + match self {
                Self::Bytes(_, bytes) => bytes.len(),
                Self::Cut(..) => 1,
                Self::Mark(mark) => serde_json::to_vec(mark).map_or(0, |json| json.len()),
            }
    }

    /// The first record in these bytes, when it was written, and how long it is; `None` if it is not whole, or none.
    pub(super) fn decode(bytes: &[u8]) -> Option<(Self, u64, usize)> {
        let (header, rest) = bytes.split_first_chunk::<HEADER>()?;
        let length = u32::from_le_bytes([header[0], header[1], header[2], header[3]]) as usize;
        let mut at = [0; 8];
        at.copy_from_slice(&header[5..]);
        let payload = rest.get(..length).filter(|_| length <= LONGEST)?;
        let record = match header[4] {
            1 => Self::Bytes(Channel::Stdout, payload.to_vec()),
            2 => Self::Bytes(Channel::Stderr, payload.to_vec()),
            3 => Self::Cut(Channel::Stdout, payload == [1]),
            4 => Self::Cut(Channel::Stderr, payload == [1]),
            5 => Self::Mark(serde_json::from_slice(payload).ok()?),
            _ => return None,
        };
        Some((record, u64::from_le_bytes(at), HEADER + length))
    }
}

/// Makes events of records.
#[derive(Debug, Clone)]
pub(super) struct Reader {
    streams: [Lines; 2],
    next: u64,
}

impl Reader {
    /// Of a record from its beginning, or from where nothing waits and this is the next event's number.
    pub(super) fn from(next: u64) -> Self {
        Self { streams: Default::default(), next }
    }

    /// The number of the next event.
    pub(super) fn next(&self) -> u64 {
        self.next
    }

    /// Whether a stream has a part of a line that waits.
    pub(super) fn is_waiting(&self, channel: Channel) -> bool {
        self.streams[index(channel)].is_waiting()
    }

    /// Bytes of lines that wait for their ends.
    pub(super) fn waits_for(&self) -> usize {
        self.streams.iter().map(Lines::waits_for).sum()
    }

    /// As [`Reader::read`], for nobody.
    pub(super) fn count(&mut self, record: &Record) {
        let Self { streams, next } = self;
        match record {
            Record::Bytes(channel, bytes) => *next += streams[index(*channel)].count(bytes),
            Record::Cut(channel, all) => *next += u64::from(streams[index(*channel)].cut(*all).is_some()),
            Record::Mark(_) => {
                let cuts = streams.iter_mut().filter_map(|lines| lines.cut(true)).count();
                *next += cuts as u64 + 1;
            }
        }
    }

    /// What this record says.
    pub(super) fn read(&mut self, record: Record, at_ms: u64, mut each: impl FnMut(Event)) {
        let Self { streams, next } = self;
        let mut event = |what| {
            each(Event { seq: *next, at_ms, what });
            *next += 1;
        };
        match record {
            Record::Bytes(channel, bytes) => {
                streams[index(channel)].take(&bytes, |line| event(What::line(channel, line)));
            }
            Record::Cut(channel, all) => {
                streams[index(channel)]
                    .cut(all)
                    .into_iter()
                    .for_each(|line| event(What::line(channel, line)));
            }
            Record::Mark(mark) => {
                for channel in [Channel::Stdout, Channel::Stderr] {
                    streams[index(channel)]
                        .cut(true)
                        .into_iter()
                        .for_each(|line| event(What::line(channel, line)));
                }
                event(What::Mark(mark));
            }
        }
    }
}

fn index(channel: Channel) -> usize {
    usize::from(channel == Channel::Stderr)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn events(mut bytes: &[u8]) -> Vec<Event> {
        let (mut reader, mut events) = (Reader::from(1), Vec::new());
        while let Some((record, at_ms, length)) = Record::decode(bytes) {
            reader.read(record, at_ms, |event| events.push(event));
            bytes = &bytes[length..];
        }
        events
    }

    #[test]
    fn a_record_gives_the_same_events_each_time_and_none_of_a_part() {
        let mut file = Vec::new();
        for (at_ms, record) in (1..).zip([
            Record::Mark(Mark::Ready),
            Record::Bytes(Channel::Stdout, b"one\ntw".to_vec()),
            Record::Bytes(Channel::Stderr, b"name: ".to_vec()),
            Record::Cut(Channel::Stderr, false),
            Record::Bytes(Channel::Stdout, b"o\nthree".to_vec()),
            Record::Mark(Mark::Exit { code: 0, duration_ms: 5 }),
        ]) {
            record.encode(at_ms, &mut file);
        }
        let output = |channel, text: &str, eol| What::Output { channel, bytes: text.into(), eol };
        let wanted = [
            (1, What::Mark(Mark::Ready)),
            (2, output(Channel::Stdout, "one", true)),
            (4, output(Channel::Stderr, "name: ", false)),
            (5, output(Channel::Stdout, "two", true)),
            (6, output(Channel::Stdout, "three", false)),
            (6, What::Mark(Mark::Exit { code: 0, duration_ms: 5 })),
        ];
        let wanted: Vec<_> =
            (1..).zip(wanted).map(|(seq, (at_ms, what))| Event { seq, at_ms, what }).collect();
        assert_eq!(events(&file), wanted);
        for end in 0..file.len() {
            let before = events(&file[..end]);
            assert_eq!(before, wanted[..before.len()], "of {end} bytes");
        }
    }

    proptest! {
        #[test]
        fn counting_is_reading_for_nobody(
            pieces in proptest::collection::vec((any::<bool>(), any::<bool>(), 0_usize..70_000, 1_usize..70_000), 0..8),
        ) {
            let (mut counting, mut reading, mut told) = (Reader::from(1), Reader::from(1), 0);
            for (err, cut, length, line) in pieces {
                let channel = if err { Channel::Stderr } else { Channel::Stdout };
                let bytes = (0..length).map(|at| if at % line == line - 1 { b'\n' } else { 0xE2 }).collect();
                let record = if cut { Record::Cut(channel, length % 2 == 0) } else { Record::Bytes(channel, bytes) };
                counting.count(&record);
                reading.read(record, 1, |_| told += 1);
                prop_assert_eq!((counting.next(), counting.waits_for()), (reading.next(), reading.waits_for()));
            }
            counting.count(&Record::Mark(Mark::Cancelled));
            reading.read(Record::Mark(Mark::Cancelled), 1, |_| told += 1);
            prop_assert_eq!((counting.next(), reading.next()), (told + 1, told + 1));
        }
    }

    #[test]
    fn what_is_no_record_is_none() {
        let mut bytes = Vec::new();
        Record::Mark(Mark::Cancelled).encode(9, &mut bytes);
        assert_eq!(Record::decode(&bytes), Some((Record::Mark(Mark::Cancelled), 9, bytes.len())));
        bytes[4] = 9;
        assert_eq!(Record::decode(&bytes), None, "an unknown kind");
        let mut lie = vec![0xFF; 4];
        lie.extend_from_slice(&[1; 100]);
        assert_eq!(Record::decode(&lie), None, "a length that lies");
        assert_eq!(Record::decode(&[]), None);
    }
}
