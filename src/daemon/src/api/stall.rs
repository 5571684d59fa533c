//! Ends a connection whose other end reads nothing of an answer for too long.
//!
//! It must never end a connection that has nothing to write: a run, or a stream without news, may be silent.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use rustix::net::sockopt;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Sleep;

/// Since when a connection has waited for its other end to read.
#[derive(Debug, Clone)]
pub(super) struct Stall {
    begun: Instant,
    /// The milliseconds from `begun` to the beginning of the wait, plus one; 0 while nothing waits.
    since: Arc<AtomicU64>,
}

impl Default for Stall {
    fn default() -> Self {
        Self { begun: Instant::now(), since: Arc::default() }
    }
}

impl Stall {
    /// How long the write that waits now has waited; `None` if none waits.
    pub(super) fn lasts(&self) -> Option<Duration> {
        let since = self.since.load(Ordering::Relaxed).checked_sub(1)?;
        Some(self.begun.elapsed().saturating_sub(Duration::from_millis(since)))
    }

    fn begin(&self) {
        let since = u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX - 1);
        self.since.store(since + 1, Ordering::Relaxed);
    }

    fn end(&self) {
        self.since.store(0, Ordering::Relaxed);
    }
}

/// A connection whose writes fail once one has waited for `patience`.
pub(super) struct StallTimeout<S> {
    stream: S,
    patience: Duration,
    stall: Stall,
    /// The timer of the write that waits.
    waiting: Option<Pin<Box<Sleep>>>,
    reset: fn(&S),
}

/// Makes the kernel drop what the other end has not read when the connection is closed. Otherwise it would
/// keep up to megabytes for minutes.
pub(super) fn reset(stream: &TcpStream) {
    let _ = sockopt::set_socket_linger(stream, Some(Duration::ZERO)); // on failure it is closed the slow way
}

impl<S> StallTimeout<S> {
    /// `reset` is called if the connection ends while a write waits.
    pub(super) fn new(stream: S, patience: Duration, stall: Stall, reset: fn(&S)) -> Self {
        Self { stream, patience, stall, waiting: None, reset }
    }

    /// The connection itself.
    pub(super) fn stream(&self) -> &S {
        &self.stream
    }

    /// Passes on the result of a write, or an error if it has waited for too long.
    fn pressed<T>(&mut self, context: &mut Context<'_>, polled: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if polled.is_ready() {
            if self.waiting.take().is_some() {
                self.stall.end();
            }
            return polled;
        }
        let waiting = self.waiting.get_or_insert_with(|| {
            self.stall.begin();
            Box::pin(tokio::time::sleep(self.patience))
        });
        waiting.as_mut().poll(context).map(|()| {
            let message = "the client has read nothing of its answer for http.write_timeout";
            Err(io::Error::new(io::ErrorKind::TimedOut, message))
        })
    }
}

impl<S> Drop for StallTimeout<S> {
    fn drop(&mut self) {
        if self.waiting.is_some() {
            (self.reset)(&self.stream);
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for StallTimeout<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for StallTimeout<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.pressed(context, polled)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write_vectored(context, pieces);
        self.pressed(context, polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    // The kernel holds what was written, so these two do not wait for the other end.

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

    use super::*;

    fn pressed(patience: Duration) -> (StallTimeout<DuplexStream>, DuplexStream, Stall) {
        let (ours, theirs) = tokio::io::duplex(1000);
        let stall = Stall::default();
        (StallTimeout::new(ours, patience, stall.clone(), |_| ()), theirs, stall)
    }

    #[tokio::test]
    async fn a_reader_that_does_not_read_ends_its_connection() {
        let patience = Duration::from_millis(50);
        let (mut ours, _theirs, stall) = pressed(patience);
        let error = ours.write_all(&[0; 5000]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(stall.lasts() >= Some(patience), "{:?}", stall.lasts());
    }

    #[tokio::test]
    async fn every_read_starts_the_time_again() {
        let (mut ours, mut theirs, stall) = pressed(Duration::from_secs(3600));
        let mut writing = Box::pin(ours.write_all(&[0; 3000]));
        for _ in 0..2 {
            assert!((&mut writing).now_or_never().is_none());
            assert!(stall.lasts().is_some());
            theirs.read_exact(&mut [0; 1000]).await.unwrap();
        }
        writing.await.unwrap();
        assert_eq!(stall.lasts(), None, "all was written, so no write waits");
        drop(ours);
    }
}
