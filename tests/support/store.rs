//! A store that outlives daemons, and takes what they left on the engine with it.

use std::path::Path;
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
}

impl Store {
    pub(crate) fn new() -> Store {
        Store { place: Arc::new(Place { dir: TempDir::new().expect("a directory") }) }
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
