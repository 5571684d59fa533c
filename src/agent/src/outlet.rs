//! The outlet of a run: it sends output and events to the current daemon. A run outlives its daemon; what the
//! previous daemon had not acknowledged is sent again to the next.
//!
//! While there is no daemon, senders wait: a program that writes more than its pipe holds stands still until
//! a daemon comes. It must never drop a byte, nor keep more than one stream's window.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Instant;

use bytes::Bytes;
use paddock_proto::limits::MAX_PORTS;
use paddock_proto::message;
use paddock_proto::{Event, Frame, Inbound, Kind, OutputStream};
use tokio::sync::Notify;

use crate::link::Stream;

/// Whether it is output of the program.
fn is_output(frame: &Frame) -> bool {
    matches!(frame.kind, Kind::Data(channel) if OutputStream::of(channel).is_some())
}

/// Whether it announces a port.
fn is_port(frame: &Frame) -> bool {
    frame.kind == Kind::Message && matches!(message::decode(&frame.payload), Ok(Event::Listens { .. }))
}

/// The outlet of one run.
pub(crate) struct Outlet {
    stream: RefCell<Rc<Stream>>,
    attached: Notify,
    /// Bytes of output that were sent, to all daemons together.
    output: Cell<u64>,
    /// The ports that were announced, to all daemons together.
    ports: RefCell<Vec<u16>>,
    /// When the run has to be over, as the daemon said on a stream of its own.
    end_by: Cell<Option<Instant>>,
    told_to_end: Notify,
}

impl Outlet {
    /// To the daemon that asked for the run.
    pub(crate) fn new(stream: Stream) -> Rc<Self> {
        Rc::new(Self {
            stream: RefCell::new(Rc::new(stream)),
            attached: Notify::new(),
            output: Cell::new(0),
            ports: RefCell::default(),
            end_by: Cell::new(None),
            told_to_end: Notify::new(),
        })
    }

    /// The current stream; it may be an orphan.
    pub(crate) fn stream(&self) -> Rc<Stream> {
        self.stream.borrow().clone()
    }

    /// Another daemon takes over. `Err`, with its stream, if the run's own daemon is still there.
    pub(crate) fn attach(&self, stream: Stream) -> Result<(), Stream> {
        let old = self.stream();
        if !old.is_orphaned() {
            return Err(stream);
        }
        // A collection that was under way begins again, and the end is sent again.
        let mut unheard = old.unheard();
        unheard.retain(|frame| is_output(frame) || is_port(frame));
        let again: u64 =
            unheard.iter().filter(|frame| is_output(frame)).map(|frame| frame.payload.len() as u64).sum();
        let heard = Event::Attached { heard: self.output.get().saturating_sub(again) };
        stream.queue(Kind::Message, message::encode(&heard));
        for frame in unheard {
            stream.queue(frame.kind, frame.payload);
        }
        self.stream.replace(Rc::new(stream));
        self.attached.notify_waiters();
        Ok(())
    }

    /// Waits until another daemon has taken over from the daemon of `orphan`.
    pub(crate) async fn attached(&self, orphan: &Rc<Stream>) {
        // Single-threaded: nothing runs between the look and the wait.
        while Rc::ptr_eq(&self.stream(), orphan) {
            self.attached.notified().await;
        }
    }

    pub(crate) async fn output(&self, stream: OutputStream, bytes: Bytes) {
        let more = bytes.len() as u64;
        self.send(Kind::Data(stream.channel()), bytes).await;
        // Only now: output that waits for a daemon is not among what the previous daemon had not
        // acknowledged.
        self.output.set(self.output.get() + more);
    }

    pub(crate) async fn event(&self, event: &Event) {
        self.send(Kind::Message, message::encode(event)).await;
    }

    /// Announces that the run listens on a port, unless it was announced before or [`MAX_PORTS`] were.
    pub(crate) async fn listens(&self, port: u16) {
        if self.ports() >= MAX_PORTS || self.ports.borrow().contains(&port) {
            return;
        }
        self.ports.borrow_mut().push(port);
        self.event(&Event::Listens { port }).await;
    }

    /// How many ports were announced.
    pub(crate) fn ports(&self) -> usize {
        self.ports.borrow().len()
    }

    async fn send(&self, kind: Kind, payload: Bytes) {
        loop {
            let stream = self.stream();
            if stream.send(kind, payload.clone()).await {
                return;
            }
            self.attached(&stream).await;
        }
    }

    /// What comes next on the run's stream, from whatever daemon there is.
    pub(crate) async fn inbound(&self) -> Inbound {
        loop {
            let stream = self.stream();
            let inbound = stream.recv().await;
            if inbound != Inbound::Reset || !stream.is_orphaned() {
                return inbound;
            }
            self.attached(&stream).await;
        }
    }

    /// The run has to be over by this time, or sooner if a daemon said so before.
    pub(crate) fn end_by(&self, when: Instant) {
        let sooner = self.end_by.get().is_none_or(|other| when < other);
        if sooner {
            self.end_by.set(Some(when));
            self.told_to_end.notify_one();
        }
    }

    /// Resolves each time that [`Outlet::end_by`] sets a sooner time.
    pub(crate) async fn told_to_end(&self) -> Instant {
        loop {
            self.told_to_end.notified().await;
            if let Some(when) = self.end_by.get() {
                return when;
            }
        }
    }
}
