//! Files of a container as tar archives: put, get, stat.
//!
//! Archives pass through as bytes; nothing here reads their entries. An archive from [`Engine::archive_get`]
//! is untrusted in every byte, and may be incomplete without any error: engines answer 200 and then leave out
//! files that change while they read them. This module must never unpack an archive, and never send a
//! compressed one.

use std::io;
use std::task::Poll;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use futures_util::stream::{self, Stream, StreamExt, TryStreamExt};
use http::HeaderValue;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Frame, Incoming};
use serde::Deserialize;
use tokio::io::AsyncRead;
use tokio::time::{Instant, timeout_at};
use tokio_tar::{EntryType, Header};
use tokio_util::io::StreamReader;
use tokio_util::sync::CancellationToken;

use super::Engine;
use super::call::{self, EngineCall, SendBody};
use super::error::{BoxError, EngineError};
use super::ids::ContainerId;
use super::op::EngineOp;
use super::shape::null_is_empty;

/// The header of an entry that belongs to root, without a name, a checksum or a time.
pub(crate) fn entry_of_root(kind: EntryType, mode: u32, size: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(size);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header
}
use super::transport::{EngineResponse, next_data, parse};

const TAR: &str = "application/x-tar";

/// The header with a path's stat: JSON in base64.
const STAT_HEADER: &str = "x-docker-container-path-stat";

/// The stat of a path in a container. Source: `X-Docker-Container-Path-Stat` of `HEAD
/// /containers/{id}/archive`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct PathStat {
    /// Its last component.
    pub name: String,
    /// Its size in bytes; for a directory, the number that its file system reports.
    pub size: i64,
    /// Type and permissions as Go's `os.FileMode` has them: see [`kind`](PathStat::kind) and
    /// [`permissions`](PathStat::permissions).
    mode: u32,
    /// When it was changed, RFC 3339.
    pub mtime: String,
    /// The target of a symbolic link; otherwise empty.
    #[serde(default, rename = "linkTarget", deserialize_with = "null_is_empty")]
    pub link_target: String,
}

/// The type of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PathKind {
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
    /// The type of the path.
    pub fn kind(&self) -> PathKind {
        // Go's os.FileMode: ModeDir, ModeSymlink, and ModeType, which has every bit that a regular file
        // lacks.
        const DIRECTORY: u32 = 1 << 31;
        const SYMLINK: u32 = 1 << 27;
        const TYPE: u32 = DIRECTORY | SYMLINK | 1 << 26 | 1 << 25 | 1 << 24 | 1 << 21 | 1 << 19;
        match self.mode & TYPE {
            0 => PathKind::File,
            DIRECTORY => PathKind::Directory,
            SYMLINK => PathKind::Symlink,
            _ => PathKind::Other,
        }
    }

    /// Its permissions, the lowest nine bits of a Unix mode.
    pub fn permissions(&self) -> u32 {
        self.mode & 0o777
    }

    fn from_header(op: EngineOp, value: Option<&HeaderValue>) -> Result<PathStat, EngineError> {
        let value = value.ok_or_else(|| {
            EngineError::protocol(op, format!("the answer has no header {STAT_HEADER} with the path's stat"))
        })?;
        let json = BASE64_STANDARD
            .decode(value.as_bytes())
            .map_err(|_| EngineError::protocol(op, format!("the header {STAT_HEADER} is not base64")))?;
        parse(op, &json)
    }
}

impl Engine {
    /// Unpacks `tar` into the directory `path` of a container, running or not:
    /// `PUT /containers/{id}/archive?path=…`. Owners and modes are those of the archive.
    ///
    /// Begin the archive with an entry named `.`: the engine guesses the compression from the first bytes,
    /// and another name can look like compressed data. The engine refuses an entry that would turn a
    /// directory into a file or a file into a directory. Files put into a `Tmpfs` mount are accepted and then
    /// invisible; volumes do not have that defect.
    ///
    /// Errors: `is_not_found` when the container or directory does not exist, an `Api` error of status 403
    /// when it is read-only.
    pub async fn archive_put(&self, id: &ContainerId, path: &str, tar: Bytes) -> Result<(), EngineError> {
        self.put(id, path, call::whole(tar)).await
    }

    /// [`archive_put`](Engine::archive_put) of a stream, sent as it comes and never held as a whole.
    ///
    /// The stream is dropped when the call ends, however it ends. An error of the stream ends the request
    /// unfinished and is returned as [`EngineError::Upload`]; files unpacked by then stay.
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
        // hyper goes on sending after an early refusal; without this it would read an endless stream for
        // ever.
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
        let call = EngineCall::new(EngineOp::ArchivePut, target, limits.archive, limits.answer_bytes)
            .query("path", path)
            .query("noOverwriteDirNonDir", "true")
            .body(TAR, body);
        self.transport.ask(call).await?.discard().await
    }

    /// Packs `path` of a container, running or not: `GET /containers/{id}/archive?path=…`. A directory comes
    /// with its own name as the first component.
    ///
    /// `cap` bounds the archive, in bytes. Errors: `is_not_found` when the container or path does not exist.
    pub async fn archive_get(
        &self,
        id: &ContainerId,
        path: &str,
        cap: u64,
    ) -> Result<ArchiveReader, EngineError> {
        let op = EngineOp::ArchiveGet;
        let limits = self.limits();
        let until = Instant::now() + limits.archive;
        let target = format!("/containers/{id}/archive");
        let call = EngineCall::new(op, target, limits.archive, limits.answer_bytes).query("path", path);
        let answer = self.transport.ask(call).await?;
        if answer.content_type() != Some(TAR) {
            let found = answer.content_type().unwrap_or("no type");
            return Err(EngineError::protocol(op, format!("its content type is {found}, not {TAR}")));
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

    /// The stat of a path in a container: `HEAD /containers/{id}/archive?path=…`. Errors: `is_not_found`,
    /// without a message of the engine, when the container or path does not exist.
    pub async fn archive_stat(&self, id: &ContainerId, path: &str) -> Result<PathStat, EngineError> {
        let limits = self.limits();
        let target = format!("/containers/{id}/archive");
        let call = EngineCall::new(EngineOp::ArchiveStat, target, limits.read, limits.answer_bytes)
            .query("path", path);
        let answer: EngineResponse = self.transport.ask(call).await?;
        PathStat::from_header(EngineOp::ArchiveStat, answer.header(STAT_HEADER))
    }
}

/// An archive that is being read from a container. Dropping it closes the connection.
///
/// Read it without pause, or drop it: until then the engine holds the container's lock, and inspect, kill and
/// remove of that container wait for as long (seen with 20.10).
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
    /// The stat of the packed path.
    pub fn stat(&self) -> &PathStat {
        &self.stat
    }

    /// The next piece; `None` at the end of the answer, which is not always the end of a complete archive.
    /// Cancel safe.
    ///
    /// Errors: [`EngineError::TooLarge`] beyond the cap, [`EngineError::Deadline`] when the next piece or the
    /// end is late, [`EngineError::Lost`] and [`EngineError::Protocol`] when the answer ends too early.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, EngineError> {
        let op = EngineOp::ArchiveGet;
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

    /// The archive as a reader, for a tar library. Its [`io::Error`]s contain those of
    /// [`chunk`](ArchiveReader::chunk).
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
        PathStat::from_header(EngineOp::ArchiveStat, Some(&value))
    }

    fn encoded(json: &str) -> String {
        BASE64_STANDARD.encode(json)
    }

    #[test]
    fn a_stat_tells_kind_and_permissions() {
        for (mode, kind, permissions) in [
            (0o644_u32, PathKind::File, 0o644),
            (2_147_484_141, PathKind::Directory, 0o755),
            (1 << 31 | 1 << 20 | 0o777, PathKind::Directory, 0o777),
            (134_218_239, PathKind::Symlink, 0o777),
            (1 << 26 | 1 << 21 | 0o666, PathKind::Other, 0o666),
            (1 << 25 | 0o600, PathKind::Other, 0o600),
            (1 << 23 | 0o755, PathKind::File, 0o755),
        ] {
            let json = format!(r#"{{"name":"x","size":1,"mode":{mode},"mtime":"","linkTarget":""}}"#);
            let stat = stat(&encoded(&json)).expect("a stat");
            assert_eq!((stat.kind(), stat.permissions()), (kind, permissions), "mode {mode}");
        }
    }

    #[test]
    fn an_invalid_stat_is_an_error() {
        for header in ["", "*", &encoded("x"), &encoded("{}"), &encoded("null"), &encoded(r#"{"name":1}"#)] {
            assert!(matches!(stat(header), Err(EngineError::Protocol { .. })), "`{header}`");
        }
        let none = PathStat::from_header(EngineOp::ArchiveStat, None);
        assert!(matches!(none, Err(EngineError::Protocol { .. })));
    }
}
