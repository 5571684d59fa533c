//! The streams that the agent opens: a program of a run asks for a name or a connection.
//!
//! ```text
//!  keeper ─ a stream with its Ask ─► waiting ─► Asks::accept ─► AskStream     while somebody has the Asks
//!                                 │                                           or will soon: after a restart
//!                                 └► reset                                    else
//! ```
//!
//! Neither an [`Asks`] nor an [`AskStream`] keeps the link open. A stream must never wait where nobody
//! accepts, and none may begin with anything but an [`Ask`].

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Arc;

use bytes::Bytes;
use paddock_proto::message::{self, Ask, Reply};
use paddock_proto::{Channel, Inbound, Kind, Mux, ProtocolError, StreamId};
use tokio::sync::Notify;

use super::raw::{RawStream, pieces};
use super::{Link, LinkError, LinkState};

/// Streams of the agent that nobody has accepted yet. There are never more than the mux lets the agent open.
#[derive(Default)]
pub(super) struct Waiting {
    /// How many [`Asks`] there are.
    accepting: usize,
    /// Whether there will be one soon: the container has runs of an earlier daemon.
    is_expected: bool,
    asks: VecDeque<(StreamId, Ask)>,
}

impl Waiting {
    /// Takes the streams that the agent has opened since the last call: they wait, or are reset.
    pub(super) fn take_from(&mut self, mux: &mut Mux) -> Result<(), ProtocolError> {
        while let Some(id) = mux.accept() {
            let Some(Inbound::Message(first)) = mux.take(id) else {
                return Err(ProtocolError::Malformed("ask"));
            };
            let ask = message::decode(&first).map_err(|_| ProtocolError::Malformed("ask"))?;
            if self.accepting > 0 || self.is_expected {
                self.asks.push_back((id, ask));
            } else {
                mux.reset(id);
            }
        }
        Ok(())
    }

    /// Streams wait from now on, until somebody has had the [`Asks`].
    pub(super) fn expect(&mut self) {
        self.is_expected = true;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.asks.is_empty()
    }
}

/// The right to accept what programs ask for. Without one, every such stream is reset as it comes.
pub struct Asks {
    shared: Arc<LinkState>,
}

impl Link {
    /// Begins to accept the streams that the agent opens, until the value is dropped. It does not keep the
    /// link open.
    #[must_use]
    pub fn asks(&self) -> Asks {
        let mut state = self.shared.lock();
        state.waiting.accepting += 1;
        state.waiting.is_expected = false;
        drop(state);
        Asks { shared: self.shared.clone() }
    }
}

impl Asks {
    /// Waits for the next stream that the agent opens. Cancel-safe.
    ///
    /// # Errors
    /// The link's fault, once it is lost.
    pub async fn accept(&self) -> Result<AskStream, LinkError> {
        loop {
            let mut rung = pin!(self.shared.asked.notified());
            rung.as_mut().enable();
            if let Some(fault) = self.shared.fault() {
                return Err(fault);
            }
            if let Some(stream) = self.take() {
                return Ok(stream);
            }
            rung.await;
        }
    }

    fn take(&self) -> Option<AskStream> {
        let mut state = self.shared.lock();
        let (id, ask) = state.waiting.asks.pop_front()?;
        let bell = Arc::new(Notify::new());
        state.bells.insert(id, bell.clone());
        drop(state);
        Some(AskStream { ask, raw: RawStream::new(id, self.shared.clone(), bell) })
    }
}

impl Drop for Asks {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.waiting.accepting -= 1;
        if state.waiting.accepting == 0 {
            for (id, _) in std::mem::take(&mut state.waiting.asks) {
                state.mux.reset(id);
            }
        }
        drop(state);
        self.shared.transmit.notify_one();
    }
}

/// What comes from a program on its stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NetInput {
    /// Bytes; never none.
    Data(Bytes),
    /// The program sends nothing more.
    Eof,
    /// The agent has closed the stream: both halves of the connection are at their end.
    End,
}

/// A stream that the agent opened, for what one program asks. Dropping it resets the stream, unless
/// [`AskStream::close`] was called before.
pub struct AskStream {
    ask: Ask,
    raw: RawStream,
}

impl AskStream {
    /// What the program asks for. The daemon must not trust it, like everything that comes from a container.
    pub fn ask(&self) -> &Ask {
        &self.ask
    }

    /// Answers the ask.
    ///
    /// # Errors
    /// The link's fault. On a stream that the agent has reset it succeeds; [`AskStream::read`] returns the
    /// error then.
    pub async fn reply(&self, reply: Reply) -> Result<(), LinkError> {
        self.raw.send(Kind::Message, message::encode(&reply)).await
    }

    /// Waits for what the program sends next. Cancel-safe.
    ///
    /// # Errors
    /// The link's fault, [`LinkError::Reset`] if the connection was reset in the container,
    /// [`LinkError::Protocol`] if the agent sent anything that the protocol does not allow.
    pub async fn read(&self) -> Result<NetInput, LinkError> {
        match self.raw.inbound().await? {
            Inbound::Data(Channel::Net, bytes) if !bytes.is_empty() => Ok(NetInput::Data(bytes)),
            Inbound::Eof(Channel::Net) => Ok(NetInput::Eof),
            Inbound::Close => Ok(NetInput::End),
            Inbound::Reset => Err(LinkError::Reset),
            Inbound::Message(_) => Err(ProtocolError::Malformed("connection").into()),
            Inbound::Data(..) | Inbound::Eof(_) => Err(ProtocolError::Malformed("data").into()),
        }
    }

    /// Waits until the connection is reset in the container, or the link is lost. What the program sent
    /// before stays to be read. Cancel-safe.
    pub async fn abandoned(&self) -> LinkError {
        self.raw.abandoned().await
    }

    /// Sends bytes to the program, and waits while the agent's window is full. The bytes are not copied.
    ///
    /// # Errors
    /// The link's fault, or [`LinkError::Reset`] if the connection was reset in the container: what its
    /// server sends then must not be read on, nobody takes it.
    pub async fn write(&self, bytes: Bytes) -> Result<(), LinkError> {
        if self.raw.is_reset() {
            return Err(LinkError::Reset);
        }
        self.raw.send_all(&mut pieces(Channel::Net, bytes).collect()).await
    }

    /// Sends nothing more to the program.
    ///
    /// # Errors
    /// As [`AskStream::reply`].
    pub async fn eof(&self) -> Result<(), LinkError> {
        self.raw.send(Kind::Eof(Channel::Net), Bytes::new()).await
    }

    /// Closes the stream. What was sent before still arrives, even if the stream is dropped now.
    ///
    /// # Errors
    /// As [`AskStream::reply`].
    pub async fn close(&self) -> Result<(), LinkError> {
        self.raw.send(Kind::Close, Bytes::new()).await
    }
}
