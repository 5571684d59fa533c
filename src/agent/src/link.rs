//! The agent's end of the link: streams for its tasks, a carrier that comes and goes.
//!
//! Single-threaded (`Rc`), like all of PID 1: between a look at the mux and the wait for news nothing else
//! runs, so `notify_waiters` loses nothing. It must never hold a borrow across an await.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;

use bytes::{Bytes, BytesMut};
use paddock_proto::limits::{BATCH, MAX_ASKS, READ};
use paddock_proto::message::{self, ResumePoints};
use paddock_proto::mux::Role;
use paddock_proto::{Channel, Event, Frame, Inbound, Kind, Mux, ProtocolError, StreamId};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::Notify;

use crate::carrier::Carrier;

/// All streams of this container, over whatever carrier there is now.
pub(crate) struct Link {
    inner: RefCell<LinkState>,
    /// There is something to send.
    transmit: Notify,
    /// The daemon opened a stream.
    fresh: Notify,
    /// Carriers that serve now: one, or none.
    carriers: Cell<u32>,
}

struct LinkState {
    mux: Mux,
    /// Counts daemons: a stream of an earlier one is an orphan, and reads as reset.
    epoch: u64,
    readers: HashMap<StreamId, Rc<Notify>>,
    /// What orphans had sent and no daemon acknowledged, until the orphans are dropped.
    unheard: HashMap<(u64, StreamId), VecDeque<Frame>>,
}

/// One stream. Dropping it without a close resets it.
pub(crate) struct Stream {
    id: StreamId,
    epoch: u64,
    link: Rc<Link>,
    news: Rc<Notify>,
}

impl Link {
    pub(crate) fn new() -> Rc<Self> {
        let inner = LinkState {
            mux: Mux::new(Role::Agent),
            epoch: 0,
            readers: HashMap::new(),
            unheard: HashMap::new(),
        };
        Rc::new(Self {
            inner: RefCell::new(inner),
            transmit: Notify::new(),
            fresh: Notify::new(),
            carriers: Cell::new(0),
        })
    }

    /// Another daemon has taken over: all streams of the previous daemon are orphans.
    pub(crate) fn restart(&self) {
        let mut inner = self.inner.borrow_mut();
        let epoch = inner.epoch;
        let old = std::mem::replace(&mut inner.mux, Mux::new(Role::Agent));
        for (id, frames) in
            old.into_unheard().filter(|(id, _)| inner.readers.contains_key(id)).collect::<Vec<_>>()
        {
            inner.unheard.insert((epoch, id), frames);
        }
        inner.epoch += 1;
        for (_, news) in inner.readers.drain() {
            news.notify_waiters();
        }
    }

    pub(crate) fn resume_points(&self) -> ResumePoints {
        self.inner.borrow().mux.resume_points()
    }

    pub(crate) fn resume(&self, peer: &ResumePoints) -> Result<(), ProtocolError> {
        let mut inner = self.inner.borrow_mut();
        inner.mux.resume(peer)?;
        for news in inner.readers.values() {
            news.notify_waiters();
        }
        self.transmit.notify_one();
        Ok(())
    }

    /// The next stream that the daemon opens.
    pub(crate) async fn accept(self: &Rc<Self>) -> Stream {
        loop {
            {
                let mut inner = self.inner.borrow_mut();
                if let Some(id) = inner.mux.accept() {
                    let news = Rc::new(Notify::new());
                    inner.readers.insert(id, news.clone());
                    return Stream { id, epoch: inner.epoch, link: self.clone(), news };
                }
            }
            self.fresh.notified().await;
        }
    }

    /// Opens a stream with its first message; `None` where there is no room for another.
    pub(crate) fn open(self: &Rc<Self>, first: Bytes) -> Option<Stream> {
        let mut inner = self.inner.borrow_mut();
        // Streams that are closed but not forgotten take room too. This side's streams have even numbers.
        let own = inner.mux.resume_points().streams.iter().filter(|(id, _)| id % 2 == 0).count();
        if own >= MAX_ASKS {
            return None;
        }
        let id = inner.mux.open(first).ok()?;
        let news = Rc::new(Notify::new());
        inner.readers.insert(id, news.clone());
        self.transmit.notify_one();
        Some(Stream { id, epoch: inner.epoch, link: self.clone(), news })
    }

    /// Whether there is a way to the daemon now.
    pub(crate) fn is_carried(&self) -> bool {
        self.carriers.get() > 0
    }

    /// Moves bytes both ways until the carrier breaks.
    pub(crate) async fn carry(&self, carrier: Carrier, mut input: BytesMut) -> std::io::Result<()> {
        let Carrier { mut from, mut to, bridge } = carrier;
        let _carried = Carried::new(&self.carriers);
        let read = async {
            loop {
                self.on_bytes(&mut input)?;
                input.reserve(READ);
                if from.read_buf(&mut input).await? == 0 {
                    return Ok(());
                }
            }
        };
        let write = async {
            let mut out = BytesMut::new();
            loop {
                while self.transmit(&mut out) {
                    to.write_all_buf(&mut out).await?;
                }
                self.transmit.notified().await;
            }
        };
        tokio::select! { r = read => r, w = write => w, () = Carrier::ended(bridge) => Ok(()) }
    }

    fn transmit(&self, out: &mut BytesMut) -> bool {
        let mux = &mut self.inner.borrow_mut().mux;
        mux.is_pressing() && mux.transmit(out, BATCH)
    }

    fn on_bytes(&self, input: &mut BytesMut) -> std::io::Result<()> {
        let mut inner = self.inner.borrow_mut();
        let LinkState { mux, readers, .. } = &mut *inner;
        let broken = mux.on_bytes(input, |id| match readers.get(&id) {
            Some(news) => news.notify_waiters(),
            None => self.fresh.notify_one(),
        });
        self.transmit.notify_one(); // credits may be due
        broken.map_err(std::io::Error::other)
    }
}

/// Counts a carrier for as long as it serves.
struct Carried<'a>(&'a Cell<u32>);

impl<'a> Carried<'a> {
    fn new(carriers: &'a Cell<u32>) -> Self {
        carriers.set(carriers.get() + 1);
        Self(carriers)
    }
}

impl Drop for Carried<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

impl Stream {
    /// The next thing from the daemon.
    pub(crate) async fn recv(&self) -> Inbound {
        loop {
            {
                let mut inner = self.link.inner.borrow_mut();
                if inner.epoch != self.epoch {
                    return Inbound::Reset;
                }
                if let Some(inbound) = inner.mux.take(self.id) {
                    if inner.mux.owes_credit(self.id) {
                        self.link.transmit.notify_one();
                    }
                    return inbound;
                }
            }
            self.news.notified().await;
        }
    }

    /// The next message; `Err` has what came instead.
    pub(crate) async fn request(&self) -> Result<paddock_proto::Request, Inbound> {
        let inbound = self.recv().await;
        let Inbound::Message(bytes) = inbound else { return Err(inbound) };
        message::decode(&bytes).map_err(|_| Inbound::Reset)
    }

    pub(crate) async fn event(&self, event: &Event) {
        self.send(Kind::Message, message::encode(event)).await;
    }

    pub(crate) async fn data(&self, channel: Channel, bytes: Bytes) {
        self.send(Kind::Data(channel), bytes).await;
    }

    /// Whether another daemon has replaced its own.
    pub(crate) fn is_orphaned(&self) -> bool {
        self.link.inner.borrow().epoch != self.epoch
    }

    /// Takes what an orphan had sent and its daemon had not acknowledged.
    pub(crate) fn unheard(&self) -> VecDeque<Frame> {
        self.link.inner.borrow_mut().unheard.remove(&(self.epoch, self.id)).unwrap_or_default()
    }

    /// Queues on a new stream what an orphan had sent already, which has room for sure.
    pub(crate) fn queue(&self, kind: Kind, payload: Bytes) {
        let mut inner = self.link.inner.borrow_mut();
        if inner.epoch == self.epoch {
            inner.mux.send(self.id, kind, payload);
            self.link.transmit.notify_one();
        }
    }

    pub(crate) async fn close(&self) {
        self.send(Kind::Close, Bytes::new()).await;
    }

    /// Sends an event that may be lost, if there is a daemon and room in the window now. Whether it was sent.
    pub(crate) fn offer(&self, event: &Event) -> bool {
        let payload = message::encode(event);
        let mut inner = self.link.inner.borrow_mut();
        let has_room =
            self.link.is_carried() && inner.epoch == self.epoch && inner.mux.has_room(self.id, payload.len());
        if has_room {
            inner.mux.send(self.id, Kind::Message, payload);
            self.link.transmit.notify_one();
        }
        has_room
    }

    /// Waits for room in the window, then queues. On a stream that is reset it returns at once. False: this
    /// is an orphan, and nothing was queued.
    pub(crate) async fn send(&self, kind: Kind, payload: Bytes) -> bool {
        loop {
            {
                let mut inner = self.link.inner.borrow_mut();
                if inner.epoch != self.epoch {
                    return false;
                }
                if inner.mux.has_room(self.id, payload.len()) {
                    inner.mux.send(self.id, kind, payload);
                    self.link.transmit.notify_one();
                    return true;
                }
            }
            self.news.notified().await;
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let mut inner = self.link.inner.borrow_mut();
        if inner.epoch == self.epoch {
            inner.mux.finish(self.id);
            inner.readers.remove(&self.id);
            self.link.transmit.notify_one();
        } else {
            inner.unheard.remove(&(self.epoch, self.id));
        }
    }
}
