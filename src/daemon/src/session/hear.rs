//! A program under way, as its daemon sees it: what it writes is heard, what it reads is sent, and it is told to end.
//!
//! It must never wait for a program that does not read, nor for one that does not stop writing.

use std::time::{Duration, Instant};

use bytes::Bytes;
use paddock_proto::message::RunEnd;
use paddock_proto::{Channel, Event, Request};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::crowd::Crowd;
use crate::link::{Incoming, Link, LinkError, Stream};
use crate::metrics::Metrics;

/// How long after its wall time a run may take to be ended by the agent, before the container is killed. The
/// agent gives a stopped job 1.5 s and its leftovers 5 s.
const GRACE: Duration = Duration::from_secs(8);

/// Who hears a program.
pub trait Hearer: Send {
    /// Its container has it, and tells of it to whichever daemon there is: said of commands.
    fn begun(&mut self) {}

    /// An earlier daemon heard so many bytes of its output, of both streams together; the rest comes again.
    fn go_on(&mut self, heard: u64);

    /// It wrote this.
    fn take(&mut self, channel: Channel, bytes: Bytes);

    /// Whether all that was taken is where a crash of this process does not reach it, or can be nowhere. What is not is kept
    /// by the agent, which waits once it has a window full of it.
    fn is_kept(&self) -> bool;

    /// It ended, after so long; its files are not saved yet, and until they are the agent would say this again.
    fn ended(&mut self, _end: &super::RunEnd, _took: Duration) {}

    /// Whether it takes more; asked again when it is due, and not at all once the program's time is over.
    fn has_room(&self) -> bool {
        true
    }

    /// When it wants to be reminded, if nothing comes until then.
    fn due(&self) -> Option<Instant> {
        None
    }

    /// It is due.
    fn on_due(&mut self) {}
}

/// How a program is told things from outside.
pub struct Control {
    /// It is to end at once.
    pub cancel: CancellationToken,
    /// It is to end, and has this long to do it by itself; `None` until then.
    pub ask: watch::Receiver<Option<Duration>>,
    /// What it reads; `None` is the end of it.
    pub stdin: Option<mpsc::Receiver<Option<Bytes>>>,
}

impl Control {
    /// Resolves when it is told to end.
    pub(super) async fn told_to_end(&mut self) {
        let asked = async {
            if self.ask.wait_for(Option::is_some).await.is_err() {
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            () = self.cancel.cancelled() => {}
            () = asked => {}
        }
    }

    /// Nothing but its end can be told.
    pub fn end_only(cancel: &CancellationToken) -> Self {
        Self { cancel: cancel.clone(), ask: watch::channel(None).1, stdin: None }
    }
}

/// The last that is said of a program.
pub(super) enum Last {
    /// It ended.
    Ended(RunEnd),
    /// Its policy cannot be enforced, and it did not begin.
    Unsupported(String),
}

/// A program's stream, and what it is called on its link.
pub(super) struct Followed<'a> {
    pub(super) stream: &'a Stream,
    pub(super) link: &'a Link,
    pub(super) id: &'a str,
    /// Bytes that it may write to each of its streams: the agent ends it at that, and is not believed beyond it.
    pub(super) cap: u64,
    pub(super) crowd: &'a Crowd,
    pub(super) metrics: &'a Metrics,
}

impl Followed<'_> {
    /// Hears it until its end is said, which is due when its wall time is over.
    pub(super) async fn listen(
        &self,
        timeout: Duration,
        control: Control,
        hearer: &mut dyn Hearer,
    ) -> Result<Last, LinkError> {
        let begun = Instant::now();
        let Control { cancel, mut ask, stdin } = control;
        // What is kept nowhere yet stays with the agent: a daemon that comes after this one hears it again.
        self.stream.hold();
        let late = tokio::time::sleep_until((begun + timeout + GRACE).into());
        tokio::pin!(late);
        let feeding = self.feed(stdin);
        tokio::pin!(feeding);
        let (mut cancelled, mut asked, mut fed, mut overdue) = (false, false, false, false);
        let (mut has_begun, mut wrote) = (false, [0_u64; 2]);
        // Kept until the end: a stream that is dropped before its request was read can take it along.
        let mut told = Vec::new();
        loop {
            let due = hearer.due();
            let takes_more = hearer.has_room() || begun.elapsed() >= timeout;
            tokio::select! {
                incoming = self.stream.next(), if takes_more => match incoming? {
                    Incoming::Data(channel @ (Channel::Stdout | Channel::Stderr), bytes) => {
                        let is_stderr = channel == Channel::Stderr;
                        let stream = if is_stderr { "stderr" } else { "stdout" };
                        let wrote = &mut wrote[usize::from(is_stderr)];
                        *wrote = wrote.saturating_add(bytes.len() as u64);
                        if *wrote > self.cap {
                            return Err(LinkError::Refused);
                        }
                        self.metrics.wrote(stream, bytes.len() as u64);
                        let turn = self.crowd.turn(bytes.len()).await;
                        hearer.take(channel, bytes);
                        drop(turn);
                        if hearer.is_kept() {
                            self.stream.release();
                            self.stream.hold();
                        }
                    }
                    Incoming::Event(Event::Ended(end)) => {
                        let said = super::RunEnd::Ended { outcome: end.outcome, limit: end.limit };
                        hearer.ended(&said, Duration::from_micros(end.wall_us));
                        self.stream.release();
                        return Ok(Last::Ended(end));
                    }
                    // Each is a note on disk.
                    Incoming::Event(Event::Begun) if !std::mem::replace(&mut has_begun, true) => hearer.begun(),
                    Incoming::Event(Event::Unsupported { what }) => return Ok(Last::Unsupported(what)),
                    Incoming::Event(_) | Incoming::Data(..) | Incoming::End => return Err(LinkError::Refused),
                },
                () = cancel.cancelled(), if !cancelled => {
                    cancelled = true;
                    told.push(self.end(Duration::ZERO)?);
                }
                changed = ask.changed(), if !asked => match (changed, *ask.borrow_and_update()) {
                    (Ok(()), Some(grace)) => {
                        let until = Instant::now() + grace + GRACE;
                        if until > begun + timeout + GRACE {
                            late.as_mut().reset(until.into());
                        }
                        told.push(self.end(grace)?);
                    }
                    (Ok(()), None) => {}
                    (Err(_), _) => asked = true, // nobody can ask any more
                },
                () = &mut feeding, if !fed => fed = true,
                () = sleep_until(due), if due.is_some() => hearer.on_due(),
                () = &mut late => {
                    // This process may have stood still, and what was said meanwhile is on its way: the agent is asked
                    // once more, and has the time that it is due.
                    if std::mem::replace(&mut overdue, true) {
                        return Err(LinkError::Silent(begun.elapsed()));
                    }
                    late.as_mut().reset((Instant::now() + GRACE).into());
                    told.push(self.end(Duration::ZERO)?);
                }
            }
        }
    }

    fn end(&self, grace: Duration) -> Result<Stream, LinkError> {
        let grace_ms = u64::try_from(grace.as_millis()).unwrap_or(u64::MAX);
        self.link.request(&Request::End { id: self.id.to_owned(), grace_ms })
    }

    /// Sends what it is to read; a program that is over reads nothing, which its end tells.
    async fn feed(&self, stdin: Option<mpsc::Receiver<Option<Bytes>>>) {
        let Some(mut stdin) = stdin else { return };
        while let Some(piece) = stdin.recv().await {
            let sent = match piece {
                Some(bytes) => self.stream.data(Channel::Stdin, bytes).await,
                None => self.stream.eof(Channel::Stdin).await,
            };
            if sent.is_err() {
                return;
            }
        }
    }
}

async fn sleep_until(when: Option<Instant>) {
    match when {
        Some(when) => tokio::time::sleep_until(when.into()).await,
        None => std::future::pending().await,
    }
}
