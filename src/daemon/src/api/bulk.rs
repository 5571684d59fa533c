//! All files of a session as one tar, out and in.
//!
//! Both ways it is streamed: what is in memory at a time is one piece. Out, each file is as it was when its turn
//! in the archive came. In, everything is staged and becomes visible at once, or nothing does. It must never
//! unpack anything but through the [`TarReader`] and a [`Batch`].

use std::fs::File;
use std::io::{self, Read};
use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Method, Response, StatusCode, request};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Frame, Incoming};
use paddock_proto::LinkTarget;
use paddock_proto::message::{Entry, EntryKind};
use serde_json::{Map, Value, json};
use tokio_tar::{EntryType, Header};
use tokio_util::io::StreamReader;

use super::body::{Answer, BodyError, Paced, full, json as answer};
use super::raw::{Raw, Refusal, Staged, TAR, content_type, has_type, invalid, to_its_end};
use crate::session::SessionId;
use crate::store::tar::{Member, MemberKind, TarError, TarLimits, TarReader};
use crate::store::{Batch, Space};
use crate::tools::{Code, Fault};

/// One piece of an archive that goes out.
const PIECE: usize = 256 * 1024;
/// The longest name in a header; longer ones go before it, as GNU tar does it.
const NAME: usize = 100;
/// What may come behind an archive's end.
const TRAILING: usize = 1 << 20;
/// Headers for each entry that a session may have: one of its own, and two that say more about it.
const HEADERS: u64 = 3;

impl Raw {
    pub(super) async fn pack(&self, owner: &str, id: &SessionId, method: &Method) -> Result<Answer, Refusal> {
        let session = self.tools.existing(owner, id).await?;
        let body = if *method == Method::HEAD {
            full("")
        } else {
            let pieces =
                futures_util::stream::try_unfold(Packing::of(session.space.clone()), async |packing| {
                    let packed = tokio::task::spawn_blocking(move || packing.piece()).await;
                    let (packing, piece) = packed.map_err(io::Error::other)??;
                    io::Result::Ok((!piece.is_empty()).then(|| (Frame::data(Bytes::from(piece)), packing)))
                });
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
        body: Incoming,
    ) -> Result<Answer, Refusal> {
        self.is_plain(&parts.headers)?;
        if !has_type(&parts.headers, CONTENT_TYPE, TAR) {
            let given = content_type(&parts.headers);
            let message =
                format!("Content-Type is {given:?}; an upload of many files takes {TAR}, not compressed");
            return Err(Refusal::Status(StatusCode::UNSUPPORTED_MEDIA_TYPE, "invalid_argument", message));
        }
        let place = self.place().await?;
        let session = self.tools.sessions.get(owner, id).await?;
        let body = Paced::new(body, self.limits.patience);
        let pieces = futures_util::stream::try_unfold(body, async |mut body| {
            let piece = body.next().await.map_err(io::Error::other)?;
            io::Result::Ok(piece.map(|piece| (piece, body)))
        });
        let source = StreamReader::new(Box::pin(pieces));
        let limits =
            TarLimits { entries: self.limits.entries.saturating_mul(HEADERS), bytes: self.limits.data };
        let mut tar = TarReader::new(source, limits);
        let mut batch = Batch::new(session.space.clone());
        let mut counts = Counts::default();
        while let Some(member) = tar.next().await? {
            take(&mut batch, &mut tar, member, self.limits.file, &mut counts).await?;
        }
        counts.skipped = tar.skipped();
        pass(tar.into_inner()).await?;
        let staged = Staged { batch, session, _place: place };
        let (tools, id) = (self.tools.clone(), id.clone());
        to_its_end(async move {
            staged.save(&tools, |_| Ok(())).await?;
            Ok(answer(StatusCode::OK, &Value::Object(counts.document(&id))))
        })
        .await
    }
}

/// What an archive brought.
#[derive(Default)]
struct Counts {
    files: u64,
    directories: u64,
    links: u64,
    skipped: u64,
    bytes: u64,
}

impl Counts {
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
    member: Member,
    max_file: u64,
    counts: &mut Counts,
) -> Result<(), Refusal>
where
    S: futures_util::Stream<Item = io::Result<Bytes>> + Unpin,
{
    let Member { path, kind, mode, mtime_ns } = member;
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

/// Reads what comes behind the archive, so that the connection can be used again; not endlessly.
async fn pass<S>(mut source: Source<S>) -> Result<(), Refusal>
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

impl From<TarError> for Refusal {
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

/// An archive while it is made. Everything in here blocks.
struct Packing {
    space: Arc<Space>,
    entries: std::vec::IntoIter<Entry>,
    /// The file that is being packed, and how much of it is left.
    open: Option<(File, u64)>,
    over: bool,
}

impl Packing {
    fn of(space: Arc<Space>) -> Self {
        let all = space.manifest().lacking(&Default::default()).put;
        let entries: Vec<Entry> = all.into_iter().map(|held| held.entry).collect();
        Self { space, entries: entries.into_iter(), open: None, over: false }
    }

    /// The next piece; an empty one is the end.
    fn piece(mut self) -> io::Result<(Self, Vec<u8>)> {
        let mut piece = Vec::with_capacity(PIECE + 4096);
        while piece.len() < PIECE && !self.over {
            if let Some((file, left)) = &mut self.open {
                let want = (*left).min((PIECE - piece.len()) as u64);
                let got = file.take(want).read_to_end(&mut piece)?;
                *left -= got as u64;
                if got == 0 && *left > 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                if *left == 0 {
                    piece.resize(piece.len().next_multiple_of(512), 0);
                    self.open = None;
                }
                continue;
            }
            let Some(entry) = self.entries.next() else {
                piece.resize(piece.len() + 1024, 0);
                self.over = true;
                break;
            };
            match &entry.kind {
                EntryKind::Dir => header(&mut piece, &entry, EntryType::Directory, 0, b""),
                EntryKind::Link(target) => {
                    header(&mut piece, &entry, EntryType::Symlink, 0, target.as_bytes());
                }
                EntryKind::File(_) => {
                    // One that went meanwhile is left out, as if it had gone before.
                    let Ok(file) = self.space.open(&entry.path) else { continue };
                    let size = file.metadata()?.len();
                    header(&mut piece, &entry, EntryType::Regular, size, b"");
                    self.open = Some((file, size));
                }
            }
        }
        Ok((self, piece))
    }
}

/// Appends the header of an entry, with what goes before it when a name is too long for one.
fn header(to: &mut Vec<u8>, entry: &Entry, kind: EntryType, size: u64, target: &[u8]) {
    let mut name = entry.path.as_bytes().to_vec();
    if kind == EntryType::Directory {
        name.push(b'/');
    }
    for (text, kind) in [(&name[..], EntryType::GNULongName), (target, EntryType::GNULongLink)] {
        if text.len() > NAME {
            let mut long = Header::new_gnu();
            block(&mut long, b"././@LongLink", kind, text.len() as u64 + 1, b"");
            to.extend_from_slice(long.as_bytes());
            to.extend_from_slice(text);
            to.push(0);
            to.resize(to.len().next_multiple_of(512), 0);
        }
    }
    let mut own = Header::new_gnu();
    own.set_mode(entry.mode & 0o777);
    own.set_mtime(u64::try_from(entry.mtime_ns.div_euclid(1_000_000_000)).unwrap_or_default());
    block(&mut own, &name, kind, size, target);
    to.extend_from_slice(own.as_bytes());
}

fn block(header: &mut Header, name: &[u8], kind: EntryType, size: u64, target: &[u8]) {
    header.set_uid(0);
    header.set_gid(0);
    header.set_entry_type(kind);
    header.set_size(size);
    let old = header.as_old_mut();
    for (field, text) in [(&mut old.name, name), (&mut old.linkname, target)] {
        let fits = text.len().min(NAME);
        field[..fits].copy_from_slice(&text[..fits]);
    }
    header.set_cksum();
}
