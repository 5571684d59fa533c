//! Files of a container as tar archives: put, get, stat.
//!
//! Archives pass through as bytes; nothing here reads their entries. What [`Engine::archive_get`] gives is
//! untrusted in every byte, and may be short without any error: engines answer 200 and then leave out what
//! changed under them. It must never unpack one, and never send one compressed.

use std::io;
use std::task::Poll;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use futures_util::stream::{self, Stream, StreamExt, TryStreamExt};
use http::{HeaderValue, Method};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Frame, Incoming};
use serde::Deserialize;
use tokio::io::AsyncRead;
use tokio::time::{Instant, timeout_at};
use tokio_util::io::StreamReader;
use tokio_util::sync::CancellationToken;

use super::Engine;
use super::call::{self, Call, SendBody};
use super::error::{BoxError, EngineError};
use super::ids::ContainerId;
use super::op::Op;
use super::shape::null_is_empty;
use super::transport::{Answer, next_data, parse};

const TAR: &str = "application/x-tar";

/// The header with a path's stat: base64 of JSON.
const STAT_HEADER: &str = "x-docker-container-path-stat";

/// What a path in a container is. Source: `X-Docker-Container-Path-Stat` of `HEAD /containers/{id}/archive`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct PathStat {
    /// Its last component.
    pub name: String,
    /// Its size in bytes; of a directory whatever its file system says.
    pub size: i64,
    /// Type and permissions as Go's `os.FileMode` has them: see [`kind`](PathStat::kind) and
    /// [`permissions`](PathStat::permissions).
    mode: u32,
    /// When it was changed, RFC 3339.
    pub mtime: String,
    /// Where it points, when it is a symbolic link.
    #[serde(default, rename = "linkTarget", deserialize_with = "null_is_empty")]
    pub link_target: String,
}

/// What kind of thing a path is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EntryKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A device, pipe, socket or anything else.
    Other,
}

impl PathStat {
    /// What kind of thing it is.
    pub fn kind(&self) -> EntryKind {
        // Go's os.FileMode: ModeDir, ModeSymlink, and ModeType, every bit that makes a file not a regular one.
        const DIRECTORY: u32 = 1 << 31;
        const SYMLINK: u32 = 1 << 27;
        const TYPE: u32 = DIRECTORY | SYMLINK | 1 << 26 | 1 << 25 | 1 << 24 | 1 << 21 | 1 << 19;
        match self.mode & TYPE {
            0 => EntryKind::File,
            DIRECTORY => EntryKind::Directory,
            SYMLINK => EntryKind::Symlink,
            _ => EntryKind::Other,
        }
    }

    /// Its permissions, the lowest nine bits of a Unix mode.
    pub fn permissions(&self) -> u32 {
        self.mode & 0o777
    }

    fn from_header(op: Op, value: Option<&HeaderValue>) -> Result<PathStat, EngineError> {
        let value = value.ok_or_else(|| EngineError::protocol(op, "no stat of the path"))?;
        let json = BASE64_STANDARD
            .decode(value.as_bytes())
            .map_err(|_| EngineError::protocol(op, "a stat that is not base64"))?;
        parse(op, &json)
    }
}

impl Engine {
    /// Unpacks `tar` into the directory `path` of a container, running or not:
    /// `PUT /containers/{id}/archive?path=…`. Owners and modes are those of the archive.
    ///
    /// Begin the archive with an entry named `.`: the engine sniffs the first bytes for compression, and a name
    /// can look like some. An entry that would turn a directory into a file or the other way round is refused.
    /// A `Tmpfs` mount takes the files and shows none of them; a volume does not have that fault.
    ///
    /// Errors: `is_not_found` when the container or directory is not there, an `Api` error of status 403 when it
    /// is read-only.
    pub async fn archive_put(&self, id: &ContainerId, path: &str, tar: Bytes) -> Result<(), EngineError> {
        self.put(id, path, call::whole(tar)).await
    }

    /// [`archive_put`](Engine::archive_put) of a stream, sent as it comes and never held whole.
    ///
    /// The stream is dropped when the call ends, however it ends. An error of the stream ends the request unfinished and comes back as [`EngineError::Upload`]; what was
    /// unpacked until then stays.
    pub async fn archive_put_stream<S, E>(
        &self,
        id: &ContainerId,
        path: &str,
        tar: S,
    ) -> Result<(), EngineError>
    where
        S: Stream<Item = Result<Bytes, E>> + Send + 'static,
        E: Into<BoxError>,
    {
        // hyper goes on sending after an early refusal; without this an endless stream is pulled for ever.
        let call_is_over = CancellationToken::new();
        let mut over = Box::pin(call_is_over.clone().cancelled_owned());
        let _guard = call_is_over.drop_guard();
        let mut tar = Box::pin(tar);
        let pieces = stream::poll_fn(move |cx| match over.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(Some(Err("the call is over".into()))),
            Poll::Pending => tar.poll_next_unpin(cx).map_err(Into::into),
        });
        let body = StreamBody::new(pieces.map_ok(Frame::data));
        self.put(id, path, BodyExt::boxed_unsync(body)).await
    }

    async fn put(&self, id: &ContainerId, path: &str, body: SendBody) -> Result<(), EngineError> {
        let limits = self.limits();
        let target = format!("/containers/{id}/archive");
        let call = Call::new(Op::ArchivePut, Method::PUT, target, limits.archive, limits.answer_bytes)
            .query("path", path)
            .query("noOverwriteDirNonDir", "true")
            .body(TAR, body);
        self.transport.ask(call).await?.discard().await
    }

    /// Packs `path` of a container, running or not: `GET /containers/{id}/archive?path=…`. A directory comes with
    /// its own name as the first component.
    ///
    /// `cap` bounds the archive, in bytes. `is_not_found` when the container or path is not there.
    pub async fn archive_get(
        &self,
        id: &ContainerId,
        path: &str,
        cap: u64,
    ) -> Result<ArchiveReader, EngineError> {
        let op = Op::ArchiveGet;
        let limits = self.limits();
        let until = Instant::now() + limits.archive;
        let target = format!("/containers/{id}/archive");
        let call =
            Call::new(op, Method::GET, target, limits.archive, limits.answer_bytes).query("path", path);
        let answer = self.transport.ask(call).await?;
        if answer.content_type() != Some(TAR) {
            let found = answer.content_type().unwrap_or("no type");
            return Err(EngineError::protocol(op, format!("{found} where {TAR} is due")));
        }
        let stat = PathStat::from_header(op, answer.header(STAT_HEADER))?;
        Ok(ArchiveReader {
            stat,
            body: answer.into_body(),
            cap,
            seen: 0,
            until,
            after: limits.archive,
            idle: limits.archive_idle,
        })
    }

    /// What a path in a container is: `HEAD /containers/{id}/archive?path=…`. `is_not_found`, without the engine's
    /// words, when the container or path is not there.
    pub async fn archive_stat(&self, id: &ContainerId, path: &str) -> Result<PathStat, EngineError> {
        let limits = self.limits();
        let target = format!("/containers/{id}/archive");
        let call = Call::new(Op::ArchiveStat, Method::HEAD, target, limits.read, limits.answer_bytes)
            .query("path", path);
        let answer: Answer = self.transport.ask(call).await?;
        PathStat::from_header(Op::ArchiveStat, answer.header(STAT_HEADER))
    }
}

/// An archive on its way out of a container. Dropping it closes the connection.
///
/// Read it without pause or drop it: until then the engine holds the container's lock, and inspect, kill and remove
/// of that container wait, however long (seen with 20.10).
#[derive(Debug)]
pub struct ArchiveReader {
    stat: PathStat,
    body: Incoming,
    cap: u64,
    seen: u64,
    until: Instant,
    after: Duration,
    idle: Duration,
}

impl ArchiveReader {
    /// What the path packed is.
    pub fn stat(&self) -> &PathStat {
        &self.stat
    }

    /// The next piece; `None` at the end of the answer, which need not be the end of a whole archive. Cancel safe.
    ///
    /// Errors: [`EngineError::TooLarge`] beyond the cap, [`EngineError::Deadline`] when the next piece or the end
    /// is late, [`EngineError::Lost`] and [`EngineError::Protocol`] when the answer breaks off.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, EngineError> {
        let op = Op::ArchiveGet;
        let patience = Instant::now() + self.idle;
        let (until, after) =
            if patience < self.until { (patience, self.idle) } else { (self.until, self.after) };
        let next = timeout_at(until, next_data(op, &mut self.body))
            .await
            .map_err(|_| EngineError::Deadline { op, after })??;
        let length = next.as_ref().map_or(0, |bytes| bytes.len() as u64);
        if length > self.cap - self.seen {
            return Err(EngineError::TooLarge { op, cap: self.cap });
        }
        self.seen += length;
        Ok(next)
    }

    /// The archive as a reader, for a tar library; errors of [`chunk`](ArchiveReader::chunk) come inside
    /// [`io::Error`]s.
    pub fn into_async_read(self) -> impl AsyncRead + Send + Unpin {
        let chunks = stream::try_unfold(self, async |mut reader| {
            Ok::<_, EngineError>(reader.chunk().await?.map(|bytes| (bytes, reader)))
        });
        StreamReader::new(Box::pin(chunks.map_err(io::Error::other)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stat(header: &str) -> Result<PathStat, EngineError> {
        let value = HeaderValue::from_str(header).expect("a header");
        PathStat::from_header(Op::ArchiveStat, Some(&value))
    }

    fn encoded(json: &str) -> String {
        BASE64_STANDARD.encode(json)
    }

    #[test]
    fn a_stat_tells_kind_and_permissions() {
        for (mode, kind, permissions) in [
            (0o644_u32, EntryKind::File, 0o644),
            (2_147_484_141, EntryKind::Directory, 0o755),
            (1 << 31 | 1 << 20 | 0o777, EntryKind::Directory, 0o777),
            (134_218_239, EntryKind::Symlink, 0o777),
            (1 << 26 | 1 << 21 | 0o666, EntryKind::Other, 0o666),
            (1 << 25 | 0o600, EntryKind::Other, 0o600),
            (1 << 23 | 0o755, EntryKind::File, 0o755),
        ] {
            let json = format!(r#"{{"name":"x","size":1,"mode":{mode},"mtime":"","linkTarget":""}}"#);
            let stat = stat(&encoded(&json)).expect("a stat");
            assert_eq!((stat.kind(), stat.permissions()), (kind, permissions), "mode {mode}");
        }
    }

    #[test]
    fn a_stat_that_is_none_is_an_error() {
        for header in ["", "*", &encoded("x"), &encoded("{}"), &encoded("null"), &encoded(r#"{"name":1}"#)] {
            assert!(matches!(stat(header), Err(EngineError::Protocol { .. })), "`{header}`");
        }
        let none = PathStat::from_header(Op::ArchiveStat, None);
        assert!(matches!(none, Err(EngineError::Protocol { .. })));
    }
}
