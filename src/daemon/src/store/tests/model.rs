//! The expected content of the store, kept by other means than the store's: plain maps, and changes made from
//! numbers.

use std::collections::BTreeMap;

use paddock_proto::LinkTarget;

use super::*;

/// What is at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Node {
    Dir(u32),
    File(u32, Vec<u8>),
    Link(Vec<u8>),
}

/// One session by path.
pub(super) type Tree = BTreeMap<String, Node>;

/// One step of a batch.
#[derive(Debug, Clone)]
pub(super) enum Step {
    Put(&'static str, u32, Vec<u8>),
    Dir(&'static str, u32),
    Link(&'static str, Vec<u8>),
    Remove(&'static str),
    /// As `mv` does: the first path is removed, and its content is at the second.
    Move(&'static str, &'static str),
}

/// The changes of one batch.
#[derive(Debug, Clone)]
pub(super) enum Change {
    Batch(Vec<Step>),
    Forget,
}

const PATHS: [&str; 10] = ["a", "a/b", "a/b/c", "a-", "a/c", "d", "d/e/f", "d/e", "g", "a/b/c/h"];

/// Numbers that look random and are always the same: splitmix64.
#[derive(Debug, Clone, Copy)]
pub(super) struct Numbers(pub(super) u64);

impl Numbers {
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (x ^ (x >> 31)) % bound
    }

    pub(super) fn index(&mut self, len: usize) -> usize {
        usize::try_from(self.below(len as u64)).unwrap()
    }

    fn path(&mut self) -> &'static str {
        PATHS[self.index(PATHS.len())]
    }

    /// The `n`th change of the sequence `seed`.
    pub(super) fn change(seed: u64, n: u64) -> Change {
        let mut from = Self(seed.wrapping_mul(1_000_003).wrapping_add(n));
        if from.below(12) == 0 {
            return Change::Forget;
        }
        let steps = 1 + from.below(5);
        Change::Batch((0..steps).map(|step| from.step(n * 10 + step)).collect())
    }

    fn step(&mut self, stamp: u64) -> Step {
        let path = self.path();
        match self.below(12) {
            0..6 => {
                // Every content differs from every other, and some are too large for the journal.
                let size = if self.below(8) == 0 { 300_000 } else { self.index(300) };
                let mut bytes = format!("{stamp}:").into_bytes();
                bytes.resize(bytes.len() + size, b'x');
                Step::Put(path, [0o644, 0o600, 0o755][self.index(3)], bytes)
            }
            6 => Step::Dir(path, [0o755, 0o700][self.index(2)]),
            7 => Step::Link(path, format!("../{stamp}").into_bytes()),
            8 | 9 => Step::Remove(path),
            _ => Step::Move(path, self.path()),
        }
    }
}

/// Makes a change in a tree.
pub(super) fn change(tree: &mut Tree, change: &Change) {
    let Change::Batch(steps) = change else {
        tree.clear();
        return;
    };
    for step in steps {
        match step {
            Step::Put(path, mode, bytes) => put(tree, path, Node::File(*mode, bytes.clone())),
            Step::Dir(path, mode) => put(tree, path, Node::Dir(*mode)),
            Step::Link(path, target) => put(tree, path, Node::Link(target.clone())),
            Step::Remove(path) => remove(tree, path),
            Step::Move(from, to) => {
                if let Some(moved) = moved(tree, from, to) {
                    remove(tree, from);
                    put(tree, to, moved);
                }
            }
        }
    }
}

/// What a move would bring, if a program could make it.
fn moved(tree: &Tree, from: &str, to: &str) -> Option<Node> {
    let apart = !format!("{from}/").starts_with(&format!("{to}/")) && !to.starts_with(&format!("{from}/"));
    tree.get(from).filter(|node| apart && matches!(node, Node::File(..))).cloned()
}

fn remove(tree: &mut Tree, path: &str) {
    tree.retain(|at, _| at != path && !at.starts_with(&format!("{path}/")));
}

fn put(tree: &mut Tree, path: &str, node: Node) {
    for (slash, _) in path.match_indices('/') {
        if !matches!(tree.get(&path[..slash]), Some(Node::Dir(_))) {
            tree.insert(path[..slash].to_owned(), Node::Dir(0o700));
        }
    }
    if !matches!(node, Node::Dir(_)) {
        remove(tree, path);
    }
    tree.insert(path.to_owned(), node);
}

/// Makes the same change in a session of a store; `before` is the content of that session.
pub(super) async fn commit(
    store: &Arc<Store>,
    session: &str,
    before: &Tree,
    change: &Change,
) -> Result<(), StoreError> {
    let Change::Batch(steps) = change else {
        return store.forget("default", session).await.map(drop);
    };
    let mut batch = Batch::new(store.space("default", session).await?);
    let mut tree = before.clone();
    for step in steps {
        let entry =
            |at: &str, kind, mode| Entry { path: path(at), kind, mode, mtime_ns: 1_700_000_000_000_000_000 };
        let mut file = None;
        match step {
            Step::Put(at, mode, bytes) => file = Some((at, *mode, bytes.clone())),
            Step::Dir(at, mode) => batch.dir(entry(at, EntryKind::Dir, *mode)),
            Step::Link(at, target) => {
                batch.link(entry(at, EntryKind::Link(LinkTarget::new(target.clone()).unwrap()), 0o777));
            }
            Step::Remove(at) => batch.remove(path(at)),
            Step::Move(from, to) => {
                if let Some(Node::File(mode, bytes)) = moved(&tree, from, to) {
                    batch.remove(path(from));
                    file = Some((to, mode, bytes));
                }
            }
        }
        if let Some((at, mode, bytes)) = file {
            batch.file(entry(at, EntryKind::File(0), mode));
            batch.write(&bytes).await?;
            batch.keep();
        }
        super::model::change(&mut tree, &Change::Batch(vec![step.clone()]));
    }
    batch.commit().await.map(drop)
}

/// The content of a session of a store, from its manifest and its files.
pub(super) async fn tree(store: &Arc<Store>, session: &str) -> Tree {
    let Some(space) = store.find("default", session).await.unwrap() else { return Tree::new() };
    let manifest = space.manifest().clone();
    let known = manifest.known();
    let mut tree = Tree::new();
    for at in known.keys() {
        let Entry { path, kind, mode, .. } = manifest.get(at).unwrap().entry.clone();
        let node = match kind {
            EntryKind::Dir => Node::Dir(mode),
            EntryKind::Link(target) => {
                assert_eq!(
                    space.open(&path).unwrap_err().kind(),
                    io::ErrorKind::NotFound,
                    "{path:?} is a link"
                );
                Node::Link(target.as_bytes().to_vec())
            }
            EntryKind::File(size) => {
                let mut bytes = Vec::new();
                space.open(&path).unwrap().read_to_end(&mut bytes).unwrap();
                assert_eq!(bytes.len() as u64, size, "{path:?}");
                Node::File(mode, bytes)
            }
        };
        tree.insert(path.to_text().into_owned(), node);
    }
    tree
}

/// Copies a store that is in use; files that are renamed away meanwhile are not in the copy.
pub(super) fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        let metadata = fs::symlink_metadata(&from).unwrap();
        if metadata.is_dir() {
            copy(&from, &to);
            fs::set_permissions(&to, metadata.permissions()).unwrap();
        } else {
            fs::copy(&from, &to).unwrap();
            File::options()
                .write(true)
                .open(&to)
                .unwrap()
                .set_modified(metadata.modified().unwrap())
                .unwrap();
        }
    }
}
