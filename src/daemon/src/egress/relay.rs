//! Moves the bytes of one connection between a program and the other side, until both halves are at their
//! end.
//!
//! ```text
//!  AskStream ─ read ─► write_all ─► the other side ─► shutdown when the program ends its half
//!            ◄ write ─ read ◄─────                  └ eof      when the other side ends its own
//! ```
//!
//! It must never hold more than one read of each direction beside the windows, and pass on no byte that the
//! run has not paid for. Whatever cuts a connection short is a reset on both sides: the caller drops both.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::AsyncWriteExt;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::time::Instant;

use super::dial::Upstream;
use super::ledger::Traffic;
use super::policy::BlockReason;
use super::run::Run;
use crate::link::{AskStream, LinkError, NetInput};
use crate::metrics::Metrics;

/// The size of the buffers that are read into.
const READ: usize = 64 * 1024;

/// A new buffer is taken when less than this is left of one. Small pieces share a buffer: while the program
/// does not read them they keep at most twice their own size.
const LEAST_READ: usize = READ / 2;

/// Why a connection was cut short.
#[derive(Debug, thiserror::Error)]
pub(super) enum Cut {
    /// It was reset in the container, or the link is lost.
    #[error("the program's side: {0}")]
    Program(#[from] LinkError),
    /// The other side reset it.
    #[error("the other side: {0}")]
    Upstream(#[from] io::Error),
    /// Nothing moved for so long.
    #[error("nothing moved on it")]
    Idle,
    /// The run may not go on.
    #[error("it was blocked: {0}")]
    Blocked(#[from] BlockReason),
}

/// Whom the bytes of a connection are counted for.
pub(super) struct Account<'a> {
    pub(super) run: &'a Run,
    pub(super) traffic: &'a Traffic,
    pub(super) metrics: &'a Metrics,
    clock: Clock,
}

impl<'a> Account<'a> {
    pub(super) fn new(run: &'a Run, traffic: &'a Traffic, metrics: &'a Metrics) -> Self {
        Self { run, traffic, metrics, clock: Clock::new() }
    }

    pub(super) fn comes_in(&self, bytes: usize) -> Result<(), BlockReason> {
        let bytes = bytes as u64;
        self.run.spend(bytes)?;
        self.run.came_in(self.traffic, bytes);
        self.metrics.egress_came_in(bytes);
        self.clock.touch();
        Ok(())
    }

    pub(super) fn goes_out(&self, bytes: usize) -> Result<(), BlockReason> {
        let bytes = bytes as u64;
        self.run.spend(bytes)?;
        self.run.went_out(self.traffic, bytes);
        self.metrics.egress_went_out(bytes);
        self.clock.touch();
        Ok(())
    }

    /// Something has moved.
    pub(super) fn touch(&self) {
        self.clock.touch();
    }

    /// Resolves when nothing has moved for so long.
    pub(super) async fn idle(&self, limit: Duration) {
        self.clock.idle(limit).await;
    }
}

/// Knows when something last moved.
struct Clock {
    begun: Instant,
    /// Milliseconds after that.
    last: AtomicU64,
}

impl Clock {
    fn new() -> Self {
        Self { begun: Instant::now(), last: AtomicU64::new(0) }
    }

    fn touch(&self) {
        self.last.store(u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX), Relaxed);
    }

    async fn idle(&self, limit: Duration) {
        loop {
            let last = self.last.load(Relaxed);
            tokio::time::sleep_until(self.begun + Duration::from_millis(last) + limit).await;
            if self.last.load(Relaxed) == last {
                return;
            }
        }
    }
}

/// Carries the connection to its end.
///
/// # Errors
/// Why it was cut short. The caller then drops both sides, which resets them.
pub(super) async fn relay(
    program: &AskStream,
    upstream: &mut Upstream,
    account: &Account<'_>,
    idle: Duration,
) -> Result<(), Cut> {
    let (from, to) = upstream.socket.split();
    let both = async { tokio::try_join!(up(program, to, account), down(program, from, account)) };
    tokio::select! {
        ended = both => { ended?; }
        why = program.abandoned() => return Err(why.into()),
        () = account.idle(idle) => return Err(Cut::Idle),
    }
    program.close().await?;
    upstream.finish();
    Ok(())
}

/// From the program to the other side.
async fn up(program: &AskStream, mut to: WriteHalf<'_>, account: &Account<'_>) -> Result<(), Cut> {
    loop {
        match program.read().await? {
            NetInput::Data(bytes) => {
                account.goes_out(bytes.len())?;
                to.write_all(&bytes).await?;
                account.touch();
            }
            NetInput::Eof => return Ok(to.shutdown().await?),
            // An agent ends each half before it closes.
            NetInput::End => return Err(Cut::Program(LinkError::Reset)),
        }
    }
}

/// From the other side to the program.
async fn down(program: &AskStream, from: ReadHalf<'_>, account: &Account<'_>) -> Result<(), Cut> {
    let mut buffer = BytesMut::new();
    while let Some(bytes) = read(&from, &mut buffer).await? {
        account.comes_in(bytes.len())?;
        program.write(bytes).await?;
        account.touch();
    }
    Ok(program.eof().await?)
}

/// The next bytes of the other side; `None` at their end. It takes no buffer before there is something to
/// read.
async fn read(from: &ReadHalf<'_>, buffer: &mut BytesMut) -> io::Result<Option<Bytes>> {
    loop {
        from.readable().await?;
        if buffer.capacity() < LEAST_READ {
            buffer.reserve(READ);
        }
        match from.try_read_buf(buffer) {
            Ok(0) => return Ok(None),
            Ok(_) => return Ok(Some(buffer.split().freeze())),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
}
