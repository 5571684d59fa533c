//! What came of a task, as its answer says it: `execute_task` when it ends or when nobody waits any longer,
//! and `get_sandbox_status` at any time.
//!
//! `files_created` lists the files that the task made or changed, `diff_url` leads to what it changed in
//! them, and `log_url` to what its agent wrote. This module must never list a file that is not saved.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::progress::TaskLog;
use crate::agents::Transcript;
use crate::diff::DiffSummary;
use crate::execution::{Execution, ExecutionEnd, ExecutionState, TaskDiff};
use crate::session::excerpt;
use crate::sign::SignedTarget;
use crate::tools::Tools;
use crate::tools::fault::Failure;

/// The whole answer about a task.
pub(super) async fn document(
    tools: &Tools,
    execution: &Arc<Execution>,
) -> Result<Map<String, Value>, Failure> {
    let mut log = TaskLog::of(execution);
    let end = execution.end();
    log.read_on(execution, |_| {}).await?;
    let transcript = &log.transcript;
    let mut document = Map::new();
    let mut put = |key: &str, value: Value| document.insert(key.to_owned(), value);
    put("session_id", json!(execution.session.as_str()));
    put("conversationId", json!(execution.session.as_str()));
    put("execution_id", json!(execution.id));
    let models = execution.model_usage();
    let (status, error) = outcome(end.as_ref(), transcript);
    let is_unauthorized = models.is_some_and(|models| models.unauthorized_requests > 0);
    let error = error.map(|error| if is_unauthorized { unauthorized(&error) } else { error });
    put("status", json!(status));
    let words = transcript.words();
    let words = excerpt(words.as_bytes(), words.as_bytes(), words.len() as u64, tools.limits.shown);
    put("output", json!(words.text));
    put("error", json!(error));
    if let Some(task) = &execution.spec.task {
        put("agent", json!(task.agent));
        put("yolo_level", json!(task.level));
    }
    put("denied", json!(transcript.denied()));
    if let Some(doing) = transcript.doing().filter(|_| end.is_none()) {
        put("doing", json!(doing));
    }
    if let Some(result) = transcript.result() {
        put("turns", json!(result.turns));
        put("cost_usd", json!(result.cost_usd));
        put("tokens", json!(result.tokens));
    }
    if let Some(models) = models {
        // The daemon's own count, by the operator's prices, is of this task alone.
        if models.unpriced_requests == 0 {
            put("cost_usd", json!(models.cost_usd));
        }
        put("models", json!(models));
    }
    if let Some(network) = execution.network() {
        put("network", json!(network));
    }
    put_files(tools, &mut document, execution, end.as_ref()).await?;
    Ok(document)
}

/// Adds the time, the files that the task made or changed, its diff, and the link to what its agent wrote.
async fn put_files(
    tools: &Tools,
    document: &mut Map<String, Value>,
    execution: &Execution,
    end: Option<&ExecutionEnd>,
) -> Result<(), Failure> {
    document.insert("duration_seconds".into(), json!(seconds(execution, end)));
    let changed = end.map_or(&[][..], |end| &end.changed);
    let names: Vec<_> = changed.iter().map(|entry| entry.path.to_text()).collect();
    document.insert("files_created".into(), json!(names));
    if let Some(end) = end.filter(|end| !end.not_saved.is_empty()) {
        document.insert("not_saved".into(), json!(end.not_saved));
    }
    let session = tools.existing(&execution.owner, &execution.session).await?;
    let files: Vec<_> = changed.iter().map(|entry| tools.artifact(&session, entry)).collect();
    document.insert("artifacts".into(), Value::Array(files));
    let link = |kind: &str| {
        let name = format!("{}.{kind}", execution.id);
        json!(tools.services.signer.link(&execution.owner, session.id.as_str(), SignedTarget::Log(&name)))
    };
    if let Some(diff) = end.and_then(|end| end.diff.as_ref()) {
        let DiffSummary { files_changed, insertions, deletions, left_out, .. } = diff.summary;
        if diff.missing.is_none() {
            let stat = json!({ "files_changed": files_changed, "insertions": insertions,
                "deletions": deletions, "left_out": left_out });
            document.insert("diff_stat".into(), stat);
            document.insert("diff_url".into(), link("diff"));
            document.insert("diff_truncated".into(), json!(diff.summary.is_truncated()));
        }
        let note = diff_note(diff);
        if !note.is_empty() {
            document.insert("diff_note".into(), json!(note));
        }
    }
    document.insert("log_url".into(), link("jsonl"));
    Ok(())
}

/// What the diff leaves out, in words; empty if that is nothing.
fn diff_note(diff: &TaskDiff) -> String {
    let files = |count: u64| if count == 1 { "1 file".to_owned() } else { format!("{count} files") };
    let DiffSummary { without_lines, left_out, .. } = diff.summary;
    let sentences = [
        diff.missing.clone(),
        (without_lines > 0).then(|| {
            format!("{} shown without lines, since the diff would be too large", files(without_lines))
        }),
        (left_out > 0).then(|| format!("{} not shown at all, for the same reason", files(left_out))),
    ];
    sentences.into_iter().flatten().collect::<Vec<_>>().join("; ")
}

/// How long it took, or takes.
#[expect(clippy::cast_precision_loss, reason = "milliseconds of a task are few")]
fn seconds(execution: &Execution, end: Option<&ExecutionEnd>) -> f64 {
    let running = || crate::execution::now_ms().saturating_sub(execution.spec.started_ms);
    end.map_or_else(running, |end| end.duration_ms) as f64 / 1000.0
}

/// The status, and what went wrong.
fn outcome(end: Option<&ExecutionEnd>, transcript: &Transcript) -> (&'static str, Option<String>) {
    let Some(end) = end else { return ("running", None) };
    let said = |otherwise: &str| end.message.clone().unwrap_or_else(|| otherwise.to_owned());
    match end.state {
        ExecutionState::Running => ("running", None),
        ExecutionState::Timeout => ("timeout", Some(said("the task ran out of time; its files are kept"))),
        ExecutionState::Cancelled => ("cancelled", Some(said("the task was cancelled; its files are kept"))),
        ExecutionState::Failed | ExecutionState::Lost => ("failed", Some(said("the task failed"))),
        ExecutionState::Completed => match transcript.result() {
            Some(result) if result.success => ("completed", end.message.clone()),
            Some(result) => ("failed", Some(result.text.clone())),
            None => {
                let code = end.exit_code.unwrap_or(-1);
                let stray = transcript.stray();
                let message =
                    format!("the agent ended with exit code {code} and no result; it wrote: {stray}");
                ("failed", Some(message))
            }
        },
    }
}

/// Whose the key is. An agent can only tell its user to correct a key that its user does not have.
fn unauthorized(said: &str) -> String {
    format!(
        "the model refused the key that the operator of this server configured for it ([models]); the agent \
         said: {said}"
    )
}

/// Whether the task did what it was asked to, or goes on.
pub(super) fn is_well(document: &Map<String, Value>) -> bool {
    matches!(document.get("status").and_then(Value::as_str), Some("completed" | "running"))
}

#[cfg(test)]
mod tests {
    use paddock_proto::OutputStream;

    use super::*;

    fn end(state: ExecutionState, code: i32, message: Option<&str>) -> ExecutionEnd {
        ExecutionEnd {
            state,
            exit_code: Some(code),
            message: message.map(str::to_owned),
            completed_ms: 2,
            duration_ms: 1,
            network: Vec::new(),
            models: None,
            changed: Vec::new(),
            diff: None,
            not_saved: Vec::new(),
        }
    }

    #[test]
    fn a_diff_says_what_it_leaves_out() {
        let note = |summary| diff_note(&TaskDiff { summary, missing: None });
        assert_eq!(note(DiffSummary { files_changed: 3, ..DiffSummary::default() }), "");
        let summary = DiffSummary { without_lines: 2, left_out: 3, ..DiffSummary::default() };
        assert_eq!(
            note(summary),
            "2 files shown without lines, since the diff would be too large; 3 files not shown at all, for \
             the same reason"
        );
        let missing = TaskDiff { missing: Some("there is no diff: x".to_owned()), ..TaskDiff::default() };
        assert_eq!(diff_note(&missing), "there is no diff: x");
    }

    fn transcript(line: &str) -> Transcript {
        let mut transcript = Transcript::of(crate::agents::CLAUDE_CODE);
        transcript.take(OutputStream::Stdout, line.as_bytes(), true);
        transcript
    }

    #[test]
    fn the_status_is_that_of_the_agent_and_of_its_end() {
        let good = r#"{"type":"result","subtype":"success","is_error":false,"result":"Done"}"#;
        let bad = r#"{"type":"result","subtype":"error_max_turns","is_error":true}"#;
        for (end, line, status, error) in [
            (end(ExecutionState::Completed, 0, None), good, "completed", None),
            (end(ExecutionState::Completed, 1, None), bad, "failed", Some("error_max_turns")),
            (end(ExecutionState::Completed, 127, None), "no claude", "failed", Some("it wrote: no claude")),
            (end(ExecutionState::Timeout, -9, None), good, "timeout", Some("out of time")),
            (end(ExecutionState::Cancelled, -9, None), "", "cancelled", Some("cancelled")),
            (end(ExecutionState::Failed, -9, Some("Memory limit")), "", "failed", Some("Memory limit")),
            (end(ExecutionState::Lost, -9, Some("gone")), good, "failed", Some("gone")),
        ] {
            let (said, why) = outcome(Some(&end), &transcript(line));
            assert_eq!(said, status, "{end:?}");
            let is_as_expected = match (&why, error) {
                (Some(why), Some(error)) => why.contains(error),
                (why, error) => why.is_none() && error.is_none(),
            };
            assert!(is_as_expected, "{why:?}");
        }
        assert_eq!(outcome(None, &transcript(good)), ("running", None));
    }
}
