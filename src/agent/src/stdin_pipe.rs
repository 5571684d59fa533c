//! The pipe of a program whose standard input comes while it runs.
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
pub(crate) struct StdinPipe {
    backlog: Rc<Backlog>,
    task: JoinHandle<()>,
}

/// What is still to be written.
#[derive(Default)]
struct Backlog {
    pieces: RefCell<VecDeque<Bytes>>,
    bytes: Cell<usize>,
    ended: Cell<bool>,
    added: Notify,
    written: Notify,
}

impl StdinPipe {
    /// Writes into this end of a pipe from now on.
    pub(crate) fn start(pipe: OwnedFd) -> Self {
        let backlog = Rc::new(Backlog::default());
        let task = spawn_local(write_all(backlog.clone(), pipe));
        Self { backlog, task }
    }

    /// Whether it takes more.
    pub(crate) fn has_room(&self) -> bool {
        self.backlog.bytes.get() < AHEAD
    }

    /// Resolves when a piece was written.
    pub(crate) async fn written(&self) {
        self.backlog.written.notified().await;
    }

    /// Queues a piece. Ask [`StdinPipe::has_room`] first.
    pub(crate) fn push(&self, bytes: Bytes) {
        self.backlog.bytes.set(self.backlog.bytes.get() + bytes.len());
        self.backlog.pieces.borrow_mut().push_back(bytes);
        self.backlog.added.notify_one();
    }

    /// Nothing comes any more: the program reads the rest, and then the end of file.
    pub(crate) fn end(&self) {
        self.backlog.ended.set(true);
        self.backlog.added.notify_one();
    }
}

impl Drop for StdinPipe {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn write_all(backlog: Rc<Backlog>, pipe: OwnedFd) {
    let Ok(mut pipe) = pipe::Sender::from_owned_fd(pipe) else { return };
    let mut closed = false;
    loop {
        let next = backlog.pieces.borrow_mut().pop_front();
        match next {
            Some(bytes) => {
                // A program that closed its input wants none of it.
                closed = closed || pipe.write_all(&bytes).await.is_err();
                backlog.bytes.set(backlog.bytes.get() - bytes.len());
                backlog.written.notify_one();
            }
            None if backlog.ended.get() => return,
            None => backlog.added.notified().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;
    use tokio::task::LocalSet;

    use super::*;

    fn local(act: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        LocalSet::new().block_on(&runtime, act);
    }

    #[test]
    fn all_that_was_pushed_is_read_and_then_the_end() {
        local(async {
            let (reading, writing) = rustix::pipe::pipe().expect("a pipe");
            let stdin = StdinPipe::start(writing);
            let more = Bytes::from(vec![b'x'; 3 * AHEAD]); // more than the kernel's pipe takes
            stdin.push(Bytes::from_static(b"one "));
            stdin.push(more.clone());
            assert!(!stdin.has_room(), "what comes beyond waits on the link");
            stdin.end();
            let mut read = Vec::new();
            let mut pipe = pipe::Receiver::from_owned_fd(reading).expect("a pipe");
            pipe.read_to_end(&mut read).await.expect("it can be read");
            assert_eq!(read.len(), 4 + more.len());
            assert!(read.starts_with(b"one x") && stdin.has_room());
        });
    }

    #[test]
    fn a_program_that_closed_its_input_holds_nothing_up() {
        local(async {
            let (reading, writing) = rustix::pipe::pipe().expect("a pipe");
            let stdin = StdinPipe::start(writing);
            drop(reading);
            for _ in 0..4 {
                stdin.push(Bytes::from(vec![0; AHEAD]));
                while !stdin.has_room() {
                    stdin.written().await;
                }
            }
        });
    }
}
