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
        let Some(owner) = self.owner() else { return };
        let sweep = std::thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async { View::of(&owner).await.remove_all().await });
        });
        let _ = sweep.join();
    }
}
