//! The sessions that the daemon has in memory, and what every part of a session works with.
//!
//! Which session is loaded, used, forgotten or deleted is the gate's to decide. Nothing in here may decide
//! it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use paddock_proto::message::Claim;
use sha2::{Digest, Sha256};
use tokio::sync::MutexGuard;

use super::gate::message::SessionKey;
use super::id::SessionId;
use super::lease::Leases;
use super::run::report::Recovered;
use crate::egress::Approved;
use crate::link::Dials;
use crate::store::Space;

/// One conversation, in memory.
pub struct Session {
    pub(in crate::session) key: SessionKey,
    /// Whose it is: the name of a token.
    pub owner: String,
    /// Its id.
    pub id: SessionId,
    /// Its files.
    pub space: Arc<Space>,
    work: tokio::sync::Mutex<Leases>,
    /// What the next call is to be told.
    news: Mutex<Vec<Recovered>>,
    /// The ways to servers in its containers, also of some that are lost.
    dials: Mutex<Vec<Dials>>,
    /// What its callers have allowed its programs to reach, when they were asked.
    pub(in crate::session) approved: Arc<Approved>,
}

impl Session {
    pub(in crate::session) fn new(key: SessionKey, space: Arc<Space>) -> Self {
        let (owner, id) = (key.owner().to_owned(), key.id().clone());
        let work = tokio::sync::Mutex::default();
        let (news, dials, approved) = Default::default();
        Self { key, owner, id, space, work, news, dials, approved }
    }

    /// The containers, and files on their way. A call needs a turn for it.
    pub(in crate::session) async fn work(&self) -> MutexGuard<'_, Leases> {
        self.work.lock().await
    }

    /// The same, if nothing has it.
    pub(in crate::session) fn try_work(&self) -> Option<MutexGuard<'_, Leases>> {
        self.work.try_lock().ok()
    }

    /// What names it to the agents of its containers.
    pub(in crate::session) fn claim(&self) -> Claim {
        let mut digest = Sha256::new();
        digest.update((self.owner.len() as u64).to_le_bytes());
        digest.update(&self.owner);
        digest.update(self.id.as_str());
        digest.finalize().into()
    }

    /// Notes the way to servers in a container that the session has from now on. It needs no end: with the
    /// container it is lost.
    pub(in crate::session) fn can_dial(&self, dials: Dials) {
        let mut all = self.dials.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|one| !one.is_lost());
        all.push(dials);
    }

    /// The ways to servers in its containers.
    pub(in crate::session) fn dials(&self) -> Vec<Dials> {
        let all = self.dials.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().filter(|one| !one.is_lost()).cloned().collect()
    }

    /// Notes what became of a run that a restart of the daemon fell into, for the next call.
    pub(in crate::session) fn report(&self, recovered: Recovered) {
        self.news.lock().unwrap_or_else(PoisonError::into_inner).push(recovered);
    }

    /// What became of runs that a restart of the daemon fell into, told once.
    pub fn take_news(&self) -> Vec<Recovered> {
        std::mem::take(&mut self.news.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(in crate::session) fn has_news(&self) -> bool {
        !self.news.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }
}

/// The sessions in memory, by owner and id.
#[derive(Default)]
pub(in crate::session) struct Registry(HashMap<SessionKey, Arc<Session>>);

impl Registry {
    pub(in crate::session) fn get(&self, key: &SessionKey) -> Option<Arc<Session>> {
        self.0.get(key).cloned()
    }

    pub(in crate::session) fn insert(
        &mut self,
        key: SessionKey,
        session: Arc<Session>,
    ) -> Option<Arc<Session>> {
        self.0.insert(key, session)
    }

    pub(in crate::session) fn remove(&mut self, key: &SessionKey) -> Option<Arc<Session>> {
        self.0.remove(key)
    }

    /// The sessions of an owner.
    pub(in crate::session) fn of_owner(&self, owner: &str) -> Vec<SessionKey> {
        self.0.keys().filter(|key| key.owner() == owner).cloned().collect()
    }

    /// The sessions that something in the daemon holds on to, and those with news for their next caller.
    pub(in crate::session) fn holders(&self) -> (Vec<SessionKey>, Vec<SessionKey>) {
        let keys = |which: fn(&Arc<Session>) -> bool| {
            self.0.values().filter(|session| which(session)).map(|session| session.key.clone()).collect()
        };
        (keys(|session| Arc::strong_count(session) > 1), keys(|session| session.has_news()))
    }
}
