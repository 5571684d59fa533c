//! What a fetch left in its container, on its way into the volume of layers: an archive that is written while
//! the files come.
//!
//! Whatever comes out of that container counts as hostile: an index can serve anything. Only regular files
//! and directories pass, below checked paths and within the layer's bounds; they belong to root, and nobody
//! may write them. It must never pass a link, a mode beyond the permissions of a file, or the name of the
//! mark, which is the last entry and says that all the others are there.

use bytes::{Bytes, BytesMut};
use paddock_proto::limits::PACKAGES_DIR;
use paddock_proto::message::{Entry, EntryKind, SkipReason};
use paddock_proto::{Channel, Event};
use sha2::{Digest, Sha256};
use tokio::sync::mpsc;
use tokio_tar::EntryType;

use super::fetch::{FetchError, FetchFault};
use super::shelf::Layer;
use crate::engine::entry_of_root;
use crate::id::hex;
use crate::link::{Incoming, LinkError, Stream};
use crate::pool::MARK;

/// Bytes of one block of an archive.
const BLOCK: usize = 512;
/// Bytes of a name that fit into a header.
const SHORT: usize = 100;
/// The name of a header that only brings the long name of the next one.
const LONG_NAME: &str = "././@LongLink";
/// The directory of all layers can be entered, and not listed.
const PARENT_MODE: u32 = 0o711;

/// The most that one layer may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LayerBounds {
    /// Bytes of its files.
    pub(super) bytes: u64,
    /// Files and directories.
    pub(super) entries: u64,
}

/// An archive on its way to the engine.
pub(super) struct LayerTar {
    out: mpsc::Sender<std::io::Result<Bytes>>,
    directory: String,
    bounds: LayerBounds,
    bytes: u64,
    entries: u64,
    digest: Sha256,
}

impl LayerTar {
    /// Begins an archive that unpacks into this directory among the layers.
    pub(super) async fn begin(
        out: mpsc::Sender<std::io::Result<Bytes>>,
        directory: String,
        bounds: LayerBounds,
    ) -> Result<Self, FetchError> {
        let (bytes, entries, digest) = (0, 0, Sha256::new());
        let mut tar = Self { out, directory, bounds, bytes, entries, digest };
        let parent = PACKAGES_DIR.rsplit('/').next().unwrap_or_default().to_owned();
        // The engine guesses a compression from the first bytes, and takes no directory for compressed data.
        tar.header(EntryType::Directory, ".", 0o755, 0).await?;
        tar.header(EntryType::Directory, &parent, PARENT_MODE, 0).await?;
        tar.directory = format!("{parent}/{}", tar.directory);
        let own = tar.directory.clone();
        tar.header(EntryType::Directory, &own, 0o755, 0).await?;
        Ok(tar)
    }

    /// Takes everything that the agent reports on a collecting stream.
    pub(super) async fn take_all(&mut self, stream: &Stream) -> Result<(), FetchError> {
        loop {
            match stream.next().await? {
                Incoming::Event(Event::Changed(entry)) => self.take(stream, entry).await?,
                Incoming::Event(Event::Skipped { path, reason }) => {
                    let path = String::from_utf8_lossy(&path).chars().take(200).collect::<String>();
                    let what = match reason {
                        SkipReason::Special => "is neither a file nor a directory",
                        SkipReason::Path => "has a path that is too long or too deep",
                        SkipReason::Unreadable => "cannot be read",
                        SkipReason::NoRoom | SkipReason::TooMany => return Err(self.too_large()),
                    };
                    return Err(refused(format!("the packages hold {path:?}, which {what}")));
                }
                Incoming::Event(Event::Collected { .. }) => return Ok(()),
                Incoming::Event(_) | Incoming::Data(..) | Incoming::End => {
                    return Err(LinkError::Refused.into());
                }
            }
        }
    }

    async fn take(&mut self, stream: &Stream, entry: Entry) -> Result<(), FetchError> {
        self.entries += 1;
        let path = String::from_utf8_lossy(entry.path.as_bytes()).into_owned();
        if self.entries > self.bounds.entries {
            return Err(self.too_large());
        }
        if path.split('/').next() == Some(MARK) {
            return Err(refused(format!("the packages hold {path:?}, a name that is not theirs")));
        }
        let name = format!("{}/{path}", self.directory);
        // Whoever may execute it may: nothing else of a mode counts.
        let mode = if entry.mode & 0o111 == 0 { 0o644 } else { 0o755 };
        match entry.kind {
            EntryKind::Dir => {
                self.note(&path, "directory", 0o755);
                self.header(EntryType::Directory, &name, 0o755, 0).await
            }
            EntryKind::Link(_) => {
                Err(refused(format!("the packages hold {path:?}, which is a link: none has a layer")))
            }
            EntryKind::File(size) => {
                self.bytes = self.bytes.saturating_add(size);
                if self.bytes > self.bounds.bytes {
                    return Err(self.too_large());
                }
                self.note(&path, "file", mode);
                self.digest.update(size.to_le_bytes());
                self.header(EntryType::Regular, &name, mode, size).await?;
                self.content(stream, size).await
            }
        }
    }

    /// One file's content: exactly `size` bytes.
    async fn content(&mut self, stream: &Stream, size: u64) -> Result<(), FetchError> {
        let mut left = size;
        loop {
            match stream.next().await? {
                Incoming::Data(Channel::File, piece) => {
                    left = left.checked_sub(piece.len() as u64).ok_or(LinkError::Refused)?;
                    self.digest.update(&piece);
                    self.give(piece).await?;
                }
                Incoming::Event(Event::FileEnd { whole: true }) if left == 0 => {
                    return self.give(padding(size)).await;
                }
                Incoming::Event(_) | Incoming::Data(..) | Incoming::End => {
                    return Err(LinkError::Refused.into());
                }
            }
        }
    }

    fn note(&mut self, path: &str, kind: &str, mode: u32) {
        self.digest.update(format!("{kind} {mode:o} {path}\0"));
    }

    /// Writes the mark and the end.
    pub(super) async fn finish(mut self, name: &str, locked: Vec<String>) -> Result<Layer, FetchError> {
        let digest = hex(&std::mem::take(&mut self.digest).finalize());
        let layer =
            Layer { directory: name.to_owned(), bytes: self.bytes, entries: self.entries, digest, locked };
        let mark = serde_json::to_vec_pretty(&layer).unwrap_or_default();
        let path = format!("{}/{MARK}", self.directory);
        let size = mark.len() as u64;
        self.header(EntryType::Regular, &path, 0o444, size).await?;
        self.give(mark.into()).await?;
        self.give(padding(size)).await?;
        self.give(Bytes::from_static(&[0; 2 * BLOCK])).await?;
        Ok(layer)
    }

    async fn header(&mut self, kind: EntryType, name: &str, mode: u32, size: u64) -> Result<(), FetchError> {
        let mut out = BytesMut::new();
        if name.len() > SHORT {
            let size = name.len() as u64 + 1;
            out.extend_from_slice(&block(EntryType::GNULongName, LONG_NAME, 0o644, size));
            out.extend_from_slice(name.as_bytes());
            out.extend_from_slice(&[0]);
            out.extend_from_slice(&padding(size));
        }
        out.extend_from_slice(&block(kind, name, mode, size));
        self.give(out.freeze()).await
    }

    async fn give(&self, piece: Bytes) -> Result<(), FetchError> {
        if piece.is_empty() {
            return Ok(());
        }
        // The engine has given up: its own error is the one that counts.
        self.out.send(Ok(piece)).await.map_err(|_| FetchError::new(FetchFault::Failed, "the engine gave up"))
    }

    fn too_large(&self) -> FetchError {
        let LayerBounds { bytes, entries } = self.bounds;
        let message = format!(
            "the packages, with what they need, take more than {bytes} bytes or {entries} files \
             (packages.max_bytes, packages.max_files)"
        );
        FetchError::new(FetchFault::TooLarge, message)
    }
}

fn refused(message: String) -> FetchError {
    FetchError::new(FetchFault::List, message)
}

fn block(kind: EntryType, name: &str, mode: u32, size: u64) -> [u8; BLOCK] {
    let mut header = entry_of_root(kind, mode, size);
    let short = &name.as_bytes()[..name.len().min(SHORT)];
    header.as_old_mut().name[..short.len()].copy_from_slice(short);
    header.set_cksum();
    *header.as_bytes()
}

fn padding(size: u64) -> Bytes {
    static ZEROS: [u8; BLOCK] = [0; BLOCK];
    let rest = usize::try_from(size % BLOCK as u64).unwrap_or(0);
    if rest == 0 { Bytes::new() } else { Bytes::from_static(&ZEROS[..BLOCK - rest]) }
}
