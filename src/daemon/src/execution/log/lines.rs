//! Splits a stream of bytes into lines, each of which becomes one event.
//!
//! No byte is lost: a line that was cut into pieces says so. Where lines are cut depends on the bytes and on
//! the cuts that were asked for alone, never on the pieces in which they came, so that the same log gives the
//! same events again. It must never hold more than [`LONGEST`] bytes.

/// Bytes of a line that one event has at most; a longer line is cut.
pub(super) const LONGEST: usize = 64 * 1024;

/// A line, or a piece of one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct OutputLine {
    /// Without its newline.
    pub(super) bytes: Vec<u8>,
    /// Whether the program ended it.
    pub(super) eol: bool,
}

/// One stream, and what came of it that is no whole line yet.
#[derive(Debug, Default, Clone)]
pub(super) struct LineSplitter {
    rest: Vec<u8>,
}

impl LineSplitter {
    /// Takes more bytes, and gives the lines that they complete.
    pub(super) fn take(&mut self, mut bytes: &[u8], mut each: impl FnMut(OutputLine)) {
        while let Some(at) = memchr::memchr(b'\n', bytes) {
            self.fill(&bytes[..at], &mut each);
            each(OutputLine { bytes: std::mem::take(&mut self.rest), eol: true });
            bytes = &bytes[at + 1..];
        }
        self.fill(bytes, &mut each);
    }

    /// Takes more bytes; how many lines they complete. As [`LineSplitter::take`], and quicker.
    pub(super) fn count(&mut self, bytes: &[u8]) -> u64 {
        let (first, last) = (memchr::memchr(b'\n', bytes), memchr::memrchr(b'\n', bytes));
        let rest = last.map_or(bytes.len(), |at| bytes.len() - at - 1);
        // A line in the middle is shorter than a piece that has one.
        let is_short =
            self.rest.len() + first.unwrap_or(rest) <= LONGEST && rest <= LONGEST && bytes.len() <= LONGEST;
        if !is_short {
            let mut count = 0;
            self.take(bytes, |_| count += 1);
            return count;
        }
        if let Some(at) = last {
            self.rest.clear();
            self.rest.extend_from_slice(&bytes[at + 1..]);
        } else {
            self.rest.extend_from_slice(bytes);
        }
        memchr::memchr_iter(b'\n', bytes).count() as u64
    }

    /// Bytes of the line that has not ended.
    pub(super) fn waiting(&self) -> usize {
        self.rest.len()
    }

    /// More of the line, which is cut where it is too long.
    fn fill(&mut self, mut bytes: &[u8], each: &mut impl FnMut(OutputLine)) {
        while self.rest.len() + bytes.len() > LONGEST {
            let (now, later) = bytes.split_at(LONGEST - self.rest.len());
            self.rest.extend_from_slice(now);
            bytes = later;
            let whole = self.rest.len() - half_of_a_character(&self.rest);
            let half = self.rest.split_off(whole);
            each(OutputLine { bytes: std::mem::replace(&mut self.rest, half), eol: false });
        }
        self.rest.extend_from_slice(bytes);
    }

    /// What there is of a line now. Half a character at its end stays for the other half, but not if `all` is
    /// asked for, since nothing more comes.
    pub(super) fn cut(&mut self, all: bool) -> Option<OutputLine> {
        let half = if all { 0 } else { half_of_a_character(&self.rest) };
        let whole = self.rest.len() - half;
        if whole == 0 {
            return None;
        }
        let half = self.rest.split_off(whole);
        Some(OutputLine { bytes: std::mem::replace(&mut self.rest, half), eol: false })
    }

    /// Whether [`LineSplitter::cut`] would give something.
    pub(super) fn is_waiting(&self) -> bool {
        self.rest.len() > half_of_a_character(&self.rest)
    }
}

/// Bytes at the end that are the beginning of a character of UTF-8.
fn half_of_a_character(bytes: &[u8]) -> usize {
    let tail = &bytes[bytes.len().saturating_sub(3)..];
    for (at, byte) in tail.iter().enumerate() {
        let wanted = match byte {
            0xC2..=0xDF => 2,
            0xE0..=0xEF => 3,
            0xF0..=0xF4 => 4,
            _ => continue,
        };
        let rest = &tail[at..];
        if rest.len() < wanted && rest[1..].iter().all(|b| b & 0xC0 == 0x80) {
            return rest.len();
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn lines(pieces: &[&[u8]]) -> Vec<(String, bool)> {
        let (mut lines, mut found) = (LineSplitter::default(), Vec::new());
        for piece in pieces {
            lines.take(piece, |line| found.push(line));
        }
        found.extend(lines.cut(true));
        found.into_iter().map(|line| (String::from_utf8_lossy(&line.bytes).into_owned(), line.eol)).collect()
    }

    #[test]
    fn a_line_is_a_line_however_it_comes() {
        let wanted = [("one", true), ("", true), ("two\r", true), ("three", false)];
        let wanted: Vec<_> = wanted.map(|(text, eol)| (text.to_owned(), eol)).into();
        assert_eq!(lines(&[b"one\n\ntwo\r\nthree"]), wanted);
        assert_eq!(lines(&[b"on", b"e", b"\n", b"\ntwo\r", b"\nth", b"ree"]), wanted);
        assert_eq!(lines(&[b""]), []);
    }

    #[test]
    fn a_long_line_is_cut_between_characters() {
        let text = "a".repeat(LONGEST - 1) + "\u{e9}\u{20ac}" + &"b".repeat(LONGEST) + "\nend";
        let found = lines(&[text.as_bytes()]);
        assert_eq!(found.iter().map(|(_, eol)| *eol).collect::<Vec<_>>(), [false, false, true, false]);
        assert!(found.iter().all(|(text, _)| !text.contains('\u{fffd}')), "a character was cut");
        assert_eq!(found.iter().map(|(text, _)| text.as_str()).collect::<String>(), text.replace('\n', ""));
    }

    #[test]
    fn half_a_character_waits_for_the_other_half_and_not_for_ever() {
        let mut lines = LineSplitter::default();
        lines.take(b"x\xE2\x82", |_| panic!("no line"));
        assert!(lines.is_waiting());
        assert_eq!(lines.cut(false), Some(OutputLine { bytes: b"x".to_vec(), eol: false }));
        assert!(!lines.is_waiting());
        assert_eq!(lines.cut(false), None);
        lines.take(b"\xAC", |_| panic!("no line"));
        assert_eq!(lines.cut(false).map(|line| line.bytes), Some("\u{20ac}".into()));
        lines.take(b"\xF0\x9F", |_| panic!("no line"));
        assert_eq!(lines.cut(true).map(|line| line.bytes), Some(b"\xF0\x9F".to_vec()));
        for (bytes, half) in
            [(&b"\xE2\x82\xAC"[..], 0), (b"\x82", 0), (b"\xC3", 1), (b"\xC3a", 0), (b"\xFF", 0), (b"", 0)]
        {
            assert_eq!(half_of_a_character(bytes), half, "{bytes:?}");
        }
    }

    proptest! {
        #[test]
        fn no_byte_is_lost_and_pieces_do_not_matter(
            bytes in proptest::collection::vec(
                prop_oneof![Just(b'\n'), Just(0xE2), Just(0x82), any::<u8>()],
                0..400,
            ),
            cuts in proptest::collection::vec(0_usize..400, 0..10),
        ) {
            let mut at: Vec<_> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
            at.sort_unstable();
            let mut pieces = Vec::new();
            let mut from = 0;
            for cut in at {
                pieces.push(&bytes[from..cut]);
                from = cut;
            }
            pieces.push(&bytes[from..]);
            let all = |pieces: &[&[u8]]| {
                let (mut lines, mut found) = (LineSplitter::default(), Vec::new());
                for piece in pieces {
                    lines.take(piece, |line| found.push(line));
                }
                found.extend(lines.cut(true));
                found
            };
            let found = all(&pieces);
            prop_assert_eq!(&found, &all(&[&bytes]));
            let mut back = Vec::new();
            for line in found {
                back.extend(line.bytes);
                if line.eol {
                    back.push(b'\n');
                }
            }
            prop_assert_eq!(back, bytes);
        }
    }
}
