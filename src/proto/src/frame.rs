//! One frame: `length u32 LE · stream u32 LE · kind u8 · payload`. Encoding and incremental decoding.
//!
//! The decoder must never allocate for a length that it has not accepted, nor before all of the frame is
//! there.

use bytes::{Buf, BufMut, Bytes, BytesMut};

use crate::ProtocolError;
use crate::limits::MAX_PAYLOAD;

/// Names one stream of a link. The daemon opens odd ones, the agent even ones; 0 is the link itself.
pub type StreamId = u32;

/// Bytes in front of every payload.
pub const HEADER: usize = 9;

/// What a frame is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A postcard-coded [`crate::Request`] or [`crate::Event`] (on stream 0: a hello).
    Message,
    /// Raw bytes of one channel of the stream.
    Data(Channel),
    /// The channel carries nothing more.
    Eof(Channel),
    /// The sender sends nothing more on this stream.
    Close,
    /// Not counted: how many bytes of this stream the sender has consumed in all (u64 LE).
    Credit,
    /// Not counted: the stream is abandoned at once, whatever is in flight.
    Reset,
}

/// Which bytes a data frame carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Channel {
    /// The source code of a run, daemon → agent.
    Code,
    /// The standard input of a run, daemon → agent.
    Stdin,
    /// The standard output of a run, agent → daemon.
    Stdout,
    /// The standard error of a run, agent → daemon.
    Stderr,
    /// The content of the file named last, either way.
    File,
    /// The bytes of a connection that a program asked for, either way.
    Net,
}

impl Channel {
    const ALL: [Self; 6] = [Self::Code, Self::Stdin, Self::Stdout, Self::Stderr, Self::File, Self::Net];

    fn index(self) -> u8 {
        self as u8
    }
}

impl Kind {
    fn code(self) -> u8 {
        match self {
            Self::Message => 1,
            Self::Close => 2,
            Self::Credit => 3,
            Self::Reset => 4,
            Self::Data(channel) => 16 + channel.index(),
            Self::Eof(channel) => 32 + channel.index(),
        }
    }

    fn from_code(code: u8) -> Result<Self, ProtocolError> {
        let channel = |base: u8| Channel::ALL.get(usize::from(code - base)).copied();
        let kind = match code {
            1 => Some(Self::Message),
            2 => Some(Self::Close),
            3 => Some(Self::Credit),
            4 => Some(Self::Reset),
            16..=31 => channel(16).map(Self::Data),
            32..=47 => channel(32).map(Self::Eof),
            _ => None,
        };
        kind.ok_or(ProtocolError::UnknownKind(code))
    }

    /// Counted frames take window, are kept until the peer has consumed them, and are sent again after a
    /// reconnect.
    pub fn counted(self) -> bool {
        !matches!(self, Self::Credit | Self::Reset)
    }
}

/// One unit on the wire.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// The stream that it belongs to.
    pub stream: StreamId,
    /// What it is.
    pub kind: Kind,
    /// At most [`MAX_PAYLOAD`] bytes.
    pub payload: Bytes,
}

impl Frame {
    /// How many bytes of its stream's window this frame takes.
    pub fn cost(&self) -> usize {
        HEADER + self.payload.len()
    }

    /// Appends the frame to `out`.
    pub fn encode(&self, out: &mut BytesMut) {
        debug_assert!(self.payload.len() <= MAX_PAYLOAD);
        out.reserve(self.cost());
        out.put_u32_le(u32::try_from(self.payload.len()).unwrap_or(u32::MAX));
        out.put_u32_le(self.stream);
        out.put_u8(self.kind.code());
        out.put_slice(&self.payload);
    }

    /// Takes the next whole frame off the front of `input`, or nothing if it is not all there yet. The
    /// payload is a copy: a small payload that waits must not hold the whole buffer that it came in.
    ///
    /// # Errors
    /// [`ProtocolError::Oversize`] and [`ProtocolError::UnknownKind`]; the rest of the input is then
    /// worthless.
    pub fn decode(input: &mut BytesMut) -> Result<Option<Self>, ProtocolError> {
        let Some(head) = input.first_chunk::<HEADER>() else { return Ok(None) };
        let [l0, l1, l2, l3, s0, s1, s2, s3, code] = *head;
        let length = u32::from_le_bytes([l0, l1, l2, l3]) as usize;
        if length > MAX_PAYLOAD {
            return Err(ProtocolError::Oversize(length));
        }
        let kind = Kind::from_code(code)?;
        if input.len() < HEADER + length {
            return Ok(None);
        }
        input.advance(HEADER);
        let payload = Bytes::copy_from_slice(&input[..length]);
        input.advance(length);
        Ok(Some(Self { stream: u32::from_le_bytes([s0, s1, s2, s3]), kind, payload }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_frame() -> impl Strategy<Value = Frame> {
        let kinds = (0..4u8, 0..6usize).prop_map(|(k, c)| match k {
            0 => Kind::Message,
            1 => Kind::Close,
            2 => Kind::Data(Channel::ALL[c]),
            _ => Kind::Eof(Channel::ALL[c]),
        });
        (any::<u32>(), kinds, proptest::collection::vec(any::<u8>(), 0..300))
            .prop_map(|(stream, kind, payload)| Frame { stream, kind, payload: payload.into() })
    }

    proptest! {
        #[test]
        fn any_split_of_the_bytes_gives_the_same_frames(
            frames in proptest::collection::vec(any_frame(), 0..8),
            cuts in proptest::collection::vec(1..64usize, 1..16),
        ) {
            let mut wire = BytesMut::new();
            for frame in &frames { frame.encode(&mut wire); }
            let mut input = BytesMut::new();
            let mut got = Vec::new();
            let mut cuts = cuts.into_iter().cycle();
            while !wire.is_empty() {
                let n = cuts.next().unwrap().min(wire.len());
                input.extend_from_slice(&wire.split_to(n));
                while let Some(frame) = Frame::decode(&mut input).unwrap() { got.push(frame); }
            }
            prop_assert_eq!(got, frames);
        }

        #[test]
        fn garbage_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let mut input = BytesMut::from(&bytes[..]);
            while let Ok(Some(_)) = Frame::decode(&mut input) {}
        }
    }

    #[test]
    fn a_length_over_the_limit_is_refused_before_anything_is_reserved() {
        let mut input = BytesMut::new();
        input.put_u32_le(u32::MAX);
        input.put_u32_le(1);
        input.put_u8(1);
        assert_eq!(Frame::decode(&mut input), Err(ProtocolError::Oversize(u32::MAX as usize)));
        assert!(input.capacity() < 1 << 20);
    }
}
