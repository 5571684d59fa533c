//! Many streams over one carrier that may break: windows, order, and resumption. Pure: bytes in, bytes out.
//!
//! Each stream keeps the frames that the peer has not yet consumed; their total is its window. A credit
//! releases them. After a reconnect both sides tell how far they had heard ([`ResumePoints`]) and the rest is
//! sent again, so whoever uses a stream never learns that the carrier broke.
//!
//! ```text
//!   send ─► out: [consumed by peer │ sent, unconsumed │ not yet sent] ─► transmit ─► carrier
//!             released by Credit     sent again on resume
//!   carrier ─► on_bytes ─► inbox ─► take (counts as consumed; reported by Credit)
//! ```
//!
//! It must never hold more than [`WINDOW`] bytes each way for one stream, whatever the peer does, nor listen for ever
//! to a peer that says nothing to any stream ([`STRAY`]).

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::{Bytes, BytesMut};

use crate::limits::{MAX_STREAMS, SLACK, STRAY, WINDOW};
use crate::message::ResumePoints;
use crate::{Channel, Frame, Kind, ProtocolError, StreamId};

/// A credit is worth its frame once this much was consumed.
const CREDIT_STEP: u64 = (WINDOW / 4) as u64;

/// Which end of the link this is; it decides who owns which stream numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Opens streams 1, 3, 5, …
    Daemon,
    /// Opens streams 2, 4, 6, …
    Agent,
}

/// What a stream gives its reader.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Inbound {
    /// A coded message.
    Message(Bytes),
    /// Bytes of a channel.
    Data(Channel, Bytes),
    /// The channel is at its end.
    Eof(Channel),
    /// The peer says nothing more here.
    Close,
    /// The peer abandoned the stream, or a reconnect found that it is gone.
    Reset,
}

#[derive(Debug, Default)]
struct Stream {
    out: VecDeque<Frame>,
    /// Frames of `out` already given to the carrier.
    sent: usize,
    /// Cost of all frames in `out`.
    out_cost: usize,
    /// Cost of everything the peer consumed.
    acked: u64,
    out_closed: bool,
    inbox: VecDeque<Frame>,
    received: u64,
    consumed: u64,
    /// Cost of what was taken and is not to be acknowledged yet.
    withheld: u64,
    holding: bool,
    reported: u64,
    in_closed: bool,
    reset: bool,
    /// Nobody reads it any more; it lives until both sides have closed.
    detached: bool,
}

/// One side of a link. See the module documentation.
#[derive(Debug)]
pub struct Mux {
    role: Role,
    next: StreamId,
    /// The highest stream the peer ever opened.
    highest: StreamId,
    streams: BTreeMap<StreamId, Stream>,
    fresh: VecDeque<StreamId>,
    resets: BTreeSet<StreamId>,
    /// The stream that sent last: the next one has its turn.
    turn: StreamId,
    /// How many streams there ever were.
    opened: u64,
    /// Cost of all that the peer sent and that changed nothing.
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
            resets: BTreeSet::new(),
            turn: 0,
            opened: 0,
            strays: 0,
        }
    }

    /// Opens a stream towards the peer with its first message; streams reach the peer in the order of their
    /// opening, which is how it tells a new one from a forgotten one.
    ///
    /// # Errors
    /// [`ProtocolError::TooManyStreams`] when [`MAX_STREAMS`] are open.
    pub fn open(&mut self, first: Bytes) -> Result<StreamId, ProtocolError> {
        if self.streams.len() >= MAX_STREAMS {
            return Err(ProtocolError::TooManyStreams);
        }
        let id = self.next;
        self.next += 2;
        self.opened += 1;
        self.streams.insert(id, Stream::default());
        self.send(id, Kind::Message, first);
        Ok(id)
    }

    /// The next stream that the peer opened.
    pub fn accept(&mut self) -> Option<StreamId> {
        self.fresh.pop_front()
    }

    /// True if a frame of `len` payload bytes fits the stream's window now, and [`SLACK`] beside it. A stream that is gone takes
    /// (and drops) everything, so that its writer comes to the reader's [`Inbound::Reset`].
    pub fn has_room(&self, id: StreamId, len: usize) -> bool {
        self.streams
            .get(&id)
            .is_none_or(|s| s.reset || s.out_cost + crate::frame::HEADER + len + SLACK <= WINDOW)
    }

    /// Queues a counted frame. Ask [`Mux::has_room`] first; the window is the caller's promise, and its
    /// [`SLACK`] for what must be said before anything else.
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

    /// Abandons a stream: both directions, at once. Harmless if it is gone already.
    pub fn reset(&mut self, id: StreamId) {
        if let Some(stream) = self.streams.remove(&id)
            && !stream.reset
        {
            self.resets.insert(id);
        }
    }

    /// Ends this side's interest. After a [`Kind::Close`] what was sent still arrives and what still comes is
    /// dropped; without one the stream is reset.
    pub fn finish(&mut self, id: StreamId) {
        match self.streams.get_mut(&id) {
            Some(stream) if stream.out_closed && !stream.reset => {
                stream.detached = true;
                stream.inbox.clear();
                stream.consumed = stream.received;
            }
            Some(_) => self.reset(id),
            None => {}
        }
    }

    /// The next thing that arrived on a stream; taking it counts as consuming it. A stream that this side
    /// does not know (any more) answers [`Inbound::Reset`].
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

    /// True if the next [`Mux::transmit`] has a credit for this stream: its consumption is worth telling.
    pub fn owes_credit(&self, id: StreamId) -> bool {
        self.streams.get(&id).is_some_and(Stream::owes_credit)
    }

    /// From now on what is taken is not acknowledged, so that the peer keeps it to say it again to another: until
    /// [`Mux::release`], to be called before a window is full.
    pub fn hold(&mut self, id: StreamId) {
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.holding = true;
        }
    }

    /// Acknowledges what was taken meanwhile, and all that comes.
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

    /// Takes whole frames off the front of what the carrier brought; the beginning of one stays. `touched` hears
    /// of every stream that has news, once for frames in a row.
    ///
    /// # Errors
    /// Any broken rule; the link is then to be torn down.
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
                return self.stray(cost); // of a stream that was reset or finished
            }
            if id == 0 || self.is_mine(id) || !frame.kind.counted() {
                return Err(ProtocolError::UnknownStream(id));
            }
            if self.streams.len() >= MAX_STREAMS {
                return Err(ProtocolError::TooManyStreams);
            }
            self.highest = id;
            self.opened += 1;
            self.streams.insert(id, Stream::default());
            self.fresh.push_back(id);
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

    /// A frame that changes nothing came.
    fn stray(&mut self, cost: u64) -> Result<(), ProtocolError> {
        self.strays = self.strays.saturating_add(cost);
        let most = STRAY.saturating_mul(self.opened.saturating_add(1));
        if self.strays > most { Err(ProtocolError::Stray) } else { Ok(()) }
    }

    /// True if something is to be sent that the peer may wait for. What is left of streams on which both sides have said
    /// all can go with what comes next: on its own it would cost either side a system call, and the peer a wakeup.
    pub fn is_pressing(&self) -> bool {
        !self.resets.is_empty() || self.streams.values().any(Stream::is_pressing)
    }

    /// Writes what is to be sent into `out`, stream by stream in turn, until about `budget` bytes, whether it is pressing
    /// or not. Returns whether anything was written.
    pub fn transmit(&mut self, out: &mut BytesMut, budget: usize) -> bool {
        let before = out.len();
        while let Some(id) = self.resets.pop_first() {
            Frame { stream: id, kind: Kind::Reset, payload: Bytes::new() }.encode(out);
        }
        let mut done = Vec::new();
        for (id, stream) in &mut self.streams {
            let ended = stream.ended();
            if stream.owes_credit() {
                stream.reported = stream.consumed;
                let payload = Bytes::copy_from_slice(&stream.consumed.to_le_bytes());
                Frame { stream: *id, kind: Kind::Credit, payload }.encode(out);
            }
            if (ended && stream.out_closed && stream.out.is_empty()) || (stream.detached && stream.reset) {
                done.push(*id);
            }
        }
        for id in done {
            self.streams.remove(&id);
        }
        let after = |s: &Self, id| {
            let unheard = |(id, x): (&StreamId, &Stream)| {
                (s.is_mine(*id) && x.acked == 0 && x.sent == 0 && !x.out.is_empty()).then_some(*id)
            };
            if let Some(first) = s.streams.iter().find_map(unheard) {
                return Some(first);
            }
            let ready = |(id, s): (&StreamId, &Stream)| (s.sent < s.out.len()).then_some(*id);
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

    /// How far this side has heard the peer; for the hello of a new carrier.
    pub fn resume_points(&self) -> ResumePoints {
        ResumePoints {
            highest: self.highest,
            streams: self.streams.iter().filter(|(_, s)| !s.reset).map(|(id, s)| (*id, s.received)).collect(),
        }
    }

    /// Starts over on a new carrier: `peer` says how far it had heard this side.
    ///
    /// # Errors
    /// [`ProtocolError::BadCredit`] if the peer claims bytes that were never sent.
    pub fn resume(&mut self, peer: &ResumePoints) -> Result<(), ProtocolError> {
        let heard: BTreeMap<_, _> = peer.streams.iter().copied().collect();
        for id in heard.keys() {
            if !self.streams.contains_key(id) && (self.is_mine(*id) || *id <= self.highest) {
                self.resets.insert(*id);
            }
        }
        for (id, stream) in &mut self.streams {
            stream.reported = 0; // the last credit may be lost: report again
            let mine = (id % 2 == 1) == (self.role == Role::Daemon);
            match heard.get(id) {
                Some(received) => stream.rewind_to(*id, *received)?,
                None if mine && *id > peer.highest => stream.sent = 0,
                // The peer has forgotten it: it ended there, or was reset and the reset is lost.
                None => stream.abandoned(),
            }
        }
        Ok(())
    }

    /// What the peer had not consumed of each stream when it went for good, in its order.
    pub fn into_unheard(self) -> impl Iterator<Item = (StreamId, VecDeque<Frame>)> {
        self.streams.into_iter().map(|(id, stream)| (id, stream.out))
    }

    /// Streams not yet forgotten.
    pub fn open_streams(&self) -> usize {
        self.streams.len()
    }
}

impl Stream {
    /// All that the peer had to say was taken.
    fn ended(&self) -> bool {
        self.in_closed && self.inbox.is_empty()
    }

    fn is_pressing(&self) -> bool {
        let unsent = self.out.range(self.sent..);
        let is_over = self.detached && self.ended() && unsent.clone().all(|frame| frame.kind == Kind::Close);
        !is_over && (self.owes_credit() || unsent.len() > 0)
    }

    fn owes_credit(&self) -> bool {
        let fresh = self.consumed - self.reported;
        !self.reset && fresh > 0 && (fresh >= CREDIT_STEP || self.ended())
    }

    /// The peer is done with it. If it had said all it had to say, nothing is amiss.
    fn abandoned(&mut self) {
        self.reset = !self.in_closed;
        self.out.clear();
        self.out_cost = 0;
        self.sent = 0;
        if self.in_closed {
            self.out_closed = true;
        }
    }

    /// The peer consumed `total` bytes since the beginning: those frames are done with.
    fn acknowledge(&mut self, id: StreamId, total: u64) -> Result<(), ProtocolError> {
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

    /// The peer received `total` bytes: what lies behind that is to be sent again.
    fn rewind_to(&mut self, id: StreamId, total: u64) -> Result<(), ProtocolError> {
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

#[cfg(test)]
#[path = "mux_tests.rs"]
mod tests;
