//! A store that outlives daemons, and removes what they left on the engine.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use tempfile::TempDir;

use super::engine::View;

/// Cheap to clone; dropping the last clone removes the directory, and everything of its owner from the
/// engine.
#[derive(Clone)]
pub(crate) struct Store {
    place: Arc<StoreDir>,
}

struct StoreDir {
    dir: TempDir,
    mounted: bool,
}

impl Store {
    pub(crate) fn new() -> Store {
        Store::at(TempDir::new().expect("a directory"), false)
    }

    /// A store in a folder whose path is too long for a socket.
    pub(crate) fn deep() -> Store {
        let long = "d".repeat(120);
        Store::at(tempfile::Builder::new().prefix(&long).tempdir().expect("a directory"), false)
    }

    /// A store on a file system of its own with this many bytes; mounting it needs root.
    pub(crate) fn on_disk_of(bytes: u64) -> Store {
        let store = Store::at(TempDir::new().expect("a directory"), true);
        store.mount(&format!("size={bytes},mode=700"));
        store
    }

    fn at(dir: TempDir, mounted: bool) -> Store {
        Store { place: Arc::new(StoreDir { dir, mounted }) }
    }

    /// Changes the size of its file system.
    pub(crate) fn resize_disk(&self, bytes: u64) {
        self.mount(&format!("remount,size={bytes}"));
    }

    /// Makes it read-only for everybody until the result is dropped, by mounting the folder over itself; open
    /// files keep working. It needs root.
    pub(crate) fn read_only(&self) -> ReadOnly {
        let run = |program: &str, arguments: &[&OsStr]| {
            let done = Command::new(program).args(arguments).status();
            assert!(
                done.is_ok_and(|status| status.success()),
                "these tests need root, to {program} {arguments:?}"
            );
        };
        // A mount with a file that is open for writing cannot become read-only. So it becomes read-only where
        // no daemon uses it, and is then put over the folder as it is.
        let aside = TempDir::new().expect("a directory");
        let [store, aside] = [self.path().as_os_str(), aside.path().as_os_str()];
        run("mount", &["--bind".as_ref(), store, aside]);
        run("mount", &["-o".as_ref(), "remount,bind,ro".as_ref(), aside]);
        run("mount", &["--bind".as_ref(), aside, store]);
        let over = ReadOnly(self.clone());
        run("umount", &[aside]);
        over
    }

    fn mount(&self, options: &str) {
        let mut command = Command::new("mount");
        let done = command.args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(self.path()).status();
        assert!(done.is_ok_and(|status| status.success()), "these tests need root, to mount {options}");
    }

    pub(crate) fn path(&self) -> &Path {
        self.place.dir.path()
    }

    /// The names of all files in it. Beside them only directories and its daemon's sockets may be there.
    pub(crate) fn file_names(&self) -> Vec<OsString> {
        let own = ["daemon.sock", "http.sock"].map(|name| self.path().join(name));
        let (mut names, mut dirs) = (Vec::new(), vec![self.path().to_owned()]);
        while let Some(dir) = dirs.pop() {
            for entry in std::fs::read_dir(&dir).expect("a directory") {
                let entry = entry.expect("an entry");
                let kind = entry.file_type().expect("a type");
                if own.contains(&entry.path()) {
                    continue;
                }
                assert!(kind.is_file() || kind.is_dir(), "{:?} is on the host", entry.path());
                if kind.is_dir() { dirs.push(entry.path()) } else { names.push(entry.file_name()) }
            }
        }
        names
    }

    /// The random id in the labels of everything that its daemons make.
    pub(crate) fn owner(&self) -> String {
        self.place.owner().expect("a daemon has opened the store")
    }
}

impl StoreDir {
    fn owner(&self) -> Option<String> {
        let text = std::fs::read_to_string(self.dir.path().join("owner")).ok()?;
        Some(text.trim().to_owned())
    }
}

impl Drop for StoreDir {
    /// Only tests that kill a daemon, or that fail, leave anything to remove.
    fn drop(&mut self) {
        if let Some(owner) = self.owner() {
            drop(Cleared::of(&owner));
        }
        if self.mounted {
            // Lazily, so that a daemon that has not ended yet cannot prevent it.
            let _ = Command::new("umount").arg("--lazy").arg(self.dir.path()).status();
        }
    }
}

/// A store that nobody can write to.
pub(crate) struct ReadOnly(Store);

impl Drop for ReadOnly {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(self.0.path()).status();
    }
}

/// Removes everything of this owner from the engine, and an image of this name, when it is dropped: even if a
/// test fails.
pub(crate) struct Cleared {
    owner: String,
    image: Option<String>,
}

impl Cleared {
    pub(crate) fn of(owner: &str) -> Cleared {
        Cleared { owner: owner.to_owned(), image: None }
    }

    pub(crate) fn and_image(mut self, image: &str) -> Cleared {
        self.image = Some(image.to_owned());
        self
    }
}

impl Drop for Cleared {
    fn drop(&mut self) {
        let (owner, image) = (std::mem::take(&mut self.owner), self.image.take());
        let clear = std::thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                let view = View::of(&owner).await;
                view.remove_all().await;
                if let Some(image) = image {
                    view.ask(&format!("DELETE /images/{image}?force=true"), "").await;
                }
            });
        });
        let _ = clear.join();
    }
}
