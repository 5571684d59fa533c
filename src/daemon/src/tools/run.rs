//! What all tools that run a program share: the checks of code, the turn, the run itself, and the answer.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use paddock_proto::RelPath;
use paddock_proto::message::{Entry, EntryKind, Limit, Outcome as Death};
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::artifacts::{LISTED, put_if};
use super::fault::Failure;
use super::upload_file::now_ns;
use super::{CallError, Caller, Code, Fault, Outcome, Timing, Tools, news};
use crate::pool::Runner;
use crate::session::{
    Heard, Live, Phases, RunEnd, RunReport, RunRequest, Session, SessionError, SessionId, limit_name,
};
use crate::sign::Target;
use crate::store::{Batch, StoreError};

/// What an answer lists of things that were not saved.
const NOT_SAVED: usize = 20;

/// A call whose every argument is right.
pub(super) struct Job {
    pub(super) id: SessionId,
    pub(super) run: RunRequest,
    /// Put into `/data` before it.
    pub(super) files: Vec<(RelPath, Vec<u8>)>,
    /// Whether it waits while another call of the session is at work.
    pub(super) waits: bool,
}

/// Does it, to its own end: whoever goes away only cancels it.
pub(super) async fn perform(
    tools: &Arc<Tools>,
    caller: &Caller,
    job: Job,
    cancel: CancellationToken,
) -> Result<Outcome, Failure> {
    let session = tools.sessions.get(&caller.owner, &job.id).await?;
    let cancel = cancel.child_token();
    let _gone = cancel.clone().drop_guard();
    let (tools, live) = (tools.clone(), caller.live.clone().map(Live::new));
    let run = async move { run(&tools, &session, job, &cancel, live).await };
    let run = tokio::spawn(run.in_current_span());
    run.await.unwrap_or_else(|error| {
        tracing::error!(%error, "a task of the daemon failed");
        Err(Failure::Call(CallError::Internal("the daemon failed in mid-run; its log says why".to_owned())))
    })
}

/// The runner of a language, by its name or one that people use for it.
pub(super) fn runner(tools: &Tools, language: &str) -> Result<Arc<Runner>, Fault> {
    let runners = tools.pool.runners();
    let names = runners.keys().map(String::as_str);
    if let Some((_, runner)) =
        super::language::meant(language, names.clone()).and_then(|name| runners.get(name))
    {
        return Ok(runner.clone());
    }
    let similar = super::language::similar(language, names);
    let hint = similar.map_or_else(String::new, |name| format!("; did you mean {name}?"));
    let shown: String = language.chars().take(40).collect();
    let known: Vec<_> = runners.keys().map(String::as_str).collect();
    let known = if known.is_empty() { "none: no runner image was found".into() } else { known.join(", ") };
    Err(Fault::new(
        Code::UnknownLanguage,
        format!("no runner for language {shown:?}{hint}; there are: {known}"),
    ))
}

/// Source code that can be run.
pub(super) fn code(tools: &Tools, text: String) -> Result<Bytes, Fault> {
    let invalid = |message: &str| Err(Fault::new(Code::InvalidArgument, message));
    if text.trim().is_empty() {
        return invalid("`code` is empty; give source code to run");
    }
    bounded("code", text.len(), tools.limits.code)?;
    if text.contains('\0') {
        return invalid("`code` contains a NUL byte; write it as an escape such as \\x00");
    }
    Ok(Bytes::from(text))
}

/// Whether what an argument has is within its limit.
pub(super) fn bounded(what: &str, bytes: usize, limit: usize) -> Result<(), Fault> {
    let over = || Fault::new(Code::TooLarge, format!("`{what}` has {bytes} bytes, the limit is {limit}"));
    if bytes > limit { Err(over()) } else { Ok(()) }
}

async fn run(
    tools: &Arc<Tools>,
    session: &Arc<Session>,
    job: Job,
    cancel: &CancellationToken,
    live: Option<Live>,
) -> Result<Outcome, Failure> {
    let begun = Instant::now();
    let language = &job.run.language;
    let turn = if job.waits {
        let turn = async {
            if job.files.is_empty() {
                tools.sessions.turn_to_run(session, language).await
            } else {
                tools.sessions.turn(session).await
            }
        };
        tokio::select! {
            turn = turn => turn?,
            () = cancel.cancelled() => return Err(SessionError::Cancelled.into()),
        }
    } else {
        tools.sessions.try_turn_to_run(session, language).await?
    };
    // Another than the one asked for, if that was deleted while this waited.
    let session = &turn.session().clone();
    if !job.files.is_empty() {
        let mut batch = Batch::new(session.space.clone());
        for (path, content) in job.files {
            let kind = EntryKind::File(content.len() as u64);
            let entry = Entry { path, kind, mode: 0o644, mtime_ns: now_ns() };
            batch.admit(&entry)?;
            batch.file(entry);
            batch.write(&content).await?;
            batch.keep();
        }
        batch.commit().await?;
    }
    let turn = turn.for_program(&job.run.language);
    let turned = begun.elapsed();
    news::begun(tools, session, &job.run);
    let running = tools.sessions.run(&turn, &job.run, cancel, live);
    let ran = match session.unless_closed(cancel, running).await {
        (Err(SessionError::Cancelled), true) => Err(SessionError::Closed),
        (ran, _) => ran,
    };
    news::ended(tools, session, &job.run, ran.as_ref().map(|(report, _)| report));
    let (mut report, heard) = ran?;
    let (images, more) = tools.images(session, &report.changed).await;
    let mut document = document(tools, session, &job.run, &report, &heard);
    if more > 0 {
        document.insert("images_not_shown".into(), more.into());
    }
    tools.put_earlier_runs(session, &mut document);
    if let Some(error) = report.unsaved.take() {
        unsaved(&mut document, error)?;
    }
    drop(turn);
    let failed = document.get("success") != Some(&Value::Bool(true));
    let Phases { container, files_in, files_out } = report.phases;
    let total = begun.elapsed();
    tools.metrics.overhead(&job.run.language, total.saturating_sub(report.duration));
    let timing = Timing { queued: turned + container, files_in, program: report.duration, files_out, total };
    Ok(Outcome { document, failed, images, timing: Some(timing), place: None })
}

/// A run's state after its end, in one word.
pub(super) fn status(report: &RunReport) -> &'static str {
    match (&report.end, report.end.limit()) {
        (RunEnd::Lost(_), _) => "lost",
        (RunEnd::Ended { .. }, Some(Limit::Wall)) => "timeout",
        (RunEnd::Ended { .. }, Some(Limit::Cancelled)) => "cancelled",
        (RunEnd::Ended { .. }, Some(_)) => "failed",
        (RunEnd::Ended { .. }, None) if report.end.exit_code() == 0 => "completed",
        (RunEnd::Ended { .. }, None) => "failed",
    }
}

/// The program ran, and nothing that it made is saved: no success, whatever it says itself.
fn unsaved(document: &mut Map<String, Value>, error: StoreError) -> Result<(), Failure> {
    let fault = match Failure::from(error) {
        Failure::Fault(fault) => fault,
        failure @ Failure::Call(_) => return Err(failure),
    };
    let message = format!(
        "{}. The program ran, but the files that it made or changed are not saved; the next call saves them if it can.",
        fault.message
    );
    document.insert("success".into(), json!(false));
    document.insert("error".into(), json!(fault.code.as_str()));
    document.insert("message".into(), json!(message));
    Ok(())
}

/// The answer of a run: one document for every reader.
fn document(
    tools: &Tools,
    session: &Session,
    run: &RunRequest,
    report: &RunReport,
    heard: &Heard,
) -> Map<String, Value> {
    let id = session.id.as_str();
    let exit_code = report.end.exit_code();
    let verdict = verdict(tools, run, &report.end);
    let mut stderr = heard.stderr.text.clone();
    if let Some(verdict) = &verdict {
        if !stderr.is_empty() && !stderr.ends_with('\n') {
            stderr.push('\n');
        }
        stderr.push_str(&verdict.message);
    }
    let stdout = &heard.stdout.text;
    let output = match (stdout.is_empty(), stderr.is_empty()) {
        (_, true) => stdout.clone(),
        (true, false) => stderr.clone(),
        (false, false) => format!("{stdout}\n{stderr}"),
    };
    let (files, files_truncated) = tools.files(session);
    let artifacts: Vec<Value> =
        report.changed.iter().take(LISTED).map(|entry| tools.artifact(session, entry)).collect();
    let mut document = Map::new();
    let mut put = |key: &str, value: Value| document.insert(key.to_owned(), value);
    put("success", json!(exit_code == 0));
    put("output", json!(output));
    put("stdout", json!(stdout));
    put("stderr", json!(stderr));
    put("stdout_truncated", json!(heard.stdout.truncated));
    put("stderr_truncated", json!(heard.stderr.truncated));
    put("exit_code", json!(exit_code));
    put("files", json!(files));
    put("artifacts", json!(artifacts));
    put("session_id", json!(id));
    put("conversationId", json!(id));
    put("run_id", json!(report.run_id));
    put("language", json!(run.language));
    put("duration_ms", json!(u64::try_from(report.duration.as_millis()).unwrap_or(u64::MAX)));
    if heard.logged {
        put("log_url", json!(tools.signer.link(&session.owner, id, Target::Log(&report.run_id))));
    }
    if !report.not_saved.is_empty() {
        put("not_saved", not_saved(&report.not_saved));
    }
    if let Some(Verdict { message, limit, error }) = verdict {
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
    put_if(&mut document, "stdout_lossy", heard.stdout.lossy);
    put_if(&mut document, "stderr_lossy", heard.stderr.lossy);
    document
}

/// `[{path, reason}]`, the first of them.
pub(super) fn not_saved(all: &[(Vec<u8>, &'static str)]) -> Value {
    let shown = all.iter().take(NOT_SAVED).map(|(path, reason)| {
        json!({ "path": format!("/mnt/data/{}", String::from_utf8_lossy(path)), "reason": reason })
    });
    Value::Array(shown.collect())
}

/// What is to be said about an end that was not the program's own.
struct Verdict {
    message: String,
    limit: Option<&'static str>,
    error: Option<Code>,
}

fn verdict(tools: &Tools, run: &RunRequest, end: &RunEnd) -> Option<Verdict> {
    let (outcome, limit) = match end {
        RunEnd::Ended { outcome, limit } => (*outcome, *limit),
        RunEnd::Lost(why) => {
            let message = format!(
                "The container was lost in mid-run ({why}). What the program did is unknown, and it is not run again. \
                 Files saved before this run are kept."
            );
            return Some(Verdict { message, limit: None, error: Some(Code::Lost) });
        }
    };
    let name = limit.and_then(limit_name);
    let verdict = |message: String| Some(Verdict { message, limit: name, error: None });
    match limit {
        Some(Limit::Wall) => {
            let message = format!("Execution timed out after {} seconds", run.timeout.as_secs_f64());
            verdict(message)
        }
        Some(Limit::Output) => {
            let max = tools.sessions.bounds().max_log;
            let message = format!("The program was ended: it wrote more than {max} bytes to one stream");
            verdict(message)
        }
        Some(Limit::Memory) => {
            let message = format!(
                "The program ran out of memory: {} bytes, and what its files in /data, /tmp and /dev/shm take",
                tools.limits.memory
            );
            verdict(message)
        }
        Some(Limit::Pids) => verdict("The program ran out of processes".to_owned()),
        Some(Limit::Cpu) => verdict("The program used up its CPU time".to_owned()),
        Some(Limit::FileSize) => {
            let max = tools.limits.file_size;
            verdict(format!("The program was ended: it wrote more than {max} bytes to one file"))
        }
        Some(Limit::Cancelled) => {
            let message = if tools.stopping.is_cancelled() {
                "The daemon was shutting down and ended the run; what it had printed and saved until then is kept"
            } else {
                "The run was cancelled"
            };
            Some(Verdict { message: message.to_owned(), limit: Some("cancelled"), error: None })
        }
        None => match outcome {
            Death::NotStarted(errno) => {
                let error = std::io::Error::from_raw_os_error(errno);
                verdict(format!("The runner's entrypoint could not be started: {error}"))
            }
            Death::Exited(_) | Death::Signaled(_) => None,
        },
    }
}
