//! Bodies: of requests, bounded in size, structure and time, and of answers, all of one type.
//!
//! It must never reserve memory for bytes that have not arrived.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Body;
use serde_json::{Value, json};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::counted_body::CountedBody;
use super::envelope::RpcRefusal;
use super::linger::TrackedBody;
use super::structure::{StructureCounter, StructureExcess};
use crate::tenants::TenantParts;
use crate::tools::ArrivedMessage;

/// A request's body, whose bytes are counted.
pub(super) type RequestBody = CountedBody<TrackedBody>;

/// Every answer's body.
pub(super) type Answer = Response<UnsyncBoxBody<Bytes, io::Error>>;

/// The pace at which a sender is never too slow, in bytes a second.
const PACE: u64 = 256 * 1024;

/// Bytes of large bodies in memory at one time, beside the one body that may be finished when these are used
/// up. A call can hold its body, and the content decoded from it, up to four times for a moment.
const LARGE_BODIES: u64 = 128 << 20;

/// Bytes of a body that counts as small and takes no permit: there are no more of these than connections.
pub(super) const SMALL: u64 = 64 * 1024;

/// Bytes that a value or a key of a message counts: parsed, it takes several times as many.
const PART: u64 = 256;

/// Bytes of a large body for one permit.
const UNIT: u64 = 64 * 1024;

/// Bounds the memory of large bodies.
///
/// A body takes permits for bytes that have arrived, never for bytes that were only announced. So all permits
/// can be held by bodies of which each lacks a piece. Then one of them at a time gets the last permit, which
/// is good for any size, and can be finished.
///
/// Of one tenant they take no more than its part while others have tokens too ([`TenantParts`]); beyond it
/// they wait for each other, or for the last permit.
pub(super) struct LargeBodies {
    shared: Arc<Semaphore>,
    last: Arc<Semaphore>,
    /// What each tenant may have of the shared ones.
    pub(super) parts: TenantParts,
}

/// The permits of one body, until its call has ended, or counts in the share of its session.
#[derive(Debug, Default)]
pub(super) struct BodyPermits {
    shared: Option<OwnedSemaphorePermit>,
    /// Those out of the part of its tenant, as many.
    own: Option<OwnedSemaphorePermit>,
    last: Option<OwnedSemaphorePermit>,
}

/// A message whose body was read, with its permits. It lives for as long as anything works for its call.
#[derive(Debug)]
pub(super) struct ReadMessage {
    /// 0 for a small message.
    bytes: u64,
    permits: Mutex<BodyPermits>,
}

impl ArrivedMessage for ReadMessage {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn release(&self) {
        *self.permits.lock().unwrap_or_else(PoisonError::into_inner) = BodyPermits::default();
    }
}

impl Default for LargeBodies {
    fn default() -> Self {
        let permits = units(LARGE_BODIES) as usize;
        let (shared, last) = (Arc::new(Semaphore::new(permits)), Arc::new(Semaphore::new(1)));
        Self { shared, last, parts: TenantParts::of(permits) }
    }
}

impl LargeBodies {
    /// Waits until the body has permits for `bytes` in all, out of the `part` of its tenant if it has one.
    async fn grow(
        &self,
        held: &mut BodyPermits,
        bytes: u64,
        part: Option<&Arc<Semaphore>>,
        patience: Duration,
    ) -> Result<(), BodyError> {
        let have = held.shared.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        let more = units(bytes).saturating_sub(u32::try_from(have).unwrap_or(u32::MAX));
        if bytes <= SMALL || more == 0 || held.last.is_some() {
            return Ok(());
        }
        let both = async {
            let own = match part {
                Some(part) => part.clone().acquire_many_owned(more).await.ok(),
                None => None,
            };
            (self.shared.clone().acquire_many_owned(more).await.ok(), own)
        };
        let waiting = async {
            tokio::select! {
                biased;
                (shared, own) = both => (shared, own, None),
                permit = self.last.clone().acquire_owned() => (None, None, permit.ok()),
            }
        };
        let waited = tokio::time::timeout(patience, waiting).await;
        let (shared, own, last) = waited.map_err(|_| BodyError::NoRoom)?;
        add(&mut held.shared, shared);
        add(&mut held.own, own);
        held.last = last;
        Ok(())
    }
}

fn add(held: &mut Option<OwnedSemaphorePermit>, more: Option<OwnedSemaphorePermit>) {
    match (held, more) {
        (Some(held), Some(more)) => held.merge(more),
        (none @ None, more) => *none = more,
        (Some(_), None) => {}
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
    #[error("too many large bodies are in progress; try again in some seconds")]
    NoRoom,
    #[error("the connection broke in mid-body")]
    Broken,
    #[error(transparent)]
    Excess(#[from] StructureExcess),
}

impl BodyError {
    /// The reason, as a label of a metric.
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
                return json(StatusCode::BAD_REQUEST, &RpcRefusal::invalid(&excess.to_string()).to_json());
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

/// A body whose sender must keep a pace: it may take as long as the patience, and longer only while it keeps
/// [`PACE`]. However quick it was before, it may never pause for longer than the patience.
pub(super) struct Paced {
    body: RequestBody,
    until: Instant,
    patience: Duration,
}

impl Paced {
    pub(super) fn new(body: RequestBody, patience: Duration) -> Self {
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

/// Reads the whole body of a JSON message of at most `limit` bytes, with the `patience` of [`Paced`]. A body
/// whose structure exceeds a bound of the [`StructureCounter`] is read to its end, so that its sender learns
/// why, but not kept. The caller keeps the permits for as long as the call.
pub(super) async fn read(
    body: RequestBody,
    limit: u64,
    patience: Duration,
    (large, part): (&LargeBodies, Option<&Arc<Semaphore>>),
) -> Result<(Bytes, Arc<ReadMessage>), BodyError> {
    if body.size_hint().lower() > limit {
        return Err(BodyError::TooLarge(limit));
    }
    let (mut held, mut counter) = (BodyPermits::default(), StructureCounter::default());
    let mut body = Paced::new(body, patience);
    let mut first = Bytes::new();
    let mut all = BytesMut::new();
    let mut got = 0;
    while let Some(data) = body.next().await? {
        got += data.len() as u64;
        if got > limit {
            return Err(BodyError::TooLarge(limit));
        }
        if let Err(excess) = counter.count(&data) {
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
        large.grow(&mut held, got + counter.parts() as u64 * PART, part, patience).await?;
        body.until += waiting.elapsed(); // the sender did not cause this wait
        // A body of one frame, as most are, is not copied.
        if first.is_empty() && all.is_empty() {
            first = data;
        } else {
            all.extend_from_slice(&std::mem::take(&mut first));
            all.extend_from_slice(&data);
        }
    }
    let bytes = if got > SMALL { got } else { 0 };
    let message = ReadMessage { bytes, permits: Mutex::new(held) };
    Ok((if all.is_empty() { first } else { all.freeze() }, Arc::new(message)))
}

/// A body whose bytes are all there.
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
    async fn bodies_that_hold_all_permits_end_one_after_the_other() {
        let (large, patience) = (LargeBodies::default(), Duration::from_secs(3600));
        let third = LARGE_BODIES / 3 / UNIT * UNIT;
        let [mut first, mut second, mut third_body] =
            [BodyPermits::default(), BodyPermits::default(), BodyPermits::default()];
        for held in [&mut first, &mut second, &mut third_body] {
            large.grow(held, third, None, patience).await.unwrap();
        }
        // Each lacks a piece. One gets it, and whatever more it needs.
        large.grow(&mut first, 2 * third, None, patience).await.unwrap();
        large.grow(&mut first, 100 * third, None, patience).await.unwrap();
        let short = Duration::from_millis(10);
        let refused = large.grow(&mut second, 2 * third, None, short).await;
        assert!(matches!(refused, Err(BodyError::NoRoom)), "{refused:?}");
        drop(first);
        large.grow(&mut second, 2 * third, None, patience).await.unwrap();
        large.grow(&mut third_body, 2 * third, None, patience).await.unwrap();
    }

    #[tokio::test]
    async fn small_bodies_never_wait() {
        let large = LargeBodies::default();
        let [mut all, mut last, mut small] =
            [BodyPermits::default(), BodyPermits::default(), BodyPermits::default()];
        large.grow(&mut all, LARGE_BODIES, None, Duration::from_secs(3600)).await.unwrap();
        large.grow(&mut last, LARGE_BODIES, None, Duration::from_secs(3600)).await.unwrap();
        large.grow(&mut small, SMALL, None, Duration::ZERO).await.unwrap();
        assert!(large.grow(&mut small, SMALL + 1, None, Duration::ZERO).await.is_err());
    }

    #[tokio::test]
    async fn the_bodies_of_one_tenant_leave_room_for_those_of_others() {
        let (large, short) = (LargeBodies::default(), Duration::from_millis(10));
        let part = Arc::new(Semaphore::new(units(LARGE_BODIES) as usize / 4 * 3));
        let (mut held, mut last) = (BodyPermits::default(), BodyPermits::default());
        large.grow(&mut held, LARGE_BODIES / 4 * 3, Some(&part), short).await.unwrap();
        // Beyond its part one body has the last permit, and the others wait.
        large.grow(&mut last, 2 * SMALL, Some(&part), short).await.unwrap();
        let mut more = BodyPermits::default();
        assert!(large.grow(&mut more, 2 * SMALL, Some(&part), short).await.is_err());
        let mut of_another = BodyPermits::default();
        large.grow(&mut of_another, LARGE_BODIES / 4, None, short).await.unwrap();
        assert!(of_another.last.is_none(), "a quarter is left");
        drop(held);
        large.grow(&mut more, 2 * SMALL, Some(&part), short).await.unwrap();
    }
}
