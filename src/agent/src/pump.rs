//! One output stream of a run, carried from its pipe to the daemon.
//!
//! It must never hold more than one piece of the stream, nor read on while the daemon's window is full.

use std::cell::Cell;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use bytes::{Bytes, BytesMut};
use paddock_proto::OutputStream;
use paddock_proto::limits::CHUNK;
use rustix::buffer::spare_capacity;
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::sync::Notify;

use crate::outlet::Outlet;

/// Carries one output stream of a program to the daemon, up to the cap.
pub(crate) struct Pump {
    task: tokio::task::JoinHandle<()>,
    bytes: Rc<Cell<u64>>,
    ended: Rc<Notify>,
}

impl Pump {
    /// Starts to carry. When the program has written more than `cap` bytes, `over` is notified and the rest
    /// is dropped.
    pub(crate) fn start(
        fd: OwnedFd,
        stream: OutputStream,
        outlet: Rc<Outlet>,
        cap: u64,
        over: Rc<Notify>,
    ) -> Self {
        let (bytes, ended) = (Rc::new(Cell::new(0)), Rc::new(Notify::new()));
        let (count, end) = (bytes.clone(), ended.clone());
        let task = tokio::task::spawn_local(async move {
            let Ok(mut pipe) = pipe::Receiver::from_owned_fd(fd) else { return };
            let mut last = false;
            let mut buffer = BytesMut::new();
            loop {
                buffer.reserve(CHUNK);
                let n = if last {
                    // Every writer is dead: what is in the pipe is all there is. The runtime may not know of
                    // it yet.
                    let mut rest = Vec::with_capacity(CHUNK);
                    let read = || rustix::io::read(&pipe, spare_capacity(&mut rest));
                    let n = rustix::io::retry_on_intr(read).unwrap_or(0);
                    buffer.extend_from_slice(&rest);
                    n
                } else {
                    tokio::select! {
                        biased;
                        () = end.notified() => { last = true; continue; }
                        read = pipe.read_buf(&mut buffer) => read.unwrap_or(0),
                    }
                };
                if n == 0 {
                    return;
                }
                let piece = buffer.split().freeze();
                let room = usize::try_from(cap - count.get()).unwrap_or(usize::MAX);
                if piece.len() > room {
                    over.notify_one();
                }
                let piece: Bytes = piece.slice(..piece.len().min(room));
                count.set(count.get() + piece.len() as u64);
                if !piece.is_empty() {
                    outlet.output(stream, piece).await;
                }
            }
        });
        Self { task, bytes, ended }
    }

    /// Sends the rest; the number of bytes sent in all. Call this when no process of the run lives.
    pub(crate) async fn finish(self) -> u64 {
        self.ended.notify_one();
        let _ = self.task.await;
        self.bytes.get()
    }
}
