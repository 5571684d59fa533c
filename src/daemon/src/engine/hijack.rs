//! A connection that the engine has handed over: stdin one way, stdout and stderr the other.
//!
//! Reading is bounded: one buffer of [`READ_AT_ONCE`] bytes, and the last [`STDERR_TAIL`] bytes of stderr. It
//! must never lose bytes that came with the answer's head, and never take the end of the stream for the end
//! of the program, since a dying engine looks the same. To know, ask
//! [`Engine::exec_inspect`](super::Engine::exec_inspect).

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
use super::op::EngineOp;
use super::version::ApiVersion;

/// The bytes at the end of stderr that a reader of stdout keeps: enough for a runtime's message or a panic's.
pub const STDERR_TAIL: usize = 4 << 10;

/// The most bytes read from the connection at once: two of the engine's own pieces.
const READ_AT_ONCE: usize = 64 << 10;

/// How stdout and stderr share the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// All bytes are the terminal's output.
    Raw,
    /// The bytes are frames, see [`FrameDecoder`].
    Multiplexed,
}

impl Framing {
    /// The framing of an exec's stream, by the documented rule: since API 1.42 the Content-Type names it;
    /// before, the type was raw in either case, and an exec without a terminal was multiplexed.
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
                Err(EngineError::protocol(
                    EngineOp::ExecStart,
                    format!("its content type is {found}, not that of a Docker stream"),
                ))
            }
        }
    }
}

/// Both directions of a hijacked connection. Dropping it closes the connection and leaves the program
/// running.
///
/// [`AsyncRead`] reads stdout, [`AsyncWrite`] writes stdin; `shutdown` closes stdin alone.
#[derive(Debug)]
pub struct Hijacked {
    reader: HijackedReader,
    writer: HijackedWriter,
}

impl Hijacked {
    /// `head` has the bytes that were read from the connection before it was handed over.
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

    /// The framing of its output.
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

    /// Splits the two directions. The connection closes when both are dropped.
    pub fn into_split(self) -> (HijackedReader, HijackedWriter) {
        (self.reader, self.writer)
    }
}

/// The output of a hijacked connection.
///
/// [`AsyncRead`] reads stdout alone and keeps the end of stderr.
#[derive(Debug)]
pub struct HijackedReader {
    io: ReadHalf<TokioIo<EngineStream>>,
    framing: Framing,
    decoder: FrameDecoder,
    input: BytesMut,
    ended: bool,
    /// Bytes of stdout that were decoded but not yet read.
    stdout: Bytes,
    stderr: VecDeque<u8>,
}

impl HijackedReader {
    /// The next piece of output of either stream; `None` when the engine closed the connection between two
    /// frames. With [`Framing::Raw`] everything is stdout. Cancel safe.
    ///
    /// Errors: [`EngineError::Lost`] when the connection broke or ended inside a frame,
    /// [`EngineError::Protocol`] when the bytes are not frames.
    pub async fn chunk(&mut self) -> Result<Option<Chunk>, EngineError> {
        if !self.stdout.is_empty() {
            return Ok(Some(Chunk { stdio: Stdio::Stdout, bytes: std::mem::take(&mut self.stdout) }));
        }
        std::future::poll_fn(|cx| self.poll_chunk(cx)).await
    }

    /// The last [`STDERR_TAIL`] bytes of stderr among what [`AsyncRead`] has read so far. Untrusted text.
    pub fn stderr_tail(&self) -> String {
        let (a, b) = self.stderr.as_slices();
        String::from_utf8_lossy(&[a, b].concat()).into_owned()
    }

    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Chunk>, EngineError>> {
        let broken =
            |what: &dyn std::fmt::Display| EngineError::protocol(EngineOp::ExecStart, what.to_string());
        let lost = |source: io::Error| EngineError::Lost { op: EngineOp::ExecStart, source: source.into() };
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
                        "the engine ended the stream; its message is in stderr",
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

/// The stdin of a hijacked connection. `shutdown` closes the program's stdin; its output can still be read.
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
