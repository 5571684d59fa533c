//! What the daemon and its agent say to each other. No I/O, no clock, no threads.
//!
//! The daemon (outside) and the agent (PID 1 inside every container) talk through one byte stream: the
//! hijacked stream of an exec whose program only carries bytes. That stream may break at any moment (code in
//! the container can kill the carrier), so the *logical* link survives it:
//!
//! ```text
//!  Request/Event (message)     what is meant, one enum each way
//!        │
//!  Mux (mux)                   many streams, a window each; keeps what the peer has not consumed and sends
//!        │                     it again after a reconnect, so a broken carrier loses and repeats nothing
//!  Frame (frame)               length, stream, kind, payload
//!        │
//!  bytes                       the carrier's business, not ours
//! ```
//!
//! Invariants: nothing decoded here is trusted further than its own bounds say ([`limits`]); a peer that
//! breaks a rule gets a [`ProtocolError`], never a panic and never more memory than a window per stream.

pub mod facts;
pub mod frame;
pub mod glob;
pub mod limits;
pub mod message;
pub mod mux;
pub mod path;
pub mod policy;
pub mod target;

pub use frame::{Channel, Frame, Kind, StreamId};
pub use message::{Event, Hello, HelloReply, Request};
pub use mux::{Inbound, Mux};
pub use path::{PathError, RelPath};
pub use policy::FilePolicy;
pub use target::{LinkTarget, TargetError};

/// A rule of the protocol that the peer broke. The link is not usable afterwards.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolError {
    /// A frame longer than [`limits::MAX_PAYLOAD`].
    #[error("a frame of {0} bytes, over the {max} that one may have", max = limits::MAX_PAYLOAD)]
    Oversize(usize),
    /// A kind byte that names no [`Kind`].
    #[error("frame kind {0} does not exist")]
    UnknownKind(u8),
    /// A payload that is not what its kind demands.
    #[error("a malformed {0}")]
    Malformed(&'static str),
    /// More bytes on one stream than its window allows.
    #[error("stream {0} sent more than its window")]
    WindowExceeded(StreamId),
    /// A frame for a stream that this side never agreed to.
    #[error("stream {0} is not open")]
    UnknownStream(StreamId),
    /// A consumption report for bytes that were never sent.
    #[error("stream {0}: the peer consumed more than was sent")]
    BadCredit(StreamId),
    /// More frames that change nothing than [`limits::STRAY`] allows.
    #[error("more frames for streams that are over than can have been under way")]
    Stray,
    /// More streams than [`limits::MAX_STREAMS`].
    #[error("more than {max} streams at once", max = limits::MAX_STREAMS)]
    TooManyStreams,
}
