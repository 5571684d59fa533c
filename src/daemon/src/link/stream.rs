//! One request under way: typed receiving, windowed sending, reset on drop.
//!
//! It must never give its user anything that the protocol does not allow at that point; what a message
//! *claims* is for the user to check.

use std::pin::pin;
use std::sync::Arc;

use bytes::Bytes;
use paddock_proto::limits::CHUNK;
use paddock_proto::message;
use paddock_proto::{Channel, Event, Inbound, Kind, Request, StreamId};
use tokio::sync::Notify;

use super::{Link, LinkError};

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
            if let Some(inbound) = self.link.shared.lock().mux.take(self.id) {
                self.link.shared.transmit.notify_one(); // its consumption may be worth a credit
                return match inbound {
                    Inbound::Message(bytes) => Ok(Incoming::Event(message::decode(&bytes)?)),
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
    pub async fn data(&self, channel: Channel, mut bytes: Bytes) -> Result<(), LinkError> {
        while !bytes.is_empty() {
            let piece = bytes.split_to(bytes.len().min(CHUNK));
            self.send(Kind::Data(channel), piece).await?;
        }
        Ok(())
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
        loop {
            let mut rung = pin!(self.bell.notified());
            rung.as_mut().enable();
            if let Some(fault) = self.link.shared.fault() {
                return Err(fault);
            }
            {
                let mut inner = self.link.shared.lock();
                if inner.mux.has_room(self.id, payload.len()) {
                    inner.mux.send(self.id, kind, payload);
                    drop(inner);
                    self.link.shared.transmit.notify_one();
                    return Ok(());
                }
            }
            rung.await;
        }
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
