//! The tools: what a caller may ask for, in plain values. Nothing in here knows JSON-RPC, MCP or HTTP.
//!
//! ```text
//!  call(caller, name, arguments) ─► one file per tool: parse ─► check everything ─► session / store / pool
//!                                                                    │
//!                                   Outcome { document, images } ◄───┘   or Fault (a code and a sentence)
//! ```
//!
//! Arguments are checked completely before anything is touched: bad input never loses anything and never reaches
//! a container.

mod arguments;
mod artifacts;
mod catalog;
mod close_session;
mod earlier;
mod exec;
mod fault;
mod language;
mod list_artifacts;
mod list_runners;
mod listing;
mod news;
mod read_artifact;
mod run;
mod run_code;
mod run_python;
mod sets;
mod upload_file;
mod values;

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use serde_json::{Map, Value};
use tokio::sync::OwnedSemaphorePermit;
use tokio_util::sync::CancellationToken;

pub use arguments::ArgumentError;
pub(crate) use artifacts::mime_type;
#[cfg(test)]
pub(crate) use catalog::TOOLS;
pub use catalog::ToolInfo;
pub(crate) use fault::Failure;
pub use fault::{Code, Fault};
pub use read_artifact::Room;
pub use sets::ToolSets;
pub(crate) use upload_file::{now_ns, room_for};

use crate::config::ToolSet;
use crate::execution::Executions;
use crate::feed::Feed;
use crate::metrics::Metrics;
use crate::pool::Pool;
use crate::recent::Recent;
use crate::session::{Listener, SessionId, Sessions};
use crate::sign::Signer;

/// What a caller may send, in bytes, and how long a run may take.
#[derive(Debug, Clone)]
pub struct ToolLimits {
    /// Source code.
    pub code: usize,
    /// An uploaded file, decoded; also all files of one call.
    pub upload: usize,
    /// A file read within an answer.
    pub artifact_read: u64,
    /// Output of one stream in an answer; also a text that is shown as one.
    pub output: usize,
    /// All environment variables of one call, names and values.
    pub environment: usize,
    /// Standard input.
    pub stdin: usize,
    /// Wall time of a run that asks for none.
    pub run_code: Duration,
    /// Wall time of a `run_python`.
    pub run_python: Duration,
    /// Wall time of an `execute_code` that asks for none.
    pub execute_code: Duration,
    /// The longest wall time that may be asked for.
    pub longest: Duration,
    /// Memory of a program, for texts.
    pub memory: u64,
    /// One file that a program writes, for texts.
    pub file_size: u64,
}

/// Everything that tools work on.
pub struct Tools {
    /// The sessions.
    pub sessions: Arc<Sessions>,
    /// The runners and their containers.
    pub pool: Pool,
    /// Makes links.
    pub signer: Signer,
    /// What callers may do.
    pub limits: ToolLimits,
    /// The tools that there are for anyone.
    pub sets: ToolSets,
    /// Room for answers that hold a file.
    pub reading: Room,
    /// What becomes of runs and executions, for whoever watches.
    pub feed: Arc<Feed>,
    /// Told of calls.
    pub metrics: Metrics,
    /// The last runs, for people who look on.
    pub recent: Recent,
    /// What goes on while nobody waits for it.
    pub executions: Arc<Executions>,
    /// The language whose runner commands run in.
    pub exec_runner: String,
    /// Cancelled once the daemon is told to end.
    pub stopping: CancellationToken,
}

/// Who calls.
pub struct Caller {
    /// The name of the token.
    pub owner: String,
    /// The session for calls that name none: made up once, the same from then on.
    pub own_session: Arc<OnceLock<SessionId>>,
    /// Hears what a program writes while the call waits for it, if somebody listens.
    pub live: Option<Listener>,
}

/// What a tool answers.
#[derive(Debug, Default)]
pub struct Outcome {
    /// The answer, also for reading as text.
    pub document: Map<String, Value>,
    /// True if what was asked for did not come out.
    pub failed: bool,
    /// Pictures that go with it.
    pub images: Vec<Image>,
    /// Where the time of a run went.
    pub timing: Option<Timing>,
    /// To be kept until the answer is sent.
    pub place: Option<OwnedSemaphorePermit>,
}

impl Outcome {
    /// Why it did not come out, if there is a code for that.
    fn code(&self) -> Option<Code> {
        Code::of(self.document.get("error")?.as_str()?)
    }
}

/// Where the time of a run went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// Until the session's turn, and a container.
    pub queued: Duration,
    /// To bring in files and code.
    pub files_in: Duration,
    /// The program, from the sending of its code to the death of its last process.
    pub program: Duration,
    /// To find and save what it changed.
    pub files_out: Duration,
    /// From the checked call to its answer. What is in none of the others is the daemon's own.
    pub total: Duration,
}

/// A picture for the model to look at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// `image/png` and the like.
    pub mime_type: String,
    /// Base64.
    pub data: String,
}

/// Why a call is no call of a tool.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// No tool has this name.
    #[error("there is no tool `{0}`; there are: {1}")]
    UnknownTool(String, String),
    /// The arguments are not what the tool takes.
    #[error(transparent)]
    Arguments(#[from] ArgumentError),
    /// The daemon failed. What went wrong is in its log, the sentence is for the caller.
    #[error("{0}")]
    Internal(String),
}

/// Prefix that one of the seeds gave its tools; taken when called, not listed, because a dot makes real clients
/// refuse the whole list.
const OLD_PREFIX: &str = "sandbox.";

impl Tools {
    /// The tools of these sets, as they are now: the languages follow the images found.
    pub fn list(&self, sets: ToolSets) -> Vec<ToolInfo> {
        let mut all = catalog::list(&self.pool.runners(), &self.exec_runner, &self.limits);
        all.retain(|tool| self.offers(sets, tool.set));
        all
    }

    /// Tells the metrics which tools there are.
    pub fn introduce(&self) {
        catalog::TOOLS.iter().for_each(|(tool, _)| self.metrics.know_tool(tool));
    }

    /// Whether whoever asked for `sets` has this one.
    fn offers(&self, sets: ToolSets, set: ToolSet) -> bool {
        sets.contains(set) && self.sets.contains(set)
    }

    /// Does what a tool does. When the future is dropped, or `cancel` is cancelled, a program that runs is ended;
    /// its files are still saved.
    ///
    /// # Errors
    /// See [`CallError`]. What goes wrong inside a tool is an [`Outcome`] that failed.
    pub async fn call(
        self: &Arc<Self>,
        caller: &Caller,
        sets: ToolSets,
        name: &str,
        arguments: Map<String, Value>,
        cancel: CancellationToken,
    ) -> Result<Outcome, CallError> {
        let begun = Instant::now();
        let done = self.perform(caller, sets, name, arguments, cancel).await;
        self.count(name, &done, begun.elapsed());
        done
    }

    /// Counts a call by what came out of it.
    fn count(&self, name: &str, done: &Result<Outcome, CallError>, took: Duration) {
        let code = done.as_ref().ok().and_then(Outcome::code);
        let outcome = match (done, code) {
            (Ok(_), Some(code)) => code.as_str(),
            (Ok(outcome), None) if outcome.failed => "failed",
            (Ok(_), None) => "ok",
            (Err(CallError::UnknownTool(..)), _) => "unknown_tool",
            (Err(CallError::Arguments(_)), _) => "invalid",
            (Err(CallError::Internal(_)), _) => "internal",
        };
        match catalog::find(name.strip_prefix(OLD_PREFIX).unwrap_or(name)) {
            Some((known, _)) => self.metrics.tool_called(known, outcome, took),
            None => self.metrics.no_tool_called(outcome),
        }
        if let Some(code) = code.filter(|code| code.is_a_limit()) {
            self.metrics.limit_hit(code.as_str());
        }
    }

    async fn perform(
        self: &Arc<Self>,
        caller: &Caller,
        sets: ToolSets,
        name: &str,
        arguments: Map<String, Value>,
        cancel: CancellationToken,
    ) -> Result<Outcome, CallError> {
        let known = name.strip_prefix(OLD_PREFIX).unwrap_or(name);
        let done = match known {
            other if !catalog::find(other).is_some_and(|(_, set)| self.offers(sets, set)) => {
                let names: Vec<_> = self.list(sets).into_iter().map(|tool| tool.name).collect();
                let shown: String = name.chars().take(80).collect();
                return Err(CallError::UnknownTool(shown, names.join(", ")));
            }
            "run_code" => run_code::call(self, caller, arguments, cancel).await,
            "run_python" => run_python::call(self, caller, arguments, cancel).await,
            "read_artifact" => read_artifact::call(self, caller, arguments).await,
            "list_artifacts" => list_artifacts::call(self, caller, arguments).await,
            "close_session" => close_session::call(self, caller, arguments).await,
            "upload_file" => upload_file::call(self, caller, arguments).await,
            "list_runners" => list_runners::call(self, arguments),
            "execute_code" => exec::execute::wait(self, caller, arguments, cancel).await,
            "execute_code_async" => exec::execute::begin(self, caller, arguments).await,
            "get_execution_output" => exec::output::call(self, caller, arguments).await,
            "get_execution_status" => exec::status::one(self, caller, arguments),
            "list_executions" => exec::status::list(self, caller, arguments),
            "send_stdin" => exec::control::send_stdin(self, caller, arguments).await,
            "cancel_execution" => exec::control::cancel(self, caller, arguments).await,
            // Listed, and not here: the list is wrong.
            other => return Err(CallError::Internal(format!("the tool `{other}` is not built in"))),
        };
        let mut done = done.or_else(fault::Failure::into_outcome)?;
        if catalog::find(known).is_some_and(|(_, set)| set == ToolSet::Exec) {
            exec::keep_output_a_list(&mut done);
        }
        Ok(done)
    }
}
