//! `cancel_execution`: ends an execution and every process that it started.

use std::sync::Arc;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, json};
use tokio_util::sync::CancellationToken;

use super::find_execution;
use crate::config::ToolSet;
use crate::tools::fault::Failure;
use crate::tools::registry::{Effect, Offer, Tool};
use crate::tools::session_name::SessionName;
use crate::tools::{Caller, Outcome, Tools};

/// How long a program has to end by itself after SIGTERM.
const GRACE: Duration = Duration::from_secs(5);

/// How long the call waits for the end: the grace, and the time to kill the program and save its files.
const ENDED_WITHIN: Duration = Duration::from_secs(20);

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::tools) struct CancelExecution {
    /// The id of the execution, from an earlier answer.
    #[serde(alias = "executionId")]
    execution_id: String,
    /// Send SIGKILL at once.
    #[schemars(extend("default" = false))]
    force: Option<bool>,
    /// Names the session and its files. Without it: the session of this connection, which the answer names.
    session_id: Option<SessionName>,
    /// Another name for session_id.
    #[serde(rename = "conversationId")]
    conversation_id: Option<SessionName>,
}

impl Tool for CancelExecution {
    const NAME: &'static str = "cancel_execution";
    const SET: ToolSet = ToolSet::Exec;
    const TITLE: &'static str = "End a command";
    const SUMMARY: &'static str = "ends an execution and every process that it started: SIGTERM, then \
                                   SIGKILL five seconds later; with `force` SIGKILL at once";
    const EFFECT: Effect = Effect::Destroys;

    fn description(_: &Offer<'_>) -> String {
        "End an execution and every process that it started: SIGTERM first, SIGKILL 5 seconds later, or \
         SIGKILL at once with force. Its output can still be read."
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
        let was_running = execution.end_within(if self.force == Some(true) { Duration::ZERO } else { GRACE });
        let _ = tokio::time::timeout(ENDED_WITHIN, execution.over()).await;
        let mut document = Map::new();
        document.insert("success".into(), json!(true));
        document.insert("was_running".into(), json!(was_running));
        document.insert("execution_id".into(), json!(execution.id));
        document.insert("status".into(), json!(execution.state().as_str()));
        Ok(Outcome { document, ..Outcome::default() })
    }
}
