//! Why the store could not do something.
//!
//! Every bound that was hit is named, with what was wanted and what is allowed. It must never say that something
//! was not saved when it may have been.

use std::fmt;
use std::io;
use std::path::PathBuf;

/// Why the store could not do something.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Another daemon has it.
    #[error("{} is in use by another paddock daemon; give this one another store.root, or stop that one", .0.display())]
    InUse(PathBuf),
    /// No room on its disk.
    #[error("the disk of the store is full ({0}); nothing of this call was saved")]
    Full(String),
    /// One of the bounds would be exceeded.
    #[error("{bound} would take {wanted} {}, of {allowed} allowed; {}", .bound.unit(), .bound.remedy())]
    Quota {
        /// Which bound.
        bound: Bound,
        /// What it would be, in [`Bound::unit`]s.
        wanted: u64,
        /// What is allowed.
        allowed: u64,
    },
    /// The file system does not take what is to be saved: it is read-only, or fails.
    #[error("the store cannot be written at present ({0}); nothing of this call was saved")]
    Unwritable(#[source] io::Error),
    /// What was to be saved is kept, but could not be put in place; it is tried again by itself.
    #[error("what changed is saved, but cannot be put in place yet; the daemon tries it again by itself")]
    Pending(#[source] Box<StoreError>),
    /// The session's files were removed for good after this handle to them was had.
    #[error("the files of this session were deleted meanwhile; call again to begin anew")]
    Gone,
    /// Anything else the file system said.
    #[error("{what}: {source}")]
    Io {
        /// What was tried, with the path.
        what: String,
        /// What the system said.
        source: io::Error,
    },
}

/// The bounds of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bound {
    /// Bytes of one session's files, in pages.
    Bytes,
    /// Files, directories and links of one session.
    Entries,
    /// Bytes of one file.
    File,
    /// Bytes of all sessions: files, logs, and what is being written.
    Total,
    /// Files, directories and links of all sessions, with the few that a session itself takes.
    TotalEntries,
    /// Bytes that the names and small contents of one commit take.
    Changes,
}

impl Bound {
    /// What it counts.
    pub fn unit(self) -> &'static str {
        match self {
            Self::Bytes | Self::File | Self::Total | Self::Changes => "bytes",
            Self::Entries | Self::TotalEntries => "files and directories",
        }
    }

    fn remedy(self) -> &'static str {
        match self {
            Self::Bytes | Self::Entries => "delete some first",
            Self::File => "write it in parts",
            Self::Changes => "change less at once",
            Self::Total => "delete files or sessions first, or raise store.max_bytes",
            Self::TotalEntries => "delete files or sessions first, or raise store.max_files",
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
        })
    }
}

impl StoreError {
    /// The same, of an attempt to save something: what failed is noted in the log, with its path, and not told to
    /// callers.
    pub(super) fn of_saving(self) -> Self {
        match self {
            Self::Io { what, source } => {
                tracing::error!(what, %source, "the store cannot be written");
                Self::Unwritable(source)
            }
            other @ (Self::InUse(_)
            | Self::Full(_)
            | Self::Quota { .. }
            | Self::Unwritable(_)
            | Self::Pending(_)
            | Self::Gone) => other,
        }
    }

    /// Why a single file was left out, in a few words.
    pub fn left_out(&self) -> &'static str {
        let bound = if let Self::Quota { bound, .. } = self { Some(*bound) } else { None };
        match bound {
            Some(Bound::Total) => "store.max_bytes is used up",
            Some(Bound::TotalEntries) => "store.max_files is used up",
            Some(Bound::Bytes | Bound::Entries | Bound::File | Bound::Changes) | None => {
                "the session's quota is used up"
            }
        }
    }

    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        move |source| {
            let full = matches!(source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
            if full { Self::Full(what.into()) } else { Self::Io { what: what.into(), source } }
        }
    }
}
