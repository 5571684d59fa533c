//! What is removed from a drop folder and from its session, and above all what is not.

use super::*;

#[tokio::test]
async fn a_session_of_the_same_id_is_another_and_the_host_s_only_copy_stays() {
    for is_in_memory in [true, false] {
        let mut stand = Stand::new().await;
        stand.put("orig.csv", "the only one");
        stand.take().await.unwrap();
        stand.give().await;
        stand.close(true).await;
        if !is_in_memory {
            stand.restart();
        }
        // Another call stores something first.
        stand.change("uploaded", Some("new")).await;
        stand.take().await.unwrap();
        stand.give().await;
        let both = pairs(&[("orig.csv", "the only one"), ("uploaded", "new")]);
        assert_eq!((stand.there(), stand.saved().await), (both.clone(), both), "{is_in_memory}");
    }
}

#[tokio::test]
async fn a_run_that_puts_files_there_while_its_session_is_deleted_removes_nothing() {
    let stand = Stand::new().await;
    stand.put("a", "the only one");
    stand.take().await.unwrap();
    let (of, slot) = (stand.session().await, stand.slot());
    stand.close(true).await;
    let root = OwnedFd::from(fs::File::open(&stand.files).unwrap());
    give::give_all(&slot, &of, &root, 50).unwrap();
    assert_eq!(stand.there(), pairs(&[("a", "the only one")]));
}

#[tokio::test]
async fn with_a_session_go_the_copies_of_what_its_runs_made_and_nothing_else() {
    let stand = Stand::new().await;
    stand.put("a.csv", "of the host");
    stand.put("b.csv", "of the host too");
    stand.take().await.unwrap();
    for (name, content) in [("made", "m"), ("in/made", "m"), ("own/made", "m"), ("b.csv", "changed by a run")]
    {
        stand.change(name, Some(content)).await;
    }
    stand.give().await;
    stand.put("in/more", "of the host");
    stand.put("made", "changed by the host");
    let kept = pairs(&[
        ("a.csv", "of the host"),
        ("b.csv", "changed by a run"),
        ("in/more", "of the host"),
        ("made", "changed by the host"),
    ]);
    stand.close(true).await;
    assert_eq!(stand.there(), kept);
    assert!(!stand.files.join("own").exists(), "nor does an empty folder stay");
    stand.take().await.unwrap();
    assert_eq!(stand.saved().await, kept);
    // Without that, all stay on both sides.
    stand.change("again", Some("x")).await;
    stand.give().await;
    stand.close(false).await;
    assert!(stand.files.join("again").exists());
}

#[tokio::test]
async fn a_file_that_becomes_something_else_is_not_removed_from_the_session() {
    let stand = Stand::new().await;
    for name in ["hard", "link", "folder", "fifo", "in/a"] {
        stand.put(name, name);
    }
    stand.take().await.unwrap();
    let before = stand.saved().await;
    fs::hard_link(stand.files.join("hard"), stand.dir.path().join("second")).unwrap();
    for name in ["link", "folder", "fifo"] {
        fs::remove_file(stand.files.join(name)).unwrap();
    }
    symlink("hard", stand.files.join("link")).unwrap();
    fs::create_dir(stand.files.join("folder")).unwrap();
    let fifo = stand.files.join("fifo");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0)
        .unwrap();
    fs::rename(stand.files.join("in"), stand.dir.path().join("in")).unwrap();
    symlink(stand.dir.path().join("in"), stand.files.join("in")).unwrap();
    stand.take().await.unwrap();
    assert_eq!(stand.saved().await, before);
    stand.give().await;
    assert!(fs::symlink_metadata(stand.files.join("in")).unwrap().is_symlink());
    // What is really gone is removed.
    fs::remove_file(stand.files.join("hard")).unwrap();
    stand.take().await.unwrap();
    assert_eq!(stand.saved().await.len(), before.len() - 1);
}

#[tokio::test]
async fn a_folder_that_is_suddenly_another_one_removes_nothing() {
    let mut stand = Stand::new().await;
    stand.put("a", "a");
    stand.take().await.unwrap();
    stand.change("b", Some("b")).await;
    stand.give().await;
    let aside = stand.dir.path().join("aside");
    fs::rename(&stand.files, &aside).unwrap();
    fs::create_dir(&stand.files).unwrap();
    stand.restart();
    stand.take().await.unwrap();
    let both = pairs(&[("a", "a"), ("b", "b")]);
    assert_eq!(stand.saved().await, both);
    stand.change("a", Some("newer")).await;
    stand.give().await;
    let newer = pairs(&[("a", "newer"), ("b", "b")]);
    assert_eq!(stand.there(), newer, "the new folder gets them");
    // The first one is back, with its old copy.
    fs::remove_dir_all(&stand.files).unwrap();
    fs::rename(&aside, &stand.files).unwrap();
    stand.restart();
    stand.take().await.unwrap();
    stand.give().await;
    assert_eq!((stand.there(), stand.saved().await), (newer.clone(), newer));
}
