//! Bodies: what comes in is bounded in size and time, what goes out is one type.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Incoming};
use serde_json::{Value, json};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::count::Counted;

/// Every request's body, counted.
pub(super) type Given = Counted<Incoming>;

/// Every answer's body.
pub(super) type Answer = Response<UnsyncBoxBody<Bytes, io::Error>>;

/// A sender that keeps this pace is never too slow, in bytes a second.
const PACE: u64 = 256 * 1024;

/// Bytes of large bodies in memory at one time, if one body may not be larger: a call holds its body, and what it
/// was decoded to, several times over.
const LARGE_BODIES: u64 = 128 << 20;

/// A body up to this size counts as none; there are no more of them than connections.
const SMALL: u64 = 64 * 1024;

/// One permit's worth of a large body.
const UNIT: u64 = 64 * 1024;

/// Room for large bodies.
pub(super) struct Room(Arc<Semaphore>);

/// A place in the [`Room`], kept for as long as the call that the body is of.
pub(super) type Place = Option<Arc<OwnedSemaphorePermit>>;

impl Room {
    /// Room for one body of `limit` bytes at least.
    pub(super) fn new(limit: u64) -> Self {
        Self(Arc::new(Semaphore::new(units(limit.max(LARGE_BODIES)) as usize)))
    }

    /// Waits until there is room for `bytes` in all.
    async fn grow(
        &self,
        held: &mut Option<OwnedSemaphorePermit>,
        bytes: u64,
        patience: Duration,
    ) -> Result<(), BodyError> {
        let have = held.as_ref().map_or(0, |held| held.num_permits());
        let more = units(bytes).saturating_sub(u32::try_from(have).unwrap_or(u32::MAX));
        if bytes <= SMALL || more == 0 {
            return Ok(());
        }
        let permit = tokio::time::timeout(patience, self.0.clone().acquire_many_owned(more)).await;
        let permit = permit.map_err(|_| BodyError::NoRoom)?.map_err(|_| BodyError::NoRoom)?;
        match held {
            Some(held) => held.merge(permit),
            None => *held = Some(permit),
        }
        Ok(())
    }
}

fn units(bytes: u64) -> u32 {
    u32::try_from(bytes.div_ceil(UNIT)).unwrap_or(u32::MAX)
}

/// Why a body was not read.
#[derive(Debug, thiserror::Error)]
pub(super) enum BodyError {
    #[error("the body is over {0} bytes, which is the limit")]
    TooLarge(u64),
    #[error("the body did not arrive in time")]
    TooSlow,
    #[error("too many large bodies are being worked on; try again in some seconds")]
    NoRoom,
    #[error("the connection broke in mid-body")]
    Broken,
}

impl BodyError {
    pub(super) fn answer(&self) -> Answer {
        let (status, code) = match self {
            Self::TooLarge(_) => (StatusCode::PAYLOAD_TOO_LARGE, "too_large"),
            Self::TooSlow => (StatusCode::REQUEST_TIMEOUT, "too_slow"),
            Self::NoRoom => (StatusCode::SERVICE_UNAVAILABLE, "busy"),
            Self::Broken => (StatusCode::BAD_REQUEST, "invalid_argument"),
        };
        let mut answer = error(status, code, &self.to_string());
        if matches!(self, Self::NoRoom) {
            answer.headers_mut().insert(http::header::RETRY_AFTER, HeaderValue::from_static("5"));
        }
        // What was not read is still on the connection.
        answer.headers_mut().insert(http::header::CONNECTION, HeaderValue::from_static("close"));
        answer
    }
}

/// A body that must keep its pace: it may take its patience, and longer only while it keeps [`PACE`].
pub(super) struct Paced {
    body: Given,
    begun: Instant,
    patience: Duration,
    got: u64,
}

impl Paced {
    pub(super) fn new(body: Given, patience: Duration) -> Self {
        Self { body, begun: Instant::now(), patience, got: 0 }
    }

    /// The next piece; `None` at the end.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, BodyError> {
        loop {
            let until = self.begun + self.patience + Duration::from_secs(self.got / PACE);
            let frame = tokio::time::timeout_at(until, self.body.frame()).await;
            let Some(frame) = frame.map_err(|_| BodyError::TooSlow)? else { return Ok(None) };
            if let Ok(data) = frame.map_err(|_| BodyError::Broken)?.into_data() {
                self.got += data.len() as u64;
                return Ok(Some(data));
            }
        }
    }
}

/// Reads a whole body of at most `limit` bytes, with `patience` as [`Paced`] has it.
/// The [`Place`] is to live as long as the call.
pub(super) async fn read(
    body: Given,
    limit: u64,
    patience: Duration,
    room: &Room,
) -> Result<(Bytes, Place), BodyError> {
    let announced = body.size_hint().lower();
    if announced > limit {
        return Err(BodyError::TooLarge(limit));
    }
    let mut place = None;
    room.grow(&mut place, announced, patience).await?;
    let mut body = Paced::new(body, patience);
    let mut first = Bytes::new();
    let mut all = BytesMut::new();
    while let Some(data) = body.next().await? {
        let got = (first.len() + all.len()) as u64;
        if got + data.len() as u64 > limit {
            return Err(BodyError::TooLarge(limit));
        }
        room.grow(&mut place, got + data.len() as u64, patience).await?;
        // Most bodies are one frame: those are not copied.
        if got == 0 {
            first = data;
        } else {
            all.extend_from_slice(&std::mem::take(&mut first));
            all.extend_from_slice(&data);
        }
    }
    Ok((if all.is_empty() { first } else { all.freeze() }, place.map(Arc::new)))
}

/// A body that is all there.
pub(super) fn full(bytes: impl Into<Bytes>) -> UnsyncBoxBody<Bytes, io::Error> {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

/// A JSON answer.
pub(super) fn json(status: StatusCode, document: &Value) -> Answer {
    let mut answer = Response::new(full(document.to_string()));
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    answer
}

/// An error of HTTP itself.
pub(super) fn error(status: StatusCode, code: &str, message: &str) -> Answer {
    json(status, &json!({ "error": code, "message": message }))
}
