//! The tool set `exec`: shell commands that go on while no call waits for them.
//!
//! ```text
//!  ExecuteCode, ExecuteCodeAsync ─► ShellCommand: checked ─► execution ─► its answer, or its id
//!  GetExecutionOutput, GetExecutionStatus, ListExecutions, SendStdin, CancelExecution ─► find_execution
//! ```

mod cancel_execution;
mod command;
mod execute_code;
mod execute_code_async;
mod get_execution_output;
mod get_execution_status;
mod list_executions;
mod sandbox_config;
mod send_stdin;

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};

pub(super) use self::cancel_execution::CancelExecution;
pub(super) use self::command::{EndOnDrop, check_started, permit};
pub(super) use self::execute_code::ExecuteCode;
pub(super) use self::execute_code_async::ExecuteCodeAsync;
pub(super) use self::get_execution_output::GetExecutionOutput;
pub(super) use self::get_execution_status::GetExecutionStatus;
pub(super) use self::list_executions::ListExecutions;
pub(super) use self::send_stdin::SendStdin;
use super::fault::Failure;
use super::session_name::{self, SessionNames};
use super::{Caller, Code, Fault, Outcome, Tools};
use crate::execution::{Execution, ExecutionState};

/// How long a call waits for an execution at most: clients give up after a minute.
pub(super) const WAIT: Duration = Duration::from_secs(45);

/// The execution that has this id, among the caller's; where the call names a session too, among that
/// session's. The id alone is enough: nobody guesses one, and a client that connects again has another
/// session of its own.
fn find_execution(
    tools: &Tools,
    caller: &Caller,
    tool: &'static str,
    (id, names): (&str, SessionNames<'_>),
) -> Result<Arc<Execution>, Failure> {
    let session = session_name::optional(tool, names)?;
    let found = tools.services.executions.get(&caller.owner, id);
    let found = found.filter(|found| session.is_none_or(|session| found.session == session));
    let shown: String = id.chars().take(80).collect();
    let unknown = || {
        let ended = tools.services.cluster.as_ref().and_then(|cluster| cluster.ended_maker(id));
        let message = match ended {
            Some(node) => format!(
                "execution {shown:?} is gone: node {node}, which ran it, has ended; what its \
                 program did after the last save is lost, and the files of its session are not: start it \
                 again"
            ),
            None => format!(
                "there is no execution {shown:?}; list_executions lists the existing ones, and an ended \
                 execution is kept for a while"
            ),
        };
        Fault::new(Code::ExecutionNotFound, message).into()
    };
    found.ok_or_else(unknown)
}

#[expect(clippy::cast_precision_loss, reason = "milliseconds since the epoch have 41 bits")]
fn seconds(ms: u64) -> Value {
    json!(ms as f64 / 1000.0)
}

/// Adds what every answer about an execution says: its state.
fn put_state(document: &mut Map<String, Value>, execution: &Execution) {
    let end = execution.end();
    let state = end.as_ref().map_or(ExecutionState::Running, |end| end.state);
    let mut put = |key: &str, value: Value| document.insert(key.to_owned(), value);
    put("execution_id", json!(execution.id));
    put("status", json!(state.as_str()));
    put("exit_code", json!(end.as_ref().and_then(|end| end.exit_code)));
    put("session_id", json!(execution.session.as_str()));
    put("conversationId", json!(execution.session.as_str()));
    if let Some(network) = execution.network() {
        put("network", json!(network));
    }
    if let Some(models) = execution.model_usage() {
        put("models", json!(models));
    }
    let ports = execution.ports();
    if !ports.is_empty() {
        put("ports", json!(ports));
    }
    if let Some(end) = end {
        put("duration_ms", json!(end.duration_ms));
        if let Some(message) = end.message {
            put("error_message", json!(message));
        }
    }
}

/// A long form of an execution's state: with its command, of which `shown` characters, and its times.
fn status(execution: &Execution, shown: usize) -> Map<String, Value> {
    let mut document = Map::new();
    document.insert("id".into(), json!(execution.id));
    put_state(&mut document, execution);
    let spec = &execution.spec;
    let command = &spec.command;
    let head: String = command.chars().take(shown).collect();
    let shown = if head.len() < command.len() { head + "…" } else { head };
    document.insert("command".into(), json!(shown));
    document.insert("interactive".into(), json!(spec.interactive));
    document.insert("timeout_seconds".into(), json!(spec.timeout.as_secs_f64()));
    document.insert("started_at".into(), seconds(spec.started_ms));
    let completed = execution.end().map_or(Value::Null, |end| seconds(end.completed_ms));
    document.insert("completed_at".into(), completed);
    document.entry("error_message").or_insert(Value::Null);
    document
}

/// Makes `output` a list of events also where there are none: clients of these tools read it as one.
pub(super) fn keep_output_a_list(outcome: &mut Outcome) {
    if let Some(output) = outcome.document.get_mut("output").filter(|output| output.is_string()) {
        *output = json!([]);
    }
}

/// Whether the command is under way, or ended by itself with exit code 0.
fn is_well(execution: &Execution) -> bool {
    matches!(execution.state(), ExecutionState::Running | ExecutionState::Completed)
}
