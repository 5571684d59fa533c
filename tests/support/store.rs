//! A store that outlives daemons, and takes what they left on the engine with it.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use tempfile::TempDir;

use super::engine::View;

/// Cheap to clone; the last one removes the directory, and everything of its owner from the engine.
#[derive(Clone)]
pub(crate) struct Store {
    place: Arc<Place>,
}

struct Place {
    dir: TempDir,
    mounted: bool,
}

impl Store {
    pub(crate) fn new() -> Store {
        Store::at(TempDir::new().expect("a directory"), false)
    }

    /// In a folder whose path is longer than a socket's may be.
    pub(crate) fn deep() -> Store {
        let long = "d".repeat(120);
        Store::at(tempfile::Builder::new().prefix(&long).tempdir().expect("a directory"), false)
    }

    /// On a file system of its own that has this many bytes. It needs root.
    pub(crate) fn on_disk_of(bytes: u64) -> Store {
        let store = Store::at(TempDir::new().expect("a directory"), true);
        store.mount(&format!("size={bytes},mode=700"));
        store
    }

    fn at(dir: TempDir, mounted: bool) -> Store {
        Store { place: Arc::new(Place { dir, mounted }) }
    }

    /// Its file system has this many bytes from now on.
    pub(crate) fn resize_disk(&self, bytes: u64) {
        self.mount(&format!("remount,size={bytes}"));
    }

    /// Makes it read-only for everybody, until what this gives is dropped: the folder is mounted over itself. Files
    /// that are open stay as they are. It needs root.
    pub(crate) fn read_only(&self) -> ReadOnly {
        let mount = |options: &[&str]| {
            let done = Command::new("mount").args(options).arg(self.path()).status();
            assert!(done.is_ok_and(|status| status.success()), "these tests need root, to mount {options:?}");
        };
        mount(&["--bind", self.path().to_str().expect("text")]);
        let over = ReadOnly(self.clone());
        mount(&["-o", "remount,bind,ro"]);
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

    /// The random id that its daemons label everything with.
    pub(crate) fn owner(&self) -> String {
        self.place.owner().expect("a daemon has opened the store")
    }
}

impl Place {
    fn owner(&self) -> Option<String> {
        let text = std::fs::read_to_string(self.dir.path().join("owner")).ok()?;
        Some(text.trim().to_owned())
    }
}

impl Drop for Place {
    /// Only tests that kill a daemon, or that fail, leave anything.
    fn drop(&mut self) {
        if let Some(owner) = self.owner() {
            drop(Cleared::of(&owner));
        }
        if self.mounted {
            // Lazily: a daemon that has not ended yet must not keep it.
            let _ = Command::new("umount").arg("--lazy").arg(self.dir.path()).status();
        }
    }
}

/// A store that nobody can write.
pub(crate) struct ReadOnly(Store);

impl Drop for ReadOnly {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(self.0.path()).status();
    }
}

/// At its end nothing of this owner, and no image of this name, is on the engine: also when a test fails.
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
