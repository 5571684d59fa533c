//! The two streams that a program writes to. On the wire each has a [`Channel`] of its own.

use crate::Channel;

/// One of the two streams that a program writes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OutputStream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

impl OutputStream {
    /// Both, in the order of [`OutputStream::index`].
    pub const BOTH: [Self; 2] = [Self::Stdout, Self::Stderr];

    /// The stream whose bytes this channel carries; `None` for a channel that carries no output.
    pub fn of(channel: Channel) -> Option<Self> {
        match channel {
            Channel::Stdout => Some(Self::Stdout),
            Channel::Stderr => Some(Self::Stderr),
            Channel::Code | Channel::Stdin | Channel::File | Channel::Net => None,
        }
    }

    /// The channel that carries this stream.
    pub fn channel(self) -> Channel {
        match self {
            Self::Stdout => Channel::Stdout,
            Self::Stderr => Channel::Stderr,
        }
    }

    /// Its place in an array with one element for each stream.
    pub fn index(self) -> usize {
        self as usize
    }

    /// As answers, events and metrics call it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_stream_has_its_channel_and_no_other_channel_is_one() {
        for (at, stream) in OutputStream::BOTH.into_iter().enumerate() {
            assert_eq!(OutputStream::of(stream.channel()), Some(stream));
            assert_eq!(stream.index(), at);
        }
        for channel in [Channel::Code, Channel::Stdin, Channel::File, Channel::Net] {
            assert_eq!(OutputStream::of(channel), None);
        }
        assert_eq!(OutputStream::BOTH.map(OutputStream::as_str), ["stdout", "stderr"]);
    }
}
