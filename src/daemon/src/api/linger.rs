//! The end of a connection whose client is still sending a request that was answered already, such as an
//! upload that was refused: the server reads on for a moment.
//!
//! If it closed the connection at once, the kernel would answer the rest of the request with a reset. A
//! client then fails while it sends, and drops the answer that says why.
//!
//! It must never keep what it reads, nor hold a connection whose client has sent everything.

use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

/// The client is given up when it has sent nothing for this long.
const QUIET: Duration = Duration::from_secs(2);

/// The connection is closed after this long in any case.
const LONGEST: Duration = Duration::from_secs(10);

/// Bytes that are read at one time.
const READ: usize = 4096;

/// Whether a request of a connection was dropped before all of its body was read.
#[derive(Clone, Default)]
pub(super) struct UnreadBodies(Arc<AtomicBool>);

impl UnreadBodies {
    /// The body, which is noted here if it is dropped before its end.
    pub(super) fn track(&self, body: Incoming) -> TrackedBody {
        TrackedBody { body, unread: self.clone() }
    }

    /// Whether there was one.
    pub(super) fn any(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// The body of a request, noted in [`UnreadBodies`] if it is dropped before its end.
pub(super) struct TrackedBody {
    body: Incoming,
    unread: UnreadBodies,
}

impl Body for TrackedBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for TrackedBody {
    fn drop(&mut self) {
        if !self.body.is_end_stream() {
            self.unread.0.store(true, Ordering::Relaxed);
        }
    }
}

/// A connection that is read on when it is shut down, until its client has ended too or it was held long
/// enough.
pub(super) struct Lingering<S> {
    stream: S,
    unread: UnreadBodies,
    end: Option<End>,
}

/// The end of a connection that has sent everything.
struct End {
    quiet: Pin<Box<Sleep>>,
    longest: Pin<Box<Sleep>>,
}

impl<S> Lingering<S> {
    /// The connection is read on if `unread` has a body by then.
    pub(super) fn new(stream: S, unread: UnreadBodies) -> Self {
        Self { stream, unread, end: None }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Lingering<S> {
    /// Drops what the client sends; ready when that is over.
    fn poll_rest(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let end = self
            .end
            .get_or_insert_with(|| End { quiet: Box::pin(sleep(QUIET)), longest: Box::pin(sleep(LONGEST)) });
        let mut dropped = [MaybeUninit::uninit(); READ];
        loop {
            if end.longest.as_mut().poll(context).is_ready() {
                return Poll::Ready(());
            }
            let mut dropped = ReadBuf::uninit(&mut dropped);
            match Pin::new(&mut self.stream).poll_read(context, &mut dropped) {
                Poll::Ready(Ok(())) if !dropped.filled().is_empty() => {
                    end.quiet.as_mut().reset(Instant::now() + QUIET);
                }
                Poll::Ready(_) => return Poll::Ready(()),
                Poll::Pending => return end.quiet.as_mut().poll(context),
            }
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Lingering<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Lingering<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.end.is_none() {
            ready!(Pin::new(&mut self.stream).poll_shutdown(context))?;
            if !self.unread.any() {
                return Poll::Ready(Ok(()));
            }
        }
        self.poll_rest(context).map(Ok)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

    use super::*;

    fn connection(is_unread: bool) -> (Lingering<DuplexStream>, DuplexStream) {
        let (ours, theirs) = tokio::io::duplex(100);
        let unread = UnreadBodies::default();
        unread.0.store(is_unread, Ordering::Relaxed);
        (Lingering::new(ours, unread), theirs)
    }

    #[tokio::test]
    async fn the_client_may_finish_sending_and_then_reads_the_end() {
        let (mut ours, mut theirs) = connection(true);
        let ending = tokio::spawn(async move { ours.shutdown().await });
        theirs.write_all(&[0; 10_000]).await.unwrap();
        theirs.shutdown().await.unwrap();
        assert_eq!(theirs.read(&mut [0]).await.unwrap(), 0);
        ending.await.unwrap().unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_client_and_one_that_never_ends_are_given_up() {
        let (mut ours, theirs) = connection(true);
        let begun = Instant::now();
        ours.shutdown().await.unwrap();
        assert_eq!(begun.elapsed(), QUIET);
        drop(theirs);

        let (mut ours, mut theirs) = connection(true);
        let sending = tokio::spawn(async move {
            while theirs.write_all(b"more").await.is_ok() {
                sleep(Duration::from_millis(900)).await;
            }
        });
        let begun = Instant::now();
        ours.shutdown().await.unwrap();
        assert_eq!(begun.elapsed(), LONGEST);
        drop(ours);
        sending.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_has_sent_everything_is_not_waited_for() {
        let (mut ours, _theirs) = connection(false);
        let begun = Instant::now();
        ours.shutdown().await.unwrap();
        assert_eq!(begun.elapsed(), Duration::ZERO);
    }
}
