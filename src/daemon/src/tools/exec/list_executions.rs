//! `list_executions`: the executions of one session and their states.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

use super::status;
use crate::config::ToolSet;
use crate::tools::fault::Failure;
use crate::tools::registry::{Effect, Offer, Tool};
use crate::tools::session_name::{self, SessionName};
use crate::tools::{Caller, Outcome, Tools};

/// Executions of one answer: the newest.
const LISTED: usize = 100;

/// Characters of a command that the list shows.
const SHOWN: usize = 200;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::tools) struct ListExecutions {
    /// Names the session and its files. Without it: the session of this connection, which the answer names.
    session_id: Option<SessionName>,
    /// Another name for session_id.
    #[serde(rename = "conversationId")]
    conversation_id: Option<SessionName>,
}

impl Tool for ListExecutions {
    const NAME: &'static str = "list_executions";
    const SET: ToolSet = ToolSet::Exec;
    const TITLE: &'static str = "List commands";
    const SUMMARY: &'static str = "lists the executions of the session, the oldest first";
    const EFFECT: Effect = Effect::ReadOnly;

    fn description(_: &Offer<'_>) -> String {
        "List the executions of a session, running and recently ended, the oldest first.".to_owned()
    }

    async fn call(
        self,
        tools: &Arc<Tools>,
        caller: &Caller,
        _: CancellationToken,
    ) -> Result<Outcome, Failure> {
        let names = (self.conversation_id.as_ref(), self.session_id.as_ref());
        let id = session_name::named_or_own(Self::NAME, caller, names)?;
        let all = tools.services.executions.list(&caller.owner, &id);
        let newest = &all[all.len().saturating_sub(LISTED)..];
        let listed: Vec<Value> =
            newest.iter().map(|execution| Value::Object(status(execution, SHOWN))).collect();
        let mut document = Map::new();
        document.insert("executions".into(), Value::Array(listed));
        document.insert("session_id".into(), json!(id.as_str()));
        document.insert("conversationId".into(), json!(id.as_str()));
        if all.len() > LISTED {
            document.insert("truncated".into(), json!(true));
        }
        Ok(Outcome { document, ..Outcome::default() })
    }
}
