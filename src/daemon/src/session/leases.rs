//! The containers that a session has at the moment: got, claimed, given up.
//!
//! It must never give a container anything of a session before both the journal and PID 1 know whose it is.

use std::collections::BTreeMap;
use std::sync::Arc;

use paddock_proto::message::Claim;
use paddock_proto::{Event, RelPath, Request};
use sha2::{Digest, Sha256};
use tokio::sync::OwnedSemaphorePermit;
use tracing::{info, warn};

use super::journal::{Note, Record};
use super::{Session, SessionBounds, SessionError, Sessions, carry, salvage};
use crate::engine::VolumeName;
use crate::link::{Incoming, Link, LinkError};
use crate::pool::Lease;

/// What is touched between two programs, and never while one runs.
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
    /// The container of this name, if the session still has it.
    pub(super) fn named(&mut self, language: &str, name: &VolumeName) -> Option<&mut Leased> {
        self.leases.get_mut(language).filter(|leased| leased.lease.name == *name)
    }

    /// Gives the container of a language up, unless a program is under way in it.
    pub(super) fn drop_resting(&mut self, language: &str) {
        if self.leases.get(language).is_some_and(|leased| !leased.record.is_at_work()) {
            self.leases.remove(language);
        }
        self.settle();
    }

    /// Gives a container up; a session without any counts as live no more.
    pub(super) fn drop_lease(&mut self, language: &str, name: &VolumeName) {
        if self.named(language, name).is_some() {
            self.leases.remove(language);
        }
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

impl Leased {
    /// A container that was lost under other programs: what they left is saved before it goes.
    async fn save_what_is_left(&self, session: &Session, bounds: &SessionBounds) {
        if !self.record.is_at_work() {
            return;
        }
        if let Err(error) = salvage::salvage(&session.space, &self.lease, bounds).await {
            warn!(session_id = %session.id, %error, "the files of a lost container could not be saved");
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
                let _alone = session.places.emptied().await;
                session.places.work().await.drop_lost();
            }
        });
    }
}

impl Sessions {
    /// Gets the container of this language for the session, if it has none.
    pub(super) async fn take(
        &self,
        session: &Arc<Session>,
        work: &mut Work,
        language: &str,
    ) -> Result<(), SessionError> {
        let leases = &mut work.leases;
        if let Some(leased) = leases.get(language)
            && let Some(fault) = leased.lease.link.fault()
        {
            info!(session_id = %session.id, %fault, "a container has ended; another is taken");
            leased.save_what_is_left(session, &self.bounds).await;
            leases.remove(language);
        }
        if leases.contains_key(language) {
            return Ok(());
        }
        let lease = self.pool.lease(language).await?;
        let note = Note {
            owner: session.owner.clone(),
            session: session.id.as_str().to_owned(),
            language: language.to_owned(),
            runs: Vec::new(),
        };
        let record = self.journal.write(lease.name.as_str(), note);
        claim(&lease.link, session.claim()).await?;
        session.watch(&lease.link);
        leases.insert(
            language.to_owned(),
            Leased { lease, known: Known { fresh: true, ..Known::default() }, record },
        );
        Ok(())
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
