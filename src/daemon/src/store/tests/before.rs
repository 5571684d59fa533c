//! What is kept of a session's files for the diff of a task.

use std::time::{Duration, Instant};

use super::*;

const ID: &str = "11111111-2222-4333-8444-555555555555";

fn kept(files: &ExecutionFiles, at: &str) -> Option<String> {
    let mut text = String::new();
    files.before().unwrap()?.open(&path(at)).ok()?.read_to_string(&mut text).unwrap();
    Some(text)
}

/// Saves a change of every kind: files small and large, one where a directory was, one removed.
async fn change(space: &Arc<Space>, large: &[u8]) {
    save(space, &[("a", b"new"), ("large", large), ("fresh", b"fresh")]).await;
    let mut batch = Batch::new(space.clone());
    batch.remove(path("gone"));
    batch.remove(path("dir"));
    batch.file(file("dir"));
    batch.write(b"a file").await.unwrap();
    batch.keep();
    batch.commit().await.unwrap();
}

#[tokio::test]
async fn what_is_kept_stays_as_it_was_through_every_change_and_a_restart() {
    let root = TempDir::new().unwrap();
    let large = "old ".repeat(100_000);
    {
        let store = Arc::new(once_free(root.path(), OPTIONS));
        let space = store.space("default", "s").await.unwrap();
        let first: [(&str, &[u8]); 5] = [
            ("a", b"old"),
            ("large", large.as_bytes()),
            ("gone", b"gone"),
            ("dir/x", b"x"),
            (".git/y", b"y"),
        ];
        save(&space, &first).await;
        let (files, used) = (space.execution_files(ID), store.used().0);
        let keeping = blocking(move || {
            files.keep_before(|path| !path.as_bytes().starts_with(b".git"))?;
            Ok(files)
        });
        let files = keeping.await.unwrap();
        assert_eq!(store.used().0, used, "it is not counted twice");
        change(&space, "new ".repeat(100_000).as_bytes()).await;
        for (at, content) in [("a", "old"), ("large", &large), ("gone", "gone"), ("dir/x", "x")] {
            assert_eq!(kept(&files, at).as_deref(), Some(content), "{at}");
        }
        assert_eq!((kept(&files, "fresh"), kept(&files, ".git/y"), kept(&files, "dir")), (None, None, None));
        assert_eq!(content(&space, "a"), "new");
        assert!(space.executions().is_empty(), "what is kept is no execution");
        // No checkpoint comes before the next start, so that start replays every change.
    }
    let store = Arc::new(once_free(root.path(), OPTIONS));
    let space = store.space("default", "s").await.unwrap();
    let files = space.execution_files(ID);
    for (at, content) in [("a", "old"), ("large", &large), ("gone", "gone"), ("dir/x", "x")] {
        assert_eq!(kept(&files, at).as_deref(), Some(content), "{at}");
    }
    files.forget_before();
    assert!(files.before().unwrap().is_none());
    assert_eq!(fs::read_dir(root.path().join("tmp")).unwrap().count(), 0);
    assert!(files.before().unwrap().is_none(), "a second time does nothing");
    files.forget_before();
}

/// A small file that is alone is written over in place; one that is kept must not be.
#[tokio::test]
async fn a_kept_file_is_not_written_over() {
    let root = TempDir::new().unwrap();
    let store = Arc::new(once_free(root.path(), OPTIONS));
    let space = store.space("default", "s").await.unwrap();
    let inode = |at: &str| space.open(&path(at)).unwrap().metadata().unwrap().ino();
    save(&space, &[("a", b"one")]).await;
    // The kernel's clock moves in steps, and a file of this very step is not written over.
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        let before = inode("a");
        save(&space, &[("a", b"one")]).await;
        if inode("a") == before {
            break;
        }
        assert!(Instant::now() < until, "this test needs a store that writes over files");
    }
    let files = space.execution_files(ID);
    let files = blocking(move || files.keep_before(|_| true).map(|()| files)).await.unwrap();
    let before = inode("a");
    for round in 0..100 {
        save(&space, &[("a", format!("{round}").as_bytes())]).await;
    }
    assert_ne!(inode("a"), before);
    assert_eq!(kept(&files, "a").as_deref(), Some("one"));
}

#[tokio::test]
async fn a_diff_counts_for_the_stores_limit_and_goes_with_its_execution() {
    let root = TempDir::new().unwrap();
    let store = Arc::new(once_free(root.path(), OPTIONS));
    let space = store.space("default", "s").await.unwrap();
    save(&space, &[("a", b"1")]).await;
    let files = space.execution_files(ID);
    drop(files.append().unwrap());
    files.write_note(b"{}").unwrap();
    let used = store.used().0.bytes;
    files.write_diff(&[b'x'; 5000]).unwrap();
    files.write_diff(&[b'x'; 3000]).unwrap();
    assert_eq!(store.used().0.bytes, used + 3000);
    let read = |id: &str| store.open_file("default", "s", SavedFile::Diff(id)).map(|(_, about)| about.len());
    assert_eq!(read(ID).unwrap(), 3000);
    assert!(read("../session").is_err() && read("other").is_err());
    files.remove();
    assert_eq!(store.used().0.bytes, used);
    assert!(read(ID).is_err());

    let full = Options { total: Amount { bytes: 8192, ..TOTAL }, ..OPTIONS };
    let root = TempDir::new().unwrap();
    let store = Arc::new(once_free(root.path(), full));
    let space = store.space("default", "s").await.unwrap();
    save(&space, &[("a", b"1")]).await;
    let files = space.execution_files(ID);
    drop(files.append().unwrap());
    assert!(matches!(files.write_diff(&[b'x'; 8000]), Err(StoreError::Quota { .. })));
    files.write_diff(&[b'x'; 100]).unwrap();
}

#[tokio::test]
async fn nothing_is_kept_for_a_session_that_was_removed() {
    let root = TempDir::new().unwrap();
    let store = Arc::new(once_free(root.path(), OPTIONS));
    let space = store.space("default", "s").await.unwrap();
    save(&space, &[("a", b"1")]).await;
    let files = space.execution_files(ID);
    let files = blocking(move || files.keep_before(|_| true).map(|()| files)).await.unwrap();
    assert!(store.forget("default", "s").await.unwrap());
    assert!(matches!(files.before(), Ok(None)));
    let again = blocking(move || Ok((files.keep_before(|_| true), files.write_diff(b"x")))).await.unwrap();
    assert!(matches!(again, (Err(StoreError::Gone), Err(StoreError::Gone))));
}
