//! What becomes of runs, told to whoever watches: a note when one begins, and one when it has ended.
//!
//! It must never tell one owner of another's runs, nor wait for someone who watches.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::sync::broadcast;

use super::run::status;
use crate::session::{RunReport, RunRequest, SessionError, SessionId};

/// Notes that wait for a slow watcher; it is told how many it missed.
const WAITING: usize = 256;

/// One note.
#[derive(Debug, Clone)]
pub struct Note {
    /// Whose run it is: the name of a token.
    pub owner: Arc<str>,
    /// `{run_id, session_id, conversationId, language, status, …}`; at the end also `exit_code` and `duration_ms`, or
    /// `message` where no code ran.
    pub run: Value,
}

/// All notes.
pub struct News(broadcast::Sender<Note>);

impl Default for News {
    fn default() -> Self {
        Self(broadcast::Sender::new(WAITING))
    }
}

impl News {
    /// What is told from now on.
    pub fn watch(&self) -> broadcast::Receiver<Note> {
        self.0.subscribe()
    }

    pub(super) fn begun(&self, owner: &str, session: &SessionId, run: &RunRequest) {
        self.tell(owner, session, run, json!({ "status": "running" }));
    }

    pub(super) fn ended(
        &self,
        owner: &str,
        session: &SessionId,
        run: &RunRequest,
        ended: Result<&RunReport, &SessionError>,
    ) {
        let more = match ended {
            Ok(report) => json!({
                "status": status(report),
                "exit_code": report.end.exit_code(),
                "duration_ms": u64::try_from(report.duration.as_millis()).unwrap_or(u64::MAX),
            }),
            Err(error) => json!({ "status": "failed", "message": error.to_string() }),
        };
        self.tell(owner, session, run, more);
    }

    fn tell(&self, owner: &str, session: &SessionId, run: &RunRequest, more: Value) {
        if self.0.receiver_count() == 0 {
            return;
        }
        let mut note = json!({
            "run_id": run.id, "session_id": session.as_str(), "conversationId": session.as_str(), "language": run.language,
        });
        if let (Value::Object(note), Value::Object(more)) = (&mut note, more) {
            note.extend(more);
        }
        let _ = self.0.send(Note { owner: owner.into(), run: note }); // the last watcher may just have gone
    }
}
