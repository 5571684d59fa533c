//! One run, from the turn to its report.
//!
//! Until the program is sent a lost container is replaced, once; from then on nothing is ever tried again, because
//! nobody knows what it did. It must never report before every changed file is saved.

use std::time::{Duration, Instant};

use paddock_proto::message::{Input, RunSpec};
use paddock_proto::{Channel, Event, Request};
use tokio::sync::MutexGuard;
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, Span, debug, error_span, field, info, warn};

use super::carry;
use super::hear::{Control, Followed, Hearer, Last};
use super::journal::Flight;
use super::leases::Work;
use super::live::Live;
use super::output::{Capture, Heard};
use super::report::{Phases, RunReport, limit_name};
use super::request::{Program, RunRequest};
use super::{SessionError, Sessions, Turn, bulk};
use crate::engine::{ContainerId, VolumeName};
use crate::link::{Incoming, Link, LinkError, Stream};
use crate::metrics::Kind;
use crate::pool::Stage;

/// How long a run waits for a warm part at most.
const WARM_WITHIN: Duration = Duration::from_secs(10);

/// What runs the commands of callers, in every image.
const SHELL: &str = "/bin/sh";

/// A program on its way, and where.
pub(super) struct Sent {
    pub(super) stream: Stream,
    link: Link,
    pub(super) name: VolumeName,
    id: ContainerId,
    pub(super) phases: Phases,
}

impl Sessions {
    /// Runs source code in a session, and tells `live` what it writes meanwhile. `cancel` ends the program; what it did is
    /// then still saved and reported.
    ///
    /// # Errors
    /// A [`SessionError`] means that no code ran.
    pub async fn run(
        &self,
        turn: &Turn,
        request: &RunRequest,
        cancel: &CancellationToken,
        live: Option<Live>,
    ) -> Result<(RunReport, Heard), SessionError> {
        let mut capture = Capture::new(turn.session.space.clone(), &request.id, self.bounds.shown(), live);
        let report = self.execute(turn, request, Control::end_only(cancel), &mut capture).await?;
        Ok((report, capture.finish()))
    }

    /// Runs a program in a session, with `hearer` told of its output.
    ///
    /// # Errors
    /// A [`SessionError`] means that nothing of it ran.
    pub async fn execute(
        &self,
        turn: &Turn,
        request: &RunRequest,
        control: Control,
        hearer: &mut dyn Hearer,
    ) -> Result<RunReport, SessionError> {
        let span = error_span!(
            "run",
            session_id = %turn.session.id,
            run_id = request.id,
            language = request.language,
            container = field::Empty,
        );
        self.execute_in_its_span(turn, request, control, hearer).instrument(span).await
    }

    async fn execute_in_its_span(
        &self,
        turn: &Turn,
        request: &RunRequest,
        mut control: Control,
        hearer: &mut dyn Hearer,
    ) -> Result<RunReport, SessionError> {
        let kind = request.kind();
        let _running = self.metrics.running(kind);
        let mut attempts = 2;
        let deadline = turn.since + self.bounds.wait;
        let sent = loop {
            attempts -= 1;
            let mut touched = false;
            let sending = tokio::select! {
                biased;
                () = control.told_to_end() => Err(SessionError::Cancelled),
                sent = self.send(turn, request, deadline, &mut touched) => sent,
            };
            let Err(error) = sending else { break sending? };
            // A call that had no container yet leaves the session's alone, and does not wait for those that get one.
            if touched {
                turn.work().await.drop_resting(&request.language);
            }
            // One that will not take the files can be full of what earlier code left in it; a fresh one is not.
            if attempts == 0 || !matches!(error, SessionError::Link(_) | SessionError::BringIn(_)) {
                self.metrics.not_started(kind, &request.language);
                return Err(error);
            }
            warn!(%error, run_id = request.id, "a container was lost before its code; another is taken");
        };
        Span::current().record("container", sent.id.short());
        match &request.program {
            Program::Code { code, .. } => debug!(code = %String::from_utf8_lossy(code), "code"),
            Program::Command { command, .. } => debug!(code = command, "command"),
        }
        let begun = Instant::now();
        let followed = match follow(&sent, request, self, control, hearer).await {
            Ok(Last::Ended(end)) => Ok(end),
            Ok(Last::Unsupported(what)) => {
                if let Some(leased) = turn.work().await.named(&request.language, &sent.name) {
                    leased.record.end(&request.id);
                }
                self.metrics.not_started(kind, &request.language);
                return Err(SessionError::Unsupported(what));
            }
            Err(error) => Err(error),
        };
        let mut report = self.settle(turn, &request.language, &request.id, &sent, begun, followed).await;
        report.duration = report.duration.min(begun.elapsed());
        self.count(request, &report);
        info!(
            session_id = %turn.session.id,
            run_id = report.run_id,
            language = request.language,
            duration_ms = u64::try_from(report.duration.as_millis()).unwrap_or(u64::MAX),
            exit_code = report.end.exit_code(),
            limit = report.end.limit().map(field::debug),
            warm = report.warm,
            files = report.changed.len(),
            "ended"
        );
        Ok(report)
    }

    /// Counts how a program came out and where its time went.
    fn count(&self, request: &RunRequest, report: &RunReport) {
        let (metrics, kind, language) = (&self.metrics, request.kind(), &request.language);
        metrics.ran(kind, language, report.end.outcome(), report.duration);
        if let Some(limit) = report.end.limit().and_then(limit_name) {
            metrics.limit_hit(limit);
        }
        if kind == Kind::Code && report.is_cold {
            metrics.ran_cold(language);
        }
        let Phases { container, files_in, files_out } = report.phases;
        metrics.carried(container, files_in, files_out);
    }

    /// Takes over a program that an earlier daemon started in this session's container of `language`.
    pub(super) async fn resume(
        &self,
        turn: &Turn,
        language: &str,
        flight: &Flight,
        control: Control,
        hearer: &mut dyn Hearer,
    ) -> Result<RunReport, SessionError> {
        let begun = Instant::now();
        let sent = {
            let work = turn.work().await;
            let lease = &work.leases.get(language).ok_or(LinkError::Closed)?.lease;
            let stream = lease.link.request(&Request::Attach(flight.id.clone()))?;
            Sent {
                stream,
                link: lease.link.clone(),
                name: lease.name.clone(),
                id: lease.id.clone(),
                phases: Phases::default(),
            }
        };
        let followed = async {
            match carry::next(&sent.stream).await? {
                // No more than both of its streams may have.
                Incoming::Event(Event::Attached { heard }) if heard / 2 <= self.bounds.max_log => {
                    hearer.go_on(heard);
                }
                Incoming::Event(_) | Incoming::Data(..) | Incoming::End => return Err(LinkError::Refused),
            }
            let followed = Followed {
                stream: &sent.stream,
                link: &sent.link,
                id: &flight.id,
                cap: self.bounds.max_log,
                crowd: &self.crowd,
                metrics: &self.metrics,
            };
            match followed.listen(flight.timeout, control, hearer).await? {
                Last::Ended(end) => Ok(end),
                Last::Unsupported(_) => Err(LinkError::Refused), // it began long ago
            }
        };
        let followed = followed.await;
        Ok(self.settle(turn, language, &flight.id, &sent, begun, followed).await)
    }

    /// The session's container, once the program may begin in it: a conversation that has been cold for long enough waits
    /// for the warm part, and lets it have the processor.
    async fn container<'a>(
        &self,
        turn: &'a Turn,
        request: &RunRequest,
        deadline: Instant,
        touched: &mut bool,
    ) -> Result<MutexGuard<'a, Work>, SessionError> {
        loop {
            let mut work = turn.work().await;
            self.admit(&turn.session, &mut work, deadline).await?;
            *touched = true; // the session is admitted, and may have no container
            self.take(&turn.session, &mut work, &request.language, deadline).await?;
            *touched = false;
            let Some(leased) = work.leases.get_mut(&request.language) else { return Ok(work) };
            let (part, now) = (leased.lease.warm.clone(), Instant::now());
            let stage = part.stage();
            if request.kind() == Kind::Command || !matches!(stage, Stage::Waiting | Stage::Loading) {
                return Ok(work);
            }
            if leased.cold.goes_on() {
                part.wanted();
            }
            // While the part only waits for its turn, a wait for it would have no bound that is worth it.
            if stage == Stage::Waiting || !leased.cold.is_enough(now) {
                leased.cold.begin(now);
                return Ok(work);
            }
            drop(work); // commands beside it go on
            let _ = tokio::time::timeout(WARM_WITHIN, part.settled()).await;
        }
    }

    /// Makes a container ready that has everything, and sends the program's beginning.
    ///
    /// `touched` is set once the container may be in a state that it cannot stay in.
    async fn send(
        &self,
        turn: &Turn,
        request: &RunRequest,
        deadline: Instant,
        touched: &mut bool,
    ) -> Result<Sent, SessionError> {
        let (space, begun) = (&turn.session.space, Instant::now());
        let work = &mut *self.container(turn, request, deadline, touched).await?;
        *touched = true;
        let leased = work.leases.get_mut(&request.language).ok_or(LinkError::Closed)?;
        leased.lease.link.ready().await?;
        let container = begun.elapsed();
        let all = bulk::bring_all(space, &leased.lease, &mut leased.known, &self.bounds).await?;
        let some = carry::bring_in(space, &leased.lease.link, &mut leased.known).await?;
        self.metrics.files_in(all.0 + some.0, all.1 + some.1);
        let runner = &leased.lease.runner;
        let (argv, input, warm) = match &request.program {
            Program::Code { stdin, .. } => {
                (runner.argv.clone(), Input::Code { stdin: stdin.is_some() }, !runner.warm.is_empty())
            }
            Program::Command { command, interactive } => {
                let argv = [SHELL, "-c", command].map(str::to_owned).to_vec();
                (argv, if *interactive { Input::Open } else { Input::Nothing }, false)
            }
        };
        let spec = RunSpec {
            id: request.id.clone(),
            argv,
            env: runner.environment(&request.environment),
            cwd: request.directory.clone(),
            wall_ms: u64::try_from(request.timeout.as_millis()).unwrap_or(u64::MAX),
            output_cap: self.bounds.max_log,
            input,
            limits: request.limits,
            warm,
            files: request.files.clone(),
        };
        leased.record.begin(request.flight());
        // From here on the code may run.
        match leased.lease.link.request(&Request::Run(spec)) {
            Ok(stream) => {
                let (link, name) = (leased.lease.link.clone(), leased.lease.name.clone());
                let files_in = begun.elapsed().saturating_sub(container);
                let phases = Phases { container, files_in, ..Phases::default() };
                Ok(Sent { stream, link, name, id: leased.lease.id.clone(), phases })
            }
            Err(error) => {
                leased.record.end(&request.id);
                Err(error.into())
            }
        }
    }
}

/// Sends code and input, takes output, until the run's end is said.
async fn follow(
    sent: &Sent,
    request: &RunRequest,
    sessions: &Sessions,
    control: Control,
    hearer: &mut dyn Hearer,
) -> Result<Last, LinkError> {
    if let Program::Code { code, stdin } = &request.program {
        let stream = &sent.stream;
        // An input can be larger than the window: an agent that takes nothing (a paused container) must not hold us.
        carry::taken(async {
            stream.data(Channel::Code, code.clone()).await?;
            stream.eof(Channel::Code).await?;
            if let Some(stdin) = stdin {
                stream.data(Channel::Stdin, stdin.clone()).await?;
                stream.eof(Channel::Stdin).await?;
            }
            Ok(())
        })
        .await?;
    }
    let (crowd, metrics) = (&sessions.crowd, &sessions.metrics);
    let cap = sessions.bounds.max_log;
    let followed = Followed { stream: &sent.stream, link: &sent.link, id: &request.id, cap, crowd, metrics };
    followed.listen(request.timeout, control, hearer).await
}
