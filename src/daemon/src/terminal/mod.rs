//! `paddock run`: code from a terminal, as if its language were installed here.
//!
//! ```text
//!  arguments ─► program (file, -c, standard input)
//!      │          files in ── PUT ─┐
//!  nearby daemon, or this process ─┤ client: HTTP over the socket in the store
//!      │          run_code ─ SSE ──┤ output as it comes ─► standard output and error
//!      └─ exit code ◄─ answer ─────┘ files out ── GET ─► --output
//! ```
//!
//! The program's exit code is this command's, its output is whole however slowly it is read, and a session that was not asked
//! for by name leaves nothing. It must never write anything but the program's output to standard output, nor a file
//! anywhere but below the folder that it is given.

mod arguments;
mod client;
mod files;
mod progress;
mod show;

use std::cell::Cell;
use std::process::ExitCode;
use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

pub use self::arguments::{Arguments, Problem};
use self::client::{Client, Told};
use self::files::Given;
use self::progress::Progress;
use crate::config::Config;
use crate::metrics::Metrics;
use crate::nearby::Nearby;
use crate::printable::printable;
use crate::signals::ended_by_signal;

/// The exit code where no program ran, or nobody knows how it ended; as Docker's `run` has it.
const NOT_RUN: u8 = 125;
/// The exit code where its time was over; as `timeout` has it.
const TIMED_OUT: u8 = 124;
/// The exit code after Ctrl-C, as shells have it.
const INTERRUPTED: u8 = 130;
/// The exit code where nobody reads the output any more, as shells have it for SIGPIPE.
const NOT_READ: u8 = 141;

/// How long the end may take: a daemon that hangs must not hold the terminal.
const CLEARING: Duration = Duration::from_secs(10);

/// A session for one run.
fn made_up() -> String {
    format!("paddock-run-{}", crate::id::random_hex::<8>())
}

/// Why nothing ran, or nobody knows how it ended.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failed {
    /// There is no daemon any more.
    #[error("the daemon is gone: {0}")]
    Gone(#[source] std::io::Error),
    /// Whoever read the output has gone, and wants no more of it.
    #[error("nobody reads the output")]
    NotRead,
    /// Anything else, in a sentence.
    #[error("{0}")]
    Said(String),
}

impl Failed {
    fn new(what: impl std::fmt::Display) -> Self {
        Self::Said(what.to_string())
    }

    /// Output that could not be written.
    fn unwritten(error: std::io::Error) -> Self {
        if error.kind() == std::io::ErrorKind::BrokenPipe {
            return Self::NotRead;
        }
        Self::Said(format!("the output cannot be written: {error}"))
    }
}

/// Runs what was asked for, and says how it ended.
pub async fn run(arguments: Arguments, mut config: Config, metrics: Metrics) -> ExitCode {
    // A daemon for one run needs no containers that wait for others.
    config.pool = config.pool.without_idle();
    let progress = Progress::new(arguments.quiet);
    let mut nearby = Nearby::new(config, metrics);
    let session = arguments.session.clone().unwrap_or_else(made_up);
    let reached = Cell::new(false);
    let done = tokio::select! {
        done = whole(&arguments, &session, &mut nearby, (&progress, &reached)) => done,
        why = ended_by_signal() => {
            progress.clear();
            // What ran ends with its connection; its session goes if it was made for this.
            Ok(if why == "SIGINT" { INTERRUPTED } else { 128 + 15 })
        }
    };
    if arguments.session.is_none() && reached.get() {
        progress.say("removing what is left");
        let forgotten = tokio::time::timeout(CLEARING, forget(&nearby, &session)).await;
        let forgotten = forgotten.unwrap_or_else(|_| Err(Failed::new("the daemon does not answer")));
        if let Err(error) = forgotten {
            progress.complain(&format!("the session {session} is left, with its files: {error}"));
        }
    }
    let ended = nearby.end(&CancellationToken::new()).await;
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

/// From the program to its exit code.
async fn whole(
    arguments: &Arguments,
    session: &str,
    nearby: &mut Nearby,
    (progress, reached): (&Progress, &Cell<bool>),
) -> Result<u8, Failed> {
    // Reading can take for ever, as from a terminal or a pipe: a signal must be heard meanwhile.
    let arguments_to_read = arguments.clone();
    let read = tokio::task::spawn_blocking(move || -> Result<_, Failed> {
        let (given, left_out) = Given::look(&arguments_to_read.files)?;
        Ok((arguments_to_read.program().map_err(Failed::new)?, given, left_out))
    });
    let (program, given, left_out) = read.await.map_err(Failed::new)??;
    for what in left_out {
        progress.note(&format!("left out: {}", printable(&what)));
    }
    if let Some(folder) = &arguments.output {
        files::make(folder)?;
    }
    progress.say("reaching the daemon");
    let client = Client::reach(nearby).await?;
    reached.set(true);
    for file in &given {
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
    progress.run(&program.language);
    let mut shown = show::Shown::new(arguments.json);
    let mut running = client.call("run_code", Value::Object(call)).await?;
    let answer = loop {
        match running.next().await? {
            Told::Piece { stream, text } => {
                progress.clear();
                shown.piece(stream, &text).map_err(Failed::unwritten)?;
            }
            Told::Answer(answer) => break answer,
        }
    };
    progress.clear();
    let document = answer?;
    shown.answer(&document).map_err(Failed::unwritten)?;
    if let Some(folder) = &arguments.output {
        progress.say("downloading");
        let mut failed = 0;
        for name in files::made(&client, session, &document).await? {
            progress.say(&format!("downloading {}", printable(&name)));
            let got = match files::place(folder, &name) {
                Ok(place) => client.get(session, &name, &place).await,
                Err(error) => Err(error),
            };
            if let Err(error) = got {
                progress.complain(&error);
                failed += 1;
            }
        }
        progress.clear();
        if failed > 0 {
            return Err(Failed::Said(format!("{failed} of its files are not in {}", folder.display())));
        }
    } else {
        progress.made(&document);
    }
    Ok(code(&document))
}

/// Deletes the session that was made for this run.
async fn forget(nearby: &Nearby, session: &str) -> Result<(), Failed> {
    let client = Client::of(nearby);
    let arguments = json!({ "session_id": session, "delete_files": true });
    let mut closing = client.call("close_session", arguments).await?;
    while let Told::Piece { .. } = closing.next().await? {}
    Ok(())
}

/// The exit code of a program, by its answer.
fn code(document: &Value) -> u8 {
    if document["timed_out"] == true {
        return TIMED_OUT;
    }
    document["exit_code"].as_i64().and_then(|code| u8::try_from(code).ok()).unwrap_or(NOT_RUN)
}

#[cfg(test)]
mod tests;
