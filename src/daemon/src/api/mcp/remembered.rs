//! MCP sessions on disk, so that a client goes on after a restart of the daemon as if nothing had been: most give up
//! for ever on a 404.
//!
//! One small file each, named by a hash of its id, in a folder of its owner's: what the client said of itself when it
//! began. They are written beside and renamed, not synced: a lost one costs a client a new beginning. Those unused for
//! a week are removed. Of an owner's the least recently used are evicted where there are too many, since most clients
//! never end a session; what is in memory stays. It must never let one token's session be another's, nor use an id as a
//! name.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use rmcp::transport::streamable_http_server::session::{SessionState, SessionStore, SessionStoreError};
use sha2::{Digest, Sha256};

use super::heard::Heard;

/// A session that nobody used for this long is forgotten.
const UNUSED: Duration = Duration::from_secs(7 * 24 * 3600);
/// Sessions of one token that are remembered, some 4 KB each: more than those in memory, since a client whose session is
/// in neither has to begin anew, and most never do.
const REMEMBERED: usize = 1000;
/// After this many new ones the folder is looked through, and as many places are made.
const LOOK_EVERY: usize = 100;

/// The sessions of one token.
pub(super) struct Remembered {
    /// The owner's own.
    folder: PathBuf,
    heard: Arc<Heard>,
    written: AtomicUsize,
}

impl Remembered {
    /// Those of `owner`, below `folder`; of which `heard` has those in memory.
    pub(super) fn new(folder: &Path, owner: &str, heard: Arc<Heard>) -> Self {
        Self { folder: folder.join(hash(owner)), heard, written: AtomicUsize::new(0) }
    }

    /// Makes the folder, and removes what is too old or too many in it.
    pub(super) fn sweep(&self) -> io::Result<()> {
        fs::create_dir_all(&self.folder)?;
        sweep(&self.folder, &self.in_memory())
    }

    /// The files that are not to be evicted.
    fn in_memory(&self) -> HashSet<PathBuf> {
        self.heard.ids().iter().map(|id| self.path(id)).collect()
    }

    /// Notes that a session is used; it is forgotten a week later.
    pub(super) fn note_use(self: Arc<Self>, id: &str) {
        let path = self.path(id);
        // What cannot be noted costs a client a new beginning, in a week.
        tokio::task::spawn_blocking(move || used_now(&path));
    }

    fn path(&self, id: &str) -> PathBuf {
        self.folder.join(hash(id))
    }
}

/// Sweeps all folders, also those of owners that are not served any more. Removes files of an earlier layout, which had
/// no folders.
pub(super) fn sweep_all(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)?.flatten() {
        if entry.file_type()?.is_dir() {
            sweep(&entry.path(), &HashSet::new())?;
            let _ = fs::remove_dir(entry.path()); // if it is empty
        } else {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

fn hash(text: &str) -> String {
    crate::id::hex(&Sha256::digest(text))
}

/// Removes what is too old from an owner's folder, and the least recently used of what is too many; but nothing of
/// `kept`.
fn sweep(folder: &Path, kept: &HashSet<PathBuf>) -> io::Result<()> {
    let now = SystemTime::now();
    let mut others = Vec::new();
    for entry in fs::read_dir(folder)?.flatten() {
        let Ok(used) = entry.metadata().and_then(|metadata| metadata.modified()) else { continue };
        if now.duration_since(used).is_ok_and(|unused| unused > UNUSED) {
            let _ = fs::remove_file(entry.path());
        } else if !kept.contains(&entry.path()) {
            others.push((used, entry.path()));
        }
    }
    others.sort();
    let places = (REMEMBERED - LOOK_EVERY).saturating_sub(kept.len());
    for (_, path) in &others[..others.len().saturating_sub(places)] {
        let _ = fs::remove_file(path);
    }
    Ok(())
}

fn used_now(path: &Path) -> io::Result<()> {
    fs::File::options().append(true).open(path)?.set_modified(SystemTime::now())
}

/// Runs what touches the disk where it may block.
async fn on_disk<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, SessionStoreError> {
    Ok(tokio::task::spawn_blocking(work).await.map_err(io::Error::other)??)
}

#[async_trait::async_trait]
impl SessionStore for Remembered {
    async fn load(&self, id: &str) -> Result<Option<SessionState>, SessionStoreError> {
        let path = self.path(id);
        on_disk(move || {
            let text = match fs::read(&path) {
                Ok(text) => text,
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                Err(error) => return Err(error),
            };
            // Used now; one that cannot be read is as good as none.
            let _ = used_now(&path);
            Ok(serde_json::from_slice(&text).ok())
        })
        .await
    }

    async fn store(&self, id: &str, state: &SessionState) -> Result<(), SessionStoreError> {
        let (path, text) = (self.path(id), serde_json::to_vec(state)?);
        let sweeps = self.written.fetch_add(1, Ordering::Relaxed) % LOOK_EVERY == LOOK_EVERY - 1;
        let kept = if sweeps { self.in_memory() } else { HashSet::new() };
        on_disk(move || {
            let beside = path.with_extension("new");
            fs::write(&beside, text)?;
            fs::rename(&beside, &path)?;
            match path.parent().filter(|_| sweeps) {
                Some(folder) => sweep(folder, &kept),
                None => Ok(()),
            }
        })
        .await
    }

    async fn delete(&self, id: &str) -> Result<(), SessionStoreError> {
        let path = self.path(id);
        on_disk(move || match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            Ok(()) | Err(_) => Ok(()),
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use rmcp::model::InitializeRequestParams;

    use super::*;

    fn state() -> SessionState {
        let text =
            r#"{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}"#;
        SessionState::new(serde_json::from_str::<InitializeRequestParams>(text).unwrap())
    }

    fn remembered(folder: &Path, owner: &str) -> Remembered {
        let remembered = Remembered::new(folder, owner, Arc::default());
        remembered.sweep().unwrap();
        remembered
    }

    #[tokio::test]
    async fn a_session_is_its_owners_and_survives() {
        let dir = tempfile::tempdir().unwrap();
        let id = "../../etc/passwd";
        remembered(dir.path(), "a").store(id, &state()).await.unwrap();
        let again = remembered(dir.path(), "a");
        assert_eq!(again.load(id).await.unwrap().unwrap().initialize_params.client_info.name, "c");
        assert!(remembered(dir.path(), "b").load(id).await.unwrap().is_none());
        again.delete(id).await.unwrap();
        again.delete(id).await.unwrap();
        assert!(again.load(id).await.unwrap().is_none());
        assert_eq!(count(&again), 0);
    }

    fn count(remembered: &Remembered) -> usize {
        fs::read_dir(&remembered.folder).unwrap().count()
    }

    #[tokio::test]
    async fn of_too_many_the_least_recently_used_are_evicted_but_none_in_memory() {
        let dir = tempfile::tempdir().unwrap();
        let (all, other) = (remembered(dir.path(), "a"), remembered(dir.path(), "b"));
        other.store("theirs", &state()).await.unwrap();
        all.store("used", &state()).await.unwrap();
        all.heard.hear("used", None);
        let mut most = 0;
        for n in 0..2 * REMEMBERED {
            all.store(&n.to_string(), &state()).await.unwrap();
            // The clock of a file system may not tell two files apart.
            let file = fs::File::options().append(true).open(all.path(&n.to_string())).unwrap();
            let order = Duration::from_millis((2 * REMEMBERED - n) as u64);
            file.set_modified(SystemTime::now() - order).unwrap();
            most = most.max(count(&all));
        }
        assert!(most <= REMEMBERED + 1 && most > REMEMBERED - LOOK_EVERY, "{most}");
        for (id, stays) in [("used", true), ("0", false), ("1000", false), ("1999", true), ("1950", true)] {
            assert_eq!(all.load(id).await.unwrap().is_some(), stays, "{id}");
        }
        assert!(other.load("theirs").await.unwrap().is_some());
    }

    #[tokio::test]
    async fn what_nobody_used_is_forgotten_and_what_is_torn_is_none() {
        let dir = tempfile::tempdir().unwrap();
        let all = remembered(dir.path(), "a");
        for id in ["old", "new", "torn"] {
            all.store(id, &state()).await.unwrap();
        }
        let old = fs::File::options().append(true).open(all.path("old")).unwrap();
        old.set_modified(SystemTime::now() - 2 * UNUSED).unwrap();
        fs::write(all.path("torn"), "{").unwrap();
        all.sweep().unwrap();
        assert!(all.load("old").await.unwrap().is_none());
        assert!(all.load("torn").await.unwrap().is_none());
        assert!(all.load("new").await.unwrap().is_some());
    }
}
