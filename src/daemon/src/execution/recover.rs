//! After a restart: executions of earlier daemons can be read again, and those under way are followed to
//! their ends.
//!
//! It must never call an execution lost that can be followed, nor tell its last events twice.

use std::collections::HashMap;
use std::sync::Arc;

use tracing::{info, warn};

use super::Executions;
use super::end::{Conclusion, ExecutionState};
use super::handle::Execution;
use super::log::ExecutionLog;
use super::publish::EventPublisher;
use super::sink::{DiscardSink, ExecutionSink};
use super::stored::StoredExecution;
use crate::session::{Control, ResumableRun, Session, SessionKey};
use crate::store::{Store, StoreError, blocking};

const LOST: &str = "the daemon was restarted, and the container is gone: what the program did is unknown";

const NOT_BEGUN: &str =
    "the daemon was restarted before the command began, and nothing of it ran; start it again";

impl Executions {
    /// Takes over the executions of earlier daemons, and `flying`, whose programs are under way. To be called
    /// once, before anything is served.
    ///
    /// # Errors
    /// The store's, of itself; an execution that cannot be read is left out, with a warning.
    pub async fn recover(
        self: &Arc<Self>,
        store: &Store,
        flying: Vec<ResumableRun>,
    ) -> Result<(), StoreError> {
        let mut flying: HashMap<String, ResumableRun> =
            flying.into_iter().map(|run| (run.id().to_owned(), run)).collect();
        for stored in store.stored().await? {
            if !store.has_executions(&stored.owner, &stored.session) {
                continue;
            }
            let Ok(id) = stored.session.parse() else { continue };
            let session = match self.sessions.get(&stored.owner, &id).await {
                Ok(session) => session,
                Err(error) => {
                    warn!(session_id = %id, %error, "executions of a session cannot be read");
                    continue;
                }
            };
            for (id, note) in session.space.executions() {
                let mut run = flying.remove(&id);
                if let Err(error) = self.take_over(&session, &id, &note, &mut run).await {
                    warn!(execution_id = id, %error, "an execution of an earlier daemon cannot be read");
                }
                run.into_iter().for_each(|run| self.discard(run));
            }
        }
        // Nobody can read these any more: they are followed to their ends, and that is all.
        for (id, flying) in flying {
            warn!(execution_id = id, "an execution of an earlier daemon has no log");
            self.discard(flying);
        }
        Ok(())
    }

    /// Takes over one execution. Leaves `flying` where it is if nobody can read what the program writes.
    async fn take_over(
        self: &Arc<Self>,
        session: &Arc<Session>,
        id: &str,
        note: &[u8],
        flying: &mut Option<ResumableRun>,
    ) -> Result<(), StoreError> {
        let what = || format!("what is noted of the execution {id} is not to be read");
        let StoredExecution { spec, end, conclusion } =
            serde_json::from_slice(note).map_err(|error| StoreError::io(what())(error.into()))?;
        let whose = (session.owner.clone(), session.id.clone());
        let files = session.space.execution_files(id);
        if let Some(end) = end {
            files.forget_before(); // the daemon before was killed between the two
            // Its agent need not know yet that its end was acknowledged: `flying` can be left.
            let log = ExecutionLog::unloaded(files);
            let execution = Execution::over_before(id.to_owned(), whose, spec, log, end);
            self.all().insert(id.to_owned(), Arc::new(execution));
            return Ok(());
        }
        let log = blocking(move || ExecutionLog::resumed(files)).await?;
        let is_told = log.0.has_ended();
        let publisher = EventPublisher::new(self.notifications.clone(), id.to_owned(), whose.clone());
        let cancel = self.ending.child_token();
        let execution = Execution::running(id.to_owned(), whose, spec, log, publisher, None, cancel);
        let execution = Arc::new(execution);
        self.all().insert(id.to_owned(), execution.clone());
        let followed = if is_told { None } else { flying.take() };
        match (followed, conclusion) {
            (Some(flying), _) => {
                let (this, control) = (self.clone(), execution.control());
                let permit = self.permits.of_running(SessionKey::new(&session.owner, &session.id));
                self.tasks.spawn(async move {
                    let mut sink = ExecutionSink::new(execution.clone(), None, this.links.clone());
                    let following = flying.follow(&this.sessions, &execution.cancel, control, &mut sink);
                    let conclusion = match following.await {
                        Ok(report) => sink.conclusion(&report).await,
                        Err(error) => Conclusion::error(ExecutionState::Lost, error.to_string(), 0),
                    };
                    info!(execution_id = execution.id, "an execution of an earlier daemon ended");
                    drop((permit, sink));
                    this.finish(&execution, conclusion).await;
                });
            }
            (None, conclusion) => {
                let begun = execution.last_event() > 0;
                let mut conclusion = conclusion.unwrap_or_else(|| match begun {
                    true => Conclusion::error(ExecutionState::Lost, LOST.to_owned(), 0),
                    false => Conclusion::error(ExecutionState::Failed, NOT_BEGUN.to_owned(), 0),
                });
                if is_told {
                    conclusion.steps.clear();
                }
                if execution.spec.task.is_some() {
                    // Its diff can take seconds, in which the daemon can serve already.
                    let this = self.clone();
                    self.tasks.spawn(async move { this.finish(&execution, conclusion).await });
                } else {
                    self.finish(&execution, conclusion).await;
                }
            }
        }
        Ok(())
    }

    /// Follows a program to its end for its session's sake: its files are saved, its output is discarded.
    fn discard(self: &Arc<Self>, flying: ResumableRun) {
        let this = self.clone();
        self.tasks.spawn(async move {
            let (id, cancel) = (flying.id().to_owned(), this.ending.child_token());
            let control = Control::end_only(&cancel);
            if let Err(error) = flying.follow(&this.sessions, &cancel, control, &mut DiscardSink).await {
                warn!(execution_id = id, %error, "an execution of an earlier daemon could not be followed");
            }
        });
    }
}
