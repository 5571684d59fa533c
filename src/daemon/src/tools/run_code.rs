//! `run_code`: source code in, its output and its files out.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use paddock_proto::RelPath;
use paddock_proto::message::{Entry, EntryKind, Limit, Outcome as Death};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

use super::artifacts::{LISTED, put_if};
use super::fault::Failure;
use super::upload_file::now_ns;
use super::{CallError, Caller, Code, Fault, Outcome, Tools, arguments};
use crate::session::{RunEnd, RunReport, RunRequest, Session, SessionError, SessionId};
use crate::sign::Target;
use crate::store::Batch;

const TOOL: &str = "run_code";
/// Set by the agent for a program that has an input; not a caller's to set.
const RESERVED: &str = "SANDBOX_STDIN_FD";
/// What an answer lists of things that were not saved.
const NOT_SAVED: usize = 20;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    language: String,
    code: String,
    #[serde(rename = "conversationId")]
    conversation_id: Option<String>,
    session_id: Option<String>,
    #[serde(default)]
    network: bool,
    #[serde(default)]
    environment: BTreeMap<String, String>,
    timeout_seconds: Option<f64>,
    stdin: Option<String>,
    #[serde(default)]
    files: Vec<File>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    path: String,
    content: String,
}

/// A call whose every argument is right.
struct Checked {
    id: SessionId,
    run: RunRequest,
    files: Vec<(RelPath, Vec<u8>)>,
}

pub(super) async fn call(
    tools: &Arc<Tools>,
    caller: &Caller,
    given: Map<String, Value>,
    cancel: CancellationToken,
) -> Result<Outcome, Failure> {
    let checked = check(tools, caller, given)?;
    let session = tools.sessions.get(&caller.owner, &checked.id).await?;
    // The run goes on to its own end in a task of its own: whoever goes away only cancels it.
    let cancel = cancel.child_token();
    let _gone = cancel.clone().drop_guard();
    let (tools, owned) = (tools.clone(), session.clone());
    let run = tokio::spawn(async move { run(&tools, &owned, checked, &cancel).await });
    run.await.unwrap_or_else(|error| {
        tracing::error!(%error, "a task of the daemon failed");
        Err(Failure::Call(CallError::Internal("the daemon failed in mid-run; its log says why".to_owned())))
    })
}

fn check(tools: &Tools, caller: &Caller, given: Map<String, Value>) -> Result<Checked, Failure> {
    let given: Arguments = arguments::read(TOOL, given)?;
    let limits = &tools.limits;
    let id = arguments::session(TOOL, caller, given.conversation_id.as_deref(), given.session_id.as_deref())?;
    let invalid = |message: String| Fault::new(Code::InvalidArgument, message);
    let bounded = |what: &str, bytes: usize, limit: usize| {
        let over = || Fault::new(Code::TooLarge, format!("`{what}` has {bytes} bytes, the limit is {limit}"));
        if bytes > limit { Err(over()) } else { Ok(()) }
    };
    let runners = tools.pool.runners();
    let Some((_, runner)) = runners.get(&given.language) else {
        let shown: String = given.language.chars().take(40).collect();
        let known: Vec<_> = runners.keys().map(String::as_str).collect();
        let known =
            if known.is_empty() { "none: no runner image was found".into() } else { known.join(", ") };
        let message = format!("no runner for language {shown:?}; there are: {known}");
        return Err(Fault::new(Code::UnknownLanguage, message).into());
    };
    if given.code.trim().is_empty() {
        return Err(invalid("`code` is empty; give source code to run".into()).into());
    }
    bounded("code", given.code.len(), limits.code)?;
    if given.code.contains('\0') {
        return Err(invalid("`code` contains a NUL byte; write it as an escape such as \\x00".into()).into());
    }
    if given.network {
        let message = "programs have no network here; run with `network` false or left out";
        return Err(Fault::new(Code::NetworkUnavailable, message).into());
    }
    let size: usize = given.environment.iter().map(|(name, value)| name.len() + value.len() + 2).sum();
    bounded("environment", size, limits.environment)?;
    for (name, value) in &given.environment {
        let shown: String = name.chars().take(40).collect();
        let wrong = match name.as_str() {
            "" => "is empty",
            RESERVED => "is set by the sandbox itself",
            _ if name.contains('=') => "contains `=`",
            _ if name.contains('\0') || value.contains('\0') => "or its value contains a NUL byte",
            _ => continue,
        };
        return Err(invalid(format!("the name {shown:?} in `environment` {wrong}")).into());
    }
    let timeout = match given.timeout_seconds {
        None => limits.run_code,
        Some(seconds) => Duration::try_from_secs_f64(seconds)
            .ok()
            .filter(|timeout| !timeout.is_zero() && *timeout <= limits.longest)
            .ok_or_else(|| {
                let longest = limits.longest.as_secs();
                invalid(format!("`timeout_seconds` is {seconds}; it must be over 0 and at most {longest}"))
            })?,
    };
    if given.stdin.is_some() && !runner.stdin {
        let message =
            format!("the runner for {} takes no `stdin`; put the input into a file", given.language);
        return Err(invalid(message).into());
    }
    bounded("stdin", given.stdin.as_ref().map_or(0, String::len), limits.stdin)?;
    let mut room = limits.upload;
    let mut files = Vec::new();
    for (at, file) in given.files.iter().enumerate() {
        let path = arguments::path(&format!("files[{at}].path"), &file.path)?;
        let content = arguments::content(&format!("files[{at}].content"), &file.content, room)?;
        room -= content.len();
        files.push((path, content));
    }
    let run = RunRequest {
        language: given.language,
        code: Bytes::from(given.code),
        stdin: given.stdin.map(Bytes::from),
        environment: given.environment.into_iter().collect(),
        timeout,
    };
    Ok(Checked { id, run, files })
}

async fn run(
    tools: &Arc<Tools>,
    session: &Arc<Session>,
    checked: Checked,
    cancel: &CancellationToken,
) -> Result<Outcome, Failure> {
    let mut turn = tokio::select! {
        turn = tools.sessions.turn(session) => turn?,
        () = cancel.cancelled() => return Err(SessionError::Cancelled.into()),
    };
    if !checked.files.is_empty() {
        let mut batch = Batch::new(session.space.clone());
        for (path, content) in checked.files {
            let kind = EntryKind::File(content.len() as u64);
            let entry = Entry { path, kind, mode: 0o644, mtime_ns: now_ns() };
            batch.admit(&entry)?;
            batch.file(entry);
            batch.write(&content).await?;
            batch.keep();
        }
        batch.commit().await?;
    }
    let report = tools.sessions.run(&mut turn, &checked.run, cancel).await?;
    let images = tools.images(session, &report.changed).await;
    let mut document = document(tools, session, &checked.run, &report);
    tools.put_earlier_runs(session, &mut document);
    drop(turn);
    let failed = document.get("success") != Some(&Value::Bool(true));
    Ok(Outcome { document, failed, images })
}

/// The answer of a run: one document for every reader.
fn document(tools: &Tools, session: &Session, run: &RunRequest, report: &RunReport) -> Map<String, Value> {
    let id = session.id.as_str();
    let exit_code = report.end.exit_code();
    let verdict = verdict(tools, run, &report.end);
    let mut stderr = report.stderr.text.clone();
    if let Some(verdict) = &verdict {
        if !stderr.is_empty() && !stderr.ends_with('\n') {
            stderr.push('\n');
        }
        stderr.push_str(&verdict.message);
    }
    let stdout = &report.stdout.text;
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
    put("stdout_truncated", json!(report.stdout.truncated));
    put("stderr_truncated", json!(report.stderr.truncated));
    put("exit_code", json!(exit_code));
    put("files", json!(files));
    put("artifacts", json!(artifacts));
    put("session_id", json!(id));
    put("conversationId", json!(id));
    put("run_id", json!(report.run_id));
    put("language", json!(run.language));
    put("duration_ms", json!(u64::try_from(report.duration.as_millis()).unwrap_or(u64::MAX)));
    if report.logged {
        put("log_url", json!(tools.signer.link(&session.owner, id, Target::Log(&report.run_id))));
    }
    if !report.not_saved.is_empty() {
        let shown = report.not_saved.iter().take(NOT_SAVED).map(|(path, reason)| {
            json!({ "path": format!("/mnt/data/{}", String::from_utf8_lossy(path)), "reason": reason })
        });
        put("not_saved", Value::Array(shown.collect()));
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
    put_if(&mut document, "stdout_lossy", report.stdout.lossy);
    put_if(&mut document, "stderr_lossy", report.stderr.lossy);
    document
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
    let verdict = |limit, message: String| Some(Verdict { message, limit, error: None });
    match limit {
        Some(Limit::Wall) => {
            let message = format!("Execution timed out after {} seconds", run.timeout.as_secs_f64());
            verdict(Some("wall_time"), message)
        }
        Some(Limit::Output) => {
            let max = tools.sessions.bounds().max_log;
            let message = format!("The program was ended: it wrote more than {max} bytes to one stream");
            verdict(Some("output"), message)
        }
        Some(Limit::Memory) => {
            let message = format!(
                "The program ran out of memory: {} bytes, and what its files in /data, /tmp and /dev/shm take",
                tools.limits.memory
            );
            verdict(Some("memory"), message)
        }
        Some(Limit::Pids) => verdict(Some("pids"), "The program ran out of processes".to_owned()),
        Some(Limit::Cancelled) => verdict(None, "The run was cancelled".to_owned()),
        None => match outcome {
            Death::NotStarted(errno) => {
                let error = std::io::Error::from_raw_os_error(errno);
                verdict(None, format!("The runner's entrypoint could not be started: {error}"))
            }
            Death::Exited(_) | Death::Signaled(_) => None,
        },
    }
}
