//! The events of answers and streams, kept so that a client that lost its connection can read on.
//!
//! In memory, bounded over all streams of one token: what ended first is evicted first. It must never give an
//! event to another session than its own.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use rmcp::model::ServerJsonRpcMessage;
use rmcp::transport::common::server_side_http::ServerSseMessage;
use rmcp::transport::streamable_http_server::session::{EventId, EventStore, EventStoreError, EventStream};
use tokio::sync::Notify;

use super::resume::ResumableCall;

/// Bytes of kept events, over all streams of one token.
const KEPT: usize = 32 << 20;
/// Streams of which events are kept.
const STREAMS: usize = 4096;
/// What an event counts beside its text.
const OVERHEAD: usize = 256;

/// The events of one token's streams.
#[derive(Default)]
pub(super) struct Replay(Mutex<KeptStreams>);

#[derive(Default)]
struct KeptStreams {
    /// By the key with which the ids of its events begin.
    streams: HashMap<String, KeptStream>,
    /// The keys, by the SDK's names of streams.
    keys: HashMap<String, String>,
    /// The SDK's names of streams, the oldest first.
    begun: VecDeque<String>,
    bytes: usize,
}

#[derive(Default)]
struct KeptStream {
    /// The MCP session that may read it.
    session: String,
    events: Vec<ServerSseMessage>,
    bytes: usize,
    /// The answer is among its events: nothing more will come.
    ended: bool,
    more: Arc<Notify>,
    call: Weak<ResumableCall>,
}

impl Replay {
    fn lock(&self) -> MutexGuard<'_, KeptStreams> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether an event belongs to a session and is kept.
    pub(super) fn has(&self, event: &str, session: &str) -> bool {
        let kept = self.lock();
        let found =
            event.split_once('-').and_then(|(key, seen)| Some((kept.streams.get(key)?, seen.parse().ok()?)));
        found
            .is_some_and(|(stream, seen): (_, usize)| stream.session == session && seen < stream.events.len())
    }

    /// The call that a stream answers, if it goes on.
    pub(super) fn call(&self, key: &str) -> Option<Arc<ResumableCall>> {
        self.lock().streams.get(key)?.call.upgrade()
    }

    /// Links a stream with the call that it answers; true if there is such a stream.
    pub(super) fn link(&self, key: &str, call: &Arc<ResumableCall>, session: &str) -> bool {
        let mut kept = self.lock();
        let Some(stream) = kept.streams.get_mut(key) else { return false };
        stream.call = Arc::downgrade(call);
        session.clone_into(&mut stream.session);
        true
    }

    /// Notes that nothing more comes on a stream.
    pub(super) fn end(&self, key: &str) {
        if let Some(stream) = self.lock().streams.get_mut(key) {
            stream.ended = true;
            stream.more.notify_waiters();
        }
    }

    /// Whether a stream has its answer.
    pub(super) fn has_ended(&self, key: &str) -> bool {
        self.lock().streams.get(key).is_some_and(|stream| stream.ended)
    }

    fn keep(&self, name: &str, event: &ServerSseMessage) -> EventId {
        let mut kept = self.lock();
        let key = match kept.keys.get(name) {
            Some(key) => key.clone(),
            None => {
                let key = crate::id::random_hex::<8>();
                kept.keys.insert(name.to_owned(), key.clone());
                // The SDK gives this name to what a session hears apart from its answers. An answer's stream
                // learns its session from its reader.
                let session = name.strip_suffix(":common").unwrap_or_default().to_owned();
                kept.streams.insert(key.clone(), KeptStream { session, ..KeptStream::default() });
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

    /// The events of a stream from a number on, whether more will come, and where to wait for it.
    fn after(&self, key: &str, seen: usize) -> Option<(Vec<ServerSseMessage>, bool, Arc<Notify>)> {
        let kept = self.lock();
        let stream = kept.streams.get(key)?;
        let events = stream.events.get(seen..).unwrap_or_default().to_vec();
        Some((events, stream.ended, stream.more.clone()))
    }
}

impl KeptStreams {
    /// Evicts the oldest streams until the bounds hold, but not `but`, which is being written.
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

/// A handle for the SDK, which wants it to be `'static`.
#[derive(Clone)]
pub(super) struct SharedReplay(pub(super) Arc<Replay>);

#[async_trait::async_trait]
impl EventStore for SharedReplay {
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
                    // An event may have come between the look and this.
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

/// A stream for a trait that asks for `Sync`, although only its owner polls it.
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
    use std::time::Duration;

    use super::*;

    #[test]
    fn only_the_session_that_a_stream_is_of_comes_back_for_it() {
        let events = Replay::default();
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
        let events = Replay::default();
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
