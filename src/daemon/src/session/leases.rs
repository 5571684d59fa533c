//! The containers that a session has at the moment: got, claimed, given up.
//!
//! It must never give a container anything of a session before both the journal and PID 1 know whose it is.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use paddock_proto::message::Claim;
use paddock_proto::{Event, RelPath, Request};
use sha2::{Digest, Sha256};
use tracing::{info, warn};

use super::admission::Permit;
use super::journal::{Note, Record};
use super::{Session, SessionBounds, SessionError, Sessions, carry, salvage};
use crate::engine::VolumeName;
use crate::link::{Incoming, Link, LinkError};
use crate::pool::Lease;
use crate::pool::core::Refusal;

/// How often a call that waits for a container looks whether there is no room for one.
const LOOK_FOR_ROOM: Duration = Duration::from_millis(500);

/// What is touched between two programs, and never while one runs.
#[derive(Default)]
pub(super) struct Work {
    pub(super) leases: BTreeMap<String, Leased>,
    pub(super) permit: Option<Permit>,
}

/// A container, and what it has.
pub(super) struct Leased {
    pub(super) lease: Lease,
    pub(super) known: Known,
    pub(super) record: Record,
    pub(super) cold: Cold,
}

/// The runs of a container that began before its warm part stood.
///
/// A conversation's first second may be cold; its tenth run may not: then it waits once for the part, if that is loading,
/// which has the container's processor for itself meanwhile.
#[derive(Debug, Default)]
pub(super) struct Cold {
    first: Option<Instant>,
    runs: u32,
    /// A run has waited for the part: one that does not come to stand costs a conversation that once.
    has_waited: bool,
}

/// How long runs go on beside a warm part that is still to be loaded.
const COLD_TIME: Duration = Duration::from_secs(1);

/// How many runs go on beside it.
const COLD_RUNS: u32 = 9;

impl Cold {
    /// Notes that a run begins now without the warm part.
    pub(super) fn begin(&mut self, now: Instant) {
        self.first.get_or_insert(now);
        self.runs += 1;
    }

    /// Whether there was a run already.
    pub(super) fn goes_on(&self) -> bool {
        self.runs > 0
    }

    /// Whether the next run is to wait for the part, which is loading. It is told so once.
    pub(super) fn is_enough(&mut self, now: Instant) -> bool {
        let is_long = self.first.is_some_and(|first| now.duration_since(first) >= COLD_TIME);
        let waits = !self.has_waited && (self.runs >= COLD_RUNS || is_long);
        self.has_waited |= waits;
        waits
    }
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
    /// Gets the container of this language for the session, if it has none, and waits for it until `deadline`.
    pub(super) async fn take(
        &self,
        session: &Arc<Session>,
        work: &mut Work,
        language: &str,
        deadline: Instant,
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
        let lease = self.lease(language, deadline).await?;
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
            Leased { lease, known: Known { fresh: true, ..Known::default() }, record, cold: Cold::default() },
        );
        Ok(())
    }
}

impl Sessions {
    /// Waits for a container until `deadline`. Where no further one can be started, sessions that rest are evicted for it.
    async fn lease(&self, language: &str, deadline: Instant) -> Result<Lease, Refusal> {
        let mut lease = pin!(self.pool.lease(language));
        loop {
            tokio::select! {
                biased;
                lease = &mut lease => return lease,
                () = tokio::time::sleep_until(deadline.into()) => {
                    let refusal = match self.pool.is_full().await {
                        true => Refusal::Full,
                        // Waiting for other sessions to rest is part of it.
                        false => Refusal::WaitedTooLong { waited: self.bounds.wait },
                    };
                    self.metrics.refused(refusal.as_str());
                    return Err(refusal);
                }
                () = tokio::time::sleep(LOOK_FOR_ROOM) => {
                    if self.pool.is_full().await {
                        self.admission.evict_one();
                    }
                }
            }
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_first_second_may_be_cold_and_a_tenth_run_may_not() {
        let (mut cold, begun) = (Cold::default(), Instant::now());
        assert!(!cold.goes_on() && !cold.is_enough(begun));
        cold.begin(begun);
        assert!(cold.goes_on() && !cold.is_enough(begun + COLD_TIME / 2));
        for _ in 1..COLD_RUNS {
            assert!(!cold.is_enough(begun));
            cold.begin(begun);
        }
        assert!(cold.is_enough(begun));
        assert!(!cold.is_enough(begun + 2 * COLD_TIME), "a run has waited for it already");
        let mut slow = Cold::default();
        slow.begin(begun);
        assert!(slow.is_enough(begun + COLD_TIME));
    }
}
