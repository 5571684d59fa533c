//! Answers that outlive their connection: a call whose client went away goes on for a while, in case the
//! client comes back.
//!
//! ```text
//!  POST ─► ResumableCall ─► stream of kept events ─┬─ read to its end: done
//!                                                  └─ connection lost ─► window ─► no client came: abandoned
//!  GET, Last-Event-ID ─► the rest of the kept events, then what is still to come; the window is closed again
//! ```
//!
//! It must never keep a call alive to which no client can come back.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use http_body::Frame;
use tokio_util::sync::CancellationToken;

use super::replay::Replay;

/// A call whose answer can be read on another connection than its own.
pub(super) struct ResumableCall {
    session: String,
    /// Cancelled when no client came back in time.
    abandoned: CancellationToken,
    window: Duration,
    readers: AtomicUsize,
    /// How often a reader began: a window that opened before the last one did is void.
    begun: AtomicUsize,
    done: AtomicBool,
}

/// A connection that reads the answer of a call. Dropped before the answer's end, it opens the window.
pub(super) struct AnswerReader {
    call: Arc<ResumableCall>,
    replay: Arc<Replay>,
    /// The stream, once an event named it.
    key: OnceLock<String>,
    /// Whether it is the call's own connection: when that ends, nothing more comes on the stream.
    first: bool,
}

impl ResumableCall {
    /// A call that is abandoned when no connection read its answer for `window`.
    pub(super) fn new(session: &str, window: Duration) -> Arc<Self> {
        Arc::new(Self {
            session: session.to_owned(),
            abandoned: CancellationToken::new(),
            window,
            readers: AtomicUsize::new(0),
            begun: AtomicUsize::new(0),
            done: AtomicBool::new(false),
        })
    }

    /// Resolves when the call is abandoned.
    pub(super) async fn abandoned(&self) {
        self.abandoned.cancelled().await;
    }
}

impl AnswerReader {
    /// The call's own connection.
    pub(super) fn begin(call: Arc<ResumableCall>, replay: Arc<Replay>) -> Self {
        call.begun.fetch_add(1, Ordering::AcqRel);
        call.readers.fetch_add(1, Ordering::AcqRel);
        Self { call, replay, key: OnceLock::new(), first: true }
    }

    /// A connection that reads on after this event; `None` if no call that goes on had it.
    pub(super) fn again(event: &str, replay: &Arc<Replay>) -> Option<Self> {
        let (key, _) = event.split_once('-')?;
        let mut reader = Self::begin(replay.call(key)?, replay.clone());
        (reader.key, reader.first) = (OnceLock::from(key.to_owned()), false);
        Some(reader)
    }

    /// Looks at a frame that goes out: the first event names the stream by which the call can be found.
    pub(super) fn saw(&self, frame: &Frame<Bytes>) {
        if self.key.get().is_some() {
            return;
        }
        let Some(text) = frame.data_ref().and_then(|data| std::str::from_utf8(data).ok()) else { return };
        let id = text.lines().find_map(|line| line.strip_prefix("id:"));
        if let Some((key, _)) = id.and_then(|id| id.trim().split_once('-'))
            && self.replay.link(key, &self.call, &self.call.session)
        {
            let _ = self.key.set(key.to_owned());
        }
    }

    /// The stream was read to its end: with its answer, or without one if the call was cancelled.
    pub(super) fn ended(&self) {
        let key = self.key.get();
        if let Some(key) = key.filter(|_| self.first) {
            self.replay.end(key);
        }
        let has_ended = key.is_some_and(|key| self.replay.has_ended(key));
        self.call.done.store(self.first || has_ended, Ordering::Release);
    }
}

impl Drop for AnswerReader {
    fn drop(&mut self) {
        let call = &self.call;
        let last = call.readers.fetch_sub(1, Ordering::AcqRel) == 1;
        if !last || call.done.load(Ordering::Acquire) {
            return;
        }
        let (call, begun) = (call.clone(), call.begun.load(Ordering::Acquire));
        let wait = async move {
            tokio::time::sleep(call.window).await;
            if call.begun.load(Ordering::Acquire) == begun {
                call.abandoned.cancel();
            }
        };
        // Outside of a runtime there is no call either.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(wait);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_client_that_came_back_in_time_has_a_whole_window_again() {
        let events = Arc::new(Replay::default());
        let window = Duration::from_millis(400);
        let call = ResumableCall::new("s", window);
        let lost = tokio::time::Instant::now();
        drop(AnswerReader::begin(call.clone(), events.clone()));
        tokio::time::sleep(window / 2).await;
        drop(AnswerReader::begin(call.clone(), events));
        let again = tokio::time::Instant::now();
        call.abandoned().await;
        assert!(again.elapsed() >= window && lost.elapsed() >= window, "{:?}", again.elapsed());
    }
}
