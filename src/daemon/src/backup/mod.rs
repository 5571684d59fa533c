//! Backups of the store: `paddock backup` writes one archive, also while the daemon runs; `paddock restore`
//! checks it and puts it in the place of a store.
//!
//! ```text
//!  paddock backup ─► the daemon's socket, or the store itself ─► snapshot ─► pack ─► FILE
//!  FILE ─► unpack, with every hash ─► the folder of the store, in one step (see store/restored.rs)
//!
//!  archive   paddock-backup.json       the formats of archive and store
//!            store/…                   every file and folder of the store
//!            paddock-backup.manifest   a line for each: mode, time, size, SHA-256, path; its own SHA-256
//! ```
//!
//! The archive is a plain tar, so that other programs can read and compress it. It contains the secrets of
//! the store: its file is made with mode 0600. An archive that was cut off, or of which one byte differs,
//! must never be restored, and a store that has something in it must never be replaced unless that is asked
//! for.

mod command;
mod manifest;
mod pack;
mod target;
mod unpack;

pub use command::{BackupArguments, RestoreArguments, backup, restore};
pub(crate) use pack::pack;

/// The format of the archive.
const ARCHIVE: u32 = 1;
/// The first member.
const ABOUT: &str = "paddock-backup.json";
/// The last one.
const MANIFEST: &str = "paddock-backup.manifest";
/// In front of the path of every other one.
const STORE: &str = "store/";
/// Where the daemon sends it, by its socket alone.
pub(crate) const PATH: &str = "/backup";

/// What the first member says.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
struct About {
    /// The format of the archive.
    archive: u32,
    /// That of the store.
    store: u32,
    /// The version that made it.
    paddock: String,
}

/// Why there is no backup, or why it was not restored.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BackupError {
    #[error("{0}")]
    Store(#[from] crate::store::StoreError),
    #[error("the daemon of this store: {0}")]
    Daemon(String),
    #[error("{what}: {error}")]
    Io { what: String, error: std::io::Error },
    #[error("{0}")]
    Refused(String),
    #[error("the backup is damaged, and nothing was restored: {0}")]
    Damaged(String),
}

impl BackupError {
    fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        move |error| Self::Io { what: what.into(), error }
    }
}
