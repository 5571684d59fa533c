//! The tools, each with all that it is: its name, schema, description, call, and its row in the
//! documentation.
//!
//! ```text
//!  a type of arguments + impl Tool ─► RegisteredTool ─► tools/list (ToolInfo), tools/call, metrics, docs
//! ```
//!
//! A tool is the type of its arguments: the schema that clients see is derived from it, so the two cannot
//! differ. To add a tool, write its file in `code`, `exec` or `task` and name it in [`TOOLS`]. A description
//! must never promise anything that this daemon does not have.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use super::code::{CloseSession, ListArtifacts, ListRunners, ReadArtifact, RunCode, RunPython, UploadFile};
use super::exec::{
    CancelExecution, ExecuteCode, ExecuteCodeAsync, GetExecutionOutput, GetExecutionStatus, ListExecutions,
    SendStdin,
};
use super::fault::Failure;
use super::schema::{self, InputSchema};
use super::task::{CleanupSandbox, DownloadFiles, ExecuteTask, GetSandboxStatus};
use super::{Caller, Outcome, ToolLimits, Tools, arguments, mounts};
use crate::config::ToolSet;
use crate::egress::NetworkMode;
use crate::pool::{Runner, Runners};

/// Every tool, in the order in which clients see them.
pub(crate) static TOOLS: [RegisteredTool; 18] = [
    RegisteredTool::of::<RunCode>(),
    RegisteredTool::of::<RunPython>(),
    RegisteredTool::of::<UploadFile>(),
    RegisteredTool::of::<ReadArtifact>(),
    RegisteredTool::of::<ListArtifacts>(),
    RegisteredTool::of::<CloseSession>(),
    RegisteredTool::of::<ListRunners>(),
    RegisteredTool::of::<ExecuteCode>(),
    RegisteredTool::of::<ExecuteCodeAsync>(),
    RegisteredTool::of::<GetExecutionOutput>(),
    RegisteredTool::of::<GetExecutionStatus>(),
    RegisteredTool::of::<ListExecutions>(),
    RegisteredTool::of::<SendStdin>(),
    RegisteredTool::of::<CancelExecution>(),
    RegisteredTool::of::<ExecuteTask>(),
    RegisteredTool::of::<GetSandboxStatus>(),
    RegisteredTool::of::<DownloadFiles>(),
    RegisteredTool::of::<CleanupSandbox>(),
];

/// One tool. The implementing type is its arguments, as a call names them.
pub(super) trait Tool: DeserializeOwned + JsonSchema + Send {
    /// Its name in a call: `[a-z0-9_]`, since real clients refuse a whole list for anything else.
    const NAME: &'static str;
    /// The tool set that it belongs to.
    const SET: ToolSet;
    /// A short name for people.
    const TITLE: &'static str;
    /// What it does, in one line, as the documentation lists it.
    const SUMMARY: &'static str;
    /// What it can do to what exists.
    const EFFECT: Effect;
    /// How its answer is written as text.
    const FORM: AnswerForm = AnswerForm::Fields;

    /// What language models read of it.
    fn description(offer: &Offer<'_>) -> String;

    /// Adds to the schema what only the running daemon knows, such as its languages and limits.
    fn refine(_schema: &mut InputSchema, _offer: &Offer<'_>) {}

    /// Checks the arguments, then does what the tool does.
    fn call(
        self,
        tools: &Arc<Tools>,
        caller: &Caller,
        cancel: CancellationToken,
    ) -> impl Future<Output = Result<Outcome, Failure>> + Send;
}

/// What a tool can do to what exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Effect {
    /// Nothing.
    ReadOnly,
    /// It adds, but ends and deletes nothing.
    Adds,
    /// It can end, replace or delete.
    Destroys,
}

/// How an answer is written as text.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum AnswerForm {
    /// Every field as `name: value`.
    #[default]
    Fields,
    /// The output of a program and the files that it made.
    Run,
    /// The content of one file.
    File,
    /// A list of files.
    Files,
}

/// What this daemon offers at this moment: descriptions and schemas say it.
pub(super) struct Offer<'a> {
    /// The runners of languages.
    pub(super) runners: &'a Runners,
    /// All runners, coding agents too.
    pub(super) all: &'a Runners,
    /// The names of the coding agents that have an image.
    pub(super) agents: &'a [&'a str],
    /// The language whose runner commands run in.
    pub(super) exec_runner: &'a str,
    pub(super) limits: &'a ToolLimits,
    /// What network a call can ask for.
    pub(super) network: NetworkMode,
    /// Whether calls can ask for packages.
    pub(super) packages: bool,
}

impl Offer<'_> {
    /// The names of the languages, for a text.
    pub(super) fn languages(&self) -> String {
        if self.runners.is_empty() {
            return "none at the moment".to_owned();
        }
        self.runners.keys().map(String::as_str).collect::<Vec<_>>().join(", ")
    }

    /// What a description says of the operator's folders in the containers of these runners.
    pub(super) fn mounts(&self, has: impl Fn(&Runner) -> bool) -> String {
        mounts::sentence(self.all.values().map(|(_, runner)| &**runner).filter(|runner| has(runner)))
    }
}

/// A [`Tool`] as a value.
#[derive(Debug)]
pub(crate) struct RegisteredTool {
    pub(crate) name: &'static str,
    pub(crate) set: ToolSet,
    title: &'static str,
    /// What its row in the documentation says.
    #[cfg_attr(
        not(test),
        expect(dead_code, reason = "the test that compares the documentation with the tools reads it")
    )]
    pub(crate) summary: &'static str,
    effect: Effect,
    pub(super) form: AnswerForm,
    description: fn(&Offer<'_>) -> String,
    input: fn(&Offer<'_>) -> Map<String, Value>,
    call: CallFn,
}

/// Parses the arguments of a call, and does what the tool does.
type CallFn = for<'a> fn(
    &'a Arc<Tools>,
    &'a Caller,
    Map<String, Value>,
    CancellationToken,
) -> BoxFuture<'a, Result<Outcome, Failure>>;

/// A tool as a client sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolInfo {
    /// Its name in a call.
    pub name: &'static str,
    /// For people.
    pub title: &'static str,
    /// For models.
    pub description: String,
    /// JSON Schema of its arguments.
    pub input: Map<String, Value>,
    /// Whether it changes nothing.
    pub read_only: bool,
    /// Whether it can end or delete something that exists.
    pub destructive: bool,
}

impl RegisteredTool {
    const fn of<T: Tool>() -> Self {
        Self {
            name: T::NAME,
            set: T::SET,
            title: T::TITLE,
            summary: T::SUMMARY,
            effect: T::EFFECT,
            form: T::FORM,
            description: T::description,
            input: input::<T>,
            call: call::<T>,
        }
    }

    /// The tool as a client sees it now. No tool announces a schema of its answer: answers grow with what
    /// happened, and a client that checks them against a schema would refuse what a later version adds.
    pub(super) fn info(&self, offer: &Offer<'_>) -> ToolInfo {
        ToolInfo {
            name: self.name,
            title: self.title,
            description: (self.description)(offer),
            input: (self.input)(offer),
            read_only: self.effect == Effect::ReadOnly,
            destructive: self.effect == Effect::Destroys,
        }
    }

    /// Calls it.
    ///
    /// # Errors
    /// The arguments are wrong, or the tool failed.
    pub(super) fn call<'a>(
        &self,
        tools: &'a Arc<Tools>,
        caller: &'a Caller,
        arguments: Map<String, Value>,
        cancel: CancellationToken,
    ) -> BoxFuture<'a, Result<Outcome, Failure>> {
        (self.call)(tools, caller, arguments, cancel)
    }
}

fn input<T: Tool>(offer: &Offer<'_>) -> Map<String, Value> {
    let mut schema = schema::of::<T>();
    T::refine(&mut schema, offer);
    schema.finish()
}

fn call<'a, T: Tool>(
    tools: &'a Arc<Tools>,
    caller: &'a Caller,
    arguments: Map<String, Value>,
    cancel: CancellationToken,
) -> BoxFuture<'a, Result<Outcome, Failure>> {
    Box::pin(async move {
        let arguments: T = arguments::read(T::NAME, arguments)?;
        arguments.call(tools, caller, cancel).await
    })
}

/// The tool with this name.
pub(super) fn find(name: &str) -> Option<&'static RegisteredTool> {
    TOOLS.iter().find(|tool| tool.name == name)
}

#[cfg(test)]
pub(super) mod tests;
