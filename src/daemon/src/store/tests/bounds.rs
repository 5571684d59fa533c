//! Tests of symbolic links, and of every limit of the store.

use paddock_proto::LinkTarget;

use super::*;

fn link(at: &str, target: &str) -> Entry {
    let kind = EntryKind::Link(LinkTarget::new(target).unwrap());
    Entry { path: path(at), kind, mode: 0o777, mtime_ns: 0 }
}

/// Asserts that a store has no symbolic link anywhere.
fn no_links(dir: &Path) {
    for entry in fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        assert!(!entry.file_type().unwrap().is_symlink(), "{:?}", entry.path());
        if entry.file_type().unwrap().is_dir() {
            no_links(&entry.path());
        }
    }
}

#[tokio::test]
async fn links_are_kept_as_data_and_nothing_goes_through_them() {
    let root = TempDir::new().unwrap();
    {
        let store = Arc::new(once_free(root.path(), OPTIONS));
        let space = store.space("default", "c").await.unwrap();
        let mut batch = Batch::new(space.clone());
        batch.link(link("out", "/etc"));
        batch.link(link("deep/er/l", "../../out"));
        batch.file(file("gone/x"));
        batch.keep();
        batch.link(link("gone", "nowhere"));
        batch.link(link("replaced", "out"));
        batch.file(file("replaced/passwd"));
        batch.write(b"mine").await.unwrap();
        batch.keep();
        batch.commit().await.unwrap();
        no_links(root.path());
        for at in ["out", "out/passwd", "deep/er/l", "gone", "gone/x"] {
            assert_eq!(space.open(&path(at)).unwrap_err().kind(), io::ErrorKind::NotFound, "{at}");
        }
        assert_eq!(content(&space, "replaced/passwd"), "mine");
    }
    let store = Arc::new(once_free(root.path(), OPTIONS));
    let space = store.space("default", "c").await.unwrap();
    let kind = |at: &str| space.manifest().get(&path(at)).map(|held| held.entry.kind.clone());
    assert_eq!(kind("out"), Some(link("out", "/etc").kind));
    assert_eq!(kind("deep/er/l"), Some(link("l", "../../out").kind));
    assert_eq!((kind("gone/x"), kind("replaced")), (None, Some(EntryKind::Dir)));
    let mut batch = Batch::new(space.clone());
    batch.remove(path("deep"));
    batch.dir(Entry { kind: EntryKind::Dir, ..link("out", "x") });
    batch.remove(path("gone"));
    batch.commit().await.unwrap();
    assert!(
        !store.session_dir("default", "c").join("links").exists(),
        "a session without links has no list of them"
    );
    assert_eq!((kind("deep/er/l"), kind("out")), (None, Some(EntryKind::Dir)));
}

#[tokio::test]
async fn a_damaged_list_of_links_is_reported() {
    let root = TempDir::new().unwrap();
    let store = Arc::new(once_free(root.path(), OPTIONS));
    let mut batch = Batch::new(store.space("default", "c").await.unwrap());
    batch.link(link("l", "t"));
    batch.commit().await.unwrap();
    let list = store.session_dir("default", "c").join("links");
    let mut bytes = fs::read(&list).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&list, bytes).unwrap();
    let error = store.space("default", "c").await.err().expect("the damage is seen").to_string();
    assert!(error.contains("links` is damaged"), "{error}");
}

const SMALL: Options = Options { total: Amount { bytes: 1 << 20, ..TOTAL }, ..OPTIONS };

/// Bytes of all sessions, when nothing is being written.
fn bytes_used(store: &Store) -> u64 {
    let (used, claimed) = store.shared.usage.used();
    assert_eq!(claimed, Amount::default());
    used.bytes
}

#[tokio::test]
async fn all_sessions_together_have_a_limit_that_counts_bytes_being_written() {
    let root = TempDir::new().unwrap();
    {
        let store = Arc::new(once_free(root.path(), SMALL));
        let (one, two) =
            (store.space("default", "1").await.unwrap(), store.space("other", "2").await.unwrap());
        save(&one, &[("a", &vec![1; 500_000])]).await;
        let mut slow = Batch::new(two.clone());
        slow.file(file("slow"));
        slow.write(&vec![1; 400_000]).await.unwrap();
        // There is no room beside the stored bytes, nor beside those being written.
        let mut batch = Batch::new(one.clone());
        batch.file(file("b"));
        let error = batch.write(&vec![1; 200_000]).await.unwrap_err();
        assert_eq!(
            error.to_string(),
            "the files of all sessions together would take 1105920 bytes, of 1048576 allowed; delete files \
             or sessions first, or raise store.max_bytes"
        );
        assert!(batch.admit(&Entry { kind: EntryKind::File(200_000), ..file("b") }).is_err());
        drop(batch);
        slow.keep();
        slow.commit().await.unwrap();
        assert_eq!(bytes_used(&store), (123 + 98) * 4096);
        // A replacement counts by its difference.
        save(&one, &[("a", &vec![1; 100_000])]).await;
        assert_eq!(bytes_used(&store), (25 + 98) * 4096);
    }
    let store = Arc::new(once_free(root.path(), SMALL));
    for (owner, id) in [("default", "1"), ("other", "2")] {
        store.space(owner, id).await.unwrap(); // counts it, if the background thread has not
    }
    assert_eq!(bytes_used(&store), (25 + 98) * 4096);
    assert!(store.forget("other", "2").await.unwrap());
    assert_eq!(bytes_used(&store), 25 * 4096);
    let one = store.space("default", "1").await.unwrap();
    save(&one, &[("b", &vec![1; 800_000])]).await;
}

/// Entries of all sessions.
fn entries_used(store: &Store) -> u64 {
    store.shared.usage.used().0.entries
}

#[tokio::test]
async fn all_sessions_together_have_a_limit_of_entries() {
    const FEW: Options = Options { total: Amount { entries: 16, ..TOTAL }, ..OPTIONS };
    let root = TempDir::new().unwrap();
    let is_bound = |error: &StoreError| matches!(error, StoreError::Quota { bound: Bound::TotalEntries, .. });
    {
        let store = Arc::new(once_free(root.path(), FEW));
        let (one, two) =
            (store.space("default", "1").await.unwrap(), store.space("other", "2").await.unwrap());
        // A session, a directory that a name implies, two empty files, and a link.
        save(&one, &[("d/a", b""), ("d/b", b"")]).await;
        let mut batch = Batch::new(one.clone());
        batch.link(link("l", "nowhere"));
        batch.commit().await.unwrap();
        assert_eq!(entries_used(&store), 3 + 4);
        // A replacement takes no entry.
        save(&one, &[("d/a", b"again")]).await;
        save(&one, &[("l", b"a file now")]).await;
        assert_eq!(entries_used(&store), 3 + 4);
        // Two batches that were admitted side by side do not both fit.
        let (mut first, mut second) = (Batch::new(one.clone()), Batch::new(two.clone()));
        for n in 0..5 {
            for batch in [&mut first, &mut second] {
                let entry = file(&format!("x{n}"));
                batch.admit(&entry).unwrap();
                batch.file(entry);
                batch.keep();
            }
        }
        second.commit().await.unwrap();
        assert_eq!(entries_used(&store), 7 + 3 + 5);
        let error = first.commit().await.unwrap_err();
        assert_eq!(
            error.to_string(),
            "the files of all sessions together would take 20 files and directories, of 16 allowed; delete \
             files or sessions first, or raise store.max_files"
        );
        assert_eq!(entries_used(&store), 15, "nothing of what was refused counts");
        assert!(is_bound(&Batch::new(one.clone()).admit(&file("y/z")).unwrap_err()));
        assert!(Batch::new(one.clone()).admit(&file("d/a")).is_ok());
        // There is no room either for the log of a new session.
        let new = store.space("default", "3").await.unwrap();
        assert!(is_bound(&new.log("run_1").err().expect("no room")));
        save(&one, &[("y", b"the last")]).await;
        assert_eq!(entries_used(&store), 16);
        // A commit that only removes is accepted, and makes room.
        let mut batch = Batch::new(one.clone());
        batch.remove(path("d"));
        batch.commit().await.unwrap();
        assert_eq!(entries_used(&store), 13);
        drop(new.log("run_1").unwrap());
        assert_eq!(entries_used(&store), 16);
    }
    let mut store = once_free(root.path(), FEW);
    store.threads.pop().unwrap().join().unwrap(); // it ends when everything is counted
    let store = Arc::new(store);
    assert_eq!(entries_used(&store), 16);
    for (owner, id, left) in [("default", "3", 13), ("other", "2", 5), ("default", "1", 0)] {
        assert!(store.forget(owner, id).await.unwrap());
        assert_eq!(entries_used(&store), left);
    }
    save(&store.space("default", "1").await.unwrap(), &[("a", b"1")]).await;
    assert_eq!(entries_used(&store), 4);
}

#[tokio::test]
async fn sessions_that_nobody_loads_are_counted_in_the_background() {
    let root = TempDir::new().unwrap();
    {
        let store = Arc::new(once_free(root.path(), SMALL));
        save(&store.space("default", "1").await.unwrap(), &[("a", &vec![1; 500_000])]).await;
        store.space("default", "1").await.unwrap().log("run_1").unwrap().append(&[b'x'; 1000]).unwrap();
    }
    let mut store = once_free(root.path(), SMALL);
    store.threads.pop().unwrap().join().unwrap(); // it ends when everything is counted
    assert_eq!(bytes_used(&store), 123 * 4096 + 1000);
}

#[tokio::test]
async fn logs_count_and_stop_growing_at_the_limit() {
    let root = TempDir::new().unwrap();
    let store = Arc::new(once_free(root.path(), SMALL));
    let space = store.space("default", "1").await.unwrap();
    let mut log = space.log("run_01").unwrap();
    log.append(&vec![b'x'; 1 << 20]).unwrap();
    assert!(matches!(log.append(b"y"), Err(StoreError::Quota { bound: Bound::Total, .. })));
    let mut batch = Batch::new(space.clone());
    batch.file(file("a"));
    assert!(matches!(batch.write(b"1").await, Err(StoreError::Quota { bound: Bound::Total, .. })));
    // A new log removes the oldest, which makes room.
    for n in 2..34 {
        space.log(&format!("run_{n:02}")).unwrap();
    }
    save(&space, &[("a", b"1")]).await;
    // The log of a run is continued after a restart.
    for _ in 0..2 {
        space.log("run_33").unwrap().append(&[b'x'; 1000]).unwrap();
    }
    assert_eq!(bytes_used(&store), 4096 + 2000);
    assert!(store.forget("default", "1").await.unwrap());
    assert!(matches!(log.append(b"y"), Err(StoreError::Gone)));
    assert_eq!(bytes_used(&store), 0);
}

#[tokio::test]
async fn one_file_and_one_session_are_limited_while_they_are_written() {
    let root = TempDir::new().unwrap();
    let quota = Quota { bytes: 40_960, entries: 10, file: 20_000 };
    let store = Arc::new(once_free(root.path(), Options { quota, ..OPTIONS }));
    let space = store.space("default", "c").await.unwrap();
    let mut batch = Batch::new(space.clone());
    batch.file(file("a"));
    batch.write(&[1; 20_000]).await.unwrap();
    let error = batch.write(b"1").await.unwrap_err();
    assert_eq!(error.to_string(), "this file would take 20001 bytes, of 20000 allowed; write it in parts");
    drop(batch);
    save(&space, &[("a", &[1; 20_000]), ("b", &[1; 16_385])]).await;
    let mut batch = Batch::new(space.clone());
    batch.file(file("c"));
    let error = batch.write(b"1").await.unwrap_err();
    let expected = "the files of this session would take 45056 bytes, of 40960 allowed; delete some first";
    assert_eq!(error.to_string(), expected);
    // Two batches that were admitted side by side do not fit together.
    let (mut one, mut two) = (Batch::new(space.clone()), Batch::new(space.clone()));
    for batch in [&mut one, &mut two] {
        batch.remove(path("b"));
    }
    for (batch, at) in [(&mut one, "1"), (&mut two, "2")] {
        batch.file(file(at));
        batch.write(&[1; 12_000]).await.unwrap();
        batch.keep();
    }
    one.commit().await.unwrap();
    assert!(matches!(two.commit().await, Err(StoreError::Quota { bound: Bound::Bytes, .. })));
    assert_eq!(space.manifest().files().count(), 2);
}

#[tokio::test]
async fn a_checkpoint_frees_replaced_contents() {
    let root = TempDir::new().unwrap();
    let store = Arc::new(once_free(root.path(), OPTIONS));
    let space = store.space("default", "c").await.unwrap();
    let big = vec![1; 300_000];
    save(&space, &[("a", &big)]).await;
    save(&space, &[("a", b"1")]).await;
    let count = |dir: &str| fs::read_dir(root.path().join(dir)).unwrap().count();
    assert_eq!(count("tmp"), 2, "the source for a replay, and the replaced file");
    assert!(store.shared.checkpoint());
    assert_eq!(count("tmp"), 0);
    assert_eq!(count("journal"), 1, "the next file is ready, and empty");
    drop((space, store));
    let store = Arc::new(once_free(root.path(), OPTIONS));
    assert_eq!(content(&store.space("default", "c").await.unwrap(), "a"), "1");
}
