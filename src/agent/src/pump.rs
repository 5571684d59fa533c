//! What comes out of a run: its output, pumped to the daemon, and its job's reports.
//!
//! It must never hold more than one piece of a stream, nor read on while the daemon's window is full.

use std::cell::Cell;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use bytes::{Bytes, BytesMut};
use paddock_proto::Channel;
use paddock_proto::limits::CHUNK;
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::sync::Notify;

use crate::outlet::Outlet;
use crate::spawn::{REPORT, Report};

/// The job's reports, one by one.
pub(crate) struct Reports {
    pipe: Option<pipe::Receiver>,
    /// Whether the program could not be started.
    pub(crate) failed: bool,
}

impl Reports {
    pub(crate) fn new(fd: OwnedFd) -> Self {
        Self { pipe: pipe::Receiver::from_owned_fd(fd).ok(), failed: false }
    }

    /// Cancel-safe: a report is in the pipe as a whole or not at all.
    pub(crate) async fn next(&mut self) -> Option<Report> {
        let pipe = self.pipe.as_mut()?;
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
                    // Every writer is dead: what is in the pipe is all there is.
                    pipe.try_read_buf(&mut buffer).unwrap_or(0)
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
