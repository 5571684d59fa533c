//! The entries and the errors of an archive. This module has no behaviour.

use std::io;

use paddock_proto::{PathError, RelPath};

/// The limits of an archive.
#[derive(Debug, Clone, Copy)]
pub struct TarLimits {
    /// Entries, including skipped entries and entries that only describe others.
    pub entries: u64,
    /// Bytes of content of all entries, including entries that a later entry replaces.
    pub bytes: u64,
}

/// Why an archive is refused.
#[derive(Debug, thiserror::Error)]
pub enum TarError {
    /// It could not be read.
    #[error("the archive could not be read")]
    Read(#[source] io::Error),
    /// It ends in the middle of an entry.
    #[error("the archive ends in the middle of entry {0}")]
    Cut(u64),
    /// It is not a tar archive, or it is damaged.
    #[error("entry {entry} of the archive is damaged: {what}")]
    Damaged {
        /// Number of the entry, from 1.
        entry: u64,
        /// What is wrong.
        what: &'static str,
    },
    /// A name that is not allowed.
    #[error("entry {entry} of the archive is named {name:?}: {problem}")]
    Name {
        /// Number of the entry, from 1.
        entry: u64,
        /// The name, cut if it is long.
        name: String,
        /// What is wrong with it.
        problem: PathError,
    },
    /// A well-formed entry that is refused.
    #[error("entry {entry} of the archive, {name:?}, {what}")]
    Refused {
        /// Number of the entry, from 1.
        entry: u64,
        /// The name, cut if it is long.
        name: String,
        /// The reason.
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
pub struct TarMember {
    /// Its path.
    pub path: RelPath,
    /// Its type.
    pub kind: MemberKind,
    /// Permission bits, none above 0777.
    pub mode: u32,
    /// Time of the last change, in nanoseconds since 1970.
    pub mtime_ns: i64,
}

/// The type of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MemberKind {
    /// A directory.
    Dir,
    /// A regular file of this many bytes, which [`TarReader::piece`](super::TarReader::piece) returns.
    File(u64),
    /// A symbolic link with its target, which is not empty, has no NUL, and may point anywhere.
    Link(Vec<u8>),
    /// Another name of a file that should have come before; the caller checks whether it did.
    Hard(RelPath),
}
