//! One run, from the turn to the answer.
//!
//! Until the code is sent a lost container is replaced, once; from then on nothing is ever tried again, because
//! nobody knows what it did. It must never answer before every changed file is saved.

use std::io::Write as _;
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use paddock_proto::limits::DATA_DIR;
use paddock_proto::message::{Entry, Input, Limit, Outcome, RunLimits, RunSpec};
use paddock_proto::{Channel, Event, Request};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::carry::{self, Collected};
use super::output::{Capture, Output};
use super::{SessionError, Sessions, Turn, bulk, salvage};
use crate::link::{Incoming, LinkError, Stream};
use crate::store::StoreError;

/// How long after its wall time a run may take to be ended by the agent, before the container is killed. The
/// agent gives a stopped job 1.5 s and its leftovers 5 s.
pub(super) const GRACE: Duration = Duration::from_secs(8);

/// What to run.
pub struct RunRequest {
    /// Names the run, see [`new_run_id`].
    pub id: String,
    /// Which runner.
    pub language: String,
    /// The source code.
    pub code: Bytes,
    /// The program's standard input.
    pub stdin: Option<Bytes>,
    /// Added to the image's environment, over it.
    pub environment: Vec<(String, String)>,
    /// Wall time.
    pub timeout: Duration,
}

/// How a run came out.
#[derive(Debug)]
pub struct RunReport {
    /// Names the run: `run_<UTC>_<4 hex>`.
    pub run_id: String,
    /// How it ended.
    pub end: RunEnd,
    /// Its output.
    pub stdout: Output,
    /// Its error output.
    pub stderr: Output,
    /// Whether the whole output is kept as a log.
    pub logged: bool,
    /// Files that it made or changed, all saved.
    pub changed: Vec<Entry>,
    /// What it made that is not saved, and why.
    pub not_saved: Vec<(Vec<u8>, &'static str)>,
    /// Why nothing of it is saved: the store failed.
    pub unsaved: Option<StoreError>,
    /// From the sending of the code to the death of its last process.
    pub duration: Duration,
    /// How long it waited for a container; zero where one stood ready.
    pub waited: Duration,
    /// Whether the image's warm part ran it.
    pub warm: bool,
}

/// The end of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunEnd {
    /// The program ended, by itself or by a bound.
    Ended {
        /// What its last word was.
        outcome: Outcome,
        /// The bound that ended it.
        limit: Option<Limit>,
    },
    /// The container or its agent was lost in mid-run: what the program did is unknown. Its files since the last
    /// save are gone with the container.
    Lost(String),
}

/// What is said of a lost run whose files could be had all the same.
pub(super) const SALVAGED: &str = "; the files that it had made until then were saved";

/// The exit code of a program that was ended for its time, by its caller, or is lost.
const NO_EXIT_CODE: i32 = -1;

impl RunReport {
    fn took(&mut self, collected: Collected) {
        self.changed = collected.changed;
        self.not_saved = collected.not_saved;
    }
}

impl RunEnd {
    /// The bound that ended it.
    pub fn limit(&self) -> Option<Limit> {
        match self {
            Self::Ended { limit, .. } => *limit,
            Self::Lost(_) => None,
        }
    }

    /// As shells say it: 128 + the signal that killed it, 127 if it could not be started; -1 where the program
    /// had no word in it.
    pub fn exit_code(&self) -> i32 {
        match self {
            Self::Lost(_) | Self::Ended { limit: Some(Limit::Wall | Limit::Cancelled), .. } => NO_EXIT_CODE,
            Self::Ended { outcome, .. } => match outcome {
                Outcome::Exited(code) => *code,
                Outcome::Signaled(signal) => 128 + signal,
                Outcome::NotStarted(_) => 127,
            },
        }
    }
}

impl Sessions {
    /// Runs code in a session. `cancel` ends the program; what it did is then still saved and reported.
    ///
    /// # Errors
    /// A [`SessionError`] means that no code ran.
    pub async fn run(
        &self,
        turn: &mut Turn,
        request: &RunRequest,
        cancel: &CancellationToken,
    ) -> Result<RunReport, SessionError> {
        self.admit(turn).await?;
        let run_id = request.id.clone();
        let mut attempts = 2;
        let (stream, waited) = loop {
            attempts -= 1;
            let prepared = tokio::select! {
                biased;
                () = cancel.cancelled() => Err(SessionError::Cancelled),
                prepared = self.prepare(turn, request, &run_id) => prepared,
            };
            match prepared {
                Ok(ready) => break ready,
                // One that will not take the files can be full of what earlier code left in it; a fresh one is not.
                Err(error @ (SessionError::Link(_) | SessionError::BringIn(_))) if attempts > 0 => {
                    warn!(%error, run_id, "a container was lost before its code; another is taken");
                    turn.work.leases.remove(&request.language);
                }
                Err(error) => {
                    turn.work.drop_lease(&request.language);
                    return Err(error);
                }
            }
        };
        let begun = Instant::now();
        let session = turn.session.clone();
        let mut capture = Capture::new(session.space.clone(), &run_id, self.bounds.output);
        let followed = follow(&stream, request, cancel, &mut capture).await;
        let mut report = RunReport {
            run_id,
            end: RunEnd::Lost(String::new()),
            stdout: Output::default(),
            stderr: Output::default(),
            logged: false,
            changed: Vec::new(),
            not_saved: Vec::new(),
            unsaved: None,
            duration: begun.elapsed(),
            waited,
            warm: false,
        };
        let mut keep = false;
        match followed {
            Ok(end) => {
                report.duration = Duration::from_micros(end.wall_us).min(begun.elapsed());
                report.end = RunEnd::Ended { outcome: end.outcome, limit: end.limit };
                report.warm = end.warm;
                match self.save(turn, &request.language, &stream).await {
                    Ok(collected) => {
                        keep = end.survivors == 0;
                        report.took(collected);
                    }
                    // The container still has everything; the next call saves it, if there is room then.
                    Err(SessionError::Store(error)) => {
                        warn!(session_id = %session.id, run_id = report.run_id, %error, "files could not be saved");
                        keep = end.survivors == 0;
                        report.unsaved = Some(error);
                    }
                    // The program ran, but what it left could not be had: that is not a success.
                    Err(error) => self.rescue(turn, &request.language, &mut report, &error).await,
                }
            }
            Err(error) => self.rescue(turn, &request.language, &mut report, &error).await,
        }
        if let Some(leased) = turn.work.leases.get_mut(&request.language) {
            leased.record.end();
        }
        if !keep {
            turn.work.drop_lease(&request.language);
        }
        (report.stdout, report.stderr, report.logged) = capture.finish();
        info!(
            session_id = %session.id,
            run_id = report.run_id,
            language = request.language,
            duration_ms = u64::try_from(report.duration.as_millis()).unwrap_or(u64::MAX),
            exit_code = report.end.exit_code(),
            limit = report.end.limit().map(tracing::field::debug),
            warm = report.warm,
            files = report.changed.len(),
            "ended"
        );
        Ok(report)
    }

    /// The container's agent is out of reach: its files are taken out by the engine, if it runs still.
    async fn rescue(
        &self,
        turn: &mut Turn,
        language: &str,
        report: &mut RunReport,
        why: &(dyn std::fmt::Display + Sync),
    ) {
        let space = turn.session.space.clone();
        let Some(leased) = turn.work.leases.get(language) else { return };
        let outcome = match salvage::salvage(&space, &leased.lease, &self.bounds).await {
            Ok(Some(collected)) => {
                report.took(collected);
                SALVAGED
            }
            Ok(None) => "",
            Err(error) => {
                report.unsaved = Some(error);
                ""
            }
        };
        report.end = RunEnd::Lost(format!("{why}{outcome}"));
    }

    /// A container that has everything, and a stream on which the code is on its way.
    async fn prepare(
        &self,
        turn: &mut Turn,
        request: &RunRequest,
        run_id: &str,
    ) -> Result<(Stream, Duration), SessionError> {
        let waited = self.take(turn, &request.language).await?;
        let space = turn.session.space.clone();
        let leases = &mut turn.work.leases;
        let Some(leased) = leases.get_mut(&request.language) else { return Err(LinkError::Closed.into()) };
        leased.lease.link.ready().await?;
        bulk::bring_all(&space, &leased.lease, &mut leased.known).await?;
        carry::bring_in(&space, &leased.lease.link, &mut leased.known).await?;
        let runner = &leased.lease.runner;
        let spec = RunSpec {
            id: run_id.to_owned(),
            argv: runner.argv.clone(),
            env: runner.environment(&request.environment),
            cwd: DATA_DIR.to_owned(),
            wall_ms: u64::try_from(request.timeout.as_millis()).unwrap_or(u64::MAX),
            output_cap: self.bounds.max_log,
            input: Input::Code { stdin: request.stdin.is_some() },
            limits: RunLimits::default(),
            collect: true,
            warm: !runner.warm.is_empty(),
            files: None,
        };
        leased.record.begin(run_id, request.timeout);
        // From here on the code may run.
        Ok((leased.lease.link.request(&Request::Run(spec))?, waited))
    }

    async fn save(
        &self,
        turn: &mut Turn,
        language: &str,
        stream: &Stream,
    ) -> Result<Collected, SessionError> {
        let space = turn.session.space.clone();
        let leased = turn.work.leases.get_mut(language).ok_or(LinkError::Closed)?;
        carry::collect(&space, stream, &mut leased.known, &self.bounds).await
    }
}

/// Sends code and input, takes output, until the run's end is said.
async fn follow(
    stream: &Stream,
    request: &RunRequest,
    cancel: &CancellationToken,
    capture: &mut Capture,
) -> Result<paddock_proto::message::RunEnd, LinkError> {
    // An input can be larger than the window: an agent that takes nothing (a paused container) must not hold us.
    carry::taken(async {
        stream.data(Channel::Code, request.code.clone()).await?;
        stream.eof(Channel::Code).await?;
        if let Some(stdin) = &request.stdin {
            stream.data(Channel::Stdin, stdin.clone()).await?;
            stream.eof(Channel::Stdin).await?;
        }
        Ok(())
    })
    .await?;
    listen(stream, Instant::now() + request.timeout + GRACE, cancel, capture).await
}

/// Takes output until the run's end is said, which is due by `until`.
pub(super) async fn listen(
    stream: &Stream,
    until: Instant,
    cancel: &CancellationToken,
    capture: &mut Capture,
) -> Result<paddock_proto::message::RunEnd, LinkError> {
    let begun = Instant::now();
    // What is in no log yet stays with the agent: a daemon that comes after this one hears it again.
    stream.hold();
    let mut held = true;
    let late = tokio::time::sleep_until(until.into());
    tokio::pin!(late);
    let mut cancelled = false;
    loop {
        tokio::select! {
            incoming = stream.next() => match incoming? {
                Incoming::Data(channel @ (Channel::Stdout | Channel::Stderr), bytes) => {
                    capture.take(channel, bytes);
                    if held && capture.is_kept() {
                        held = false;
                        stream.release();
                    }
                }
                Incoming::Event(Event::Ended(end)) => {
                    stream.release();
                    return Ok(end);
                }
                Incoming::Event(_) | Incoming::Data(..) | Incoming::End => return Err(LinkError::Refused),
            },
            () = cancel.cancelled(), if !cancelled => {
                cancelled = true;
                stream.say(&Request::Cancel).await?;
            }
            () = &mut late => return Err(LinkError::Silent(until - begun)),
        }
    }
}

/// A name for a run: `run_20260206T123456Z_a1b2`.
pub fn new_run_id() -> String {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
    let (days, seconds) = (now / 86_400, now % 86_400);
    // Days to a date, after Howard Hinnant's civil_from_days, for dates from 1970 on.
    let z = days + 719_468;
    let (era, doe) = (z / 146_097, z % 146_097);
    let yoe = (doe - doe / 1460 + doe / 36_524 - doe / 146_096) / 365;
    let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    let mp = (5 * doy + 2) / 153;
    let (day, month) = (doy - (153 * mp + 2) / 5 + 1, if mp < 10 { mp + 3 } else { mp - 9 });
    let year = yoe + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    let mut id = Vec::new();
    let _ = write!(id, "run_{year:04}{month:02}{day:02}T{hour:02}{minute:02}{second:02}Z_");
    format!("{}{}", String::from_utf8_lossy(&id), crate::id::random_hex::<2>())
}
