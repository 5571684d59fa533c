//! `send_stdin`: input for an execution that was started with `interactive`.

use std::sync::Arc;

use bytes::Bytes;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, json};
use tokio_util::sync::CancellationToken;

use super::find_execution;
use crate::config::ToolSet;
use crate::tools::fault::Failure;
use crate::tools::registry::{Effect, Offer, Tool};
use crate::tools::session_name::SessionName;
use crate::tools::{ArgumentError, Caller, Fault, Outcome, Tools, values};

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::tools) struct SendStdin {
    /// The id of the execution, from an earlier answer.
    #[serde(alias = "executionId")]
    execution_id: String,
    /// The input for the program.
    #[serde(alias = "inputData")]
    input_data: Option<String>,
    /// Add a newline if the input does not end with one. false: the program reads exactly these characters.
    #[schemars(extend("default" = true))]
    newline: Option<bool>,
    /// Close the input after it: the program then reads end of file.
    #[schemars(extend("default" = false))]
    eof: Option<bool>,
    /// Names the session and its files. Without it: the session of this connection, which the answer names.
    session_id: Option<SessionName>,
    /// Another name for session_id.
    #[serde(rename = "conversationId")]
    conversation_id: Option<SessionName>,
}

impl Tool for SendStdin {
    const NAME: &'static str = "send_stdin";
    const SET: ToolSet = ToolSet::Exec;
    const TITLE: &'static str = "Send a command input";
    const SUMMARY: &'static str = "sends a line to an execution that was started with `interactive`; with \
                                   `newline` false exactly the characters of `input_data`; `eof` closes its \
                                   input";
    const EFFECT: Effect = Effect::Adds;

    fn description(_: &Offer<'_>) -> String {
        "Send a line to an execution that was started with interactive true. A missing newline is added, \
         unless newline is false. Input that the program has not read when the daemon restarts can be lost."
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
        let eof = self.eof == Some(true);
        if self.input_data.is_none() && !eof {
            let problem =
                "missing field `input_data` (a line for the program), or `eof` true to end its input";
            return Err(ArgumentError::new(Self::NAME, problem).into());
        }
        // An empty text before the end of the input, or without a newline, is no empty line.
        let sends_nothing = eof || self.newline == Some(false);
        if let Some(mut input) = self.input_data.filter(|input| !(input.is_empty() && sends_nothing)) {
            values::bounded("input_data", input.len(), tools.limits.stdin)?;
            if self.newline != Some(false) && !input.ends_with('\n') {
                input.push('\n');
            }
            execution.send(Some(Bytes::from(input))).await.map_err(Fault::from)?;
        }
        if eof {
            execution.send(None).await.map_err(Fault::from)?;
        }
        let mut document = Map::new();
        document.insert("success".into(), json!(true));
        document.insert("execution_id".into(), json!(execution.id));
        Ok(Outcome { document, ..Outcome::default() })
    }
}
