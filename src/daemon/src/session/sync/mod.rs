//! A session's files between the store, which is the truth, and its containers, which are caches.
//!
//! ```text
//!           ┌─ archive   all of a large /data, into a container that is still empty
//!  store ───┼─ delta     before a program what its container lacks; after it what the program changed
//!           └─ salvage   what the engine can still read of a container whose agent does not answer
//!
//!  baseline  what a container has: the comparison on which all three rest
//! ```
//!
//! Whatever comes out of a container was written by the code that ran there. It must never save more than the
//! bounds allow, nor believe a size, a name or an order without checking it.

pub(in crate::session) mod archive;
pub(in crate::session) mod baseline;
pub(in crate::session) mod delta;
pub(in crate::session) mod salvage;

use paddock_proto::RelPath;
use paddock_proto::message::{CollectRules, Entry, EntryKind};

use crate::link::LinkError;
use crate::pool::{DataPlace, Runner};
use crate::store::StoreError;

/// Paths of unsaved files that are remembered: an answer names fewer.
const MAX_NOT_SAVED: usize = 256;

/// What `/data` may hold, and hence the most that is ever taken out of a container.
#[derive(Debug, Clone, Copy)]
pub(in crate::session) struct DataBounds {
    /// Bytes of all files.
    pub(in crate::session) bytes: u64,
    /// Files, directories and links.
    pub(in crate::session) entries: u64,
}

impl DataBounds {
    /// The most entries that an honest agent can report: all that were there before, and all that are there
    /// now.
    fn reported(self) -> u64 {
        self.entries.saturating_mul(3)
    }

    /// What the agent of this runner's containers is to report. A workspace on a disk holds more than is
    /// saved of it.
    pub(in crate::session) fn rules(self, runner: &Runner) -> CollectRules {
        match runner.bounds.place {
            DataPlace::Memory => CollectRules::All,
            DataPlace::Disk(_) => {
                CollectRules::Workspace { bytes: self.bytes.min(runner.bounds.stored), entries: self.entries }
            }
        }
    }
}

/// Why files did not get from one side to the other.
#[derive(Debug, thiserror::Error)]
pub(in crate::session) enum SyncError {
    /// The agent could not be reached, or broke the protocol.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// The store could not be read, or did not save.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A saved file cannot be read from the store's disk.
    #[error("the saved file {path:?} cannot be read from the store's disk: {source}")]
    Unread {
        /// The file.
        path: RelPath,
        /// The error of the system.
        source: std::io::Error,
    },
    /// The agent could not put the files into its container.
    #[error("the container would not take the session's files: {0}")]
    NotTaken(String),
}

/// What was saved of a container's files.
#[derive(Debug, Default)]
pub(in crate::session) struct Collected {
    /// Files that are new or changed, now saved.
    pub(in crate::session) changed: Vec<Entry>,
    /// The first files that could not be saved and stay only in the container, each with its reason in words.
    pub(in crate::session) not_saved: Vec<(Vec<u8>, &'static str)>,
    /// The agent could not be told that all this is saved: its container must not be used again.
    pub(in crate::session) is_container_behind: bool,
    /// The container may have had more: it went away while it was read, or could not be read to its end.
    pub(in crate::session) is_partial: bool,
}

impl Collected {
    /// Notes that this path stays in the container only.
    fn leave(&mut self, path: impl Into<Vec<u8>>, why: &'static str) {
        if self.not_saved.len() < MAX_NOT_SAVED {
            self.not_saved.push((path.into(), why));
        }
    }
}

/// How many files there are, and their bytes.
pub(in crate::session) fn sum<'a>(entries: impl IntoIterator<Item = &'a Entry>) -> (u64, u64) {
    entries.into_iter().fold((0, 0), |(files, bytes), entry| match entry.kind {
        EntryKind::File(size) => (files + 1, bytes + size),
        EntryKind::Dir | EntryKind::Link(_) => (files, bytes),
    })
}
