//! Which side changed what: pure comparisons of a drop folder, a session and what both had when they were
//! equal.

use std::collections::{BTreeMap, BTreeSet};

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
    /// Whether a run made the file: the host never put one of this name there.
    pub(super) is_made: bool,
}

/// Which folder it is. A folder that somebody removed and made again under the same name is another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Identity {
    pub(super) device: u64,
    pub(super) inode: u64,
}

pub(super) type AllKnown = BTreeMap<RelPath, Known>;
pub(super) type Folder = BTreeMap<RelPath, FolderStamp>;
pub(super) type Stored = BTreeMap<RelPath, StoredStamp>;

/// What is in a folder.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// Files that can be taken.
    pub(super) files: Folder,
    /// What is there and never taken: links, devices, files with a second name, folders that cannot be read.
    pub(super) others: BTreeSet<RelPath>,
    /// Folders.
    pub(super) dirs: BTreeSet<RelPath>,
}

impl Seen {
    /// How many files and folders are there, without names that are left alone.
    pub(super) fn entries(&self) -> usize {
        self.files.len() + self.others.len() + self.dirs.len()
    }

    /// Whether something of this name is there, or may be behind what is there.
    fn may_have(&self, path: &RelPath) -> bool {
        let is_in_the_way = |above: &RelPath| self.others.contains(above) || self.files.contains_key(above);
        self.dirs.contains(path) || is_in_the_way(path) || above(path).any(|above| is_in_the_way(&above))
    }
}

/// The folders that a path is in, the innermost first.
pub(super) fn above(path: &RelPath) -> impl Iterator<Item = RelPath> {
    std::iter::successors(path.parent(), RelPath::parent)
}

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
    /// New files for which the folder has no room.
    pub(super) left_out: usize,
}

/// What is known of a folder that has another identity than the one before: only the files that are the same
/// ones. So no file counts as removed.
pub(super) fn known_elsewhere(known: &AllKnown, seen: &Seen) -> AllKnown {
    let is_same = |(path, known): &(&RelPath, &Known)| seen.files.get(path) == Some(&known.folder);
    known.iter().filter(is_same).map(|(path, known)| (path.clone(), *known)).collect()
}

pub(super) fn incoming(known: &AllKnown, seen: &Seen, stored: &Stored) -> Incoming {
    let is_new =
        |(path, stamp): &(&RelPath, &FolderStamp)| known.get(path).is_none_or(|k| k.folder != **stamp);
    let take = seen.files.iter().filter(is_new).map(|(path, _)| path.clone()).collect();
    let is_removed =
        |(path, known): &(&RelPath, &Known)| !seen.may_have(path) && stored.get(path) == Some(&known.stored);
    let remove = known.iter().filter(is_removed).map(|(path, _)| path.clone()).collect();
    Incoming { take, remove }
}

/// `most` is how many files and folders there may be in the folder.
pub(super) fn outgoing(known: &AllKnown, seen: &Seen, stored: &Stored, most: usize) -> Outgoing {
    // What the host changed meanwhile is taken before the next run, and nothing is put over it.
    let is_as_known = |path: &RelPath| match (seen.files.get(path), known.get(path)) {
        (None, _) => !seen.others.contains(path),
        (Some(stamp), known) => known.is_some_and(|known| known.folder == *stamp),
    };
    // A file that the host removed, and nobody changed since, stays removed.
    let is_new =
        |(path, stamp): &(&RelPath, &StoredStamp)| known.get(path).is_none_or(|k| k.stored != **stamp);
    let mut give: Vec<_> =
        stored.iter().filter(is_new).map(|(path, _)| path.clone()).filter(is_as_known).collect();
    let remove: Vec<_> = known
        .keys()
        .filter(|path| !stored.contains_key(path) && seen.files.contains_key(path) && is_as_known(path))
        .cloned()
        .collect();
    let mut room = (most + remove.len()).saturating_sub(seen.entries());
    let mut made = BTreeSet::new();
    let all = give.len();
    give.retain(|path| {
        let is_missing = |dir: &RelPath| !seen.dirs.contains(dir) && !made.contains(dir);
        let dirs: Vec<_> = above(path).filter(is_missing).collect();
        let needed = dirs.len() + usize::from(!seen.files.contains_key(path));
        let fits = needed <= room;
        if fits {
            room -= needed;
            made.extend(dirs);
        }
        fits
    });
    let left_out = all - give.len();
    Outgoing { give, remove, left_out }
}

/// The folders of these that hold no file of the session, the innermost first.
pub(super) fn unused(made: &BTreeSet<RelPath>, stored: &Stored) -> Vec<RelPath> {
    let used: BTreeSet<_> = stored.keys().flat_map(above).collect();
    made.iter().rev().filter(|dir| !used.contains(*dir)).cloned().collect()
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

    fn k(folder: u64, stored: u64) -> Known {
        Known { folder: f(folder), stored: s(stored), is_made: false }
    }

    fn case(
        known: Option<(u64, u64)>,
        folder: Option<u64>,
        stored: Option<u64>,
    ) -> (&'static str, &'static str) {
        let known: AllKnown = known.map(|(fo, st)| (path("a"), k(fo, st))).into_iter().collect();
        let files = folder.map(|n| (path("a"), f(n))).into_iter().collect();
        let folder = Seen { files, ..Seen::default() };
        let stored: Stored = stored.map(|n| (path("a"), s(n))).into_iter().collect();
        let (i, o) = (incoming(&known, &folder, &stored), outgoing(&known, &folder, &stored, 9));
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
    fn only_a_file_that_is_not_there_counts_as_removed() {
        let known = AllKnown::from([(path("in/a"), k(1, 1))]);
        let stored = Stored::from([(path("in/a"), s(1))]);
        let removed = |seen: &Seen| incoming(&known, seen, &stored).remove.len();
        assert_eq!(removed(&Seen::default()), 1);
        for other in ["in/a", "in"] {
            let seen = Seen { others: [path(other)].into(), ..Seen::default() };
            assert_eq!(removed(&seen), 0, "{other} is something else");
        }
        assert_eq!(removed(&Seen { dirs: [path("in/a")].into(), ..Seen::default() }), 0, "a folder");
        assert_eq!(removed(&Seen { files: [(path("in"), f(1))].into(), ..Seen::default() }), 0, "a file");
        // And what is something else on the host is not given.
        let seen = Seen { others: [path("in/a")].into(), ..Seen::default() };
        assert_eq!(outgoing(&known, &seen, &Stored::from([(path("in/a"), s(2))]), 9).give, []);
    }

    #[test]
    fn in_another_folder_only_the_same_files_are_known() {
        let known = AllKnown::from([(path("a"), k(1, 1)), (path("b"), k(2, 2)), (path("c"), k(3, 3))]);
        let files = [(path("a"), f(1)), (path("b"), f(9))].into();
        let still = known_elsewhere(&known, &Seen { files, ..Seen::default() });
        assert_eq!(still, AllKnown::from([(path("a"), k(1, 1))]));
    }

    #[test]
    fn no_more_is_given_than_the_folder_may_have() {
        let stored: Stored = ["a", "d/a", "d/b", "e/a"].map(|name| (path(name), s(1))).into();
        let known = AllKnown::from([(path("gone"), k(1, 1))]);
        let seen = Seen { files: [(path("gone"), f(1))].into(), ..Seen::default() };
        // `gone` makes room for one, and each folder takes the place of one.
        let plan = outgoing(&known, &seen, &stored, 4);
        assert_eq!((plan.give, plan.left_out), (vec![path("a"), path("d/a"), path("d/b")], 1));
        assert_eq!(outgoing(&known, &seen, &stored, 6).left_out, 0);
        // A file that is replaced needs no room.
        let known = AllKnown::from([(path("a"), k(1, 2))]);
        let seen = Seen { files: [(path("a"), f(1))].into(), ..Seen::default() };
        assert_eq!(outgoing(&known, &seen, &stored, 1).give, [path("a")]);
    }

    #[test]
    fn folders_without_files_go_from_the_inside() {
        let made = ["a", "a/b", "a/b/c", "d"].map(path).into();
        let stored = Stored::from([(path("a/x"), s(1))]);
        assert_eq!(unused(&made, &stored), ["d", "a/b/c", "a/b"].map(path));
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
