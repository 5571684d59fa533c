//! One request under way: it receives typed messages, sends within the agent's window, and resets the stream
//! on drop.
//!
//! It must never give its user anything that the protocol does not allow at that point. The user must check
//! what a message *claims*.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Arc;

use bytes::Bytes;
use paddock_proto::limits::CHUNK;
use paddock_proto::message::{self, Entry};
use paddock_proto::{Channel, Event, Inbound, Kind, ProtocolError, Request, StreamId};
use tokio::sync::Notify;

use super::{Link, LinkError};

/// The longest sentence from an agent, in characters. Sentences go into answers and logs; our own agent's are
/// shorter.
const MAX_SENTENCE: usize = 1024;

/// What comes from the agent on a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Incoming {
    /// A message.
    Event(Event),
    /// Bytes of a channel.
    Data(Channel, Bytes),
    /// The agent has closed the stream.
    End,
}

/// A part of what is put into a container: an entry, or a piece of a file's content.
#[derive(Debug)]
pub enum PutPart {
    /// An entry; a file's content follows it.
    Entry(Entry),
    /// A piece of the content of the last file.
    Content(Bytes),
}

/// Cuts the sentence of an event to [`MAX_SENTENCE`].
fn cut(event: Event) -> Event {
    let short = |what: String| match what.char_indices().nth(MAX_SENTENCE) {
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
        | Event::Probed(_) => event,
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

    /// Waits for what the agent sends next. Cancel-safe.
    ///
    /// # Errors
    /// The link's fault, [`LinkError::Reset`] if the agent gave the request up, [`LinkError::Protocol`] if it
    /// sent anything that the protocol does not allow.
    pub async fn next(&self) -> Result<Incoming, LinkError> {
        loop {
            let mut rung = pin!(self.bell.notified());
            rung.as_mut().enable();
            if let Some(inbound) = self.take() {
                return match inbound {
                    Inbound::Message(bytes) => Ok(Incoming::Event(cut(message::decode(&bytes)?))),
                    // Without bytes no window would bound the number of such frames.
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
        let mut state = self.link.shared.lock();
        let inbound = state.mux.take(self.id)?;
        let due = state.mux.owes_credit(self.id);
        drop(state);
        if due {
            self.link.shared.transmit.notify_one();
        }
        Some(inbound)
    }

    /// Stops acknowledging what is received: the agent keeps it, for a daemon that may come after this one.
    /// Call [`Stream::release`] before a whole window has been received, or the agent waits for ever.
    pub fn hold(&self) {
        self.link.shared.lock().mux.hold(self.id);
    }

    /// Acknowledges everything received so far, and what follows.
    pub fn release(&self) {
        self.link.shared.lock().mux.release(self.id);
        self.link.shared.transmit.notify_one();
    }

    /// Sends a further request on this stream.
    ///
    /// # Errors
    /// The link's fault. On a stream that the agent has reset it succeeds; [`Stream::next`] returns the error
    /// then.
    pub async fn say(&self, request: &Request) -> Result<(), LinkError> {
        self.send(Kind::Message, message::encode(request)).await
    }

    /// Sends bytes of a channel, cut into frames.
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
    pub async fn put(&self, parts: impl IntoIterator<Item = PutPart>) -> Result<(), LinkError> {
        let mut frames = VecDeque::new();
        for part in parts {
            match part {
                PutPart::Entry(entry) => {
                    frames.push_back((Kind::Message, message::encode(&Request::Put(entry))))
                }
                PutPart::Content(bytes) => frames.extend(pieces(Channel::File, bytes)),
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

    /// Closes the stream. What was sent before still arrives, even if the stream is dropped now.
    ///
    /// # Errors
    /// As [`Stream::say`].
    pub async fn close(&self) -> Result<(), LinkError> {
        self.send(Kind::Close, Bytes::new()).await
    }

    async fn send(&self, kind: Kind, payload: Bytes) -> Result<(), LinkError> {
        self.send_all(&mut VecDeque::from([(kind, payload)])).await
    }

    /// Sends frames in their order, as many at a time as fit into the agent's window.
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

    /// Queues the frames that fit into the agent's window. Whether there were any.
    fn queue(&self, frames: &mut VecDeque<(Kind, Bytes)>) -> bool {
        let mut state = self.link.shared.lock();
        let before = frames.len();
        while let Some((_, payload)) = frames.front()
            && state.mux.has_room(self.id, payload.len())
            && let Some((kind, payload)) = frames.pop_front()
        {
            state.mux.send(self.id, kind, payload);
        }
        frames.len() < before
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let mut state = self.link.shared.lock();
        state.mux.finish(self.id);
        state.bells.remove(&self.id);
        drop(state);
        self.link.shared.transmit.notify_one();
    }
}
