//! The beginning of a run: its container is made ready, gets the session's files, and is sent the program.
//!
//! It must never send a program to a container that lacks a file of its session, nor before the run is noted
//! on disk.

use std::time::Duration;

use paddock_proto::message::{Input, RunLimits, RunSpec};
use paddock_proto::{Channel, Request};
use tokio::sync::MutexGuard;
use tokio::time::Instant;

use super::report::Phases;
use super::request::{Program, RunRequest};
use crate::egress::NetworkGrant;
use crate::link::{Link, LinkError, Stream};
use crate::metrics::{Metrics, RunKind};
use crate::pool::{Runner, WarmStage};
use crate::session::error::SessionError;
use crate::session::gate::turn::Turn;
use crate::session::lease::Leases;
use crate::session::lease::lessor::Lessor;
use crate::session::lease::usage_notes::NotedNetwork;
use crate::session::port::{self, Container};
use crate::session::sync::{DataBounds, archive, delta};
use crate::tenants::ProgramCredit;

/// How long a run waits for a warm part at most.
const WARM_WITHIN: Duration = Duration::from_secs(10);

/// What runs the commands of callers, in every image.
const SHELL: &str = "/bin/sh";

/// A program that was sent, and where to.
pub(super) struct StartedRun {
    pub(super) stream: Stream,
    pub(super) link: Link,
    /// Its container's name.
    pub(super) container: String,
    /// Its container's id, as log lines have it.
    pub(super) short_id: String,
    pub(super) phases: Phases,
    /// Its way out, while it runs.
    pub(super) network: Option<NotedNetwork>,
}

impl StartedRun {
    pub(super) fn new(
        container: &dyn Container,
        stream: Stream,
        phases: Phases,
        network: Option<NotedNetwork>,
    ) -> Self {
        Self {
            stream,
            network,
            link: container.link().clone(),
            container: container.name().to_owned(),
            short_id: container.short_id().to_owned(),
            phases,
        }
    }

    /// Sends what the program needs before it starts: its code, and a whole standard input.
    pub(super) async fn send_input(&self, program: &Program) -> Result<(), LinkError> {
        let (code, stdin) = match program {
            Program::Code { code, stdin } => (Some(code), stdin.as_ref()),
            Program::Direct { input, .. } => (None, input.as_ref()),
            Program::Command { .. } => return Ok(()),
        };
        let stream = &self.stream;
        // It can be larger than the window: an agent that takes nothing (its container is paused) must not
        // hold up the call for ever.
        port::accepted(async {
            if let Some(code) = code {
                stream.data(Channel::Code, code.clone()).await?;
                stream.eof(Channel::Code).await?;
            }
            if let Some(stdin) = stdin {
                stream.data(Channel::Stdin, stdin.clone()).await?;
                stream.eof(Channel::Stdin).await?;
            }
            Ok(())
        })
        .await
    }
}

/// Makes containers ready, and sends programs to them.
pub(in crate::session) struct Starter {
    pub(in crate::session) lessor: Lessor,
    pub(in crate::session) data: DataBounds,
    /// Bytes that a program may write to each of its streams.
    pub(in crate::session) max_log: u64,
    pub(in crate::session) metrics: Metrics,
}

impl Starter {
    /// Makes a container ready that has all files of the session, and sends it the program. `is_touched`
    /// tells, also of a future that was dropped, whether the container may be in a state in which it must not
    /// be used again.
    pub(super) async fn start(
        &self,
        turn: &Turn,
        request: &RunRequest,
        (deadline, credit): (Instant, &ProgramCredit),
        is_touched: &mut bool,
    ) -> Result<StartedRun, SessionError> {
        let (space, begun) = (&turn.session().space, Instant::now());
        let leases = &mut *self.ready_container(turn, request, (deadline, credit), is_touched).await?;
        *is_touched = true;
        let leased = leases.by_language.get_mut(&request.language).ok_or(LinkError::Closed)?;
        let container = &*leased.container;
        container.link().ready().await?;
        let waited = begun.elapsed();
        leased.list(space).await;
        let container = &*leased.container;
        let all = archive::bring_all(space, container, &mut leased.baseline, self.data).await?;
        let lacking = delta::bring_in(space, container.link(), &mut leased.baseline).await?;
        if lacking.0 + all.0 > 0 {
            leased.list(space).await;
        }
        let container = &*leased.container;
        self.metrics.files_in(all.0 + lacking.0, all.1 + lacking.1);
        let spec = self.spec(container.runner(), request);
        leased.note.begin(request.note());
        let admit = |grant: &NetworkGrant| {
            let (policy, asker) = (grant.policy.clone(), grant.asker.clone());
            let network = leased.gateway.admit_asking(&request.id, policy, asker);
            self.lessor.usage.of(&request.id, network)
        };
        let network = request.network.as_ref().map(admit);
        // From here on the code may run.
        match container.link().request(&Request::Run(spec)) {
            Ok(stream) => {
                let files_in = begun.elapsed().saturating_sub(waited);
                let phases = Phases { container: waited, files_in, ..Phases::default() };
                Ok(StartedRun::new(container, stream, phases, network))
            }
            Err(error) => {
                leased.note.end(&request.id);
                Err(error.into())
            }
        }
    }

    /// The session's container, once the program may begin in it. A conversation that has been cold for long
    /// enough waits for the warm part, and leaves the processor to it.
    async fn ready_container<'a>(
        &self,
        turn: &'a Turn,
        request: &RunRequest,
        (deadline, credit): (Instant, &ProgramCredit),
        is_touched: &mut bool,
    ) -> Result<MutexGuard<'a, Leases>, SessionError> {
        loop {
            let mut leases = turn.work().await;
            self.lessor.admit(turn, &mut leases).await?;
            *is_touched = true; // the session is admitted, and may have no container
            if self.lessor.lease(turn.session(), &mut leases, &request.language, deadline).await? {
                credit.took_container();
            }
            *is_touched = false;
            let Some(leased) = leases.by_language.get_mut(&request.language) else { return Ok(leases) };
            let (stage, now) = (leased.container.warm_stage(), Instant::now());
            if request.kind() == RunKind::Command || !matches!(stage, WarmStage::Waiting | WarmStage::Loading)
            {
                return Ok(leases);
            }
            if leased.cold.has_begun() {
                leased.container.want_warm();
            }
            // While the part only waits to be loaded, nothing bounds the wait for it.
            if stage == WarmStage::Waiting || !leased.cold.is_enough(now) {
                leased.cold.begin(now);
                return Ok(leases);
            }
            let settled = leased.container.warm_settled();
            drop(leases); // commands beside it go on
            let _ = tokio::time::timeout(WARM_WITHIN, settled).await;
        }
    }

    /// The program as its agent is told.
    fn spec(&self, runner: &Runner, request: &RunRequest) -> RunSpec {
        let (argv, input, warm) = match &request.program {
            Program::Code { stdin, .. } => {
                (runner.argv.clone(), Input::Code { stdin: stdin.is_some() }, !runner.warm.is_empty())
            }
            Program::Command { command, interactive } => {
                let argv = [SHELL, "-c", command].map(str::to_owned).to_vec();
                (argv, if *interactive { Input::Open } else { Input::Nothing }, false)
            }
            Program::Direct { argv, input } => {
                (argv.clone(), if input.is_some() { Input::Whole } else { Input::Nothing }, false)
            }
        };
        let mut env = runner.environment(&request.environment);
        if let Some(packages) = &request.packages {
            packages.tell(&mut env, request.kind());
        }
        RunSpec {
            id: request.id.clone(),
            argv,
            env,
            cwd: request.directory.clone(),
            wall_ms: u64::try_from(request.timeout.as_millis()).unwrap_or(u64::MAX),
            output_cap: self.max_log,
            input,
            limits: RunLimits { disk: runner.disk_limit(), ..request.limits },
            warm,
            files: request.files.clone(),
            execute: request.execute.clone(),
            network: request.network.is_some(),
        }
    }
}
