//! MCP sessions on disk, so that a client goes on after a restart of the daemon: most clients give up for
//! ever on a 404.
//!
//! Each is one small file in a folder of its owner, named by a hash of the session's id: it holds what the
//! client said of itself when it began. A file is written beside and renamed, not synced: a client whose file
//! is lost begins again. Files that are unused for a week are removed. Most clients never end a session, so
//! of too many the least recently used are evicted, but none that is in memory. It must never give one
//! token's session to another, nor use an id as a name.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rmcp::transport::streamable_http_server::session::{SessionState, SessionStore, SessionStoreError};
use sha2::{Digest, Sha256};

use super::in_memory::SessionsInMemory;
use crate::store::StoreClock;

/// A session that is unused for this long is removed.
const UNUSED: Duration = Duration::from_secs(7 * 24 * 3600);
/// Sessions of one token on disk, some 4 KB each: more than in memory, since a client whose session is in
/// neither has to begin again, and most never do.
const ON_DISK: usize = 1000;
/// After this many new ones the folder is swept, and this many are evicted if it is full.
const SWEEP_EVERY: usize = 100;

/// The sessions of one token.
pub(super) struct SessionsOnDisk {
    /// The owner's folder.
    folder: PathBuf,
    in_memory: Arc<SessionsInMemory>,
    written: AtomicUsize,
}

impl SessionsOnDisk {
    /// The sessions of `owner`, below `folder`. A sweep keeps the sessions in `in_memory`.
    pub(super) fn new(folder: &Path, owner: &str, in_memory: Arc<SessionsInMemory>) -> Self {
        Self { folder: folder.join(hash(owner)), in_memory, written: AtomicUsize::new(0) }
    }

    /// Makes the folder, and removes the files in it that are too old or too many.
    pub(super) fn sweep(&self) -> io::Result<()> {
        fs::create_dir_all(&self.folder)?;
        sweep(&self.folder, &self.kept())
    }

    /// The files that are not evicted: those of sessions in memory.
    fn kept(&self) -> HashSet<PathBuf> {
        self.in_memory.ids().iter().map(|id| self.path(id)).collect()
    }

    /// Notes that a session is used, so that it is kept for another week.
    pub(super) fn note_use(self: Arc<Self>, id: &str) {
        let path = self.path(id);
        // If this fails, the client begins again in a week.
        tokio::task::spawn_blocking(move || used_now(&path));
    }

    fn path(&self, id: &str) -> PathBuf {
        self.folder.join(hash(id))
    }
}

/// Sweeps all folders, also those of owners that are no longer served. Removes files of an earlier layout,
/// which had no folders.
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

/// Removes the files of an owner's folder that are too old, and of too many the least recently used, but none
/// of `kept`.
fn sweep(folder: &Path, kept: &HashSet<PathBuf>) -> io::Result<()> {
    let now = StoreClock::new().now();
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
    let places = (ON_DISK - SWEEP_EVERY).saturating_sub(kept.len());
    for (_, path) in &others[..others.len().saturating_sub(places)] {
        let _ = fs::remove_file(path);
    }
    Ok(())
}

fn used_now(path: &Path) -> io::Result<()> {
    fs::File::options().append(true).open(path)?.set_modified(StoreClock::new().now())
}

/// Runs work on the disk where it may block.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, SessionStoreError> {
    Ok(tokio::task::spawn_blocking(work).await.map_err(io::Error::other)??)
}

#[async_trait::async_trait]
impl SessionStore for SessionsOnDisk {
    async fn load(&self, id: &str) -> Result<Option<SessionState>, SessionStoreError> {
        let path = self.path(id);
        blocking(move || {
            let text = match fs::read(&path) {
                Ok(text) => text,
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                Err(error) => return Err(error),
            };
            // A file that cannot be read counts as none.
            let _ = used_now(&path);
            Ok(serde_json::from_slice(&text).ok())
        })
        .await
    }

    async fn store(&self, id: &str, state: &SessionState) -> Result<(), SessionStoreError> {
        let (path, text) = (self.path(id), serde_json::to_vec(state)?);
        let sweeps = self.written.fetch_add(1, Ordering::Relaxed) % SWEEP_EVERY == SWEEP_EVERY - 1;
        let kept = if sweeps { self.kept() } else { HashSet::new() };
        blocking(move || {
            let beside = path.with_extension("new");
            fs::write(&beside, text)?;
            fs::rename(&beside, &path)?;
            let _ = used_now(&path);
            match path.parent().filter(|_| sweeps) {
                Some(folder) => sweep(folder, &kept),
                None => Ok(()),
            }
        })
        .await
    }

    async fn delete(&self, id: &str) -> Result<(), SessionStoreError> {
        let path = self.path(id);
        blocking(move || match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            Ok(()) | Err(_) => Ok(()),
        })
        .await
    }
}

#[cfg(test)]
pub(super) mod tests {
    use rmcp::model::InitializeRequestParams;

    use super::*;

    pub(in crate::api::mcp) fn state() -> SessionState {
        let text =
            r#"{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}"#;
        SessionState::new(serde_json::from_str::<InitializeRequestParams>(text).unwrap())
    }

    fn on_disk(folder: &Path, owner: &str) -> SessionsOnDisk {
        let sessions = SessionsOnDisk::new(folder, owner, Arc::default());
        sessions.sweep().unwrap();
        sessions
    }

    #[tokio::test]
    async fn a_session_is_its_owners_and_survives() {
        let dir = tempfile::tempdir().unwrap();
        let id = "../../etc/passwd";
        on_disk(dir.path(), "a").store(id, &state()).await.unwrap();
        let again = on_disk(dir.path(), "a");
        assert_eq!(again.load(id).await.unwrap().unwrap().initialize_params.client_info.name, "c");
        assert!(on_disk(dir.path(), "b").load(id).await.unwrap().is_none());
        again.delete(id).await.unwrap();
        again.delete(id).await.unwrap();
        assert!(again.load(id).await.unwrap().is_none());
        assert_eq!(count(&again), 0);
    }

    fn count(sessions: &SessionsOnDisk) -> usize {
        fs::read_dir(&sessions.folder).unwrap().count()
    }

    #[tokio::test]
    async fn of_too_many_the_least_recently_used_are_evicted_but_none_in_memory() {
        let dir = tempfile::tempdir().unwrap();
        let (all, other) = (on_disk(dir.path(), "a"), on_disk(dir.path(), "b"));
        other.store("theirs", &state()).await.unwrap();
        all.store("used", &state()).await.unwrap();
        all.in_memory.note_use("used", None);
        let mut most = 0;
        for n in 0..2 * ON_DISK {
            all.store(&n.to_string(), &state()).await.unwrap();
            // The clock of a file system may not tell two files apart.
            let file = fs::File::options().append(true).open(all.path(&n.to_string())).unwrap();
            let order = Duration::from_millis((2 * ON_DISK - n) as u64);
            file.set_modified(StoreClock::new().now() - order).unwrap();
            most = most.max(count(&all));
        }
        assert!(most <= ON_DISK + 1 && most > ON_DISK - SWEEP_EVERY, "{most}");
        for (id, stays) in [("used", true), ("0", false), ("1000", false), ("1999", true), ("1950", true)] {
            assert_eq!(all.load(id).await.unwrap().is_some(), stays, "{id}");
        }
        assert!(other.load("theirs").await.unwrap().is_some());
    }

    #[tokio::test]
    async fn an_unused_session_is_removed_and_a_torn_file_counts_as_none() {
        let dir = tempfile::tempdir().unwrap();
        let all = on_disk(dir.path(), "a");
        for id in ["old", "new", "torn"] {
            all.store(id, &state()).await.unwrap();
        }
        let old = fs::File::options().append(true).open(all.path("old")).unwrap();
        old.set_modified(StoreClock::new().now() - 2 * UNUSED).unwrap();
        fs::write(all.path("torn"), "{").unwrap();
        all.sweep().unwrap();
        assert!(all.load("old").await.unwrap().is_none());
        assert!(all.load("torn").await.unwrap().is_none());
        assert!(all.load("new").await.unwrap().is_some());
    }
}
