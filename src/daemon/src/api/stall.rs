//! A connection whose other end must read: one that takes nothing of an answer for too long is ended.
//!
//! It must never end a connection that has nothing to write: a run, and a stream with nothing to tell, may be silent.

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

/// Since when a connection has been waiting for its other end to read.
#[derive(Debug, Clone)]
pub(super) struct Stall {
    begun: Instant,
    /// Milliseconds after `begun`, and one; 0 while nothing waits.
    since: Arc<AtomicU64>,
}

impl Default for Stall {
    fn default() -> Self {
        Self { begun: Instant::now(), since: Arc::default() }
    }
}

impl Stall {
    /// For how long nothing was read of what is to be written.
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

/// A connection that ends when a write waits for `patience`.
pub(super) struct Pressed<S> {
    stream: S,
    patience: Duration,
    stall: Stall,
    /// Runs while a write waits.
    waiting: Option<Pin<Box<Sleep>>>,
    reset: fn(&S),
}

/// Lets the kernel forget what its other end has not read, once the connection is closed. Otherwise it would keep that, up to
/// megabytes, for minutes.
pub(super) fn reset(stream: &TcpStream) {
    let _ = sockopt::set_socket_linger(stream, Some(Duration::ZERO)); // it is closed all the same
}

impl<S> Pressed<S> {
    /// `reset` is called if the connection ends while a write waits.
    pub(super) fn new(stream: S, patience: Duration, stall: Stall, reset: fn(&S)) -> Self {
        Self { stream, patience, stall, waiting: None, reset }
    }

    /// What became of a write, and an error if it has waited for too long.
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
            let message = "the other end has read nothing for as long as http.write_timeout";
            Err(io::Error::new(io::ErrorKind::TimedOut, message))
        })
    }
}

impl<S> Drop for Pressed<S> {
    fn drop(&mut self) {
        if self.waiting.is_some() {
            (self.reset)(&self.stream);
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Pressed<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Pressed<S> {
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

    // What was written is with the kernel: these two do not wait for the other end.

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

    use super::*;

    /// Polls once.
    async fn poll<F: Future + Unpin>(mut future: F) -> std::task::Poll<F::Output> {
        std::future::poll_fn(|context| std::task::Poll::Ready(std::pin::Pin::new(&mut future).poll(context)))
            .await
    }

    fn pressed(patience: Duration) -> (Pressed<DuplexStream>, DuplexStream, Stall) {
        let (ours, theirs) = tokio::io::duplex(1000);
        let stall = Stall::default();
        (Pressed::new(ours, patience, stall.clone(), |_| ()), theirs, stall)
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
    async fn whatever_is_read_begins_the_time_anew() {
        let (mut ours, mut theirs, stall) = pressed(Duration::from_secs(3600));
        let mut writing = Box::pin(ours.write_all(&[0; 3000]));
        for _ in 0..2 {
            assert!(poll(&mut writing).await.is_pending());
            assert!(stall.lasts().is_some());
            theirs.read_exact(&mut [0; 1000]).await.unwrap();
        }
        writing.await.unwrap();
        assert_eq!(stall.lasts(), None, "what was written is not what waits");
        drop(ours);
    }
}
