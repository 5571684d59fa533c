//! `close_session`: ends the programs of a session and removes its containers. Its files stay, unless they
//! are to be deleted too.

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
pub(in crate::tools) struct CloseSession {
    /// The id of the conversation, from an earlier answer.
    session_id: Option<SessionName>,
    /// Another name for session_id.
    #[serde(rename = "conversationId")]
    conversation_id: Option<SessionName>,
    /// Also delete the files of the session, permanently.
    #[serde(default)]
    delete_files: bool,
}

impl Tool for CloseSession {
    const NAME: &'static str = "close_session";
    const SET: ToolSet = ToolSet::Code;
    const TITLE: &'static str = "Close a session";
    const SUMMARY: &'static str = "ends what is running and removes the containers. The files stay for the \
                                   next call, unless `delete_files` is true";
    const EFFECT: Effect = Effect::Destroys;

    fn description(_: &Offer<'_>) -> String {
        "End a session: stop its programs and remove its containers. Its files stay, and a later call with \
         the same id finds them again, unless delete_files is true."
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
        if !drops::close(tools, &caller.owner, &id, self.delete_files).await? {
            return Err(no_session(&id).into());
        }
        let mut document = Map::new();
        document.insert("success".into(), json!(true));
        document.insert("status".into(), json!("closed"));
        document.insert("session_id".into(), json!(id.as_str()));
        document.insert("conversationId".into(), json!(id.as_str()));
        document.insert("files_deleted".into(), json!(self.delete_files));
        Ok(Outcome { document, ..Outcome::default() })
    }
}
