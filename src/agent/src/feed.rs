//! What comes for a program while it runs, into the pipe that it reads.
//!
//! It must never hold more than [`AHEAD`] bytes, nor wait for a program that does not read.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use bytes::Bytes;
use tokio::io::AsyncWriteExt;
use tokio::net::unix::pipe;
use tokio::sync::Notify;
use tokio::task::{JoinHandle, spawn_local};

/// Bytes that wait here beside those in the pipe; what comes beyond waits on the link.
const AHEAD: usize = 64 * 1024;

/// A program's open standard input.
pub(crate) struct Feed {
    shared: Rc<Shared>,
    task: JoinHandle<()>,
}

#[derive(Default)]
struct Shared {
    waiting: RefCell<VecDeque<Bytes>>,
    bytes: Cell<usize>,
    ended: Cell<bool>,
    news: Notify,
    room: Notify,
}

impl Feed {
    /// Into the writing end of a pipe.
    pub(crate) fn start(pipe: OwnedFd) -> Self {
        let shared = Rc::new(Shared::default());
        let task = spawn_local(carry(shared.clone(), pipe));
        Self { shared, task }
    }

    /// Whether it takes more.
    pub(crate) fn has_room(&self) -> bool {
        self.shared.bytes.get() < AHEAD
    }

    /// Resolves when it takes more than it did.
    pub(crate) async fn room(&self) {
        self.shared.room.notified().await;
    }

    pub(crate) fn give(&self, bytes: Bytes) {
        self.shared.bytes.set(self.shared.bytes.get() + bytes.len());
        self.shared.waiting.borrow_mut().push_back(bytes);
        self.shared.news.notify_one();
    }

    /// Nothing comes any more: the program reads the rest, and then its end.
    pub(crate) fn end(&self) {
        self.shared.ended.set(true);
        self.shared.news.notify_one();
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn carry(shared: Rc<Shared>, pipe: OwnedFd) {
    let Ok(mut pipe) = pipe::Sender::from_owned_fd(pipe) else { return };
    let mut closed = false;
    loop {
        let next = shared.waiting.borrow_mut().pop_front();
        match next {
            Some(bytes) => {
                // A program that closed its input wants none of it.
                closed = closed || pipe.write_all(&bytes).await.is_err();
                shared.bytes.set(shared.bytes.get() - bytes.len());
                shared.room.notify_one();
            }
            None if shared.ended.get() => return,
            None => shared.news.notified().await,
        }
    }
}
