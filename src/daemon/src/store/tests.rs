//! The store on a real file system.

use std::collections::BTreeMap;
use std::os::unix::fs::{MetadataExt, symlink};

use paddock_proto::RelPath;
use paddock_proto::message::{Entry, EntryKind};
use tempfile::TempDir;

use super::*;

const QUOTA: Quota = Quota { bytes: 1 << 28, entries: 1000 };

fn path(text: &str) -> RelPath {
    RelPath::new(text).unwrap()
}

fn file(at: &str) -> Entry {
    Entry { path: path(at), kind: EntryKind::File(0), mode: 0o640, mtime_ns: 1_700_000_000_123_456_789 }
}

async fn save(space: &Arc<Space>, files: &[(&str, &[u8])]) -> Vec<Entry> {
    let mut batch = Batch::new(space.clone());
    for (at, content) in files {
        batch.file(file(at));
        batch.write(content).await.unwrap();
        batch.keep();
    }
    batch.commit().await.unwrap()
}

fn content(space: &Space, at: &str) -> String {
    let mut text = String::new();
    space.open(&path(at)).unwrap().read_to_string(&mut text).unwrap();
    text
}

#[tokio::test]
async fn what_was_committed_is_there_after_a_restart() {
    let root = TempDir::new().unwrap();
    let before = {
        let store = Arc::new(Store::open(root.path(), QUOTA).unwrap());
        let space = store.space("default", "c1").await.unwrap();
        let big = vec![b'x'; 3 << 20];
        let put = save(&space, &[("a.csv", b"1,2\n"), ("deep/er/b", b"b"), ("big", &big)]).await;
        assert_eq!(put[2].kind, EntryKind::File(3 << 20));
        let mut batch = Batch::new(space.clone());
        batch.dir(Entry { path: path("empty"), kind: EntryKind::Dir, mode: 0o755, mtime_ns: 0 });
        batch.remove(path("big"));
        batch.commit().await.unwrap();
        let manifest = space.manifest().clone();
        (store.owner.clone(), manifest)
    };
    let store = Arc::new(Store::open(root.path(), QUOTA).unwrap());
    assert_eq!(store.owner, before.0);
    let space = store.space("default", "c1").await.unwrap();
    let sizes: BTreeMap<_, _> =
        space.manifest().files().map(|(entry, size)| (entry.path.to_text().into_owned(), size)).collect();
    assert_eq!(sizes, BTreeMap::from([("a.csv".into(), 4), ("deep/er/b".into(), 1)]));
    assert_eq!(content(&space, "deep/er/b"), "b");
    let entry = space.manifest().get(&path("a.csv")).unwrap().entry.clone();
    assert_eq!((entry.mode, entry.mtime_ns), (0o640, 1_700_000_000_123_456_789));
    assert_eq!(space.manifest().get(&path("empty")).unwrap().entry.kind, EntryKind::Dir);
    assert_eq!(fs::read_dir(root.path().join("tmp")).unwrap().count(), 0);
}

#[tokio::test]
async fn sessions_and_owners_do_not_see_each_other() {
    let root = TempDir::new().unwrap();
    let store = Arc::new(Store::open(root.path(), QUOTA).unwrap());
    let ids = ["a", "A", "a ", " a", "../a", "a/b", "a_b", "é", "e\u{301}", "\u{202e}", "-rf", "$(id)", ""];
    for (n, id) in ids.iter().enumerate() {
        let space = store.space("default", id).await.unwrap();
        assert_eq!(space.manifest().files().count(), 0, "{id:?} is not new");
        save(&space, &[("n", n.to_string().as_bytes())]).await;
    }
    for (n, id) in ids.iter().enumerate() {
        assert_eq!(content(&store.space("default", id).await.unwrap(), "n"), n.to_string());
        assert_eq!(store.space("other", id).await.unwrap().manifest().files().count(), 0);
    }
    // the length in front keeps ("ab", "c") and ("a", "bc") apart
    assert_ne!(hash("ab", "c"), hash("a", "bc"));
}

#[tokio::test]
async fn an_uncommitted_batch_leaves_nothing() {
    let root = TempDir::new().unwrap();
    let store = Arc::new(Store::open(root.path(), QUOTA).unwrap());
    let space = store.space("default", "c").await.unwrap();
    save(&space, &[("a", b"old")]).await;
    let mut batch = Batch::new(space.clone());
    batch.file(file("a"));
    batch.write(&vec![0; 2 << 20]).await.unwrap();
    batch.keep();
    assert_eq!(fs::read_dir(root.path().join("tmp")).unwrap().count(), 1);
    drop(batch);
    assert_eq!(fs::read_dir(root.path().join("tmp")).unwrap().count(), 0);
    assert_eq!(content(&space, "a"), "old");
}

#[tokio::test]
async fn a_link_that_someone_put_there_is_not_followed() {
    let root = TempDir::new().unwrap();
    let store = Arc::new(Store::open(root.path(), QUOTA).unwrap());
    let space = store.space("default", "c").await.unwrap();
    let outside = TempDir::new().unwrap();
    fs::write(outside.path().join("secret"), "s").unwrap();
    symlink(outside.path(), space.files().join("dir")).unwrap();
    symlink(outside.path().join("secret"), space.files().join("link")).unwrap();
    assert!(space.open(&path("link")).is_err());
    assert!(space.open(&path("dir/secret")).is_err());
    save(&space, &[("dir/secret", b"mine"), ("link", b"mine")]).await;
    assert_eq!(fs::read_to_string(outside.path().join("secret")).unwrap(), "s");
    assert_eq!(content(&space, "dir/secret"), "mine");
    assert_eq!(content(&space, "link"), "mine");
}

#[tokio::test]
async fn a_file_where_a_directory_was_and_back() {
    let root = TempDir::new().unwrap();
    let store = Arc::new(Store::open(root.path(), QUOTA).unwrap());
    let space = store.space("default", "c").await.unwrap();
    save(&space, &[("a/b/c", b"1")]).await;
    save(&space, &[("a", b"2")]).await;
    assert_eq!(content(&space, "a"), "2");
    save(&space, &[("a/b/c", b"3")]).await;
    assert_eq!(content(&space, "a/b/c"), "3");
    assert_eq!(space.manifest().files().count(), 1);
}

#[test]
fn a_store_has_one_owner_at_a_time() {
    let root = TempDir::new().unwrap();
    let first = Store::open(root.path(), QUOTA).unwrap();
    assert!(matches!(Store::open(root.path(), QUOTA), Err(StoreError::InUse(_))));
    let secret = first.secret("files.secret").unwrap();
    drop(first);
    let second = Store::open(root.path(), QUOTA).unwrap();
    assert_eq!(second.secret("files.secret").unwrap(), secret);
    let mode = fs::metadata(root.path().join("files.secret")).unwrap().mode();
    assert_eq!(mode & 0o777, 0o600);
    fs::write(root.path().join("agent.secret"), "short").unwrap();
    assert!(second.secret("agent.secret").unwrap_err().to_string().contains("agent.secret"));
}

#[tokio::test]
async fn files_of_one_batch_count_together() {
    let root = TempDir::new().unwrap();
    let quota = Quota { bytes: 4096 * 3, entries: 5 };
    let store = Arc::new(Store::open(root.path(), quota).unwrap());
    let space = store.space("default", "c").await.unwrap();
    let sized = |at: &str, size| Entry { kind: EntryKind::File(size), ..file(at) };
    save(&space, &[("old", &[1; 5000])]).await;
    let mut batch = Batch::new(space.clone());
    assert!(batch.admit(&sized("a", 4096)).is_ok());
    batch.file(sized("a", 4096));
    batch.write(&[0; 4096]).await.unwrap();
    batch.keep();
    assert!(matches!(batch.admit(&sized("b", 1)), Err(StoreError::Quota { wanted: 16384, .. })));
    // In place of what is there, and after a removal of this very batch, there is room.
    assert!(batch.admit(&sized("a", 1)).is_ok());
    batch.remove(path("old"));
    assert!(batch.admit(&sized("b", 8192)).is_ok());
    assert!(batch.admit(&sized("x/y/z", 0)).is_ok());
    assert!(batch.admit(&sized("w/x/y/z", 0)).is_err());
    batch.commit().await.unwrap();
    assert_eq!(space.manifest().files().count(), 1);
}

#[tokio::test]
async fn a_batch_of_many_files_and_directories() {
    let root = TempDir::new().unwrap();
    let store = Arc::new(Store::open(root.path(), QUOTA).unwrap());
    let space = store.space("default", "c").await.unwrap();
    let names: Vec<String> = (0..600).map(|i| format!("d{}/f{i}", i % 200)).collect();
    let files: Vec<(&str, &[u8])> = names.iter().map(|name| (name.as_str(), name.as_bytes())).collect();
    save(&space, &files).await;
    assert_eq!(space.manifest().files().count(), 600);
    assert_eq!(content(&space, "d7/f207"), "d7/f207");
    let mut batch = Batch::new(space.clone());
    (0..200).for_each(|i| batch.remove(path(&format!("d{i}"))));
    batch.commit().await.unwrap();
    assert_eq!(space.manifest().files().count(), 0);
    assert_eq!(std::fs::read_dir(root.path().join("tmp")).unwrap().count(), 0);
}
