//! The beginning of an execution, and its life up to its end.
//!
//! It must never run anything that has no record to be heard by.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use paddock_proto::FilePolicy;
use paddock_proto::message::RunLimits;
use tracing::Instrument;

use super::Executions;
use super::about::{About, State, now_ms};
use super::ending::Ending;
use super::execution::Execution;
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
    /// As many are under way as may be.
    #[error(
        "{0} executions are under way, which is the most at one time (exec.max, SANDBOX_MAX_CONCURRENT); try again when one has ended"
    )]
    TooMany(usize),
    /// As many of this session are.
    #[error(
        "{0} executions of this session are under way, which is the most at one time (exec.per_session, SANDBOX_MAX_PER_SESSION); wait for one \
         to end, or cancel one"
    )]
    TooManyOfSession(usize),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

type Running = Arc<Mutex<HashMap<(String, SessionId), usize>>>;

/// A place among those that may be under way.
pub(super) struct Place {
    running: Running,
    whose: (String, SessionId),
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = running.get_mut(&self.whose) {
            *count -= 1;
            if *count == 0 {
                running.remove(&self.whose);
            }
        }
    }
}

impl Executions {
    fn take_place(&self, owner: &str, session: &SessionId) -> Result<Place, StartError> {
        let whose = (owner.to_owned(), session.clone());
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let (all, of_session) = (running.values().sum::<usize>(), running.get(&whose).copied().unwrap_or(0));
        if of_session >= self.bounds.per_session {
            return Err(StartError::TooManyOfSession(of_session));
        }
        if all >= self.bounds.max {
            return Err(StartError::TooMany(all));
        }
        running.insert(whose.clone(), of_session + 1);
        Ok(Place { running: self.running.clone(), whose })
    }

    /// A place for one that runs already, however many there are.
    pub(super) fn place_of(&self, whose: (String, SessionId)) -> Place {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        *running.entry(whose.clone()).or_default() += 1;
        Place { running: self.running.clone(), whose }
    }

    /// Begins an execution in a session.
    ///
    /// # Errors
    /// See [`StartError`]; nothing was begun then.
    pub async fn start(
        self: &Arc<Self>,
        owner: &str,
        session: &SessionId,
        start: Start,
    ) -> Result<Arc<Execution>, StartError> {
        let place = self.take_place(owner, session)?;
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
