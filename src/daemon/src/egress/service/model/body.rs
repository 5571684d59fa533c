//! The bodies of requests to models and of their answers.
//!
//! A request is held as a whole, because nothing is sent before it is known which model it asks for; the
//! bytes that all requests hold are bounded. An answer is passed on piece by piece, as it is.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::account::Charge;
use super::meter::Meter;
use crate::tenants::TenantParts;

/// The longest request, in bytes: what Anthropic takes.
pub(super) const LONGEST: usize = 32 << 20;

/// Bytes of all requests that are held at one time.
const HELD: usize = 256 << 20;

/// Bytes of one permit.
const STEP: usize = 4096;

/// The room for requests that are held. Of one tenant they take no more than its part, while others have
/// tokens too.
pub(in crate::egress::service) struct Room {
    all: Arc<Semaphore>,
    /// What each tenant may have of it.
    pub(super) parts: TenantParts,
}

impl Default for Room {
    fn default() -> Self {
        Self::of(HELD / STEP)
    }
}

/// Why a request is not read to its end.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unread {
    /// It is longer than [`LONGEST`].
    TooLong,
    /// All requests together hold as much as they may.
    Full,
    /// The program broke off.
    Broken,
}

/// A request, held as a whole.
#[derive(Debug)]
pub(in crate::egress::service) struct HeldBody {
    pub(super) bytes: Bytes,
    /// What it takes of the room and of its tenant's part, until it is sent.
    _room: [Option<OwnedSemaphorePermit>; 2],
}

impl HeldBody {
    /// What is to be sent; nothing the second time.
    pub(in crate::egress::service) fn take(&mut self) -> Option<Bytes> {
        Some(std::mem::take(&mut self.bytes)).filter(|bytes| !bytes.is_empty())
    }

    /// Bytes that are to be sent.
    pub(in crate::egress::service) fn len(&self) -> usize {
        self.bytes.len()
    }
}

impl Room {
    fn of(permits: usize) -> Self {
        Self { all: Arc::new(Semaphore::new(permits)), parts: TenantParts::of(permits) }
    }

    /// Reads a request, within the `part` of its tenant if it has one.
    ///
    /// # Errors
    /// [`Unread`].
    pub(super) async fn read<B: Body<Data = Bytes> + Unpin>(
        &self,
        mut body: B,
        part: Option<&Arc<Semaphore>>,
    ) -> Result<HeldBody, Unread> {
        let (mut all, mut room, mut has) = (BytesMut::new(), [None, None], 0);
        while let Some(frame) = body.frame().await {
            let Ok(piece) = frame.map_err(|_| Unread::Broken)?.into_data() else { continue };
            let length = all.len() + piece.len();
            if length > LONGEST {
                return Err(Unread::TooLong);
            }
            let more = u32::try_from(length.div_ceil(STEP) - has).map_err(|_| Unread::TooLong)?;
            if more > 0 {
                let [of_all, of_part] = &mut room;
                take(of_all, &self.all, more)?;
                part.map_or(Ok(()), |part| take(of_part, part, more))?;
                has = length.div_ceil(STEP);
            }
            all.extend_from_slice(&piece);
        }
        Ok(HeldBody { bytes: all.freeze(), _room: room })
    }
}

/// Takes more permits.
fn take(held: &mut Option<OwnedSemaphorePermit>, of: &Arc<Semaphore>, more: u32) -> Result<(), Unread> {
    let permit = of.clone().try_acquire_many_owned(more).map_err(|_| Unread::Full)?;
    match held {
        Some(held) => held.merge(permit),
        None => *held = Some(permit),
    }
    Ok(())
}

/// The meter of an answer, and its charge.
pub(in crate::egress::service) struct Metering {
    meter: Meter,
    charge: Charge,
}

impl Metering {
    /// An answer begins.
    pub(super) fn new(meter: Meter, charge: Charge) -> Self {
        let mut metering = Self { meter, charge };
        metering.push(&[]);
        metering
    }

    fn push(&mut self, bytes: &[u8]) {
        self.meter.push(bytes);
        self.charge.update(self.meter.tokens(), self.meter.model(), self.meter.is_whole());
    }
}

/// The body of an answer, metered if it is a model's.
pub(in crate::egress::service) struct MeteredBody<B> {
    body: B,
    /// `None` once the answer is over: the charge is settled then.
    metering: Option<Metering>,
}

impl<B> MeteredBody<B> {
    pub(in crate::egress::service) fn new(body: B, metering: Option<Metering>) -> Self {
        Self { body, metering }
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for MeteredBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        match &frame {
            Some(Ok(frame)) => {
                if let (Some(metering), Some(piece)) = (&mut self.metering, frame.data_ref()) {
                    metering.push(piece);
                }
            }
            Some(Err(_)) | None => self.metering = None,
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::stream;
    use http_body_util::StreamBody;

    use super::*;

    fn pieces(count: usize, size: usize) -> impl Body<Data = Bytes> + Unpin {
        let frame = move |_| Ok::<_, std::io::Error>(Frame::data(Bytes::from(vec![b'x'; size])));
        StreamBody::new(stream::iter((0..count).map(frame)))
    }

    #[tokio::test]
    async fn requests_share_a_bounded_room_and_give_it_back() {
        let room = Room::of(10);
        let held = room.read(pieces(700, 50), None).await.expect("nine steps");
        assert_eq!((held.len(), room.all.available_permits()), (35_000, 1));
        assert_eq!(room.read(pieces(2, STEP), None).await.expect_err("one step is left"), Unread::Full);
        assert_eq!(room.all.available_permits(), 1, "what is refused holds nothing");
        let small = room.read(pieces(1, STEP), None).await.expect("one step");
        drop((held, small));
        assert_eq!(room.all.available_permits(), 10);
        let all = Room::default();
        assert_eq!(all.read(pieces(33, 1 << 20), None).await.expect_err("33 MiB"), Unread::TooLong);
        assert!(all.read(pieces(32, 1 << 20), None).await.is_ok());
    }

    #[tokio::test]
    async fn one_tenant_leaves_room_to_the_others() {
        let room = Room::of(10);
        let (ann, bob) = (Arc::new(Semaphore::new(7)), Arc::new(Semaphore::new(7)));
        let held = room.read(pieces(7, STEP), Some(&ann)).await.expect("its part");
        assert_eq!(room.read(pieces(1, STEP), Some(&ann)).await.expect_err("it has its part"), Unread::Full);
        assert_eq!(room.all.available_permits(), 3, "what is refused holds nothing");
        let other = room.read(pieces(3, STEP), Some(&bob)).await.expect("what is left");
        drop((held, other));
        assert_eq!((ann.available_permits(), room.all.available_permits()), (7, 10));
    }
}
