//! `GET /files/{session}/{path}?sig=…` and `GET /logs/{session}/{name}?sig=…`: downloads for everybody who
//! has the link.
//!
//! The signature says whose file it is. Without a valid one the daemon looks nothing up and always answers
//! the same 403. It must never let a browser run a downloaded file.

use std::fs::{File, Metadata};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use http::header::{
    ACCEPT_RANGES, CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_RANGE,
    CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, HeaderMap, HeaderName, HeaderValue, IF_NONE_MATCH, IF_RANGE,
    LAST_MODIFIED, RANGE, REFERRER_POLICY,
};
use http::{Method, Response, StatusCode, Uri};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use paddock_proto::RelPath;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, percent_encode};

use super::body::{Answer, error, full};
use super::range::Range;
use super::transcript;
use crate::execution::Executions;
use crate::sign::{Proof, SignedTarget, Signer};
use crate::store::{INLINE_FILE, SavedFile, Store};

/// One read of a file.
const PIECE: u64 = 256 * 1024;

/// Octets of an RFC 8187 extended value that need no encoding; a few more would need none, but are not worth
/// the risk.
const EXTENDED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_');

/// Types that a browser shows without running anything; all others are attachments.
const SHOWN: [&str; 7] =
    ["image/png", "image/jpeg", "image/gif", "image/webp", "text/plain", "text/csv", "application/pdf"];

/// What a link leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LinkKind {
    /// A file of `/data`.
    File,
    /// What the daemon keeps of a run or a task.
    Log,
}

/// What the daemon keeps of a run or a task.
#[derive(Debug, Clone, PartialEq, Eq)]
enum LogName {
    /// The whole output of a run, by its id.
    Run(String),
    /// What a task changed, by its execution's id.
    Diff(String),
    /// What the agent of a task wrote, by its execution's id.
    Transcript(String),
}

impl LogName {
    /// The name in a link; `None` if the daemon makes no such names.
    fn parse(name: &str) -> Option<Self> {
        let is_id = |id: &str| uuid::Uuid::try_parse(id).is_ok() && id.len() == 36;
        if let Some(id) = name.strip_suffix(".diff").filter(|id| is_id(id)) {
            return Some(Self::Diff(id.to_owned()));
        }
        if let Some(id) = name.strip_suffix(".jsonl").filter(|id| is_id(id)) {
            return Some(Self::Transcript(id.to_owned()));
        }
        let is_run = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        is_run.then(|| Self::Run(name.to_owned()))
    }
}

/// A link whose signature is valid.
pub(super) struct DownloadLink {
    parsed: ParsedLink,
    kind: LinkKind,
    /// The owner of the file.
    pub(super) owner: String,
    session: String,
}

impl DownloadLink {
    /// Reads a link and checks its signature; `rest` is the path behind `/files/` or `/logs/`.
    pub(super) fn of(signer: &Signer, kind: LinkKind, rest: &str, uri: &Uri) -> Option<Self> {
        let parsed = ParsedLink::parse(kind, rest, uri.query().unwrap_or(""))?;
        let target = match kind {
            LinkKind::File => SignedTarget::File(&parsed.path),
            LinkKind::Log => SignedTarget::Log(&parsed.run),
        };
        let (owner, session) = match &parsed.proof {
            Some((signature, expires)) => {
                let proof = Proof { signature, expires: expires.as_deref() };
                let owner = signer.owner(&parsed.session, target, proof)?.to_string();
                (owner, parsed.session.clone())
            }
            None if kind == LinkKind::File => {
                let (owner, session) = signer.hashed(&parsed.session)?;
                (owner.to_string(), session.to_string())
            }
            None => return None,
        };
        Some(Self { parsed, kind, owner, session })
    }

    /// The session of the file.
    pub(super) fn session(&self) -> &str {
        &self.session
    }

    /// The answer to an invalid link.
    pub(super) fn refused() -> Answer {
        error(StatusCode::FORBIDDEN, "forbidden", "the link is not valid")
    }

    /// Answers a download.
    pub(super) async fn serve(
        self,
        store: &Arc<Store>,
        executions: &Executions,
        method: &Method,
        headers: &HeaderMap,
    ) -> Answer {
        let Self { parsed, kind, owner, session } = self;
        let store = store.clone();
        let missing = || error(StatusCode::NOT_FOUND, "not_found", "there is no such file");
        let served = match (kind, LogName::parse(&parsed.run)) {
            (LinkKind::File, _) => Download::file(store, owner, session, parsed.path).await,
            (LinkKind::Log, Some(LogName::Transcript(id))) => {
                let found = executions.get(&owner, &id);
                let found = found.filter(|one| one.session.as_str() == session && one.spec.task.is_some());
                return found.map_or_else(missing, |execution| transcript::answer(execution, method));
            }
            (LinkKind::Log, Some(name)) => Download::log(store, owner, session, name).await,
            (LinkKind::Log, None) => None,
        };
        served.map_or_else(missing, |download| download.answer(method, headers))
    }
}

/// A link, in parts.
struct ParsedLink {
    session: String,
    path: RelPath,
    run: String,
    /// The signature and when it expires; a hashed link has neither.
    proof: Option<(String, Option<String>)>,
}

impl ParsedLink {
    /// Decodes each part once; `None` if the daemon makes no such links.
    fn parse(kind: LinkKind, rest: &str, query: &str) -> Option<Self> {
        let (session, rest) = rest.split_once('/')?;
        let session = percent_decode_str(session).decode_utf8().ok()?.into_owned();
        let parts: Vec<Vec<u8>> = rest.split('/').map(|part| percent_decode_str(part).collect()).collect();
        // A `/` inside a part would name another file than its signature.
        if parts.iter().any(|part| part.contains(&b'/')) {
            return None;
        }
        let path = RelPath::new(parts.join(&b'/')).ok()?;
        let run = String::from_utf8_lossy(path.as_bytes()).into_owned();
        if kind == LinkKind::Log && LogName::parse(&run).is_none() {
            return None;
        }
        let signature = once(query, "sig=")?;
        let expires = once(query, "expires=")?;
        let proof = match (signature, expires) {
            (Some(signature), expires) => Some((signature.to_owned(), expires.map(str::to_owned))),
            (None, Some(_)) => return None,
            (None, None) => None,
        };
        Some(Self { session, path, run, proof })
    }
}

/// The value of a query's parameter; the outer `None` if it occurs more than once.
fn once<'a>(query: &'a str, name: &str) -> Option<Option<&'a str>> {
    let mut values = query.split('&').filter_map(|pair| pair.strip_prefix(name));
    let first = values.next();
    values.next().is_none().then_some(first)
}

/// The tag of a file's content.
pub(super) fn etag(metadata: &Metadata) -> String {
    // The kernel sets the times of the last change and of the birth; a program can set that of the last write
    // as it likes. The content of a large file is never changed in place. Its last change can be the removal
    // of its other name, which the journal needed (`store::batch`).
    let born = metadata.created().ok().filter(|_| metadata.len() > INLINE_FILE as u64);
    let born = born.and_then(|born| born.duration_since(SystemTime::UNIX_EPOCH).ok());
    let changed = || i128::from(metadata.ctime()) * 1_000_000_000 + i128::from(metadata.ctime_nsec());
    let time = born.map_or_else(changed, |born| i128::try_from(born.as_nanos()).unwrap_or(i128::MAX));
    format!("\"{:x}-{:x}-{time:x}\"", metadata.ino(), metadata.len())
}

/// An open file and its description.
pub(super) struct Download {
    file: File,
    size: u64,
    mime: String,
    name: Vec<u8>,
    modified: String,
    etag: String,
}

impl Download {
    /// A file of this session's `/data`; `None` if it is no regular file.
    pub(super) async fn file(
        store: Arc<Store>,
        owner: String,
        session: String,
        path: RelPath,
    ) -> Option<Self> {
        let opening = path.clone();
        let open = move || store.open_file(&owner, &session, SavedFile::Data(&opening));
        let opened = tokio::task::spawn_blocking(open).await.ok()?.ok()?;
        Some(Self::of(opened, crate::tools::mime_type(&path), path.file_name().to_vec()))
    }

    /// What is kept of a run or a task of this session, as a file.
    async fn log(store: Arc<Store>, owner: String, session: String, log: LogName) -> Option<Self> {
        let name = match &log {
            LogName::Run(id) => format!("{id}.log"),
            LogName::Diff(id) => format!("{id}.diff"),
            LogName::Transcript(_) => return None, // no file has it
        };
        let open = move || {
            let file = match &log {
                LogName::Run(id) | LogName::Transcript(id) => SavedFile::Log(id),
                LogName::Diff(id) => SavedFile::Diff(id),
            };
            store.open_file(&owner, &session, file)
        };
        let opened = tokio::task::spawn_blocking(open).await.ok()?.ok()?;
        Some(Self::of(opened, "text/plain".to_owned(), name.into_bytes()))
    }

    fn of((file, metadata): (File, Metadata), mime: String, name: Vec<u8>) -> Self {
        let modified = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
        Self {
            etag: etag(&metadata),
            file,
            size: metadata.len(),
            mime,
            name,
            modified: httpdate::fmt_http_date(modified.max(SystemTime::UNIX_EPOCH)),
        }
    }

    pub(super) fn answer(self, method: &Method, headers: &HeaderMap) -> Answer {
        let value = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
        let known = |tag: &str| tag == "*" || tag.strip_prefix("W/").unwrap_or(tag) == self.etag;
        if value(IF_NONE_MATCH).is_some_and(|tags| tags.split(',').any(|tag| known(tag.trim()))) {
            return self.with_headers(StatusCode::NOT_MODIFIED, None, full(Bytes::new()));
        }
        // A time is never a strong validator here (RFC 9110, 13.1.5): a program sets the times of its files
        // as it likes.
        let fresh = value(IF_RANGE).is_none_or(|tag| tag == self.etag);
        let range = value(RANGE).filter(|_| fresh).and_then(|range| Range::parse(range, self.size));
        let (status, from, length) = match range {
            None => (StatusCode::OK, 0, self.size),
            Some(Range::Part { from, length }) => (StatusCode::PARTIAL_CONTENT, from, length),
            Some(Range::Unsatisfiable) => {
                let mut answer =
                    error(StatusCode::RANGE_NOT_SATISFIABLE, "range", "the file does not have this range");
                if let Ok(size) = HeaderValue::from_str(&format!("bytes */{}", self.size)) {
                    answer.headers_mut().insert(CONTENT_RANGE, size);
                }
                return answer;
            }
        };
        let part = (status == StatusCode::PARTIAL_CONTENT).then_some((from, length));
        let body = if *method == Method::HEAD {
            full(Bytes::new())
        } else {
            match self.file.try_clone() {
                Ok(file) => stream(file, from, length),
                Err(_) => return error(StatusCode::SERVICE_UNAVAILABLE, "busy", "too many files are open"),
            }
        };
        let mut answer = self.with_headers(status, part, body);
        answer.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(length));
        answer
    }

    fn with_headers(
        &self,
        status: StatusCode,
        part: Option<(u64, u64)>,
        body: http_body_util::combinators::UnsyncBoxBody<Bytes, io::Error>,
    ) -> Answer {
        let mut answer = Response::new(body);
        *answer.status_mut() = status;
        let shown = SHOWN.contains(&self.mime.as_str());
        let charset = if self.mime.starts_with("text/") { "; charset=utf-8" } else { "" };
        let disposition = format!(
            "{}; filename=\"{}\"; filename*=UTF-8''{}",
            if shown { "inline" } else { "attachment" },
            plain(&self.name),
            percent_encode(&self.name, EXTENDED)
        );
        let headers = [
            (CONTENT_TYPE, format!("{}{charset}", self.mime)),
            (CONTENT_DISPOSITION, disposition),
            (ACCEPT_RANGES, "bytes".to_owned()),
            (ETAG, self.etag.clone()),
            (LAST_MODIFIED, self.modified.clone()),
            (CACHE_CONTROL, "private, no-cache".to_owned()),
            (http::header::X_CONTENT_TYPE_OPTIONS, "nosniff".to_owned()),
            (CONTENT_SECURITY_POLICY, "sandbox; default-src 'none'".to_owned()),
            // A file's address opens the file: the sites that it links to must not learn it.
            (REFERRER_POLICY, "no-referrer".to_owned()),
        ];
        let range = part.map(|(from, length)| {
            (CONTENT_RANGE, format!("bytes {from}-{}/{}", (from + length).saturating_sub(1), self.size))
        });
        for (name, value) in headers.into_iter().chain(range) {
            if let Ok(value) = HeaderValue::from_str(&value) {
                answer.headers_mut().insert(name, value);
            }
        }
        answer
    }
}

/// A name for clients that do not know `filename*`: without anything that could end the quotes or the header.
fn plain(name: &[u8]) -> String {
    let safe =
        |b: &u8| if b.is_ascii_graphic() && !matches!(b, b'"' | b'\\' | b'%') { char::from(*b) } else { '_' };
    name.iter().map(safe).collect()
}

/// `length` bytes of the file, read where it may block, at most one piece ahead of the connection.
fn stream(
    file: File,
    from: u64,
    length: u64,
) -> http_body_util::combinators::UnsyncBoxBody<Bytes, io::Error> {
    let pieces = futures_util::stream::try_unfold((file, from, length), async |(mut file, at, left)| {
        if left == 0 {
            return Ok(None);
        }
        let read = tokio::task::spawn_blocking(move || {
            let mut piece = vec![0; usize::try_from(left.min(PIECE)).unwrap_or_default()];
            file.seek(SeekFrom::Start(at))?;
            file.read_exact(&mut piece)?;
            io::Result::Ok((file, piece))
        });
        let (file, piece) = read.await.map_err(io::Error::other)??;
        let got = piece.len() as u64;
        io::Result::Ok(Some((Frame::data(Bytes::from(piece)), (file, at + got, left - got))))
    });
    StreamBody::new(Box::pin(pieces)).boxed_unsync()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_malformed_link_is_not_looked_up() {
        let parse = |rest: &str, query: &str| ParsedLink::parse(LinkKind::File, rest, query).map(|a| a.path);
        let path = |text: &str| Some(RelPath::new(text).unwrap());
        assert_eq!(parse("s/a/b", "sig=x"), path("a/b"));
        assert_eq!(parse("a%2Fb/%61", "sig=x"), path("a"));
        assert_eq!(parse("s/a+b", "sig=x"), path("a+b"));
        for (rest, query) in [
            ("s/a%2Fb", "sig=x"),
            ("s/..", "sig=x"),
            ("s/%2e%2e/a", "sig=x"),
            ("s//a", "sig=x"),
            ("s/a/", "sig=x"),
            ("s/./a", "sig=x"),
            ("s/a%00", "sig=x"),
            ("s", "sig=x"),
            ("s/", "sig=x"),
            ("s/a", "sig=x&sig=x"),
            ("s/a", "sig=x&expires=1&expires=1"),
            ("s/a", "expires=1"),
        ] {
            assert_eq!(parse(rest, query), None, "{rest} {query}");
        }
        assert!(ParsedLink::parse(LinkKind::Log, "s/run_20260101T000000Z_ab12", "sig=x").is_some());
        let id = "11111111-2222-4333-8444-555555555555";
        for (name, is_one) in [
            (format!("{id}.diff"), true),
            (format!("{id}.jsonl"), true),
            (id.to_owned(), false),
            (format!("{id}.json"), false),
            (format!("{id}.before"), false),
            ("a/b".to_owned(), false),
            ("x.diff".to_owned(), false),
            (format!("{{{id}}}.diff"), false),
            (format!("..%2F{id}.diff"), false),
        ] {
            let parsed = ParsedLink::parse(LinkKind::Log, &format!("s/{name}"), "sig=x");
            assert_eq!(parsed.is_some(), is_one, "{name}");
        }
    }

    #[test]
    fn a_file_name_cannot_add_a_header() {
        assert_eq!(plain(b"a\r\nSet-Cookie: x=1\"\\.csv"), "a__Set-Cookie:_x=1__.csv");
    }
}
