//! One request under way: it receives typed messages, sends within the agent's window, and resets the stream
//! on drop.
//!
//! It must never give its user anything that the protocol does not allow at that point. The user must check
//! what a message *claims*.

use std::collections::VecDeque;

use bytes::Bytes;
use paddock_proto::message::{self, Entry};
use paddock_proto::{Channel, Event, Inbound, Kind, ProtocolError, Request};

use super::raw::{RawStream, pieces};
use super::{Link, LinkError, ProgramCount};

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
        Event::NotRestored { why, failure } => Event::NotRestored { why: short(why), failure },
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
        | Event::Listens { .. }
        | Event::Used { .. }
        | Event::Warm { .. }
        | Event::Probed(_) => event,
    }
}

/// A stream of a link. Dropping it abandons the request, unless [`Stream::close`] was called before.
pub struct Stream {
    raw: RawStream,
    _link: Link,
    /// Of a stream that carries a program.
    _program: Option<ProgramCount>,
}

impl Stream {
    pub(super) fn new(raw: RawStream, link: Link, program: Option<ProgramCount>) -> Self {
        Self { raw, _link: link, _program: program }
    }

    /// Waits for what the agent sends next. Cancel-safe.
    ///
    /// # Errors
    /// The link's fault, [`LinkError::Reset`] if the agent gave the request up, [`LinkError::Protocol`] if it
    /// sent anything that the protocol does not allow.
    pub async fn next(&self) -> Result<Incoming, LinkError> {
        loop {
            return match self.raw.inbound().await? {
                Inbound::Message(bytes) => Ok(Incoming::Event(cut(message::decode(&bytes)?))),
                // Without bytes no window would bound the number of such frames.
                Inbound::Data(_, bytes) if bytes.is_empty() => Err(ProtocolError::Malformed("data").into()),
                Inbound::Data(channel, bytes) => Ok(Incoming::Data(channel, bytes)),
                Inbound::Close => Ok(Incoming::End),
                Inbound::Reset => Err(LinkError::Reset),
                Inbound::Eof(_) => continue,
            };
        }
    }

    /// Stops acknowledging what is received: the agent keeps it, for a daemon that may come after this one.
    /// Call [`Stream::release`] before a whole window has been received, or the agent waits for ever.
    pub fn hold(&self) {
        self.raw.hold();
    }

    /// Acknowledges everything received so far, and what follows.
    pub fn release(&self) {
        self.raw.release();
    }

    /// Sends a further request on this stream.
    ///
    /// # Errors
    /// The link's fault. On a stream that the agent has reset it succeeds; [`Stream::next`] returns the error
    /// then.
    pub async fn say(&self, request: &Request) -> Result<(), LinkError> {
        self.raw.send(Kind::Message, message::encode(request)).await
    }

    /// Sends bytes of a channel, cut into frames.
    ///
    /// # Errors
    /// As [`Stream::say`].
    pub async fn data(&self, channel: Channel, bytes: Bytes) -> Result<(), LinkError> {
        self.raw.send_all(&mut pieces(channel, bytes).collect()).await
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
        self.raw.send_all(&mut frames).await
    }

    /// Ends a channel.
    ///
    /// # Errors
    /// As [`Stream::say`].
    pub async fn eof(&self, channel: Channel) -> Result<(), LinkError> {
        self.raw.send(Kind::Eof(channel), Bytes::new()).await
    }

    /// Closes the stream. What was sent before still arrives, even if the stream is dropped now.
    ///
    /// # Errors
    /// As [`Stream::say`].
    pub async fn close(&self) -> Result<(), LinkError> {
        self.raw.send(Kind::Close, Bytes::new()).await
    }
}
