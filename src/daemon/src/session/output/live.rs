//! The newest output of a running program, for followers. This is the only way in which output is shown while
//! it is written, for code and for commands alike.
//!
//! ```text
//!  sink ── append ──► OutputBacklog: the newest bytes by position ──► OutputFollower: its own position
//!    ▲                                                                      │
//!    └──────── poll_room: waits for a lossless follower that is behind ◄────┘
//! ```
//!
//! A position counts the bytes of both streams since the backlog was made. A follower asks for the bytes
//! behind its own position; nothing is pushed to it, and no timer retries. A [lossy](Pace::Lossy) follower
//! that is too slow loses the middle and learns how many bytes it lost; the answer of its call has the output
//! all the same. For a [lossless](Pace::Lossless) follower the program waits, as it would for the reader of a
//! pipe, as long as it has time.
//!
//! The numbered events of an execution cannot be read from here. A client may ask for any number, again, and
//! from the next daemon: that takes a log on disk (`execution::log`), and a run of code writes none as long
//! as its output fits the answer. So the log serves readers by number, the backlog serves followers, and a
//! command's sink feeds both.
//!
//! It must never hold more than [`HELD`] bytes and one frame, nor anything without a follower. A program that
//! is told to end, or whose time is over, must not wait for a follower.

use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use paddock_proto::OutputStream;

/// Bytes that wait for a follower. A program whose lossless follower is so far behind waits.
const HELD: usize = 64 * 1024;

/// Bytes that can still arrive after a program was told to wait: what the agent may have under way.
const FRAME: usize = 512 * 1024;

/// A piece of output as people read it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutputPiece {
    /// The stream that it is from; `None` for a remark of the daemon on the output.
    pub stream: Option<OutputStream>,
    /// The text, with its newlines. Bytes that are not UTF-8 are replaced.
    pub text: String,
}

/// What happens when a program is quicker than its follower.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// The follower loses the middle, and learns how much.
    Lossy,
    /// The program waits.
    Lossless,
}

/// The writing end. Followers hear the end of the output when the last clone is dropped.
#[derive(Clone)]
pub struct OutputBacklog(Arc<WritingEnd>);

struct WritingEnd(Arc<SharedBacklog>);

#[derive(Default)]
struct SharedBacklog(Mutex<BacklogState>);

#[derive(Default)]
struct BacklogState {
    /// What is held, in its order; neighbours are of different streams.
    pieces: VecDeque<(OutputStream, Vec<u8>)>,
    /// The position of the first byte held.
    first: u64,
    /// The position behind the last byte appended.
    end: u64,
    /// Whether nothing more comes.
    ended: bool,
    cursors: BTreeMap<u64, Cursor>,
    next_cursor: u64,
    /// The task that waits for room.
    appender: Option<Waker>,
}

/// How far one follower has read.
struct Cursor {
    position: u64,
    pace: Pace,
    waker: Option<Waker>,
}

/// One follower of a backlog. Dropping it frees what was held for it.
pub struct OutputFollower {
    shared: Arc<SharedBacklog>,
    cursor: u64,
    /// The first bytes of a character whose others have not come, of each stream.
    begun: [Vec<u8>; 2],
}

impl Default for OutputBacklog {
    fn default() -> Self {
        Self(Arc::new(WritingEnd(Arc::default())))
    }
}

impl OutputBacklog {
    /// Follows the output from here on.
    pub fn follow(&self, pace: Pace) -> OutputFollower {
        let shared = self.0.0.clone();
        let mut state = shared.lock();
        let cursor = state.next_cursor;
        state.next_cursor += 1;
        let position = state.end;
        state.cursors.insert(cursor, Cursor { position, pace, waker: None });
        drop(state);
        OutputFollower { shared, cursor, begun: Default::default() }
    }

    /// Appends what the program wrote.
    pub(crate) fn append(&self, stream: OutputStream, bytes: &[u8]) {
        let mut state = self.0.0.lock();
        state.append(stream, bytes);
        let woken: Vec<_> = state.cursors.values_mut().filter_map(|cursor| cursor.waker.take()).collect();
        drop(state);
        woken.into_iter().for_each(Waker::wake);
    }

    /// Ready while no lossless follower is behind by [`HELD`] bytes. One task can wait at a time.
    pub(crate) fn poll_room(&self, context: &mut Context<'_>) -> Poll<()> {
        let mut state = self.0.0.lock();
        if state.has_room() {
            return Poll::Ready(());
        }
        state.appender = Some(context.waker().clone());
        Poll::Pending
    }
}

impl Drop for WritingEnd {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.ended = true;
        let woken: Vec<_> = state.cursors.values_mut().filter_map(|cursor| cursor.waker.take()).collect();
        drop(state);
        woken.into_iter().for_each(Waker::wake);
    }
}

impl OutputFollower {
    /// The next piece of output, or a remark on what was missed; `None` once the output has ended and all of
    /// it was read. Cancel-safe.
    pub async fn next(&mut self) -> Option<OutputPiece> {
        poll_fn(|context| self.poll_next(context)).await
    }

    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<OutputPiece>> {
        let mut state = self.shared.lock();
        let BacklogState { pieces, first, end, ended, cursors, .. } = &mut *state;
        let Some(cursor) = cursors.get_mut(&self.cursor) else { return Poll::Ready(None) };
        if cursor.position < *first {
            let missed = *first - std::mem::replace(&mut cursor.position, *first);
            let text = format!("[{missed} bytes are not shown here]\n");
            return Poll::Ready(Some(OutputPiece { stream: None, text }));
        }
        let mut at = *first;
        let mut read = None;
        for (stream, bytes) in pieces.iter() {
            let behind = at + bytes.len() as u64;
            if cursor.position < behind {
                let from = usize::try_from(cursor.position - at).unwrap_or(bytes.len());
                cursor.position = behind;
                let text = characters(&mut self.begun[stream.index()], &bytes[from..]);
                if !text.is_empty() {
                    read = Some(OutputPiece { stream: Some(*stream), text });
                    break;
                }
            }
            at = behind;
        }
        let is_over = *ended && cursor.position == *end;
        if read.is_none() && !is_over {
            cursor.waker = Some(context.waker().clone());
        }
        let appender = state.free_what_was_read();
        drop(state);
        appender.into_iter().for_each(Waker::wake);
        match (read, is_over) {
            (Some(piece), _) => Poll::Ready(Some(piece)),
            (None, true) => Poll::Ready(self.unfinished_end()),
            (None, false) => Poll::Pending,
        }
    }

    /// The first bytes of a character with which the output of a stream ended; once for each stream.
    fn unfinished_end(&mut self) -> Option<OutputPiece> {
        let stream = OutputStream::BOTH.into_iter().find(|stream| !self.begun[stream.index()].is_empty())?;
        let bytes = std::mem::take(&mut self.begun[stream.index()]);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        Some(OutputPiece { stream: Some(stream), text })
    }
}

impl Drop for OutputFollower {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.cursors.remove(&self.cursor);
        let appender = state.free_what_was_read();
        drop(state);
        appender.into_iter().for_each(Waker::wake);
    }
}

impl SharedBacklog {
    fn lock(&self) -> MutexGuard<'_, BacklogState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl BacklogState {
    fn append(&mut self, stream: OutputStream, bytes: &[u8]) {
        self.end += bytes.len() as u64;
        if self.cursors.is_empty() {
            self.first = self.end;
            return;
        }
        match self.pieces.back_mut() {
            Some((last, held)) if *last == stream => held.extend_from_slice(bytes),
            Some(_) | None => self.pieces.push_back((stream, bytes.to_vec())),
        }
        let is_waited_for = self.cursors.values().any(|cursor| cursor.pace == Pace::Lossless);
        let most = if is_waited_for { HELD + FRAME } else { HELD };
        self.free_before(self.end.saturating_sub(most as u64));
    }

    fn has_room(&self) -> bool {
        let is_behind =
            |cursor: &Cursor| cursor.pace == Pace::Lossless && self.end - cursor.position >= HELD as u64;
        !self.cursors.values().any(is_behind)
    }

    /// Frees what every follower has read; returns the waker of the task that waits for room, if there is
    /// some now.
    fn free_what_was_read(&mut self) -> Option<Waker> {
        let read = self.cursors.values().map(|cursor| cursor.position).min().unwrap_or(self.end);
        self.free_before(read);
        if self.has_room() { self.appender.take() } else { None }
    }

    fn free_before(&mut self, position: u64) {
        while self.first < position
            && let Some((_, oldest)) = self.pieces.front_mut()
        {
            let over = usize::try_from(position - self.first).unwrap_or(usize::MAX).min(oldest.len());
            self.first += over as u64;
            if over == oldest.len() {
                self.pieces.pop_front();
            } else {
                oldest.drain(..over);
            }
        }
    }
}

/// `begun` and `bytes` behind it, as text; a character that is cut at the end is kept in `begun` for the next
/// time.
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
#[path = "live_tests.rs"]
mod tests;
