//! A program under way: its output goes to a sink, its input to the agent, and callers can tell it to end.
//!
//! It must never wait for a program that does not read its input, nor for a program that never stops writing.

use std::future::poll_fn;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use paddock_proto::limits::MAX_STREAMS;
use paddock_proto::message::RunEnd;
use paddock_proto::{Channel, Event, OutputStream, Request};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::egress::{Destination, NetworkView};
use crate::link::{Incoming, Link, LinkError, Stream};
use crate::metrics::Metrics;
use crate::session::lease::usage_notes::NotedNetwork;
use crate::session::output::fairness::OutputFairness;
use crate::session::run::report;
use crate::tenants::ProgramCredit;

/// How long after its wall time a run may take to be ended by the agent, before its container is given up.
/// The agent gives a stopped job 1.5 s and its leftovers 5 s.
pub(in crate::session) const GRACE: Duration = Duration::from_secs(8);

/// A program that goes on for so long is charged while it does.
const METERED_AFTER: Duration = Duration::from_millis(250);

/// Where a program's output goes. What a sink writes to the disk it writes on another thread: `take` only
/// begins that, and `poll_written` says when it is done.
pub trait OutputSink: Send + Sync {
    /// The agent has the program, and reports it to the next daemon too. Said of commands.
    fn begun(&mut self) {}

    /// An earlier daemon acknowledged this many bytes of output, of both streams together; the rest is sent
    /// again.
    fn resumed(&mut self, heard: u64);

    /// The program has a network: what it reaches can be looked at while it runs.
    fn has_network(&mut self, _network: NetworkView) {}

    /// The program was kept from a destination, for the first time.
    fn blocked(&mut self, _destination: Destination) {}

    /// It listens on this TCP port of loopback. Said of commands; an earlier daemon may have been told.
    fn listens(&mut self, _port: u16) {}

    /// The program wrote this.
    fn take(&mut self, stream: OutputStream, bytes: Bytes);

    /// Ready once everything taken so far is written, if it is to be written, or could not be.
    fn poll_written(&self, _context: &mut Context<'_>) -> Poll<()> {
        Poll::Ready(())
    }

    /// Whether everything taken so far is where a crash of this process does not reach it, or can be kept
    /// nowhere. Until then the agent keeps it, and stops the program once that is a window full.
    fn is_kept(&self) -> bool;

    /// The program ended, after this long. Its files are not saved yet, and until they are the agent would
    /// report the same end to the next daemon.
    fn ended(&mut self, _end: &report::RunEnd, _took: Duration) {}

    /// Ready while the sink accepts more. Nobody waits for that once the program is told to end, or its time
    /// is over.
    fn poll_room(&self, _context: &mut Context<'_>) -> Poll<()> {
        Poll::Ready(())
    }

    /// When the sink wants [`OutputSink::on_due`], if no output comes until then.
    fn due(&self) -> Option<Instant> {
        None
    }

    /// The time that [`OutputSink::due`] named has come.
    fn on_due(&mut self) {}
}

/// What callers tell a program while it runs.
pub struct Control {
    /// It is to end at once.
    pub cancel: CancellationToken,
    /// It is to end, and has this long to do so by itself; `None` until then.
    pub ask: watch::Receiver<Option<Duration>>,
    /// Its standard input; `None` ends it.
    pub stdin: Option<mpsc::Receiver<Option<Bytes>>>,
}

impl Control {
    /// A control by which the program can be cancelled, and nothing else.
    pub fn end_only(cancel: &CancellationToken) -> Self {
        Self { cancel: cancel.clone(), ask: watch::channel(None).1, stdin: None }
    }

    /// Resolves when the program is to end.
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
}

/// The agent's last message about a program.
#[derive(Debug)]
pub(super) enum LastMessage {
    /// It ended.
    Ended(RunEnd),
    /// Its file policy cannot be enforced, and it did not begin.
    Unsupported(String),
}

/// A program whose output is followed.
pub(super) struct Follower<'a> {
    pub(super) stream: &'a Stream,
    pub(super) link: &'a Link,
    /// The run's id, which names the program to the agent.
    pub(super) id: &'a str,
    /// Bytes that the program may write to each of its streams. The agent ends it at this bound, and the
    /// daemon refuses an agent that does not.
    pub(super) cap: u64,
    pub(super) fairness: &'a OutputFairness,
    pub(super) metrics: &'a Metrics,
    /// What its tenant pays for it.
    pub(super) credit: &'a ProgramCredit,
    /// Its way out, if it has one.
    pub(super) network: Option<&'a NotedNetwork>,
}

impl Follower<'_> {
    /// Follows the program until the agent reports its end, which it must do once the wall time is over.
    ///
    /// # Errors
    /// The link's: what the program did is unknown then.
    pub(super) async fn until_end(
        &self,
        timeout: Duration,
        control: Control,
        sink: &mut dyn OutputSink,
    ) -> Result<LastMessage, LinkError> {
        let begun = Instant::now();
        let Control { cancel, mut ask, stdin } = control;
        // The agent keeps what is stored nowhere yet, and sends it to the next daemon if this one dies.
        self.stream.hold();
        let overdue = tokio::time::sleep_until(begun + timeout + GRACE);
        tokio::pin!(overdue);
        let feeding = self.feed(stdin);
        tokio::pin!(feeding);
        let metering = self.meter();
        tokio::pin!(metering);
        let (mut is_cancelled, mut can_be_asked, mut was_overdue) = (false, true, false);
        let (mut is_fed, mut is_metered) = (false, false);
        // Once an end was asked for, output is not held back any more: the end comes behind it.
        let mut is_to_end = false;
        let (mut has_begun, mut written) = (false, [0_u64; 2]);
        // Whether the sink writes, and the permit of a large piece while it does.
        let (mut writes, mut permit) = (false, None);
        let mut blocked = self.network.map(|network| network.blocked());
        if let Some(network) = self.network {
            sink.has_network(network.view());
        }
        // Kept until the end: a stream that is dropped before its request was read can cancel the request.
        let mut end_requests = Vec::new();
        loop {
            let due = sink.due();
            let note_due = self.network.map(|network| network.due());
            let incoming = async {
                if !is_to_end {
                    tokio::select! {
                        biased;
                        () = poll_fn(|context| sink.poll_room(context)) => {}
                        () = tokio::time::sleep_until(begun + timeout) => {}
                    }
                }
                self.stream.next().await
            };
            tokio::select! {
                incoming = incoming, if permit.is_none() => match incoming? {
                    Incoming::Data(channel, bytes) => {
                        let stream = OutputStream::of(channel).ok_or(LinkError::Refused)?;
                        self.count(stream, bytes.len() as u64, &mut written)?;
                        permit = self.fairness.permit(bytes.len()).await;
                        sink.take(stream, bytes);
                        writes = true;
                    }
                    Incoming::Event(Event::Ended(end)) => {
                        self.credit.used(Duration::from_micros(end.metered_us));
                        let reported = report::RunEnd::Ended { outcome: end.outcome, limit: end.limit };
                        // Its connections are over: what was blocked last is told before its end.
                        if let Some(network) = self.network {
                            network.end();
                        }
                        while let Some(destination) = blocked.as_mut().and_then(|one| one.try_recv().ok()) {
                            sink.blocked(destination);
                        }
                        if let Some(network) = self.network {
                            network.note_last();
                        }
                        sink.ended(&reported, Duration::from_micros(end.wall_us));
                        poll_fn(|context| sink.poll_written(context)).await;
                        self.stream.release();
                        return Ok(LastMessage::Ended(end));
                    }
                    // The sink notes each on disk: only the first counts.
                    Incoming::Event(Event::Begun) if !std::mem::replace(&mut has_begun, true) => {
                        sink.begun();
                        writes = true;
                    }
                    Incoming::Event(Event::Listens { port }) => {
                        sink.listens(port);
                        writes = true;
                    }
                    Incoming::Event(Event::Unsupported { what }) => return Ok(LastMessage::Unsupported(what)),
                    Incoming::Event(_) | Incoming::End => return Err(LinkError::Refused),
                },
                () = poll_fn(|context| sink.poll_written(context)), if writes => {
                    (writes, permit) = (false, None);
                    if sink.is_kept() {
                        self.stream.release();
                        self.stream.hold();
                    }
                }
                () = cancel.cancelled(), if !is_cancelled => {
                    (is_cancelled, is_to_end) = (true, true);
                    end_requests.push(self.request_end(Duration::ZERO)?);
                }
                changed = ask.changed(), if can_be_asked => match (changed, *ask.borrow_and_update()) {
                    (Ok(()), Some(grace)) => {
                        is_to_end = true;
                        let until = Instant::now() + grace + GRACE;
                        if until > begun + timeout + GRACE {
                            overdue.as_mut().reset(until);
                        }
                        end_requests.push(self.request_end(grace)?);
                    }
                    (Ok(()), None) => {}
                    (Err(_), _) => can_be_asked = false, // every sender is gone
                },
                () = &mut feeding, if !is_fed => is_fed = true,
                () = &mut metering, if !is_metered => is_metered = true,
                destination = next_blocked(blocked.as_mut()), if blocked.is_some() => match destination {
                    Some(destination) => {
                        sink.blocked(destination);
                        writes = true;
                        self.network.iter().for_each(|network| network.note());
                    }
                    None => blocked = None,
                },
                () = sleep_until(due), if due.is_some() => {
                    sink.on_due();
                    writes = true;
                }
                () = sleep_until(note_due), if note_due.is_some() => {
                    self.network.iter().for_each(|network| network.note());
                }
                () = &mut overdue => {
                    // This process may have been stopped, with messages waiting for it: the agent is asked
                    // once more, and has as long as before.
                    if std::mem::replace(&mut was_overdue, true) {
                        return Err(LinkError::Silent(begun.elapsed()));
                    }
                    overdue.as_mut().reset(Instant::now() + GRACE);
                    end_requests.push(self.request_end(Duration::ZERO)?);
                }
            }
        }
    }

    /// Counts output against the bound of its stream.
    fn count(&self, stream: OutputStream, bytes: u64, written: &mut [u64; 2]) -> Result<(), LinkError> {
        let written = &mut written[stream.index()];
        *written = written.saturating_add(bytes);
        if *written > self.cap {
            return Err(LinkError::Refused);
        }
        self.metrics.wrote(stream, bytes);
        Ok(())
    }

    /// Asks the agent to end the program. The answer does not matter, but its stream must be kept.
    fn request_end(&self, grace: Duration) -> Result<Stream, LinkError> {
        let grace_ms = u64::try_from(grace.as_millis()).unwrap_or(u64::MAX);
        self.link.request(&Request::End { id: self.id.to_owned(), grace_ms })
    }

    /// Charges the tenant while the program goes on, if it does for a while: what is not told until the end
    /// is told with that.
    async fn meter(&self) {
        if !self.credit.is_counted() {
            return;
        }
        tokio::time::sleep(METERED_AFTER).await;
        if self.link.open_streams() >= MAX_STREAMS / 4 {
            return; // any of the others tells what the container uses
        }
        meter(self.link, self.credit).await;
    }

    /// Sends the program's input. A program that is over reads nothing, which its end reports.
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

async fn next_blocked(blocked: Option<&mut mpsc::UnboundedReceiver<Destination>>) -> Option<Destination> {
    match blocked {
        Some(blocked) => blocked.recv().await,
        None => std::future::pending().await,
    }
}

async fn sleep_until(when: Option<Instant>) {
    match when {
        Some(when) => tokio::time::sleep_until(when).await,
        None => std::future::pending().await,
    }
}
/// Charges a tenant for what a container uses from now on, until its link is lost or nobody waits for this.
pub(crate) async fn meter(link: &Link, credit: &ProgramCredit) {
    let Ok(stream) = link.request(&Request::Meter) else { return };
    while let Ok(Incoming::Event(Event::Used { cpu_us })) = stream.next().await {
        credit.used(Duration::from_micros(cpu_us));
        // An agent that was taken over could send figures without end.
        tokio::task::consume_budget().await;
    }
}
