//! What becomes of runs, told to whoever watches: a note when one begins, and one when it has ended.

use serde_json::{Value, json};

use super::run::status;
use crate::feed::Feed;
use crate::session::{RunReport, RunRequest, SessionError, SessionId};

/// The notification: `{run_id, session_id, conversationId, language, status, …}`; at the end also `exit_code` and
/// `duration_ms`, or `message` where no code ran.
const METHOD: &str = "notifications/run";

pub(super) fn begun(feed: &Feed, owner: &str, session: &SessionId, run: &RunRequest) {
    feed.tell(owner, METHOD, || note(session, run, json!({ "status": "running" })));
}

pub(super) fn ended(
    feed: &Feed,
    owner: &str,
    session: &SessionId,
    run: &RunRequest,
    ended: Result<&RunReport, &SessionError>,
) {
    feed.tell(owner, METHOD, || {
        let more = match ended {
            Ok(report) => json!({
                "status": status(report),
                "exit_code": report.end.exit_code(),
                "duration_ms": u64::try_from(report.duration.as_millis()).unwrap_or(u64::MAX),
            }),
            Err(error) => json!({ "status": "failed", "message": error.to_string() }),
        };
        note(session, run, more)
    });
}

fn note(session: &SessionId, run: &RunRequest, more: Value) -> Value {
    let mut note = json!({
        "run_id": run.id, "session_id": session.as_str(), "conversationId": session.as_str(), "language": run.language,
    });
    if let (Value::Object(note), Value::Object(more)) = (&mut note, more) {
        note.extend(more);
    }
    note
}
