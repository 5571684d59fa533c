//! Many streams over one carrier that may break: windows, order, and resumption. Pure: bytes in, bytes out.
//!
//! Each stream keeps the frames that the peer has not yet consumed; together they must fit the stream's
//! window. A credit releases them. After a reconnect both sides say how much they had received
//! ([`ResumePoints`]) and the rest is sent again, so the user of a stream never learns that the carrier
//! broke.
//!
//! ```text
//!   send ─► out: [consumed by peer │ sent, unconsumed │ not yet sent] ─► transmit ─► carrier
//!             released by Credit     sent again on resume
//!   carrier ─► on_bytes ─► inbox ─► take (counts as consumed; reported by Credit)
//! ```
//!
//! It must never hold more than [`WINDOW`] bytes each way for one stream, whatever the peer does, nor accept
//! without end frames that change nothing ([`STRAY`]).

mod window;

use std::collections::{BTreeMap, VecDeque};

use bytes::{Bytes, BytesMut};

use self::window::StreamState;
use crate::limits::{MAX_ASKS, MAX_STREAMS, SLACK, STRAY, WINDOW};
use crate::message::ResumePoints;
use crate::{Channel, Frame, Kind, ProtocolError, StreamId};

/// With this many streams, those that are over are told at once.
const CROWDED: usize = MAX_STREAMS / 2;

/// Which end of the link this is; it decides which stream numbers this end opens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Opens streams 1, 3, 5, …
    Daemon,
    /// Opens streams 2, 4, 6, …
    Agent,
}

impl Role {
    /// How many streams this end may have open at once.
    fn streams(self) -> usize {
        match self {
            Self::Daemon => MAX_STREAMS,
            Self::Agent => MAX_ASKS,
        }
    }
}

/// What a reader takes from a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Inbound {
    /// A coded message.
    Message(Bytes),
    /// Bytes of a channel.
    Data(Channel, Bytes),
    /// The channel is at its end.
    Eof(Channel),
    /// The peer sends nothing more on this stream.
    Close,
    /// The peer abandoned the stream, or forgot it before a reconnect.
    Reset,
}

/// One side of a link. See the module documentation.
#[derive(Debug)]
pub struct Mux {
    role: Role,
    next: StreamId,
    /// The highest stream the peer ever opened.
    highest: StreamId,
    streams: BTreeMap<StreamId, StreamState>,
    fresh: VecDeque<StreamId>,
    /// Streams to be reset, each with what was queued before and goes first.
    resets: BTreeMap<StreamId, VecDeque<Frame>>,
    /// The stream that sent last: the one behind it sends next.
    turn: StreamId,
    /// How many streams were ever opened.
    opened: u64,
    /// Cost of all frames of the peer that changed nothing.
    strays: u64,
}

impl Mux {
    /// A link with no streams.
    pub fn new(role: Role) -> Self {
        let next = if role == Role::Daemon { 1 } else { 2 };
        Self {
            role,
            next,
            highest: 0,
            streams: BTreeMap::new(),
            fresh: VecDeque::new(),
            resets: BTreeMap::new(),
            turn: 0,
            opened: 0,
            strays: 0,
        }
    }

    /// Opens a stream towards the peer with its first message. Streams reach the peer in the order of their
    /// opening: that is how it tells a new stream from a forgotten one.
    ///
    /// # Errors
    /// [`ProtocolError::TooManyStreams`] when this side has [`MAX_STREAMS`] open ([`MAX_ASKS`] if it is the
    /// agent), or when it has opened so many in all that there is no number for another one.
    pub fn open(&mut self, first: Bytes) -> Result<StreamId, ProtocolError> {
        let open = self.streams.keys().filter(|id| self.is_mine(**id)).count();
        if open >= self.role.streams() {
            return Err(ProtocolError::TooManyStreams);
        }
        let id = self.next;
        self.next = id.checked_add(2).ok_or(ProtocolError::TooManyStreams)?;
        self.opened += 1;
        self.streams.insert(id, StreamState::default());
        self.send(id, Kind::Message, first);
        Ok(id)
    }

    /// The next stream that the peer opened.
    pub fn accept(&mut self) -> Option<StreamId> {
        self.fresh.pop_front()
    }

    /// True if a frame of `len` payload bytes and [`SLACK`] fit the stream's window now. A stream that is
    /// gone takes (and drops) everything, so that its writer goes on until it reads [`Inbound::Reset`].
    pub fn has_room(&self, id: StreamId, len: usize) -> bool {
        self.streams
            .get(&id)
            .is_none_or(|s| s.reset || s.out_cost + crate::frame::HEADER + len + SLACK <= WINDOW)
    }

    /// Queues a counted frame. Ask [`Mux::has_room`] first: the caller keeps to the window, and uses its
    /// [`SLACK`] only for what must be sent before anything else.
    pub fn send(&mut self, id: StreamId, kind: Kind, payload: Bytes) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        if stream.out_closed || stream.reset {
            return;
        }
        stream.out_closed = kind == Kind::Close;
        let frame = Frame { stream: id, kind, payload };
        stream.out_cost += frame.cost();
        stream.out.push_back(frame);
    }

    /// Abandons a stream: both directions, at once. What was queued still goes, before the reset, so that the
    /// last word of a connection that breaks is not lost; it is within the peer's window. Harmless if the
    /// stream is gone already.
    pub fn reset(&mut self, id: StreamId) {
        let Some(mut stream) = self.streams.remove(&id) else { return };
        // The peer does not know a stream of which nothing was sent: its reset would break the protocol.
        let is_unknown = self.is_mine(id) && stream.sent == 0 && stream.acked == 0;
        if !stream.reset && !is_unknown {
            self.resets.insert(id, stream.out.split_off(stream.sent));
        }
    }

    /// This side uses the stream no longer. After a [`Kind::Close`] what was sent still arrives and what
    /// still comes is dropped; without a close the stream is reset.
    pub fn finish(&mut self, id: StreamId) {
        match self.streams.get_mut(&id) {
            Some(stream) if stream.out_closed && !stream.reset => {
                stream.detached = true;
                stream.inbox.clear();
                (stream.holding, stream.withheld) = (false, 0);
                stream.consumed = stream.received;
            }
            Some(_) => self.reset(id),
            None => {}
        }
    }

    /// Takes what arrived on a stream next, and counts it as consumed. A stream that this side does not know
    /// (any more) gives [`Inbound::Reset`].
    pub fn take(&mut self, id: StreamId) -> Option<Inbound> {
        let Some(stream) = self.streams.get_mut(&id) else { return Some(Inbound::Reset) };
        let Some(frame) = stream.inbox.pop_front() else {
            return stream.reset.then_some(Inbound::Reset);
        };
        let counted = if stream.holding { &mut stream.withheld } else { &mut stream.consumed };
        *counted += frame.cost() as u64;
        Some(match frame.kind {
            Kind::Message => Inbound::Message(frame.payload),
            Kind::Data(channel) => Inbound::Data(channel, frame.payload),
            Kind::Eof(channel) => Inbound::Eof(channel),
            Kind::Close | Kind::Credit | Kind::Reset => Inbound::Close,
        })
    }

    /// True if the next [`Mux::transmit`] sends a credit for this stream.
    pub fn owes_credit(&self, id: StreamId) -> bool {
        self.streams.get(&id).is_some_and(StreamState::owes_credit)
    }

    /// From now on what is taken is not acknowledged, so that the peer keeps it and can send it again to
    /// another daemon. Call [`Mux::release`] before the window is full.
    pub fn hold(&mut self, id: StreamId) {
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.holding = true;
        }
    }

    /// Acknowledges what was taken since [`Mux::hold`], and what is taken from now on.
    pub fn release(&mut self, id: StreamId) {
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.holding = false;
            stream.consumed += std::mem::take(&mut stream.withheld);
        }
    }

    /// True if [`Mux::take`] would give something.
    pub fn is_readable(&self, id: StreamId) -> bool {
        self.streams.get(&id).is_none_or(|s| s.reset || !s.inbox.is_empty())
    }

    /// True if the peer has abandoned the stream, or this side does not know it (any more). What arrived
    /// before may not be taken yet.
    pub fn is_reset(&self, id: StreamId) -> bool {
        self.streams.get(&id).is_none_or(|s| s.reset)
    }

    /// Takes all whole frames off the front of what the carrier brought. `touched` is called with every
    /// stream that has news, once for consecutive frames.
    ///
    /// # Errors
    /// Any broken rule; the caller then has to end the link.
    pub fn on_bytes(
        &mut self,
        input: &mut BytesMut,
        mut touched: impl FnMut(StreamId),
    ) -> Result<(), ProtocolError> {
        let mut last = None;
        while let Some(frame) = Frame::decode(input)? {
            let id = frame.stream;
            self.on_frame(frame)?;
            if last != Some(id) {
                last.replace(id).into_iter().for_each(&mut touched);
            }
        }
        last.into_iter().for_each(touched);
        Ok(())
    }

    fn is_mine(&self, id: StreamId) -> bool {
        (id % 2 == 1) == (self.role == Role::Daemon)
    }

    fn on_frame(&mut self, frame: Frame) -> Result<(), ProtocolError> {
        let id = frame.stream;
        let cost = frame.cost() as u64;
        if !self.streams.contains_key(&id) {
            let never = id == 0 || if self.is_mine(id) { id >= self.next } else { id > self.highest };
            if !never {
                if frame.kind == Kind::Reset {
                    self.resets.remove(&id); // both have given it up
                }
                return self.stray(cost); // of a stream that was reset or finished
            }
            if id == 0 || self.is_mine(id) || !frame.kind.counted() {
                return Err(ProtocolError::UnknownStream(id));
            }
            if !self.opened_by_peer(id)? {
                return Ok(());
            }
        }
        let Some(stream) = self.streams.get_mut(&id) else { return Ok(()) };
        match frame.kind {
            Kind::Reset => {
                stream.abandoned();
                return self.stray(cost);
            }
            Kind::Credit => {
                let total = frame.payload.first_chunk::<8>().ok_or(ProtocolError::Malformed("credit"))?;
                let total = u64::from_le_bytes(*total);
                if total <= stream.acked {
                    return self.stray(cost);
                }
                stream.acknowledge(id, total)?;
            }
            Kind::Message | Kind::Data(_) | Kind::Eof(_) | Kind::Close => {
                let held = stream.received - stream.consumed;
                if stream.in_closed || held + cost > WINDOW as u64 {
                    return Err(ProtocolError::WindowExceeded(id));
                }
                stream.in_closed = frame.kind == Kind::Close;
                stream.received += cost;
                if stream.detached {
                    stream.consumed = stream.received;
                    return self.stray(cost);
                }
                stream.inbox.push_back(frame);
            }
        }
        Ok(())
    }

    /// The peer opens a stream; false if it is refused.
    ///
    /// The agent can open a stream while the daemon still holds one that the agent has given up: such a
    /// stream is reset, and the link goes on. A peer that keeps the rules knows of each stream whose reset
    /// waits here, so there are never more of them than streams that it may open.
    fn opened_by_peer(&mut self, id: StreamId) -> Result<bool, ProtocolError> {
        let peer = if self.role == Role::Daemon { Role::Agent } else { Role::Daemon };
        if self.resets.keys().filter(|id| !self.is_mine(**id)).count() >= peer.streams() {
            return Err(ProtocolError::TooManyStreams);
        }
        self.highest = id;
        self.opened += 1;
        if self.streams.keys().filter(|id| !self.is_mine(**id)).count() >= peer.streams() {
            self.resets.insert(id, VecDeque::new());
            return Ok(false);
        }
        self.streams.insert(id, StreamState::default());
        self.fresh.push_back(id);
        Ok(true)
    }

    /// Counts a frame that changes nothing.
    fn stray(&mut self, cost: u64) -> Result<(), ProtocolError> {
        self.strays = self.strays.saturating_add(cost);
        let most = STRAY.saturating_mul(self.opened.saturating_add(1));
        if self.strays > most { Err(ProtocolError::Stray) } else { Ok(()) }
    }

    /// True if there is something to send that the peer may wait for. Credits and closes of streams on which
    /// both sides have sent everything can wait for the next frame: on their own they would cost each side a
    /// system call, and the peer a wakeup. With many streams they do not wait: until both sides have sent
    /// them they take the room of others, and where there is no room there is no next frame.
    pub fn is_pressing(&self) -> bool {
        let is_pressing = if self.streams.len() < CROWDED {
            StreamState::is_pressing
        } else {
            |s: &StreamState| s.owes_credit() || s.sent < s.out.len() || s.is_over()
        };
        !self.resets.is_empty() || self.streams.values().any(is_pressing)
    }

    /// Writes what there is to send into `out`, stream by stream in turn, until about `budget` bytes,
    /// pressing or not. Returns whether anything was written.
    pub fn transmit(&mut self, out: &mut BytesMut, budget: usize) -> bool {
        let before = out.len();
        while out.len() - before < budget
            && let Some(mut reset) = self.resets.first_entry()
        {
            if let Some(frame) = reset.get_mut().pop_front() {
                frame.encode(out);
            } else {
                Frame { stream: *reset.key(), kind: Kind::Reset, payload: Bytes::new() }.encode(out);
                reset.remove();
            }
        }
        let mut done = Vec::new();
        for (id, stream) in &mut self.streams {
            let is_over = stream.is_over();
            if stream.owes_credit() {
                stream.reported = stream.consumed;
                let payload = Bytes::copy_from_slice(&stream.consumed.to_le_bytes());
                Frame { stream: *id, kind: Kind::Credit, payload }.encode(out);
            }
            if is_over {
                done.push(*id);
            }
        }
        for id in done {
            self.streams.remove(&id);
        }
        let after = |s: &Self, id| {
            let unheard = |(id, x): (&StreamId, &StreamState)| {
                (s.is_mine(*id) && x.acked == 0 && x.sent == 0 && !x.out.is_empty()).then_some(*id)
            };
            if let Some(first) = s.streams.iter().find_map(unheard) {
                return Some(first);
            }
            let ready = |(id, s): (&StreamId, &StreamState)| (s.sent < s.out.len()).then_some(*id);
            s.streams.range(id + 1..).find_map(ready).or_else(|| s.streams.range(..=id).find_map(ready))
        };
        while out.len() - before < budget {
            let Some(id) = after(self, self.turn) else { break };
            self.turn = id;
            let Some(stream) = self.streams.get_mut(&id) else { break };
            stream.out[stream.sent].encode(out);
            stream.sent += 1;
        }
        out.len() > before
    }

    /// How much of each stream this side has received; for the hello of a new carrier.
    pub fn resume_points(&self) -> ResumePoints {
        ResumePoints {
            highest: self.highest,
            streams: self.streams.iter().filter(|(_, s)| !s.reset).map(|(id, s)| (*id, s.received)).collect(),
        }
    }

    /// Continues on a new carrier; `peer` is what the peer has received of this side's streams.
    ///
    /// # Errors
    /// [`ProtocolError::BadCredit`] if the peer says that it received bytes that were never sent.
    pub fn resume(&mut self, peer: &ResumePoints) -> Result<(), ProtocolError> {
        let heard: BTreeMap<_, _> = peer.streams.iter().copied().collect();
        // A stream that was lost with the last carrier is unknown to the peer as well, and so is one of its
        // own that it has forgotten.
        let role = self.role;
        self.resets.retain(|id, last| {
            // What went before it may be lost.
            last.clear();
            let mine = (id % 2 == 1) == (role == Role::Daemon);
            if mine { *id <= peer.highest } else { heard.contains_key(id) }
        });
        for id in heard.keys() {
            if !self.streams.contains_key(id) && (self.is_mine(*id) || *id <= self.highest) {
                self.resets.insert(*id, VecDeque::new());
            }
        }
        for (id, stream) in &mut self.streams {
            stream.reported = 0; // the last credit may be lost: report again
            let mine = (id % 2 == 1) == (self.role == Role::Daemon);
            match heard.get(id) {
                Some(received) => stream.rewind_to(*id, *received)?,
                None if mine && *id > peer.highest => stream.sent = 0,
                // The peer has forgotten it: it ended there, or it was reset and the reset frame is lost.
                None => stream.abandoned(),
            }
        }
        Ok(())
    }

    /// What the peer had not consumed of each stream when it went for good.
    pub fn into_unheard(self) -> impl Iterator<Item = (StreamId, VecDeque<Frame>)> {
        self.streams.into_iter().map(|(id, stream)| (id, stream.out))
    }

    /// How many streams are not forgotten yet.
    pub fn open_streams(&self) -> usize {
        self.streams.len()
    }
}

#[cfg(test)]
#[path = "mux_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "mux_fuzz_tests.rs"]
mod fuzz_tests;
