//! What the two kinds of streams share, [`super::Stream`] and [`super::AskStream`]: frames in their order,
//! within the agent's window.
//!
//! It must never keep the link open, nor hold the mux's lock across an await.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Arc;

use bytes::Bytes;
use paddock_proto::limits::CHUNK;
use paddock_proto::{Channel, Inbound, Kind, StreamId};
use tokio::sync::Notify;

use super::{LinkError, LinkState};

/// Cuts bytes of a channel into frames.
pub(super) fn pieces(channel: Channel, mut bytes: Bytes) -> impl Iterator<Item = (Kind, Bytes)> {
    std::iter::from_fn(move || {
        (!bytes.is_empty()).then(|| (Kind::Data(channel), bytes.split_to(bytes.len().min(CHUNK))))
    })
}

/// A stream of a link. Dropping it resets the stream, unless it was closed before.
pub(super) struct RawStream {
    id: StreamId,
    shared: Arc<LinkState>,
    bell: Arc<Notify>,
}

impl RawStream {
    pub(super) fn new(id: StreamId, shared: Arc<LinkState>, bell: Arc<Notify>) -> Self {
        Self { id, shared, bell }
    }

    /// Waits for what the agent sends next. Cancel-safe.
    pub(super) async fn inbound(&self) -> Result<Inbound, LinkError> {
        loop {
            let mut rung = pin!(self.bell.notified());
            rung.as_mut().enable();
            if let Some(inbound) = self.take() {
                return Ok(inbound);
            }
            if let Some(fault) = self.shared.fault() {
                return Err(fault);
            }
            rung.await;
        }
    }

    /// Waits until the agent abandons the stream, or the link is lost. What arrived before stays.
    /// Cancel-safe.
    pub(super) async fn abandoned(&self) -> LinkError {
        loop {
            let mut rung = pin!(self.bell.notified());
            rung.as_mut().enable();
            if let Some(fault) = self.shared.fault() {
                return fault;
            }
            if self.is_reset() {
                return LinkError::Reset;
            }
            rung.await;
        }
    }

    /// Whether the agent has abandoned the stream.
    pub(super) fn is_reset(&self) -> bool {
        self.shared.lock().mux.is_reset(self.id)
    }

    fn take(&self) -> Option<Inbound> {
        let mut state = self.shared.lock();
        let inbound = state.mux.take(self.id)?;
        let due = state.mux.owes_credit(self.id);
        drop(state);
        if due {
            self.shared.transmit.notify_one();
        }
        Some(inbound)
    }

    pub(super) fn hold(&self) {
        self.shared.lock().mux.hold(self.id);
    }

    pub(super) fn release(&self) {
        self.shared.lock().mux.release(self.id);
        self.shared.transmit.notify_one();
    }

    /// Sends one frame.
    pub(super) async fn send(&self, kind: Kind, payload: Bytes) -> Result<(), LinkError> {
        self.send_all(&mut VecDeque::from([(kind, payload)])).await
    }

    /// Sends frames in their order, as many at a time as fit into the agent's window. On a stream that the
    /// agent has reset it succeeds, and what is read then is the reset.
    pub(super) async fn send_all(&self, frames: &mut VecDeque<(Kind, Bytes)>) -> Result<(), LinkError> {
        loop {
            let mut rung = pin!(self.bell.notified());
            rung.as_mut().enable();
            if let Some(fault) = self.shared.fault() {
                return Err(fault);
            }
            if self.queue(frames) {
                self.shared.transmit.notify_one();
            }
            if frames.is_empty() {
                return Ok(());
            }
            rung.await;
        }
    }

    /// Queues the frames that fit into the agent's window. Whether there were any.
    fn queue(&self, frames: &mut VecDeque<(Kind, Bytes)>) -> bool {
        let mut state = self.shared.lock();
        let before = frames.len();
        while let Some((_, payload)) = frames.front()
            && state.mux.has_room(self.id, payload.len())
            && let Some((kind, payload)) = frames.pop_front()
        {
            state.mux.send(self.id, kind, payload);
        }
        frames.len() < before
    }
}

impl Drop for RawStream {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.mux.finish(self.id);
        state.bells.remove(&self.id);
        drop(state);
        self.shared.transmit.notify_one();
    }
}
