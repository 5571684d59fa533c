//! The document of a run's answer: one for every reader.

use paddock_ledger::LedgerError;
use paddock_proto::message::Limit;
use serde_json::{Map, Value, json};

use super::artifacts::{LISTED, put_if};
use super::explanation::{EndExplanation, explanation};
use super::hint::{HINT_READS, hint};
use crate::session::{CapturedOutput, CapturedStream, RunEnd, RunReport, RunRequest, Session, Unsaved};
use crate::sign::SignedTarget;
use crate::store::StoreError;
use crate::tools::fault::Failure;
use crate::tools::{Code, Tools};

/// Paths that were not saved that one answer lists.
const NOT_SAVED: usize = 20;

/// The status of a run after its end, in one word.
pub(in crate::tools) fn status(report: &RunReport) -> &'static str {
    match (&report.end, report.end.limit()) {
        (RunEnd::Lost(_), _) => "lost",
        (RunEnd::Ended { .. }, Some(Limit::Wall)) => "timeout",
        (RunEnd::Ended { .. }, Some(Limit::Cancelled)) => "cancelled",
        (RunEnd::Ended { .. }, Some(_)) => "failed",
        (RunEnd::Ended { .. }, None) if report.end.exit_code() == 0 => "completed",
        (RunEnd::Ended { .. }, None) => "failed",
    }
}

/// Marks the document of a run whose files could not be saved as a failure, whatever the program said itself.
pub(in crate::tools) fn put_unsaved(document: &mut Map<String, Value>, unsaved: Unsaved) {
    let fate = match &unsaved.error {
        StoreError::Pending(_) | StoreError::Ledger(LedgerError::Unsettled(_)) => {
            "The program ran.".to_owned()
        }
        StoreError::InUse(_)
        | StoreError::Newer { .. }
        | StoreError::Full(_)
        | StoreError::Quota { .. }
        | StoreError::Unwritable(_)
        | StoreError::Gone
        | StoreError::Ledger(_)
        | StoreError::Io { .. } => {
            let fate = unsaved.fate();
            format!("The program ran, but the files that it made or changed are not saved; {fate}.")
        }
    };
    let (code, why) = match Failure::from(unsaved.error) {
        Failure::Fault(fault) => (fault.code, fault.message),
        Failure::Call(error) => (Code::QuotaExceeded, error.to_string()),
    };
    document.insert("success".into(), json!(false));
    document.insert("error".into(), json!(code.as_str()));
    document.insert("message".into(), json!(format!("{why}. {fate}")));
}

/// The document of a run's answer.
pub(in crate::tools) fn run_document(
    tools: &Tools,
    session: &Session,
    run: &RunRequest,
    report: &RunReport,
    captured: &CapturedOutput,
) -> Map<String, Value> {
    let id = session.id.as_str();
    let exit_code = report.end.exit_code();
    let explanation = explanation(tools, run, &report.end);
    let message = explanation.as_ref().map(|explanation| explanation.message.as_str());
    let stdout = captured.stdout.excerpt(tools.limits.output);
    let stderr = captured.stderr.excerpt(tools.limits.output);
    let network = tools.network_of(run.network.is_some());
    let errors = captured.stderr.end(HINT_READS);
    let packages = tools.takes_packages(&run.language);
    let hint = hint(&errors, exit_code != 0, network, packages);
    let hint = tools.with_libraries(hint, &errors, exit_code != 0, &run.language);
    let (files, files_truncated) = tools.files(session);
    let artifacts: Vec<Value> =
        report.changed.iter().take(LISTED).map(|entry| tools.artifact(session, entry)).collect();
    let mut document = Map::new();
    let mut put = |key: &str, value: Value| document.insert(key.to_owned(), value);
    put("success", json!(exit_code == 0));
    put("output", json!(combined(captured, message, tools.limits.shown)));
    put("stdout", json!(stdout.text));
    put("stderr", json!(followed_by(stderr.text, message)));
    put("stdout_truncated", json!(stdout.truncated));
    put("stderr_truncated", json!(stderr.truncated));
    put("exit_code", json!(exit_code));
    put("files", json!(files));
    put("artifacts", json!(artifacts));
    put("session_id", json!(id));
    put("conversationId", json!(id));
    put("run_id", json!(report.run_id));
    put("language", json!(run.language));
    put("duration_ms", json!(u64::try_from(report.duration.as_millis()).unwrap_or(u64::MAX)));
    if captured.logged {
        let log = SignedTarget::Log(&report.run_id);
        put("log_url", json!(tools.services.signer.link(&session.owner, id, log)));
    }
    if !report.not_saved.is_empty() {
        put("not_saved", not_saved(&report.not_saved));
    }
    if run.network.is_some() {
        put("network", json!(report.network));
    }
    if let Some(models) = &report.models {
        put("models", json!(models));
    }
    if let Some(packages) = &run.packages {
        put("packages", json!(packages.locked));
    }
    if let Some(hint) = hint {
        put("hint", json!(hint));
    }
    if let Some(EndExplanation { message, limit, error }) = explanation {
        put("message", json!(message));
        if let Some(limit) = limit {
            put("limit", json!(limit));
        }
        if let Some(error) = error {
            put("error", json!(error.as_str()));
        }
    }
    let timed_out = matches!(report.end, RunEnd::Ended { limit: Some(Limit::Wall), .. });
    put_if(&mut document, "timed_out", timed_out);
    put_if(&mut document, "files_truncated", files_truncated);
    put_if(&mut document, "artifacts_truncated", report.changed.len() > LISTED);
    put_if(&mut document, "stdout_lossy", stdout.lossy);
    put_if(&mut document, "stderr_lossy", stderr.lossy);
    document
}

/// Standard output, then standard error, in the bytes that a model reads; of two long streams each gets half.
fn combined(captured: &CapturedOutput, message: Option<&str>, shown: usize) -> String {
    let taken = |output: &CapturedStream| usize::try_from(output.bytes()).unwrap_or(usize::MAX);
    let (out, err) = (taken(&captured.stdout), taken(&captured.stderr));
    let half = shown / 2;
    let stdout = captured.stdout.excerpt(shown - err.min(half)).text;
    let stderr = followed_by(captured.stderr.excerpt(shown - out.min(shown - half)).text, message);
    match (stdout.is_empty(), stderr.is_empty()) {
        (_, true) => stdout,
        (true, false) => stderr,
        (false, false) => format!("{stdout}\n{stderr}"),
    }
}

/// What a program wrote to standard error, with the explanation of its end on a line of its own.
fn followed_by(mut stderr: String, message: Option<&str>) -> String {
    if let Some(message) = message {
        if !stderr.is_empty() && !stderr.ends_with('\n') {
            stderr.push('\n');
        }
        stderr.push_str(message);
    }
    stderr
}

/// `[{path, reason}]` of the first [`NOT_SAVED`] paths.
pub(super) fn not_saved(all: &[(Vec<u8>, &'static str)]) -> Value {
    let shown = all.iter().take(NOT_SAVED).map(|(path, reason)| {
        json!({ "path": format!("/mnt/data/{}", String::from_utf8_lossy(path)), "reason": reason })
    });
    Value::Array(shown.collect())
}
