//! What is taken of an engine's archive, and what is not.

use std::collections::BTreeMap;

use futures_util::StreamExt;
use paddock_proto::RelPath;
use tokio_tar::{EntryType, Header};

use super::*;
use crate::pool::{DataPlace, DiskBound};
use crate::session::port::fake::FakeContainer;
use crate::session::test_world::{QUOTA, save, saved, store};

const BOUNDS: DataBounds = DataBounds { bytes: QUOTA.bytes, entries: QUOTA.entries };

fn member(kind: EntryType, name: &str, target: Option<&str>, seconds: u64, content: &[u8]) -> Vec<u8> {
    let mut header = Header::new_ustar();
    header.set_entry_type(kind);
    header.set_path(name).unwrap();
    if let Some(target) = target {
        header.set_link_name(target).unwrap();
    }
    header.set_mode(0o644);
    header.set_mtime(seconds);
    header.set_size(content.len() as u64);
    header.set_cksum();
    let padding = vec![0; content.len().next_multiple_of(512) - content.len()];
    [header.as_bytes().as_slice(), content, &padding].concat()
}

fn of_file(name: &str, seconds: u64, content: &[u8]) -> Vec<u8> {
    member(EntryType::Regular, name, None, seconds, content)
}

fn whole(members: &[Vec<u8>]) -> Vec<u8> {
    [members.concat(), vec![0; 1024]].concat()
}

/// The archive of a `/data` with these files, made by the store's own packer.
pub(in crate::session) async fn archive(files: &[(&str, &str)]) -> Vec<u8> {
    let (_dir, store) = store();
    let space = store.space("other", "session").await.unwrap();
    for (path, content) in files {
        save(&space, path, content.as_bytes()).await;
    }
    let all = space.manifest().lacking(&BTreeMap::new()).put.into_iter().map(|stored| stored.entry).collect();
    let pieces = crate::store::tar::pack(space, all, crate::store::tar::ArchiveRecipient::Container(1000));
    pieces.map(|piece| piece.unwrap().to_vec()).collect::<Vec<_>>().await.concat()
}

struct Salvaged {
    space: Arc<Space>,
    _dir: tempfile::TempDir,
    container: FakeContainer,
    done: Result<Option<Collected>, StoreError>,
}

impl Salvaged {
    fn changed(&self) -> Vec<&[u8]> {
        let done = self.done.as_ref().unwrap().as_ref().unwrap();
        done.changed.iter().map(|entry| entry.path.as_bytes()).collect()
    }

    fn is_partial(&self) -> bool {
        self.done.as_ref().unwrap().as_ref().unwrap().is_partial
    }

    fn not_saved(&self) -> Vec<(&[u8], &'static str)> {
        let done = self.done.as_ref().unwrap().as_ref().unwrap();
        done.not_saved.iter().map(|(path, why)| (&path[..], *why)).collect()
    }
}

/// What is salvaged from this archive, for a session that has the file `old`, written at second 1.
async fn salvaged(
    archive: Option<Vec<u8>>,
    bounds: DataBounds,
    change: impl FnOnce(&FakeContainer),
) -> Salvaged {
    let (dir, store) = store();
    let space = store.space("o", "s").await.unwrap();
    save(&space, "old", b"old").await;
    let container = FakeContainer::new("c1");
    container.engine().archive = archive;
    change(&container);
    let lease = container.lease().await;
    let done = salvage(&space, &*lease, bounds).await;
    Salvaged { space, _dir: dir, container, done }
}

#[tokio::test(start_paused = true)]
async fn what_differs_is_saved_and_what_the_archive_lacks_is_not_removed() {
    let archive = archive(&[("new", "1"), ("dir/deep", "2")]).await;
    let done = salvaged(Some(archive), BOUNDS, |_| {}).await;
    assert_eq!(done.changed(), [&b"dir/deep"[..], b"new"]);
    assert_eq!(saved(&done.space, "dir/deep").as_deref(), Some("2"));
    assert_eq!(saved(&done.space, "old").as_deref(), Some("old"));
}

#[tokio::test(start_paused = true)]
async fn a_file_of_the_same_second_and_size_is_compared_by_its_content() {
    let cases: [(&[u8], u64, bool); 3] = [(b"old", 1, false), (b"new", 1, true), (b"old", 2, true)];
    for (content, seconds, is_changed) in cases {
        let done = salvaged(Some(whole(&[of_file("old", seconds, content)])), BOUNDS, |_| {}).await;
        assert_eq!(!done.changed().is_empty(), is_changed, "{seconds}");
        assert_eq!(saved(&done.space, "old").unwrap().as_bytes(), content);
    }
}

#[tokio::test(start_paused = true)]
async fn an_archive_that_ends_early_gives_what_was_whole() {
    let archive = whole(&[of_file("first", 1, b"1"), of_file("second", 1, &[b'2'; 5000])]);
    for (end, not_saved) in [(512 + 512 + 512 + 3000, 1), (512 + 512 + 100, 0)] {
        let done = salvaged(Some(archive[..end].to_vec()), BOUNDS, |_| {}).await;
        assert_eq!((done.changed(), done.not_saved().len()), (vec![&b"first"[..]], not_saved), "{end}");
        assert_eq!(saved(&done.space, "second"), None);
        assert!(done.is_partial(), "{end}");
    }
}

#[tokio::test(start_paused = true)]
async fn of_a_container_that_ends_while_it_is_read_only_what_came_is_said_to_be_saved() {
    let dies = |container: &FakeContainer| container.engine().dies_when_read = true;
    let done = salvaged(Some(archive(&[("new", "1")]).await), BOUNDS, dies).await;
    assert_eq!((done.changed(), done.is_partial()), (vec![&b"new"[..]], true));
    let done = salvaged(Some(whole(&[])), BOUNDS, dies).await;
    assert!(done.done.unwrap().is_none(), "nothing came, and nobody knows what there was");
    let done = salvaged(Some(whole(&[])), BOUNDS, |_| {}).await;
    assert_eq!((done.changed().len(), done.is_partial()), (0, false), "it runs: there was nothing to save");
    // A workspace on a disk outlives its container.
    let (_dir, store) = store();
    let space = store.space("o", "s").await.unwrap();
    let container =
        FakeContainer::scripted("c1", |script| script.place = DataPlace::Disk(DiskBound::Watched));
    container.engine().archive = Some(whole(&[]));
    dies(&container);
    let done = salvage(&space, &*container.lease().await, BOUNDS).await.unwrap().unwrap();
    assert!(!done.is_partial);
}

#[tokio::test(start_paused = true)]
async fn another_name_of_a_file_becomes_a_file_and_a_symbolic_link_is_kept() {
    let large = vec![b'1'; COPY + 1];
    let archive = whole(&[
        of_file("file", 1, &large),
        member(EntryType::Link, "hard", Some("file"), 1, b""),
        member(EntryType::Link, "of/nothing", Some("missing"), 1, b""),
        member(EntryType::Symlink, "soft", Some("file"), 1, b""),
    ]);
    let done = salvaged(Some(archive), BOUNDS, |_| {}).await;
    assert_eq!(done.changed(), [&b"file"[..], b"hard"]);
    assert_eq!(saved(&done.space, "hard").map(String::into_bytes), Some(large));
    assert_eq!(done.not_saved(), [(&b"of/nothing"[..], "it is another name of a file that is not saved")]);
    let soft = RelPath::new("soft").unwrap();
    assert!(matches!(done.space.manifest().get(&soft).unwrap().entry.kind, EntryKind::Link(_)));
}

#[tokio::test(start_paused = true)]
async fn a_workspace_on_a_disk_outlives_its_container_but_for_what_git_ignores() {
    let (_dir, store) = store();
    let space = store.space("o", "s").await.unwrap();
    save(&space, "old.log", b"old").await;
    let container =
        FakeContainer::scripted("c1", |script| script.place = DataPlace::Disk(DiskBound::Watched));
    let dir = |name: &str| member(EntryType::Directory, name, None, 1, b"");
    container.engine().archive = Some(whole(&[
        of_file(".gitignore", 1, b"deps/\n*.log\n"),
        dir("deps/"),
        of_file("deps/a", 1, b"1"),
        of_file("new.log", 1, b"1"),
        of_file("old.log", 9, b"new"),
        of_file("src", 1, b"1"),
    ]));
    container.engine().status = Some(ContainerStatus::Exited);
    let done = salvage(&space, &*container.lease().await, BOUNDS).await.unwrap().unwrap();
    let changed: Vec<_> = done.changed.iter().map(|entry| entry.path.to_text()).collect();
    assert_eq!(changed, [".gitignore", "old.log", "src"]);
    assert_eq!(saved(&space, "old.log").as_deref(), Some("new"), "it was saved before");
    assert!(saved(&space, "deps/a").is_none() && done.not_saved.is_empty());
    // What is in memory is gone.
    let container = FakeContainer::new("c2");
    container.engine().status = Some(ContainerStatus::Exited);
    assert!(salvage(&space, &*container.lease().await, BOUNDS).await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn no_more_is_taken_than_the_bounds_say() {
    let archive = whole(&[of_file("small", 1, b"1"), of_file("large", 1, &[b'2'; 5000])]);
    let done = salvaged(Some(archive.clone()), DataBounds { bytes: 4000, ..BOUNDS }, |_| {}).await;
    assert_eq!((done.changed(), saved(&done.space, "large")), (vec![&b"small"[..]], None));
    let many: Vec<_> = (0..7).map(|n| of_file(&n.to_string(), 1, b"1")).collect();
    let done = salvaged(Some(whole(&many)), DataBounds { entries: 2, ..BOUNDS }, |_| {}).await;
    assert_eq!(done.changed().len(), 6, "three times what there may be");
}

#[tokio::test(start_paused = true)]
async fn a_container_is_paused_first_and_read_also_if_it_cannot_be() {
    let archive = archive(&[("new", "1")]).await;
    let done =
        salvaged(Some(archive.clone()), BOUNDS, |container| container.engine().can_pause = false).await;
    assert_eq!(
        (done.changed(), &done.container.engine().calls[..]),
        (vec![&b"new"[..]], &["pause", "pack"][..])
    );
    let paused = |container: &FakeContainer| container.engine().status = Some(ContainerStatus::Paused);
    let done = salvaged(Some(archive), BOUNDS, paused).await;
    assert_eq!((done.changed(), &done.container.engine().calls[..]), (vec![&b"new"[..]], &["pack"][..]));
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_does_not_answer_gives_nothing_and_takes_nothing_away() {
    let none = salvaged(None, BOUNDS, |_| {}).await;
    assert!(none.done.unwrap().is_none());
    let gone = salvaged(Some(Vec::new()), BOUNDS, |container| container.engine().status = None).await;
    assert!(gone.done.unwrap().is_none());
    assert_eq!(saved(&gone.space, "old").as_deref(), Some("old"));
}
