//! MCP sessions on disk, so that a client goes on after a restart of the daemon as if nothing had been: most give up
//! for ever on a 404.
//!
//! One small file each, named by a hash of owner and id: what the client said of itself when it began. They are written
//! beside and renamed, not synced: a lost one costs a client a new beginning. Those unused for a week go, and the
//! oldest where there are too many. It must never let one token's session be another's, nor use an id as a name.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use rmcp::transport::streamable_http_server::session::{SessionState, SessionStore, SessionStoreError};
use sha2::{Digest, Sha256};

/// A session that nobody used for this long is forgotten.
const UNUSED: Duration = Duration::from_secs(7 * 24 * 3600);
/// Sessions that are remembered, over all tokens.
const REMEMBERED: usize = 20_000;
/// So many new ones and the folder is looked through.
const LOOK_EVERY: usize = 1000;

/// The sessions of one token.
pub(super) struct Remembered {
    folder: PathBuf,
    owner: String,
    written: AtomicUsize,
}

impl Remembered {
    /// Those of `owner` in `folder`.
    pub(super) fn new(folder: &Path, owner: &str) -> Self {
        Self { folder: folder.to_owned(), owner: owner.to_owned(), written: AtomicUsize::new(0) }
    }

    /// Notes that a session is used; it is forgotten a week later.
    pub(super) fn note_use(self: Arc<Self>, id: &str) {
        let path = self.path(id);
        // What cannot be noted costs a client a new beginning, in a week.
        tokio::task::spawn_blocking(move || used_now(&path));
    }

    fn path(&self, id: &str) -> PathBuf {
        let mut digest = Sha256::new();
        digest.update((self.owner.len() as u64).to_le_bytes());
        digest.update(&self.owner);
        digest.update(id);
        self.folder.join(crate::id::hex(&digest.finalize()))
    }
}

/// Removes what is too old, and the oldest of what is too many.
pub(super) fn sweep(folder: &Path) -> io::Result<()> {
    let now = SystemTime::now();
    let mut kept = Vec::new();
    for entry in fs::read_dir(folder)?.flatten() {
        let Ok(used) = entry.metadata().and_then(|metadata| metadata.modified()) else { continue };
        if now.duration_since(used).is_ok_and(|unused| unused > UNUSED) {
            let _ = fs::remove_file(entry.path());
        } else {
            kept.push((used, entry.path()));
        }
    }
    kept.sort();
    let over = kept.len().saturating_sub(REMEMBERED);
    for (_, path) in &kept[..over] {
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
        on_disk(move || {
            let beside = path.with_extension("new");
            fs::write(&beside, text)?;
            fs::rename(&beside, &path)?;
            match path.parent().filter(|_| sweeps) {
                Some(folder) => sweep(folder),
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

    #[tokio::test]
    async fn a_session_is_its_owners_and_survives() {
        let dir = tempfile::tempdir().unwrap();
        let id = "../../etc/passwd";
        Remembered::new(dir.path(), "a").store(id, &state()).await.unwrap();
        let again = Remembered::new(dir.path(), "a");
        assert_eq!(again.load(id).await.unwrap().unwrap().initialize_params.client_info.name, "c");
        assert!(Remembered::new(dir.path(), "b").load(id).await.unwrap().is_none());
        again.delete(id).await.unwrap();
        again.delete(id).await.unwrap();
        assert!(again.load(id).await.unwrap().is_none());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[tokio::test]
    async fn what_nobody_used_is_forgotten_and_what_is_torn_is_none() {
        let dir = tempfile::tempdir().unwrap();
        let all = Remembered::new(dir.path(), "a");
        for id in ["old", "new", "torn"] {
            all.store(id, &state()).await.unwrap();
        }
        let old = fs::File::options().append(true).open(all.path("old")).unwrap();
        old.set_modified(SystemTime::now() - 2 * UNUSED).unwrap();
        fs::write(all.path("torn"), "{").unwrap();
        sweep(dir.path()).unwrap();
        assert!(all.load("old").await.unwrap().is_none());
        assert!(all.load("torn").await.unwrap().is_none());
        assert!(all.load("new").await.unwrap().is_some());
    }
}
