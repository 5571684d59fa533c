//! `get_execution_status` and `list_executions`: how executions stand.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{named, put_standing, seconds};
use crate::execution::Execution;
use crate::tools::fault::Failure;
use crate::tools::{Caller, Outcome, Tools, arguments};

const ONE: &str = "get_execution_status";
const LIST: &str = "list_executions";

/// Executions of one answer; the newest are in it.
const LISTED: usize = 100;

/// Characters of a command that a list shows.
const SHOWN: usize = 200;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct One {
    #[serde(alias = "executionId")]
    execution_id: String,
    session_id: Option<String>,
    #[serde(rename = "conversationId")]
    conversation_id: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct List {
    session_id: Option<String>,
    #[serde(rename = "conversationId")]
    conversation_id: Option<String>,
}

pub(in crate::tools) fn one(
    tools: &Arc<Tools>,
    caller: &Caller,
    given: Map<String, Value>,
) -> Result<Outcome, Failure> {
    let given: One = arguments::read(ONE, given)?;
    let ids = (given.execution_id.as_str(), given.conversation_id.as_deref(), given.session_id.as_deref());
    let execution = named(tools, caller, ONE, ids)?;
    Ok(Outcome { document: status(&execution, usize::MAX), ..Outcome::default() })
}

pub(in crate::tools) fn list(
    tools: &Arc<Tools>,
    caller: &Caller,
    given: Map<String, Value>,
) -> Result<Outcome, Failure> {
    let given: List = arguments::read(LIST, given)?;
    let id = arguments::session(LIST, caller, given.conversation_id.as_deref(), given.session_id.as_deref())?;
    let all = tools.executions.list(&caller.owner, &id);
    let newest = &all[all.len().saturating_sub(LISTED)..];
    let listed: Vec<Value> = newest.iter().map(|execution| Value::Object(status(execution, SHOWN))).collect();
    let mut document = Map::new();
    document.insert("executions".into(), Value::Array(listed));
    document.insert("session_id".into(), json!(id.as_str()));
    document.insert("conversationId".into(), json!(id.as_str()));
    if all.len() > LISTED {
        document.insert("truncated".into(), json!(true));
    }
    Ok(Outcome { document, ..Outcome::default() })
}

fn status(execution: &Execution, shown: usize) -> Map<String, Value> {
    let mut document = Map::new();
    document.insert("id".into(), json!(execution.id));
    put_standing(&mut document, execution);
    let about = &execution.about;
    let command = &about.command;
    let head: String = command.chars().take(shown).collect();
    let shown = if head.len() < command.len() { head + "…" } else { head };
    document.insert("command".into(), json!(shown));
    document.insert("interactive".into(), json!(about.interactive));
    document.insert("timeout_seconds".into(), json!(about.timeout.as_secs_f64()));
    document.insert("started_at".into(), seconds(about.started_ms));
    let completed = execution.end().map_or(Value::Null, |end| seconds(end.completed_ms));
    document.insert("completed_at".into(), completed);
    document.entry("error_message").or_insert(Value::Null);
    document
}
