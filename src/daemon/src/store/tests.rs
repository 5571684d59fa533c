//! Tests of the store on a real file system.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use paddock_proto::RelPath;
use paddock_proto::message::{Entry, EntryKind};
use tempfile::TempDir;

use super::*;

mod before;
mod bounds;
mod crash;
mod fences;
mod full;
mod kill;
mod model;
mod shared;

const TOTAL: Amount = Amount { bytes: 1 << 40, entries: 1 << 40 };

const OPTIONS: Options =
    Options { quota: Quota { bytes: 1 << 28, entries: 1000, file: 1 << 28 }, total: TOTAL };

/// A file system where a sync takes no time: for tests that count thousands of changes, and lose no power.
const MEMORY: &str = "/dev/shm";

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
    batch.commit().await.unwrap().put
}

fn content(space: &Space, at: &str) -> String {
    let mut text = String::new();
    space.open(&path(at)).unwrap().read_to_string(&mut text).unwrap();
    text
}

#[tokio::test]
async fn committed_changes_survive_a_restart() {
    let root = TempDir::new().unwrap();
    let before = {
        let store = Arc::new(once_free(root.path(), OPTIONS));
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
    let store = Arc::new(once_free(root.path(), OPTIONS));
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
    let store = Arc::new(once_free(root.path(), OPTIONS));
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
    // The length in front keeps ("ab", "c") and ("a", "bc") apart.
    assert_ne!(hash("ab", "c"), hash("a", "bc"));
}

#[tokio::test]
async fn an_uncommitted_batch_leaves_nothing() {
    let root = TempDir::new().unwrap();
    let store = Arc::new(once_free(root.path(), OPTIONS));
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
async fn a_symbolic_link_on_the_host_is_not_followed() {
    let root = TempDir::new().unwrap();
    let store = Arc::new(once_free(root.path(), OPTIONS));
    let space = store.space("default", "c").await.unwrap();
    save(&space, &[("a", b"1")]).await;
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
async fn a_file_replaces_a_directory_and_back() {
    let root = TempDir::new().unwrap();
    let store = Arc::new(once_free(root.path(), OPTIONS));
    let space = store.space("default", "c").await.unwrap();
    save(&space, &[("a/b/c", b"1")]).await;
    save(&space, &[("a", b"2")]).await;
    assert_eq!(content(&space, "a"), "2");
    save(&space, &[("a/b/c", b"3")]).await;
    assert_eq!(content(&space, "a/b/c"), "3");
    assert_eq!(space.manifest().files().count(), 1);
}

/// Opens the store, which nobody uses any more. A program that another test starts at this moment holds the
/// lock until it has been executed.
fn once_free(root: &Path, options: Options) -> Store {
    let until = std::time::Instant::now() + std::time::Duration::from_secs(10);
    loop {
        match Store::open(root, options) {
            Err(StoreError::InUse(_)) if std::time::Instant::now() < until => std::thread::yield_now(),
            opened => return opened.unwrap(),
        }
    }
}

#[test]
fn one_daemon_at_a_time_uses_a_store() {
    let root = TempDir::new().unwrap();
    let first = once_free(root.path(), OPTIONS);
    assert!(matches!(Store::open(root.path(), OPTIONS), Err(StoreError::InUse(_))));
    let secret = first.secret("files.secret").unwrap();
    drop(first);
    let second = once_free(root.path(), OPTIONS);
    assert_eq!(second.secret("files.secret").unwrap(), secret);
    let mode = fs::metadata(root.path().join("files.secret")).unwrap().mode();
    assert_eq!(mode & 0o777, 0o600);
    let agent = root.path().join("agent.secret");
    let refused = || second.secret("agent.secret").unwrap_err().to_string();
    fs::write(&agent, "short").unwrap();
    fs::set_permissions(&agent, fs::Permissions::from_mode(0o600)).unwrap();
    assert!(refused().contains("agent.secret") && refused().contains("remove it"), "{}", refused());
    fs::set_permissions(&agent, fs::Permissions::from_mode(0o604)).unwrap();
    assert!(refused().contains("open to other users"), "{}", refused());
}

#[test]
fn a_folder_that_others_can_write_is_refused_as_a_store() {
    let root = TempDir::new().unwrap();
    fs::set_permissions(root.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let refused = Store::open(root.path(), OPTIONS).err().unwrap().to_string();
    assert!(refused.contains("can be written by other users"), "{refused}");
    assert_eq!(fs::read_dir(root.path()).unwrap().count(), 0, "nothing was made in it");
    // A folder below it belongs to this user alone.
    once_free(&root.path().join("mine"), OPTIONS);
    assert_eq!(fs::metadata(root.path().join("mine")).unwrap().mode() & 0o777, 0o700);
}

#[tokio::test]
async fn the_files_of_one_batch_count_together() {
    let root = TempDir::new().unwrap();
    let quota = Quota { bytes: 4096 * 3, entries: 5, file: 4096 * 3 };
    let store = Arc::new(once_free(root.path(), Options { quota, ..OPTIONS }));
    let space = store.space("default", "c").await.unwrap();
    let sized = |at: &str, size| Entry { kind: EntryKind::File(size), ..file(at) };
    save(&space, &[("old", &[1; 5000])]).await;
    let mut batch = Batch::new(space.clone());
    assert!(batch.admit(&sized("a", 4096)).is_ok());
    batch.file(sized("a", 4096));
    batch.write(&[0; 4096]).await.unwrap();
    batch.keep();
    assert!(matches!(batch.admit(&sized("b", 1)), Err(StoreError::Quota { wanted: 16384, .. })));
    // There is room for a replacement, and after a removal in the same batch.
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
    let store = Arc::new(once_free(root.path(), OPTIONS));
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

#[tokio::test]
async fn a_session_that_is_not_stored_is_neither_found_nor_made() {
    let root = TempDir::new().unwrap();
    let store = Arc::new(once_free(root.path(), OPTIONS));
    assert!(store.find("default", "c").await.unwrap().is_none());
    let space = store.space("default", "c").await.unwrap();
    assert!(store.find("default", "c").await.unwrap().is_none(), "a space that nobody wrote to is nothing");
    assert!(store.stored().await.unwrap().is_empty());
    assert!(!store.forget("default", "c").await.unwrap());
    save(&space, &[("a", b"1")]).await;
    assert!(Arc::ptr_eq(&store.find("default", "c").await.unwrap().unwrap(), &space));
    assert_eq!(store.stored().await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_forgotten_session_is_gone_for_good_even_through_an_old_handle() {
    let root = TempDir::new().unwrap();
    let store = Arc::new(once_free(root.path(), OPTIONS));
    let old = store.space("default", "c").await.unwrap();
    save(&old, &[("a", b"1"), ("d/b", b"2")]).await;
    old.log("run_1").unwrap().append(b"out").unwrap();
    let mut late = Batch::new(old.clone());
    late.file(file("late"));
    late.write(b"3").await.unwrap();
    late.keep();
    assert!(store.forget("default", "c").await.unwrap());
    assert!(!store.session_dir("default", "c").exists());
    assert!(!store.forget("default", "c").await.unwrap());
    assert!(matches!(late.commit().await, Err(StoreError::Gone)));
    assert!(matches!(old.log("run_2"), Err(StoreError::Gone)));
    old.touch();
    old.set_closed(true);
    assert_eq!(old.manifest().files().count(), 0);
    assert!(store.find("default", "c").await.unwrap().is_none());
    let new = store.space("default", "c").await.unwrap();
    assert!(!new.is_closed());
    save(&new, &[("n", b"4")]).await;
    assert!(matches!(store.find("default", "c").await, Ok(Some(found)) if Arc::ptr_eq(&found, &new)));
    assert_eq!(new.manifest().files().count(), 1);
    assert_eq!(fs::read_dir(root.path().join("tmp")).unwrap().count(), 0);
}

#[tokio::test]
async fn the_time_of_use_and_a_closed_session_are_kept() {
    let root = TempDir::new().unwrap();
    let long_ago = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
    {
        let store = Arc::new(once_free(root.path(), OPTIONS));
        let space = store.space("default", "c").await.unwrap();
        space.set_closed(true);
        save(&space, &[("a", b"1")]).await;
        let about = File::open(store.session_dir("default", "c").join("session.json")).unwrap();
        about.set_modified(long_ago).unwrap();
        let stored = StoredSession { owner: "default".into(), session: "c".into(), used: long_ago };
        assert_eq!(store.stored().await.unwrap(), [stored]);
        space.touch();
        assert!(store.stored().await.unwrap()[0].used > long_ago);
        assert!(space.is_closed());
    }
    let store = Arc::new(once_free(root.path(), OPTIONS));
    let space = store.find("default", "c").await.unwrap().unwrap();
    assert!(space.is_closed());
    space.set_closed(false);
    drop((space, store));
    let store = Arc::new(once_free(root.path(), OPTIONS));
    assert!(!store.space("default", "c").await.unwrap().is_closed());
}

/// Waits until a change gets a later time than any change before.
fn tick() {
    let now = || {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse);
        (now.tv_sec, now.tv_nsec)
    };
    let begun = now();
    while now() <= begun {
        std::thread::yield_now();
    }
    // On file systems with finer times a file can be ahead of this clock by less than one step.
    let next = now();
    while now() <= next {
        std::thread::yield_now();
    }
}

#[tokio::test]
async fn a_reader_of_a_file_sees_one_content_completely() {
    let root = TempDir::new().unwrap();
    let store = Arc::new(once_free(root.path(), OPTIONS));
    let space = store.space("default", "c1").await.unwrap();
    let inode = || space.open(&path("f")).unwrap().metadata().unwrap().ino();
    save(&space, &[("f", &[b'1'; 3000])]).await;
    let first = inode();
    // Without a reader the same file is written over: shorter, longer, with its time and mode.
    for (content, size) in [(b'2', 10), (b'3', 4000)] {
        tick();
        save(&space, &[("f", &vec![content; size])]).await;
        assert_eq!(inode(), first);
    }
    assert_eq!(content(&space, "f"), "3".repeat(4000));
    let metadata = space.open(&path("f")).unwrap().metadata().unwrap();
    assert_eq!((metadata.mode() & 0o777, metadata.mtime_nsec()), (0o640, 123_456_789));

    tick();
    let mut reader = space.open(&path("f")).unwrap();
    let mut begin = [0; 100];
    reader.read_exact(&mut begin).unwrap();
    save(&space, &[("f", &[b'4'; 4000])]).await;
    let mut rest = String::new();
    reader.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "3".repeat(3900));
    assert_eq!(content(&space, "f"), "4".repeat(4000));
    assert_ne!(inode(), first);
    drop(reader);

    // It is not written over either with a content that needs more blocks, or while the journal has another
    // name of it.
    let second = inode();
    save(&space, &[("f", &[b'5'; 10_000])]).await;
    assert_ne!(inode(), second);
    save(&space, &[("f", &[b'6'; 300_000])]).await;
    let linked = inode();
    save(&space, &[("f", b"7")]).await;
    assert_ne!(inode(), linked);
    assert_eq!(content(&space, "f"), "7");
}

/// A commit looks at its own file, also if another upload replaces that file just afterwards.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_commit_looks_at_its_own_file() {
    let root = TempDir::new_in(MEMORY).unwrap();
    let store = Arc::new(once_free(root.path(), OPTIONS));
    let space = store.space("default", "s").await.unwrap();
    let put = |size: usize| {
        let space = space.clone();
        async move {
            let mut batch = Batch::new(space);
            batch.file(file("f"));
            batch.write(&vec![b'x'; size]).await.unwrap();
            batch.keep();
            batch.look_at(path("f"));
            let looked = batch.commit().await.unwrap().looked.expect("a file");
            assert_eq!(looked.len(), size as u64);
        }
    };
    for _ in 0..20 {
        let puts: Vec<_> = (1..=8).map(|size| tokio::spawn(put(size))).collect();
        for one in puts {
            one.await.unwrap();
        }
    }
    let mut batch = Batch::new(space.clone());
    batch.remove(path("f"));
    batch.look_at(path("f"));
    assert!(batch.commit().await.unwrap().looked.is_none(), "it was removed");
}
