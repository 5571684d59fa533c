//! `cleanup_sandbox`: ends what runs in a session, and deletes its container and its files.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, json};
use tokio_util::sync::CancellationToken;

use crate::config::ToolSet;
use crate::tools::answer::no_session;
use crate::tools::fault::Failure;
use crate::tools::registry::{Effect, Offer, Tool};
use crate::tools::session_name::{self, SessionName};
use crate::tools::{Caller, Outcome, Tools, drops};

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::tools) struct CleanupSandbox {
    /// The id of the session, from an earlier answer.
    session_id: Option<SessionName>,
    /// Another name for session_id.
    #[serde(rename = "conversationId")]
    conversation_id: Option<SessionName>,
}

impl Tool for CleanupSandbox {
    const NAME: &'static str = "cleanup_sandbox";
    const SET: ToolSet = ToolSet::Task;
    const TITLE: &'static str = "Delete a sandbox";
    const SUMMARY: &'static str =
        "ends what runs in a session and deletes its container, its files and its conversations";
    const EFFECT: Effect = Effect::Destroys;

    fn description(_: &Offer<'_>) -> String {
        "End what runs in a session, and delete its container and all its files permanently. Download what \
         you want to keep first."
            .to_owned()
    }

    async fn call(
        self,
        tools: &Arc<Tools>,
        caller: &Caller,
        _: CancellationToken,
    ) -> Result<Outcome, Failure> {
        let names = (self.conversation_id.as_ref(), self.session_id.as_ref());
        let id = session_name::required(Self::NAME, names)?;
        if !drops::close(tools, &caller.owner, &id, true).await? {
            return Err(no_session(&id).into());
        }
        let mut document = Map::new();
        document.insert("success".into(), json!(true));
        document.insert("session_id".into(), json!(id.as_str()));
        document.insert("status".into(), json!("deleted"));
        Ok(Outcome { document, ..Outcome::default() })
    }
}
