//! The entries of a session's `/data`, in memory: pure bookkeeping over the store's files.
//!
//! Every change gets a new *generation*. The daemon remembers which generation of each path a container has,
//! so what the container lacks is a comparison of two maps. The manifest must never touch the file system.

use std::collections::BTreeMap;

use paddock_proto::RelPath;
use paddock_proto::limits::PAGE;
use paddock_proto::message::{Entry, EntryKind};

use super::usage::Amount;
use super::{Bound, Quota, StoreError};

/// The mode of a directory that exists only because something in it was named; on disk the same.
const IMPLIED: u32 = 0o700;

/// An entry and when it last changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredEntry {
    /// Kind, mode, time.
    pub entry: Entry,
    /// Grows with every change of the session.
    pub generation: u64,
}

/// All entries of a session.
#[derive(Debug, Clone, Default)]
pub struct Manifest {
    entries: BTreeMap<RelPath, StoredEntry>,
    generation: u64,
    pages: u64,
}

/// What must change in a container to make it equal to the store.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Difference {
    /// Paths to remove first, innermost first.
    pub remove: Vec<RelPath>,
    /// Entries to put then, outermost first.
    pub put: Vec<StoredEntry>,
}

impl Manifest {
    /// An empty manifest, with generations above those of an earlier one of the same session.
    pub fn after(earlier: &Self) -> Self {
        Self { generation: earlier.generation + 1, ..Self::default() }
    }

    /// Puts an entry: removes what contradicts it, and makes the directories above it.
    pub fn put(&mut self, entry: Entry) {
        if let Some(dir) = entry.path.parent()
            && self.entries.get(&dir).is_none_or(|held| held.entry.kind != EntryKind::Dir)
        {
            // It gets an entry of its own, or nothing could tell another container to remove it.
            self.put(Entry { path: dir, kind: EntryKind::Dir, mode: IMPLIED, mtime_ns: 0 });
        }
        let held = self.entries.get(&entry.path);
        if held.is_some_and(|held| entry.kind != EntryKind::Dir || held.entry.kind != EntryKind::Dir) {
            self.remove(&entry.path);
        }
        self.generation += 1;
        self.pages += entry.kind.pages();
        let held = StoredEntry { generation: self.generation, entry };
        if let Some(old) = self.entries.insert(held.entry.path.clone(), held) {
            self.pages -= old.entry.kind.pages();
        }
    }

    /// Removes a path and everything below it.
    pub fn remove(&mut self, path: &RelPath) {
        let below: Vec<_> =
            self.entries.range(path..).map(|(p, _)| p).take_while(|p| starts(p, path)).cloned().collect();
        for gone in below.iter().filter(|p| *p == path || p.is_below(path)) {
            if let Some(old) = self.entries.remove(gone) {
                self.pages -= old.entry.kind.pages();
                self.generation += 1;
            }
        }
    }

    /// Grows with every change; equal generations of one session mean equal contents. 0 is the empty
    /// beginning.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Bytes that the entries take of `/data`, in whole pages.
    pub fn bytes(&self) -> u64 {
        self.pages * PAGE
    }

    /// What it counts for the store's limits.
    pub(super) fn amount(&self) -> Amount {
        Amount { bytes: self.bytes(), entries: self.entries.len() as u64 }
    }

    /// Entries that this one would add: itself, and the directories above it.
    pub(super) fn fresh(&self, entry: &Entry) -> u64 {
        let above = std::iter::successors(Some(entry.path.clone()), RelPath::parent);
        above.filter(|path| !self.entries.contains_key(path)).count() as u64
    }

    /// Entries, with `/data` itself.
    pub(super) fn len(&self) -> u64 {
        self.entries.len() as u64 + 1
    }

    /// The largest size that a file at `path` could have.
    pub(super) fn largest_file(&self, path: &RelPath, quota: Quota) -> u64 {
        let old = self.entries.get(path).map_or(0, |held| held.entry.kind.pages());
        quota.bytes.saturating_sub((self.pages - old) * PAGE)
    }

    /// One entry.
    pub fn get(&self, path: &RelPath) -> Option<&StoredEntry> {
        self.entries.get(path)
    }

    /// Whether there is anything below this path.
    pub fn is_above_some(&self, dir: &RelPath) -> bool {
        let behind = self.entries.range(dir..).map(|(path, _)| path);
        behind.take_while(|path| starts(path, dir)).any(|path| path.is_below(dir))
    }

    /// Regular files and their sizes, by path.
    pub fn files(&self) -> impl Iterator<Item = (&Entry, u64)> {
        self.entries.values().filter_map(|held| match held.entry.kind {
            EntryKind::File(size) => Some((&held.entry, size)),
            EntryKind::Dir | EntryKind::Link(_) => None,
        })
    }

    /// The paths and generations of a container that was just made equal to this manifest.
    pub fn known(&self) -> BTreeMap<RelPath, u64> {
        self.entries.iter().map(|(path, held)| (path.clone(), held.generation)).collect()
    }

    /// The difference between this manifest and a container that has `known`.
    pub fn lacking(&self, known: &BTreeMap<RelPath, u64>) -> Difference {
        let remove = known.keys().rev().filter(|path| !self.entries.contains_key(*path)).cloned().collect();
        let put = self.entries.iter().filter(|(path, held)| known.get(*path) != Some(&held.generation));
        Difference { remove, put: put.map(|(_, held)| held.clone()).collect() }
    }

    /// Checks that one more entry, in place of the one at its path, would fit.
    ///
    /// # Errors
    /// [`StoreError::Quota`].
    pub fn admit(&self, entry: &Entry, quota: Quota) -> Result<(), StoreError> {
        if let EntryKind::File(wanted) = entry.kind
            && wanted > quota.file
        {
            return Err(StoreError::Quota { bound: Bound::File, wanted, allowed: quota.file });
        }
        let old = self.entries.get(&entry.path).map_or(0, |held| held.entry.kind.pages());
        let wanted = (self.pages - old + entry.kind.pages()) * PAGE;
        if wanted > quota.bytes {
            return Err(StoreError::Quota { bound: Bound::Bytes, wanted, allowed: quota.bytes });
        }
        // The directories above it may be new, and `/data` itself counts as one.
        let wanted = self.len() + self.fresh(entry);
        if wanted > quota.entries {
            return Err(StoreError::Quota { bound: Bound::Entries, wanted, allowed: quota.entries });
        }
        Ok(())
    }
}

fn starts(path: &RelPath, with: &RelPath) -> bool {
    path.as_bytes().starts_with(with.as_bytes())
}

#[cfg(test)]
mod tests {
    use paddock_proto::LinkTarget;
    use proptest::prelude::*;

    use super::*;

    fn path(text: &str) -> RelPath {
        RelPath::new(text).unwrap()
    }

    fn file(at: &str, size: u64) -> Entry {
        Entry { path: path(at), kind: EntryKind::File(size), mode: 0o644, mtime_ns: 0 }
    }

    #[test]
    fn a_file_where_a_directory_was_and_back() {
        let mut manifest = Manifest::default();
        manifest.put(file("a/b/c", 1));
        manifest.put(file("a-b", 1));
        manifest.put(file("a", 1));
        assert_eq!(
            manifest.files().map(|(e, _)| e.path.to_text().into_owned()).collect::<Vec<_>>(),
            ["a", "a-b"]
        );
        manifest.put(file("a/x", 5000));
        assert_eq!(manifest.files().count(), 2);
        assert_eq!(manifest.pages, 3);
    }

    #[test]
    fn a_link_is_an_entry_and_no_file_and_nothing_is_below_it() {
        let link = |at: &str, bytes: usize| {
            let target = LinkTarget::new("x".repeat(bytes)).unwrap();
            Entry { path: path(at), kind: EntryKind::Link(target), mode: 0o777, mtime_ns: 0 }
        };
        let mut manifest = Manifest::default();
        manifest.put(file("a/b", 5000));
        manifest.put(link("a", 127));
        assert_eq!((manifest.files().count(), manifest.entries.len(), manifest.pages), (0, 1, 0));
        manifest.put(link("a", 128));
        assert_eq!(manifest.pages, 1);
        manifest.put(file("a/b", 1));
        assert_eq!(manifest.get(&path("a")).map(|held| &held.entry.kind), Some(&EntryKind::Dir));
        assert_eq!(manifest.pages, 1);
        let quota = Quota { bytes: 4096, entries: 9, file: 4096 };
        assert!(manifest.admit(&link("l", 127), quota).is_ok());
        assert!(manifest.admit(&link("l", 128), quota).is_err());
    }

    #[test]
    fn a_quota_counts_pages_and_entries() {
        let mut manifest = Manifest::default();
        let quota = Quota { bytes: 8192, entries: 4, file: 8192 };
        manifest.put(file("a", 4097));
        assert!(manifest.admit(&file("a", 8192), quota).is_ok());
        let large = manifest.admit(&file("a", 8193), quota).unwrap_err();
        assert_eq!(large.to_string(), "this file would take 8193 bytes, of 8192 allowed; write it in parts");
        assert!(matches!(manifest.admit(&file("b", 1), quota), Err(StoreError::Quota { wanted: 12288, .. })));
        assert!(matches!(
            manifest.admit(&file("x/y/z", 0), quota),
            Err(StoreError::Quota { bound: Bound::Entries, .. })
        ));
    }

    #[derive(Debug, Clone)]
    enum Step {
        Put(usize, u64),
        Remove(usize),
        Sync,
    }

    proptest! {
        /// The oracle is a plain map of file contents by path, as a file system would have it.
        #[test]
        fn a_container_that_applies_what_it_lacks_is_as_the_store(
            steps in proptest::collection::vec(prop_oneof![
                4 => (0..7usize, 0..9000u64).prop_map(|(p, s)| Step::Put(p, s)),
                2 => (0..7usize).prop_map(Step::Remove),
                2 => Just(Step::Sync),
            ], 0..40)
        ) {
            let names = ["a", "a/b", "a/b/c", "a-", "a/c", "d", "a/b/d"].map(path);
            let mut manifest = Manifest::default();
            // A directory has no size. Putting a file makes the directories above it, and nothing removes
            // them afterwards.
            let mut oracle: BTreeMap<RelPath, Option<u64>> = BTreeMap::new();
            let (mut known, mut container) = (BTreeMap::new(), BTreeMap::<RelPath, Option<u64>>::new());
            let put = |tree: &mut BTreeMap<RelPath, Option<u64>>, at: &RelPath, size: Option<u64>| {
                if size.is_some() {
                    tree.retain(|p, _| !p.is_below(at));
                }
                tree.insert(at.clone(), size);
                for above in std::iter::successors(at.parent(), RelPath::parent) {
                    tree.insert(above, None);
                }
            };
            for step in steps.into_iter().chain([Step::Sync]) {
                match step {
                    Step::Put(name, size) => {
                        let at = &names[name];
                        put(&mut oracle, at, Some(size));
                        manifest.put(Entry { path: at.clone(), kind: EntryKind::File(size), mode: 0o600,
                            mtime_ns: 0 });
                    }
                    Step::Remove(name) => {
                        oracle.retain(|p, _| p != &names[name] && !p.is_below(&names[name]));
                        manifest.remove(&names[name]);
                    }
                    Step::Sync => {
                        let difference = manifest.lacking(&known);
                        for gone in &difference.remove { container.remove(gone); }
                        for held in &difference.put {
                            let kind = &held.entry.kind;
                            let size = if let EntryKind::File(size) = kind { Some(*size) } else { None };
                            put(&mut container, &held.entry.path, size);
                        }
                        known = manifest.known();
                        prop_assert_eq!(&container, &oracle);
                        prop_assert_eq!(manifest.lacking(&known), Difference::default());
                        let pages: u64 = oracle.values().flatten().map(|size| size.div_ceil(PAGE)).sum();
                        prop_assert_eq!(manifest.pages, pages);
                    }
                }
            }
        }
    }
}
