//! Notes each run in the history and notifies the clients that subscribe: when it begins, of what it writes
//! meanwhile, and when it has ended.
//!
//! A program never waits for a subscriber: one that writes faster than [`PACE`] lets notifications out loses
//! the middle of its output there, and its answer has it.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures_util::FutureExt;
use paddock_proto::OutputStream;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::run_history::{PastRun, title};
use crate::services::Services;
use crate::session::{
    OutputBacklog, OutputFollower, OutputPiece, Pace, Program, RunReport, RunRequest, Session, SessionError,
};
use crate::tools::answer::status;

/// The notification: `{run_id, session_id, conversationId, language, status, …}`; of output also `events`; at
/// the end also `exit_code` and `duration_ms`, or `message` where no code ran.
const METHOD: &str = "notifications/run";

/// The pause between two notifications of one run's output: what is written meanwhile comes together.
const PACE: Duration = Duration::from_millis(100);

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

/// Notifies of what a run writes, until it is finished.
pub(super) struct OutputNotes {
    task: JoinHandle<()>,
    over: CancellationToken,
}

/// Notifies subscribers of what this run writes to the backlog; `None` if nobody subscribes.
pub(super) fn output(
    services: &Arc<Services>,
    session: &Arc<Session>,
    run: &RunRequest,
    backlog: &mut Option<OutputBacklog>,
) -> Option<OutputNotes> {
    if !services.notifications.has_subscribers(&session.owner) {
        return None;
    }
    let follower = backlog.get_or_insert_default().follow(Pace::Lossy);
    let over = CancellationToken::new();
    let (services, session, over_too) = (services.clone(), session.clone(), over.clone());
    let named = note(&session, run, json!({ "status": RUNNING }));
    let task = tokio::spawn(async move {
        follow(follower, &over_too, |piece| {
            services.notifications.notify(&session.owner, METHOD, || {
                let mut note = named.clone();
                note["events"] = json!([event(&piece)]);
                note
            });
        })
        .await;
    });
    Some(OutputNotes { task, over })
}

impl OutputNotes {
    /// Notifies of the last output, of a run that has ended.
    pub(super) async fn finish(self) {
        self.over.cancel();
        let _ = self.task.await;
    }
}

/// Passes pieces on, [`PACE`] apart, and what is left once the run is over.
async fn follow(mut follower: OutputFollower, over: &CancellationToken, tell: impl Fn(OutputPiece)) {
    while let Some(Some(piece)) = over.run_until_cancelled(follower.next()).await {
        tell(piece);
        let _ = over.run_until_cancelled(tokio::time::sleep(PACE)).await;
    }
    while let Some(Some(piece)) = follower.next().now_or_never() {
        tell(piece);
    }
}

/// As `notifications/execution` has it.
fn event(piece: &OutputPiece) -> Value {
    let kind = match piece.stream {
        Some(OutputStream::Stdout) => "stdout",
        Some(OutputStream::Stderr) => "stderr",
        None => "missed",
    };
    json!({ "type": kind, "data": piece.text })
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

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_flood_is_told_in_pieces_with_a_pause_and_its_end_is_told_at_once() {
        let backlog = OutputBacklog::default();
        let over = CancellationToken::new();
        let told = Mutex::new(Vec::new());
        let began = tokio::time::Instant::now();
        let following = follow(backlog.follow(Pace::Lossy), &over, |piece| {
            told.lock().unwrap().push((began.elapsed(), event(&piece)));
        });
        let writing = async {
            backlog.append(OutputStream::Stdout, b"first\n");
            tokio::time::sleep(PACE / 4).await;
            backlog.append(OutputStream::Stdout, b"second\n");
            tokio::time::sleep(PACE / 4).await;
            backlog.append(OutputStream::Stdout, b"third\n");
            tokio::time::sleep(PACE).await;
            for _ in 0..100 {
                backlog.append(OutputStream::Stderr, &[b'x'; 10_000]);
            }
            backlog.append(OutputStream::Stdout, b"last\n");
            over.cancel();
        };
        tokio::join!(following, writing);
        let told = told.into_inner().unwrap();
        let event = |n: usize| (told[n].1["type"].as_str().unwrap(), told[n].1["data"].as_str().unwrap());
        assert_eq!(event(0), ("stdout", "first\n"));
        assert_eq!((told[1].0, event(1)), (PACE, ("stdout", "second\nthird\n")));
        assert_eq!(event(2).0, "missed");
        assert_eq!(event(told.len() - 1), ("stdout", "last\n"));
        let sizes: usize = told.iter().map(|(_, event)| event["data"].as_str().unwrap().len()).sum();
        assert!(sizes < 70_000, "{sizes}");
        assert!(told.len() < 8 && told[told.len() - 1].0 < PACE * 2, "{told:?}");
    }
}
