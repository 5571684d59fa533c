//! The beginning of an execution, and its life up to its end.
//!
//! It must never run anything that has no record to be heard by.

use std::sync::Arc;
use std::time::Duration;

use paddock_proto::FilePolicy;
use paddock_proto::message::RunLimits;
use tracing::Instrument;

use super::Executions;
use super::about::{About, State, now_ms};
use super::ending::Ending;
use super::execution::Execution;
use super::places::Place;
use super::recorder::Recorder;
use super::recording::Recording;
use crate::session::{Control, Program, RunRequest, Session, SessionError, SessionId};
use crate::store::{StoreError, blocking};

/// A command to run; every value was checked.
#[derive(Debug)]
pub struct Start {
    /// For the shell.
    pub command: String,
    /// Whose image and container it runs in.
    pub language: String,
    /// Whether it reads what is sent.
    pub interactive: bool,
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
}

/// Why there is no execution.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// As many were under way as may be, for as long as a call may wait.
    #[error(
        "{running} executions are under way, which is the most at one time (exec.max, SANDBOX_MAX_CONCURRENT), and none ended \
         within the {} s that a call may wait (pool.wait); try again when one has ended",
        wait.as_secs_f64()
    )]
    TooMany {
        /// How many are.
        running: usize,
        /// How long the call waited.
        wait: Duration,
    },
    /// As many of this session were.
    #[error(
        "{running} executions of this session are under way, which is the most at one time (exec.per_session, \
         SANDBOX_MAX_PER_SESSION), and none ended within the {} s that a call may wait (pool.wait); wait for one to end, or \
         cancel one",
        wait.as_secs_f64()
    )]
    TooManyOfSession {
        /// How many are.
        running: usize,
        /// How long the call waited.
        wait: Duration,
    },
    /// As many calls wait for a place as may wait.
    #[error(
        "{0} calls wait already for an execution to end, which is the most at one time (pool.queue); try again later"
    )]
    TooManyWait(usize),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Executions {
    /// Waits for a place among those that may be under way, at most for `pool.wait`.
    ///
    /// # Errors
    /// See [`StartError`].
    pub async fn enter(&self, owner: &str, session: &SessionId) -> Result<Place, StartError> {
        self.places.enter((owner.to_owned(), session.clone())).await
    }

    /// Begins an execution in the session of its place.
    ///
    /// # Errors
    /// See [`StartError`]; nothing was begun then.
    pub async fn start(self: &Arc<Self>, place: Place, start: Start) -> Result<Arc<Execution>, StartError> {
        let (owner, session) = place.whose();
        let session = self.sessions.get(owner, session).await?;
        let id = uuid::Uuid::new_v4().to_string();
        let about = About {
            command: start.command.clone(),
            interactive: start.interactive,
            timeout: start.timeout,
            started_ms: now_ms(),
        };
        let (space, name) = (session.space.clone(), id.clone());
        let recording = blocking(move || Recording::begin(&space, &name)).await?;
        let whose = (session.owner.clone(), session.id.clone());
        let execution =
            Arc::new(Execution::new(id.clone(), whose, about, session.space.clone(), Some(recording), None));
        execution.note(None, None);
        self.all().insert(id.clone(), execution.clone());
        let request = RunRequest {
            environment: start.environment,
            directory: start.directory,
            limits: start.limits,
            files: start.files,
            ..RunRequest::new(
                id,
                start.language,
                Program::Command { command: start.command, interactive: start.interactive },
                start.timeout,
            )
        };
        let (this, begun, control) = (self.clone(), execution.clone(), execution.control());
        let driving = async move { this.drive(&begun, &session, request, control, place).await };
        self.tasks.spawn(driving.in_current_span());
        Ok(execution)
    }

    async fn drive(
        &self,
        execution: &Arc<Execution>,
        session: &Arc<Session>,
        request: RunRequest,
        control: Control,
        place: Place,
    ) {
        let mut recorder = Recorder::new(execution.clone(), self.teller.clone());
        let work = async {
            let turn = tokio::select! {
                biased;
                () = execution.told_to_end() => return Err(SessionError::Cancelled),
                turn = self.sessions.place(session, &request.language) => turn?,
            };
            self.sessions.execute(&turn, &request, control, &mut recorder).await
        };
        let (ran, _) = session.unless_closed(&execution.cancel, work).await;
        let ending = match ran {
            Ok(report) => recorder.ending(&report),
            Err(SessionError::Cancelled | SessionError::Closed) => Ending::cancelled(),
            Err(error) => {
                let ending = Ending::error(State::Failed, error.to_string(), 0);
                execution.refuse(error);
                ending
            }
        };
        drop(place);
        self.finish(execution, ending);
    }

    /// It is over.
    pub(super) fn finish(&self, execution: &Execution, ending: Ending) {
        let wanted = self.teller.is_wanted(execution);
        let told = execution.finish(ending.marks, ending.end, wanted);
        self.teller.tell(execution, &told);
        self.tidy();
    }
}
