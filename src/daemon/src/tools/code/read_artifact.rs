//! `read_artifact`: the content of one file within the answer. It does not wait for a run: it reads the file
//! that is saved.

use std::fs::File;
use std::io::{self, Read};
use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use paddock_proto::RelPath;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use crate::config::ToolSet;
use crate::session::Session;
use crate::store::{StoreError, blocking};
use crate::tenants::{TenantParts, Tenants};
use crate::tools::answer::{SHOWN_IMAGES, mime_type, public_path};
use crate::tools::fault::Failure;
use crate::tools::registry::{AnswerForm, Effect, Offer, Tool};
use crate::tools::session_name::{self, SessionName};
use crate::tools::{Caller, Code, Fault, Image, Outcome, Tools, arguments};

/// Bytes of files in answers that are not sent yet, of all callers. An answer takes several times its file.
const READING: u64 = 128 << 20;
/// Bytes for one permit. A file smaller than this takes none.
const UNIT: u64 = 64 * 1024;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::tools) struct ReadArtifact {
    /// Path of the file, for example /mnt/data/chart.png.
    path: String,
    /// The id of the conversation, from an earlier answer.
    session_id: Option<SessionName>,
    /// Another name for session_id.
    #[serde(rename = "conversationId")]
    conversation_id: Option<SessionName>,
}

/// Bounds the memory of answers that hold a file: each takes permits, and gives them back when it is sent.
pub struct ReadPermits {
    all: Arc<Semaphore>,
    parts: TenantParts,
}

/// The permits of one answer, and those out of the part of its tenant.
#[derive(Debug)]
pub struct ReadPermit {
    _permits: (OwnedSemaphorePermit, Option<OwnedSemaphorePermit>),
}

impl Default for ReadPermits {
    fn default() -> Self {
        let all = usize::try_from(READING / UNIT).unwrap_or(usize::MAX);
        Self { all: Arc::new(Semaphore::new(all)), parts: TenantParts::of(all) }
    }
}

impl ReadPermits {
    /// Permits for an answer of this tenant's.
    pub(in crate::tools) fn take(
        &self,
        (tenants, owner): (&Tenants, &str),
        bytes: u64,
    ) -> Result<ReadPermit, Fault> {
        let units = u32::try_from(bytes / UNIT).unwrap_or(u32::MAX);
        let take = |from: Arc<Semaphore>| {
            from.try_acquire_many_owned(units).map_err(|_| {
                let message =
                    "too many large files are being read; try again in some seconds, or use the file's link";
                Fault::new(Code::QueueFull, message)
            })
        };
        let own = tenants.part(owner, &self.parts).map(take).transpose()?;
        Ok(ReadPermit { _permits: (take(self.all.clone())?, own) })
    }
}

impl Tool for ReadArtifact {
    const NAME: &'static str = "read_artifact";
    const SET: ToolSet = ToolSet::Code;
    const TITLE: &'static str = "Read a file";
    const SUMMARY: &'static str = "returns one file inside the answer: as base64, and also as text or image \
                                   if it is one. A larger file has a link";
    const EFFECT: Effect = Effect::ReadOnly;
    const FORM: AnswerForm = AnswerForm::File;

    fn description(offer: &Offer<'_>) -> String {
        format!(
            "Return the content of one file in /data: an image as an image, a short text as text, and any \
             file as base64. At most {} bytes; download a larger file from its download_url.",
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
        let path = arguments::path("path", &self.path)?;
        let session = tools.existing(&caller.owner, &id).await?;
        let shown = public_path(&path);
        let missing = || Fault::new(Code::NotFound, format!("No artifact at {shown}"));

        let Some((file, size)) = open_saved(&session, &path).await? else { return Err(missing().into()) };
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
        let permit = tools.reading.take((&tools.services.tenants, &caller.owner), size)?;
        let bytes = read_saved(&path, (file, size)).await?;

        let mime_type = mime_type(&path);
        let data = BASE64_STANDARD.encode(&bytes);
        let mut document = Map::new();
        document.insert("success".into(), json!(true));
        document.insert("session_id".into(), json!(id.as_str()));
        document.insert("path".into(), json!(shown));
        document.insert("filename".into(), json!(name));
        document.insert("mime_type".into(), json!(mime_type));
        document.insert("size_bytes".into(), json!(bytes.len()));
        document.insert("download_url".into(), json!(link));
        // A language model can do little with the base64 of a text.
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
        Ok(Outcome { document, images, permit: Some(permit), ..Outcome::default() })
    }
}

/// Opens a saved file; `None` if there is none of this name.
pub(in crate::tools) async fn open_saved(
    session: &Session,
    path: &RelPath,
) -> Result<Option<(File, u64)>, StoreError> {
    let (space, path) = (session.space.clone(), path.clone());
    let open = move || -> io::Result<_> {
        let file = space.open(&path)?;
        let size = file.metadata()?.len();
        Ok((file, size))
    };
    blocking(move || Ok(open().ok())).await
}

/// Reads what was opened. A saved file is never written again, only replaced: its content is of one piece.
pub(in crate::tools) async fn read_saved(
    path: &RelPath,
    (file, size): (File, u64),
) -> Result<Vec<u8>, StoreError> {
    let what = format!("cannot read {path:?} from the store");
    blocking(move || {
        let mut bytes = Vec::new();
        let read = file.take(size).read_to_end(&mut bytes);
        read.map(|_| bytes).map_err(StoreError::io(what))
    })
    .await
}
