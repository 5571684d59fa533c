//! `list_artifacts`: the files of a session, page by page. It does not wait for a run: it lists the files
//! that are saved.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;
use tokio_util::sync::CancellationToken;

use crate::config::ToolSet;
use crate::tools::answer::{MAX_PAGE, PAGE};
use crate::tools::fault::Failure;
use crate::tools::registry::{AnswerForm, Effect, Offer, Tool};
use crate::tools::session_name::{self, SessionName};
use crate::tools::{Caller, Outcome, Tools};

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::tools) struct ListArtifacts {
    /// The id of the conversation, from an earlier answer.
    session_id: Option<SessionName>,
    /// Another name for session_id.
    #[serde(rename = "conversationId")]
    conversation_id: Option<SessionName>,
    /// The most files to return in one answer.
    #[schemars(range(min = 1, max = MAX_PAGE), extend("default" = PAGE))]
    limit: Option<usize>,
    /// next_cursor of the previous answer.
    cursor: Option<String>,
}

impl Tool for ListArtifacts {
    const NAME: &'static str = "list_artifacts";
    const SET: ToolSet = ToolSet::Code;
    const TITLE: &'static str = "List files";
    const SUMMARY: &'static str = "lists the files of a conversation with sizes, types and links, page by \
                                   page (`limit`, `cursor`)";
    const EFFECT: Effect = Effect::ReadOnly;
    const FORM: AnswerForm = AnswerForm::Files;

    fn description(_: &Offer<'_>) -> String {
        format!(
            "List the files in /data of a session with sizes, types and download links, {PAGE} per page \
             unless limit is given. When truncated is true, call again with cursor set to next_cursor."
        )
    }

    async fn call(
        self,
        tools: &Arc<Tools>,
        caller: &Caller,
        _: CancellationToken,
    ) -> Result<Outcome, Failure> {
        let names = (self.conversation_id.as_ref(), self.session_id.as_ref());
        let id = session_name::required(Self::NAME, names)?;
        let document = tools.page(&caller.owner, &id, self.limit, self.cursor.as_deref()).await?;
        Ok(Outcome { document, ..Outcome::default() })
    }
}
