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
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::AsyncWriteExt;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::time::Instant;

use super::dial::Upstream;
use super::hello_retry::HelloRetry;
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

/// The rest of a TLS handshake whose first hello was judged, between the two directions. Once nothing is left
/// to judge, each piece costs one look at a flag.
pub(super) struct Handshake {
    retry: Mutex<HelloRetry>,
    is_answered: AtomicBool,
    is_over: AtomicBool,
}

impl Handshake {
    pub(super) fn new(retry: HelloRetry) -> Self {
        Self {
            retry: Mutex::new(retry),
            is_answered: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
        }
    }

    fn lock(&self) -> MutexGuard<'_, HelloRetry> {
        // No code that can panic runs under this lock, so even a poisoned one holds valid data.
        self.retry.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What of it may go out now.
    pub(super) fn goes_out(&self, bytes: Bytes) -> Result<Bytes, BlockReason> {
        if self.is_over.load(Relaxed) {
            return Ok(bytes);
        }
        let mut retry = self.lock();
        let passed = retry.client_sent(bytes)?;
        self.is_over.store(retry.is_over(), Relaxed);
        Ok(passed)
    }

    fn ended(&self) -> Result<Bytes, BlockReason> {
        self.lock().client_ended()
    }

    fn comes_in(&self, bytes: &[u8]) {
        if !self.is_answered.load(Relaxed) {
            let mut retry = self.lock();
            retry.server_sent(bytes);
            self.is_answered.store(retry.is_answered(), Relaxed);
        }
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

/// Carries the connection to its end. With a handshake, what it has to judge is judged.
///
/// # Errors
/// Why it was cut short. The caller then drops both sides, which resets them.
pub(super) async fn relay(
    program: &AskStream,
    upstream: &mut Upstream,
    account: &Account<'_>,
    handshake: Option<&Handshake>,
    idle: Duration,
) -> Result<(), Cut> {
    let (from, to) = upstream.socket.split();
    let up = async {
        match up(program, to, account, handshake).await {
            // What the other side has said before it broke off is still to be read.
            Err(Cut::Upstream(error)) => Ok(Some(error)),
            ended => ended.map(|()| None),
        }
    };
    let both = async {
        let (broken, ()) = tokio::try_join!(up, down(program, from, account, handshake))?;
        broken.map_or(Ok(()), |error| Err(Cut::Upstream(error)))
    };
    tokio::select! {
        ended = both => ended?,
        why = program.abandoned() => return Err(why.into()),
        () = account.idle(idle) => return Err(Cut::Idle),
    }
    program.close().await?;
    upstream.finish();
    Ok(())
}

/// From the program to the other side.
async fn up(
    program: &AskStream,
    mut to: WriteHalf<'_>,
    account: &Account<'_>,
    handshake: Option<&Handshake>,
) -> Result<(), Cut> {
    loop {
        match program.read().await? {
            NetInput::Data(bytes) => {
                let bytes = match handshake {
                    Some(handshake) => handshake.goes_out(bytes)?,
                    None => bytes,
                };
                account.goes_out(bytes.len())?;
                to.write_all(&bytes).await?;
                account.touch();
            }
            NetInput::Eof => {
                if let Some(handshake) = handshake {
                    let held = handshake.ended()?;
                    account.goes_out(held.len())?;
                    to.write_all(&held).await?;
                }
                return Ok(to.shutdown().await?);
            }
            // An agent ends each half before it closes.
            NetInput::End => return Err(Cut::Program(LinkError::Reset)),
        }
    }
}

/// From the other side to the program.
async fn down(
    program: &AskStream,
    from: ReadHalf<'_>,
    account: &Account<'_>,
    handshake: Option<&Handshake>,
) -> Result<(), Cut> {
    let mut buffer = BytesMut::new();
    while let Some(bytes) = read(&from, &mut buffer).await? {
        if let Some(handshake) = handshake {
            handshake.comes_in(&bytes);
        }
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
