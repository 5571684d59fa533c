//! What a program wrote: a bounded head of each stream for the answer, all of it in a log when that is not it all.
//!
//! It must never hold more in memory than twice the shown bytes, and never cut without saying so.

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

/// One stream as it is shown.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Output {
    /// The text, with a mark where it was cut.
    pub text: String,
    /// Whether it was cut.
    pub truncated: bool,
    /// Whether bytes that are no UTF-8 were replaced.
    pub lossy: bool,
    /// Bytes that the program wrote.
    pub bytes: u64,
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
    shown: usize,
    streams: [Stream; 2],
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

#[derive(Default)]
struct Stream {
    head: Vec<u8>,
    bytes: u64,
}

impl Capture {
    pub(super) fn new(space: Arc<Space>, run_id: &str, shown: usize, live: Option<Live>) -> Self {
        Self {
            shown,
            streams: Default::default(),
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
        let lossy =
            self.streams.iter().any(|stream| std::str::from_utf8(whole_part(stream, self.shown)).is_err());
        if lossy && self.log.is_none() {
            self.begin_log();
        }
        let logged = self.log.is_some() && self.log_failed.is_none();
        if let Some(error) = &self.log_failed {
            tracing::warn!(run_id = self.run_id, %error, "the whole output could not be kept");
        }
        let [stdout, stderr] = self.streams.map(|stream| show(&stream, self.shown));
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
        let stream = &mut self.streams[usize::from(channel == Channel::Stderr)];
        let room = self.shown - stream.head.len().min(self.shown);
        stream.head.extend_from_slice(&bytes[..bytes.len().min(room)]);
        stream.bytes += bytes.len() as u64;
        self.held += (HEADER + bytes.len()) as u64;
        let over = stream.bytes > self.shown as u64 || self.held > HELD;
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

/// The head, without a character that the cut went through.
fn whole_part(stream: &Stream, shown: usize) -> &[u8] {
    let cut = stream.bytes > shown as u64;
    match std::str::from_utf8(&stream.head) {
        Err(error) if cut && error.error_len().is_none() => &stream.head[..error.valid_up_to()],
        _ => &stream.head,
    }
}

fn show(stream: &Stream, shown: usize) -> Output {
    let head = whole_part(stream, shown);
    let text = String::from_utf8_lossy(head);
    let lossy = matches!(text, std::borrow::Cow::Owned(_));
    let mut text = text.into_owned();
    let truncated = stream.bytes > head.len() as u64;
    if truncated {
        text.push_str(&format!(
            "\n[truncated: the first {} of {} bytes are shown]\n",
            head.len(),
            stream.bytes
        ));
    }
    Output { text, truncated, lossy, bytes: stream.bytes }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Amount, Options, Quota, Store};

    fn shown(bytes: &[u8], cap: usize) -> Output {
        let head = bytes[..bytes.len().min(cap)].to_vec();
        show(&Stream { head, bytes: bytes.len() as u64 }, cap)
    }

    #[test]
    fn a_cut_is_marked_and_never_goes_through_a_character() {
        assert_eq!(shown(b"hello", 5), Output { text: "hello".into(), bytes: 5, ..Output::default() });
        let cut = shown("aäää".as_bytes(), 4);
        assert!(cut.truncated && !cut.lossy);
        assert_eq!(cut.text, "aä\n[truncated: the first 3 of 7 bytes are shown]\n");
    }

    #[tokio::test]
    async fn output_byte_by_byte_is_kept_before_it_fills_the_agents_window() {
        let dir = tempfile::tempdir().unwrap();
        let quota = Quota { bytes: 1 << 20, entries: 100, file: 1 << 20 };
        let store = Arc::new(
            Store::open(dir.path(), Options { quota, total: Amount { bytes: 1 << 30, entries: 1 << 30 } })
                .unwrap(),
        );
        let mut capture = Capture::new(store.space("o", "s").await.unwrap(), "run_1", 100_000, None);
        let mut window = 0;
        while !capture.is_kept() {
            capture.take(Channel::Stdout, Bytes::from_static(b"."));
            window += HEADER + 1;
            assert!(window <= WINDOW * 3 / 4, "the agent would wait for ever");
        }
    }

    #[test]
    fn what_is_not_text_is_said_so() {
        let all: Vec<u8> = (0..=255).collect();
        let out = shown(&all, 1000);
        assert!(out.lossy && !out.truncated);
        assert!(out.text.contains('\u{fffd}'));
        // an unfinished character at the very end of an uncut output is the program's own
        assert!(shown(b"a\xc3", 10).lossy);
    }
}
