//! What becomes of runs: noted for people who look on, and told to whoever watches; a note when one begins, and one when
//! it has ended.

use std::time::SystemTime;

use serde_json::{Value, json};

use super::Tools;
use super::run::status;
use crate::recent::Ran;
use crate::session::{RunReport, RunRequest, Session, SessionError};

/// The notification: `{run_id, session_id, conversationId, language, status, …}`; at the end also `exit_code` and
/// `duration_ms`, or `message` where no code ran.
const METHOD: &str = "notifications/run";

/// How a run is said to stand while it runs.
const RUNNING: &str = "running";
/// How one is said to stand that could not begin.
const FAILED: &str = "failed";

pub(super) fn begun(tools: &Tools, session: &Session, run: &RunRequest) {
    let ran = Ran {
        id: run.id.clone(),
        session: session.id.as_str().to_owned(),
        language: run.language.clone(),
        began: SystemTime::now(),
        status: RUNNING,
        exit_code: None,
        took: None,
    };
    tools.recent.begun(&session.owner, ran);
    tools.feed.tell(&session.owner, METHOD, || note(session, run, json!({ "status": RUNNING })));
}

pub(super) fn ended(
    tools: &Tools,
    session: &Session,
    run: &RunRequest,
    ended: Result<&RunReport, &SessionError>,
) {
    let (status, exit_code, took) = match ended {
        Ok(report) => (status(report), Some(report.end.exit_code()), Some(report.duration)),
        Err(_) => (FAILED, None, None),
    };
    tools.recent.ended(&session.owner, &run.id, status, exit_code, took);
    tools.feed.tell(&session.owner, METHOD, || {
        let more = match ended {
            Ok(report) => json!({
                "status": status,
                "exit_code": exit_code,
                "duration_ms": u64::try_from(report.duration.as_millis()).unwrap_or(u64::MAX),
            }),
            Err(error) => json!({ "status": status, "message": error.to_string() }),
        };
        note(session, run, more)
    });
}

fn note(session: &Session, run: &RunRequest, more: Value) -> Value {
    let id = session.id.as_str();
    let mut note =
        json!({ "run_id": run.id, "session_id": id, "conversationId": id, "language": run.language });
    if let (Value::Object(note), Value::Object(more)) = (&mut note, more) {
        note.extend(more);
    }
    note
}
