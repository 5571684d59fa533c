//! MCP on standard input and output: a line for each message, in front of whichever daemon has the store.
//!
//! ```text
//!  client ─ stdin ─► front ─ Unix socket of the store ─► the daemon that lives
//!         ◄ stdout ─       └ nobody there: this process is the daemon, for as long as its client stays
//! ```
//!
//! So any number of clients share one pool. The front outlives its daemon: what was asked of a dead one is answered
//! with an error, the next daemon (or this process) hears the client's beginning again, and the client notices nothing
//! else. At the end of its input, or at a signal, what was asked until then has `shutdown.drain` to be answered.
//!
//! It must never write anything but messages to standard output, nor send a call twice, nor outlive its client for
//! longer than that.

mod messages;

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use self::messages::{Inbound, Pending};
use crate::api::{CLIENT, Door, LAST_ANSWERS, Refusal};
use crate::app::AppError;
use crate::config::Config;
use crate::metrics::Metrics;
use crate::nearby::Nearby;
use crate::signals::Signals;

/// How long one that is gone may take to come back, before this process takes its place: it may be a service that is
/// started again, and two cannot have one store.
const COMING_BACK: Duration = Duration::from_secs(5);
/// For an answer to get through before the process ends for want of it.
const MARGIN: Duration = Duration::from_secs(1);
/// Messages from the client that wait for a daemon.
const AHEAD: usize = 64;

/// Serves one client until its input ends, or a signal; a second signal ends it at once.
///
/// # Errors
/// No daemon could be reached, and none could be started here.
pub async fn serve(config: Config, metrics: Metrics) -> Result<(), AppError> {
    let max = usize::try_from(config.http.max_body).unwrap_or(usize::MAX);
    let mut front = Front {
        name: crate::id::random_hex::<{ CLIENT / 2 }>(),
        nearby: Nearby::new(config, metrics),
        max,
        begun: VecDeque::new(),
        pending: Pending::default(),
        input: input(max),
        out: tokio::io::stdout(),
    };
    let ends = Ends::listen()?;
    let patience = front.nearby.drain() + LAST_ANSWERS + 3 * MARGIN;
    let served = tokio::select! {
        served = front.run(&ends) => served,
        // A client that does not read must not hold the process either.
        () = async { ends.begun.cancelled().await; tokio::time::sleep(patience).await } => Ok(()),
    };
    front.nearby.end(&ends.at_once).await.and(served)
}

/// When a front is to end.
struct Ends {
    /// The client's input has ended, or there was a signal: nothing more is taken.
    begun: CancellationToken,
    /// There was a second signal: nothing is waited for.
    at_once: CancellationToken,
}

impl Ends {
    fn listen() -> Result<Self, AppError> {
        let mut signals =
            Signals::new().map_err(|e| AppError::Failed(format!("signals cannot be heard: {e}")))?;
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
                Err(error) => return warn!(%error, "standard input cannot be read any more"),
            }
            if !line.trim_ascii().is_empty() && sender.send(line).await.is_err() {
                return;
            }
        }
    });
    receiver
}

/// One line with its end, which the last may lack; of a longer one than `max` more than that, and the rest is read and
/// dropped. False at the end.
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

struct Front {
    /// What this client is called, to every daemon.
    name: String,
    nearby: Nearby,
    /// Bytes of the longest message.
    max: usize,
    /// How the client began: said again to a daemon that comes after another.
    begun: VecDeque<Vec<u8>>,
    pending: Pending,
    input: mpsc::Receiver<Vec<u8>>,
    out: tokio::io::Stdout,
}

/// A connection to a daemon.
struct Daemon {
    from: BufReader<OwnedReadHalf>,
    to: OwnedWriteHalf,
}

/// A whole line from the daemon, into `line`; false if it is gone. Without a daemon it never comes.
async fn heard(daemon: &mut Option<Daemon>, line: &mut Vec<u8>) -> bool {
    match daemon {
        Some(daemon) => {
            daemon.from.read_until(b'\n', line).await.is_ok_and(|n| n > 0) && line.ends_with(b"\n")
        }
        None => std::future::pending().await,
    }
}

impl Front {
    /// Until the client's input ends, or a signal, and all that it asked until then is answered, or its time is over.
    async fn run(&mut self, ends: &Ends) -> Result<(), AppError> {
        let mut daemon = tokio::select! {
            daemon = self.reach(Duration::ZERO) => Some(daemon?),
            () = ends.begun.cancelled() => return Ok(()),
        };
        let mut line = Vec::new();
        // Once it ends: until when answers are waited for, and whether this process's daemon was told to cut what runs.
        let (mut until, mut cut) = (None, false);
        while until.is_none() || !self.pending.is_empty() {
            let over = tokio::time::sleep_until(until.unwrap_or_else(Instant::now));
            tokio::select! {
                () = ends.begun.cancelled(), if until.is_none() => until = Some(Instant::now() + self.nearby.drain()),
                () = ends.at_once.cancelled(), if !cut => {
                    (until, cut) = (Some(Instant::now() + LAST_ANSWERS + MARGIN), true);
                    if !self.nearby.hurry() {
                        break;
                    }
                }
                () = over, if until.is_some() => {
                    if cut || !self.nearby.hurry() {
                        break;
                    }
                    (until, cut) = (Some(Instant::now() + LAST_ANSWERS + MARGIN), true);
                }
                asked = self.input.recv(), if until.is_none() => match asked {
                    Some(asked) => {
                        if let Err(refusal) = self.check(&asked) {
                            let mut answer = refusal.to_json().to_string().into_bytes();
                            answer.push(b'\n');
                            self.say(&answer).await?;
                            continue;
                        }
                        let to = match &mut daemon {
                            Some(to) => to,
                            gone => gone.insert(tokio::select! {
                                again = self.again() => again?,
                                () = ends.begun.cancelled() => return Ok(()),
                            }),
                        };
                        self.note(&asked);
                        // One that is gone is noticed by the next read.
                        let _ = to.to.write_all(&asked).await;
                    }
                    None => ends.begun.cancel(),
                },
                heard = heard(&mut daemon, &mut line) => {
                    if heard {
                        let said = std::mem::take(&mut line);
                        if self.pending.hear(&said) {
                            self.say(&said).await?;
                        }
                    } else {
                        // The next one is looked for when there is something to ask of it.
                        warn!("the daemon is gone");
                        (daemon, line) = (None, Vec::new());
                        if self.begun.front().is_some_and(|begun| self.pending.has_asked(begun)) {
                            self.begun.clear(); // its client is told that it failed, and begins again
                        }
                        self.give_up("the daemon ended before it answered").await?;
                    }
                },
            }
        }
        self.give_up("the call was not over when the client's time to leave was (shutdown.drain)").await
    }

    /// Answers what nobody else will.
    async fn give_up(&mut self, why: &str) -> Result<(), AppError> {
        let answers: Vec<_> = self.pending.give_up(why).collect();
        for answer in answers {
            self.say(&answer).await?;
        }
        Ok(())
    }

    /// Refuses what the SDK would answer without its id, or not at all, so that nobody waits for that.
    fn check(&self, line: &[u8]) -> Result<(), Refusal> {
        if line.len() > self.max {
            return Err(Refusal::invalid(&format!("a message may have {} bytes (http.max_body)", self.max)));
        }
        crate::api::check_message(line)?;
        if self.pending.has_asked(line) {
            return Err(Refusal::invalid("`id` is that of a request that is not answered yet"));
        }
        Ok(())
    }

    /// Keeps what a later daemon has to hear, and who waits for an answer.
    fn note(&mut self, line: &[u8]) {
        match messages::read(line) {
            Inbound::Initialize(id) => {
                self.begun = VecDeque::from([line.to_vec()]);
                self.pending.ask(id);
            }
            Inbound::Initialized => {
                self.begun.truncate(1);
                self.begun.push_back(line.to_vec());
            }
            Inbound::Cancelled(id) => self.pending.forget(&id),
            Inbound::Request(id) => self.pending.ask(id),
            Inbound::Other => {}
        }
    }

    /// The daemon after one that is gone, told how the client began.
    async fn again(&mut self) -> Result<Daemon, AppError> {
        let mut daemon = self.reach(COMING_BACK).await?;
        for line in &self.begun {
            if messages::read(line).is_request() {
                self.pending.ask_silently(line);
            }
            let _ = daemon.to.write_all(line).await;
        }
        Ok(daemon)
    }

    async fn say(&mut self, line: &[u8]) -> Result<(), AppError> {
        let gone = |error| AppError::Failed(format!("standard output cannot be written: {error}"));
        self.out.write_all(line).await.map_err(gone)?;
        self.out.flush().await.map_err(gone)
    }

    /// A connection to the daemon that has the store; this process becomes it if there is none for `leave`.
    async fn reach(&mut self, leave: Duration) -> Result<Daemon, AppError> {
        loop {
            let (from, mut to) = self.nearby.reach(Door::Lines, leave).await?.into_split();
            if to.write_all(format!("{}\n", self.name).as_bytes()).await.is_ok() {
                return Ok(Daemon { from: BufReader::new(from), to });
            } // it ended just now
        }
    }
}
