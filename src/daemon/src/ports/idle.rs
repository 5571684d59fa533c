//! Bodies and connections that end when nothing moves on them for too long.
//!
//! Both directions of one request share an [`Activity`]: a download that goes on keeps an upload that waits.

use std::error::Error;
use std::future::Future as _;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

/// Whether anything moved since the last look.
#[derive(Debug, Clone, Default)]
pub(super) struct Activity(Arc<AtomicBool>);

impl Activity {
    fn moved(&self) {
        self.0.store(true, Relaxed);
    }

    /// Resolves when nothing has moved for `patience`, at the latest after twice that.
    pub(super) async fn is_still(&self, patience: Duration) {
        loop {
            tokio::time::sleep(patience).await;
            if !self.0.swap(false, Relaxed) {
                return;
            }
        }
    }
}

/// A body that fails when nothing moves for too long, and keeps a value for as long as it lives.
pub(super) struct IdleBody<B, H> {
    body: B,
    activity: Activity,
    patience: Duration,
    waiting: Option<Pin<Box<Sleep>>>,
    _held: H,
}

impl<B, H> IdleBody<B, H> {
    pub(super) fn new(body: B, activity: Activity, patience: Duration, held: H) -> Self {
        Self { body, activity, patience, waiting: None, _held: held }
    }
}

impl<B, H> Body for IdleBody<B, H>
where
    B: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Unpin,
    H: Unpin,
{
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let this = &mut *self;
        if let Poll::Ready(frame) = Pin::new(&mut this.body).poll_frame(context) {
            this.activity.moved();
            this.waiting = None;
            return Poll::Ready(frame.map(|frame| frame.map_err(io::Error::other)));
        }
        loop {
            let patience = this.patience;
            let waiting = this.waiting.get_or_insert_with(|| Box::pin(tokio::time::sleep(patience)));
            ready!(waiting.as_mut().poll(context));
            if !this.activity.0.swap(false, Relaxed) {
                let message = "nothing has moved on this connection for ports.idle_timeout";
                return Poll::Ready(Some(Err(io::Error::new(io::ErrorKind::TimedOut, message))));
            }
            this.waiting = None;
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A connection that notes when bytes are read from it, and how many.
pub(super) struct Watched<S> {
    pub(super) stream: S,
    pub(super) activity: Activity,
    pub(super) bytes: Arc<AtomicU64>,
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(context, into);
        let more = into.filled().len() - before;
        if more > 0 {
            self.activity.moved();
            self.bytes.fetch_add(more as u64, Relaxed);
        }
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
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

#[cfg(test)]
mod tests {
    use http_body_util::{BodyExt, StreamBody};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_body_that_stands_still_fails_unless_the_other_direction_moves() {
        let silent = || StreamBody::new(futures_util::stream::pending::<Result<Frame<Bytes>, io::Error>>());
        let (patience, begun) = (Duration::from_secs(10), tokio::time::Instant::now());
        let activity = Activity::default();
        let mut body = IdleBody::new(silent(), activity.clone(), patience, ());
        let other = async {
            for _ in 0..5 {
                tokio::time::sleep(Duration::from_secs(8)).await;
                activity.moved();
            }
            std::future::pending::<()>().await;
        };
        let ended = tokio::select! {
            frame = body.frame() => frame.expect("an end").expect_err("a failure"),
            () = other => unreachable!(),
        };
        assert_eq!(ended.kind(), io::ErrorKind::TimedOut);
        let took = begun.elapsed();
        assert!(took >= Duration::from_secs(50) && took <= Duration::from_secs(60), "{took:?}");
    }
}
