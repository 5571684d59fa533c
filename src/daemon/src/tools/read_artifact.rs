//! `read_artifact`: one file's content within the answer. It does not wait for a run: what it reads is saved.

use std::io::{self, Read};
use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::artifacts::{self, SHOWN_IMAGES, public_path};
use super::fault::Failure;
use super::{Caller, Code, Fault, Image, Outcome, Tools, arguments};
use crate::store::{StoreError, blocking};

const TOOL: &str = "read_artifact";

/// Bytes of files in answers that are not sent yet, all callers together. An answer takes several times its file.
const READING: u64 = 128 << 20;
/// One permit's worth. A file up to this size takes none.
const UNIT: u64 = 64 * 1024;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    path: String,
    session_id: Option<String>,
    #[serde(rename = "conversationId")]
    conversation_id: Option<String>,
}

/// Room for answers that hold a file, given back when they are sent.
#[derive(Clone)]
pub struct Room(Arc<Semaphore>);

impl Default for Room {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(usize::try_from(READING / UNIT).unwrap_or(usize::MAX))))
    }
}

impl Room {
    fn take(&self, bytes: u64) -> Result<OwnedSemaphorePermit, Fault> {
        let units = u32::try_from(bytes / UNIT).unwrap_or(u32::MAX);
        self.0.clone().try_acquire_many_owned(units).map_err(|_| {
            let message =
                "too many large files are being read; try again in some seconds, or use the file's link";
            Fault::new(Code::QueueFull, message)
        })
    }
}

pub(super) async fn call(
    tools: &Tools,
    caller: &Caller,
    given: Map<String, Value>,
) -> Result<Outcome, Failure> {
    let given: Arguments = arguments::read(TOOL, given)?;
    let id = arguments::named_session(TOOL, given.conversation_id.as_deref(), given.session_id.as_deref())?;
    let path = arguments::path("path", &given.path)?;
    let session = tools.existing(&caller.owner, &id).await?;
    let shown = public_path(&path);
    let missing = || Fault::new(Code::NotFound, format!("No artifact at {shown}"));

    let space = session.space.clone();
    let opening = path.clone();
    let opened = blocking(move || {
        let open = || -> io::Result<_> {
            let file = space.open(&opening)?;
            let size = file.metadata()?.len();
            Ok((file, size))
        };
        Ok(open())
    });
    let Ok((file, size)) = opened.await? else { return Err(missing().into()) };
    let name = String::from_utf8_lossy(path.file_name()).into_owned();
    let link = tools.link(&session, &path);
    if size > tools.limits.artifact_read {
        let message = format!(
            "{name} has {size} bytes, over the limit of {}. Use download_url instead.",
            tools.limits.artifact_read
        );
        let fault = Fault::new(Code::ArtifactTooLarge, message);
        return Err(fault.with("size_bytes", json!(size)).with("download_url", json!(link)).into());
    }
    let place = tools.reading.take(size)?;
    // What is saved under a name is never written again, only replaced: it is all of one piece.
    let what = format!("cannot read {path:?} from the store");
    let bytes = blocking(move || {
        let mut bytes = Vec::new();
        let read = file.take(size).read_to_end(&mut bytes);
        read.map(|_| bytes).map_err(StoreError::io(what))
    });
    let bytes = bytes.await?;

    let mime_type = artifacts::mime_type(&path);
    let data = BASE64_STANDARD.encode(&bytes);
    let mut document = Map::new();
    document.insert("success".into(), json!(true));
    document.insert("session_id".into(), json!(id.as_str()));
    document.insert("path".into(), json!(shown));
    document.insert("filename".into(), json!(name));
    document.insert("mime_type".into(), json!(mime_type));
    document.insert("size_bytes".into(), json!(bytes.len()));
    document.insert("download_url".into(), json!(link));
    // For models: base64 of a text is of little use to them.
    if bytes.len() <= tools.limits.output
        && let Ok(text) = std::str::from_utf8(&bytes)
    {
        document.insert("text".into(), json!(text));
    }
    let images = if SHOWN_IMAGES.contains(&mime_type.as_str()) && !bytes.is_empty() {
        vec![Image { mime_type, data: data.clone() }]
    } else {
        Vec::new()
    };
    document.insert("content_base64".into(), Value::String(data));
    Ok(Outcome { document, images, place: Some(place), ..Outcome::default() })
}
