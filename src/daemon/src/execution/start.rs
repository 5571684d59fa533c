//! The beginning of an execution, and its life up to its end.
//!
//! It must never run anything that has no log to be read from.

use std::sync::Arc;
use std::time::Duration;

use paddock_proto::message::RunLimits;
use paddock_proto::{ExecutePolicy, FilePolicy};
use tracing::{Instrument, warn};

use super::Executions;
use super::end::{Conclusion, ExecutionState};
use super::handle::Execution;
use super::log::ExecutionLog;
use super::permits::ExecutionPermit;
use super::publish::EventPublisher;
use super::sink::ExecutionSink;
use super::stored::{ExecutionSpec, StoredExecution, now_ms};
use super::task_diff;
use crate::agents::TaskNote;
use crate::egress::NetworkGrant;
use crate::session::{
    Control, OutputBacklog, Program, RunPackages, RunRequest, Session, SessionError, SessionId, SessionKey,
};
use crate::store::{StoreError, blocking};
use crate::tenants::Limited;

/// A program to run; every value was checked.
#[derive(Debug)]
pub struct StartRequest {
    /// The program.
    pub program: Program,
    /// The runner in whose container it runs.
    pub language: String,
    /// Where it starts: an absolute path in the container.
    pub directory: String,
    /// Added to the image's environment, over it.
    pub environment: Vec<(String, String)>,
    /// Wall time.
    pub timeout: Duration,
    /// What it may use, beside what its container may.
    pub limits: RunLimits,
    /// Which files it may write and read, beside what its user may.
    pub files: Option<FilePolicy>,
    /// Which programs it may execute, within what its user may.
    pub execute: Option<ExecutePolicy>,
    /// What it may reach outside of its container.
    pub network: Option<NetworkGrant>,
    /// The packages that it has beyond those of its image.
    pub packages: Option<RunPackages>,
    /// The words of a coding agent's task, and what more is noted of it; `None` for a command.
    pub task: Option<(String, TaskNote)>,
}

/// Why there is no execution.
#[derive(Debug, thiserror::Error)]
pub enum ExecutionError {
    /// No execution ended within the time that a call may wait, and as many were under way as may be.
    #[error(
        "{running} executions are under way, which is the most at one time (exec.max, \
         SANDBOX_MAX_CONCURRENT), and none ended within the {} s that a call may wait (pool.wait); try again \
         when one has ended",
        wait.as_secs_f64()
    )]
    TooMany {
        /// How many are under way.
        running: usize,
        /// How long the call waited.
        wait: Duration,
    },
    /// The same, of executions of this session.
    #[error(
        "{running} executions of this session are under way, which is the most at one time \
         (exec.per_session, SANDBOX_MAX_PER_SESSION), and none ended within the {} s that a call may wait \
         (pool.wait); wait for one to end, or cancel one",
        wait.as_secs_f64()
    )]
    TooManyOfSession {
        /// How many are under way.
        running: usize,
        /// How long the call waited.
        wait: Duration,
    },
    /// The tenant has as many under way as it may have, and none ended within that time.
    #[error("{0}")]
    Limited(Limited),
    /// As many calls wait for a permit as may wait.
    #[error(
        "{0} calls wait already for an execution to end, which is the most at one time (pool.queue); \
         try again later"
    )]
    TooManyWait(usize),
    /// Nothing begins any more.
    #[error("the daemon is shutting down; no command begins any more")]
    ShuttingDown,
    /// Its session certainly gets no container.
    #[error(transparent)]
    Refused(#[from] SessionError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Executions {
    /// Waits until the tenant may have one more program, and then for a permit to have one more execution
    /// under way: for each of both at most for `pool.wait`. A call that is held back takes no permit, for
    /// which others wait.
    ///
    /// # Errors
    /// See [`ExecutionError`].
    pub async fn enter(&self, owner: &str, session: &SessionId) -> Result<ExecutionPermit, ExecutionError> {
        self.sessions.admits(owner, session)?;
        let permit = async {
            let credit = self.sessions.may_begin(owner, session).await?;
            let mut permit = self.permits.enter(SessionKey::new(owner, session)).await?;
            permit.credit = credit;
            Ok(permit)
        };
        tokio::select! {
            biased;
            () = self.ending.cancelled() => Err(ExecutionError::ShuttingDown),
            permit = permit => permit,
        }
    }

    /// Begins an execution in the session of its permit. What it writes also goes to `backlog`.
    ///
    /// # Errors
    /// See [`ExecutionError`]; nothing was begun then.
    pub async fn start(
        self: &Arc<Self>,
        permit: ExecutionPermit,
        start: StartRequest,
        backlog: Option<OutputBacklog>,
    ) -> Result<Arc<Execution>, ExecutionError> {
        // From here on `close` waits for this call, and for what it spawns.
        let _beginning = self.tasks.token();
        if self.ending.is_cancelled() {
            return Err(ExecutionError::ShuttingDown);
        }
        let key = permit.session();
        let session = self.sessions.get(key.owner(), key.id()).await?;
        let id = self.new_id();
        let (command, interactive, program) = shown(&start.program);
        let (command, task) = match start.task {
            Some((words, note)) => (words, Some(note)),
            None => (command, None),
        };
        let spec = ExecutionSpec {
            command,
            interactive,
            program,
            timeout: start.timeout,
            started_ms: now_ms(),
            task,
        };
        let stored = StoredExecution { spec: spec.clone(), end: None, conclusion: None };
        let files = session.space.execution_files(&id);
        let log = blocking(move || {
            let file = files.append()?;
            let note = serde_json::to_vec(&stored).unwrap_or_default();
            if let Err(error) = files.write_note(&note) {
                warn!(%error, "the note of an execution could not be written");
            }
            Ok((ExecutionLog::empty(files), file))
        })
        .await?;
        let whose = (session.owner.clone(), session.id.clone());
        let publisher = EventPublisher::new(self.notifications.clone(), id.clone(), whose.clone());
        let cancel = self.ending.child_token();
        let execution = Execution::running(id.clone(), whose, spec, log, publisher, backlog.clone(), cancel);
        let execution = Arc::new(execution);
        self.all().insert(id.clone(), execution.clone());
        let request = RunRequest {
            environment: start.environment,
            directory: start.directory,
            limits: start.limits,
            files: start.files,
            execute: start.execute,
            network: start.network,
            packages: start.packages,
            ..RunRequest::new(id, start.language, start.program, start.timeout)
        };
        let sink = ExecutionSink::new(execution.clone(), backlog, self.links.clone());
        let (this, begun) = (self.clone(), execution.clone());
        let driving = async move { this.drive(&begun, &session, request, sink, permit).await };
        self.tasks.spawn(driving.in_current_span());
        Ok(execution)
    }

    async fn drive(
        &self,
        execution: &Arc<Execution>,
        session: &Arc<Session>,
        request: RunRequest,
        mut sink: ExecutionSink,
        mut permit: ExecutionPermit,
    ) {
        let control: Control = execution.control();
        let kind = self.sessions.turn_for(&request.language, true, request.network.is_some());
        let work = async {
            let turn = tokio::select! {
                biased;
                () = execution.told_to_end() => return Err(SessionError::Cancelled),
                turn = self.sessions.enter(&session.owner, &session.id, kind) => turn?,
            };
            if !Arc::ptr_eq(turn.session(), session) {
                return Err(SessionError::Closed); // it was deleted, and with it the log
            }
            let not_kept = task_diff::keep(execution).await;
            let credit = std::mem::take(&mut permit.credit);
            let executing = self.sessions.runs().execute(&turn, &request, credit, control, &mut sink);
            let report = turn.unless_closed(&execution.cancel, executing).await.0?;
            // Still in its turn.
            let diff = if not_kept.is_some() { not_kept } else { task_diff::make(execution).await };
            Ok((report, diff))
        };
        let conclusion = match work.await {
            Ok((report, diff)) => {
                let mut conclusion = sink.conclusion(&report).await;
                conclusion.end.diff = diff;
                conclusion
            }
            Err(SessionError::Cancelled | SessionError::Closed) => Conclusion::cancelled(),
            Err(error) => {
                let conclusion = Conclusion::error(ExecutionState::Failed, error.to_string(), 0);
                execution.refuse(error);
                conclusion
            }
        };
        drop((permit, sink));
        self.finish(execution, conclusion).await;
    }

    /// It is over.
    pub(super) async fn finish(&self, execution: &Execution, mut conclusion: Conclusion) {
        if conclusion.end.diff.is_none() {
            conclusion.end.diff = task_diff::make(execution).await;
        }
        execution.finish(conclusion).await;
        task_diff::forget(execution).await;
        self.remove_expired().await;
    }
}

/// How a program is shown, whether it reads what is sent, and its name if no shell starts it.
fn shown(program: &Program) -> (String, bool, Option<String>) {
    match program {
        Program::Command { command, interactive } => (command.clone(), *interactive, None),
        Program::Direct { argv, .. } => (argv.join(" "), false, argv.first().cloned()),
        Program::Code { code, .. } => (String::from_utf8_lossy(code).into_owned(), false, None),
    }
}
