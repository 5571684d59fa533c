//! `paddock run`: runs code from a terminal as if its language were installed here.
//!
//! ```text
//!  arguments ─► program (file, -c, standard input)
//!      │          files in ── PUT ─┐
//!  local daemon, or this process ──┤ client: HTTP over the socket in the store
//!      │          run_code ─ SSE ──┤ output as it comes ─► standard output and error
//!      └─ exit code ◄─ answer ─────┘ files out ── GET ─► --output
//! ```
//!
//! The program's exit code is this command's, its output is complete however slowly it is read, and a session
//! that the user did not name leaves nothing behind. It must never write anything but the program's output to
//! standard output, nor a file outside the folder that it was given.

mod arguments;
mod client;
mod cluster;
mod files;
mod health;
mod progress;
mod show;
mod task;

use std::cell::Cell;
use std::process::ExitCode;
use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

pub use self::arguments::{Problem, RunArguments};
use self::client::{CallEvent, Client};
pub use self::cluster::{ClusterArguments, cluster};
use self::files::InputFile;
pub(crate) use self::health::degraded_now;
pub use self::health::{HealthArguments, health};
use self::progress::ProgressLine;
pub use self::task::{TaskArguments, run as task};
use crate::config::Config;
use crate::local_daemon::LocalDaemon;
use crate::metrics::Metrics;
use crate::printable::printable;
use crate::signals::ended_by_signal;

/// Exit code if no program ran, or nobody knows how it ended; the same as of `docker run`.
const NOT_RUN: u8 = 125;
/// Exit code after a timeout; the same as of `timeout`.
const TIMED_OUT: u8 = 124;
/// Exit code after Ctrl-C, as shells report it.
const INTERRUPTED: u8 = 130;
/// Exit code when nobody reads the output any more, as shells report SIGPIPE.
const NOT_READ: u8 = 141;

/// The longest time for cleaning up: a daemon that hangs must not hold the terminal.
const CLEARING: Duration = Duration::from_secs(10);

/// The id of a session for one run.
fn new_session_id() -> String {
    format!("paddock-run-{}", crate::id::random_hex::<8>())
}

/// Why no program ran, or nobody knows how it ended.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failed {
    /// The daemon is gone.
    #[error("the daemon is gone: {0}")]
    Gone(#[source] std::io::Error),
    /// The reader of the output is gone.
    #[error("nobody reads the output")]
    NotRead,
    /// Anything else, as a sentence.
    #[error("{0}")]
    Message(String),
}

impl Failed {
    fn new(what: impl std::fmt::Display) -> Self {
        Self::Message(what.to_string())
    }

    /// The error of output that could not be written.
    fn unwritten(error: std::io::Error) -> Self {
        if error.kind() == std::io::ErrorKind::BrokenPipe {
            return Self::NotRead;
        }
        Self::Message(format!("the output cannot be written: {error}"))
    }
}

/// Runs the program of the arguments; returns the exit code.
pub async fn run(arguments: RunArguments, mut config: Config, metrics: Metrics) -> ExitCode {
    // A daemon for one run needs no idle containers.
    config = config.without_idle();
    let progress = ProgressLine::new(arguments.quiet);
    let mut local = LocalDaemon::new(config, metrics);
    let session = arguments.session.clone().unwrap_or_else(new_session_id);
    let reached = Cell::new(false);
    let done = tokio::select! {
        done = whole(&arguments, &session, &mut local, (&progress, &reached)) => done,
        why = ended_by_signal() => {
            progress.clear();
            // The daemon ends the program when its connection closes; below, the session is removed unless
            // the user named it.
            Ok(if why == "SIGINT" { INTERRUPTED } else { 128 + 15 })
        }
    };
    if arguments.session.is_none() && reached.get() {
        progress.say("removing the session");
        let forgotten = tokio::time::timeout(CLEARING, forget(&local, &session)).await;
        let forgotten = forgotten.unwrap_or_else(|_| Err(Failed::new("the daemon does not answer")));
        if let Err(error) = forgotten {
            progress.complain(&format!("the session {session} remains, with its files: {error}"));
        }
    }
    let ended = local.end(&CancellationToken::new()).await;
    progress.clear();
    if let Err(error) = ended {
        progress.complain(&error);
    }
    match done {
        Ok(code) => ExitCode::from(code),
        Err(Failed::NotRead) => ExitCode::from(NOT_READ),
        Err(error) => {
            progress.complain(&error);
            ExitCode::from(NOT_RUN)
        }
    }
}

/// Everything from the program to its exit code.
async fn whole(
    arguments: &RunArguments,
    session: &str,
    local: &mut LocalDaemon,
    (progress, reached): (&ProgressLine, &Cell<bool>),
) -> Result<u8, Failed> {
    // Reading a terminal or a pipe can take for ever, and a signal must be handled meanwhile.
    let arguments_to_read = arguments.clone();
    let read = tokio::task::spawn_blocking(move || -> Result<_, Failed> {
        let (inputs, left_out) = InputFile::look(&arguments_to_read.files)?;
        Ok((arguments_to_read.program().map_err(Failed::new)?, inputs, left_out))
    });
    let (program, inputs, left_out) = read.await.map_err(Failed::new)??;
    for what in left_out {
        progress.note(&format!("left out: {}", printable(&what)));
    }
    if let Some(folder) = &arguments.output {
        files::make(folder)?;
    }
    progress.say("reaching the daemon");
    let client = Client::reach(local).await?;
    reached.set(true);
    for file in &inputs {
        progress.say(&format!("uploading {}", printable(&file.name)));
        client.put(session, &file.name, &file.path).await?;
    }
    let mut call = Map::new();
    call.insert("language".into(), json!(program.language));
    call.insert("code".into(), json!(program.code));
    call.insert("conversationId".into(), json!(session));
    if let Some(timeout) = arguments.timeout {
        call.insert("timeout_seconds".into(), json!(timeout.as_secs_f64()));
    }
    if let Some(stdin) = program.stdin {
        call.insert("stdin".into(), json!(stdin));
    }
    let environment: Map<String, Value> =
        arguments.environment.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
    if !environment.is_empty() {
        call.insert("environment".into(), Value::Object(environment));
    }
    if !arguments.packages.is_empty() {
        call.insert("packages".into(), json!(arguments.packages));
    }
    progress.run(&program.language);
    let mut shown = show::OutputPrinter::new(arguments.json);
    let mut running = client.call("run_code", Value::Object(call)).await?;
    let answer = loop {
        match running.next().await? {
            CallEvent::Output { stream, text } => {
                progress.clear();
                shown.piece(stream, &text).map_err(Failed::unwritten)?;
            }
            CallEvent::Answer(answer) => break answer,
        }
    };
    progress.clear();
    let document = answer?;
    shown.answer(&document).map_err(Failed::unwritten)?;
    if let Some(folder) = &arguments.output {
        progress.say("downloading");
        let failed = files::download(&client, session, (&document, folder), progress).await?;
        if failed > 0 {
            return Err(Failed::Message(format!(
                "{failed} of the program's files could not be written to {}",
                folder.display()
            )));
        }
    } else {
        progress.made(&document);
    }
    Ok(code(&document))
}

/// Deletes the session that was made for this run.
async fn forget(local: &LocalDaemon, session: &str) -> Result<(), Failed> {
    let client = Client::of(local);
    let arguments = json!({ "session_id": session, "delete_files": true });
    let mut closing = client.call("close_session", arguments).await?;
    while let CallEvent::Output { .. } = closing.next().await? {}
    Ok(())
}

/// The exit code of a program, from its answer.
fn code(document: &Value) -> u8 {
    if document["timed_out"] == true {
        return TIMED_OUT;
    }
    document["exit_code"].as_i64().and_then(|code| u8::try_from(code).ok()).unwrap_or(NOT_RUN)
}

#[cfg(test)]
mod tests;
