//! Errors of the store.
//!
//! An error that reports a bound names it, with the amount wanted and the amount allowed. An error must never
//! say that something was not saved when it may have been.

use std::fmt;
use std::io;
use std::path::PathBuf;

/// Why the store could not do something.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Another daemon uses this store.
    #[error("{} is in use by another paddock daemon; give this one another store.root, or stop that \
             one", .0.display())]
    InUse(PathBuf),
    /// A newer daemon wrote it.
    #[error(
        "the store at {} has format {found}, and this paddock {} knows formats up to {}: a newer paddock has \
         used it. Start that one again, or restore a backup from before its first start", .root.display(),
        crate::build::VERSION, super::format::FORMAT
    )]
    Newer {
        /// The folder.
        root: PathBuf,
        /// Its format.
        found: u32,
    },
    /// Its disk has no free space.
    #[error("the disk of the store is full ({0}); nothing of this call was saved")]
    Full(String),
    /// One of the limits would be exceeded.
    #[error("{bound} would take {wanted} {}, of {allowed} allowed; {}", .bound.unit(), .bound.remedy())]
    Quota {
        /// Which one.
        bound: Bound,
        /// The amount that was wanted, in [`Bound::unit`]s.
        wanted: u64,
        /// The amount that is allowed.
        allowed: u64,
    },
    /// The file system refuses writes: it is read-only, or fails.
    #[error("the store cannot be written at present ({0}); nothing of this call was saved")]
    Unwritable(#[source] io::Error),
    /// The changes are durable, but could not be applied yet; the store retries.
    #[error("the changes are saved, but cannot be put in place yet; the daemon retries")]
    Pending(#[source] Box<StoreError>),
    /// The session's files were removed for good while the caller had this handle.
    #[error("the files of this session were deleted meanwhile; call again to begin anew")]
    Gone,
    /// The servers of a store of many machines, or another node, are in the way.
    #[error("{0}")]
    Ledger(#[source] paddock_ledger::LedgerError),
    /// Any other error of the file system.
    #[error("{what}: {source}")]
    Io {
        /// What the store tried to do, with the path.
        what: String,
        /// The error of the system.
        source: io::Error,
    },
}

/// The limits of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bound {
    /// Bytes of one session's files, in whole pages.
    Bytes,
    /// Files, directories and links of one session.
    Entries,
    /// Bytes of one file.
    File,
    /// Bytes of all sessions: files, logs, and contents being written.
    Total,
    /// Files, directories and links of all sessions, and three for each session itself.
    TotalEntries,
    /// Bytes of all sessions of one owner.
    Owner,
    /// Files, directories and links of all sessions of one owner.
    OwnerEntries,
    /// Bytes of the names and small contents of one commit.
    Changes,
}

impl Bound {
    /// The unit that it counts in.
    pub fn unit(self) -> &'static str {
        match self {
            Self::Bytes | Self::File | Self::Total | Self::Owner | Self::Changes => "bytes",
            Self::Entries | Self::TotalEntries | Self::OwnerEntries => "files and directories",
        }
    }

    fn remedy(self) -> &'static str {
        match self {
            Self::Bytes | Self::Entries => "delete some first",
            Self::File => "write it in parts",
            Self::Changes => "change less at once",
            Self::Total => "delete files or sessions first, or raise store.max_bytes",
            Self::TotalEntries => "delete files or sessions first, or raise store.max_files",
            Self::Owner | Self::OwnerEntries => {
                "delete files or sessions first, or ask the operator for a higher limit of this token"
            }
        }
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bytes | Self::Entries => "the files of this session",
            Self::File => "this file",
            Self::Changes => "a list of what changed",
            Self::Total | Self::TotalEntries => "the files of all sessions together",
            Self::Owner | Self::OwnerEntries => "the files of all sessions of this token",
        })
    }
}

impl StoreError {
    /// Turns an error of an attempt to save something into the one for callers: the details go to the log,
    /// with the path, and not to callers.
    pub(super) fn of_saving(self) -> Self {
        match self {
            Self::Io { what, source } => {
                tracing::error!(what, %source, "the store cannot be written");
                Self::Unwritable(source)
            }
            other @ (Self::InUse(_)
            | Self::Newer { .. }
            | Self::Full(_)
            | Self::Quota { .. }
            | Self::Unwritable(_)
            | Self::Pending(_)
            | Self::Ledger(_)
            | Self::Gone) => other,
        }
    }

    /// Why a single file was left out, in a few words.
    pub fn left_out(&self) -> &'static str {
        let bound = if let Self::Quota { bound, .. } = self { Some(*bound) } else { None };
        match bound {
            Some(Bound::Total) => "store.max_bytes is used up",
            Some(Bound::TotalEntries) => "store.max_files is used up",
            Some(Bound::Owner | Bound::OwnerEntries) => "what this token may store is used up",
            Some(Bound::Bytes | Bound::Entries | Bound::File | Bound::Changes) | None => {
                "the session's quota is used up"
            }
        }
    }

    /// A thread of the daemon panicked while it wrote: what it wrote may be lost.
    pub(crate) fn panicked() -> Self {
        let source = io::Error::other("the daemon failed; its log says where");
        Self::Io { what: "what a program wrote could not be kept".to_owned(), source }
    }

    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        move |source| {
            let full = matches!(source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
            if full { Self::Full(what.into()) } else { Self::Io { what: what.into(), source } }
        }
    }
}
