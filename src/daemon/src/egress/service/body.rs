//! The bodies of requests and answers on their way, piece by piece. Only the request to a model is held as a
//! whole: see [`super::model`].

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

use super::mask::{Masker, Patterns};
use super::model::HeldBody;

/// The body of a request. Its trailers are dropped: some servers take them for headers.
pub(super) enum RequestBody {
    /// As it comes.
    Passing(Incoming),
    /// All of it is here.
    Held(HeldBody),
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match &mut *self {
            Self::Passing(body) => {
                let frame = ready!(Pin::new(body).poll_frame(context));
                Poll::Ready(frame.filter(|frame| frame.as_ref().map_or(true, Frame::is_data)))
            }
            Self::Held(held) => Poll::Ready(held.take().map(|bytes| Ok(Frame::data(bytes)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Passing(body) => body.is_end_stream(),
            Self::Held(held) => held.len() == 0,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Passing(body) => body.size_hint(),
            Self::Held(held) => SizeHint::with_exact(held.len() as u64),
        }
    }
}

/// The body of an answer, masked. Its length stays what it was.
pub(super) struct MaskedBody<B> {
    body: B,
    masker: Masker,
    patterns: Arc<Patterns>,
    /// What waits for the end of what was held back.
    last: Option<Frame<Bytes>>,
    is_over: bool,
}

impl<B> MaskedBody<B> {
    pub(super) fn new(body: B, patterns: Arc<Patterns>) -> Self {
        Self { body, masker: Masker::new(patterns.clone()), patterns, last: None, is_over: false }
    }

    /// Values in trailers are masked as in headers.
    fn trailers(&self, frame: Frame<Bytes>) -> Option<Frame<Bytes>> {
        let mut trailers = frame.into_trailers().ok()?;
        for value in trailers.values_mut() {
            let mut bytes = value.as_bytes().to_vec();
            self.patterns.mask(&mut bytes);
            if let Ok(masked) = http::HeaderValue::from_bytes(&bytes) {
                *value = masked;
            }
        }
        Some(Frame::trailers(trailers))
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for MaskedBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        loop {
            if self.is_over {
                return Poll::Ready(self.last.take().map(Ok));
            }
            let end = match ready!(Pin::new(&mut self.body).poll_frame(context)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(piece) => {
                        let shown = self.masker.push(piece);
                        if shown.is_empty() {
                            continue;
                        }
                        return Poll::Ready(Some(Ok(Frame::data(shown))));
                    }
                    Err(trailers) => self.trailers(trailers),
                },
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => None,
            };
            self.is_over = true;
            self.last = end;
            let rest = self.masker.finish();
            if !rest.is_empty() {
                return Poll::Ready(Some(Ok(Frame::data(rest))));
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.masker.is_empty() && self.last.is_none() && (self.is_over || self.body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        let held = self.masker.held();
        let inner = self.body.size_hint();
        let mut hint = SizeHint::new();
        hint.set_lower(inner.lower().saturating_add(held));
        if let Some(upper) = inner.upper() {
            hint.set_upper(upper.saturating_add(held));
        }
        hint
    }
}

#[cfg(test)]
mod tests {
    use futures_util::stream;
    use http_body_util::{BodyExt, StreamBody};

    use super::*;

    #[tokio::test]
    async fn a_body_in_pieces_and_its_trailers_are_masked_and_nothing_is_lost() {
        let trailers = http::HeaderMap::from_iter([(
            http::HeaderName::from_static("x-end"),
            http::HeaderValue::from_static("a-credential"),
        )]);
        let frames =
            ["<a-cre", "dential", "> a-cred"].map(|text| Frame::data(Bytes::from_static(text.as_bytes())));
        let frames = frames.into_iter().chain([Frame::trailers(trailers)]).map(Ok::<_, std::io::Error>);
        let body = StreamBody::new(stream::iter(frames.collect::<Vec<_>>()));
        let masked = MaskedBody::new(body, Arc::new(Patterns::of(["a-credential"])));
        let all = masked.collect().await.expect("a body");
        assert_eq!(all.trailers().expect("trailers")["x-end"], "*".repeat(12));
        assert_eq!(all.to_bytes(), format!("<{}> a-cred", "*".repeat(12)));
    }
}
