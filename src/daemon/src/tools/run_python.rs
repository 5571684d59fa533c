//! `run_python`: Python in, its output and its files out. A session that is at work says so at once.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use super::fault::Failure;
use super::run::{self, Job};
use super::{Caller, Outcome, Tools, arguments};
use crate::session::{Program, RunRequest, new_run_id};

const TOOL: &str = "run_python";
const LANGUAGE: &str = "python";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    code: String,
    session_id: Option<String>,
    #[serde(rename = "conversationId")]
    conversation_id: Option<String>,
}

pub(super) async fn call(
    tools: &Arc<Tools>,
    caller: &Caller,
    given: Map<String, Value>,
    cancel: CancellationToken,
) -> Result<Outcome, Failure> {
    let given: Arguments = arguments::read(TOOL, given)?;
    let id = arguments::session(TOOL, caller, given.conversation_id.as_deref(), given.session_id.as_deref())?;
    run::runner(tools, LANGUAGE)?;
    let program = Program::Code { code: run::code(tools, given.code)?, stdin: None };
    let run = RunRequest::new(new_run_id(), LANGUAGE.to_owned(), program, tools.limits.run_python);
    run::perform(tools, caller, Job { id, run, files: Vec::new(), waits: false }, cancel).await
}
