//! Decoder of multiplexed streams: stdout and stderr of an exec without a terminal, in one stream of frames.
//!
//! Each frame is a header of 8 bytes (the stream's number, three zeros, the payload's length as a big-endian
//! `u32`) and the payload. Source: "Stream format" of `POST /containers/{id}/attach`.
//!
//! It does no I/O. It must never collect a whole frame: it passes the payload on in the pieces in which it
//! comes, so that an announced length costs no memory. It must never go on decoding a stream after an error.

use bytes::{Buf, Bytes, BytesMut};

/// The longest payload that is accepted, in bytes. Engines copy output in pieces of 32 KiB, so a longer
/// length means that the bytes are not a frame.
pub const MAX_FRAME: u32 = 1 << 20;

const HEADER: usize = 8;

/// The stream of a piece of output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stdio {
    /// The program's stdout.
    Stdout,
    /// The program's stderr.
    Stderr,
    /// The engine's own message on why the stream fails (number 3). No output of the program follows it.
    Engine,
}

/// A piece of output, never empty: all of one frame, or a part of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    /// Its stream.
    pub stdio: Stdio,
    /// Its bytes.
    pub bytes: Bytes,
}

/// Why bytes are not a stream of frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// A stream number other than those of stdout, stderr and the engine, or padding that is not zero.
    #[error("a frame's header begins with {0:02x?}; it must be 1, 2 or 3 and three zeros")]
    Stream([u8; 4]),
    /// A length over [`MAX_FRAME`].
    #[error("a frame has {0} bytes, more than the {MAX_FRAME} that an engine sends at most")]
    Oversize(u32),
    /// The stream ended inside a frame: output is missing.
    #[error("the stream ended inside a frame")]
    Cut,
}

/// The decoder: give it the bytes that come in, and take chunks until there are none.
#[derive(Debug, Default)]
pub struct FrameDecoder {
    state: DecoderState,
}

#[derive(Debug)]
enum DecoderState {
    /// `have` bytes of the next header have come.
    Header { bytes: [u8; HEADER], have: usize },
    /// `left` bytes of the payload, more than 0, are still to come.
    Payload { stdio: Stdio, left: usize },
    /// The stream had this error; every later call returns it again.
    Broken(FrameError),
}

impl Default for DecoderState {
    fn default() -> DecoderState {
        DecoderState::Header { bytes: [0; HEADER], have: 0 }
    }
}

impl FrameDecoder {
    /// A decoder at the beginning of a stream.
    pub fn new() -> FrameDecoder {
        FrameDecoder::default()
    }

    /// Takes the next chunk off `input`. `None` when all of `input` is consumed.
    ///
    /// After an error every further call returns the same error.
    pub fn decode(&mut self, input: &mut BytesMut) -> Result<Option<Chunk>, FrameError> {
        loop {
            match &mut self.state {
                DecoderState::Broken(error) => return Err(*error),
                DecoderState::Header { bytes, have } => {
                    let take = input.len().min(HEADER - *have);
                    bytes[*have..*have + take].copy_from_slice(&input[..take]);
                    input.advance(take);
                    *have += take;
                    if *have < HEADER {
                        return Ok(None);
                    }
                    let header = *bytes;
                    self.state = match after(header) {
                        Ok(state) => state,
                        Err(error) => DecoderState::Broken(error),
                    };
                }
                DecoderState::Payload { stdio, left } => {
                    if input.is_empty() {
                        return Ok(None);
                    }
                    let take = input.len().min(*left);
                    let chunk = Chunk { stdio: *stdio, bytes: input.split_to(take).freeze() };
                    *left -= take;
                    if *left == 0 {
                        self.state = DecoderState::default();
                    }
                    return Ok(Some(chunk));
                }
            }
        }
    }

    /// Whether the stream may end here. [`FrameError::Cut`] when it ends inside a frame.
    pub fn finish(&self) -> Result<(), FrameError> {
        match &self.state {
            DecoderState::Header { have: 0, .. } => Ok(()),
            DecoderState::Header { .. } | DecoderState::Payload { .. } => Err(FrameError::Cut),
            DecoderState::Broken(error) => Err(*error),
        }
    }
}

/// The state after a header.
fn after(header: [u8; HEADER]) -> Result<DecoderState, FrameError> {
    let [a, b, c, d, length @ ..] = header;
    let stdio = match [a, b, c, d] {
        [1, 0, 0, 0] => Stdio::Stdout,
        [2, 0, 0, 0] => Stdio::Stderr,
        [3, 0, 0, 0] => Stdio::Engine,
        // 0 is stdin, which no engine sends back.
        other => return Err(FrameError::Stream(other)),
    };
    match u32::from_be_bytes(length) {
        0 => Ok(DecoderState::default()),
        length if length > MAX_FRAME => Err(FrameError::Oversize(length)),
        length => Ok(DecoderState::Payload { stdio, left: length as usize }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// An encoder that shares nothing with the decoder.
    fn frame(number: u8, payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(payload.len()).expect("a test's payload");
        let mut bytes = vec![number, 0, 0, 0];
        bytes.extend(length.to_be_bytes());
        bytes.extend(payload);
        bytes
    }

    /// Decodes `pieces` one after the other: all bytes of each stream, and how the decoding ended.
    fn decode<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> ([Vec<u8>; 3], Result<(), FrameError>) {
        let (mut decoder, mut out, mut input) =
            (FrameDecoder::new(), [vec![], vec![], vec![]], BytesMut::new());
        for piece in pieces {
            input.extend_from_slice(piece);
            loop {
                match decoder.decode(&mut input) {
                    Ok(Some(chunk)) => {
                        assert!(!chunk.bytes.is_empty(), "an empty chunk");
                        out[chunk.stdio as usize].extend_from_slice(&chunk.bytes);
                    }
                    Ok(None) => break,
                    Err(error) => {
                        assert_eq!(decoder.decode(&mut input), Err(error), "it forgot its error");
                        return (out, Err(error));
                    }
                }
            }
            assert!(input.is_empty(), "input left behind");
        }
        (out, decoder.finish())
    }

    #[test]
    fn streams_come_apart() {
        let stream =
            [frame(1, b"out"), frame(2, b"err"), frame(1, b""), frame(1, b"put"), frame(3, b"oh")].concat();
        let (out, end) = decode([stream.as_slice()].into_iter());
        assert_eq!(out, [b"output".to_vec(), b"err".to_vec(), b"oh".to_vec()]);
        assert_eq!(end, Ok(()));
    }

    #[test]
    fn a_payload_is_passed_on_before_it_is_whole() {
        let mut input = BytesMut::from(&frame(1, b"hello")[..HEADER + 2]);
        let mut decoder = FrameDecoder::new();
        let chunk = decoder.decode(&mut input).expect("a good frame").expect("two bytes");
        assert_eq!(&chunk.bytes[..], b"he");
        assert_eq!(decoder.finish(), Err(FrameError::Cut));
    }

    #[test]
    fn hostile_headers_are_refused_and_stay_so() {
        for (header, error) in [
            (*b"\x00\0\0\0\0\0\0\x01", FrameError::Stream([0, 0, 0, 0])),
            (*b"\x04\0\0\0\0\0\0\x01", FrameError::Stream([4, 0, 0, 0])),
            (*b"\x01\0\x01\0\0\0\0\x01", FrameError::Stream([1, 0, 1, 0])),
            (*b"HTTP/1.1", FrameError::Stream(*b"HTTP")),
            (*b"\x01\0\0\0\x00\x10\x00\x01", FrameError::Oversize(MAX_FRAME + 1)),
            (*b"\x02\0\0\0\xff\xff\xff\xff", FrameError::Oversize(u32::MAX)),
        ] {
            let (out, end) = decode([&header[..], b"rest"].into_iter());
            assert_eq!((out, end), (Default::default(), Err(error)));
        }
    }

    #[test]
    fn the_longest_frame_is_taken() {
        let payload = vec![7; MAX_FRAME as usize];
        let stream = frame(1, &payload);
        let (out, end) = decode(stream.chunks(65_536));
        assert_eq!((out[0].len(), end), (payload.len(), Ok(())));
    }

    #[test]
    fn every_cut_inside_a_frame_is_noticed() {
        let stream = frame(2, b"abc");
        for cut in 1..stream.len() {
            assert_eq!(decode([&stream[..cut]].into_iter()).1, Err(FrameError::Cut), "cut at {cut}");
        }
    }

    proptest! {
        #[test]
        fn however_the_stream_is_cut_up_the_same_comes_out(
            frames in prop::collection::vec((1..=3_u8, prop::collection::vec(any::<u8>(), 0..40)), 0..20),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..20),
        ) {
            let stream: Vec<u8> = frames.iter().flat_map(|(n, payload)| frame(*n, payload)).collect();
            let mut expected = [vec![], vec![], vec![]];
            for (number, payload) in &frames {
                expected[usize::from(*number) - 1].extend_from_slice(payload);
            }
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(stream.len() + 1)).collect();
            cuts.extend([0, stream.len()]);
            cuts.sort_unstable();
            let pieces = cuts.windows(2).map(|pair| &stream[pair[0]..pair[1]]);
            prop_assert_eq!(decode(pieces), (expected, Ok(())));
        }

        #[test]
        fn no_bytes_panic_and_no_more_comes_out_than_went_in(
            noise in prop::collection::vec(any::<u8>(), 0..200),
        ) {
            let (out, _) = decode(noise.chunks(7));
            prop_assert!(out.iter().map(Vec::len).sum::<usize>() <= noise.len());
        }
    }
}
