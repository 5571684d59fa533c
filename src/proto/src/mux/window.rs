//! One stream of a link: the window of each direction, and what is kept until the peer has consumed it.
//!
//! It must never drop a frame that the peer may not have, unless the peer has given the stream up.

use std::collections::VecDeque;

use crate::limits::WINDOW;
use crate::{Frame, Kind, ProtocolError, StreamId};

/// A credit is sent once this much was consumed.
const CREDIT_STEP: u64 = (WINDOW / 4) as u64;

#[derive(Debug, Default)]
pub(super) struct StreamState {
    pub(super) out: VecDeque<Frame>,
    /// Frames of `out` already given to the carrier.
    pub(super) sent: usize,
    /// Cost of all frames in `out`.
    pub(super) out_cost: usize,
    /// Cost of everything that the peer consumed.
    pub(super) acked: u64,
    pub(super) out_closed: bool,
    pub(super) inbox: VecDeque<Frame>,
    pub(super) received: u64,
    pub(super) consumed: u64,
    /// Cost of what was taken and is not to be acknowledged yet.
    pub(super) withheld: u64,
    pub(super) holding: bool,
    pub(super) reported: u64,
    pub(super) in_closed: bool,
    pub(super) reset: bool,
    /// It has no reader any more, and is kept until both sides have closed.
    pub(super) detached: bool,
}

impl StreamState {
    /// The peer has closed it, and everything that it sent was taken.
    pub(super) fn ended(&self) -> bool {
        self.in_closed && self.inbox.is_empty()
    }

    /// Nothing is left but to forget it.
    pub(super) fn is_over(&self) -> bool {
        (self.ended() && self.out_closed && self.out.is_empty()) || (self.detached && self.reset)
    }

    pub(super) fn is_pressing(&self) -> bool {
        let unsent = self.out.range(self.sent..);
        let is_over = self.detached && self.ended() && unsent.clone().all(|frame| frame.kind == Kind::Close);
        !is_over && (self.owes_credit() || unsent.len() > 0)
    }

    pub(super) fn owes_credit(&self) -> bool {
        let fresh = self.consumed - self.reported;
        !self.reset && fresh > 0 && (fresh >= CREDIT_STEP || self.ended())
    }

    /// The peer has given it up. That is a reset, unless the peer had closed it before.
    pub(super) fn abandoned(&mut self) {
        self.reset = !self.in_closed;
        self.out.clear();
        self.out_cost = 0;
        self.sent = 0;
        if self.in_closed {
            self.out_closed = true;
        }
    }

    /// The peer consumed `total` bytes since the beginning: their frames are dropped.
    pub(super) fn acknowledge(&mut self, id: StreamId, total: u64) -> Result<(), ProtocolError> {
        while self.acked < total {
            if self.sent == 0 {
                return Err(ProtocolError::BadCredit(id));
            }
            let frame = self.out.pop_front().ok_or(ProtocolError::BadCredit(id))?;
            self.sent -= 1;
            self.out_cost -= frame.cost();
            self.acked += frame.cost() as u64;
        }
        Ok(())
    }

    /// The peer received `total` bytes: what comes behind them is sent again.
    pub(super) fn rewind_to(&mut self, id: StreamId, total: u64) -> Result<(), ProtocolError> {
        let mut at = self.acked;
        let mut sent = 0;
        while at < total {
            let frame = self.out.get(sent).ok_or(ProtocolError::BadCredit(id))?;
            at += frame.cost() as u64;
            sent += 1;
        }
        self.sent = sent;
        Ok(())
    }
}
