//! Answers that outlive their connection: what was sent on a stream can be had again, and a call whose client went
//! away goes on for a while, in case it comes back.
//!
//! ```text
//!  POST ─► Tie ─► stream of events, each kept ─┬─ read to its end: done
//!                                              └─ connection lost ─► window ─► nobody came: the call is cancelled
//!  GET, Last-Event-ID ─► the rest of the kept, then what is still to come; the window is closed again
//! ```
//!
//! Kept in memory, bounded over all sessions of a token: what goes first is what ended first. It must never give an
//! event to another stream than its own, nor keep a call alive that nobody can come back to.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use http_body::Frame;
use rmcp::model::ServerJsonRpcMessage;
use rmcp::transport::common::server_side_http::ServerSseMessage;
use rmcp::transport::streamable_http_server::session::{EventId, EventStore, EventStoreError, EventStream};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// Bytes of kept events, over all streams of one token.
const KEPT: usize = 32 << 20;
/// Streams that something is kept of.
const STREAMS: usize = 4096;
/// What an event counts beside its text.
const OVERHEAD: usize = 256;

/// What was sent, by stream.
#[derive(Default)]
pub(super) struct Events(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    /// By the key that begins the ids of its events.
    streams: HashMap<String, Stream>,
    /// Keys by the SDK's names of streams.
    keys: HashMap<String, String>,
    /// Names, the one that was begun first in front.
    begun: VecDeque<String>,
    bytes: usize,
}

#[derive(Default)]
struct Stream {
    /// The MCP session that may read it.
    session: String,
    events: Vec<ServerSseMessage>,
    bytes: usize,
    /// Its answer is among them: nothing more will come.
    ended: bool,
    more: Arc<Notify>,
    tie: Weak<Tie>,
}

/// A call and whoever reads its answer.
pub(super) struct Tie {
    session: String,
    /// Cancelled when nobody came back in time.
    gone: CancellationToken,
    window: Duration,
    readers: AtomicUsize,
    /// How often someone began to read: a window that was begun before the last time is void.
    begun: AtomicUsize,
    done: AtomicBool,
}

/// Someone reads the answer of a call. Dropped before the answer's end, the window begins.
pub(super) struct Reading {
    tie: Arc<Tie>,
    events: Arc<Events>,
    /// The stream, once an event named it.
    key: OnceLock<String>,
    /// Whether it is the call's own connection: no more comes on the stream when that ends.
    first: bool,
}

impl Tie {
    /// A call that is given up when its answer was not read for `window`.
    pub(super) fn new(session: &str, window: Duration) -> Arc<Self> {
        Arc::new(Self {
            session: session.to_owned(),
            gone: CancellationToken::new(),
            window,
            readers: AtomicUsize::new(0),
            begun: AtomicUsize::new(0),
            done: AtomicBool::new(false),
        })
    }

    /// Resolves when the call is given up.
    pub(super) async fn gone(&self) {
        self.gone.cancelled().await;
    }
}

impl Reading {
    /// Whoever asked, on the connection of the call.
    pub(super) fn begin(tie: Arc<Tie>, events: Arc<Events>) -> Self {
        tie.begun.fetch_add(1, Ordering::AcqRel);
        tie.readers.fetch_add(1, Ordering::AcqRel);
        Self { tie, events, key: OnceLock::new(), first: true }
    }

    /// Whoever came back with this event; `None` if no call that goes on had it.
    pub(super) fn again(event: &str, events: &Arc<Events>) -> Option<Self> {
        let (key, _) = event.split_once('-')?;
        let tie = events.lock().streams.get(key)?.tie.upgrade()?;
        let mut reading = Self::begin(tie, events.clone());
        (reading.key, reading.first) = (OnceLock::from(key.to_owned()), false);
        Some(reading)
    }

    /// Looks at what goes out: the first event names the stream that the call can be found by.
    pub(super) fn saw(&self, frame: &Frame<Bytes>) {
        if self.key.get().is_some() {
            return;
        }
        let Some(text) = frame.data_ref().and_then(|data| std::str::from_utf8(data).ok()) else { return };
        let id = text.lines().find_map(|line| line.strip_prefix("id:"));
        if let Some((key, _)) = id.and_then(|id| id.trim().split_once('-'))
            && let Some(stream) = self.events.lock().streams.get_mut(key)
        {
            stream.tie = Arc::downgrade(&self.tie);
            stream.session.clone_from(&self.tie.session);
            let _ = self.key.set(key.to_owned());
        }
    }

    /// The stream was read to its end: with its answer, or without one where the call was taken back.
    pub(super) fn ended(&self) {
        let mut kept = self.events.lock();
        let stream = self.key.get().and_then(|key| kept.streams.get_mut(key));
        if let Some(stream) = stream
            && self.first
        {
            stream.ended = true;
            stream.more.notify_waiters();
        }
        let ended = self.key.get().and_then(|key| kept.streams.get(key)).is_some_and(|stream| stream.ended);
        self.tie.done.store(self.first || ended, Ordering::Release);
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        let tie = &self.tie;
        let last = tie.readers.fetch_sub(1, Ordering::AcqRel) == 1;
        if !last || tie.done.load(Ordering::Acquire) {
            return;
        }
        let (tie, begun) = (tie.clone(), tie.begun.load(Ordering::Acquire));
        let wait = async move {
            tokio::time::sleep(tie.window).await;
            if tie.begun.load(Ordering::Acquire) == begun {
                tie.gone.cancel();
            }
        };
        // Outside of a runtime there is no call either.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(wait);
        }
    }
}

impl Events {
    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether an event is one of a session's, and kept.
    pub(super) fn has(&self, event: &str, session: &str) -> bool {
        let kept = self.lock();
        let found =
            event.split_once('-').and_then(|(key, seen)| Some((kept.streams.get(key)?, seen.parse().ok()?)));
        found
            .is_some_and(|(stream, seen): (_, usize)| stream.session == session && seen < stream.events.len())
    }

    fn keep(&self, name: &str, event: &ServerSseMessage) -> EventId {
        let mut kept = self.lock();
        let key = match kept.keys.get(name) {
            Some(key) => key.clone(),
            None => {
                let key = crate::id::random_hex::<8>();
                kept.keys.insert(name.to_owned(), key.clone());
                // So the SDK names what a session is told apart from its answers; those are known by their tie.
                let session = name.strip_suffix(":common").unwrap_or_default().to_owned();
                kept.streams.insert(key.clone(), Stream { session, ..Stream::default() });
                kept.begun.push_back(name.to_owned());
                key
            }
        };
        let size = OVERHEAD + event.message.as_deref().map_or(0, length);
        kept.bytes += size;
        let mut id = String::new();
        if let Some(stream) = kept.streams.get_mut(&key) {
            id = format!("{key}-{}", stream.events.len());
            let mut event = event.clone();
            event.event_id = Some(id.clone());
            let answers = event.message.as_deref().is_some_and(is_answer);
            stream.events.push(event);
            stream.bytes += size;
            stream.ended |= answers;
            stream.more.notify_waiters();
        }
        kept.shrink(name);
        id
    }

    /// The events of a stream from a number on, whether that is all, and where to wait for more.
    fn after(&self, key: &str, seen: usize) -> Option<(Vec<ServerSseMessage>, bool, Arc<Notify>)> {
        let kept = self.lock();
        let stream = kept.streams.get(key)?;
        let events = stream.events.get(seen..).unwrap_or_default().to_vec();
        Some((events, stream.ended, stream.more.clone()))
    }
}

impl Kept {
    /// Gives up the oldest streams until the bounds hold; `but` is being written.
    fn shrink(&mut self, but: &str) {
        while (self.bytes > KEPT || self.begun.len() > STREAMS) && self.begun.len() > 1 {
            let ended = |name: &String| {
                self.keys.get(name).and_then(|key| self.streams.get(key)).is_none_or(|s| s.ended)
            };
            let oldest = self.begun.iter().position(|name| name != but && ended(name));
            let oldest = oldest.or_else(|| self.begun.iter().position(|name| name != but));
            let Some(name) = oldest.and_then(|at| self.begun.remove(at)) else { return };
            if let Some(stream) = self.keys.remove(&name).and_then(|key| self.streams.remove(&key)) {
                self.bytes -= stream.bytes;
                stream.more.notify_waiters();
            }
        }
    }
}

fn is_answer(message: &ServerJsonRpcMessage) -> bool {
    matches!(message, ServerJsonRpcMessage::Response(_) | ServerJsonRpcMessage::Error(_))
}

/// Bytes of a message as JSON.
fn length(message: &ServerJsonRpcMessage) -> usize {
    struct Count(usize);
    impl std::io::Write for Count {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(0);
    let _ = serde_json::to_writer(&mut count, message);
    count.0
}

/// Shared with the SDK, which wants it `'static`.
#[derive(Clone)]
pub(super) struct SharedEvents(pub(super) Arc<Events>);

#[async_trait::async_trait]
impl EventStore for SharedEvents {
    async fn store_event(&self, stream: &str, event: &ServerSseMessage) -> Result<EventId, EventStoreError> {
        Ok(self.0.keep(stream, event))
    }

    async fn replay_events_after(&self, last: &str) -> Result<EventStream, EventStoreError> {
        let unknown = || format!("no stream is known that had the event {last:.60}");
        let (key, seen) = last.split_once('-').ok_or_else(unknown)?;
        let seen: usize = seen.parse().map_err(|_| unknown())?;
        let (events, key) = (self.0.clone(), key.to_owned());
        if events.after(&key, 0).is_none() {
            return Err(unknown().into());
        }
        let next = seen.saturating_add(1);
        let stream = futures_util::stream::unfold((events, key, next, VecDeque::new()), |state| async move {
            let (events, key, mut next, mut ready) = state;
            loop {
                if let Some(event) = ready.pop_front() {
                    return Some((event, (events, key, next, ready)));
                }
                let (more, ended, news) = events.after(&key, next)?;
                if more.is_empty() {
                    if ended {
                        return None;
                    }
                    let news = news.notified();
                    tokio::pin!(news);
                    news.as_mut().enable();
                    // Between the look and this something may have come.
                    if events.after(&key, next).is_some_and(|(more, ended, _)| more.is_empty() && !ended) {
                        news.await;
                    }
                    continue;
                }
                next += more.len();
                ready.extend(more);
            }
        });
        Ok(Box::pin(SyncStream(Mutex::new(Box::pin(stream)))))
    }
}

/// A stream that only its owner polls, for a trait that asks for `Sync`.
struct SyncStream<T>(Mutex<std::pin::Pin<Box<dyn futures_util::Stream<Item = T> + Send>>>);

impl<T> futures_util::Stream for SyncStream<T> {
    type Item = T;

    fn poll_next(
        self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).as_mut().poll_next(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn whoever_came_back_in_time_has_a_whole_window_again() {
        let events = Arc::new(Events::default());
        let window = Duration::from_millis(400);
        let tie = Tie::new("s", window);
        let lost = std::time::Instant::now();
        drop(Reading::begin(tie.clone(), events.clone()));
        tokio::time::sleep(window / 2).await;
        drop(Reading::begin(tie.clone(), events));
        let again = std::time::Instant::now();
        tie.gone().await;
        assert!(again.elapsed() >= window && lost.elapsed() >= window, "{:?}", again.elapsed());
    }

    #[test]
    fn only_the_session_that_a_stream_is_of_comes_back_for_it() {
        let events = Events::default();
        let event = ServerSseMessage::priming("0", Duration::ZERO);
        let id = events.keep("a:common", &event);
        assert!(events.has(&id, "a") && !events.has(&id, "b") && !events.has(&id, ""));
        let beyond = format!("{}-1", id.split_once('-').unwrap().0);
        for unknown in ["", "x", "0-0", &beyond, &format!("{id}x"), &id.replace('-', "")] {
            assert!(!events.has(unknown, "a"), "{unknown}");
        }
        assert!(!events.has(&events.keep("answer", &event), "a"), "before it is known whose it is");
    }

    #[test]
    fn what_is_kept_is_bounded_and_what_ended_goes_first() {
        let events = Events::default();
        let first = events.keep("first", &ServerSseMessage::priming("0", Duration::ZERO));
        for n in 0..STREAMS + 10 {
            events.keep(&format!("s{n}"), &ServerSseMessage::priming("0", Duration::ZERO));
        }
        assert_eq!(events.lock().streams.len(), STREAMS);
        let key = |id: &str| id.split_once('-').unwrap().0.to_owned();
        assert!(events.after(&key(&first), 0).is_none());
        assert_eq!(events.lock().keys.len(), STREAMS);
        assert_eq!(events.lock().bytes, STREAMS * OVERHEAD);
    }
}
