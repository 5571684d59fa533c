//! The last attempt to save what only a container has.
//!
//! A program's files stay unsaved if the store's disk is full or cannot be written. The container then keeps
//! them, and the session's next program is to save them along with its own. If the container is given up
//! before that (its session is evicted, idle or closed, it was lost, or the daemon ends), they are saved
//! here, or the log says that they are lost.
//!
//! It must never bring a file back that was removed from the store meanwhile, nor replace one that was saved
//! later.

use std::time::Duration;

use paddock_proto::Request;
use tracing::{error, info, warn};

use super::{Leased, Leases};
use crate::session::registry::Session;
use crate::session::sync::{Collected, SyncError, delta, salvage};

/// How long the attempt may take: meanwhile the calls of the session wait, and so does the call for which the
/// session is evicted. Enough to give up a silent agent and ask the engine.
const LAST_ATTEMPT: Duration = Duration::from_secs(45);

impl Leases {
    /// Whether one of these containers has files that the store has not.
    pub(in crate::session) fn have_unsaved(&self, which: impl Fn(&Leased) -> bool) -> bool {
        self.by_language.values().any(|leased| which(leased) && leased.note.has_unsaved())
    }

    /// Tries to save the files of these containers, which are about to be given up.
    pub(in crate::session) async fn save_unsaved(
        &mut self,
        session: &Session,
        which: impl Fn(&Leased) -> bool,
    ) {
        for leased in self.by_language.values_mut().filter(|leased| which(leased)) {
            leased.save_unsaved(session).await;
        }
    }
}

impl Leased {
    /// Tries to save what the store has not of this container's files; does nothing if it has all of them.
    /// The container must not be used again.
    pub(in crate::session) async fn save_unsaved(&mut self, session: &Session) {
        if !self.note.has_unsaved() {
            return;
        }
        let session_id = &session.id;
        let saved = tokio::time::timeout(LAST_ATTEMPT, self.try_to_save(session)).await;
        let why = match saved {
            Ok(Ok(Some(Collected { changed, is_partial: true, .. }))) => {
                let (container, files) = (self.container.short_id(), changed.len());
                let why = "not all of its container could be read";
                error!(%session_id, container, files, why, "files of a session may be lost");
                return;
            }
            Ok(Ok(Some(Collected { changed, .. }))) => {
                self.note.set_unsaved(false);
                info!(%session_id, files = changed.len(), "files are saved that could not be saved before");
                return;
            }
            Ok(Ok(None)) => {
                "its container cannot be read any more, or the store has changed since".to_owned()
            }
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("it took longer than {LAST_ATTEMPT:?}"),
        };
        let container = self.container.short_id();
        error!(%session_id, container, why, "files of a session are lost: the store did not take them");
    }

    /// `None` if the container cannot be read any more.
    async fn try_to_save(&mut self, session: &Session) -> Result<Option<Collected>, SyncError> {
        if self.container.link().fault().is_none() {
            match self.collect(session).await {
                Err(SyncError::Link(error)) => {
                    warn!(session_id = %session.id, %error, "the agent does not give a container's files");
                }
                done => return done.map(Some),
            }
        }
        // An archive shows what is in the container, and not what changed there.
        if self.baseline.generation != session.space.manifest().generation() {
            return Ok(None);
        }
        Ok(salvage::salvage(&session.space, &*self.container, self.data).await?)
    }

    /// As the next program would do it: first the container gets what it lacks, so that changes of the store
    /// stand.
    async fn collect(&mut self, session: &Session) -> Result<Collected, SyncError> {
        let (space, link) = (&session.space, self.container.link());
        delta::bring_in(space, link, &mut self.baseline).await?;
        let stream = link.request(&Request::Collect(self.data.rules(self.container.runner())))?;
        delta::collect(space, &stream, &mut self.baseline, self.data).await
    }
}

#[cfg(test)]
mod tests;
