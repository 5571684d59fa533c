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

/// The longest request, in bytes: what Anthropic takes.
pub(super) const LONGEST: usize = 32 << 20;

/// Bytes of all requests that are held at one time.
const HELD: usize = 256 << 20;

/// Bytes of one permit.
const STEP: usize = 4096;

/// The room for requests that are held.
pub(in crate::egress::service) struct Room(Arc<Semaphore>);

impl Default for Room {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(HELD / STEP)))
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
    /// Its part of the room, until it is sent.
    _room: Option<OwnedSemaphorePermit>,
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
    /// Reads a request.
    ///
    /// # Errors
    /// [`Unread`].
    pub(super) async fn read<B: Body<Data = Bytes> + Unpin>(&self, mut body: B) -> Result<HeldBody, Unread> {
        let (mut all, mut room, mut has) = (BytesMut::new(), None::<OwnedSemaphorePermit>, 0);
        while let Some(frame) = body.frame().await {
            let Ok(piece) = frame.map_err(|_| Unread::Broken)?.into_data() else { continue };
            let length = all.len() + piece.len();
            if length > LONGEST {
                return Err(Unread::TooLong);
            }
            let more = u32::try_from(length.div_ceil(STEP) - has).map_err(|_| Unread::TooLong)?;
            if more > 0 {
                let permit = self.0.clone().try_acquire_many_owned(more).map_err(|_| Unread::Full)?;
                match &mut room {
                    Some(room) => room.merge(permit),
                    None => room = Some(permit),
                }
                has = length.div_ceil(STEP);
            }
            all.extend_from_slice(&piece);
        }
        Ok(HeldBody { bytes: all.freeze(), _room: room })
    }
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
        let room = Room(Arc::new(Semaphore::new(10)));
        let held = room.read(pieces(700, 50)).await.expect("nine steps");
        assert_eq!((held.len(), room.0.available_permits()), (35_000, 1));
        assert_eq!(room.read(pieces(2, STEP)).await.expect_err("one step is left"), Unread::Full);
        assert_eq!(room.0.available_permits(), 1, "what is refused holds nothing");
        let small = room.read(pieces(1, STEP)).await.expect("one step");
        drop((held, small));
        assert_eq!(room.0.available_permits(), 10);
        let all = Room::default();
        assert_eq!(all.read(pieces(33, 1 << 20)).await.expect_err("33 MiB"), Unread::TooLong);
        assert!(all.read(pieces(32, 1 << 20)).await.is_ok());
    }
}
