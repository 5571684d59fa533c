//! The end of a connection whose client is still sending a request that was answered already, such as an
//! upload that was refused: the server reads on for a moment.
//!
//! If it closed the connection at once, the kernel would answer the rest of the request with a reset. A client
//! then fails while it sends, and drops the answer that says why.
//!
//! It must never keep what it reads, nor hold a connection whose client has sent everything.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// The client is given up when it has sent nothing for this long.
const QUIET: Duration = Duration::from_secs(2);

/// The connection is closed after this long in any case.
const LONGEST: Duration = Duration::from_secs(10);

/// Bytes that are read at one time.
const READ: usize = 16 * 1024;

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

/// Ends what the server sends, and drops what the client sends, until the client has ended too or the
/// connection was held long enough.
pub(super) async fn linger(mut stream: impl AsyncRead + AsyncWrite + Unpin) {
    if stream.shutdown().await.is_err() {
        return;
    }
    let mut dropped = vec![0; READ];
    let reading =
        async { while let Ok(Ok(1..)) = tokio::time::timeout(QUIET, stream.read(&mut dropped)).await {} };
    let _ = tokio::time::timeout(LONGEST, reading).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_client_may_finish_sending_and_then_reads_the_end() {
        let (ours, mut theirs) = tokio::io::duplex(100);
        let lingering = tokio::spawn(linger(ours));
        theirs.write_all(&[0; 10_000]).await.unwrap();
        theirs.shutdown().await.unwrap();
        assert_eq!(theirs.read(&mut [0]).await.unwrap(), 0);
        lingering.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_client_and_one_that_never_ends_are_given_up() {
        let (ours, theirs) = tokio::io::duplex(100);
        let begun = tokio::time::Instant::now();
        linger(ours).await;
        assert_eq!(begun.elapsed(), QUIET);
        drop(theirs);

        let (ours, mut theirs) = tokio::io::duplex(100);
        let sending = tokio::spawn(async move {
            while theirs.write_all(b"more").await.is_ok() {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        });
        let begun = tokio::time::Instant::now();
        linger(ours).await;
        assert_eq!(begun.elapsed(), LONGEST);
        sending.await.unwrap();
    }
}
