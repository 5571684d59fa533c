//! `upload_file`: a file into a session. No container is needed for it.

use std::time::SystemTime;

use paddock_proto::RelPath;
use paddock_proto::message::{Entry, EntryKind};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::artifacts::public_path;
use super::fault::Failure;
use super::{ArgumentError, Caller, Code, Fault, Outcome, Tools, arguments};
use crate::session::Session;
use crate::store::{Batch, Manifest};

const TOOL: &str = "upload_file";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    #[serde(rename = "conversationId")]
    conversation_id: Option<String>,
    session_id: Option<String>,
    filename: String,
    content: Option<String>,
    content_base64: Option<String>,
    text: Option<String>,
    overwrite: Option<bool>,
}

pub(super) async fn call(
    tools: &Tools,
    caller: &Caller,
    given: Map<String, Value>,
) -> Result<Outcome, Failure> {
    let given: Arguments = arguments::read(TOOL, given)?;
    let id = arguments::session(TOOL, caller, given.conversation_id.as_deref(), given.session_id.as_deref())?;
    let base64 = match (&given.content, &given.content_base64) {
        (Some(_), Some(_)) => {
            let problem = "content and content_base64 name the same thing; give one of them";
            return Err(ArgumentError::new(TOOL, problem).into());
        }
        (Some(base64), None) => ("content", Some(base64.as_str())),
        (None, Some(base64)) => ("content_base64", Some(base64.as_str())),
        (None, None) if given.text.is_none() => {
            let problem = "missing field `text` (plain text) or `content` (base64)";
            return Err(ArgumentError::new(TOOL, problem).into());
        }
        (None, None) => ("content", None),
    };
    let path = arguments::path("filename", &given.filename)?;
    let bytes = arguments::content(base64, ("text", given.text.as_deref()), tools.limits.upload)?;
    // The workflow form writes the same file at every run; the other asks before it destroys.
    let workflow = given.conversation_id.is_some() && given.content_base64.is_none();
    let overwrite = given.overwrite.unwrap_or(workflow);

    let asked = tools.sessions.get(&caller.owner, &id).await?;
    let turn = tools.sessions.turn(&asked).await?;
    // Another than the one asked for, if that was deleted while this waited.
    let session = turn.session().clone();
    if !overwrite && session.space.manifest().get(&path).is_some() {
        let message = format!("{} already exists. Set overwrite=true to replace it.", path.to_text());
        return Err(Fault::new(Code::FileExists, message).into());
    }
    room_for(&session.space.manifest(), &path)?;
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

impl Tools {
    /// What is said of a file that was put into a session.
    pub(crate) fn uploaded(&self, session: &Session, path: &RelPath, size: u64) -> Map<String, Value> {
        let id = session.id.as_str();
        let mut document = Map::new();
        document.insert("success".into(), json!(true));
        let message = format!("File '{}' uploaded successfully ({size} bytes)", path.to_text());
        document.insert("message".into(), json!(message));
        document.insert("file".into(), self.file(session, path));
        document.insert("session_id".into(), json!(id));
        document.insert("conversationId".into(), json!(id));
        document.insert("path".into(), json!(public_path(path)));
        document.insert("size_bytes".into(), json!(size));
        document
    }
}

/// Whether a file can be put there without taking away anything but a file or link of that very name: a file does not
/// become a directory for it, nor a directory a file. A link on the way is replaced: nothing goes through it.
pub(crate) fn room_for(manifest: &Manifest, path: &RelPath) -> Result<(), Fault> {
    let in_the_way = |what: String| Err(Fault::new(Code::FileExists, what));
    for above in std::iter::successors(path.parent(), RelPath::parent) {
        if matches!(manifest.get(&above).map(|held| &held.entry.kind), Some(EntryKind::File(_))) {
            return in_the_way(format!("{} is a file, no directory", above.to_text()));
        }
    }
    let is_dir = matches!(manifest.get(path).map(|held| &held.entry.kind), Some(EntryKind::Dir));
    if is_dir || manifest.is_above_some(path) {
        return in_the_way(format!("{} is a directory", path.to_text()));
    }
    Ok(())
}

pub(crate) fn now_ns() -> i64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.as_nanos()).unwrap_or(i64::MAX)
}
