//! The containers that a session has at the moment: got, claimed, given up.
//!
//! It must never give a container anything of a session before both the journal and PID 1 know whose it is.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use paddock_proto::message::Claim;
use paddock_proto::{Event, RelPath, Request};
use sha2::{Digest, Sha256};
use tokio::sync::OwnedSemaphorePermit;
use tracing::info;

use super::journal::{Note, Record};
use super::{Session, SessionError, Sessions, Turn, carry};
use crate::link::{Incoming, Link, LinkError};
use crate::pool::Lease;

/// What only the holder of the turn touches.
#[derive(Default)]
pub(super) struct Work {
    pub(super) leases: BTreeMap<String, Leased>,
    pub(super) permit: Option<OwnedSemaphorePermit>,
}

/// A container, and what it has.
pub(super) struct Leased {
    pub(super) lease: Lease,
    pub(super) known: Known,
    pub(super) record: Record,
}

/// What a container has of the session's files.
#[derive(Default)]
pub(super) struct Known {
    /// The generation of each path; 0 for what is not as the store has it.
    pub(super) paths: BTreeMap<RelPath, u64>,
    /// Nothing was ever brought in, and no code ran.
    pub(super) fresh: bool,
    /// The store's generation when the two were last equal: while it stands, there is nothing to compare.
    pub(super) generation: u64,
}

impl Work {
    /// Gives a container up; a session without any counts as live no more.
    pub(super) fn drop_lease(&mut self, language: &str) {
        self.leases.remove(language);
        self.settle();
    }

    /// Gives those up that are lost.
    fn drop_lost(&mut self) {
        self.leases.retain(|_, leased| leased.lease.link.fault().is_none());
        self.settle();
    }

    fn settle(&mut self) {
        if self.leases.is_empty() {
            self.permit = None;
        }
    }
}

impl Session {
    /// What names it to PID 1.
    pub(super) fn claim(&self) -> Claim {
        let mut digest = Sha256::new();
        digest.update((self.owner.len() as u64).to_le_bytes());
        digest.update(&self.owner);
        digest.update(self.id.as_str());
        digest.finalize().into()
    }

    /// Gives a container up as soon as it is lost, if nothing uses it: what is dead is not kept until the next call.
    pub(super) fn watch(self: &Arc<Self>, link: &Link) {
        let (lost, session) = (link.lost(), Arc::downgrade(self));
        tokio::spawn(async move {
            lost.await;
            if let Some(session) = session.upgrade() {
                session.turn.lock().await.drop_lost();
            }
        });
    }
}

impl Sessions {
    /// Gets the container of this language for the session, if it has none; how long that took to come by.
    pub(super) async fn take(&self, turn: &mut Turn, language: &str) -> Result<Duration, SessionError> {
        let session = turn.session.clone();
        let leases = &mut turn.work.leases;
        if let Some(fault) = leases.get(language).and_then(|leased| leased.lease.link.fault()) {
            info!(session_id = %session.id, %fault, "a container ended between two calls; another is taken");
            leases.remove(language);
        }
        if leases.contains_key(language) {
            return Ok(Duration::ZERO);
        }
        let lease = self.pool.lease(language).await?;
        let note = Note {
            owner: session.owner.clone(),
            session: session.id.as_str().to_owned(),
            language: language.to_owned(),
            run: None,
        };
        let record = self.journal.write(lease.name.as_str(), note);
        claim(&lease.link, session.claim()).await?;
        session.watch(&lease.link);
        let waited = lease.waited;
        leases.insert(
            language.to_owned(),
            Leased { lease, known: Known { fresh: true, ..Known::default() }, record },
        );
        Ok(waited)
    }
}

/// Tells PID 1 whose its container is.
async fn claim(link: &Link, claim: Claim) -> Result<(), LinkError> {
    let stream = link.request(&Request::Claim(claim))?;
    match carry::next(&stream).await? {
        Incoming::Event(Event::Claimed) => Ok(()),
        Incoming::Event(_) | Incoming::Data(..) | Incoming::End => Err(LinkError::Refused),
    }
}
