//! Bytes between the daemon and a server in a container, as a connection that HTTP can be spoken on; and,
//! after a change of protocol, bytes between a client and the server.
//!
//! ```text
//!  hyper ⇄ PortConnection ⇄ carry (a task) ⇄ DialStream ⇄ agent ⇄ the server
//! ```
//!
//! It must never hold more than a bounded piece of each direction, nor outlive what uses it by more than
//! [`FAREWELL`].

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{BufMut, BytesMut};
use paddock_proto::limits::CHUNK;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf, split};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::idle::{Activity, Watched};
use crate::link::{DialStream, LinkError, NetInput};

/// How long the end of a connection may take once nobody uses it any more: what was written before still
/// leaves, and a server that answers the end with its own is not reset.
const FAREWELL: Duration = Duration::from_secs(1);

/// A connection to a server in a container. Dropping it ends the connection.
pub(super) struct PortConnection {
    stream: DuplexStream,
    /// Set when the connection broke: its end is then no end of what the server sent.
    broken: Arc<AtomicBool>,
    _dropped: DropGuard,
}

impl PortConnection {
    /// Carries the bytes of a stream, in a task of its own.
    pub(super) fn over(stream: DialStream) -> Self {
        let (ours, theirs) = tokio::io::duplex(CHUNK);
        let dropped = CancellationToken::new();
        let over = dropped.clone();
        let broken = Arc::<AtomicBool>::default();
        let breaks = broken.clone();
        tokio::spawn(async move {
            tokio::select! {
                carried = carry(&stream, theirs, &breaks) => {
                    if carried.is_ok() {
                        let _ = stream.close().await;
                    }
                }
                () = async { over.cancelled().await; tokio::time::sleep(FAREWELL).await } => {}
            }
        });
        Self { stream: ours, broken, _dropped: dropped.drop_guard() }
    }
}

async fn carry(stream: &DialStream, theirs: DuplexStream, broken: &AtomicBool) -> io::Result<()> {
    let (mut from, mut to) = split(theirs);
    // Before the other half of the pipe is dropped, which its reader takes for an end.
    let lost = |error: LinkError| {
        broken.store(true, Relaxed);
        io::Error::new(io::ErrorKind::ConnectionReset, error)
    };
    let inward = async {
        let mut buffer = BytesMut::new();
        loop {
            buffer.reserve(CHUNK);
            if from.read_buf(&mut (&mut buffer).limit(CHUNK)).await? == 0 {
                return stream.eof().await.map_err(lost);
            }
            stream.write(buffer.split().freeze()).await.map_err(lost)?;
        }
    };
    let outward = async {
        loop {
            match stream.read().await.map_err(lost)? {
                NetInput::Data(bytes) => to.write_all(&bytes).await?,
                NetInput::Eof => return to.shutdown().await,
                NetInput::End => return Err(lost(LinkError::Reset)),
            }
        }
    };
    tokio::try_join!(inward, outward).map(|_| ())
}

/// Carries bytes between a client and a server until both directions are at their end, either breaks, or
/// nothing moves for `patience`. Counts the bytes from the client, and those from the server.
pub(super) async fn tunnel(
    client: impl AsyncRead + AsyncWrite + Unpin,
    server: impl AsyncRead + AsyncWrite + Unpin,
    patience: Duration,
    (received, sent): (Arc<AtomicU64>, Arc<AtomicU64>),
) {
    let activity = Activity::default();
    let mut client = Watched { stream: client, activity: activity.clone(), bytes: received };
    let mut server = Watched { stream: server, activity: activity.clone(), bytes: sent };
    tokio::select! {
        _ = tokio::io::copy_bidirectional(&mut client, &mut server) => {}
        () = activity.is_still(patience) => {}
    }
}

impl AsyncRead for PortConnection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, into))?;
        if into.filled().len() == before && into.remaining() > 0 && self.broken.load(Relaxed) {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for PortConnection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
