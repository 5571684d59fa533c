//! `upload_file`: a file into a session. No container is needed for it.

use std::sync::Arc;
use std::time::SystemTime;

use paddock_proto::RelPath;
use paddock_proto::message::{Entry, EntryKind};
use schemars::JsonSchema;
use serde::Deserialize;
use tokio_util::sync::CancellationToken;

use crate::config::ToolSet;
use crate::session::TurnKind;
use crate::store::{Batch, Manifest};
use crate::tools::content::{self, ContentArgument};
use crate::tools::fault::Failure;
use crate::tools::registry::{Effect, Offer, Tool};
use crate::tools::session_name::{self, SessionName};
use crate::tools::{ArgumentError, Caller, Code, Fault, Outcome, Tools, arguments};

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::tools) struct UploadFile {
    /// Names the conversation. Calls with the same id share the files in /data; no other conversation sees
    /// them. Without an id the daemon makes one and returns it in the answer: pass it again to continue with
    /// the same files.
    #[serde(rename = "conversationId")]
    conversation_id: Option<SessionName>,
    /// Another name for conversationId.
    session_id: Option<SessionName>,
    /// Name of the file, for example data.csv. Missing directories are created.
    filename: String,
    /// Content of a text file, as plain text.
    text: Option<String>,
    /// Instead of text: content of any file, as base64 with padding.
    content: Option<String>,
    /// Another name for content.
    content_base64: Option<String>,
    /// Replace an existing file of this name. Default: true with conversationId and without content_base64,
    /// otherwise false.
    overwrite: Option<bool>,
}

impl Tool for UploadFile {
    const NAME: &'static str = "upload_file";
    const SET: ToolSet = ToolSet::Code;
    const TITLE: &'static str = "Upload a file";
    const SUMMARY: &'static str = "writes a file into `/data` of the conversation: `text` as plain text, or \
                                   `content` as base64";
    const EFFECT: Effect = Effect::Destroys;

    fn description(offer: &Offer<'_>) -> String {
        let most = offer.limits.upload;
        format!("Write a file into /data of a conversation, for programs to read. At most {most} bytes.")
    }

    async fn call(
        self,
        tools: &Arc<Tools>,
        caller: &Caller,
        _: CancellationToken,
    ) -> Result<Outcome, Failure> {
        let names = (self.conversation_id.as_ref(), self.session_id.as_ref());
        let id = session_name::named_or_own(Self::NAME, caller, names)?;
        let path = arguments::path("filename", &self.filename)?;
        let bytes = content::decode(self.base64()?, ("text", self.text.as_deref()), tools.limits.upload)?;
        // A workflow, which names a conversationId, writes the same file at every run; others ask before they
        // replace one.
        let is_workflow = self.conversation_id.is_some() && self.content_base64.is_none();
        let overwrite = self.overwrite.unwrap_or(is_workflow);

        let _held = tools.message_shares.enter(&caller.owner, &id, caller.message.as_deref())?;
        let turn = tools.services.sessions.enter(&caller.owner, &id, TurnKind::Whole).await?;
        let session = turn.session().clone();
        if !overwrite && session.space.manifest().get(&path).is_some() {
            let message = format!("{} already exists. Set overwrite=true to replace it.", path.to_text());
            return Err(Fault::new(Code::FileExists, message).into());
        }
        check_free(&session.space.manifest(), &path)?;
        let size = bytes.len();
        let entry =
            Entry { path: path.clone(), kind: EntryKind::File(size as u64), mode: 0o644, mtime_ns: now_ns() };
        let mut batch = Batch::new(session.space.clone());
        batch.admit(&entry)?;
        batch.file(entry);
        batch.write(&bytes).await?;
        batch.keep();
        batch.commit().await?;
        drop(turn);

        let document = tools.uploaded(&session, &path, size as u64);
        Ok(Outcome { document, ..Outcome::default() })
    }
}

impl UploadFile {
    /// The argument that brings the content as base64, if one does.
    fn base64(&self) -> Result<ContentArgument<'_>, ArgumentError> {
        match (&self.content, &self.content_base64) {
            (Some(_), Some(_)) => {
                let problem = "content and content_base64 name the same thing; give one of them";
                Err(ArgumentError::new(Self::NAME, problem))
            }
            (Some(base64), None) => Ok(("content", Some(base64))),
            (None, Some(base64)) => Ok(("content_base64", Some(base64))),
            (None, None) if self.text.is_none() => {
                let problem = "missing field `text` (plain text) or `content` (base64)";
                Err(ArgumentError::new(Self::NAME, problem))
            }
            (None, None) => Ok(("content", None)),
        }
    }
}

/// Checks that a file can be put there and replaces nothing but a file or a link of that very name: no file
/// becomes a directory for it, and no directory a file. A link on the way is replaced: the file does not go
/// through it.
pub(crate) fn check_free(manifest: &Manifest, path: &RelPath) -> Result<(), Fault> {
    let in_the_way = |what: String| Err(Fault::new(Code::FileExists, what));
    for above in std::iter::successors(path.parent(), RelPath::parent) {
        if matches!(manifest.get(&above).map(|stored| &stored.entry.kind), Some(EntryKind::File(_))) {
            return in_the_way(format!("{} is a file, no directory", above.to_text()));
        }
    }
    let is_dir = matches!(manifest.get(path).map(|stored| &stored.entry.kind), Some(EntryKind::Dir));
    if is_dir || manifest.is_above_some(path) {
        return in_the_way(format!("{} is a directory", path.to_text()));
    }
    Ok(())
}

/// The time, in nanoseconds since the epoch.
pub(crate) fn now_ns() -> i64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.as_nanos()).unwrap_or(i64::MAX)
}
