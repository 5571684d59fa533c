//! What a program writes, told while it runs to whoever listens.
//!
//! What a listener is too slow for is left out, and said to be: the answer has what counts in any case. One that wants the
//! [whole](Listener::whole) output is waited for, as a pipe's reader is, and as long as the program has time. It must never
//! hold more for a listener than [`HELD`] and one frame, nor wait for one when the program's time is over.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use paddock_proto::Channel;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

/// Bytes that wait for a listener.
const HELD: usize = 64 * 1024;

/// More that can come before somebody who is waited for is waited for.
const FRAME: usize = 512 * 1024;

/// How long what waits may wait until the listener is tried again.
const REST: Duration = Duration::from_millis(50);
/// The same, where the program waits as well.
const SHORT_REST: Duration = Duration::from_millis(2);

/// A piece of output as people read it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// The stream that it is of; `None` where it is a remark on the output.
    pub channel: Option<Channel>,
    /// The text, with its newlines. What is no UTF-8 is replaced.
    pub text: String,
}

/// Who listens.
#[derive(Clone)]
pub struct Listener {
    /// Where the pieces go.
    pub pieces: mpsc::Sender<Piece>,
    /// Whether a program that is quicker waits.
    pub whole: bool,
}

/// What is told to one listener.
pub struct Live {
    listener: Option<mpsc::Sender<Piece>>,
    whole: bool,
    waiting: VecDeque<(Channel, Vec<u8>)>,
    bytes: usize,
    left_out: usize,
    /// The first bytes of a character whose others have not come, of each stream.
    begun: [Vec<u8>; 2],
    due: Option<Instant>,
}

impl Live {
    /// Tells this one.
    pub fn new(Listener { pieces, whole }: Listener) -> Self {
        Self {
            listener: Some(pieces),
            whole,
            waiting: VecDeque::new(),
            bytes: 0,
            left_out: 0,
            begun: Default::default(),
            due: None,
        }
    }

    /// The program wrote this.
    pub(super) fn take(&mut self, channel: Channel, bytes: &[u8]) {
        if self.listener.is_none() {
            return;
        }
        match self.waiting.back_mut() {
            Some((last, held)) if *last == channel => held.extend_from_slice(bytes),
            Some(_) | None => self.waiting.push_back((channel, bytes.to_vec())),
        }
        self.bytes += bytes.len();
        let most = if self.whole { HELD + FRAME } else { HELD };
        while self.bytes > most
            && let Some((_, oldest)) = self.waiting.front_mut()
        {
            let over = (self.bytes - most).min(oldest.len());
            oldest.drain(..over);
            self.bytes -= over;
            self.left_out += over;
            if oldest.is_empty() {
                self.waiting.pop_front();
            }
        }
        self.tell();
    }

    /// Whether the program may go on, for its listener's sake.
    pub(super) fn has_room(&self) -> bool {
        !self.whole || self.listener.is_none() || self.bytes < HELD
    }

    /// Nothing more comes: what waits is told as the listener takes it, without anybody waiting.
    pub(super) fn end(mut self) {
        self.tell();
        let Some(listener) = self.listener.take().filter(|_| !self.waiting.is_empty() || self.left_out > 0)
        else {
            return;
        };
        tokio::spawn(async move {
            while let Some(piece) = self.next() {
                if listener.send(piece).await.is_err() {
                    return;
                }
            }
        });
    }

    /// When it wants to try again.
    pub(super) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Tells what waits, as far as there is room.
    pub(super) fn tell(&mut self) {
        self.due = None;
        while !self.waiting.is_empty() || self.left_out > 0 {
            let Some(listener) = self.listener.clone() else { return };
            let room = match listener.try_reserve() {
                Ok(room) => room,
                Err(TrySendError::Full(())) => {
                    self.due = Some(Instant::now() + if self.whole { SHORT_REST } else { REST });
                    return;
                }
                Err(TrySendError::Closed(())) => {
                    self.listener = None;
                    return;
                }
            };
            if let Some(piece) = self.next() {
                room.send(piece);
            }
        }
    }

    /// What is to be told next.
    fn next(&mut self) -> Option<Piece> {
        let left_out = std::mem::take(&mut self.left_out);
        if left_out > 0 {
            return Some(Piece { channel: None, text: format!("[{left_out} bytes are not shown here]\n") });
        }
        while let Some((channel, bytes)) = self.waiting.pop_front() {
            self.bytes -= bytes.len();
            let text = characters(&mut self.begun[usize::from(channel == Channel::Stderr)], &bytes);
            if !text.is_empty() {
                return Some(Piece { channel: Some(channel), text });
            }
        }
        None
    }
}

/// What was begun and goes on with `bytes`, as text; a character that is cut at the end is kept for the next time.
fn characters(begun: &mut Vec<u8>, bytes: &[u8]) -> String {
    begun.extend_from_slice(bytes);
    let cut = match std::str::from_utf8(begun) {
        Ok(_) => begun.len(),
        Err(_) => begun.len() - unfinished(begun),
    };
    let text = String::from_utf8_lossy(&begun[..cut]).into_owned();
    begun.drain(..cut);
    text
}

/// Bytes at the end that can be the beginning of a character.
fn unfinished(bytes: &[u8]) -> usize {
    let is_begun = |n: &usize| {
        let tail = &bytes[bytes.len() - n..];
        std::str::from_utf8(tail).is_err_and(|error| error.valid_up_to() == 0 && error.error_len().is_none())
    };
    (1..=3.min(bytes.len())).find(is_begun).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(listener: &mut mpsc::Receiver<Piece>) -> Vec<(Option<Channel>, String)> {
        std::iter::from_fn(|| listener.try_recv().ok()).map(|piece| (piece.channel, piece.text)).collect()
    }

    #[test]
    fn streams_stay_apart_and_in_their_order() {
        let (sender, mut listener) = mpsc::channel(8);
        let mut live = Live::new(Listener { pieces: sender, whole: false });
        live.take(Channel::Stdout, b"a");
        live.take(Channel::Stderr, b"b\n");
        live.take(Channel::Stdout, b"c");
        let expected = [(Channel::Stdout, "a"), (Channel::Stderr, "b\n"), (Channel::Stdout, "c")];
        let expected = expected.map(|(channel, text)| (Some(channel), text.to_owned()));
        assert_eq!(texts(&mut listener), expected);
    }

    #[test]
    fn a_character_that_comes_in_parts_is_one() {
        let (sender, mut listener) = mpsc::channel(8);
        let mut live = Live::new(Listener { pieces: sender, whole: false });
        for byte in "aä\u{1f40e}".as_bytes() {
            live.take(Channel::Stdout, &[*byte]);
        }
        live.take(Channel::Stdout, b"\xff\xc3(");
        let all: String = texts(&mut listener).into_iter().map(|(_, text)| text).collect();
        assert_eq!(all, "aä\u{1f40e}\u{fffd}\u{fffd}(");
    }

    #[test]
    fn a_slow_listener_gets_the_newest_and_is_told_what_it_missed() {
        let (sender, mut listener) = mpsc::channel(1);
        let mut live = Live::new(Listener { pieces: sender, whole: false });
        live.take(Channel::Stdout, b"first");
        for _ in 0..3 {
            live.take(Channel::Stdout, &[b'x'; HELD]);
        }
        assert!(live.due().is_some() && live.bytes == HELD);
        assert_eq!(texts(&mut listener), [(Some(Channel::Stdout), "first".to_owned())]);
        live.tell();
        assert_eq!(texts(&mut listener), [(None, format!("[{} bytes are not shown here]\n", 2 * HELD))]);
        live.tell();
        assert_eq!(texts(&mut listener)[0].1.len(), HELD);
        assert_eq!(live.due(), None);
    }

    #[test]
    fn one_who_wants_all_is_waited_for_and_misses_nothing() {
        let (sender, mut listener) = mpsc::channel(1);
        let mut live = Live::new(Listener { pieces: sender, whole: true });
        live.take(Channel::Stdout, b"first");
        assert!(live.has_room());
        live.take(Channel::Stdout, &[b'x'; FRAME]);
        assert!(!live.has_room() && live.due().is_some());
        let mut bytes = 0;
        while live.due().is_some() {
            bytes += texts(&mut listener).iter().map(|(_, text)| text.len()).sum::<usize>();
            live.tell();
        }
        bytes += texts(&mut listener).iter().map(|(_, text)| text.len()).sum::<usize>();
        assert_eq!((bytes, live.has_room()), (5 + FRAME, true));
    }

    #[tokio::test]
    async fn what_waits_at_the_end_is_told_behind_it() {
        let (sender, mut listener) = mpsc::channel(1);
        let mut live = Live::new(Listener { pieces: sender, whole: false });
        live.take(Channel::Stdout, b"a");
        live.take(Channel::Stderr, b"b");
        live.take(Channel::Stdout, b"c");
        live.end();
        let mut all = String::new();
        while let Some(piece) = listener.recv().await {
            all += &piece.text;
        }
        assert_eq!(all, "abc");
    }

    #[test]
    fn nothing_is_held_for_one_that_went() {
        let (sender, listener) = mpsc::channel(1);
        drop(listener);
        let mut live = Live::new(Listener { pieces: sender, whole: false });
        live.take(Channel::Stdout, b"x");
        live.take(Channel::Stdout, b"y");
        assert_eq!((live.bytes, live.due()), (1, None));
    }
}
