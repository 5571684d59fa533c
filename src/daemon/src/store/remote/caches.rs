//! Sessions on this disk that the ledger has: which they are, and which of them are this node's.
//!
//! A file `shared` in a session's directory says that the ledger had the session once: then the directory is
//! a cache, and is removed when the ledger says that the session is another node's or nobody's. Without it,
//! the directory is from before the store was one of many machines, and goes into the ledger at its next use.
//! It must never remove what the ledger does not have and never had.

use std::collections::HashMap;
use std::fs;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use paddock_ledger::OwnedSession;

use super::super::record::{JournalOp, JournalRecord};
use super::super::session_json::{self, SessionJson};
use super::super::shared::SharedState;
use super::super::{Space, StoreError, StoredSession, apply, make_dir};
use super::Remote;

/// The file that says so.
const MARK: &str = "shared";

impl Space {
    /// Whether what is on this disk is a cache of what the ledger has or had.
    pub(super) fn is_cache(&self) -> bool {
        self.dir.join(MARK).exists()
    }

    /// Notes that it is one. A failure is harmless: see the module.
    pub(in crate::store) fn mark_cache(&self) {
        if self.shared.remote.get().is_some()
            && self.is_stored()
            && !self.is_cache()
            && let Err(error) = fs::write(self.dir.join(MARK), "")
        {
            tracing::warn!(%error, dir = %self.dir.display(), "cannot note that a session is in the ledger");
        }
    }

    /// Makes the session's directory if the ledger has a session without files; whether it did.
    pub(super) fn make_about(&self) -> Result<bool, StoreError> {
        let what = || format!("cannot make {}", self.dir.display());
        let lacks = !self.is_stored();
        if lacks {
            make_dir(&self.files()).map_err(StoreError::io(what()))?;
            let about = SessionJson {
                owner: self.owner.clone(),
                session_id: self.session.clone(),
                closed: self.is_closed(),
            };
            session_json::write(&self.dir, &self.shared.tmp, &about, false)
                .map_err(StoreError::io(what()))?;
        }
        Ok(lacks)
    }

    /// Removes what is on this disk, if it is a cache.
    pub(super) fn drop_cache(&self) -> Result<(), StoreError> {
        if !self.is_cache() {
            return Ok(());
        }
        let (owner, session) = (self.owner.clone(), self.session.clone());
        let record =
            Arc::new(JournalRecord { owner, session, ops: vec![JournalOp::Forget], blob: Vec::new() });
        // The journal may have changes from before, and a start replays them: it must end with this.
        let pin = self.shared.journal.append(&record, Vec::new())?;
        pin.take_over(apply::apply(&self.shared.root, &self.shared.tmp, &record)?);
        self.reload()
    }
}

impl Remote {
    /// The sessions of this node: those that the ledger has for it, and those that only this disk has. Caches
    /// of others that nobody uses are removed.
    pub(in crate::store) fn sessions(
        &self,
        shared: &Arc<SharedState>,
        here: Vec<StoredSession>,
    ) -> Result<Vec<StoredSession>, StoreError> {
        let owned = self.wait(self.ledger.owned())?;
        let now = SystemTime::now();
        let used = |unused: Duration| now.checked_sub(unused).unwrap_or(SystemTime::UNIX_EPOCH);
        let mut all: HashMap<(String, String), SystemTime> = owned
            .into_iter()
            .map(|OwnedSession { tenant, session, unused }| ((tenant, session), used(unused)))
            .collect();
        for StoredSession { owner, session, used } in here {
            let space = shared.space(&owner, &session);
            let key = (owner, session);
            if let Some(of_ledger) = all.get_mut(&key) {
                *of_ledger = used.max(*of_ledger);
            } else if !space.is_cache() || space.check_hold().is_ok() {
                all.insert(key, used);
            } else if let Some(_lock) = space.try_lock() {
                // Not this node's a moment ago. `secure` removes it if nobody has it.
                let owner = self.wait(self.ledger.owner_of(&space.key()))?;
                if owner.is_none_or(|row| row.owner.node != self.ledger.node().name)
                    && space.check_hold().is_err()
                    && let Err(error) = space.drop_cache()
                {
                    tracing::warn!(%error, session = space.session, "a cache of a foreign session stays");
                }
            }
        }
        let stored = |((owner, session), used)| StoredSession { owner, session, used };
        Ok(all.into_iter().map(stored).collect())
    }
}
