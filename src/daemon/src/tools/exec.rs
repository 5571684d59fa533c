//! Shell commands that go on while nobody waits for them, and the tools around them.
//!
//! ```text
//!  execute_code, execute_code_async ─► checked ─► execution ─► an answer, or its id
//!  get_execution_output, get_execution_status, list_executions, send_stdin, cancel_execution ─► by id, of the caller's own
//! ```

pub(super) mod control;
pub(super) mod execute;
pub(super) mod output;
mod sandbox_config;
pub(super) mod status;

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::fault::Failure;
use super::{Caller, Code, Fault, Outcome, Tools, arguments};
use crate::execution::{Execution, State};

/// How long a call waits for an execution at most: clients give up after a minute.
const WAIT: Duration = Duration::from_secs(45);

/// The execution that a call names, of this caller; of the session too, where that is named. Its id is what opens it:
/// nobody guesses one, and a client whose connection, and with it its session, is another one now still has it.
fn named(
    tools: &Tools,
    caller: &Caller,
    tool: &'static str,
    (id, conversation_id, session_id): (&str, Option<&str>, Option<&str>),
) -> Result<Arc<Execution>, Failure> {
    let session = arguments::given_session(tool, conversation_id, session_id)?;
    let found = tools.executions.get(&caller.owner, id);
    let found = found.filter(|found| session.is_none_or(|session| found.session == session));
    let shown: String = id.chars().take(80).collect();
    let unknown = || {
        let message = format!(
            "there is no execution {shown:?}; list_executions tells those that there are, and what has ended is kept for a while"
        );
        Fault::new(Code::ExecutionNotFound, message).into()
    };
    found.ok_or_else(unknown)
}

#[expect(clippy::cast_precision_loss, reason = "milliseconds since the epoch have 41 bits")]
fn seconds(ms: u64) -> Value {
    json!(ms as f64 / 1000.0)
}

/// What every answer about an execution says.
fn put_standing(document: &mut Map<String, Value>, execution: &Execution) {
    let end = execution.end();
    let state = end.as_ref().map_or(State::Running, |end| end.state);
    let mut put = |key: &str, value: Value| document.insert(key.to_owned(), value);
    put("execution_id", json!(execution.id));
    put("status", json!(state.as_str()));
    put("exit_code", json!(end.as_ref().and_then(|end| end.exit_code)));
    put("session_id", json!(execution.session.as_str()));
    put("conversationId", json!(execution.session.as_str()));
    if let Some(end) = end {
        put("duration_ms", json!(end.duration_ms));
        if let Some(message) = end.message {
            put("error_message", json!(message));
        }
    }
}

/// In these answers `output` is a list of events, also where there is none.
pub(super) fn keep_output_a_list(outcome: &mut Outcome) {
    if let Some(output) = outcome.document.get_mut("output").filter(|output| output.is_string()) {
        *output = json!([]);
    }
}

/// Whether what was asked for came out: the program ended by itself, or is under way.
fn came_out(execution: &Execution) -> bool {
    matches!(execution.state(), State::Running | State::Completed)
}
