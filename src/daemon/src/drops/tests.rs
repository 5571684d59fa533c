//! A drop folder and its session follow each other, and nothing that lies there leads elsewhere.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use super::*;
use crate::session::TurnKind;
use crate::session::test_world::World;

struct Stand {
    world: World,
    drops: Drops,
    /// The folder of the session.
    files: PathBuf,
    dir: tempfile::TempDir,
}

impl Stand {
    async fn new() -> Self {
        let world = World::without_containers().await;
        let dir = tempfile::tempdir().unwrap();
        let (owner, id) = (world.session.owner.clone(), world.session.id.as_str().to_owned());
        let files = dir.path().join("drops").join(id).join("files");
        fs::create_dir_all(&files).unwrap();
        let drops = Self::drops(dir.path(), &owner);
        Self { world, drops, files, dir }
    }

    fn drops(dir: &Path, owner: &str) -> Drops {
        let roots = HashMap::from([(owner.to_owned(), dir.join("drops"))]);
        Drops::new(roots, 50)
    }

    /// The next daemon, which knows only what is on disk.
    fn restart(&mut self) {
        self.drops = Self::drops(self.dir.path(), &self.world.session.owner);
    }

    async fn take(&self) -> Result<(), DropError> {
        let (owner, id) = (&self.world.session.owner, &self.world.session.id);
        let is_free = |manifest: &_, path: &_| crate::tools::check_free(manifest, path).is_ok();
        self.drops.take(&self.world.sessions, owner, id, is_free).await
    }

    async fn give(&self) {
        self.drops.give(&self.world.sessions, &self.world.session.owner, &self.world.session.id).await;
    }

    /// What a run of the session would have done.
    async fn change(&self, path: &str, content: Option<&str>) {
        let session = self.session().await;
        let path = paddock_proto::RelPath::from_user(path).unwrap();
        let mut batch = crate::store::Batch::new(session.space.clone());
        match content {
            None => batch.remove(path),
            Some(content) => {
                let kind = paddock_proto::message::EntryKind::File(0);
                let mtime_ns = crate::tools::now_ns();
                batch.file(paddock_proto::message::Entry { path, kind, mode: 0o644, mtime_ns });
                batch.write(content.as_bytes()).await.unwrap();
                batch.keep();
            }
        }
        batch.commit().await.unwrap();
    }

    /// As `close_session` does, with or without `delete_files`.
    async fn close(&self, delete: bool) {
        let (owner, id) = (&self.world.session.owner, &self.world.session.id);
        let copies = self.drops.copies(&self.world.sessions, owner, id).await.filter(|_| delete);
        assert!(self.world.sessions.close(owner, id, delete).await.unwrap());
        if let Some(copies) = copies {
            self.drops.remove(owner, id, copies).await;
        }
    }

    fn slot(&self) -> Arc<Slot> {
        self.drops.slot(&self.world.session.owner, &self.world.session.id)
    }

    async fn session(&self) -> Arc<Session> {
        let (owner, id) = (&self.world.session.owner, &self.world.session.id);
        self.world.sessions.get(owner, id).await.unwrap()
    }

    fn put(&self, name: &str, content: &str) {
        // Under a name that is left alone, then in its place, as programs should.
        let whole = self.files.join(name);
        fs::create_dir_all(whole.parent().unwrap()).unwrap();
        let part = self.files.join(".writing");
        fs::write(&part, content).unwrap();
        fs::rename(part, whole).unwrap();
    }

    async fn saved(&self) -> Vec<(String, String)> {
        let session = self.session().await;
        let names: Vec<_> = session.space.manifest().files().map(|(entry, _)| entry.path.clone()).collect();
        names
            .into_iter()
            .map(|path| {
                let mut text = String::new();
                io::Read::read_to_string(&mut session.space.open(&path).unwrap(), &mut text).unwrap();
                (path.to_text().into_owned(), text)
            })
            .collect()
    }

    fn there(&self) -> Vec<(String, String)> {
        let mut all = Vec::new();
        let mut waiting = vec![self.files.clone()];
        while let Some(dir) = waiting.pop() {
            for entry in fs::read_dir(dir).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    waiting.push(path);
                } else {
                    let name = path.strip_prefix(&self.files).unwrap().to_str().unwrap().to_owned();
                    all.push((name, fs::read_to_string(path).unwrap()));
                }
            }
        }
        all.sort();
        all
    }
}

fn pairs(all: &[(&str, &str)]) -> Vec<(String, String)> {
    all.iter().map(|(name, content)| ((*name).to_owned(), (*content).to_owned())).collect()
}

#[tokio::test]
async fn what_is_dropped_is_in_the_session_and_what_it_makes_is_in_the_folder() {
    let stand = Stand::new().await;
    stand.put("a.csv", "one");
    stand.put("in/b.csv", "two");
    stand.take().await.unwrap();
    assert_eq!(stand.saved().await, pairs(&[("a.csv", "one"), ("in/b.csv", "two")]));

    stand.change("a.csv", Some("changed by the run")).await;
    stand.change("out/c.txt", Some("made")).await;
    stand.change("in/b.csv", None).await;
    stand.give().await;
    let both = pairs(&[("a.csv", "changed by the run"), ("out/c.txt", "made")]);
    assert_eq!((stand.there(), stand.saved().await), (both.clone(), both.clone()));
    let made = fs::metadata(stand.files.join("out/c.txt")).unwrap();
    let folder = fs::metadata(&stand.files).unwrap();
    assert_eq!((made.uid(), made.mode() & 0o777), (folder.uid(), 0o644));

    // Nothing changed: nothing moves.
    stand.take().await.unwrap();
    stand.give().await;
    assert_eq!((stand.there(), stand.saved().await), (both.clone(), both));
    // What the host removes is removed, and what it replaces is replaced.
    fs::remove_file(stand.files.join("out/c.txt")).unwrap();
    stand.put("a.csv", "by the host");
    stand.take().await.unwrap();
    assert_eq!(stand.saved().await, pairs(&[("a.csv", "by the host")]));
}

#[tokio::test]
async fn the_next_daemon_does_not_take_an_old_copy_for_news() {
    let mut stand = Stand::new().await;
    stand.put("a", "old");
    stand.take().await.unwrap();
    // The daemon dies after the run was saved, and before its file is put into the folder.
    stand.change("a", Some("new")).await;
    stand.restart();
    stand.take().await.unwrap();
    assert_eq!(stand.saved().await, pairs(&[("a", "new")]));
    stand.give().await;
    assert_eq!(stand.there(), pairs(&[("a", "new")]));
    // Without a record, the folder counts; it has the same.
    let space = stand.session().await.space.clone();
    tokio::task::spawn_blocking(move || space.write_drops(b"").unwrap()).await.unwrap();
    stand.restart();
    stand.take().await.unwrap();
    assert_eq!(stand.saved().await, pairs(&[("a", "new")]));
}

#[tokio::test]
async fn where_both_changed_a_file_the_host_s_counts_and_none_is_put_over_it() {
    let stand = Stand::new().await;
    stand.put("a", "first");
    stand.take().await.unwrap();
    stand.change("a", Some("of the run")).await;
    stand.put("a", "of the host meanwhile");
    stand.give().await;
    assert_eq!(stand.there(), pairs(&[("a", "of the host meanwhile")]));
    stand.take().await.unwrap();
    assert_eq!(stand.saved().await, pairs(&[("a", "of the host meanwhile")]));
}

#[tokio::test]
async fn nothing_but_whole_regular_files_is_taken_and_no_link_is_followed() {
    let stand = Stand::new().await;
    let outside = stand.dir.path().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("secret"), "secret").unwrap();
    symlink(outside.join("secret"), stand.files.join("link")).unwrap();
    symlink(&outside, stand.files.join("folder")).unwrap();
    fs::hard_link(outside.join("secret"), stand.files.join("hard")).unwrap();
    let fifo = stand.files.join("fifo");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0)
        .unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(stand.files.join("socket")).unwrap();
    for name in [".hidden", "a.tmp", "b.part", "c~"] {
        fs::write(stand.files.join(name), "not whole").unwrap();
    }
    stand.put("good", "good");
    stand.take().await.unwrap();
    assert_eq!(stand.saved().await, pairs(&[("good", "good")]));

    // A program chooses a name that leads out of the folder by a link: nothing is written there.
    stand.change("folder/made", Some("by a program")).await;
    stand.change("good", Some("changed")).await;
    stand.change(".hidden", Some("of the session")).await;
    stand.give().await;
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 1);
    assert_eq!(fs::read_to_string(outside.join("secret")).unwrap(), "secret");
    assert_eq!(fs::read_to_string(stand.files.join("good")).unwrap(), "changed");
    assert_eq!(fs::read_to_string(stand.files.join(".hidden")).unwrap(), "not whole");
    // A link of the host stays where it is, and is not written through.
    stand.change("link", Some("by a program")).await;
    stand.give().await;
    assert!(fs::symlink_metadata(stand.files.join("link")).unwrap().is_symlink());
    assert_eq!(fs::read_to_string(outside.join("secret")).unwrap(), "secret");
}

#[tokio::test]
async fn too_many_or_too_large_takes_nothing_and_says_so() {
    let stand = Stand::new().await;
    for n in 0..51 {
        stand.put(&format!("{n}"), "");
    }
    assert!(matches!(stand.take().await, Err(DropError::TooMany(50))));
    assert_eq!(stand.saved().await, []);
    for n in 1..51 {
        fs::remove_file(stand.files.join(n.to_string())).unwrap();
    }
    let large = fs::File::create(stand.files.join("large")).unwrap();
    large.set_len(1 << 40).unwrap();
    assert!(matches!(stand.take().await, Err(DropError::Store(_))));
    assert_eq!(stand.saved().await, [], "all or nothing");
    fs::remove_file(stand.files.join("large")).unwrap();
    stand.take().await.unwrap();
    assert_eq!(stand.saved().await, pairs(&[("0", "")]));
}

#[tokio::test]
async fn a_file_that_would_replace_a_folder_of_the_session_is_left_out() {
    let stand = Stand::new().await;
    stand.change("a/b", Some("of the session")).await;
    stand.put("a", "a file");
    stand.put("c", "good");
    stand.take().await.unwrap();
    assert_eq!(stand.saved().await, pairs(&[("a/b", "of the session"), ("c", "good")]));
    stand.give().await;
    assert_eq!(stand.there(), pairs(&[("a", "a file"), ("c", "good")]));
}

#[tokio::test]
async fn files_do_not_change_under_a_program() {
    let stand = Stand::new().await;
    let turn = stand.world.enter(TurnKind::Code("python".into())).await.unwrap();
    stand.put("a", "waits");
    stand.take().await.unwrap();
    assert_eq!(stand.saved().await, []);
    drop(turn);
    stand.take().await.unwrap();
    assert_eq!(stand.saved().await, pairs(&[("a", "waits")]));
}

#[tokio::test]
async fn a_call_takes_when_its_turn_comes_and_not_beside_another() {
    let stand = Stand::new().await;
    stand.put("a", "a");
    let python = TurnKind::Command("python".into());
    let first = stand.world.enter(python.clone()).await.unwrap();
    let second = stand.world.enter(python.clone()).await.unwrap();
    stand.drops.take_in(&second, |_, _| true).await.unwrap();
    assert_eq!(stand.saved().await, []);
    drop(first);
    stand.drops.take_in(&second, |_, _| true).await.unwrap();
    assert_eq!(stand.saved().await, pairs(&[("a", "a")]));
    // Nobody comes in until it lets them.
    let (owner, id) = (&stand.world.session.owner, &stand.world.session.id);
    assert!(stand.world.sessions.try_enter(owner, id, python.clone()).await.is_err());
    let _second = second.for_program("python");
    stand.world.sessions.try_enter(owner, id, python).await.unwrap();
}

#[tokio::test]
async fn what_a_program_makes_refuses_no_run() {
    let stand = Stand::new().await;
    stand.put("host", "h");
    stand.take().await.unwrap();
    // Folders with one file each, again and again under other names: 50 entries are the most.
    for round in 0..3 {
        for n in 0..20 {
            stand.change(&format!("{round}-{n}/f"), Some("x")).await;
        }
        stand.give().await;
        stand.take().await.unwrap();
        for n in 0..20 {
            stand.change(&format!("{round}-{n}/f"), None).await;
        }
        stand.give().await;
        assert_eq!(fs::read_dir(&stand.files).unwrap().count(), 1, "no empty folder is left");
    }
    // More than there is room for stays in the session, and the host can still put its own there.
    for n in 0..60 {
        stand.change(&format!("{n}"), Some("x")).await;
    }
    stand.give().await;
    assert_eq!(stand.there().len(), 50);
    stand.put("more", "of the host");
    stand.take().await.unwrap();
    assert_eq!(stand.saved().await.len(), 62);
}

#[tokio::test]
async fn a_folder_that_hangs_refuses_in_time_and_has_one_thread() {
    let stand = Stand::new().await;
    let (owner, id) = (&stand.world.session.owner, &stand.world.session.id);
    let (go, gone) = std::sync::mpsc::channel::<()>();
    let held = stand.drops.hold(owner, id).await.unwrap();
    let hanging = stand.drops.at_folder(&held, owner, Duration::from_millis(50), move || gone.recv());
    assert!(matches!(hanging.await, Err(DropError::Hangs(_))));
    drop(held);
    let looks = &stand.drops.roots[owner].looks;
    for _ in 0..3 {
        assert!(matches!(stand.drops.hold(owner, id).await, Err(DropError::Hangs(_))));
        assert_eq!(looks.available_permits(), LOOKS - 1);
    }
    drop(go);
    // It answers again.
    drop(stand.slot().work.lock().await);
    stand.drops.hold(owner, id).await.unwrap();
}

#[tokio::test]
async fn other_sessions_and_owners_have_no_part_in_it() {
    let stand = Stand::new().await;
    stand.put("a", "mine");
    let id = &stand.world.session.id;
    assert!(stand.drops.folder("another", id).await.unwrap().is_none());
    for id in ["other", "..", ".", "a/b", ".hidden", &"x".repeat(256)] {
        let Ok(id) = id.parse::<SessionId>() else { continue };
        assert!(stand.drops.folder(&stand.world.session.owner, &id).await.unwrap().is_none(), "{id}");
    }
    // The folder itself may be no link.
    fs::rename(&stand.files, stand.dir.path().join("moved")).unwrap();
    symlink(stand.dir.path().join("moved"), &stand.files).unwrap();
    assert!(stand.drops.folder(&stand.world.session.owner, id).await.unwrap().is_none());
    let _ = fs::set_permissions(stand.dir.path(), fs::Permissions::from_mode(0o700));
}

mod removal;
