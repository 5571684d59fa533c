//! What is at a path before or after: its mode, its content as far as a diff can show it, and its identity.
//!
//! It must never hold more of a file than its bound, however large the file is.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::time::Instant;

use paddock_proto::message::{Entry, EntryKind};
use sha1::{Digest, Sha1};
use sha2::Sha256;

use crate::id::hex;

/// One read of a file.
const PIECE: usize = 256 << 10;

/// The kinds of entry that git knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum GitMode {
    Plain,
    Executable,
    Link,
}

impl GitMode {
    /// The mode of an entry; `None` for a directory, which git does not know.
    pub(super) fn of(entry: &Entry) -> Option<Self> {
        match entry.kind {
            EntryKind::Dir => None,
            EntryKind::Link(_) => Some(Self::Link),
            EntryKind::File(_) if entry.mode & 0o100 != 0 => Some(Self::Executable),
            EntryKind::File(_) => Some(Self::Plain),
        }
    }

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Plain => "100644",
            Self::Executable => "100755",
            Self::Link => "120000",
        }
    }
}

/// A content, as far as it can be shown.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Content {
    /// All of it, and it is text.
    Text(Vec<u8>),
    /// It is not text: it has a NUL byte.
    Binary,
    /// It is larger than what is compared by line.
    Large,
    /// It could not be read, or not in time.
    Unread,
}

/// What is at a path.
#[derive(Debug)]
pub(super) struct Side {
    pub(super) mode: GitMode,
    pub(super) content: Content,
    /// The name that git gives this content: SHA-1 of `blob`, its length and itself. `None` if it was not
    /// read.
    pub(super) id: Option<String>,
    /// Tells contents apart that an attacker chose; SHA-1 does not.
    digest: Option<[u8; 32]>,
}

impl Side {
    /// What was not looked into.
    pub(super) fn unread(mode: GitMode) -> Self {
        Self { mode, content: Content::Unread, id: None, digest: None }
    }

    /// A symbolic link.
    pub(super) fn link(target: &[u8]) -> Self {
        let mut whole = Hashes::new(target.len() as u64);
        whole.update(target);
        let (id, digest) = whole.done();
        Self {
            mode: GitMode::Link,
            content: Content::Text(target.to_vec()),
            id: Some(id),
            digest: Some(digest),
        }
    }

    /// A file of which at most `most` bytes are shown; it is read to its end, but not after `deadline`.
    pub(super) fn file(mode: GitMode, mut file: File, most: u64, deadline: Instant) -> Self {
        let read = |file: &mut File| -> io::Result<Self> {
            let size = file.metadata()?.len();
            let (mut hashes, mut shown, mut piece) = (Hashes::new(size), Vec::new(), vec![0; PIECE]);
            let mut has_nul = false;
            loop {
                if Instant::now() > deadline {
                    return Ok(Self::unread(mode));
                }
                let length = file.read(&mut piece)?;
                let Some(read) = piece.get(..length).filter(|read| !read.is_empty()) else { break };
                hashes.update(read);
                has_nul |= memchr::memchr(0, read).is_some();
                if size <= most && !has_nul {
                    shown.extend_from_slice(read);
                }
            }
            let content = match (has_nul, size <= most) {
                (true, _) => Content::Binary,
                (false, true) => Content::Text(shown),
                (false, false) => Content::Large,
            };
            let (id, digest) = hashes.done();
            Ok(Self { mode, content, id: Some(id), digest: Some(digest) })
        };
        read(&mut file).unwrap_or_else(|_| Self::unread(mode))
    }

    /// Whether two sides are known to have the same content.
    pub(super) fn is_same_content(&self, other: &Self) -> bool {
        self.digest.is_some() && self.digest == other.digest
    }
}

/// Whether two open files are one file, which nothing writes over while it has two names.
pub(super) fn is_one_file(a: &File, b: &File) -> bool {
    let identity = |file: &File| file.metadata().map(|metadata| (metadata.dev(), metadata.ino())).ok();
    identity(a).is_some() && identity(a) == identity(b)
}

struct Hashes {
    git: Sha1,
    own: Sha256,
}

impl Hashes {
    fn new(size: u64) -> Self {
        let mut git = Sha1::new();
        git.update(format!("blob {size}\0"));
        Self { git, own: Sha256::new() }
    }

    fn update(&mut self, bytes: &[u8]) {
        self.git.update(bytes);
        self.own.update(bytes);
    }

    fn done(self) -> (String, [u8; 32]) {
        (hex(&self.git.finalize()), self.own.finalize().into())
    }
}

/// The name that git gives to this content.
pub(crate) fn blob_id(mut content: impl Read, size: u64) -> io::Result<String> {
    let mut hashes = Hashes::new(size);
    let mut piece = vec![0; PIECE];
    loop {
        match content.read(&mut piece)? {
            0 => return Ok(hashes.done().0),
            length => hashes.update(piece.get(..length).unwrap_or_default()),
        }
    }
}
