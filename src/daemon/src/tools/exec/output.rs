//! `get_execution_output`: events of an execution, from any number on, now or when there are some.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{WAIT, named, put_standing};
use crate::execution::{Event, Execution};
use crate::tools::fault::Failure;
use crate::tools::{Caller, Outcome, Tools, arguments};

const TOOL: &str = "get_execution_output";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    #[serde(alias = "executionId")]
    execution_id: String,
    wait: Option<bool>,
    since: Option<u64>,
    session_id: Option<String>,
    #[serde(rename = "conversationId")]
    conversation_id: Option<String>,
}

pub(in crate::tools) async fn call(
    tools: &Arc<Tools>,
    caller: &Caller,
    given: Map<String, Value>,
) -> Result<Outcome, Failure> {
    let given: Arguments = arguments::read(TOOL, given)?;
    let ids = (given.execution_id.as_str(), given.conversation_id.as_deref(), given.session_id.as_deref());
    let execution = named(tools, caller, TOOL, ids)?;
    let since = given.since.unwrap_or(0);
    if given.wait == Some(true) {
        // Whoever says how far it has read wants what comes next; whoever does not wants all of it.
        let news = async {
            match given.since {
                Some(since) => execution.news(since).await,
                None => execution.over().await,
            }
        };
        let _ = tokio::time::timeout(WAIT, news).await;
    }
    let mut document = Map::new();
    put_standing(&mut document, &execution);
    put_page(tools, &mut document, &execution, since).await?;
    Ok(Outcome { document, ..Outcome::default() })
}

/// `output`, and where to go on: `next_since`, and `more` if there is more already.
pub(super) async fn put_page(
    tools: &Tools,
    document: &mut Map<String, Value>,
    execution: &Arc<Execution>,
    since: u64,
) -> Result<(), Failure> {
    let page = execution.page(since, tools.limits.output).await?;
    // A number that there is not yet would pass over what is to come.
    let since = since.min(execution.progress().borrow().last);
    let last = page.events.last().map_or(since, |event| event.seq);
    document.insert("output".into(), page.events.iter().map(Event::json).collect());
    document.insert("next_since".into(), json!(last));
    document.insert("more".into(), json!(page.more));
    Ok(())
}
