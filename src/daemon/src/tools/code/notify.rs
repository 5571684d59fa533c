//! Notes each run in the history and notifies the clients that subscribe: once when it begins, once when it
//! has ended.

use std::time::SystemTime;

use serde_json::{Value, json};

use crate::run_history::{PastRun, title};
use crate::services::Services;
use crate::session::{Program, RunReport, RunRequest, Session, SessionError};
use crate::tools::answer::status;

/// The notification: `{run_id, session_id, conversationId, language, status, …}`; at the end also `exit_code`
/// and `duration_ms`, or `message` where no code ran.
const METHOD: &str = "notifications/run";

/// Bytes of the code in which its title is looked for.
const BEGINNING: usize = 4096;

/// The status of a run that has not ended.
const RUNNING: &str = "running";
/// The status of a run that could not begin.
const FAILED: &str = "failed";

/// A run begins.
pub(super) fn begun(services: &Services, session: &Session, run: &RunRequest) {
    let run_now = PastRun {
        id: run.id.clone(),
        session: session.id.as_str().to_owned(),
        language: run.language.clone(),
        title: match &run.program {
            Program::Code { code, .. } => title(&String::from_utf8_lossy(&code[..code.len().min(BEGINNING)])),
            Program::Command { command, .. } => title(command),
            Program::Direct { argv, .. } => title(argv.first().map_or("", String::as_str)),
        },
        began: SystemTime::now(),
        status: RUNNING,
        exit_code: None,
        took: None,
    };
    services.run_history.begun(&session.owner, run_now);
    services
        .notifications
        .notify(&session.owner, METHOD, || note(session, run, json!({ "status": RUNNING })));
}

/// A run ended, or could not begin.
pub(super) fn ended(
    services: &Services,
    session: &Session,
    run: &RunRequest,
    ended: Result<&RunReport, &SessionError>,
) {
    let (status, exit_code, took) = match ended {
        Ok(report) => (status(report), Some(report.end.exit_code()), Some(report.duration)),
        Err(_) => (FAILED, None, None),
    };
    services.run_history.ended(&session.owner, &run.id, status, exit_code, took);
    services.notifications.notify(&session.owner, METHOD, || {
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
