//! The tools: what a caller may ask for, in plain values. Nothing in here knows JSON-RPC, MCP or HTTP.
//!
//! ```text
//!  call(caller, name, arguments) ─► registry ─► code, exec, task: parse ─► check all ─► session, store, pool
//!                                                                                     │
//!                                  Outcome { document, images } ◄─ answer/ ◄──────────┘   or a Fault
//! ```
//!
//! `registry` lists the tools; each has one file, in the folder of its tool set, which says all about it. A
//! tool checks its arguments completely before it touches anything: a wrong call never loses anything and
//! never reaches a container.

mod answer;
mod arguments;
mod code;
mod content;
mod drops;
mod exec;
mod fault;
mod language;
mod message_shares;
mod mounts;
mod network;
mod outcome;
mod packages;
mod registry;
mod schema;
mod session_name;
mod sets;
mod task;
mod values;

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

pub(crate) use self::answer::mime_type;
pub use self::arguments::ArgumentError;
pub use self::code::{ReadPermit, ReadPermits};
pub(crate) use self::code::{check_free, now_ns};
pub(crate) use self::fault::Failure;
pub use self::fault::{Code, Fault};
pub use self::message_shares::{ArrivedMessage, MessageShares};
pub use self::outcome::{CallError, Image, Outcome, Timing};
#[cfg(test)]
pub(crate) use self::registry::TOOLS;
pub use self::registry::ToolInfo;
use self::registry::{AnswerForm, Offer, RegisteredTool};
pub use self::sets::ToolSets;
pub use self::task::TaskPermits;
use crate::audit::AuditEntry;
use crate::config::{TaskSettings, ToolSet};
use crate::egress::Asker;
use crate::services::Services;
use crate::session::{OutputBacklog, SessionId};

/// What a caller may send, in bytes, and how long a run may take.
#[derive(Debug, Clone)]
pub struct ToolLimits {
    /// Source code.
    pub code: usize,
    /// An uploaded file, decoded; also all files of one call together.
    pub upload: usize,
    /// A file that is read within an answer.
    pub artifact_read: u64,
    /// Output of one stream in an answer; also a file that an answer has as text.
    pub output: usize,
    /// Output of both streams together in what a model reads.
    pub shown: usize,
    /// All environment variables of one call, names and values.
    pub environment: usize,
    /// Standard input.
    pub stdin: usize,
    /// Wall time of a `run_code` that names none.
    pub run_code: Duration,
    /// Wall time of a `run_python`.
    pub run_python: Duration,
    /// Wall time of an `execute_code` that names none.
    pub execute_code: Duration,
    /// What a task has that its call does not name.
    pub task: TaskSettings,
    /// The longest wall time that a call may name.
    pub longest: Duration,
    /// Memory of a program, for texts.
    pub memory: u64,
    /// Size of one file that a program writes, for texts.
    pub file_size: u64,
}

/// The tools of one daemon.
pub struct Tools {
    /// What they work on.
    pub services: Arc<Services>,
    /// What callers may do.
    pub limits: ToolLimits,
    /// The tool sets that are served.
    pub sets: ToolSets,
    /// The language whose runner commands run in.
    pub exec_runner: String,
    /// Bounds the answers that hold a file.
    pub reading: ReadPermits,
    /// Bounds the messages that the calls of one session hold.
    pub message_shares: Arc<MessageShares>,
    /// Lets one task of a session start at a time.
    pub task_permits: TaskPermits,
}

/// A caller of tools.
pub struct Caller {
    /// The name of its token.
    pub owner: String,
    /// The session of its calls that name none: made once, then the same for all.
    pub own_session: Arc<OnceLock<SessionId>>,
    /// The id that this session gets when it is made, if it was chosen already.
    pub fresh_session: Option<SessionId>,
    /// Receives what a program writes while the call waits for it, if the caller asked for that.
    pub output: Option<OutputBacklog>,
    /// The message that the call came in, where the way in bounds the memory of messages.
    pub message: Option<Arc<dyn ArrivedMessage>>,
    /// The way to ask it for what its call does not allow, while the call goes on.
    pub asker: Option<Asker>,
    /// Its line in the audit log.
    pub audit: Option<Arc<AuditEntry>>,
}

impl Caller {
    /// A caller that gets a session of its own when it names none.
    pub fn new(owner: impl Into<String>, output: Option<OutputBacklog>) -> Self {
        Self {
            owner: owner.into(),
            own_session: Arc::default(),
            fresh_session: None,
            output,
            message: None,
            asker: None,
            audit: None,
        }
    }
}

/// What a call is told that could not be noted in the audit log.
pub(crate) const NOT_NOTED: &str = "the audit log cannot be written, and this daemon serves no call that it \
                                    cannot note (audit.required); nothing was done";

/// Notes a call in its entry of the audit log: never its arguments, nor what it answered.
fn audit(
    entry: &AuditEntry,
    tool: Option<&RegisteredTool>,
    caller: &Caller,
    outcome: &'static str,
    done: &Result<Outcome, CallError>,
) {
    let document = done.as_ref().ok().map(|done| &done.document);
    let of_document = document.and_then(|document| document.get("session_id")?.as_str());
    let session = of_document.or_else(|| caller.own_session.get().map(SessionId::as_str));
    let network = document.and_then(|document| document.get("network")).filter(|list| list.is_array());
    entry.note(tool.map_or("unknown", |tool| tool.name), session, outcome, network);
}

/// A prefix of tool names that older clients use. Calls may have it, lists do not: many clients refuse a
/// whole list for a dot in a name.
const OLD_PREFIX: &str = "sandbox.";

impl Tools {
    /// The tools of these sets as they are now: the languages follow the images on the engine.
    pub fn list(&self, sets: ToolSets) -> Vec<ToolInfo> {
        let runners = self.services.pool.languages();
        let all = self.services.pool.runners();
        let offer = Offer {
            runners: &runners,
            all: &all,
            agents: &task::agents_of(&all),
            exec_runner: &self.exec_runner,
            limits: &self.limits,
            network: self.services.egress.mode(),
            packages: self.has_packages(),
        };
        self.offered(sets).map(|tool| tool.info(&offer)).collect()
    }

    /// Tells the metrics which tools there are.
    pub fn introduce(&self) {
        registry::TOOLS.iter().for_each(|tool| self.services.metrics.know_tool(tool.name));
    }

    /// The tools of these sets that are served. Those for coding agents are not listed where there is no
    /// image of one.
    fn offered(&self, sets: ToolSets) -> impl Iterator<Item = &'static RegisteredTool> {
        let has_agent = task::has_agent(&self.services.pool);
        let is_there = move |tool: &&RegisteredTool| has_agent || tool.set != ToolSet::Task;
        registry::TOOLS.iter().filter(is_there).filter(move |tool| self.offers(sets, tool.set))
    }

    /// The coding agents that callers can give a task to and follow, and whether this owner has a model for
    /// them.
    pub(crate) fn agents(&self, owner: &str) -> Vec<(String, bool)> {
        let is_offered = [ToolSet::Task, ToolSet::Exec].into_iter().all(|set| self.sets.contains(set));
        if is_offered { task::agents(&self.services, owner) } else { Vec::new() }
    }

    fn offers(&self, sets: ToolSets, set: ToolSet) -> bool {
        sets.contains(set) && self.sets.contains(set)
    }

    /// Calls a tool. When the future is dropped, or `cancel` is cancelled, a running program is ended; its
    /// files are still saved.
    ///
    /// # Errors
    /// See [`CallError`]. A failure inside a tool is an [`Outcome`] that failed.
    pub async fn call(
        self: &Arc<Self>,
        caller: &Caller,
        sets: ToolSets,
        name: &str,
        arguments: Map<String, Value>,
        cancel: CancellationToken,
    ) -> Result<Outcome, CallError> {
        let begun = Instant::now();
        if self.services.audit.refuses() {
            return Ok(Fault::new(Code::QuotaExceeded, NOT_NOTED).outcome());
        }
        let tool = registry::find(name.strip_prefix(OLD_PREFIX).unwrap_or(name));
        let done = match tool.filter(|tool| self.offers(sets, tool.set)) {
            Some(tool) => self.perform(tool, caller, arguments, cancel).await,
            None => {
                let names: Vec<_> = self.offered(sets).map(|tool| tool.name).collect();
                let shown: String = name.chars().take(80).collect();
                Err(CallError::UnknownTool(shown, names.join(", ")))
            }
        };
        let outcome = self.count(tool, &caller.owner, &done, begun.elapsed());
        if let Some(entry) = &caller.audit {
            audit(entry, tool, caller, outcome, &done);
        }
        done
    }

    /// Counts a call by its result.
    fn count(
        &self,
        tool: Option<&RegisteredTool>,
        owner: &str,
        done: &Result<Outcome, CallError>,
        took: Duration,
    ) -> &'static str {
        let metrics = &self.services.metrics;
        let code = done.as_ref().ok().and_then(Outcome::code);
        let outcome = match (done, code) {
            (Ok(_), Some(code)) => code.as_str(),
            (Ok(outcome), None) if outcome.failed => "failed",
            (Ok(_), None) => "ok",
            (Err(CallError::UnknownTool(..)), _) => "unknown_tool",
            (Err(CallError::Arguments(_)), _) => "invalid",
            (Err(CallError::Internal(_)), _) => "internal",
        };
        match tool {
            Some(tool) => metrics.tool_called(tool.name, outcome, took),
            None => metrics.no_tool_called(outcome),
        }
        let of_tenant = if matches!(outcome, "ok" | "failed") { outcome } else { "refused" };
        let document = done.as_ref().ok().map(|done| &done.document);
        let limit = document.and_then(|document| document.get("limit")?.get("name")?.as_str());
        self.services.tenants.called(owner, of_tenant, took, limit);
        if let Some(code) = code.filter(|code| code.is_a_limit()) {
            metrics.limit_hit(code.as_str());
        }
        outcome
    }

    /// Calls a tool that is offered, and adds what all answers of its kind have.
    async fn perform(
        self: &Arc<Self>,
        tool: &RegisteredTool,
        caller: &Caller,
        arguments: Map<String, Value>,
        cancel: CancellationToken,
    ) -> Result<Outcome, CallError> {
        let had_session = caller.own_session.get().is_some();
        let done = tool.call(self, caller, arguments, cancel).await;
        let mut done = done.or_else(Failure::into_outcome)?;
        done.form = tool.form;
        done.is_of_a_command = tool.set == ToolSet::Exec;
        done.is_new_session = !had_session && caller.own_session.get().is_some();
        if done.is_of_a_command {
            exec::keep_output_a_list(&mut done);
        } else if tool.form == AnswerForm::Run {
            done.document.entry("files").or_insert_with(|| Value::Array(Vec::new()));
        }
        Ok(done)
    }
}
