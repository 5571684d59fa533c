//! The files of a container that an earlier daemon left behind, and that cannot be taken over: its agent
//! speaks another version of the protocol, or does not answer. The engine reads them before the container
//! goes.
//!
//! ```text
//!  note ─┬─ runs in flight, or files that the store did not take ─► salvage into the space of its session
//!        └─ neither: the store has everything, and may have changed since ─► nothing
//! ```
//!
//! While a run is in flight nothing else changes the files of its session, so what the container has is newer
//! than what the store has. Without one it must never be believed: it could bring back what was removed.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use tracing::{error, info, warn};

use super::notes::{LeaseNote, LeaseNotes};
use crate::pool::{LostContainer, Rescue};
use crate::session::bounds::SessionBounds;
use crate::session::port::Readable;
use crate::session::sync::{Collected, DataBounds, salvage};
use crate::store::{Store, StoreError};

/// Saves the files of containers that sessions had, by the notes in the store.
pub struct LostFiles {
    store: Arc<Store>,
    notes: HashMap<String, LeaseNote>,
    data: DataBounds,
    saved: Mutex<BTreeMap<String, Collected>>,
}

impl LostFiles {
    /// Reads the notes of the earlier daemon.
    ///
    /// # Errors
    /// The store's.
    pub fn open(store: &Arc<Store>, bounds: &SessionBounds) -> Result<Arc<Self>, StoreError> {
        let notes = LeaseNotes::new(store.folder("leases")?).read().into_iter().collect();
        let (store, data) = (store.clone(), bounds.data_bounds());
        Ok(Arc::new(Self { store, notes, data, saved: Mutex::default() }))
    }

    /// What was saved of each container.
    pub(super) fn take(&self) -> BTreeMap<String, Collected> {
        std::mem::take(&mut *self.saved.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) async fn save(&self, container: &dyn Readable) {
        let name = container.name();
        let Some(note) = self.notes.get(name) else { return };
        if note.kept_since_ms.is_some() || (note.runs.is_empty() && !note.unsaved) {
            return;
        }
        let session_id = &note.session;
        let done = match self.store.space(&note.owner, session_id).await {
            Ok(space) => salvage::salvage(&space, container, self.data).await,
            Err(error) => Err(error),
        };
        match done {
            Ok(Some(collected)) => {
                let (files, is_partial) = (collected.changed.len(), collected.is_partial);
                info!(
                    session_id,
                    container = name,
                    files,
                    is_partial,
                    "files of an earlier daemon's container are saved"
                );
                let mut saved = self.saved.lock().unwrap_or_else(PoisonError::into_inner);
                saved.insert(name.to_owned(), collected);
            }
            Ok(None) => {
                error!(session_id, container = name, "what a container had since its last save is lost");
            }
            Err(StoreError::Pending(error)) => {
                warn!(
                    session_id,
                    container = name,
                    %error,
                    "those files of a container that could still be read are saved, and not yet in place"
                );
            }
            Err(error) => error!(session_id, container = name, %error, "files of a session are lost"),
        }
    }
}

#[async_trait]
impl Rescue for LostFiles {
    async fn rescue(&self, container: LostContainer) {
        self.save(&container).await;
    }
}

#[cfg(test)]
mod tests;
