//! `execute_code` and `execute_code_async`: a command, waited for or not.
//!
//! A caller that goes away, or takes its call back, ends what it waits for. What passes [`WAIT`] goes on by itself,
//! unless the caller hears of its progress: then the call waits for the end.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use paddock_proto::limits::{DATA_DIR, MAX_ARGUMENT};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

use super::sandbox_config::SandboxConfig;
use super::{WAIT, came_out, output, put_standing};
use crate::execution::{Execution, Start, What};
use crate::session::{Listener, Piece, SessionError, SessionId};
use crate::tools::fault::Failure;
use crate::tools::{Caller, Code, Fault, Outcome, Tools, arguments, run, values};

const WAITED: &str = "execute_code";
const BEGUN: &str = "execute_code_async";

/// How much of what a program writes is told at a time while a call waits.
const LIVE: usize = 4 * 1024;

/// Events that are passed over when a program writes more than is told.
const BEHIND: u64 = 1000;

/// A path of a caller's is not longer (`PATH_MAX`).
const MAX_DIRECTORY: usize = 4095;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    command: String,
    #[serde(alias = "timeoutSeconds")]
    timeout_seconds: Option<f64>,
    interactive: Option<bool>,
    lines: Option<bool>,
    #[serde(alias = "workingDirectory")]
    working_directory: Option<String>,
    environment: Option<BTreeMap<String, String>>,
    #[serde(alias = "sandboxConfig")]
    sandbox_config: Option<SandboxConfig>,
    #[serde(alias = "waitForCompletion")]
    wait_for_completion: Option<bool>,
    session_id: Option<String>,
    #[serde(rename = "conversationId")]
    conversation_id: Option<String>,
}

pub(in crate::tools) async fn wait(
    tools: &Arc<Tools>,
    caller: &Caller,
    given: Map<String, Value>,
    cancel: CancellationToken,
) -> Result<Outcome, Failure> {
    let given: Arguments = arguments::read(WAITED, given)?;
    let waits = given.wait_for_completion.unwrap_or(true);
    let apart = given.lines == Some(true);
    let (session, start) = check(tools, caller, WAITED, given)?;
    let answer_at = Instant::now() + WAIT;
    let place = tokio::select! {
        place = tools.executions.enter(&caller.owner, &session) => place?,
        () = cancel.cancelled() => return Err(SessionError::Cancelled.into()),
    };
    let execution = tools.executions.start(place, start).await?;
    if !waits {
        return begun(&execution).await;
    }
    let waiting = EndOnDrop(Some(execution.clone()));
    tokio::select! {
        () = execution.over() => {}
        // Whoever hears of its progress does not give up, and waits for its end.
        () = tokio::time::sleep_until(answer_at.into()), if caller.live.is_none() => {}
        () = cancel.cancelled() => {
            execution.end_within(Duration::ZERO);
            execution.over().await;
        }
        () = tell_live(&execution, caller.live.as_ref()) => {}
    }
    waiting.let_go();
    refused(&execution)?;
    let mut outcome = Outcome::default();
    put_standing(&mut outcome.document, &execution);
    output::put_page(tools, &mut outcome, &execution, 0, apart).await?;
    if execution.end().is_none() {
        let message = format!(
            "The command is still running after {} seconds and goes on. Read it with get_execution_output (wait: \
             true, since: next_since), end it with cancel_execution.",
            WAIT.as_secs()
        );
        outcome.document.insert("message".into(), json!(message));
    }
    outcome.failed = !came_out(&execution);
    Ok(outcome)
}

pub(in crate::tools) async fn begin(
    tools: &Arc<Tools>,
    caller: &Caller,
    given: Map<String, Value>,
) -> Result<Outcome, Failure> {
    let given: Arguments = arguments::read(BEGUN, given)?;
    if given.wait_for_completion == Some(true) {
        let message = "`wait_for_completion` is true; execute_code waits, execute_code_async does not";
        return Err(Fault::new(Code::InvalidArgument, message).into());
    }
    let (session, start) = check(tools, caller, BEGUN, given)?;
    let place = tools.executions.enter(&caller.owner, &session).await?;
    begun(&tools.executions.start(place, start).await?).await
}

/// The answer of a call that does not wait for the end, once its container has it: what was answered survives the
/// daemon.
async fn begun(execution: &Arc<Execution>) -> Result<Outcome, Failure> {
    let _ = tokio::time::timeout(WAIT, execution.news(0)).await;
    refused(execution)?;
    let mut document = Map::new();
    put_standing(&mut document, execution);
    let message = "Read its output with get_execution_output, end it with cancel_execution.";
    document.insert("message".into(), json!(message));
    let failed = !came_out(execution);
    Ok(Outcome { document, failed, ..Outcome::default() })
}

/// What could not begin is told as what it is.
fn refused(execution: &Execution) -> Result<(), Failure> {
    let Some(error) = execution.take_refusal() else { return Ok(()) };
    Err(match Failure::from(error) {
        Failure::Fault(fault) => fault.with("execution_id", json!(execution.id)).into(),
        failure @ Failure::Call(_) => failure,
    })
}

/// Ends an execution whose caller went away.
struct EndOnDrop(Option<Arc<Execution>>);

impl EndOnDrop {
    fn let_go(mut self) {
        self.0 = None;
    }
}

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        if let Some(execution) = &self.0 {
            execution.end_within(Duration::ZERO);
        }
    }
}

/// Tells what it writes, as fast as whoever listens takes it. Never ends by itself.
async fn tell_live(execution: &Arc<Execution>, live: Option<&Listener>) {
    let Some(live) = live else { return std::future::pending().await };
    let mut since = 0;
    loop {
        execution.news(since).await;
        let last = execution.progress().borrow().last;
        let mut pieces: Vec<Piece> = Vec::new();
        if last - since > BEHIND {
            let text = format!("[{} lines are not shown here]\n", last - BEHIND / 10 - since);
            pieces.push(Piece { channel: None, text });
            since = last - BEHIND / 10;
        }
        let Ok(page) = execution.page(since, LIVE, false).await else { return std::future::pending().await };
        for event in &page.events {
            since = event.seq;
            if let What::Output { channel, bytes, eol } = &event.what {
                let mut text = String::from_utf8_lossy(bytes).into_owned();
                text.extend(eol.then_some('\n'));
                match pieces.last_mut() {
                    Some(piece) if piece.channel == Some(*channel) => piece.text.push_str(&text),
                    Some(_) | None => pieces.push(Piece { channel: Some(*channel), text }),
                }
            }
        }
        for piece in pieces {
            if live.pieces.send(piece).await.is_err() {
                return std::future::pending().await; // nobody listens
            }
        }
        if page.events.is_empty() {
            return std::future::pending().await; // nothing more comes
        }
    }
}

fn check(
    tools: &Tools,
    caller: &Caller,
    tool: &'static str,
    given: Arguments,
) -> Result<(SessionId, Start), Failure> {
    let session =
        arguments::session(tool, caller, given.conversation_id.as_deref(), given.session_id.as_deref())?;
    let invalid = |message: String| Fault::new(Code::InvalidArgument, message);
    if given.command.trim().is_empty() {
        return Err(invalid("`command` is empty; give a shell command".to_owned()).into());
    }
    run::bounded("command", given.command.len(), tools.limits.code.min(MAX_ARGUMENT))?;
    if given.command.contains('\0') {
        return Err(invalid(
            "`command` contains a NUL byte; the shell's printf '\\000' writes one".to_owned(),
        )
        .into());
    }
    let directory = directory(given.working_directory.as_deref())?;
    let environment = values::environment(given.environment.unwrap_or_default(), &tools.limits)?;
    let timeout = values::timeout(given.timeout_seconds, tools.limits.execute_code, &tools.limits)?;
    let (limits, files) = given.sandbox_config.unwrap_or_default().check()?;
    run::runner(tools, &tools.exec_runner)?;
    let start = Start {
        command: given.command,
        language: tools.exec_runner.clone(),
        interactive: given.interactive.unwrap_or(false),
        directory,
        environment,
        timeout,
        limits,
        files,
    };
    Ok((session, start))
}

/// Where a command starts: what is not absolute is below `/data`.
fn directory(given: Option<&str>) -> Result<String, Fault> {
    let invalid =
        |problem: String| Fault::new(Code::InvalidArgument, format!("`working_directory` {problem}"));
    match given {
        None => Ok(DATA_DIR.to_owned()),
        Some("") => Err(invalid("is empty; leave it out for /data, or name a directory".to_owned())),
        Some(path) if path.contains('\0') => Err(invalid("contains a NUL byte".to_owned())),
        Some(path) if path.len() > MAX_DIRECTORY => {
            Err(invalid(format!("has {} bytes; at most {MAX_DIRECTORY} are possible", path.len())))
        }
        Some(path) if path.starts_with('/') => Ok(path.to_owned()),
        Some(path) => Ok(format!("{DATA_DIR}/{path}")),
    }
}
