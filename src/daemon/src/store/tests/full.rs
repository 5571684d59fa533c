//! A disk that is full, or fails: saved files stay, refusals are reported, and the store recovers by itself.

use std::io::Write;
use std::process::Command;
use std::sync::atomic::Ordering;

use super::model::copy;
use super::*;
use crate::store::shared::claim_or_free;

/// A small disk of its own; mounting it needs root.
struct Disk(TempDir);

impl Disk {
    fn new(options: &str) -> Self {
        let dir = TempDir::new().unwrap();
        let done =
            Command::new("mount").args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(dir.path()).status();
        assert!(done.unwrap().success(), "cannot mount a tmpfs: run this as root");
        Self(dir)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

async fn put(store: &Arc<Store>, at: &str, content: &[u8]) -> Result<(), StoreError> {
    let mut batch = Batch::new(store.space("default", "c").await?);
    batch.file(file(at));
    batch.write(content).await?;
    batch.keep();
    batch.commit().await.map(drop)
}

/// Saves as many files as there is room for, and loses none of them.
async fn fill(store: &Arc<Store>, size: usize) -> usize {
    for n in 0.. {
        match put(store, &format!("f{n}"), &pattern(n, size)).await {
            Ok(()) => {}
            Err(error) => {
                assert!(matches!(error, StoreError::Full(_)), "{error}");
                let space = store.space("default", "c").await.unwrap();
                assert!(space.manifest().get(&path(&format!("f{n}"))).is_none());
                return n;
            }
        }
    }
    unreachable!("a disk has an end");
}

fn pattern(n: usize, size: usize) -> Vec<u8> {
    vec![u8::try_from(n % 251).unwrap(); size]
}

async fn all_there(store: &Arc<Store>, count: usize, size: usize) {
    let space = store.space("default", "c").await.unwrap();
    for n in 0..count {
        let mut bytes = Vec::new();
        space.open(&path(&format!("f{n}"))).unwrap().read_to_end(&mut bytes).unwrap();
        assert_eq!(bytes, pattern(n, size), "f{n}");
    }
}

#[tokio::test]
async fn a_full_disk_refuses_and_loses_nothing_and_works_again() {
    for size in [1 << 20, 40_000] {
        let disk = Disk::new("size=40m");
        let store = Arc::new(once_free(&disk.path().join("store"), OPTIONS));
        let count = fill(&store, size).await;
        assert!(count > 4, "only {count} files of {size} bytes");
        all_there(&store, count, size).await;
        let tmp = || fs::read_dir(disk.path().join("store/tmp")).unwrap().count();
        // Nothing of the refused commit is left.
        store.shared.checkpoint();
        assert_eq!(tmp(), 0);
        drop(store);
        let store = Arc::new(once_free(&disk.path().join("store"), OPTIONS));
        all_there(&store, count, size).await;
        // A commit that only removes is accepted, and makes room.
        let space = store.space("default", "c").await.unwrap();
        let mut batch = Batch::new(space.clone());
        (0..count / 2).for_each(|n| batch.remove(path(&format!("f{n}"))));
        batch.commit().await.unwrap();
        put(&store, "again", &vec![7; size]).await.unwrap();
        assert_eq!(space.manifest().files().count(), count - count / 2 + 1);
    }
}

#[test]
fn a_claim_is_tried_again_after_a_checkpoint_whoever_freed_the_space() {
    let full = || Err(StoreError::Full("1 is needed, 0 are left".into()));
    let (mut tries, mut freed) = (0, false);
    let claim = || {
        tries += 1;
        if tries == 1 { full() } else { Ok(7) }
    };
    assert_eq!((claim_or_free(claim, || freed = true).unwrap(), tries, freed), (7, 2, true));
    let refused: Result<u8, _> = claim_or_free(full, || ());
    assert!(matches!(refused, Err(StoreError::Full(_))));
    assert_eq!(claim_or_free(|| Ok(1), || unreachable!("there is room")).unwrap(), 1);
}

#[tokio::test]
async fn a_disk_without_inodes_refuses_up_front() {
    let disk = Disk::new("size=40m,nr_inodes=200");
    let store = Arc::new(once_free(&disk.path().join("store"), OPTIONS));
    let count = fill(&store, 10).await;
    assert!((20..200).contains(&count), "{count} files");
    all_there(&store, count, 10).await;
}

#[tokio::test]
async fn free_space_that_other_programs_took_and_gave_back_is_used_again() {
    let disk = Disk::new("size=40m");
    let store = Arc::new(once_free(&disk.path().join("store"), OPTIONS));
    put(&store, "f0", &[0; 1000]).await.unwrap();
    fs::write(disk.path().join("other"), vec![1; 30 << 20]).unwrap();
    assert!(matches!(put(&store, "big", &vec![1; 5 << 20]).await, Err(StoreError::Full(_))));
    fs::write(disk.path().join("other"), vec![1; 38 << 20]).unwrap();
    assert!(matches!(put(&store, "f1", &[1; 1000]).await, Err(StoreError::Full(_))));
    all_there(&store, 1, 1000).await;
    fs::remove_file(disk.path().join("other")).unwrap();
    put(&store, "f1", &[1; 1000]).await.unwrap();
    all_there(&store, 2, 1000).await;
}

#[tokio::test]
async fn a_change_that_could_not_be_applied_is_kept_and_applied_later() {
    let root = TempDir::new().unwrap();
    let (live, crashed) = (root.path().join("live"), root.path().join("crashed"));
    let store = Arc::new(once_free(&live, OPTIONS));
    let space = store.space("default", "c").await.unwrap();
    save(&space, &[("a", b"1"), ("b", b"1")]).await;
    // Without tmp/ nothing can be applied, while the journal still accepts records.
    let away = |on: bool| {
        let (tmp, away) = (live.join("tmp"), live.join("away"));
        if on { fs::rename(tmp, away) } else { fs::rename(away, tmp) }.unwrap();
    };
    away(true);
    let mut batch = Batch::new(space.clone());
    batch.remove(path("a"));
    batch.file(file("c"));
    batch.write(b"2").await.unwrap();
    batch.keep();
    let error = batch.commit().await.unwrap_err();
    assert!(matches!(error, StoreError::Pending(_)), "{error}");
    assert!(space.manifest().get(&path("c")).is_none());
    let mut batch = Batch::new(space.clone());
    batch.remove(path("b"));
    let overtaken = batch.commit().await.unwrap_err();
    assert!(!matches!(overtaken, StoreError::Pending(_)), "nothing overtakes it, and this one is not saved");
    assert!(overtaken.to_string().contains("nothing of this call was saved"), "{overtaken}");
    assert!(!store.shared.checkpoint(), "the journal is kept as long");
    copy(&live, &crashed);
    away(false);
    // The next read applies it.
    assert!(space.manifest().get(&path("a")).is_none());
    assert_eq!((content(&space, "c"), content(&space, "b")), ("2".into(), "1".into()));
    store.shared.checkpoint();
    assert_eq!(store.shared.journal.sealed(), 0);
    save(&space, &[("d", b"3")]).await;

    // So does the next start.
    fs::create_dir(crashed.join("tmp")).unwrap();
    let store = Arc::new(once_free(&crashed, OPTIONS));
    let space = store.find("default", "c").await.unwrap().unwrap();
    assert!(space.manifest().get(&path("a")).is_none());
    assert_eq!(content(&space, "c"), "2");
}

#[tokio::test]
async fn a_start_that_cannot_apply_one_session_serves_the_others() {
    let root = TempDir::new().unwrap();
    let (live, crashed) = (root.path().join("live"), root.path().join("crashed"));
    let store = Arc::new(once_free(&live, OPTIONS));
    let big = vec![b'x'; 300_000];
    for id in ["one", "two"] {
        save(&store.space("default", id).await.unwrap(), &[("a", b"1"), ("big", &big)]).await;
    }
    copy(&live, &crashed);
    // A file where the directory of a session should be.
    let dir = crashed.join(hash("default", "one"));
    fs::remove_dir_all(&dir).unwrap();
    fs::write(&dir, "in the way").unwrap();
    let store = Arc::new(once_free(&crashed, OPTIONS));
    let refused = store.space("default", "one").await.map(drop).unwrap_err();
    assert!(
        !matches!(refused, StoreError::Pending(_)),
        "nobody is told that anything new is saved: {refused}"
    );
    let two = store.space("default", "two").await.unwrap();
    save(&two, &[("a", b"2")]).await;
    store.shared.checkpoint();
    drop((two, store));
    // The journal still has everything, also the changes made since.
    let store = Arc::new(once_free(&crashed, OPTIONS));
    assert_eq!(content(&store.space("default", "two").await.unwrap(), "a"), "2");
    fs::remove_file(&dir).unwrap();
    let one = store.space("default", "one").await.unwrap();
    assert_eq!((content(&one, "a"), content(&one, "big").len()), ("1".into(), big.len()));
    store.shared.checkpoint();
    assert_eq!(store.shared.journal.sealed(), 0);
    assert_eq!(fs::read_dir(crashed.join("tmp")).unwrap().count(), 0);
}

#[tokio::test]
async fn a_failed_sync_fails_its_commit_and_no_other() {
    let root = TempDir::new().unwrap();
    let (live, crashed) = (root.path().join("live"), root.path().join("crashed"));
    let store = Arc::new(once_free(&live, OPTIONS));
    let space = store.space("default", "c").await.unwrap();
    save(&space, &[("a", b"1")]).await;
    *store.shared.stuck.lock().unwrap() = true; // keeps the journal for this test to read
    let journal = || fs::read_dir(live.join("journal")).unwrap().count();
    assert_eq!(journal(), 1);
    for round in 0..2 {
        store.shared.journal.hooks.fail.store(true, Ordering::Relaxed);
        let mut batch = Batch::new(space.clone());
        batch.remove(path("a"));
        assert!(matches!(batch.commit().await, Err(StoreError::Unwritable(_))));
        assert_eq!(content(&space, "a"), "1");
        assert_eq!(journal(), 1 + round, "the file is not written to again");
        // Even if the sync failed after the bytes were written.
        let failed =
            fs::read_dir(live.join("journal")).unwrap().map(|file| file.unwrap().path()).max().unwrap();
        forge(&failed);
    }
    save(&space, &[("b", b"2")]).await;
    assert_eq!(journal(), 3);
    copy(&live, &crashed);
    let again = Arc::new(once_free(&crashed, OPTIONS));
    let space = again.find("default", "c").await.unwrap().unwrap();
    assert_eq!((content(&space, "a"), content(&space, "b")), ("1".into(), "2".into()));
}

#[tokio::test]
async fn a_store_that_cannot_be_written_reports_it_until_it_can() {
    let root = TempDir::new().unwrap();
    let store = Arc::new(once_free(root.path(), OPTIONS));
    put(&store, "a", b"1").await.unwrap();
    assert!(store.is_writable());
    store.shared.journal.hooks.broken.store(true, Ordering::Relaxed);
    let error = put(&store, "b", b"2").await.unwrap_err();
    let said = error.to_string();
    assert!(matches!(error, StoreError::Unwritable(_)), "{said}");
    assert_eq!(
        said,
        "the store cannot be written at present (Input/output error (os error 5)); nothing of this call was \
         saved"
    );
    assert!(!store.is_writable());
    // That a file can be made does not mean that it can be synced.
    writable::look(&store.shared);
    assert!(!store.is_writable());
    assert_eq!(content(&store.space("default", "c").await.unwrap(), "a"), "1", "reading goes on");

    store.shared.journal.hooks.broken.store(false, Ordering::Relaxed);
    writable::look(&store.shared);
    assert!(store.is_writable());
    put(&store, "b", b"2").await.unwrap();
    drop(store); // this also ends its own attempts
    assert_eq!(fs::read_dir(root.path().join("tmp")).unwrap().count(), 0, "the attempts leave nothing");
}

/// The daemon notices a read-only file system before anybody saves anything, even if it is mounted over the
/// store.
#[tokio::test]
async fn a_read_only_file_system_is_noticed_and_so_is_its_end() {
    let disk = Disk::new("size=40m");
    let root = disk.path().join("store");
    let store = Arc::new(once_free(&root, OPTIONS));
    put(&store, "a", b"1").await.unwrap();
    writable::look(&store.shared);
    assert!(store.is_writable());
    let over = ReadOnly::over(&root);
    writable::look(&store.shared);
    assert!(!store.is_writable());
    // Small contents still reach the journal, whose file is open. Nothing else does until they have their
    // place, and nobody is told that it was saved.
    assert!(matches!(put(&store, "small", b"2").await, Err(StoreError::Pending(_))));
    for content in [vec![3; 2 << 20], vec![3; 9]] {
        let refused = put(&store, "later", &content).await.unwrap_err();
        assert!(matches!(refused, StoreError::Unwritable(_)), "{refused}");
    }
    assert!(!store.is_writable());
    drop(over);
    writable::look(&store.shared);
    assert!(store.is_writable());
    let space = store.space("default", "c").await.unwrap();
    assert!(content(&space, "small") == "2" && space.manifest().get(&path("later")).is_none());
    put(&store, "later", &vec![3; 2 << 20]).await.unwrap();
}

/// A directory that is mounted over itself, read-only, until this is dropped.
struct ReadOnly(std::path::PathBuf);

impl ReadOnly {
    fn over(path: &Path) -> Self {
        let mount =
            |options: &[&str]| Command::new("mount").args(options).arg(path).status().unwrap().success();
        assert!(mount(&["--bind", path.to_str().unwrap()]), "cannot mount: run this as root");
        let over = Self(path.to_owned());
        assert!(mount(&["-o", "remount,bind,ro"]));
        over
    }
}

impl Drop for ReadOnly {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// Writes a complete record that removes `a` behind the valid length of a journal file.
fn forge(file: &Path) {
    let record = record::JournalRecord {
        owner: "default".into(),
        session: "c".into(),
        ops: vec![record::JournalOp::Remove(path("a"))],
        blob: Vec::new(),
    };
    let (head, at) = (record.head().unwrap(), fs::metadata(file).unwrap().len());
    let seq = journal::number(file.file_name().unwrap().to_str().unwrap()).unwrap();
    let mut out = OpenOptions::new().append(true).open(file).unwrap();
    out.write_all(&[&record::frame(seq, at, &head, &[])[..], &head].concat()).unwrap();
}

#[tokio::test]
async fn waiting_commits_share_a_sync() {
    let root = TempDir::new().unwrap();
    let store = Arc::new(once_free(root.path(), OPTIONS));
    let journal = &store.shared.journal;
    let (held, syncing) = std::sync::mpsc::channel();
    let (release, released) = std::sync::mpsc::channel::<()>();
    let shared = store.shared.clone();
    let holder = std::thread::spawn(move || {
        let _hold = shared.journal.hooks.hold.lock().unwrap();
        held.send(()).unwrap();
        released.recv().unwrap();
    });
    syncing.recv().unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    for n in 0..40 {
        let space = store.space("default", &format!("s{n}")).await.unwrap();
        tasks.spawn(async move { save(&space, &[("a", format!("{n}").as_bytes())]).await });
    }
    while journal.hooks.asked.load(Ordering::Relaxed) < 40 {
        tokio::task::yield_now().await;
    }
    assert_eq!(journal.counts.records.load(Ordering::Relaxed), 0, "nobody is told before the sync");
    release.send(()).unwrap();
    tasks.join_all().await;
    holder.join().unwrap();
    let (syncs, records) = (&journal.counts.syncs, &journal.counts.records);
    // The first commit syncs for itself and the commits that came with it; the next one for all others.
    assert_eq!((syncs.load(Ordering::Relaxed), records.load(Ordering::Relaxed)), (2, 40));
    for n in 0..40 {
        assert_eq!(content(&store.space("default", &format!("s{n}")).await.unwrap(), "a"), n.to_string());
    }
}
