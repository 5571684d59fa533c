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

/// Every answer's body.
pub(super) type Answer = Response<UnsyncBoxBody<Bytes, io::Error>>;

/// Bodies over this many bytes count as large.
const LARGE: u64 = 1 << 20;
/// Large bodies at one time; further ones wait, within their own time.
pub(super) const LARGE_AT_ONCE: usize = 8;

/// A sender that keeps this pace is never too slow, in bytes a second.
const PACE: u64 = 256 * 1024;

/// Why a body was not read.
#[derive(Debug, thiserror::Error)]
pub(super) enum BodyError {
    #[error("the body is over {0} bytes, which is the limit")]
    TooLarge(u64),
    #[error("the body did not arrive in time")]
    TooSlow,
    #[error("too many large requests are being read; try again in a moment")]
    Busy,
    #[error("the connection broke in mid-body")]
    Broken,
}

impl BodyError {
    pub(super) fn answer(&self) -> Answer {
        let (status, code) = match self {
            Self::TooLarge(_) => (StatusCode::PAYLOAD_TOO_LARGE, "too_large"),
            Self::Busy => (StatusCode::SERVICE_UNAVAILABLE, "busy"),
            Self::TooSlow => (StatusCode::REQUEST_TIMEOUT, "too_slow"),
            Self::Broken => (StatusCode::BAD_REQUEST, "invalid_argument"),
        };
        let mut answer = error(status, code, &self.to_string());
        if matches!(self, Self::Busy) {
            answer.headers_mut().insert(http::header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        // What was not read is still on the connection.
        answer.headers_mut().insert(http::header::CONNECTION, HeaderValue::from_static("close"));
        answer
    }
}

/// Reads a whole body of at most `limit` bytes; it may take `patience`, and longer only while it keeps [`PACE`].
/// A large one takes a place of `large`, to be held as long as the bytes are.
pub(super) async fn read(
    mut body: Incoming,
    limit: u64,
    patience: Duration,
    large: &Arc<Semaphore>,
) -> Result<(Bytes, Option<OwnedSemaphorePermit>), BodyError> {
    if body.size_hint().lower() > limit {
        return Err(BodyError::TooLarge(limit));
    }
    let begun = Instant::now();
    let mut first = Bytes::new();
    let mut all = BytesMut::new();
    let mut place = None;
    loop {
        let got = (first.len() + all.len()) as u64;
        let until = begun + patience + Duration::from_secs(got / PACE);
        let frame = tokio::time::timeout_at(until, body.frame()).await.map_err(|_| BodyError::TooSlow)?;
        let Some(frame) = frame else { break };
        let Ok(data) = frame.map_err(|_| BodyError::Broken)?.into_data() else { continue };
        if got + data.len() as u64 > limit {
            return Err(BodyError::TooLarge(limit));
        }
        if place.is_none() && got + data.len() as u64 > LARGE {
            let free = tokio::time::timeout_at(until, large.clone().acquire_owned()).await;
            place = Some(free.map_err(|_| BodyError::Busy)?.map_err(|_| BodyError::Busy)?);
        }
        // Most bodies are one frame: those are not copied.
        if got == 0 {
            first = data;
        } else {
            all.extend_from_slice(&std::mem::take(&mut first));
            all.extend_from_slice(&data);
        }
    }
    Ok((if all.is_empty() { first } else { all.freeze() }, place))
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
