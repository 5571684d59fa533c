//! `close_session`: what runs is ended, the containers go, the files stay unless they are to be deleted too.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::fault::Failure;
use super::{Caller, Outcome, Tools, arguments, listing};

const TOOL: &str = "close_session";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    session_id: Option<String>,
    #[serde(rename = "conversationId")]
    conversation_id: Option<String>,
    #[serde(default)]
    delete_files: bool,
}

pub(super) async fn call(
    tools: &Arc<Tools>,
    caller: &Caller,
    given: Map<String, Value>,
) -> Result<Outcome, Failure> {
    let given: Arguments = arguments::read(TOOL, given)?;
    let id = arguments::named_session(TOOL, given.conversation_id.as_deref(), given.session_id.as_deref())?;
    if !tools.sessions.close(&caller.owner, &id, given.delete_files).await? {
        return Err(listing::no_session(&id).into());
    }
    let mut document = Map::new();
    document.insert("success".into(), json!(true));
    document.insert("status".into(), json!("closed"));
    document.insert("session_id".into(), json!(id.as_str()));
    document.insert("conversationId".into(), json!(id.as_str()));
    document.insert("files_deleted".into(), json!(given.delete_files));
    Ok(Outcome { document, ..Outcome::default() })
}
