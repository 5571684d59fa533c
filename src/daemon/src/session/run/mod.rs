//! One run, from the turn of its call to its report.
//!
//! ```text
//!  request ─► start ─────────────────► follow ─────────────────► finish ─────────────► report
//!             container, files in,     output out, input in,     files out or rescued,
//!             program sent             told to end               container kept or given up
//!               │
//!               └─ lost before the program was sent: once more, in another container
//! ```
//!
//! Once the program was sent nothing is ever tried again, because nobody knows what it did. A run must never
//! be reported before every file that it changed is saved.

pub(in crate::session) mod finish;
pub(in crate::session) mod follow;
pub(in crate::session) mod report;
pub(in crate::session) mod request;
pub(in crate::session) mod start;

use paddock_proto::message::RunEnd;
use paddock_proto::{Event, Request};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, Span, debug, error_span, field, info, warn};

use self::finish::Finish;
use self::follow::{Control, Follower, LastMessage, OutputSink};
use self::report::{Phases, RunReport, limit_name};
use self::request::{Program, RunRequest};
use self::start::{StartedRun, Starter};
use super::bounds::SessionBounds;
use super::error::SessionError;
use super::gate::turn::Turn;
use super::lease::lessor::Lessor;
use super::lease::notes::RunNote;
use super::lease::usage_notes::NotedNetwork;
use super::output::capture::{Capture, CapturedOutput};
use super::output::fairness::OutputFairness;
use super::output::live::OutputBacklog;
use super::port;
use crate::link::{Incoming, LinkError};
use crate::metrics::{Metrics, RunKind};
use crate::tenants::ProgramCredit;

/// Runs programs in the containers of sessions.
pub struct Runs {
    pub(super) bounds: SessionBounds,
    pub(super) starter: Starter,
    /// Shared by all programs that write as fast as they can.
    pub(super) fairness: OutputFairness,
    pub(super) metrics: Metrics,
}

impl Runs {
    /// What gets containers for the sessions.
    pub(super) fn lessor(&self) -> &Lessor {
        &self.starter.lessor
    }

    /// Whether containers of this language keep the programs of one run out of the memory of another.
    pub(super) fn separates_runs(&self, language: &str) -> bool {
        self.lessor().pool.separates_runs(language)
    }

    /// Runs source code in a session, and passes what it writes to `backlog` meanwhile. Its tenant pays with
    /// `credit`. `cancel` ends the program; what it did is still saved and reported then.
    ///
    /// # Errors
    /// A [`SessionError`] means that no code ran.
    pub async fn run(
        &self,
        turn: &Turn,
        request: &RunRequest,
        credit: ProgramCredit,
        cancel: &CancellationToken,
        backlog: Option<OutputBacklog>,
    ) -> Result<(RunReport, CapturedOutput), SessionError> {
        let space = turn.session().space.clone();
        let mut capture = Capture::new(space, &request.id, self.bounds.shown(), backlog);
        let report = self.execute(turn, request, credit, Control::end_only(cancel), &mut capture).await?;
        Ok((report, capture.finish().await))
    }

    /// Runs a program in a session, and passes its output to `sink`.
    ///
    /// # Errors
    /// A [`SessionError`] means that nothing of it ran.
    pub async fn execute(
        &self,
        turn: &Turn,
        request: &RunRequest,
        credit: ProgramCredit,
        control: Control,
        sink: &mut dyn OutputSink,
    ) -> Result<RunReport, SessionError> {
        let span = error_span!(
            "run",
            session_id = %turn.session().id,
            run_id = request.id,
            language = request.language,
            container = field::Empty,
        );
        let running = async {
            let _running = self.metrics.running(request.kind());
            let ran = self.execute_in_span(turn, request, credit, control, sink).await;
            match &ran {
                Ok(report) => self.note_end(turn, request, report),
                Err(_) => self.metrics.not_started(request.kind(), &request.language),
            }
            ran
        };
        running.instrument(span).await
    }

    async fn execute_in_span(
        &self,
        turn: &Turn,
        request: &RunRequest,
        credit: ProgramCredit,
        mut control: Control,
        sink: &mut dyn OutputSink,
    ) -> Result<RunReport, SessionError> {
        let started = self.start_in_one_of_two(turn, request, &credit, &mut control).await?;
        credit.sent();
        Span::current().record("container", started.short_id.as_str());
        match &request.program {
            Program::Code { code, .. } => debug!(code = %String::from_utf8_lossy(code), "code"),
            Program::Command { command, .. } => debug!(code = command, "command"),
            Program::Direct { argv, .. } => debug!(code = ?argv, "program"),
        }
        let begun = Instant::now();
        let followed = async {
            started.send_input(&request.program).await?;
            self.follower(&started, &request.id, &credit).until_end(request.timeout, control, sink).await
        };
        let end = match followed.await {
            Ok(LastMessage::Ended(end)) => Ok(end),
            Ok(LastMessage::Unsupported(what)) => {
                if let Some(leased) = turn.work().await.named(&request.language, &started.container) {
                    leased.note.end(&request.id);
                }
                return Err(SessionError::Unsupported(what));
            }
            Err(error) => Err(error),
        };
        drop(credit);
        let mut report = self.finish(turn, &request.language, &request.id, &started).report(begun, end).await;
        report.duration = report.duration.min(begun.elapsed());
        Ok(report)
    }

    /// Starts the program. A container that is lost before that is replaced once.
    async fn start_in_one_of_two(
        &self,
        turn: &Turn,
        request: &RunRequest,
        credit: &ProgramCredit,
        control: &mut Control,
    ) -> Result<StartedRun, SessionError> {
        let deadline = Instant::from(turn.since) + self.bounds.wait;
        let mut is_second = false;
        loop {
            let mut is_touched = false;
            let starting = tokio::select! {
                biased;
                () = control.told_to_end() => Err(SessionError::Cancelled),
                started = self.starter.start(turn, request, (deadline, credit), &mut is_touched) => started,
            };
            let Err(error) = starting else { return starting };
            // A call that never had the container does not touch it, and does not wait for a call that gets
            // one.
            if is_touched {
                let mut leases = turn.work().await;
                if let Some(leased) = leases.resting(&request.language) {
                    leased.save_unsaved(turn.session()).await;
                }
                leases.drop_resting(&request.language);
            }
            // A container that does not take the files can be full of what earlier code left there; a new one
            // is not.
            if is_second || !matches!(error, SessionError::Link(_) | SessionError::BringIn(_)) {
                return Err(error);
            }
            is_second = true;
            warn!(%error, run_id = request.id, "a container was lost before its code; another is taken");
        }
    }

    fn follower<'a>(
        &'a self,
        started: &'a StartedRun,
        id: &'a str,
        credit: &'a ProgramCredit,
    ) -> Follower<'a> {
        Follower {
            stream: &started.stream,
            link: &started.link,
            id,
            credit,
            cap: self.bounds.max_log,
            fairness: &self.fairness,
            metrics: &self.metrics,
            network: started.network.as_ref(),
        }
    }

    fn finish<'a>(
        &'a self,
        turn: &'a Turn,
        language: &'a str,
        id: &'a str,
        started: &'a StartedRun,
    ) -> Finish<'a> {
        Finish { turn, language, id, started, data: self.bounds.data_bounds(), metrics: &self.metrics }
    }

    /// Takes over a program that an earlier daemon started in this session's container of `language`.
    ///
    /// # Errors
    /// A [`SessionError`] means that the container is lost, or not the session's any more.
    pub(super) async fn resume(
        &self,
        turn: &Turn,
        language: &str,
        (run, network): (&RunNote, Option<NotedNetwork>),
        control: Control,
        sink: &mut dyn OutputSink,
    ) -> Result<RunReport, SessionError> {
        let begun = Instant::now();
        let credit = self.bounds.tenants.resume_program(self.lessor().gate.share(&turn.session().owner));
        let started = {
            let leases = turn.work().await;
            let leased = leases.by_language.get(language).ok_or(LinkError::Closed)?;
            let stream = leased.container.link().request(&Request::Attach(run.id.clone()))?;
            StartedRun::new(&*leased.container, stream, Phases::default(), network)
        };
        let followed = async {
            match port::next(&started.stream).await? {
                // Both of its streams together can have no more than twice the bound of one.
                Incoming::Event(Event::Attached { heard }) if heard / 2 <= self.bounds.max_log => {
                    sink.resumed(heard);
                }
                Incoming::Event(_) | Incoming::Data(..) | Incoming::End => return Err(LinkError::Refused),
            }
            match self.follower(&started, &run.id, &credit).until_end(run.timeout, control, sink).await? {
                LastMessage::Ended(end) => Ok(end),
                LastMessage::Unsupported(_) => Err(LinkError::Refused), // it began long ago
            }
        };
        let end: Result<RunEnd, LinkError> = followed.await;
        drop(credit);
        Ok(self.finish(turn, language, &run.id, &started).report(begun, end).await)
    }

    /// Logs and counts how a program ended, and where its time went.
    fn note_end(&self, turn: &Turn, request: &RunRequest, report: &RunReport) {
        let (metrics, kind, language) = (&self.metrics, request.kind(), &request.language);
        metrics.ran(kind, language, report.end.outcome(), report.duration);
        if let Some(limit) = report.end.limit().and_then(limit_name) {
            metrics.limit_hit(limit);
        }
        if kind == RunKind::Code && report.is_cold {
            metrics.ran_cold(language);
        }
        let Phases { container, files_in, files_out } = report.phases;
        metrics.carried(container, files_in, files_out);
        info!(
            session_id = %turn.session().id,
            run_id = report.run_id,
            language,
            duration_ms = u64::try_from(report.duration.as_millis()).unwrap_or(u64::MAX),
            exit_code = report.end.exit_code(),
            limit = report.end.limit().map(field::debug),
            warm = report.warm,
            files = report.changed.len(),
            code_bytes = request.program.len(),
            network = request.network.is_some(),
            variables = request.variable_names(),
            "ended"
        );
    }
}

#[cfg(test)]
mod tests;
