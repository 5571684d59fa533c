//! One entry of an execution's log as it is on disk: bytes of output as they came, where a line was cut, or a
//! step of the execution's life.
//!
//! ```text
//!  length u32 LE · kind u8 · milliseconds u64 LE · payload
//!  kinds: 1 stdout, 2 stderr, 3 a cut of stdout, 4 a cut of stderr, 5 a step (JSON)
//! ```
//!
//! An entry that was being written when the daemon was killed is not there. It must never decode a part of
//! one.

use bytes::Bytes;
use paddock_proto::OutputStream;

use super::event::Lifecycle;

/// Bytes in front of a payload.
pub(super) const HEADER: usize = 13;

/// Bytes of the longest payload. A longer one is no entry.
pub(super) const LONGEST: usize = 1 << 20;

/// One entry.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::execution) enum LogEntry {
    /// Bytes of a stream.
    Output(OutputStream, Bytes),
    /// What there is of a line becomes an event of its own: all of it, or all but half a character at its
    /// end.
    Cut(OutputStream, bool),
    /// A step. What is left of lines becomes events before it.
    Lifecycle(Lifecycle),
}

impl LogEntry {
    /// Appends it to `out` as it is on disk.
    pub(super) fn encode(&self, at_ms: u64, out: &mut Vec<u8>) {
        let step;
        let (kind, payload): (u8, &[u8]) = match self {
            Self::Output(OutputStream::Stdout, bytes) => (1, bytes),
            Self::Output(OutputStream::Stderr, bytes) => (2, bytes),
            Self::Cut(OutputStream::Stdout, all) => (3, if *all { &[1] } else { &[0] }),
            Self::Cut(OutputStream::Stderr, all) => (4, if *all { &[1] } else { &[0] }),
            Self::Lifecycle(lifecycle) => {
                step = serde_json::to_vec(lifecycle).unwrap_or_default();
                (5, &step)
            }
        };
        out.extend_from_slice(&u32::try_from(payload.len()).unwrap_or(u32::MAX).to_le_bytes());
        out.push(kind);
        out.extend_from_slice(&at_ms.to_le_bytes());
        out.extend_from_slice(payload);
    }

    /// Bytes that it takes on disk.
    pub(super) fn length(&self) -> usize {
        HEADER
            + match self {
                Self::Output(_, bytes) => bytes.len(),
                Self::Cut(..) => 1,
                Self::Lifecycle(step) => serde_json::to_vec(step).map_or(0, |json| json.len()),
            }
    }

    /// The first entry in these bytes, when it was written, and how long it is; `None` if it is not whole, or
    /// none.
    pub(super) fn decode(bytes: &[u8]) -> Option<(Self, u64, usize)> {
        let (header, rest) = bytes.split_first_chunk::<HEADER>()?;
        let length = u32::from_le_bytes([header[0], header[1], header[2], header[3]]) as usize;
        let mut at = [0; 8];
        at.copy_from_slice(&header[5..]);
        let payload = rest.get(..length).filter(|_| length <= LONGEST)?;
        let output = || Bytes::copy_from_slice(payload);
        let entry = match header[4] {
            1 => Self::Output(OutputStream::Stdout, output()),
            2 => Self::Output(OutputStream::Stderr, output()),
            3 => Self::Cut(OutputStream::Stdout, payload == [1]),
            4 => Self::Cut(OutputStream::Stderr, payload == [1]),
            5 => Self::Lifecycle(serde_json::from_slice(payload).ok()?),
            _ => return None,
        };
        Some((entry, u64::from_le_bytes(at), HEADER + length))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_read_as_it_was_written_and_no_part_of_one_is() {
        let out = |stream, bytes: &'static [u8]| LogEntry::Output(stream, Bytes::from_static(bytes));
        let mut file = Vec::new();
        for (entry, expected) in [
            (out(OutputStream::Stdout, b"hi\n"), &b"\x03\0\0\0\x01\x07\0\0\0\0\0\0\0hi\n"[..]),
            (out(OutputStream::Stderr, b"\xff"), b"\x01\0\0\0\x02\x07\0\0\0\0\0\0\0\xff"),
            (LogEntry::Cut(OutputStream::Stdout, false), b"\x01\0\0\0\x03\x07\0\0\0\0\0\0\0\0"),
            (LogEntry::Cut(OutputStream::Stderr, true), b"\x01\0\0\0\x04\x07\0\0\0\0\0\0\0\x01"),
            (LogEntry::Lifecycle(Lifecycle::Ready), b"\x10\0\0\0\x05\x07\0\0\0\0\0\0\0{\"type\":\"ready\"}"),
        ] {
            file.clear();
            entry.encode(7, &mut file);
            assert_eq!(file, expected, "{entry:?}");
            assert_eq!(entry.length(), file.len());
            assert_eq!(LogEntry::decode(&file), Some((entry, 7, file.len())));
            for end in 0..file.len() {
                assert_eq!(LogEntry::decode(&file[..end]), None, "of {end} bytes");
            }
        }
    }

    #[test]
    fn bytes_that_are_no_entry_are_none() {
        let mut bytes = Vec::new();
        LogEntry::Lifecycle(Lifecycle::Cancelled).encode(9, &mut bytes);
        bytes[4] = 9;
        assert_eq!(LogEntry::decode(&bytes), None, "an unknown kind");
        let mut lie = vec![0xFF; 4];
        lie.extend_from_slice(&[1; 100]);
        assert_eq!(LogEntry::decode(&lie), None, "a length that lies");
        assert_eq!(LogEntry::decode(&[]), None);
    }
}
