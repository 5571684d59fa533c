//! Follows the events of an engine, for as long as the stream is polled.
//!
//! ```text
//!           opened                     cut, refused, silent at the head
//! opening ──────────→ open ──────────────────────────────┐
//!    ↑   Connected /   │ Event, Event, …                 │ Disconnected, once
//!    │   Reconnected   └─────────────────────────────────┤
//!    └──────────── wait: 100 ms, 200 ms, … 2 s ←─────────┘
//! ```
//!
//! The stream must never end, and must never claim that no event was missed: after
//! [`EventStreamItem::Connected`] and [`EventStreamItem::Reconnected`] the caller lists the containers and
//! images itself. Between those two no event is missed, since each connection begins where the last one
//! ended, by the engine's own clock; the engine keeps its last 256 events for that. A caller that polls too
//! slowly loses events as well: the engine drops an event that waits for longer than 0.1 s behind 1,024
//! others. The stream must never keep an exec's argv, which the engine's events contain.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::BytesMut;
use futures_util::stream::{self, Stream, StreamExt};
use hyper::body::Incoming;
use serde::Deserialize;
use tokio::time::Instant;

use super::Engine;
use super::call::EngineCall;
use super::error::EngineError;
use super::event::{EngineEvent, EventTime, WireEvent};
use super::limits::EVENTS_FIRST_WAIT;
use super::op::EngineOp;
use super::transport::{next_data, parse};

/// Which events to follow.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EventFilter {
    /// Kinds of objects; all three when empty.
    pub kinds: Vec<EventKind>,
    /// Labels that the object must have, `name` or `name=value`. The engine compares the labels of containers
    /// and images, but not of volumes: with labels there are no events of volumes.
    pub labels: Vec<String>,
    /// Actions by the engine's names, such as `die` and `oom`; all when empty.
    pub actions: Vec<String>,
}

/// The kind of object that an event is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EventKind {
    /// A container, or an exec in one.
    Container,
    /// An image.
    Image,
    /// A volume.
    Volume,
}

impl EventKind {
    fn as_str(self) -> &'static str {
        match self {
            EventKind::Container => "container",
            EventKind::Image => "image",
            EventKind::Volume => "volume",
        }
    }
}

/// An item of an event stream.
#[derive(Debug)]
pub enum EventStreamItem {
    /// The stream is connected for the first time. List the objects now: every later change comes as an
    /// event. This is the first item, unless a `Disconnected` comes before it.
    Connected,
    /// The stream is connected again after a [`EventStreamItem::Disconnected`]. List the objects again, since
    /// events may have been missed.
    Reconnected,
    /// An event.
    Event(EngineEvent),
    /// The connection broke, or could not be made. Comes once; the stream goes on trying to connect.
    Disconnected(EngineError),
}

/// A stream of events. It never ends, reconnects by itself, and closes its connection when dropped.
///
/// It does nothing unless it is polled.
pub struct EventStream {
    inner: Pin<Box<dyn Stream<Item = EventStreamItem> + Send>>,
}

impl EventStream {
    /// Waits for the next item. Cancel safe.
    pub async fn next(&mut self) -> EventStreamItem {
        match self.inner.next().await {
            Some(followed) => followed,
            None => std::future::pending().await,
        }
    }
}

impl Stream for EventStream {
    type Item = EventStreamItem;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<EventStreamItem>> {
        self.inner.as_mut().poll_next(cx)
    }
}

impl fmt::Debug for EventStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventStream").finish_non_exhaustive()
    }
}

impl Engine {
    /// Follows the engine's events: `GET /events`, again and again. Does nothing until it is polled.
    pub fn events(&self, filter: EventFilter) -> EventStream {
        let follower = EventFollower {
            engine: self.clone(),
            filter,
            cursor: None,
            open: None,
            lost: false,
            met: false,
            wait: Duration::ZERO,
        };
        let inner = stream::unfold(follower, |mut follower| async {
            let next = follower.next().await;
            Some((next, follower))
        });
        EventStream { inner: Box::pin(inner) }
    }

    /// The engine's clock, which `since` refers to: `SystemTime` of `GET /info`.
    async fn clock(&self) -> Result<EventTime, EngineError> {
        #[derive(Deserialize)]
        struct EngineClock {
            #[serde(rename = "SystemTime")]
            now: String,
        }
        let limits = self.limits();
        let call = EngineCall::new(EngineOp::Info, "/info".into(), limits.read, limits.answer_bytes);
        let clock: EngineClock = self.transport.ask(call).await?.json().await?;
        EventTime::from_rfc3339(&clock.now)
            .ok_or_else(|| EngineError::protocol(EngineOp::Info, "its SystemTime is not an RFC 3339 time"))
    }
}

/// Where the next connection begins: at the time of the last event. The engine then sends all events of that
/// time again, so the cursor counts how many of them were passed on.
#[derive(Debug, Clone, Copy)]
struct EventCursor {
    time: EventTime,
    passed: u32,
}

struct EventFollower {
    engine: Engine,
    filter: EventFilter,
    cursor: Option<EventCursor>,
    open: Option<OpenStream>,
    /// Whether the last item about the connection was `Disconnected`.
    lost: bool,
    /// Whether the stream was ever connected.
    met: bool,
    wait: Duration,
}

struct OpenStream {
    body: Incoming,
    lines: LineSplitter,
    /// How many events of [`EventCursor::time`] the engine still sends again.
    again: u32,
    since: Instant,
}

impl EventFollower {
    async fn next(&mut self) -> EventStreamItem {
        loop {
            let Some(open) = &mut self.open else {
                tokio::time::sleep(self.wait).await;
                match self.open().await {
                    Ok(open) => {
                        self.open = Some(open);
                        self.lost = false;
                        return if std::mem::replace(&mut self.met, true) {
                            EventStreamItem::Reconnected
                        } else {
                            EventStreamItem::Connected
                        };
                    }
                    Err(error) => match self.failed(error) {
                        Some(told) => return told,
                        None => continue,
                    },
                }
            };
            match open.event().await {
                Ok(event) => {
                    self.wait = Duration::ZERO;
                    if let Some(event) = self.fresh(event) {
                        return EventStreamItem::Event(event);
                    }
                }
                Err(error) => {
                    // If the stream lasted, the engine was restarted. If not, it refuses the stream, so back
                    // off.
                    if open.since.elapsed() > self.engine.limits().events_longest_wait {
                        self.wait = Duration::ZERO;
                    }
                    if matches!(error, EngineError::Protocol { .. } | EngineError::TooLarge { .. }) {
                        // An event that cannot be read would come again from this cursor, for ever.
                        self.cursor = None;
                    }
                    self.open = None;
                    if let Some(told) = self.failed(error) {
                        return told;
                    }
                }
            }
        }
    }

    fn failed(&mut self, error: EngineError) -> Option<EventStreamItem> {
        let longest = self.engine.limits().events_longest_wait;
        self.wait = (self.wait * 2).clamp(EVENTS_FIRST_WAIT.min(longest), longest);
        let (host, wait) = (self.engine.host(), self.wait);
        tracing::debug!(%host, %error, ?wait, "the event stream is disconnected");
        (!std::mem::replace(&mut self.lost, true)).then_some(EventStreamItem::Disconnected(error))
    }

    async fn open(&mut self) -> Result<OpenStream, EngineError> {
        // The engine answers before it subscribes: without a time to begin at, events in between would be
        // missed.
        let cursor = match self.cursor {
            Some(cursor) => cursor,
            None => EventCursor { time: self.engine.clock().await?, passed: 0 },
        };
        let limits = self.engine.limits();
        let kinds = match self.filter.kinds.as_slice() {
            [] => &[EventKind::Container, EventKind::Image, EventKind::Volume],
            kinds => kinds,
        };
        let kinds: Vec<String> = kinds.iter().map(|kind| kind.as_str().to_owned()).collect();
        let call =
            EngineCall::new(EngineOp::Events, "/events".into(), limits.stream_head, limits.answer_bytes)
                .query("since", &cursor.time.to_string())
                .filters(&[
                    ("type", kinds.as_slice()),
                    ("label", self.filter.labels.as_slice()),
                    ("event", self.filter.actions.as_slice()),
                ]);
        let answer = self.engine.transport.ask(call).await?;
        if answer.content_type() != Some("application/json") {
            let found = answer.content_type().unwrap_or("no type");
            return Err(EngineError::protocol(
                EngineOp::Events,
                format!("its content type is {found}, not application/json"),
            ));
        }
        self.cursor = Some(cursor);
        let lines = LineSplitter::new(limits.event_bytes);
        Ok(OpenStream { body: answer.into_body(), lines, again: cursor.passed, since: Instant::now() })
    }

    /// Advances the cursor. `None` for an event that was passed on before the connection broke, or that is
    /// not one of ours.
    fn fresh(&mut self, event: WireEvent) -> Option<EngineEvent> {
        let time = event.time();
        match &mut self.cursor {
            Some(cursor) if cursor.time == time => {
                if let Some(open) = self.open.as_mut().filter(|open| open.again > 0) {
                    open.again -= 1;
                    return None;
                }
                cursor.passed += 1;
            }
            // Also if this time is earlier: the engine's clock can be set back, and a cursor in its future
            // would miss events.
            cursor => {
                *cursor = Some(EventCursor { time, passed: 1 });
                if let Some(open) = &mut self.open {
                    open.again = 0;
                }
            }
        }
        EngineEvent::from_wire(event)
    }
}

impl OpenStream {
    /// Waits for the next event. Cancel safe.
    async fn event(&mut self) -> Result<WireEvent, EngineError> {
        let op = EngineOp::Events;
        loop {
            if let Some(line) = self.lines.next()? {
                if line.iter().all(u8::is_ascii_whitespace) {
                    continue;
                }
                return parse(op, &line);
            }
            match next_data(op, &mut self.body).await? {
                Some(data) => self.lines.feed(&data),
                None => {
                    let end =
                        std::io::Error::new(std::io::ErrorKind::UnexpectedEof, "the engine ended the stream");
                    return Err(EngineError::Lost { op, source: end.into() });
                }
            }
        }
    }
}

/// Cuts a stream into lines of bounded length.
struct LineSplitter {
    buffer: BytesMut,
    /// How many bytes at the front were searched already for the end of a line.
    searched: usize,
    longest: usize,
}

impl LineSplitter {
    fn new(longest: usize) -> LineSplitter {
        LineSplitter { buffer: BytesMut::new(), searched: 0, longest }
    }

    fn feed(&mut self, data: &[u8]) {
        self.buffer.extend_from_slice(data);
    }

    /// The next whole line, without its newline.
    fn next(&mut self) -> Result<Option<BytesMut>, EngineError> {
        let too_large = || EngineError::TooLarge { op: EngineOp::Events, cap: self.longest as u64 };
        match self.buffer[self.searched..].iter().position(|byte| *byte == b'\n') {
            Some(at) if self.searched + at > self.longest => Err(too_large()),
            Some(at) => {
                let mut line = self.buffer.split_to(self.searched + at + 1);
                line.truncate(line.len() - 1);
                self.searched = 0;
                Ok(Some(line))
            }
            None if self.buffer.len() > self.longest => Err(too_large()),
            None => {
                self.searched = self.buffer.len();
                Ok(None)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_whole_however_they_are_cut() {
        let mut lines = LineSplitter::new(10);
        let mut out = vec![];
        for piece in ["a", "b\ncd\n", "", "\ne", "f\n", "rest"] {
            lines.feed(piece.as_bytes());
            while let Some(line) = lines.next().expect("short lines") {
                out.push(String::from_utf8(line.to_vec()).expect("text"));
            }
        }
        assert_eq!(out, ["ab", "cd", "", "ef"]);
    }

    #[test]
    fn a_line_beyond_the_bound_is_refused_whether_it_ends_or_not() {
        for text in ["12345678901", "12345678901\n"] {
            let mut lines = LineSplitter::new(10);
            lines.feed(text.as_bytes());
            assert!(matches!(lines.next(), Err(EngineError::TooLarge { cap: 10, .. })), "`{text}`");
        }
    }
}
