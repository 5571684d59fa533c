//! `send_stdin` and `cancel_execution`: what an execution is told.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::named;
use crate::tools::fault::Failure;
use crate::tools::{Caller, Outcome, Tools, arguments, run};

const SEND: &str = "send_stdin";
const CANCEL: &str = "cancel_execution";

/// What a program has to end by itself once it was asked to.
const GRACE: Duration = Duration::from_secs(5);

/// How long a call waits for the end of what it cancelled: its grace, and what it takes to kill it and save its files.
const ENDED_WITHIN: Duration = Duration::from_secs(20);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Send {
    #[serde(alias = "executionId")]
    execution_id: String,
    #[serde(alias = "inputData")]
    input_data: Option<String>,
    eof: Option<bool>,
    session_id: Option<String>,
    #[serde(rename = "conversationId")]
    conversation_id: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Cancel {
    #[serde(alias = "executionId")]
    execution_id: String,
    force: Option<bool>,
    session_id: Option<String>,
    #[serde(rename = "conversationId")]
    conversation_id: Option<String>,
}

pub(in crate::tools) async fn send_stdin(
    tools: &Arc<Tools>,
    caller: &Caller,
    given: Map<String, Value>,
) -> Result<Outcome, Failure> {
    let given: Send = arguments::read(SEND, given)?;
    let ids = (given.execution_id.as_str(), given.conversation_id.as_deref(), given.session_id.as_deref());
    let execution = named(tools, caller, SEND, ids)?;
    let eof = given.eof == Some(true);
    if given.input_data.is_none() && !eof {
        let problem = "missing field `input_data` (a line for the program), or `eof` true to end its input";
        return Err(arguments::ArgumentError::new(SEND, problem).into());
    }
    // Nothing, and then the end of it, is no empty line.
    if let Some(mut input) = given.input_data.filter(|input| !(input.is_empty() && eof)) {
        run::bounded("input_data", input.len(), tools.limits.stdin)?;
        if !input.ends_with('\n') {
            input.push('\n');
        }
        execution.send(Some(Bytes::from(input))).await.map_err(crate::tools::Fault::from)?;
    }
    if eof {
        execution.send(None).await.map_err(crate::tools::Fault::from)?;
    }
    let mut document = Map::new();
    document.insert("success".into(), json!(true));
    document.insert("execution_id".into(), json!(execution.id));
    Ok(Outcome { document, ..Outcome::default() })
}

pub(in crate::tools) async fn cancel(
    tools: &Arc<Tools>,
    caller: &Caller,
    given: Map<String, Value>,
) -> Result<Outcome, Failure> {
    let given: Cancel = arguments::read(CANCEL, given)?;
    let ids = (given.execution_id.as_str(), given.conversation_id.as_deref(), given.session_id.as_deref());
    let execution = named(tools, caller, CANCEL, ids)?;
    let was_running = execution.end_within(if given.force == Some(true) { Duration::ZERO } else { GRACE });
    let _ = tokio::time::timeout(ENDED_WITHIN, execution.over()).await;
    let mut document = Map::new();
    document.insert("success".into(), json!(true));
    document.insert("was_running".into(), json!(was_running));
    document.insert("execution_id".into(), json!(execution.id));
    document.insert("status".into(), json!(execution.state().as_str()));
    Ok(Outcome { document, ..Outcome::default() })
}
