//! After a restart: what earlier daemons kept can be read again, and what is under way is heard to its end.
//!
//! It must never call one lost that can be heard, nor tell its last events twice.

use std::collections::HashMap;
use std::sync::Arc;

use tracing::{info, warn};

use super::Executions;
use super::about::{Kept, State};
use super::ending::Ending;
use super::execution::Execution;
use super::recorder::{Deaf, Recorder};
use super::recording::Recording;
use crate::session::{Control, Flying, Session};
use crate::store::{Store, StoreError, blocking};

const LOST: &str = "the daemon was restarted, and the container is gone: what the program did is unknown";

const NOT_BEGUN: &str =
    "the daemon was restarted before the command began, and nothing of it ran; start it again";

impl Executions {
    /// Takes over what an earlier daemon kept, and `flying`, which it had begun. To be called once, before anything is served.
    ///
    /// # Errors
    /// The store's, of itself; an execution that cannot be read is left out, with a warning.
    pub async fn recover(self: &Arc<Self>, store: &Store, flying: Vec<Flying>) -> Result<(), StoreError> {
        let mut flying: HashMap<String, Flying> =
            flying.into_iter().map(|run| (run.id().to_owned(), run)).collect();
        for stored in store.stored().await? {
            if !store.has_recordings(&stored.owner, &stored.session) {
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
            for (id, note) in session.space.recordings() {
                if let Err(error) = self.take_over(&session, &id, &note, flying.remove(&id)).await {
                    warn!(execution_id = id, %error, "an execution of an earlier daemon cannot be read");
                }
            }
        }
        // Nobody can read of these any more: they are heard to their ends, and that is all.
        for (id, flying) in flying {
            warn!(execution_id = id, "an execution of an earlier daemon is in no record");
            self.hear_deaf(flying);
        }
        Ok(())
    }

    async fn take_over(
        self: &Arc<Self>,
        session: &Arc<Session>,
        id: &str,
        note: &[u8],
        flying: Option<Flying>,
    ) -> Result<(), StoreError> {
        let what = || format!("what is noted of the execution {id} is not to be read");
        let Kept { about, end, heard } =
            serde_json::from_slice(note).map_err(|error| StoreError::io(what())(error.into()))?;
        let whose = (session.owner.clone(), session.id.clone());
        if end.is_some() {
            // Its agent need not have heard that it was heard.
            flying.into_iter().for_each(|flying| self.hear_deaf(flying));
            let execution = Execution::new(id.to_owned(), whose, about, session.space.clone(), None, end);
            self.all().insert(id.to_owned(), Arc::new(execution));
            return Ok(());
        }
        let (space, name) = (session.space.clone(), id.to_owned());
        let recording = blocking(move || Recording::load(&space, &name, true)).await?;
        let is_told = recording.has_ended();
        let execution =
            Execution::new(id.to_owned(), whose.clone(), about, session.space.clone(), Some(recording), None);
        let execution = Arc::new(execution);
        self.all().insert(id.to_owned(), execution.clone());
        match (flying, heard) {
            (Some(flying), _) if !is_told => {
                let (this, control) = (self.clone(), execution.control());
                let place = self.places.of_running(whose);
                let session = session.clone();
                self.tasks.spawn(async move {
                    let mut recorder = Recorder::new(execution.clone(), this.teller.clone());
                    let hearing = this.sessions.hear_on(flying, control, &mut recorder);
                    let (heard, _) = session.unless_closed(&execution.cancel, hearing).await;
                    let ending = match heard {
                        Ok(report) => recorder.ending(&report),
                        Err(error) => Ending::error(State::Lost, error.to_string(), 0),
                    };
                    info!(execution_id = execution.id, "an execution of an earlier daemon ended");
                    drop(place);
                    this.finish(&execution, ending);
                });
            }
            (flying, heard) => {
                flying.into_iter().for_each(|flying| self.hear_deaf(flying));
                let begun = execution.progress().borrow().last > 0;
                let mut ending = heard.unwrap_or_else(|| match begun {
                    true => Ending::error(State::Lost, LOST.to_owned(), 0),
                    false => Ending::error(State::Failed, NOT_BEGUN.to_owned(), 0),
                });
                if is_told {
                    ending.marks.clear();
                }
                self.finish(&execution, ending);
            }
        }
        Ok(())
    }

    /// Hears one to its end for its session's sake: its files are saved.
    fn hear_deaf(self: &Arc<Self>, flying: Flying) {
        let this = self.clone();
        self.tasks.spawn(async move {
            let (id, session) = (flying.id().to_owned(), flying.session().clone());
            let cancel = this.ending.child_token();
            let mut deaf = Deaf;
            let hearing = this.sessions.hear_on(flying, Control::end_only(&cancel), &mut deaf);
            if let (Err(error), _) = session.unless_closed(&cancel, hearing).await {
                warn!(execution_id = id, %error, "an execution of an earlier daemon could not be heard");
            }
        });
    }
}
