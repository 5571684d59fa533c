//! `get_execution_status`: the state of one execution.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;
use tokio_util::sync::CancellationToken;

use super::{find_execution, status};
use crate::config::ToolSet;
use crate::tools::fault::Failure;
use crate::tools::registry::{Effect, Offer, Tool};
use crate::tools::session_name::SessionName;
use crate::tools::{Caller, Outcome, Tools};

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::tools) struct GetExecutionStatus {
    /// The id of the execution, from an earlier answer.
    #[serde(alias = "executionId")]
    execution_id: String,
    /// Names the session and its files. Without it: the session of this connection, which the answer names.
    session_id: Option<SessionName>,
    /// Another name for session_id.
    #[serde(rename = "conversationId")]
    conversation_id: Option<SessionName>,
}

impl Tool for GetExecutionStatus {
    const NAME: &'static str = "get_execution_status";
    const SET: ToolSet = ToolSet::Exec;
    const TITLE: &'static str = "Look at a command";
    const SUMMARY: &'static str = "returns `status`, `exit_code`, `command`, and the times of start and end";
    const EFFECT: Effect = Effect::ReadOnly;

    fn description(_: &Offer<'_>) -> String {
        "Return the status of an execution (running, completed, failed, timeout, cancelled or lost), its \
         exit code and its times."
            .to_owned()
    }

    async fn call(
        self,
        tools: &Arc<Tools>,
        caller: &Caller,
        _: CancellationToken,
    ) -> Result<Outcome, Failure> {
        let names = (self.conversation_id.as_ref(), self.session_id.as_ref());
        let execution = find_execution(tools, caller, Self::NAME, (&self.execution_id, names))?;
        Ok(Outcome { document: status(&execution, usize::MAX), ..Outcome::default() })
    }
}
