//! `list_artifacts`: the files of a session, page by page. It does not wait for a run: what it lists is saved.

use serde::Deserialize;
use serde_json::{Map, Value};

use super::fault::Failure;
use super::{Caller, Outcome, Tools, arguments};

const TOOL: &str = "list_artifacts";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    session_id: Option<String>,
    #[serde(rename = "conversationId")]
    conversation_id: Option<String>,
    limit: Option<usize>,
    cursor: Option<String>,
}

pub(super) async fn call(
    tools: &Tools,
    caller: &Caller,
    given: Map<String, Value>,
) -> Result<Outcome, Failure> {
    let given: Arguments = arguments::read(TOOL, given)?;
    let id = arguments::named_session(TOOL, given.conversation_id.as_deref(), given.session_id.as_deref())?;
    let document = tools.page(&caller.owner, &id, given.limit, given.cursor.as_deref()).await?;
    Ok(Outcome { document, ..Outcome::default() })
}
