//! What a drop folder and its session had when they were last equal: in memory, and beside the session's
//! files in the store for the next daemon.
//!
//! A record that is lost costs no file: everything in the folder then counts as new. It must never outlive
//! the session's files, or a new session of the same id would count what it lacks as removed.

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};

use paddock_proto::RelPath;
use serde::{Deserialize, Serialize};
use tracing::warn;

use super::plan::{AllKnown, Identity, Known, Seen, known_elsewhere};
use crate::store::Space;

/// Folders of one session that are remembered: the one that is there now, and the one before it, which comes
/// back when a file system is mounted again.
const FOLDERS: usize = 2;

/// What is known of one folder.
#[derive(Debug, Clone)]
pub(super) struct FolderRecord {
    identity: Identity,
    pub(super) known: AllKnown,
    /// Folders that the daemon made.
    pub(super) made: BTreeSet<RelPath>,
}

impl FolderRecord {
    /// Whether a run made what has this name.
    pub(super) fn is_made(&self, path: &RelPath) -> bool {
        self.made.contains(path) || self.known.get(path).is_some_and(|known| known.is_made)
    }
}

/// A folder's record on the disk.
#[derive(Serialize, Deserialize)]
struct Saved {
    identity: Identity,
    known: Vec<(RelPath, Known)>,
    made: BTreeSet<RelPath>,
}

#[derive(Debug)]
pub(super) struct Record {
    /// The session's files that it is about.
    space: Weak<Space>,
    /// The newest first.
    folders: Vec<FolderRecord>,
    /// Files of which the log says already that they are not taken.
    pub(super) told: BTreeSet<RelPath>,
}

impl Record {
    pub(super) fn load(space: &Arc<Space>) -> Self {
        let read = space.read_drops();
        let saved =
            read.and_then(|text| serde_json::from_slice::<Vec<Saved>>(&text).ok()).unwrap_or_default();
        let folders = saved
            .into_iter()
            .map(|Saved { identity, known, made }| FolderRecord {
                identity,
                known: known.into_iter().collect(),
                made,
            })
            .collect();
        Self { space: Arc::downgrade(space), folders, told: BTreeSet::new() }
    }

    /// Whether it is about these files, and not about those of an earlier session of the same id.
    pub(super) fn is_of(&self, space: &Arc<Space>) -> bool {
        self.space.ptr_eq(&Arc::downgrade(space)) && !space.is_gone()
    }

    /// What is known of this folder, if it is the one that was there last time or before.
    pub(super) fn of(&self, identity: Identity) -> Option<&FolderRecord> {
        self.folders.iter().find(|folder| folder.identity == identity)
    }

    /// The same, to be changed.
    pub(super) fn of_mut(&mut self, identity: Identity) -> Option<&mut FolderRecord> {
        self.folders.iter_mut().find(|folder| folder.identity == identity)
    }

    /// Goes on with this folder, in which `seen` is.
    pub(super) fn enter(&mut self, identity: Identity, seen: &Seen) -> &mut FolderRecord {
        match self.folders.iter().position(|folder| folder.identity == identity) {
            Some(at) => self.folders[..=at].rotate_right(1),
            None => {
                let known =
                    self.folders.first().map(|last| known_elsewhere(&last.known, seen)).unwrap_or_default();
                self.folders.insert(0, FolderRecord { identity, known, made: BTreeSet::new() });
                self.folders.truncate(FOLDERS);
            }
        }
        &mut self.folders[0]
    }

    /// The files of these that were not told before.
    pub(super) fn news<'a>(&mut self, files: impl Iterator<Item = &'a RelPath>) -> Vec<RelPath> {
        let new: Vec<_> = files.filter(|path| !self.told.contains(path)).cloned().collect();
        self.told.extend(new.iter().cloned());
        new
    }

    /// Writes it to the disk. It holds in memory, even if this fails.
    pub(super) fn save(&self) {
        let Some(space) = self.space.upgrade() else { return };
        let saved: Vec<_> = self
            .folders
            .iter()
            .map(|folder| Saved {
                identity: folder.identity,
                known: folder.known.iter().map(|(path, known)| (path.clone(), *known)).collect(),
                made: folder.made.clone(),
            })
            .collect();
        let saved = serde_json::to_vec(&saved).map_err(std::io::Error::from);
        if let Err(error) = saved.and_then(|text| space.write_drops(&text)) {
            warn!(%error, "the record of a drop folder could not be written");
        }
    }
}
