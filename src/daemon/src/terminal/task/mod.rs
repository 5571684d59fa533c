//! `paddock task`: has a coding agent do a task on files of this machine, shows what it did, and takes its
//! changes over if that is asked for.
//!
//! ```text
//!  arguments ─► files ── one archive ──┐
//!  local daemon, or this process ──────┤ client: HTTP over the socket in the store
//!      │            execute_task ─ SSE ┤ steps as they come ─► standard error
//!      ├─ answer, diff ◄───────────────┘ ─► standard output
//!      ├─ --apply: the changes of the diff, in a folder      -o: the files, in a folder
//!      └─ exit code
//! ```
//!
//! The first signal cancels the task, whose answer and diff are still shown; the second leaves at once. It
//! must never change a file of this machine that the user did not ask to have changed.

mod apply;
mod arguments;
mod show;
mod upload;

use std::path::Path;
use std::process::ExitCode;

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

pub use self::arguments::TaskArguments;
use self::show::{TaskPrinter, complain};
use self::upload::TaskFiles;
use super::client::{CallEvent, Client};
use super::progress::ProgressLine;
use super::{Failed, INTERRUPTED, NOT_READ, NOT_RUN, TIMED_OUT, files};
use crate::config::Config;
use crate::local_daemon::LocalDaemon;
use crate::metrics::Metrics;
use crate::printable::printable;
use crate::signals::Signals;

/// Exit code of a task that failed, or whose changes could not be applied.
const FAILED: u8 = 1;
/// Exit code after SIGTERM or SIGHUP, as shells report SIGTERM.
const TERMINATED: u8 = 128 + 15;

/// Does the task of the arguments; returns the exit code.
pub async fn run(arguments: TaskArguments, mut config: Config, metrics: Metrics) -> ExitCode {
    // A daemon for one task needs no idle containers.
    config = config.without_idle();
    let progress = ProgressLine::new(arguments.quiet || arguments.json);
    let mut local = LocalDaemon::new(config, metrics);
    let session =
        arguments.session.clone().unwrap_or_else(|| format!("task-{}", crate::id::random_hex::<8>()));
    let signals = match Signals::new() {
        Ok(signals) => signals,
        Err(error) => {
            progress.complain(&error);
            return ExitCode::from(NOT_RUN);
        }
    };
    let done = whole(&arguments, &session, &mut local, (&progress, signals)).await;
    // What the daemon still does for this task ends with it.
    let hurry = CancellationToken::new();
    if matches!(done, Ok(INTERRUPTED | TERMINATED)) {
        hurry.cancel();
    }
    let ended = local.end(&hurry).await;
    progress.clear();
    if let Err(error) = ended {
        progress.complain(&error);
    }
    match done {
        Ok(code) => ExitCode::from(code),
        Err(Failed::NotRead) => ExitCode::from(NOT_READ),
        Err(error) => {
            progress.complain(&printable(&error.to_string()));
            ExitCode::from(NOT_RUN)
        }
    }
}

/// Everything from the files to the exit code.
async fn whole(
    arguments: &TaskArguments,
    session: &str,
    local: &mut LocalDaemon,
    (progress, mut signals): (&ProgressLine, Signals),
) -> Result<u8, Failed> {
    let preparing = async {
        let apply_to = arguments.apply_to()?;
        let to_read = (arguments.clone(), session.to_owned());
        // Reading files, a terminal or a pipe can take long, and a signal must be handled meanwhile.
        let reading = tokio::task::spawn_blocking(move || -> Result<_, Failed> {
            let (arguments, session) = to_read;
            let files = TaskFiles::look(arguments.directory.as_deref(), &arguments.files)?;
            Ok((files, arguments.call(&session)?))
        });
        let (mut brought, call) = reading.await.map_err(Failed::new)??;
        for what in std::mem::take(&mut brought.left_out) {
            progress.note(&format!("left out: {}", printable(&what)));
        }
        for folder in apply_to.iter().chain(&arguments.output) {
            files::make(folder)?;
        }
        progress.say("reaching the daemon");
        let client = Client::reach(local).await?;
        if !brought.files.is_empty() {
            progress.say(&format!("sending {} files", brought.files.len()));
            let (archive, packing) = brought.archive();
            tokio::try_join!(packing, client.unpack(session, archive))?;
        }
        progress.run("the coding agent");
        Ok::<_, Failed>((client, call, apply_to))
    };
    let (client, call, apply_to) = tokio::select! {
        prepared = preparing => prepared?,
        why = signals.next() => return Ok(code_of_signal(why)),
    };
    let mut printer = TaskPrinter::new(arguments.quiet, arguments.json);
    let mut interrupted = None;
    let Some(document) =
        follow(&client, (call, session), (&mut printer, progress), (&mut signals, &mut interrupted)).await?
    else {
        return Ok(interrupted.unwrap_or(INTERRUPTED));
    };
    let finishing =
        finish(arguments, (&client, session, apply_to.as_deref()), &document, &mut printer, progress);
    tokio::select! {
        code = finishing => Ok(interrupted.unwrap_or(code?)),
        why = signals.next() => Ok(code_of_signal(why)),
    }
}

fn code_of_signal(signal: &str) -> u8 {
    if signal == "SIGINT" { INTERRUPTED } else { TERMINATED }
}

/// Calls the tool, and shows what the agent does until the answer comes; `None` if a signal ended that.
async fn follow(
    client: &Client,
    (call, session): (Value, &str),
    (printer, progress): (&mut TaskPrinter, &ProgressLine),
    (signals, interrupted): (&mut Signals, &mut Option<u8>),
) -> Result<Option<Value>, Failed> {
    let mut running = tokio::select! {
        running = client.call("execute_task", call) => running?,
        why = signals.next() => {
            *interrupted = Some(code_of_signal(why));
            return Ok(None);
        }
    };
    loop {
        let event = tokio::select! {
            event = running.next() => event?,
            why = signals.next() => {
                progress.clear();
                // A task that has not begun ends with its call.
                if interrupted.replace(code_of_signal(why)).is_some() || !cancel(client, session).await? {
                    return Ok(None);
                }
                progress.say("cancelling the task; Ctrl-C leaves at once");
                continue;
            }
        };
        match event {
            CallEvent::Output { text, .. } => {
                progress.clear();
                printer.progress(&text).map_err(Failed::unwritten)?;
            }
            CallEvent::Answer(answer) => {
                progress.clear();
                return answer.map(Some);
            }
        }
    }
}

/// Cancels the running task of the session; false if there is none.
async fn cancel(client: &Client, session: &str) -> Result<bool, Failed> {
    let status = answer(client, "get_sandbox_status", json!({ "session_id": session })).await?;
    let Some(id) = status["running_tasks"][0].as_str() else { return Ok(false) };
    answer(client, "cancel_execution", json!({ "execution_id": id, "force": true })).await?;
    Ok(true)
}

/// The answer of a tool that does not take long.
async fn answer(client: &Client, tool: &str, arguments: Value) -> Result<Value, Failed> {
    let mut call = client.call(tool, arguments).await?;
    loop {
        if let CallEvent::Answer(answer) = call.next().await? {
            return answer;
        }
    }
}

/// Shows what came of the task, takes its files and changes over, and returns the exit code.
async fn finish(
    arguments: &TaskArguments,
    (client, session, apply_to): (&Client, &str, Option<&Path>),
    document: &Value,
    printer: &mut TaskPrinter,
    progress: &ProgressLine,
) -> Result<u8, Failed> {
    let Some(mut code) = code(document) else {
        let why = document["message"].as_str().unwrap_or("the daemon's answer is not one about a task");
        return Err(Failed::new(why));
    };
    printer.answer(document).map_err(Failed::unwritten)?;
    let diff = match document["diff_url"].as_str().and_then(|url| Some(&url[url.find("/logs/")?..])) {
        Some(path) => Some(client.log(path).await?),
        None => None,
    };
    if let Some(diff) = &diff {
        printer.diff(diff).map_err(Failed::unwritten)?;
    }
    if let Some(folder) = &arguments.output {
        let failed = files::download(client, session, (document, folder), progress).await?;
        if failed > 0 {
            code = code.max(FAILED);
        }
    }
    if let Some(folder) = apply_to.filter(|_| document["status"] != "completed") {
        let line = format!("nothing was changed in {}: the task is not completed", folder.display());
        complain(&line).map_err(Failed::unwritten)?;
    } else if let Some((folder, diff)) = apply_to.zip(diff.as_ref()) {
        let applied = apply::apply(client, session, diff, folder).await?;
        for line in &applied.done {
            printer.note(line).map_err(Failed::unwritten)?;
        }
        let lines = applied.not_done.iter().map(|line| format!("not applied: {line}"));
        for line in lines.chain(applied.conflicts.iter().map(|line| format!("conflict: {line}"))) {
            complain(&line).map_err(Failed::unwritten)?;
        }
        if !applied.conflicts.is_empty() {
            let line = format!(
                "nothing was changed in {}: its files are not as the agent got them",
                folder.display()
            );
            complain(&line).map_err(Failed::unwritten)?;
        }
        if !applied.conflicts.is_empty() || !applied.not_done.is_empty() {
            code = code.max(FAILED);
        }
    }
    if let Some(why) = not_applied(document).filter(|_| apply_to.is_some()) {
        complain(&why).map_err(Failed::unwritten)?;
        code = code.max(FAILED);
    }
    printer.summary(document, session).map_err(Failed::unwritten)?;
    Ok(code)
}

/// What of a completed task's changes cannot be applied, because its diff does not have it.
fn not_applied(document: &Value) -> Option<String> {
    if document["status"] != "completed" {
        return None; // that is said in its place
    }
    let note = document["diff_note"].as_str().unwrap_or("the answer has no diff");
    let is_whole = document["diff_url"].is_string() && document["diff_stat"]["left_out"].as_u64() == Some(0);
    (!is_whole).then(|| format!("not all changes were applied: {}", printable(note)))
}

/// The exit code of a task; `None` if the document is not about one.
fn code(document: &Value) -> Option<u8> {
    match document["status"].as_str()? {
        "completed" => Some(0),
        "timeout" => Some(TIMED_OUT),
        _ => Some(FAILED),
    }
}

#[cfg(test)]
mod tests;
