//! One request under way: typed receiving, windowed sending, reset on drop.
//!
//! It must never give its user anything that the protocol does not allow at that point; what a message
//! *claims* is for the user to check.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Arc;

use bytes::Bytes;
use paddock_proto::limits::CHUNK;
use paddock_proto::message::{self, Entry};
use paddock_proto::{Channel, Event, Inbound, Kind, ProtocolError, Request, StreamId};
use tokio::sync::Notify;

use super::{Link, LinkError};

/// Characters of a sentence of the agent's that are heard: more is no sentence of ours, and goes into answers and logs.
const MAX_SAID: usize = 1024;

/// What comes from the agent on a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Incoming {
    /// A message.
    Event(Event),
    /// Bytes of a channel.
    Data(Channel, Bytes),
    /// The agent has said everything.
    End,
}

/// What is said of a file that goes in: first what it is, then its content piece by piece.
#[derive(Debug)]
pub enum Part {
    /// An entry; for a file its content follows.
    Entry(Entry),
    /// A piece of the content of the file named last.
    Content(Bytes),
}

/// A sentence no longer than one is.
fn cut(event: Event) -> Event {
    let short = |what: String| match what.char_indices().nth(MAX_SAID) {
        Some((end, _)) => what[..end].to_owned(),
        None => what,
    };
    match event {
        Event::Failed { what } => Event::Failed { what: short(what) },
        Event::Unsupported { what } => Event::Unsupported { what: short(what) },
        Event::Ended(_)
        | Event::Changed(_)
        | Event::FileEnd { .. }
        | Event::Removed(_)
        | Event::Skipped { .. }
        | Event::Collected { .. }
        | Event::Applied
        | Event::Claimed
        | Event::Attached { .. }
        | Event::Begun
        | Event::Ending
        | Event::Warm
        | Event::Facts(_) => event,
    }
}

fn pieces(channel: Channel, mut bytes: Bytes) -> impl Iterator<Item = (Kind, Bytes)> {
    std::iter::from_fn(move || {
        (!bytes.is_empty()).then(|| (Kind::Data(channel), bytes.split_to(bytes.len().min(CHUNK))))
    })
}

/// A stream of a link. Dropping it abandons the request, unless [`Stream::close`] was called before.
pub struct Stream {
    id: StreamId,
    link: Link,
    bell: Arc<Notify>,
}

impl Stream {
    pub(super) fn new(id: StreamId, link: Link, bell: Arc<Notify>) -> Self {
        Self { id, link, bell }
    }

    /// The next thing the agent says. Cancel-safe.
    ///
    /// # Errors
    /// The link's fault, [`LinkError::Reset`] if the agent gave the request up, [`LinkError::Protocol`] for
    /// anything that an agent does not say.
    pub async fn next(&self) -> Result<Incoming, LinkError> {
        loop {
            let mut rung = pin!(self.bell.notified());
            rung.as_mut().enable();
            if let Some(inbound) = self.take() {
                return match inbound {
                    Inbound::Message(bytes) => Ok(Incoming::Event(cut(message::decode(&bytes)?))),
                    // It carries nothing, and nothing that is counted by its bytes would bound it.
                    Inbound::Data(_, bytes) if bytes.is_empty() => {
                        Err(ProtocolError::Malformed("data").into())
                    }
                    Inbound::Data(channel, bytes) => Ok(Incoming::Data(channel, bytes)),
                    Inbound::Close => Ok(Incoming::End),
                    Inbound::Reset => Err(LinkError::Reset),
                    Inbound::Eof(_) => continue,
                };
            }
            if let Some(fault) = self.link.shared.fault() {
                return Err(fault);
            }
            rung.await;
        }
    }

    fn take(&self) -> Option<Inbound> {
        let mut inner = self.link.shared.lock();
        let inbound = inner.mux.take(self.id)?;
        let due = inner.mux.owes_credit(self.id);
        drop(inner);
        if due {
            self.link.shared.transmit.notify_one();
        }
        Some(inbound)
    }

    /// From now on what is taken here is not acknowledged: the agent keeps it, for a daemon that may come after this
    /// one. [`Stream::release`] before a window's worth was taken, or the agent waits for ever.
    pub fn hold(&self) {
        self.link.shared.lock().mux.hold(self.id);
    }

    /// Acknowledges what was taken.
    pub fn release(&self) {
        self.link.shared.lock().mux.release(self.id);
        self.link.shared.transmit.notify_one();
    }

    /// Sends a further request on this stream.
    ///
    /// # Errors
    /// The link's fault. On a stream that the agent has reset it succeeds; [`Stream::next`] tells.
    pub async fn say(&self, request: &Request) -> Result<(), LinkError> {
        self.send(Kind::Message, message::encode(request)).await
    }

    /// Sends bytes of a channel, cut as the protocol wants.
    ///
    /// # Errors
    /// As [`Stream::say`].
    pub async fn data(&self, channel: Channel, bytes: Bytes) -> Result<(), LinkError> {
        self.send_all(&mut pieces(channel, bytes).collect()).await
    }

    /// Sends entries with their content in a row.
    ///
    /// # Errors
    /// As [`Stream::say`].
    pub async fn put(&self, parts: impl IntoIterator<Item = Part>) -> Result<(), LinkError> {
        let mut frames = VecDeque::new();
        for part in parts {
            match part {
                Part::Entry(entry) => {
                    frames.push_back((Kind::Message, message::encode(&Request::Put(entry))))
                }
                Part::Content(bytes) => frames.extend(pieces(Channel::File, bytes)),
            }
        }
        self.send_all(&mut frames).await
    }

    /// Ends a channel.
    ///
    /// # Errors
    /// As [`Stream::say`].
    pub async fn eof(&self, channel: Channel) -> Result<(), LinkError> {
        self.send(Kind::Eof(channel), Bytes::new()).await
    }

    /// Says that nothing more comes. What was sent still arrives, even if the stream is dropped now.
    ///
    /// # Errors
    /// As [`Stream::say`].
    pub async fn close(&self) -> Result<(), LinkError> {
        self.send(Kind::Close, Bytes::new()).await
    }

    async fn send(&self, kind: Kind, payload: Bytes) -> Result<(), LinkError> {
        self.send_all(&mut VecDeque::from([(kind, payload)])).await
    }

    /// Sends frames in a row, as many at a time as the window takes: what lies ready together travels together.
    async fn send_all(&self, frames: &mut VecDeque<(Kind, Bytes)>) -> Result<(), LinkError> {
        loop {
            let mut rung = pin!(self.bell.notified());
            rung.as_mut().enable();
            if let Some(fault) = self.link.shared.fault() {
                return Err(fault);
            }
            if self.queue(frames) {
                self.link.shared.transmit.notify_one();
            }
            if frames.is_empty() {
                return Ok(());
            }
            rung.await;
        }
    }

    /// Queues what there is room for; whether that was anything.
    fn queue(&self, frames: &mut VecDeque<(Kind, Bytes)>) -> bool {
        let mut inner = self.link.shared.lock();
        let before = frames.len();
        while let Some((_, payload)) = frames.front()
            && inner.mux.has_room(self.id, payload.len())
            && let Some((kind, payload)) = frames.pop_front()
        {
            inner.mux.send(self.id, kind, payload);
        }
        frames.len() < before
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let mut inner = self.link.shared.lock();
        inner.mux.finish(self.id);
        inner.bells.remove(&self.id);
        drop(inner);
        self.link.shared.transmit.notify_one();
    }
}
