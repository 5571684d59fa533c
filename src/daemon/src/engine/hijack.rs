//! A connection that the engine has handed over: stdin one way, stdout and stderr the other.
//!
//! Reading is bounded: one buffer of [`READ_AT_ONCE`] bytes, and the last [`STDERR_TAIL`] bytes of stderr. It must
//! never lose what came with the answer's head, and never take an end of the stream for the end of the program:
//! a dying engine looks the same. Ask [`Engine::exec_inspect`](super::Engine::exec_inspect).

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf, ReadHalf, WriteHalf};
use tokio_util::io::poll_read_buf;

use super::connect::EngineStream;
use super::error::EngineError;
use super::frames::{Chunk, FrameDecoder, Stdio};
use super::op::Op;
use super::version::ApiVersion;

/// How much of stderr a reader of stdout keeps: its last bytes, enough for a runtime's message or a panic's.
pub const STDERR_TAIL: usize = 4 << 10;

/// Most that is read from the connection at once, in bytes: two of the engine's own pieces.
const READ_AT_ONCE: usize = 64 << 10;

/// How stdout and stderr share the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// All bytes are the terminal's output.
    Raw,
    /// Frames of [`FrameDecoder`].
    Multiplexed,
}

impl Framing {
    /// The framing of an exec's stream, by the documented rule: since API 1.42 the Content-Type tells; before, it
    /// says raw in either case, and an exec without a terminal is multiplexed.
    pub(super) fn of(
        version: ApiVersion,
        content_type: Option<&str>,
        tty: bool,
    ) -> Result<Framing, EngineError> {
        let typed = version >= ApiVersion::TYPED_STREAMS;
        match content_type {
            Some("application/vnd.docker.raw-stream") if typed || tty => Ok(Framing::Raw),
            Some("application/vnd.docker.raw-stream") => Ok(Framing::Multiplexed),
            Some("application/vnd.docker.multiplexed-stream") => Ok(Framing::Multiplexed),
            other => {
                let found = other.unwrap_or("no type");
                Err(EngineError::protocol(Op::ExecStart, format!("{found} where a Docker stream is due")))
            }
        }
    }
}

/// Both ways of a hijacked connection. Dropping it closes the connection and leaves the program running.
///
/// As [`AsyncRead`] it gives stdout, as [`AsyncWrite`] it takes stdin; `shutdown` closes stdin alone.
#[derive(Debug)]
pub struct Hijacked {
    reader: HijackedReader,
    writer: HijackedWriter,
}

impl Hijacked {
    /// `head` is what had been read of the connection before it was handed over.
    pub(super) fn new(stream: EngineStream, head: Bytes, framing: Framing) -> Hijacked {
        let (read, write) = tokio::io::split(TokioIo::new(stream));
        let reader = HijackedReader {
            io: read,
            framing,
            decoder: FrameDecoder::new(),
            input: BytesMut::from(&head[..]),
            ended: false,
            stdout: Bytes::new(),
            stderr: VecDeque::new(),
        };
        Hijacked { reader, writer: HijackedWriter { io: write } }
    }

    /// How its output is framed.
    pub fn framing(&self) -> Framing {
        self.reader.framing
    }

    /// The next piece of output, as [`HijackedReader::chunk`].
    pub async fn chunk(&mut self) -> Result<Option<Chunk>, EngineError> {
        self.reader.chunk().await
    }

    /// The end of stderr so far, as [`HijackedReader::stderr_tail`].
    pub fn stderr_tail(&self) -> String {
        self.reader.stderr_tail()
    }

    /// The two ways apart. The connection closes when both are dropped.
    pub fn into_split(self) -> (HijackedReader, HijackedWriter) {
        (self.reader, self.writer)
    }
}

/// The output of a hijacked connection.
///
/// As [`AsyncRead`] it gives stdout alone and keeps the end of stderr.
#[derive(Debug)]
pub struct HijackedReader {
    io: ReadHalf<TokioIo<EngineStream>>,
    framing: Framing,
    decoder: FrameDecoder,
    input: BytesMut,
    ended: bool,
    /// Stdout that was taken off the stream but not yet by `poll_read`.
    stdout: Bytes,
    stderr: VecDeque<u8>,
}

impl HijackedReader {
    /// The next piece of output of either stream; `None` when the engine closed it between two frames. With
    /// [`Framing::Raw`] everything is stdout. Cancel safe.
    ///
    /// Errors: [`EngineError::Lost`] when the connection broke or ended inside a frame, [`EngineError::Protocol`]
    /// when what comes are no frames.
    pub async fn chunk(&mut self) -> Result<Option<Chunk>, EngineError> {
        if !self.stdout.is_empty() {
            return Ok(Some(Chunk { stdio: Stdio::Stdout, bytes: std::mem::take(&mut self.stdout) }));
        }
        std::future::poll_fn(|cx| self.poll_chunk(cx)).await
    }

    /// The last [`STDERR_TAIL`] bytes of stderr that reading as [`AsyncRead`] came across. Untrusted text.
    pub fn stderr_tail(&self) -> String {
        let (a, b) = self.stderr.as_slices();
        String::from_utf8_lossy(&[a, b].concat()).into_owned()
    }

    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Chunk>, EngineError>> {
        let broken = |what: &dyn std::fmt::Display| EngineError::protocol(Op::ExecStart, what.to_string());
        let lost = |source: io::Error| EngineError::Lost { op: Op::ExecStart, source: source.into() };
        loop {
            match self.framing {
                Framing::Raw if self.input.is_empty() => {}
                Framing::Raw => {
                    let bytes = self.input.split().freeze();
                    return Poll::Ready(Ok(Some(Chunk { stdio: Stdio::Stdout, bytes })));
                }
                Framing::Multiplexed => {
                    if let Some(chunk) = self.decoder.decode(&mut self.input).map_err(|e| broken(&e))? {
                        return Poll::Ready(Ok(Some(chunk)));
                    }
                }
            }
            if self.ended {
                let cut = |error| lost(io::Error::new(io::ErrorKind::UnexpectedEof, error));
                return Poll::Ready(self.decoder.finish().map(|()| None).map_err(cut));
            }
            self.input.reserve(READ_AT_ONCE);
            let mut window = (&mut self.input).limit(READ_AT_ONCE);
            let read = ready!(poll_read_buf(Pin::new(&mut self.io), cx, &mut window)).map_err(lost)?;
            self.ended = read == 0;
        }
    }

    fn keep_stderr(&mut self, bytes: &[u8]) {
        let bytes = &bytes[bytes.len().saturating_sub(STDERR_TAIL)..];
        let over = (self.stderr.len() + bytes.len()).saturating_sub(STDERR_TAIL);
        self.stderr.drain(..over);
        self.stderr.extend(bytes);
    }
}

impl AsyncRead for HijackedReader {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        while self.stdout.is_empty() {
            match ready!(self.poll_chunk(cx)) {
                Ok(None) => return Poll::Ready(Ok(())),
                Ok(Some(Chunk { stdio: Stdio::Stdout, bytes })) => self.stdout = bytes,
                Ok(Some(Chunk { stdio: Stdio::Stderr, bytes })) => self.keep_stderr(&bytes),
                Ok(Some(Chunk { stdio: Stdio::Engine, bytes })) => {
                    self.keep_stderr(&bytes);
                    return Poll::Ready(Err(io::Error::other(
                        "the engine ended the stream; its words are in stderr",
                    )));
                }
                Err(error) => return Poll::Ready(Err(io::Error::other(error))),
            }
        }
        let take = self.stdout.len().min(buf.remaining());
        buf.put_slice(&self.stdout[..take]);
        self.stdout.advance(take);
        Poll::Ready(Ok(()))
    }
}

/// The stdin of a hijacked connection. `shutdown` closes the program's stdin; its output still comes.
#[derive(Debug)]
pub struct HijackedWriter {
    io: WriteHalf<TokioIo<EngineStream>>,
}

impl AsyncWrite for HijackedWriter {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

impl AsyncRead for Hijacked {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.reader).poll_read(cx, buf)
    }
}

impl AsyncWrite for Hijacked {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.writer).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.writer).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.writer).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_framing_follows_the_documented_rule() {
        let (old, new) = (ApiVersion::OLDEST, ApiVersion::TYPED_STREAMS);
        let (raw, mux) = ("application/vnd.docker.raw-stream", "application/vnd.docker.multiplexed-stream");
        for (version, content_type, tty, expected) in [
            (old, Some(raw), false, Some(Framing::Multiplexed)),
            (old, Some(raw), true, Some(Framing::Raw)),
            (new, Some(raw), true, Some(Framing::Raw)),
            (new, Some(raw), false, Some(Framing::Raw)),
            (new, Some(mux), false, Some(Framing::Multiplexed)),
            (old, Some("text/plain"), false, None),
            (new, Some("application/json"), false, None),
            (new, None, false, None),
        ] {
            let found = Framing::of(version, content_type, tty).ok();
            assert_eq!(found, expected, "{version} {content_type:?} tty={tty}");
        }
    }
}
