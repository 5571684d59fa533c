//! Where a run's words go: the stream of whichever daemon there is. A run outlives its daemon; what the daemon before
//! had not acknowledged is said again to the next.
//!
//! While there is none, whoever speaks waits: a program that writes more than its pipe holds stands still until a
//! daemon comes. It must never drop a byte, nor keep more than one stream's window.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Instant;

use bytes::Bytes;
use paddock_proto::message;
use paddock_proto::{Channel, Event, Inbound, Kind};
use tokio::sync::Notify;

use crate::link::Stream;

/// One run's way out.
pub(crate) struct Outlet {
    stream: RefCell<Rc<Stream>>,
    attached: Notify,
    /// Bytes of output, whoever heard them.
    output: Cell<u64>,
    /// When the run is to be over, by whoever said so on a stream of their own.
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
            end_by: Cell::new(None),
            told_to_end: Notify::new(),
        })
    }

    /// The stream of now; it may be orphaned.
    pub(crate) fn stream(&self) -> Rc<Stream> {
        self.stream.borrow().clone()
    }

    /// Another daemon takes over. The stream comes back if there is one already.
    pub(crate) fn attach(&self, stream: Stream) -> Result<(), Stream> {
        let old = self.stream();
        if !old.is_orphaned() {
            return Err(stream);
        }
        // A collection that was under way begins again, and so does the word of the end.
        let mut unheard = old.unheard();
        unheard.retain(|frame| matches!(frame.kind, Kind::Data(Channel::Stdout | Channel::Stderr)));
        let again: u64 = unheard.iter().map(|frame| frame.payload.len() as u64).sum();
        let heard = Event::Attached { heard: self.output.get().saturating_sub(again) };
        stream.queue(Kind::Message, message::encode(&heard));
        for frame in unheard {
            stream.queue(frame.kind, frame.payload);
        }
        self.stream.replace(Rc::new(stream));
        self.attached.notify_waiters();
        Ok(())
    }

    /// Waits until another daemon has taken over from the one that `orphan` was of.
    pub(crate) async fn attached(&self, orphan: &Rc<Stream>) {
        // Single-threaded: nothing runs between the look and the wait.
        while Rc::ptr_eq(&self.stream(), orphan) {
            self.attached.notified().await;
        }
    }

    pub(crate) async fn data(&self, channel: Channel, bytes: Bytes) {
        let more = bytes.len() as u64;
        self.send(Kind::Data(channel), bytes).await;
        // Only now: what waits for a daemon is not among what the one before had not heard.
        self.output.set(self.output.get() + more);
    }

    pub(crate) async fn event(&self, event: &Event) {
        self.send(Kind::Message, message::encode(event)).await;
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

    /// What comes next on the run's stream, whichever daemon's it is.
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

    /// The run is to be over by then, or before if it was told so already.
    pub(crate) fn end_by(&self, when: Instant) {
        let sooner = self.end_by.get().is_none_or(|other| when < other);
        if sooner {
            self.end_by.set(Some(when));
            self.told_to_end.notify_one();
        }
    }

    /// When the run is to be over, each time that this is said anew.
    pub(crate) async fn told_to_end(&self) -> Instant {
        loop {
            self.told_to_end.notified().await;
            if let Some(when) = self.end_by.get() {
                return when;
            }
        }
    }
}
