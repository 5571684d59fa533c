//! Connections to servers that programs run in the container: streams that the daemon opens.
//!
//! ```text
//!  Dials::dial ─ Request::Dial ─► agent ─► Connected ─► DialStream: bytes both ways
//!                                    └───► Refused ───► DialError
//! ```
//!
//! Neither a [`Dials`] nor a [`DialStream`] keeps the link open, and a `Dials` keeps no memory of a link that
//! is gone: a session has one for as long as it is remembered. There must never be more connections than
//! [`MAX_DIALS`] on one link.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use bytes::Bytes;
use paddock_proto::limits::MAX_DIALS;
use paddock_proto::message::{self, ConnectFailure, Reply};
use paddock_proto::{Channel, Inbound, Kind, ProtocolError, Request};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use super::asks::NetInput;
use super::raw::{RawStream, pieces};
use super::{Link, LinkError, LinkState};

/// Why there is no connection to a server in a container.
#[derive(Debug, Clone, thiserror::Error)]
pub enum PortDialError {
    /// The agent did not connect.
    #[error("{0:?}")]
    Refused(ConnectFailure),
    /// The link failed.
    #[error(transparent)]
    Link(#[from] LinkError),
}

/// Connects to the servers of one container; clones share its bound.
#[derive(Clone)]
pub struct Dials {
    shared: Weak<LinkState>,
    permits: Arc<Semaphore>,
}

impl Link {
    /// Connects to servers of the container from now on. The value does not keep the link open.
    pub fn dials(&self) -> Dials {
        Dials { shared: Arc::downgrade(&self.shared), permits: Arc::new(Semaphore::new(MAX_DIALS)) }
    }
}

impl Dials {
    /// Whether the container cannot be reached any more.
    pub fn is_lost(&self) -> bool {
        self.shared.upgrade().is_none_or(|shared| shared.fault().is_some())
    }

    /// Connects to the server on this TCP port of the container's loopback. Dropping the future gives the
    /// attempt up.
    ///
    /// # Errors
    /// What the agent says, or the link's fault.
    pub async fn dial(&self, port: u16) -> Result<DialStream, PortDialError> {
        let too_many = || PortDialError::Refused(ConnectFailure::TooMany);
        let permit = self.permits.clone().try_acquire_owned().map_err(|_| too_many())?;
        let shared = self.shared.upgrade().ok_or(LinkError::Closed)?;
        if let Some(fault) = shared.fault() {
            return Err(fault.into());
        }
        let raw = {
            let mut state = shared.lock();
            let id = state.mux.open(message::encode(&Request::Dial { port })).map_err(|_| too_many())?;
            let bell = Arc::new(Notify::new());
            state.bells.insert(id, bell.clone());
            RawStream::new(id, shared.clone(), bell)
        };
        shared.transmit.notify_one();
        drop(shared);
        match raw.inbound().await? {
            Inbound::Message(bytes) => match message::decode(&bytes).map_err(LinkError::from)? {
                Reply::Connected => Ok(DialStream { raw, _permit: permit }),
                Reply::Refused(why) => Err(PortDialError::Refused(why)),
                Reply::Allowed => Err(LinkError::Refused.into()),
            },
            Inbound::Reset => Err(LinkError::Reset.into()),
            Inbound::Data(..) | Inbound::Eof(_) | Inbound::Close => Err(LinkError::Refused.into()),
        }
    }
}

/// A connection to a server in the container. Dropping it resets the connection, unless
/// [`DialStream::close`] was called before.
pub struct DialStream {
    raw: RawStream,
    _permit: OwnedSemaphorePermit,
}

impl DialStream {
    /// Waits for what the server sends next. Cancel-safe.
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
            Inbound::Message(_) | Inbound::Data(..) | Inbound::Eof(_) => {
                Err(ProtocolError::Malformed("connection").into())
            }
        }
    }

    /// Sends bytes to the server, and waits while the agent's window is full. The bytes are not copied.
    ///
    /// # Errors
    /// The link's fault. On a stream that the agent has reset it succeeds; [`DialStream::read`] returns the
    /// error then.
    pub async fn write(&self, bytes: Bytes) -> Result<(), LinkError> {
        self.raw.send_all(&mut pieces(Channel::Net, bytes).collect::<VecDeque<_>>()).await
    }

    /// Sends nothing more to the server.
    ///
    /// # Errors
    /// As [`DialStream::write`].
    pub async fn eof(&self) -> Result<(), LinkError> {
        self.raw.send(Kind::Eof(Channel::Net), Bytes::new()).await
    }

    /// Closes the stream. What was sent before still arrives, even if the stream is dropped now.
    ///
    /// # Errors
    /// As [`DialStream::write`].
    pub async fn close(&self) -> Result<(), LinkError> {
        self.raw.send(Kind::Close, Bytes::new()).await
    }
}
