//! A session's files as plain bodies, for workflows: no base64, and no limit of size but the session's own.
//!
//! ```text
//!  PUT  /sessions/{id}/files/{path}   body ─► staged beside the store ─► turn ─► saved ─► 201 or 200
//!  GET, HEAD, DELETE  the same path   the saved file, also during a run; a deletion waits for its turn
//!  GET  /sessions/{id}/files          a page of the listing, or all of it as a tar
//!  PUT  /sessions/{id}/files          a tar, unpacked as one change: all of it or nothing
//! ```
//!
//! A body is staged before the turn is taken: a slow client never blocks a session. It must never hold a
//! whole file in memory, and never decode a name twice.

mod bulk;
mod path;
mod refusal;
mod staging;

use std::sync::Arc;
use std::time::Duration;

use http::header::{
    ACCEPT, ALLOW, CONNECTION, CONTENT_ENCODING, CONTENT_RANGE, CONTENT_TYPE, ETAG, HeaderMap, HeaderName,
    HeaderValue, IF_NONE_MATCH,
};
use http::{Method, StatusCode, request};
use hyper::body::Body;
use paddock_proto::RelPath;
use paddock_proto::message::{Entry, EntryKind};
use serde_json::Value;
use tokio::sync::OwnedSemaphorePermit;

pub(super) use self::path::SessionPath;
use self::refusal::RawRefusal;
pub(super) use self::refusal::status_of;
use self::staging::Staging;
use super::body::{Answer, BodyError, Paced, RequestBody, error, full, json as answer};
use super::files::{Download, etag};
use crate::session::{Session, SessionId, TurnKind};
use crate::store::{Batch, Committed, Manifest, Store};
use crate::tools::{CallError, Code, Failure, Fault, Tools, check_free, now_ns};

/// The type of archives.
pub(super) const TAR: &str = "application/x-tar";

/// Limits of a raw request.
pub(super) struct RawFileLimits {
    /// Bytes of one file.
    pub(super) file: u64,
    /// Bytes of all files of a session.
    pub(super) data: u64,
    /// Files and directories of a session.
    pub(super) entries: u64,
    /// How long a body may take, if it is slow.
    pub(super) patience: Duration,
}

/// The routes below `/sessions/`.
pub(super) struct RawFiles {
    pub(super) tools: Arc<Tools>,
    pub(super) store: Arc<Store>,
    pub(super) limits: RawFileLimits,
    staging: Staging,
}

impl RawFiles {
    pub(super) fn new(tools: Arc<Tools>, store: Arc<Store>, limits: RawFileLimits) -> Self {
        Self { tools, store, limits, staging: Staging::default() }
    }

    /// Answers a request below `/sessions/`; `rest` is the path behind that.
    pub(super) async fn serve(
        &self,
        owner: &str,
        rest: &str,
        parts: &request::Parts,
        body: RequestBody,
    ) -> Answer {
        let method = &parts.method;
        let writes = method == Method::PUT;
        let served = match SessionPath::parse(rest) {
            Err(refusal) => Err(refusal),
            Ok(None) => {
                return error(StatusCode::NOT_FOUND, "not_found", "there is nothing at this path");
            }
            Ok(Some(SessionPath { id, path: None })) => match *method {
                Method::GET | Method::HEAD => self.all(owner, &id, parts).await,
                Method::PUT => self.unpack(owner, &id, parts, body).await,
                _ => return not_allowed("GET, HEAD, PUT"),
            },
            Ok(Some(SessionPath { id, path: Some(path) })) => match *method {
                Method::GET | Method::HEAD => self.read(owner, &id, path, parts).await,
                Method::PUT => self.put(owner, &id, path, parts, body).await,
                Method::DELETE => self.delete(owner, &id, path).await,
                _ => return not_allowed("GET, HEAD, PUT, DELETE"),
            },
        };
        served.unwrap_or_else(|refusal| {
            let mut answer = refusal.answer();
            if writes {
                // What was not read is still on the connection.
                answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            }
            answer
        })
    }

    async fn all(&self, owner: &str, id: &SessionId, parts: &request::Parts) -> Result<Answer, RawRefusal> {
        if accepts_tar(&parts.headers) {
            return self.pack(owner, id, &parts.method).await;
        }
        let (mut limit, mut cursor) = (None, None);
        for pair in parts.uri.query().unwrap_or("").split('&') {
            match pair.split_once('=') {
                Some(("limit", text)) => limit = Some(text.parse().map_err(|_| not_a_number(text))?),
                Some(("cursor", text)) => cursor = Some(text),
                Some(_) | None => {}
            }
        }
        let page = self.tools.page(owner, id, limit, cursor).await?;
        Ok(answer(StatusCode::OK, &Value::Object(page)))
    }

    async fn read(
        &self,
        owner: &str,
        id: &SessionId,
        path: RelPath,
        parts: &request::Parts,
    ) -> Result<Answer, RawRefusal> {
        let (owner, session) = (owner.to_owned(), id.as_str().to_owned());
        match Download::file(self.store.clone(), owner, session, path.clone()).await {
            Some(download) => Ok(download.answer(&parts.method, &parts.headers)),
            None => Err(missing(&path).into()),
        }
    }

    async fn put(
        &self,
        owner: &str,
        id: &SessionId,
        path: RelPath,
        parts: &request::Parts,
        body: RequestBody,
    ) -> Result<Answer, RawRefusal> {
        self.is_plain(&parts.headers)?;
        let must_be_new = must_be_new(&parts.headers)?;
        let announced = body.size_hint().lower();
        let limit = self.limits.file;
        if announced > limit {
            return Err(BodyError::TooLarge(limit).into());
        }
        let permit = self.staging.permit(owner).await?;
        let session = self.tools.services.sessions.get(owner, id).await?;
        check(&session.space.manifest(), &path, must_be_new)?;
        let mut batch = Batch::new(session.space.clone());
        let kind = EntryKind::File(announced);
        let entry = Entry { path: path.clone(), kind, mode: 0o644, mtime_ns: now_ns() };
        batch.admit(&entry)?;
        batch.file(entry.clone());
        let mut body = Paced::new(body, self.limits.patience);
        let mut size = 0;
        while let Some(piece) = body.next().await? {
            size += piece.len() as u64;
            if size > limit {
                return Err(BodyError::TooLarge(limit).into());
            }
            batch.write(&piece).await?;
        }
        if size != announced {
            batch.admit(&Entry { kind: EntryKind::File(size), ..entry })?;
        }
        batch.keep();
        batch.look_at(path.clone());
        let staged = StagedUpload { batch, session, _permit: permit };
        let tools = self.tools.clone();
        to_its_end(async move {
            let (session, is_new, saved) =
                staged.save(&tools, |manifest| check(manifest, &path, must_be_new)).await?;
            let document = tools.uploaded(&session, &path, size);
            let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
            let mut answer = answer(status, &Value::Object(document));
            let etag = saved.looked.and_then(|file| HeaderValue::try_from(etag(&file)).ok());
            answer.headers_mut().extend(etag.map(|etag| (ETAG, etag)));
            Ok(answer)
        })
        .await
    }

    async fn delete(&self, owner: &str, id: &SessionId, path: RelPath) -> Result<Answer, RawRefusal> {
        let session = self.tools.existing(owner, id).await?;
        let tools = self.tools.clone();
        to_its_end(async move {
            let turn = tools.services.sessions.enter(&session.owner, &session.id, TurnKind::Whole).await?;
            let space = turn.session().space.clone();
            let found = space.manifest().get(&path).map(|held| held.entry.kind.clone());
            match found {
                _ if space.manifest().is_above_some(&path) => {
                    let message = format!("{} is a directory that is not empty", path.to_text());
                    return Err(Fault::new(Code::FileExists, message).into());
                }
                None => return Err(missing(&path).into()),
                Some(EntryKind::Dir | EntryKind::File(_) | EntryKind::Link(_)) => {}
            }
            let mut batch = Batch::new(space);
            batch.remove(path);
            batch.commit().await?;
            let mut answer = http::Response::new(full(""));
            *answer.status_mut() = StatusCode::NO_CONTENT;
            Ok(answer)
        })
        .await
    }

    /// Checks that a body is a whole file, and not encoded.
    pub(super) fn is_plain(&self, headers: &HeaderMap) -> Result<(), RawRefusal> {
        let encoding = headers.get(CONTENT_ENCODING).map(|value| value.as_bytes().to_ascii_lowercase());
        if encoding.is_some_and(|encoding| encoding != b"identity") {
            let message = "a body with a Content-Encoding is not taken: send the file as it is".to_owned();
            return Err(RawRefusal::Status(StatusCode::UNSUPPORTED_MEDIA_TYPE, "invalid_argument", message));
        }
        if headers.contains_key(CONTENT_RANGE) {
            return Err(invalid("a part of a file (Content-Range) is not taken: send the whole file").into());
        }
        Ok(())
    }
}

/// An upload that is staged and waits for its turn.
pub(super) struct StagedUpload {
    pub(super) batch: Batch,
    pub(super) session: Arc<Session>,
    pub(super) _permit: OwnedSemaphorePermit,
}

impl StagedUpload {
    /// Takes the turn, runs `check` once more, and saves. Returns the session, the result of `check`, and
    /// what was saved.
    pub(super) async fn save<T>(
        self,
        tools: &Tools,
        check: impl FnOnce(&Manifest) -> Result<T, RawRefusal>,
    ) -> Result<(Arc<Session>, T, Committed), RawRefusal> {
        let Session { owner, id, .. } = &*self.session;
        let turn = tools.services.sessions.enter(owner, id, TurnKind::Whole).await?;
        let session = turn.session().clone();
        // The batch belongs to the session it was staged for: if a call deleted that meanwhile, the commit
        // fails.
        let checked = check(&session.space.manifest())?;
        let saved = self.batch.commit().await?;
        Ok((session, checked, saved))
    }
}

/// Does the work to its end, also when the client goes away: it has the session's turn.
pub(super) async fn to_its_end(
    work: impl Future<Output = Result<Answer, RawRefusal>> + Send + 'static,
) -> Result<Answer, RawRefusal> {
    tokio::spawn(work).await.unwrap_or_else(|error| {
        tracing::error!(%error, "a task of the daemon failed");
        Err(Failure::Call(CallError::Internal("the daemon failed; its log says why".to_owned())).into())
    })
}

/// Checks that a file may be put there; true if nothing is there yet.
fn check(manifest: &Manifest, path: &RelPath, must_be_new: bool) -> Result<bool, RawRefusal> {
    let exists = manifest.get(path).is_some();
    if exists && must_be_new {
        return Err(RawRefusal::Exists(format!("{} exists already", path.to_text())));
    }
    check_free(manifest, path)?;
    Ok(!exists)
}

/// Whether the request has `If-None-Match: *`. Other values compare contents, which an upload does not.
fn must_be_new(headers: &HeaderMap) -> Result<bool, RawRefusal> {
    match headers.get(IF_NONE_MATCH).map(HeaderValue::as_bytes) {
        None => Ok(false),
        Some(b"*") => Ok(true),
        Some(_) => Err(invalid("If-None-Match of an upload takes only *").into()),
    }
}

fn accepts_tar(headers: &HeaderMap) -> bool {
    has_type(headers, ACCEPT, TAR)
}

/// Whether a header lists this very type.
pub(super) fn has_type(headers: &HeaderMap, name: HeaderName, wanted: &str) -> bool {
    let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    values
        .flat_map(|value| value.split(','))
        .any(|one| one.split(';').next().is_some_and(|essence| essence.trim().eq_ignore_ascii_case(wanted)))
}

pub(super) fn invalid(message: impl Into<String>) -> Fault {
    Fault::new(Code::InvalidArgument, message)
}

fn not_a_number(text: &str) -> Fault {
    invalid(format!("`limit` is {:?}; it must be a number", text.chars().take(40).collect::<String>()))
}

fn missing(path: &RelPath) -> Fault {
    Fault::new(Code::NotFound, format!("No artifact at /mnt/data/{}", path.to_text()))
}

fn not_allowed(allowed: &'static str) -> Answer {
    let message = format!("this path takes {allowed}");
    let mut answer = error(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", &message);
    answer.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
    answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    answer
}

/// The type of a request's body, for an error.
pub(super) fn content_type(headers: &HeaderMap) -> String {
    let given = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or("missing");
    given.chars().take(80).collect()
}
