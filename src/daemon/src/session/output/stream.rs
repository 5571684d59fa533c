//! One stream of a program's output: its beginning and its end, for an answer.
//!
//! It must never hold more than twice its bound, cut a character, nor leave anything out without saying so.

use std::borrow::Cow;

/// One stream: its beginning and its end, within a bound.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CapturedStream {
    head: Vec<u8>,
    tail: Vec<u8>,
    /// Bytes that are kept of its beginning, and of its end.
    keeps: (usize, usize),
    bytes: u64,
}

/// Output as an answer shows it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Excerpt {
    /// The text, with a remark where something is left out.
    pub text: String,
    /// Whether something is left out.
    pub truncated: bool,
    /// Whether bytes that are not UTF-8 were replaced.
    pub lossy: bool,
}

impl CapturedStream {
    /// An empty stream that will keep `bound` bytes: half of them from its beginning, half from its end.
    pub fn within(bound: usize) -> Self {
        Self { keeps: (bound - bound / 2, bound / 2), ..Self::default() }
    }

    /// Takes more of what the program wrote.
    pub fn take(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
        let (head, tail) = self.keeps;
        let (first, rest) = bytes.split_at(bytes.len().min(head - self.head.len().min(head)));
        self.head.extend_from_slice(first);
        if rest.len() >= tail {
            self.tail.clear();
        }
        self.tail.extend_from_slice(&rest[rest.len() - rest.len().min(tail)..]);
        // Seldom enough that a byte is moved once on average.
        if self.tail.len() > 2 * tail {
            self.tail.drain(..self.tail.len() - tail);
        }
    }

    /// Bytes that the program wrote.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// All of it, or its beginning and its end: at most `limit` bytes of it, and no more than are kept.
    pub fn excerpt(&self, limit: usize) -> Excerpt {
        let (head, tail) = self.keeps;
        let tail = &self.tail[self.tail.len() - self.tail.len().min(tail)..];
        let known = [&self.head, tail].concat();
        if known.len() as u64 == self.bytes {
            return excerpt(&known, &known, self.bytes, limit);
        }
        excerpt(&self.head[..self.head.len().min(head)], tail, self.bytes, limit)
    }

    /// The last of it, as text: at most so many bytes.
    pub fn end(&self, bytes: usize) -> String {
        let known = [self.head.as_slice(), &self.tail].concat();
        String::from_utf8_lossy(from_a_character(&known[known.len() - known.len().min(bytes)..])).into_owned()
    }
}

/// An excerpt of `bytes` bytes of output that begin with `first` and end with `last`: `limit` bytes and a
/// remark. `first` and `last` are both all of it, or have half of the limit each. The output is cut at the
/// end of a line if one is near, and never within a character.
pub(crate) fn excerpt(first: &[u8], last: &[u8], bytes: u64, limit: usize) -> Excerpt {
    if first.len() as u64 == bytes && first.len() <= limit {
        let text = String::from_utf8_lossy(first);
        let lossy = matches!(text, Cow::Owned(_));
        return Excerpt { text: text.into_owned(), truncated: false, lossy };
    }
    let head = to_a_character(&first[..first.len().min(limit - limit / 2)]);
    let tail = from_a_character(&last[last.len() - last.len().min(limit / 2)..]);
    let near = |whole: &[u8]| whole.len() / 4;
    let head = match memchr::memrchr(b'\n', head) {
        Some(at) if at + 1 >= head.len() - near(head) => &head[..=at],
        Some(_) | None => head,
    };
    let tail = match memchr::memchr(b'\n', tail) {
        Some(at) if at < near(tail) => &tail[at + 1..],
        Some(_) | None => tail,
    };
    let (head_text, tail_text) = (String::from_utf8_lossy(head), String::from_utf8_lossy(tail));
    let lossy = matches!((&head_text, &tail_text), (Cow::Owned(_), _) | (_, Cow::Owned(_)));
    let left_out = bytes.saturating_sub((head.len() + tail.len()) as u64);
    let before = if head.is_empty() || head.ends_with(b"\n") { "" } else { "\n" };
    let text =
        format!("{head_text}{before}[... {left_out} of {bytes} bytes are left out here ...]\n{tail_text}");
    Excerpt { text, truncated: true, lossy }
}

/// `bytes` without the beginning of a character at their end.
fn to_a_character(bytes: &[u8]) -> &[u8] {
    let begins = bytes.iter().rev().take(3).position(|byte| byte & 0xC0 == 0xC0);
    let begins = begins.map(|behind| bytes.len() - 1 - behind);
    match begins.map(|at| (at, std::str::from_utf8(&bytes[at..]))) {
        Some((at, Err(error))) if error.error_len().is_none() => &bytes[..at],
        Some(_) | None => bytes,
    }
}

/// `bytes` without the end of a character at their beginning.
fn from_a_character(bytes: &[u8]) -> &[u8] {
    &bytes[bytes.iter().take(3).take_while(|byte| **byte & 0xC0 == 0x80).count()..]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn output(bytes: &[u8], bound: usize) -> CapturedStream {
        let mut output = CapturedStream::within(bound);
        output.take(bytes);
        output
    }

    #[test]
    fn an_excerpt_has_the_beginning_and_the_end_and_says_what_is_left_out() {
        let whole = Excerpt { text: "hello".into(), ..Excerpt::default() };
        assert_eq!(output(b"hello", 5).excerpt(5), whole);
        assert_eq!(output(b"hello", 500).excerpt(5), whole);
        let mut lines: String = (0..5000).map(|n| format!("line {n}\n")).collect();
        lines.push_str("THE ANSWER IS 42\n");
        for bound in [1000, 1_000_000] {
            let cut = output(lines.as_bytes(), bound).excerpt(1000);
            assert!(cut.truncated && !cut.lossy);
            let mark = format!(" of {} bytes are left out here ...]", lines.len());
            let (head, tail) = cut.text.split_once("[... ").unwrap();
            let (left_out, tail) = tail.split_once(&mark).unwrap();
            assert!(lines.starts_with(head) && head.ends_with('\n') && head.len() > 400, "{head:?}");
            assert!(lines.ends_with(tail) && tail.starts_with("\nline ") && tail.len() > 400, "{tail:?}");
            assert!(tail.ends_with("THE ANSWER IS 42\n"));
            assert_eq!(left_out.parse(), Ok(lines.len() - head.len() - (tail.len() - 1)));
        }
        assert_eq!(output(lines.as_bytes(), 1000).end(10), "WER IS 42\n");
    }

    #[test]
    fn a_cut_never_goes_through_a_character() {
        for limit in 1..20 {
            let text = "\u{e9}\u{20ac}\u{1f40e}".repeat(20);
            let cut = output(text.as_bytes(), limit).excerpt(limit);
            assert!(cut.truncated && !cut.lossy, "{limit}: {cut:?}");
            assert!(!output(text.as_bytes(), 1000).end(limit).contains('\u{fffd}'));
        }
    }

    #[test]
    fn bytes_that_are_no_text_are_told() {
        let all: Vec<u8> = (0..=255).collect();
        let out = output(&all, 1000).excerpt(1000);
        assert!(out.lossy && !out.truncated);
        assert!(out.text.contains('\u{fffd}'));
        // An unfinished character at the very end of an uncut output is the program's own.
        assert!(output(b"a\xc3", 10).excerpt(10).lossy);
    }

    proptest! {
        #[test]
        fn an_excerpt_depends_on_the_bytes_alone_and_not_on_their_pieces(
            bytes in proptest::collection::vec(any::<u8>(), 0..600),
            pieces in proptest::collection::vec(0_usize..80, 0..20),
            bound in 1_usize..300,
            limit in 1_usize..400,
        ) {
            let mut stream = CapturedStream::within(bound);
            let mut rest = bytes.as_slice();
            for piece in pieces {
                let (now, later) = rest.split_at(piece.min(rest.len()));
                stream.take(now);
                rest = later;
                prop_assert!(stream.head.len() + stream.tail.len() <= 2 * bound);
            }
            stream.take(rest);
            let excerpt = stream.excerpt(limit);
            prop_assert_eq!(&excerpt, &output(&bytes, bound).excerpt(limit));
            prop_assert_eq!(excerpt.truncated, bytes.len() > limit.min(bound));
            prop_assert_eq!(stream.bytes(), bytes.len() as u64);
        }
    }
}
