//! A body that counts its bytes. It must never change the bytes, nor delay any.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use http_body::{Body, Frame, SizeHint};
use prometheus::IntCounter;

/// A body that adds its bytes to a counter, and keeps a value (such as a permit) for as long as it lives.
pub(super) struct CountedBody<B, H = ()> {
    body: B,
    bytes: IntCounter,
    also: Option<Arc<AtomicU64>>,
    _held: H,
}

impl<B, H> CountedBody<B, H> {
    pub(super) fn new(body: B, bytes: IntCounter, held: H) -> Self {
        Self { body, bytes, also: None, _held: held }
    }

    /// Adds its bytes to another counter too.
    pub(super) fn and(self, also: Option<Arc<AtomicU64>>) -> Self {
        Self { also, ..self }
    }
}

impl<B: Body<Data = Bytes> + Unpin, H: Unpin> Body for CountedBody<B, H> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        if let Poll::Ready(Some(Ok(frame))) = &polled
            && let Some(data) = frame.data_ref()
        {
            let bytes = data.remaining() as u64;
            self.bytes.inc_by(bytes);
            if let Some(also) = &self.also {
                also.fetch_add(bytes, Relaxed);
            }
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
