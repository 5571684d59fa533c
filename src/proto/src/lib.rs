//! The protocol between the daemon and its agent. No I/O, no clock, no threads.
//!
//! The daemon (outside) and the agent (PID 1 inside every container) talk over one byte stream, the
//! *carrier*: the hijacked stream of an exec, or a socket pair. A carrier may break at any moment (code in
//! the container can kill the exec's program), so the *link* survives it:
//!
//! ```text
//!  Request/Event (message)     the messages, one enum for each direction
//!        │
//!  Mux (mux)                   many streams, a window each; keeps what the peer has not consumed and sends
//!        │                     it again after a reconnect, so a broken carrier loses and repeats nothing
//!  Frame (frame)               length, stream, kind, payload
//!        │
//!  bytes                       the carrier's
//! ```
//!
//! Invariants: nothing decoded here is trusted further than its bounds ([`limits`]). A peer that breaks a
//! rule gets a [`ProtocolError`], never a panic, and never more memory than a window for each stream.

pub mod execute;
pub mod frame;
#[cfg(test)]
mod fuzz_tests;
pub mod glob;
pub mod ignore;
pub mod limits;
pub mod message;
pub mod mux;
pub mod output_stream;
pub mod path;
pub mod policy;
pub mod probe;
pub mod share;
pub mod target;
#[cfg(test)]
mod version_tests;

pub use execute::ExecutePolicy;
pub use frame::{Channel, Frame, Kind, StreamId};
pub use message::{Event, Hello, HelloReply, Request};
pub use mux::{Inbound, Mux};
pub use output_stream::OutputStream;
pub use path::{PathError, RelPath};
pub use policy::FilePolicy;
pub use target::{LinkTarget, TargetError};

/// A rule of the protocol that the peer broke. The link is not usable afterwards.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolError {
    /// A frame longer than [`limits::MAX_PAYLOAD`].
    #[error("a frame has {0} bytes of payload; at most {max} are possible", max = limits::MAX_PAYLOAD)]
    Oversize(usize),
    /// A kind byte that names no [`Kind`].
    #[error("there is no frame kind {0}")]
    UnknownKind(u8),
    /// A payload that does not have the form of its kind.
    #[error("a {0} is malformed")]
    Malformed(&'static str),
    /// More bytes on one stream than its window allows.
    #[error("the peer sent more on stream {0} than its window allows")]
    WindowExceeded(StreamId),
    /// A frame for a stream that this side never agreed to.
    #[error("the peer sent a frame on stream {0}, which it may not open")]
    UnknownStream(StreamId),
    /// A credit for bytes that were never sent.
    #[error("the peer says that it consumed more of stream {0} than was sent")]
    BadCredit(StreamId),
    /// More frames that change nothing than [`limits::STRAY`] allows.
    #[error("the peer sent more frames for closed streams than can have been in flight")]
    Stray,
    /// More streams of one side than [`limits::MAX_STREAMS`] or [`limits::MAX_ASKS`].
    #[error("too many streams are open at once")]
    TooManyStreams,
}
