//! Which side changed what: pure comparisons of a drop folder, a session and what both had when they were
//! equal.

use std::collections::BTreeMap;

use paddock_proto::RelPath;
use serde::{Deserialize, Serialize};

/// A file in a folder. A file that was replaced or written to has another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FolderStamp {
    pub(super) size: u64,
    pub(super) mtime_ns: i64,
    pub(super) inode: u64,
}

/// A file of the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct StoredStamp {
    pub(super) size: u64,
    pub(super) mtime_ns: i64,
}

/// Both, when their contents were the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Known {
    pub(super) folder: FolderStamp,
    pub(super) stored: StoredStamp,
}

pub(super) type AllKnown = BTreeMap<RelPath, Known>;
pub(super) type Folder = BTreeMap<RelPath, FolderStamp>;
pub(super) type Stored = BTreeMap<RelPath, StoredStamp>;

/// What the host changed.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Incoming {
    /// New or changed files.
    pub(super) take: Vec<RelPath>,
    /// Files that the host removed, and that the session has as they were.
    pub(super) remove: Vec<RelPath>,
}

/// What the session changed.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Outgoing {
    /// New or changed files.
    pub(super) give: Vec<RelPath>,
    /// Files that the session removed, and that the folder has as they were.
    pub(super) remove: Vec<RelPath>,
}

pub(super) fn incoming(known: &AllKnown, folder: &Folder, stored: &Stored) -> Incoming {
    let is_new =
        |(path, stamp): &(&RelPath, &FolderStamp)| known.get(path).is_none_or(|k| k.folder != **stamp);
    let take = folder.iter().filter(is_new).map(|(path, _)| path.clone()).collect();
    let is_removed = |(path, known): &(&RelPath, &Known)| {
        !folder.contains_key(path) && stored.get(path) == Some(&known.stored)
    };
    let remove = known.iter().filter(is_removed).map(|(path, _)| path.clone()).collect();
    Incoming { take, remove }
}

pub(super) fn outgoing(known: &AllKnown, folder: &Folder, stored: &Stored) -> Outgoing {
    // What the host changed meanwhile is taken before the next run, and nothing is put over it.
    let is_as_known = |path: &RelPath| match (folder.get(path), known.get(path)) {
        (None, _) => true,
        (Some(stamp), known) => known.is_some_and(|known| known.folder == *stamp),
    };
    // A file that the host removed, and nobody changed since, stays removed.
    let is_new =
        |(path, stamp): &(&RelPath, &StoredStamp)| known.get(path).is_none_or(|k| k.stored != **stamp);
    let give = stored.iter().filter(is_new).map(|(path, _)| path.clone()).filter(is_as_known).collect();
    let remove = known
        .keys()
        .filter(|path| !stored.contains_key(path) && folder.contains_key(path) && is_as_known(path))
        .cloned()
        .collect();
    Outgoing { give, remove }
}

/// Whether a name is one that a writer uses until its file is whole, or that is nobody else's business. Such
/// files stay on their side.
pub(super) fn is_left_alone(name: &[u8]) -> bool {
    name.starts_with(b".")
        || name.ends_with(b"~")
        || [&b".tmp"[..], b".part"].iter().any(|end| name.ends_with(end))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> RelPath {
        RelPath::from_user(text).unwrap()
    }

    fn f(version: u64) -> FolderStamp {
        FolderStamp { size: version, mtime_ns: 1, inode: 1 }
    }

    fn s(version: u64) -> StoredStamp {
        StoredStamp { size: version, mtime_ns: 1 }
    }

    fn case(
        known: Option<(u64, u64)>,
        folder: Option<u64>,
        stored: Option<u64>,
    ) -> (&'static str, &'static str) {
        let one = |path: RelPath| BTreeMap::from([(path, ())]);
        let _ = one(path("a"));
        let known: AllKnown =
            known.map(|(fo, st)| (path("a"), Known { folder: f(fo), stored: s(st) })).into_iter().collect();
        let folder: Folder = folder.map(|n| (path("a"), f(n))).into_iter().collect();
        let stored: Stored = stored.map(|n| (path("a"), s(n))).into_iter().collect();
        let (i, o) = (incoming(&known, &folder, &stored), outgoing(&known, &folder, &stored));
        let word = |first: bool, second: bool, names: [&'static str; 2]| match (first, second) {
            (true, false) => names[0],
            (false, true) => names[1],
            (false, false) => "-",
            (true, true) => unreachable!("both at once"),
        };
        (
            word(!i.take.is_empty(), !i.remove.is_empty(), ["take", "remove"]),
            word(!o.give.is_empty(), !o.remove.is_empty(), ["give", "remove"]),
        )
    }

    #[test]
    fn a_difference_goes_to_the_other_side_and_the_host_wins_where_both_changed() {
        let same = Some((1, 1));
        for (known, folder, stored, expected) in [
            (None, Some(1), None, ("take", "-")),
            (None, None, Some(1), ("-", "give")),
            (None, Some(1), Some(2), ("take", "-")),
            (same, Some(1), Some(1), ("-", "-")),
            (same, Some(2), Some(1), ("take", "-")),
            (same, Some(1), Some(2), ("-", "give")),
            (same, Some(2), Some(2), ("take", "-")),
            (same, None, Some(1), ("remove", "-")),
            // The session changed what the host removed: it is not lost.
            (same, None, Some(2), ("-", "give")),
            (same, Some(1), None, ("-", "remove")),
            // The host changed what the session removed.
            (same, Some(2), None, ("take", "-")),
            (same, None, None, ("-", "-")),
        ] {
            assert_eq!(case(known, folder, stored), expected, "{known:?} {folder:?} {stored:?}");
        }
    }

    #[test]
    fn a_file_that_is_being_written_is_left_alone_by_its_name() {
        for name in [".a", "a.tmp", "a.part", "a~", ".paddock-1.tmp"] {
            assert!(is_left_alone(name.as_bytes()), "{name}");
        }
        for name in ["a", "a.csv", "tmp", "part", "a.tmp.csv", "a.b"] {
            assert!(!is_left_alone(name.as_bytes()), "{name}");
        }
    }
}
