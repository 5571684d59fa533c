//! `get_sandbox_status`: how the last task of a session stands.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

use super::{report, tasks_of};
use crate::config::ToolSet;
use crate::tools::fault::Failure;
use crate::tools::registry::{Effect, Offer, Tool};
use crate::tools::session_name::{self, SessionName};
use crate::tools::{Caller, Outcome, Tools};

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::tools) struct GetSandboxStatus {
    /// The id of the session, from an earlier answer.
    session_id: Option<SessionName>,
    /// Another name for session_id.
    #[serde(rename = "conversationId")]
    conversation_id: Option<SessionName>,
}

impl Tool for GetSandboxStatus {
    const NAME: &'static str = "get_sandbox_status";
    const SET: ToolSet = ToolSet::Task;
    const TITLE: &'static str = "Look at a task";
    const SUMMARY: &'static str = "returns how the last task of a session stands: `status`, what its agent \
                                   does now, and what came of it";
    const EFFECT: Effect = Effect::ReadOnly;

    fn description(_: &Offer<'_>) -> String {
        "Return how the last task of a session stands: status (idle, running, completed, failed, timeout or \
         cancelled), what the agent does now, how long it has run, and at its end its answer and files."
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
        tools.existing(&caller.owner, &id).await?;
        let tasks = tasks_of(&tools.services.executions, &caller.owner, &id);
        let running: Vec<_> = tasks.iter().filter(|one| one.end().is_none()).map(|one| &one.id).collect();
        let mut document = match tasks.last() {
            Some(last) => report::document(tools, last).await?,
            None => Map::from_iter([
                ("session_id".to_owned(), json!(id.as_str())),
                ("conversationId".to_owned(), json!(id.as_str())),
                ("status".to_owned(), json!("idle")),
                ("error".to_owned(), Value::Null),
            ]),
        };
        document.insert("running_tasks".into(), json!(running));
        Ok(Outcome { document, ..Outcome::default() })
    }
}
