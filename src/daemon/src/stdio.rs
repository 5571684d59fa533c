//! MCP on standard input and output, one message a line: connects to the running daemon of the store, or
//! becomes it.
//!
//! ```text
//!  client ─ stdin ─► relay ─ Unix socket of the store ─► the running daemon
//!         ◄ stdout ─       └ none runs: this process is the daemon, for as long as its client stays
//! ```
//!
//! So any number of clients share one pool. The relay outlives the daemon that it is connected to: it answers
//! the unfinished requests of a dead daemon with an error and sends the client's first messages again to the
//! next daemon (or to this process). A message that the dead daemon has certainly not begun
//! (`stdio/connection.rs` knows when that is certain) goes to the next daemon too; the client notices nothing
//! else. After the end of the client's input, or a signal, unfinished requests have `shutdown.drain` to be
//! answered.
//!
//! The relay must never write anything but messages to standard output, nor send a call again that may have
//! begun, nor outlive its client for longer than that.

mod connection;
mod messages;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncBufReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use self::connection::{DaemonConnection, Heard};
use self::messages::{ClientMessage, PendingRequests};
use crate::api::{CLIENT, LAST_ANSWERS, RpcRefusal, SocketKind};
use crate::app::AppError;
use crate::config::Config;
use crate::local_daemon::LocalDaemon;
use crate::metrics::Metrics;
use crate::signals::Signals;

/// How long the relay waits for a dead daemon to return before this process takes its place: it may be a
/// service that restarts, and two daemons cannot share one store.
const COMING_BACK: Duration = Duration::from_secs(5);
/// Time for a last answer to be written before the process ends.
const MARGIN: Duration = Duration::from_secs(1);
/// Messages from the client that may wait for a daemon.
const AHEAD: usize = 64;
/// Daemons that may end, one after the other, without having begun one message. The client then receives an
/// error: whatever ends these daemons may end all of them.
const MOST_ENDED: u32 = 3;

/// Serves one client until its input ends, or a signal arrives; a second signal ends it at once.
///
/// # Errors
/// No daemon could be reached, and none could be started in this process.
pub async fn serve(config: Config, metrics: Metrics) -> Result<(), AppError> {
    let max = usize::try_from(config.http.max_body).unwrap_or(usize::MAX);
    let mut relay = StdioRelay {
        name: crate::id::random_hex::<{ CLIENT / 2 }>(),
        local: LocalDaemon::new(config, metrics),
        max,
        begun: VecDeque::new(),
        pending: PendingRequests::default(),
        unsent: VecDeque::new(),
        ended: 0,
        input: input(max),
        out: tokio::io::stdout(),
    };
    let ends = StopSignals::listen()?;
    let patience = relay.local.drain() + LAST_ANSWERS + 3 * MARGIN;
    let served = tokio::select! {
        served = relay.run(&ends) => served,
        // A client that does not read must not hold the process either.
        () = async { ends.begun.cancelled().await; tokio::time::sleep(patience).await } => Ok(()),
    };
    relay.local.end(&ends.at_once).await.and(served)
}

/// When a relay stops.
struct StopSignals {
    /// The client's input has ended, or a signal arrived: no further message is read.
    begun: CancellationToken,
    /// A second signal arrived: the relay waits for nothing.
    at_once: CancellationToken,
}

impl StopSignals {
    fn listen() -> Result<Self, AppError> {
        let mut signals = Signals::new().map_err(AppError::Signals)?;
        let (begun, at_once) = (CancellationToken::new(), CancellationToken::new());
        let ends = Self { begun: begun.clone(), at_once: at_once.clone() };
        tokio::spawn(async move {
            signals.next().await;
            begun.cancel();
            signals.next().await;
            at_once.cancel();
        });
        Ok(ends)
    }
}

/// Lines of standard input as they come. The thread that reads ends with the process.
fn input(max: usize) -> mpsc::Receiver<Vec<u8>> {
    let (sender, receiver) = mpsc::channel(AHEAD);
    tokio::spawn(async move {
        let mut input = BufReader::new(tokio::io::stdin());
        loop {
            let mut line = Vec::new();
            match read_line(&mut input, &mut line, max).await {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => return warn!(%error, "cannot read standard input; no further message is read"),
            }
            if !line.trim_ascii().is_empty() && sender.send(line).await.is_err() {
                return;
            }
        }
    });
    receiver
}

/// Reads one line with its end, which is added if the last one lacks it; of a line longer than `max` one byte
/// more, and the rest is read and dropped. False at the end of the input.
async fn read_line<R: tokio::io::AsyncBufRead + Unpin>(
    input: &mut R,
    line: &mut Vec<u8>,
    max: usize,
) -> io::Result<bool> {
    loop {
        let ready = input.fill_buf().await?;
        if ready.is_empty() {
            let last = !line.is_empty();
            if last {
                line.push(b'\n');
            }
            return Ok(last);
        }
        let end = ready.iter().position(|b| *b == b'\n');
        let taken = end.map_or(ready.len(), |at| at + 1);
        let room = max.saturating_add(1).saturating_sub(line.len()).min(taken);
        line.extend_from_slice(&ready[..room]);
        input.consume(taken);
        if end.is_some() {
            if line.last() != Some(&b'\n') {
                line.push(b'\n');
            }
            return Ok(true);
        }
    }
}

struct StdioRelay<W> {
    /// The id of this client for every daemon.
    name: String,
    local: LocalDaemon,
    /// Bytes of the longest message.
    max: usize,
    /// The client's first messages, which a later daemon is sent again.
    begun: VecDeque<Bytes>,
    pending: PendingRequests,
    /// Messages that no daemon has begun, in their order. No further message is read while there are any.
    unsent: VecDeque<Bytes>,
    /// Daemons that ended, since the last message of the client, without having begun a message.
    ended: u32,
    input: mpsc::Receiver<Vec<u8>>,
    out: W,
}

/// What the daemon says; without a daemon it never returns.
async fn hear(daemon: &mut Option<DaemonConnection>) -> Heard {
    match daemon {
        Some(daemon) => daemon.hear().await,
        None => std::future::pending().await,
    }
}

impl<W: AsyncWrite + Unpin> StdioRelay<W> {
    /// Runs until the client's input ends or a signal arrives, and then until all requests are answered or
    /// their time is over.
    async fn run(&mut self, ends: &StopSignals) -> Result<(), AppError> {
        let mut daemon = tokio::select! {
            daemon = self.reach(Duration::ZERO) => Some(daemon?),
            () = ends.begun.cancelled() => return Ok(()),
        };
        // While stopping: the deadline for answers, and whether this process's daemon was told to end its
        // runs.
        let (mut until, mut cut) = (None, false);
        while until.is_none() || !self.pending.is_empty() {
            let over = tokio::time::sleep_until(until.unwrap_or_else(Instant::now));
            tokio::select! {
                () = ends.begun.cancelled(), if until.is_none() => {
                    until = Some(Instant::now() + self.local.drain());
                }
                () = ends.at_once.cancelled(), if !cut => {
                    (until, cut) = (Some(Instant::now() + LAST_ANSWERS + MARGIN), true);
                    if !self.local.hurry() {
                        break;
                    }
                }
                () = over, if until.is_some() => {
                    if cut || !self.local.hurry() {
                        break;
                    }
                    (until, cut) = (Some(Instant::now() + LAST_ANSWERS + MARGIN), true);
                }
                asked = self.input.recv(), if until.is_none() => match asked {
                    Some(asked) => match self.check(asked) {
                        Ok(asked) if self.pending.is_unasked(&asked) => {}
                        Ok(asked) => {
                            self.ended = 0;
                            self.unsent.push_back(asked.into());
                            self.send_all(&mut daemon, ends).await?;
                        }
                        Err(refusal) => {
                            let mut answer = refusal.to_json().to_string().into_bytes();
                            answer.push(b'\n');
                            self.say(&answer).await?;
                        }
                    },
                    None => ends.begun.cancel(),
                },
                heard = hear(&mut daemon) => {
                    self.take(&mut daemon, heard).await?;
                    if until.is_none() {
                        self.send_all(&mut daemon, ends).await?;
                    }
                }
            }
        }
        self.refuse_unsent("the client left before a daemon took the call").await?;
        self.give_up("the call did not finish within shutdown.drain after the client left").await
    }

    /// Sends what no daemon has begun, to this daemon or to the next. Once the relay stops, it waits for no
    /// further daemon.
    async fn send_all(
        &mut self,
        daemon: &mut Option<DaemonConnection>,
        ends: &StopSignals,
    ) -> Result<(), AppError> {
        while let Some(message) = self.unsent.front().cloned() {
            let to = match &mut *daemon {
                Some(to) => to,
                gone => gone.insert(tokio::select! {
                    again = self.reconnect() => again?,
                    () = ends.begun.cancelled() => return Ok(()),
                }),
            };
            if to.send(&message).await {
                self.unsent.pop_front();
                self.note(&message);
                continue;
            }
            // What it said before it ended is still to be heard, and its end.
            while daemon.is_some() {
                let heard = hear(daemon).await;
                self.take(daemon, heard).await?;
            }
        }
        Ok(())
    }

    /// Takes in what the daemon says.
    async fn take(&mut self, daemon: &mut Option<DaemonConnection>, heard: Heard) -> Result<(), AppError> {
        match heard {
            Heard::Message(said) => {
                if self.pending.hear(&said) {
                    self.say(&said).await?;
                }
                if let (Some(daemon), true) = (daemon, self.pending.is_empty()) {
                    daemon.forget_last();
                }
                Ok(())
            }
            Heard::Gone { unread } => {
                // The relay connects to the next daemon when there is a message for it.
                warn!("the daemon is gone");
                *daemon = None;
                self.lose(unread).await
            }
        }
    }

    /// The daemon is gone: answers its unfinished requests, but the one that it has certainly not begun.
    async fn lose(&mut self, unread: Option<Bytes>) -> Result<(), AppError> {
        let initializes = self.begun.front().is_some_and(|begun| self.pending.has_asked(begun));
        if let Some(unread) = unread.filter(|unread| self.pending.take_back(unread)) {
            self.unsent.push_front(unread);
        }
        if initializes {
            self.begun.clear(); // it is sent again, or the client receives an error and initializes again
        }
        self.give_up("the daemon stopped before it answered").await?;
        self.ended += u32::from(!self.unsent.is_empty());
        if self.ended < MOST_ENDED {
            return Ok(());
        }
        self.refuse_unsent("every daemon stopped before it took the call").await
    }

    /// Answers the requests that no daemon has begun, and drops them.
    async fn refuse_unsent(&mut self, why: &str) -> Result<(), AppError> {
        for message in std::mem::take(&mut self.unsent) {
            if let Some(answer) = messages::not_begun(&message, why) {
                self.say(&answer).await?;
            }
        }
        Ok(())
    }

    /// Answers requests that no daemon will answer.
    async fn give_up(&mut self, why: &str) -> Result<(), AppError> {
        let answers: Vec<_> = self.pending.give_up(why).collect();
        for answer in answers {
            self.say(&answer).await?;
        }
        Ok(())
    }

    /// The line to send to the daemon. Refuses messages that the SDK would answer without their id, or not at
    /// all, so that no client waits for such an answer.
    fn check(&self, line: Vec<u8>) -> Result<Vec<u8>, RpcRefusal> {
        if line.len() > self.max {
            return Err(RpcRefusal::invalid(&format!(
                "a message may have {} bytes (http.max_body)",
                self.max
            )));
        }
        let whole = crate::api::check_message(&line)?;
        if self.pending.has_asked(&line) {
            return Err(RpcRefusal::invalid("`id` is the id of another request that is not answered yet"));
        }
        let on_a_line = |mut whole: Vec<u8>| {
            whole.push(b'\n');
            whole
        };
        Ok(whole.map_or(line, on_a_line))
    }

    /// Keeps the messages that a later daemon must receive, and the ids of requests.
    fn note(&mut self, line: &Bytes) {
        match messages::read(line) {
            ClientMessage::Initialize(id) => {
                self.begun = VecDeque::from([line.clone()]);
                self.pending.ask(id);
            }
            ClientMessage::Initialized => {
                self.begun.truncate(1);
                self.begun.push_back(line.clone());
            }
            ClientMessage::Cancelled(id) => self.pending.forget(&id),
            ClientMessage::Request(id) => self.pending.ask(id),
            ClientMessage::Answer(_) | ClientMessage::Other => {}
        }
    }

    /// Connects to the next daemon, and sends it the client's first messages.
    async fn reconnect(&mut self) -> Result<DaemonConnection, AppError> {
        let mut daemon = self.reach(COMING_BACK).await?;
        for line in &self.begun {
            if messages::read(line).is_request() {
                self.pending.ask_silently(line);
            }
            // If it is gone already, the message that follows finds it out.
            let _ = daemon.send(line).await;
        }
        Ok(daemon)
    }

    async fn say(&mut self, line: &[u8]) -> Result<(), AppError> {
        self.out.write_all(line).await.map_err(AppError::Output)?;
        self.out.flush().await.map_err(AppError::Output)
    }

    /// Connects to the daemon of the store; if there is none for `leave`, this process becomes it.
    async fn reach(&mut self, leave: Duration) -> Result<DaemonConnection, AppError> {
        loop {
            let mut daemon = DaemonConnection::new(self.local.reach(SocketKind::Lines, leave).await?);
            if daemon.send(&format!("{}\n", self.name).into_bytes().into()).await {
                return Ok(daemon);
            } // the daemon just stopped
        }
    }
}
