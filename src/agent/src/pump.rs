//! What comes out of a run: its output, pumped to the daemon, and what is told of it.
//!
//! It must never hold more than one piece of a stream, nor read on while the daemon's window is full.

use std::cell::Cell;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use bytes::{Bytes, BytesMut};
use paddock_proto::Channel;
use paddock_proto::limits::CHUNK;
use rustix::buffer::spare_capacity;
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::sync::{Notify, mpsc};

use crate::outlet::Outlet;
use crate::spawn::{REPORT, Report};

/// What is told of a program, one by one.
pub(crate) struct Reports {
    from: From,
    /// Told again: whoever read it before was not the one that wants to know.
    first: Option<Report>,
    /// Whether the program could not be started.
    pub(crate) failed: bool,
}

/// Who tells.
enum From {
    /// Its job, over its status pipe.
    Job(Option<pipe::Receiver>),
    /// The warm part that forked it.
    Part(mpsc::UnboundedReceiver<Report>),
}

impl Reports {
    /// Of a job, by its status pipe.
    pub(crate) fn of_job(fd: OwnedFd) -> Self {
        Self { from: From::Job(pipe::Receiver::from_owned_fd(fd).ok()), first: None, failed: false }
    }

    /// Of a run that a warm part forked.
    pub(crate) fn of_part(told: mpsc::UnboundedReceiver<Report>) -> Self {
        Self { from: From::Part(told), first: None, failed: false }
    }

    /// Of a program that started before it had its run: `main` has one from now on.
    pub(crate) fn begun(self, main: i32) -> Self {
        Self { first: Some(Report::Started(main)), ..self }
    }

    /// Cancel-safe: a report is in the pipe as a whole or not at all.
    pub(crate) async fn next(&mut self) -> Option<Report> {
        if let Some(first) = self.first.take() {
            return Some(first);
        }
        let pipe = match &mut self.from {
            From::Job(pipe) => pipe.as_mut()?,
            From::Part(told) => return told.recv().await,
        };
        loop {
            pipe.readable().await.ok()?;
            let mut bytes = [0; REPORT];
            match pipe.try_read(&mut bytes) {
                Ok(REPORT) => {
                    let report = Report::from_bytes(&bytes);
                    self.failed |= matches!(report, Some(Report::Failed(_)));
                    return report;
                }
                Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {}
                Ok(_) | Err(_) => return None,
            }
        }
    }
}

/// Carries one output stream of the program to the daemon, up to the cap.
pub(crate) struct Pump {
    task: tokio::task::JoinHandle<()>,
    bytes: Rc<Cell<u64>>,
    ended: Rc<Notify>,
}

impl Pump {
    pub(crate) fn start(
        fd: OwnedFd,
        channel: Channel,
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
                    // Every writer is dead: what is in the pipe is all there is. The runtime need not have heard of it.
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
                    outlet.data(channel, piece).await;
                }
            }
        });
        Self { task, bytes, ended }
    }

    /// To be called when no process of the run lives: sends the rest and gives the count.
    pub(crate) async fn finish(self) -> u64 {
        self.ended.notify_one();
        let _ = self.task.await;
        self.bytes.get()
    }
}
