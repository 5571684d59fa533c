//! All files of a session as one tar, out and in.
//!
//! Both ways are streamed: one piece at a time is in memory. Going out, each file is as it was when the
//! archive came to it. Coming in, all files are staged and become visible together, or none does. It must
//! never unpack anything but through the [`TarReader`] and a [`Batch`].

use std::io;

use bytes::Bytes;
use futures_util::TryStreamExt;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Method, Response, StatusCode, request};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use paddock_proto::LinkTarget;
use paddock_proto::message::{Entry, EntryKind};
use serde_json::{Map, Value, json};
use tokio_util::io::StreamReader;

use super::{RawFiles, RawRefusal, StagedUpload, TAR, content_type, has_type, invalid, to_its_end};
use crate::api::body::{Answer, BodyError, Paced, RequestBody, full, json as answer};
use crate::session::SessionId;
use crate::store::Batch;
use crate::store::tar::{self, MemberKind, TarError, TarLimits, TarMember, TarReader};
use crate::tools::{Code, Fault};

/// Bytes that may follow the end of an archive.
const TRAILING: usize = 1 << 20;
/// Headers for each entry that a session may have: its own, and two that extend it.
const HEADERS: u64 = 3;

impl RawFiles {
    pub(super) async fn pack(
        &self,
        owner: &str,
        id: &SessionId,
        method: &Method,
    ) -> Result<Answer, RawRefusal> {
        let session = self.tools.existing(owner, id).await?;
        let body = if *method == Method::HEAD {
            full("")
        } else {
            let all = session.space.manifest().lacking(&Default::default()).put;
            let entries = all.into_iter().map(|held| held.entry).collect();
            let pieces =
                tar::pack(session.space.clone(), entries, tar::ArchiveRecipient::Caller).map_ok(Frame::data);
            StreamBody::new(Box::pin(pieces)).boxed_unsync()
        };
        let mut answer = Response::new(body);
        answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(TAR));
        Ok(answer)
    }

    pub(super) async fn unpack(
        &self,
        owner: &str,
        id: &SessionId,
        parts: &request::Parts,
        body: RequestBody,
    ) -> Result<Answer, RawRefusal> {
        self.is_plain(&parts.headers)?;
        if !has_type(&parts.headers, CONTENT_TYPE, TAR) {
            let given = content_type(&parts.headers);
            let message =
                format!("Content-Type is {given:?}; an upload of many files takes {TAR}, not compressed");
            return Err(RawRefusal::Status(StatusCode::UNSUPPORTED_MEDIA_TYPE, "invalid_argument", message));
        }
        let permit = self.staging.permit(owner).await?;
        let session = self.tools.services.sessions.get(owner, id).await?;
        let body = Paced::new(body, self.limits.patience);
        let pieces = futures_util::stream::try_unfold(body, async |mut body| {
            let piece = body.next().await.map_err(io::Error::other)?;
            io::Result::Ok(piece.map(|piece| (piece, body)))
        });
        let source = StreamReader::new(Box::pin(pieces));
        let limits =
            TarLimits { entries: self.limits.entries.saturating_mul(HEADERS), bytes: self.limits.data };
        let mut tar = TarReader::new(source, limits).strictly();
        let mut batch = Batch::new(session.space.clone());
        let mut counts = UnpackCounts::default();
        while let Some(member) = tar.next().await? {
            take(&mut batch, &mut tar, member, self.limits.file, &mut counts).await?;
        }
        counts.skipped = tar.skipped();
        pass(tar.into_inner()).await?;
        let staged = StagedUpload { batch, session, _permit: permit };
        let (tools, id) = (self.tools.clone(), id.clone());
        to_its_end(async move {
            staged.save(&tools, |_| Ok(())).await?;
            Ok(answer(StatusCode::OK, &Value::Object(counts.document(&id))))
        })
        .await
    }
}

/// What an archive contained.
#[derive(Default)]
struct UnpackCounts {
    files: u64,
    directories: u64,
    links: u64,
    skipped: u64,
    bytes: u64,
}

impl UnpackCounts {
    fn document(&self, id: &SessionId) -> Map<String, Value> {
        let mut document = Map::new();
        document.insert("success".into(), json!(true));
        document.insert("session_id".into(), json!(id.as_str()));
        document.insert("conversationId".into(), json!(id.as_str()));
        document.insert("files".into(), json!(self.files));
        document.insert("directories".into(), json!(self.directories));
        document.insert("links".into(), json!(self.links));
        document.insert("skipped".into(), json!(self.skipped));
        document.insert("size_bytes".into(), json!(self.bytes));
        document
    }
}

type Source<S> = StreamReader<S, Bytes>;

/// Stages one entry.
async fn take<S>(
    batch: &mut Batch,
    tar: &mut TarReader<Source<S>>,
    member: TarMember,
    max_file: u64,
    counts: &mut UnpackCounts,
) -> Result<(), RawRefusal>
where
    S: futures_util::Stream<Item = io::Result<Bytes>> + Unpin,
{
    let TarMember { path, kind, mode, mtime_ns } = member;
    let entry = |kind| Entry { path: path.clone(), kind, mode, mtime_ns };
    match kind {
        MemberKind::Dir => {
            let entry = entry(EntryKind::Dir);
            batch.admit(&entry)?;
            batch.dir(entry);
            counts.directories += 1;
        }
        MemberKind::Link(target) => {
            let target = LinkTarget::new(target).map_err(|error| invalid(error.to_string()))?;
            let entry = entry(EntryKind::Link(target));
            batch.admit(&entry)?;
            batch.link(entry);
            counts.links += 1;
        }
        MemberKind::Hard(_) => {
            let message = "is a hard link; make the archive with --hard-dereference, or leave it out";
            return Err(invalid(format!("{} {message}", path.to_text())).into());
        }
        MemberKind::File(size) => {
            if size > max_file {
                let message = format!("{} has {size} bytes, the limit is {max_file}", path.to_text());
                return Err(Fault::new(Code::TooLarge, message).into());
            }
            let entry = entry(EntryKind::File(size));
            batch.admit(&entry)?;
            batch.file(entry);
            while let Some(piece) = tar.piece().await? {
                batch.write(&piece).await?;
            }
            batch.keep();
            counts.files += 1;
            counts.bytes += size;
        }
    }
    Ok(())
}

/// Reads the bytes that follow the archive, up to a limit, so that the connection can be used again.
async fn pass<S>(mut source: Source<S>) -> Result<(), RawRefusal>
where
    S: futures_util::Stream<Item = io::Result<Bytes>> + Unpin,
{
    use tokio::io::AsyncReadExt;
    let mut buffer = vec![0; 64 * 1024];
    let mut passed = 0;
    loop {
        match source.read(&mut buffer).await.map_err(TarError::Read)? {
            0 => return Ok(()),
            more => passed += more,
        }
        if passed > TRAILING {
            let message = format!("more than {TRAILING} bytes come behind the archive's end");
            return Err(invalid(message).into());
        }
    }
}

impl From<TarError> for RawRefusal {
    fn from(error: TarError) -> Self {
        match error {
            TarError::Read(error) => match error.downcast::<BodyError>() {
                Ok(body) => Self::Body(body),
                Err(_) => Self::Body(BodyError::Broken),
            },
            TarError::TooMany(_) | TarError::TooLarge(_) => {
                Fault::new(Code::TooLarge, error.to_string()).into()
            }
            TarError::Cut(_)
            | TarError::Damaged { .. }
            | TarError::Name { .. }
            | TarError::Refused { .. } => invalid(error.to_string()).into(),
        }
    }
}
