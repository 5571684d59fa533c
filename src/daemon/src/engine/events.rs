//! What happens on an engine, followed for as long as someone listens.
//!
//! ```text
//!           opened                     cut, refused, silent at the head
//! opening ──────────→ open ──────────────────────────────┐
//!    ↑   Connected /   │ Event, Event, …                 │ Disconnected, once
//!    │   Reconnected   └─────────────────────────────────┤
//!    └──────────── wait: 100 ms, 200 ms, … 5 s ←─────────┘
//! ```
//!
//! It must never end, and never claim to have missed nothing: after [`Followed::Connected`] and
//! [`Followed::Reconnected`] the listener lists what there is. In between nothing is missed, for each stream is
//! opened to begin where the last ended, by the engine's own clock; the engine keeps its last 256 events for that.
//! A listener that does not listen loses events too: the engine drops what waits for longer than 0.1 s behind
//! 1,024 others. Nor must it ever keep an exec's argv, which stands in the engine's events.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::BytesMut;
use futures_util::stream::{self, Stream, StreamExt};
use http::Method;
use hyper::body::Incoming;
use serde::Deserialize;
use tokio::time::Instant;

use super::Engine;
use super::call::Call;
use super::error::EngineError;
use super::event::{Event, EventTime, WireEvent};
use super::limits::EVENTS_FIRST_WAIT;
use super::op::Op;
use super::transport::{next_data, parse};

/// Which events to follow.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EventFilter {
    /// Kinds of things; all three when empty.
    pub kinds: Vec<EventKind>,
    /// Labels the thing must carry, `name` or `name=value`, every one of them. The engine knows a container's and
    /// an image's labels here, but not a volume's: with labels there are no events of volumes.
    pub labels: Vec<String>,
    /// Actions in the engine's words, such as `die` and `oom`; all when empty.
    pub actions: Vec<String>,
}

/// What kind of thing an event is about.
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

/// What a follower is told.
#[derive(Debug)]
pub enum Followed {
    /// Events flow from here on. List what there is: everything later comes as an event. Always the first, but for
    /// a `Disconnected`.
    Connected,
    /// Events flow again after a [`Followed::Disconnected`]. List what there is: some may have been missed.
    Reconnected,
    /// Something happened.
    Event(Event),
    /// Events no longer flow, or never did yet. Said once; attempts go on behind it.
    Disconnected(EngineError),
}

/// A followed event stream: never ends, reconnects by itself, and closes its connection when dropped.
///
/// Nothing moves unless it is polled.
pub struct Events {
    inner: Pin<Box<dyn Stream<Item = Followed> + Send>>,
}

impl Events {
    /// What comes next. Cancel safe.
    pub async fn next(&mut self) -> Followed {
        match self.inner.next().await {
            Some(followed) => followed,
            None => std::future::pending().await,
        }
    }
}

impl Stream for Events {
    type Item = Followed;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Followed>> {
        self.inner.as_mut().poll_next(cx)
    }
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Events").finish_non_exhaustive()
    }
}

impl Engine {
    /// Follows the engine's events: `GET /events`, again and again. Does nothing until polled.
    pub fn events(&self, filter: EventFilter) -> Events {
        let follower = Follower {
            engine: self.clone(),
            filter,
            place: None,
            open: None,
            lost: false,
            met: false,
            wait: Duration::ZERO,
        };
        let inner = stream::unfold(follower, |mut follower| async {
            let next = follower.next().await;
            Some((next, follower))
        });
        Events { inner: Box::pin(inner) }
    }

    /// The engine's clock, by which `since` goes: `SystemTime` of `GET /info`.
    async fn clock(&self) -> Result<EventTime, EngineError> {
        #[derive(Deserialize)]
        struct Clock {
            #[serde(rename = "SystemTime")]
            now: String,
        }
        let limits = self.limits();
        let call = Call::new(Op::Info, Method::GET, "/info".into(), limits.read, limits.answer_bytes);
        let clock: Clock = self.transport.ask(call).await?.json().await?;
        EventTime::from_rfc3339(&clock.now)
            .ok_or_else(|| EngineError::protocol(Op::Info, "a SystemTime that is no RFC 3339 time"))
    }
}

/// Where the stream is to be taken up: the time of the last event, and how many events of that very time have been
/// passed on, since the engine sends those again.
#[derive(Debug, Clone, Copy)]
struct Place {
    time: EventTime,
    passed: u32,
}

struct Follower {
    engine: Engine,
    filter: EventFilter,
    place: Option<Place>,
    open: Option<OpenStream>,
    /// Whether `Disconnected` was said and `Connected` or `Reconnected` not yet.
    lost: bool,
    /// Whether events ever flowed.
    met: bool,
    wait: Duration,
}

struct OpenStream {
    body: Incoming,
    lines: Lines,
    /// How many events of `Place::time` to leave out.
    again: u32,
    since: Instant,
}

impl Follower {
    async fn next(&mut self) -> Followed {
        loop {
            let Some(open) = &mut self.open else {
                tokio::time::sleep(self.wait).await;
                match self.open().await {
                    Ok(open) => {
                        self.open = Some(open);
                        self.lost = false;
                        return if std::mem::replace(&mut self.met, true) {
                            Followed::Reconnected
                        } else {
                            Followed::Connected
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
                        return Followed::Event(event);
                    }
                }
                Err(error) => {
                    // A stream that lasted is a restart of the engine, one that did not is a refusal: back off.
                    if open.since.elapsed() > self.engine.limits().events_longest_wait {
                        self.wait = Duration::ZERO;
                    }
                    if matches!(error, EngineError::Protocol { .. } | EngineError::TooLarge { .. }) {
                        // What cannot be read would come again from this place, for ever.
                        self.place = None;
                    }
                    self.open = None;
                    if let Some(told) = self.failed(error) {
                        return told;
                    }
                }
            }
        }
    }

    fn failed(&mut self, error: EngineError) -> Option<Followed> {
        let longest = self.engine.limits().events_longest_wait;
        self.wait = (self.wait * 2).clamp(EVENTS_FIRST_WAIT.min(longest), longest);
        tracing::debug!(host = %self.engine.host(), %error, wait = ?self.wait, "event stream is away");
        (!std::mem::replace(&mut self.lost, true)).then_some(Followed::Disconnected(error))
    }

    async fn open(&mut self) -> Result<OpenStream, EngineError> {
        // The engine answers before it listens: without a time to begin at, what happens in between is missed.
        let place = match self.place {
            Some(place) => place,
            None => Place { time: self.engine.clock().await?, passed: 0 },
        };
        let limits = self.engine.limits();
        let kinds = match self.filter.kinds.as_slice() {
            [] => &[EventKind::Container, EventKind::Image, EventKind::Volume],
            kinds => kinds,
        };
        let kinds: Vec<String> = kinds.iter().map(|kind| kind.as_str().to_owned()).collect();
        let call =
            Call::new(Op::Events, Method::GET, "/events".into(), limits.stream_head, limits.answer_bytes)
                .query("since", &place.time.to_string())
                .filters(&[
                    ("type", kinds.as_slice()),
                    ("label", self.filter.labels.as_slice()),
                    ("event", self.filter.actions.as_slice()),
                ]);
        let answer = self.engine.transport.ask(call).await?;
        if answer.content_type() != Some("application/json") {
            let found = answer.content_type().unwrap_or("no type");
            return Err(EngineError::protocol(Op::Events, format!("{found} where application/json is due")));
        }
        self.place = Some(place);
        let lines = Lines::new(limits.event_bytes);
        Ok(OpenStream { body: answer.into_body(), lines, again: place.passed, since: Instant::now() })
    }

    /// Moves the place on; `None` for an event that was passed on before the stream was cut, or is none of ours.
    fn fresh(&mut self, event: WireEvent) -> Option<Event> {
        let time = event.time();
        match &mut self.place {
            Some(place) if place.time == time => {
                if let Some(open) = self.open.as_mut().filter(|open| open.again > 0) {
                    open.again -= 1;
                    return None;
                }
                place.passed += 1;
            }
            // The engine's clock can be set back; a place in its future would miss what comes.
            place => {
                *place = Some(Place { time, passed: 1 });
                if let Some(open) = &mut self.open {
                    open.again = 0;
                }
            }
        }
        Event::from_wire(event)
    }
}

impl OpenStream {
    /// The next event. Cancel safe.
    async fn event(&mut self) -> Result<WireEvent, EngineError> {
        let op = Op::Events;
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
struct Lines {
    buffer: BytesMut,
    /// Bytes at the front that are known to hold no line's end.
    searched: usize,
    longest: usize,
}

impl Lines {
    fn new(longest: usize) -> Lines {
        Lines { buffer: BytesMut::new(), searched: 0, longest }
    }

    fn feed(&mut self, data: &[u8]) {
        self.buffer.extend_from_slice(data);
    }

    /// The next whole line, without its end.
    fn next(&mut self) -> Result<Option<BytesMut>, EngineError> {
        let too_large = || EngineError::TooLarge { op: Op::Events, cap: self.longest as u64 };
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
        let mut lines = Lines::new(10);
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
            let mut lines = Lines::new(10);
            lines.feed(text.as_bytes());
            assert!(matches!(lines.next(), Err(EngineError::TooLarge { cap: 10, .. })), "`{text}`");
        }
    }
}
