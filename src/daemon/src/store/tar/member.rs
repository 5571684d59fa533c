//! What an archive gives, and why it gives nothing. No behaviour lives here.

use std::io;

use paddock_proto::{PathError, RelPath};

/// What an archive may have.
#[derive(Debug, Clone, Copy)]
pub struct TarLimits {
    /// Entries, those that are skipped and those that only describe others included.
    pub entries: u64,
    /// Bytes of content, every entry counted, also one that a later one replaces.
    pub bytes: u64,
}

/// Why an archive is not taken.
#[derive(Debug, thiserror::Error)]
pub enum TarError {
    /// It could not be read.
    #[error("the archive could not be read")]
    Read(#[source] io::Error),
    /// It ends in mid-entry.
    #[error("the archive ends in the middle of entry {0}")]
    Cut(u64),
    /// It is no tar archive, or a damaged one.
    #[error("entry {entry} of the archive is damaged: {what}")]
    Damaged {
        /// Counted from 1.
        entry: u64,
        /// What does not hold.
        what: &'static str,
    },
    /// A name that cannot be.
    #[error("entry {entry} of the archive is named {name:?}: {problem}")]
    Name {
        /// Counted from 1.
        entry: u64,
        /// The name, cut where it is long.
        name: String,
        /// What is wrong with it.
        problem: PathError,
    },
    /// An entry that is not taken, though it is a good one.
    #[error("entry {entry} of the archive, {name:?}, {what}")]
    Refused {
        /// Counted from 1.
        entry: u64,
        /// The name, cut where it is long.
        name: String,
        /// Why not.
        what: &'static str,
    },
    /// Too many entries.
    #[error("the archive has more than {0} entries")]
    TooMany(u64),
    /// Too many bytes.
    #[error("the files of the archive have more than {0} bytes")]
    TooLarge(u64),
}

/// One entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Where it is to be.
    pub path: RelPath,
    /// What it is.
    pub kind: MemberKind,
    /// Permission bits, nothing above 0777.
    pub mode: u32,
    /// When it was changed, in nanoseconds since 1970.
    pub mtime_ns: i64,
}

/// What an entry is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MemberKind {
    /// A directory.
    Dir,
    /// A regular file of so many bytes, which [`TarReader::piece`](super::TarReader::piece) gives.
    File(u64),
    /// A symbolic link: its target, not empty and without NUL, pointing wherever it likes.
    Link(Vec<u8>),
    /// Another name of a file that should have come before; whether it did is for the caller to see.
    Hard(RelPath),
}
