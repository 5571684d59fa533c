//! `run_code`: source code in, its output and its files out.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use super::fault::Failure;
use super::run::{self, Job};
use super::{Caller, Code, Fault, Outcome, Tools, arguments};
use crate::session::{Program, RunRequest, new_run_id};

const TOOL: &str = "run_code";
/// Set by the agent for a program that has an input; not a caller's to set.
const RESERVED: &str = "SANDBOX_STDIN_FD";
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
    let size: usize = given.environment.iter().map(|(name, value)| name.len() + value.len() + 2).sum();
    run::bounded("environment", size, limits.environment)?;
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
    let mut run = RunRequest::new(new_run_id(), given.language, program, timeout);
    run.environment = given.environment.into_iter().collect();
    Ok(Job { id, run, files, waits: true })
}
