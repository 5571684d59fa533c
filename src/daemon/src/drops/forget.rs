//! Removes the copies of a deleted session from its drop folder, or they would be its files again.
//!
//! It must never remove what the host put there, or changed: that may be the only one.

use std::os::fd::OwnedFd;

use tracing::{info, warn};

use super::{DropError, Drops, LOOK, SharedRecord, folder, lock};
use crate::session::{SessionId, Sessions};
use crate::store::blocking;

/// The copies that runs of a session made, for when it is deleted.
#[derive(Debug)]
pub struct Copies(SharedRecord);

impl Drops {
    /// The copies of a session that is about to be deleted with its files.
    pub async fn copies(&self, sessions: &Sessions, owner: &str, id: &SessionId) -> Option<Copies> {
        if !self.has(owner) {
            return None;
        }
        let session = sessions.find(owner, id).await.ok().flatten()?;
        let slot = self.slot(owner, id);
        blocking(move || Ok(Copies(slot.record(&session)))).await.ok()
    }

    /// Removes them, now that the session is deleted.
    pub async fn remove(&self, owner: &str, id: &SessionId, copies: Copies) {
        if let Err(error) = self.try_remove(owner, id, copies).await {
            warn!(session_id = %id, %error, "copies of a deleted session may still be in its drop folder");
        }
    }

    async fn try_remove(&self, owner: &str, id: &SessionId, copies: Copies) -> Result<(), DropError> {
        let Some(root) = self.folder(owner, id).await? else { return Ok(()) };
        // Also after a run that is just putting its files there.
        let held = self.hold(owner, id).await?;
        let removing = move || remove_made(&root, &copies.0);
        let files = self.at_folder(&held, owner, LOOK, removing).await??;
        if files > 0 {
            info!(session_id = %id, files, "removed the copies of a deleted session from its drop folder");
        }
        Ok(())
    }
}

/// Removes what runs made and nobody changed since; how many files.
fn remove_made(root: &OwnedFd, record: &SharedRecord) -> Result<usize, DropError> {
    let mut record = lock(record);
    let Some(of) = record.of_mut(folder::identity(root)?) else { return Ok(0) };
    let mut removed = 0;
    for (path, known) in of.known.iter().filter(|(_, known)| known.is_made) {
        match folder::remove(root, path, known.folder) {
            Ok(is_removed) => removed += usize::from(is_removed),
            Err(error) => warn!(path = %path.to_text(), %error, "a copy could not be removed"),
        }
    }
    for path in of.made.iter().rev() {
        folder::remove_empty(root, path);
    }
    of.known.clear();
    of.made.clear();
    Ok(removed)
}
