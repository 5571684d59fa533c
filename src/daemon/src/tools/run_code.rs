//! `run_code`: source code in, its output and its files out.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use super::fault::Failure;
use super::run::{self, Job};
use super::{Caller, Code, Fault, Outcome, Tools, arguments, values};
use crate::session::{Program, RunRequest, new_run_id};

const TOOL: &str = "run_code";

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

pub(super) async fn call(
    tools: &Arc<Tools>,
    caller: &Caller,
    given: Map<String, Value>,
    cancel: CancellationToken,
) -> Result<Outcome, Failure> {
    let job = check(tools, caller, given)?;
    run::perform(tools, caller, job, cancel).await
}

fn check(tools: &Tools, caller: &Caller, given: Map<String, Value>) -> Result<Job, Failure> {
    let given: Arguments = arguments::read(TOOL, given)?;
    let limits = &tools.limits;
    let id = arguments::session(TOOL, caller, given.conversation_id.as_deref(), given.session_id.as_deref())?;
    let invalid = |message: String| Fault::new(Code::InvalidArgument, message);
    let runner = run::runner(tools, &given.language)?;
    let code = run::code(tools, given.code)?;
    if given.network {
        let message = "programs have no network here; run with `network` false or left out";
        return Err(Fault::new(Code::NetworkUnavailable, message).into());
    }
    let environment = values::environment(given.environment, limits)?;
    let timeout = values::timeout(given.timeout_seconds, limits.run_code, limits)?;
    if given.stdin.is_some() && !runner.stdin {
        let message =
            format!("the runner for {} takes no `stdin`; put the input into a file", runner.language);
        return Err(invalid(message).into());
    }
    run::bounded("stdin", given.stdin.as_ref().map_or(0, String::len), limits.stdin)?;
    let mut room = limits.upload;
    let mut files = Vec::new();
    for (at, file) in given.files.iter().enumerate() {
        let path = arguments::path(&format!("files[{at}].path"), &file.path)?;
        let content = arguments::content(&format!("files[{at}].content"), &file.content, room)?;
        room -= content.len();
        files.push((path, content));
    }
    let program = Program::Code { code, stdin: given.stdin.map(Bytes::from) };
    let mut run = RunRequest::new(new_run_id(), runner.language.clone(), program, timeout);
    run.environment = environment;
    Ok(Job { id, run, files, waits: true })
}
