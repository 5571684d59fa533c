//! Bodies: what comes in is bounded in size, structure and time, what goes out is one type.
//!
//! It must never set memory aside for bytes that have not come.

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

use super::census::{Census, Excess};
use super::count::Counted;
use super::envelope::Refusal;

/// Every request's body, counted.
pub(super) type Given = Counted<Incoming>;

/// Every answer's body.
pub(super) type Answer = Response<UnsyncBoxBody<Bytes, io::Error>>;

/// A sender that keeps this pace is never too slow, in bytes a second.
const PACE: u64 = 256 * 1024;

/// Bytes of large bodies in memory at one time, beside those of the one that may be finished when this is used up.
/// A call holds its body, and what it was decoded to, up to four times over for a moment.
const LARGE_BODIES: u64 = 128 << 20;

/// A body up to this size counts as none; there are no more of them than connections.
pub(super) const SMALL: u64 = 64 * 1024;

/// What a value or a key of a message counts, in bytes of a body: parsed it takes several times that.
const PART: u64 = 256;

/// One permit's worth of a large body.
const UNIT: u64 = 64 * 1024;

/// Room for large bodies.
///
/// A body takes what has arrived of it, never what was announced. So all of the room can be held by bodies of which each
/// lacks a piece; then one of them at a time gets the last place, and with it as much as it needs, and ends.
pub(super) struct Room {
    shared: Arc<Semaphore>,
    last: Arc<Semaphore>,
}

/// What a body holds of the [`Room`], until the call that it is of has ended.
#[derive(Debug, Default)]
pub(super) struct Held {
    shared: Option<OwnedSemaphorePermit>,
    last: Option<OwnedSemaphorePermit>,
}

/// The same, for as long as anybody at work for the call has it.
pub(super) type Place = Arc<Held>;

impl Default for Room {
    fn default() -> Self {
        let places = units(LARGE_BODIES) as usize;
        Self { shared: Arc::new(Semaphore::new(places)), last: Arc::new(Semaphore::new(1)) }
    }
}

impl Room {
    /// Waits until there is room for `bytes` in all.
    async fn grow(&self, held: &mut Held, bytes: u64, patience: Duration) -> Result<(), BodyError> {
        let have = held.shared.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        let more = units(bytes).saturating_sub(u32::try_from(have).unwrap_or(u32::MAX));
        if bytes <= SMALL || more == 0 || held.last.is_some() {
            return Ok(());
        }
        let waiting = async {
            tokio::select! {
                biased;
                permit = self.shared.clone().acquire_many_owned(more) => (permit.ok(), None),
                permit = self.last.clone().acquire_owned() => (None, permit.ok()),
            }
        };
        let (shared, last) = tokio::time::timeout(patience, waiting).await.map_err(|_| BodyError::NoRoom)?;
        match (&mut held.shared, shared) {
            (Some(held), Some(more)) => held.merge(more),
            (none @ None, more) => *none = more,
            (Some(_), None) => {}
        }
        held.last = last;
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
    #[error(transparent)]
    Excess(#[from] Excess),
}

impl BodyError {
    /// A word for the metrics.
    pub(super) fn reason(&self) -> &'static str {
        match self {
            Self::TooLarge(_) => "too_large",
            Self::TooSlow => "too_slow",
            Self::NoRoom => "no_room",
            Self::Broken => "broken",
            Self::Excess(_) => "structure",
        }
    }

    pub(super) fn answer(&self) -> Answer {
        let (status, code) = match self {
            // The whole of it was read, so the connection is good for more.
            Self::Excess(excess) => {
                return json(StatusCode::BAD_REQUEST, &Refusal::invalid(&excess.to_string()).to_json());
            }
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

/// A body that must keep its pace: it may take its patience, and longer only while it keeps [`PACE`]. However quick it
/// was before, it never rests for longer than its patience.
pub(super) struct Paced {
    body: Given,
    until: Instant,
    patience: Duration,
}

impl Paced {
    pub(super) fn new(body: Given, patience: Duration) -> Self {
        Self { body, until: Instant::now() + patience, patience }
    }

    /// The next piece; `None` at the end.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, BodyError> {
        loop {
            let frame = tokio::time::timeout_at(self.until, self.body.frame()).await;
            let Some(frame) = frame.map_err(|_| BodyError::TooSlow)? else { return Ok(None) };
            if let Ok(data) = frame.map_err(|_| BodyError::Broken)?.into_data() {
                let earned = Duration::from_micros(data.len() as u64 * 1_000_000 / PACE);
                self.until = (self.until + earned).min(Instant::now() + self.patience);
                return Ok(Some(data));
            }
        }
    }
}

/// Reads the whole body of a JSON message of at most `limit` bytes, with `patience` as [`Paced`] has it. One whose structure
/// exceeds a bound of the [`Census`] is read to its end, so that its sender hears why, and not kept.
/// The [`Place`] is to live as long as the call.
pub(super) async fn read(
    body: Given,
    limit: u64,
    patience: Duration,
    room: &Room,
) -> Result<(Bytes, Place), BodyError> {
    if body.size_hint().lower() > limit {
        return Err(BodyError::TooLarge(limit));
    }
    let (mut held, mut census) = (Held::default(), Census::default());
    let mut body = Paced::new(body, patience);
    let mut first = Bytes::new();
    let mut all = BytesMut::new();
    let mut got = 0;
    while let Some(data) = body.next().await? {
        got += data.len() as u64;
        if got > limit {
            return Err(BodyError::TooLarge(limit));
        }
        if let Err(excess) = census.count(&data) {
            drop((first, all, held));
            while let Some(data) = body.next().await? {
                got += data.len() as u64;
                if got > limit {
                    return Err(BodyError::TooLarge(limit));
                }
            }
            return Err(excess.into());
        }
        let waiting = Instant::now();
        room.grow(&mut held, got + census.parts() as u64 * PART, patience).await?;
        body.until += waiting.elapsed(); // that was our time, not the sender's
        // Most bodies are one frame: those are not copied.
        if first.is_empty() && all.is_empty() {
            first = data;
        } else {
            all.extend_from_slice(&std::mem::take(&mut first));
            all.extend_from_slice(&data);
        }
    }
    Ok((if all.is_empty() { first } else { all.freeze() }, Arc::new(held)))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn bodies_that_hold_all_of_the_room_end_one_after_the_other() {
        let (room, patience) = (Room::default(), Duration::from_secs(3600));
        let third = LARGE_BODIES / 3 / UNIT * UNIT;
        let [mut first, mut second, mut third_body] = [Held::default(), Held::default(), Held::default()];
        for held in [&mut first, &mut second, &mut third_body] {
            room.grow(held, third, patience).await.unwrap();
        }
        // Each lacks a piece. One gets it, and whatever more it needs.
        room.grow(&mut first, 2 * third, patience).await.unwrap();
        room.grow(&mut first, 100 * third, patience).await.unwrap();
        let short = Duration::from_millis(10);
        let refused = room.grow(&mut second, 2 * third, short).await;
        assert!(matches!(refused, Err(BodyError::NoRoom)), "{refused:?}");
        drop(first);
        room.grow(&mut second, 2 * third, patience).await.unwrap();
        room.grow(&mut third_body, 2 * third, patience).await.unwrap();
    }

    #[tokio::test]
    async fn small_bodies_never_wait() {
        let room = Room::default();
        let [mut all, mut last, mut small] = [Held::default(), Held::default(), Held::default()];
        room.grow(&mut all, LARGE_BODIES, Duration::from_secs(3600)).await.unwrap();
        room.grow(&mut last, LARGE_BODIES, Duration::from_secs(3600)).await.unwrap();
        room.grow(&mut small, SMALL, Duration::ZERO).await.unwrap();
        assert!(room.grow(&mut small, SMALL + 1, Duration::ZERO).await.is_err());
    }
}
