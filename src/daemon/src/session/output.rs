//! What a program wrote: the beginning and the end of each stream for the answer, all of it in a log when that is
//! more than a model is shown.
//!
//! It must never hold more in memory than twice its bound for each stream, and never cut without saying so.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use paddock_proto::Channel;
use paddock_proto::frame::HEADER;
use paddock_proto::limits::WINDOW;

use super::hear::Hearer;
use super::live::Live;
use crate::store::{LogFile, Space, StoreError};

/// Output that the agent keeps until it is in a log, as its window counts it, frame by frame: half of that, since
/// frames under way count too.
const HELD: u64 = (WINDOW / 2) as u64;

/// One stream: its beginning and its end, within a bound.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Output {
    head: Vec<u8>,
    tail: Vec<u8>,
    /// Bytes of each that are kept.
    keeps: (usize, usize),
    bytes: u64,
}

/// A stream as an answer shows it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Shown {
    /// The text, with a mark where something is left out.
    pub text: String,
    /// Whether something is left out.
    pub truncated: bool,
    /// Whether bytes that are not UTF-8 were replaced.
    pub lossy: bool,
}

impl Output {
    /// An empty stream that will keep `bound` bytes: half of them from its beginning, half from its end.
    pub fn within(bound: usize) -> Self {
        Self { keeps: (bound - bound / 2, bound / 2), ..Self::default() }
    }

    /// Takes what the program wrote.
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

    /// All of it, or its beginning and its end: `limit` bytes, but no more than are kept.
    pub fn shown(&self, limit: usize) -> Shown {
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

/// A text of `bytes` bytes that begins with `first` and ends with `last`, in `limit` bytes and a mark. Both are all
/// of it, or have half of the limit each. It is cut at the end of a line if one is near, and never within a
/// character.
pub(crate) fn excerpt(first: &[u8], last: &[u8], bytes: u64, limit: usize) -> Shown {
    if first.len() as u64 == bytes && first.len() <= limit {
        let text = String::from_utf8_lossy(first);
        let lossy = matches!(text, Cow::Owned(_));
        return Shown { text: text.into_owned(), truncated: false, lossy };
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
    Shown { text, truncated: true, lossy }
}

/// Without the beginning of a character at the end.
fn to_a_character(bytes: &[u8]) -> &[u8] {
    let begins = bytes.iter().rev().take(3).position(|byte| byte & 0xC0 == 0xC0);
    let begins = begins.map(|behind| bytes.len() - 1 - behind);
    match begins.map(|at| (at, std::str::from_utf8(&bytes[at..]))) {
        Some((at, Err(error))) if error.error_len().is_none() => &bytes[..at],
        Some(_) | None => bytes,
    }
}

/// Without the end of a character at the beginning.
fn from_a_character(bytes: &[u8]) -> &[u8] {
    &bytes[bytes.iter().take(3).take_while(|byte| **byte & 0xC0 == 0x80).count()..]
}

/// What a program wrote.
#[derive(Debug, Default)]
pub struct Heard {
    /// Its output.
    pub stdout: Output,
    /// Its error output.
    pub stderr: Output,
    /// Whether the whole output is kept as a log.
    pub logged: bool,
}

/// Both streams while they come.
pub(super) struct Capture {
    /// More than this of both streams together is not all in an answer, and is kept as a log.
    shown: usize,
    /// The bound of each stream.
    bound: usize,
    streams: [Output; 2],
    /// What came so far, in its order, until there is a log.
    order: Vec<Bytes>,
    log: Option<LogFile>,
    log_failed: Option<StoreError>,
    /// Bytes that the log has already, from before a restart.
    again: u64,
    /// What the output takes of the agent's window.
    held: u64,
    space: Arc<Space>,
    run_id: String,
    live: Option<Live>,
}

impl Capture {
    /// Of a run of which an answer has at most `bound` bytes of each stream, and shows a model `shown` bytes.
    pub(super) fn new(
        space: Arc<Space>,
        run_id: &str,
        (bound, shown): (usize, usize),
        live: Option<Live>,
    ) -> Self {
        Self {
            shown: shown.min(bound),
            bound,
            streams: [Output::within(bound), Output::within(bound)],
            order: Vec::new(),
            log: None,
            log_failed: None,
            again: 0,
            held: 0,
            space,
            run_id: run_id.to_owned(),
            live,
        }
    }

    fn begin_log(&mut self) {
        if self.log_failed.is_some() {
            self.order.clear();
            return;
        }
        let begun = self.space.log(&self.run_id).and_then(|mut log| {
            self.order.drain(..).try_for_each(|piece| log.append(&piece))?;
            Ok(log)
        });
        match begun {
            Ok(log) => self.log = Some(log),
            Err(error) => self.log_failed = Some(error),
        }
    }

    /// All of it.
    pub(super) fn finish(mut self) -> Heard {
        if let Some(live) = self.live.take() {
            live.end();
        }
        let lossy = self.streams.iter().any(|stream| stream.shown(self.bound).lossy);
        if lossy && self.log.is_none() {
            self.begin_log();
        }
        let logged = self.log.is_some() && self.log_failed.is_none();
        if let Some(error) = &self.log_failed {
            tracing::warn!(run_id = self.run_id, %error, "the whole output could not be kept");
        }
        let [stdout, stderr] = self.streams;
        Heard { stdout, stderr, logged }
    }
}

impl Hearer for Capture {
    /// The log of an earlier daemon goes on; what it has beyond what comes again is not written twice.
    fn go_on(&mut self, heard: u64) {
        let log = self.space.log(&self.run_id).and_then(|log| Ok((log.size()?, log)));
        match log {
            Ok((has, mut log)) => {
                self.again = has.saturating_sub(heard);
                let lost = heard.saturating_sub(has);
                if lost > 0 {
                    let note = format!("[{lost} bytes of output were lost in a restart of the daemon]\n");
                    self.log_failed = log.append(note.as_bytes()).err();
                }
                self.log = Some(log);
            }
            Err(error) => self.log_failed = Some(error),
        }
    }

    fn is_kept(&self) -> bool {
        self.log.is_some() || self.log_failed.is_some()
    }

    fn has_room(&self) -> bool {
        self.live.as_ref().is_none_or(Live::has_room)
    }

    fn due(&self) -> Option<Instant> {
        self.live.as_ref().and_then(Live::due)
    }

    fn on_due(&mut self) {
        if let Some(live) = &mut self.live {
            live.tell();
        }
    }

    fn take(&mut self, channel: Channel, bytes: Bytes) {
        if let Some(live) = &mut self.live {
            live.take(channel, &bytes);
        }
        self.streams[usize::from(channel == Channel::Stderr)].take(&bytes);
        self.held += (HEADER + bytes.len()) as u64;
        let wrote: u64 = self.streams.iter().map(Output::bytes).sum();
        let over = wrote > self.shown as u64 || self.held > HELD;
        match &mut self.log {
            Some(log) => {
                let known = usize::try_from(self.again).unwrap_or(usize::MAX).min(bytes.len());
                self.again -= known as u64;
                if let Err(error) = log.append(&bytes[known..]) {
                    self.log_failed.get_or_insert(error);
                }
            }
            None => {
                self.order.push(bytes);
                if over {
                    self.begin_log();
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::store::{Amount, Options, Quota, Store};

    fn output(bytes: &[u8], bound: usize) -> Output {
        let mut output = Output::within(bound);
        output.take(bytes);
        output
    }

    #[test]
    fn the_beginning_and_the_end_are_shown_and_what_is_left_out_is_said() {
        let whole = Shown { text: "hello".into(), ..Shown::default() };
        assert_eq!(output(b"hello", 5).shown(5), whole);
        assert_eq!(output(b"hello", 500).shown(5), whole);
        let mut lines: String = (0..5000).map(|n| format!("line {n}\n")).collect();
        lines.push_str("THE ANSWER IS 42\n");
        for bound in [1000, 1_000_000] {
            let cut = output(lines.as_bytes(), bound).shown(1000);
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
            let cut = output(text.as_bytes(), limit).shown(limit);
            assert!(cut.truncated && !cut.lossy, "{limit}: {cut:?}");
            assert!(!output(text.as_bytes(), 1000).end(limit).contains('\u{fffd}'));
        }
    }

    #[test]
    fn what_is_not_text_is_said_so() {
        let all: Vec<u8> = (0..=255).collect();
        let out = output(&all, 1000).shown(1000);
        assert!(out.lossy && !out.truncated);
        assert!(out.text.contains('\u{fffd}'));
        // An unfinished character at the very end of an uncut output is the program's own.
        assert!(output(b"a\xc3", 10).shown(10).lossy);
    }

    proptest! {
        #[test]
        fn however_it_comes_it_is_shown_the_same_within_its_bound(
            bytes in proptest::collection::vec(any::<u8>(), 0..600),
            pieces in proptest::collection::vec(0_usize..80, 0..20),
            bound in 1_usize..300,
            limit in 1_usize..400,
        ) {
            let mut stream = Output::within(bound);
            let mut rest = bytes.as_slice();
            for piece in pieces {
                let (now, later) = rest.split_at(piece.min(rest.len()));
                stream.take(now);
                rest = later;
                prop_assert!(stream.head.len() + stream.tail.len() <= 2 * bound);
            }
            stream.take(rest);
            let shown = stream.shown(limit);
            prop_assert_eq!(&shown, &output(&bytes, bound).shown(limit));
            prop_assert_eq!(shown.truncated, bytes.len() > limit.min(bound));
            prop_assert_eq!(stream.bytes(), bytes.len() as u64);
        }
    }

    #[tokio::test]
    async fn output_byte_by_byte_is_kept_before_it_fills_the_agents_window() {
        let dir = tempfile::tempdir().unwrap();
        let quota = Quota { bytes: 1 << 20, entries: 100, file: 1 << 20 };
        let total = Amount { bytes: 1 << 30, entries: 1 << 30 };
        let store = Arc::new(Store::open(dir.path(), Options { quota, total }).unwrap());
        let space = store.space("o", "s").await.unwrap();
        let mut capture = Capture::new(space, "run_1", (1 << 30, 1 << 30), None);
        let mut window = 0;
        while !capture.is_kept() {
            capture.take(Channel::Stdout, Bytes::from_static(b"."));
            window += HEADER + 1;
            assert!(window <= WINDOW * 3 / 4, "the agent would wait for ever");
        }
    }
}
