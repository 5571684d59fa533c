//! `download_files`: the content of several files of a session within one answer. It reads files as they are
//! saved.

use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

use crate::config::ToolSet;
use crate::tools::answer::public_path;
use crate::tools::code::{open_saved, read_saved};
use crate::tools::fault::Failure;
use crate::tools::registry::{Effect, Offer, Tool};
use crate::tools::session_name::{self, SessionName};
use crate::tools::{Caller, Code, Fault, Outcome, Tools, arguments};

/// Files of one call.
const FILES: usize = 100;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::tools) struct DownloadFiles {
    /// The id of the session, from an earlier answer.
    session_id: Option<SessionName>,
    /// Another name for session_id.
    #[serde(rename = "conversationId")]
    conversation_id: Option<SessionName>,
    /// Paths of the files, for example report.md or /workspace/chart.png.
    #[schemars(length(min = 1, max = FILES))]
    paths: Vec<String>,
}

impl Tool for DownloadFiles {
    const NAME: &'static str = "download_files";
    const SET: ToolSet = ToolSet::Task;
    const TITLE: &'static str = "Download files of a task";
    const SUMMARY: &'static str = "returns `paths` of a session as base64, each with a link; of files that \
                                   are too large together only the link";
    const EFFECT: Effect = Effect::ReadOnly;

    fn description(offer: &Offer<'_>) -> String {
        format!(
            "Return files of a session as base64, up to {FILES} of them and {} bytes together; content is \
             null for what is more, whose download_url works all the same.",
            offer.limits.artifact_read
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
        if !(1..=FILES).contains(&self.paths.len()) {
            let message = format!("`paths` has {} paths; it must have 1 to {FILES}", self.paths.len());
            return Err(Fault::new(Code::InvalidArgument, message).into());
        }
        let named = |(at, path): (usize, &String)| arguments::path(&format!("paths[{at}]"), path);
        let paths = self.paths.iter().enumerate().map(named).collect::<Result<Vec<_>, _>>()?;
        let session = tools.existing(&caller.owner, &id).await?;
        let mut opened = Vec::new();
        for path in paths {
            let Some((file, size)) = open_saved(&session, &path).await? else {
                let message = format!("No file at {}; nothing was downloaded", public_path(&path));
                return Err(Fault::new(Code::NotFound, message).into());
            };
            opened.push((path, file, size));
        }
        let mut left = tools.limits.artifact_read;
        let fits: Vec<bool> = opened
            .iter()
            .map(|(_, _, size)| {
                let rest = left.checked_sub(*size);
                left = rest.unwrap_or(left);
                rest.is_some()
            })
            .collect();
        let permit = tools
            .reading
            .take((&tools.services.tenants, &caller.owner), tools.limits.artifact_read - left)?;
        let mut files = Vec::new();
        for ((path, file, size), fits) in opened.into_iter().zip(fits) {
            let content = match fits {
                true => json!(BASE64_STANDARD.encode(read_saved(&path, (file, size)).await?)),
                false => Value::Null,
            };
            files.push(json!({
                "path": path.to_text(),
                "size_bytes": size,
                "content": content,
                "download_url": tools.link(&session, &path),
            }));
        }
        let mut document = Map::new();
        document.insert("success".into(), json!(true));
        document.insert("session_id".into(), json!(id.as_str()));
        document.insert("files".into(), Value::Array(files));
        Ok(Outcome { document, permit: Some(permit), ..Outcome::default() })
    }
}
