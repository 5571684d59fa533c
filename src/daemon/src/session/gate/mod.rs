//! The gate: which call may be in which session, and which sessions have containers.
//!
//! ```text
//!  a call ── enter(owner, id, kind) ──► driver ── event ──► core (pure: it decides)
//!     ▲                                  │ ▲  ◄── actions ──┘
//!     │                                  │ │
//!     └── Turn (RAII), which names its   │ └── upkeep: loads, drops containers, deletes files;
//!         session; drop ──► leave        ▼             answers each piece of work with an event
//!                                   registry: the sessions in memory, by owner and id
//! ```
//!
//! A call names a session by its owner and id, and gets a [`Turn`], which names the session that the call is
//! in. The rule that a deleted session is gone, and that a call which waited in it is let into a new one, is
//! the core's alone.
//!
//! It must never let two calls in that do not fit beside each other, nor run a program or change a file
//! itself.

mod core;
mod driver;
pub(in crate::session) mod message;
mod order;
#[cfg(test)]
mod tests;
pub(in crate::session) mod turn;
mod upkeep;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use self::driver::GateDriver;
use self::message::{Denial, Event, GateBounds, SessionKey, TurnKind};
use self::order::GateAnswer;
use self::turn::Turn;
use super::bounds::SessionsInUse;
use super::error::SessionError;
use super::lease::Permit;
use super::registry::Session;
use super::workspaces::Workspaces;
use crate::metrics::Metrics;
use crate::pool::core::LeaseRefusal;
use crate::store::{Store, StoreError, blocking};
use crate::tenants::{Limited, TenantShare, Tenants};

/// A handle on the gate of one daemon.
#[derive(Clone)]
pub(in crate::session) struct Gate {
    driver: Arc<GateDriver>,
    terms: GateBounds,
    tenants: Arc<Tenants>,
}

impl Gate {
    /// No sessions yet; the gate loads one from the store when a call asks for it. Stored files that no call
    /// uses for `retention` are deleted. The workspaces of a deleted session go with it. To be called in a
    /// runtime.
    pub(in crate::session) fn new(
        store: Arc<Store>,
        (terms, tenants): (GateBounds, Arc<Tenants>),
        retention: Option<Duration>,
        workspaces: Arc<Workspaces>,
        metrics: Metrics,
    ) -> Self {
        Self {
            driver: GateDriver::start(store, terms.clone(), retention, workspaces, metrics),
            terms,
            tenants,
        }
    }

    /// Waits for the turn of a call, at most for `pool.wait`. Dropping the future gives the place in the
    /// queue up.
    ///
    /// # Errors
    /// [`SessionError::QueueFull`], [`SessionError::TurnTooLate`], [`SessionError::Closed`], and the store's.
    pub(in crate::session) async fn enter(
        &self,
        key: &SessionKey,
        kind: TurnKind,
    ) -> Result<Turn, SessionError> {
        self.ask_to_enter(key, kind, true).await
    }

    /// The turn of a call that does not wait for other calls.
    ///
    /// # Errors
    /// [`SessionError::Busy`] if another call is in the way, and the store's.
    pub(in crate::session) async fn try_enter(
        &self,
        key: &SessionKey,
        kind: TurnKind,
    ) -> Result<Turn, SessionError> {
        self.ask_to_enter(key, kind, false).await
    }

    /// Whether a program of this session may get a permit, before anything is done for it.
    ///
    /// # Errors
    /// As of [`Gate::permit`]: it certainly gets none.
    pub(in crate::session) fn admits(&self, key: &SessionKey) -> Result<(), SessionError> {
        match self.driver.refuses(key, self.share(key.owner())) {
            Some(why) => Err(self.denied_to(key.owner(), GateAnswer::Denied(why, None))),
            None => Ok(()),
        }
    }

    /// Whether this session has a container, or is about to.
    pub(in crate::session) fn is_live(&self, key: &SessionKey) -> bool {
        self.driver.is_live(key)
    }

    async fn ask_to_enter(
        &self,
        key: &SessionKey,
        kind: TurnKind,
        waits: bool,
    ) -> Result<Turn, SessionError> {
        let event = |key, call| Event::Enter { key, call, kind, waits };
        let answer = self.driver.ask(key, event).await;
        let GateAnswer::Turn { turn, note } = answer else { return Err(self.denied(answer)) };
        turn.session().space.clone().confirm().await?;
        if !note {
            return Ok(turn);
        }
        // The turn goes along: a caller that stops waiting here gives its turn up once the note is written,
        // not before.
        let noted = blocking(move || {
            turn.session().space.set_closed(false);
            turn.session().space.touch();
            Ok(turn)
        });
        Ok(noted.await?)
    }

    /// The session, new or not.
    ///
    /// # Errors
    /// The store's.
    pub(in crate::session) async fn open(&self, key: &SessionKey) -> Result<Arc<Session>, StoreError> {
        let answer = self.driver.ask(key, |key, call| Event::Open { key, call, makes: true }).await;
        if let GateAnswer::Session(Some(session)) = answer {
            session.space.clone().confirm().await?;
            Ok(session)
        } else {
            Err(answer.into_store_error())
        }
    }

    /// The session, if there is one: at work, or with something stored.
    ///
    /// # Errors
    /// The store's.
    pub(in crate::session) async fn find(
        &self,
        key: &SessionKey,
    ) -> Result<Option<Arc<Session>>, StoreError> {
        let answer = self.driver.ask(key, |key, call| Event::Open { key, call, makes: false }).await;
        let GateAnswer::Session(found) = answer else { return Err(answer.into_store_error()) };
        if let Some(session) = &found {
            session.space.clone().confirm().await?;
        }
        Ok(found)
    }

    /// Ends a session: cancels the programs that run or wait in it (what they did is still saved), drops its
    /// containers and, if `delete`, deletes its files. False if there is no such session, or if it is closed
    /// already and there is nothing to delete.
    ///
    /// # Errors
    /// The store's; with `delete` the files are then still there.
    pub(in crate::session) async fn close(&self, key: &SessionKey, delete: bool) -> Result<bool, StoreError> {
        let answer = self.driver.ask(key, |key, call| Event::Close { key, call, delete }).await;
        if let GateAnswer::Closed { found } = answer { Ok(found) } else { Err(answer.into_store_error()) }
    }

    /// Waits for a permit to have containers, for the session of this turn, until the turn's deadline.
    ///
    /// # Errors
    /// [`SessionError::TooManyWait`], [`SessionError::MaxSessions`], [`SessionError::NoEviction`],
    /// [`SessionError::Limited`].
    pub(in crate::session) async fn permit(&self, turn: &Turn) -> Result<Permit, SessionError> {
        let tenant = self.share(turn.key().owner());
        let event = |key, call| Event::Want { key, call, waits: true, tenant };
        let asked = self.driver.ask_as(turn.call(), turn.key(), event);
        let answer = self.tenants.patiently(asked).await;
        if let GateAnswer::Permit(permit) = answer {
            return Ok(permit);
        }
        Err(self.denied_to(turn.key().owner(), answer))
    }

    /// Why a call of this owner got no permit: of a limit, as the limit is over all nodes.
    fn denied_to(&self, owner: &str, answer: GateAnswer) -> SessionError {
        let denied = self.denied(answer);
        let SessionError::Limited(limited) = denied else { return denied };
        SessionError::Limited(self.tenants.over_all_nodes(owner, limited))
    }

    /// A permit for a session that no call is in, if one is free: for a container of an earlier daemon.
    ///
    /// # Errors
    /// [`SessionError::MaxSessions`].
    pub(in crate::session) async fn free_permit(&self, session: &Session) -> Result<Permit, SessionError> {
        let tenant = self.share(session.key.owner());
        let event = |key, call| Event::Want { key, call, waits: false, tenant };
        let answer = self.driver.ask(&session.key, event).await;
        if let GateAnswer::Permit(permit) = answer { Ok(permit) } else { Err(self.denied(answer)) }
    }

    /// The pool has no slot for a container that a call waits for: a session that rests is evicted for it.
    /// Its containers are given up before this returns, unless something still holds them. False if no
    /// session gives any up.
    pub(in crate::session) fn evict_for_pool(&self) -> bool {
        self.driver.evict_for_pool()
    }

    /// Changes whenever a session comes to rest that can be evicted.
    pub(in crate::session) fn rests(&self) -> watch::Receiver<u64> {
        self.driver.rests()
    }

    /// Drops a container of this session as soon as it is lost and no call uses it: nothing keeps a dead
    /// container until the next call.
    pub(in crate::session) fn watch(
        &self,
        session: &Session,
        lost: impl Future<Output: Send> + Send + 'static,
    ) {
        let (driver, key) = (Arc::downgrade(&self.driver), session.key.clone());
        tokio::spawn(async move {
            lost.await;
            if let Some(driver) = driver.upgrade() {
                driver.tell(Event::Lost { key });
            }
        });
    }

    /// From now on idle sessions lose their containers, unused files expire, and resting sessions are
    /// forgotten.
    pub(in crate::session) fn start_sweeping(&self) {
        self.driver.tell(Event::StartSweeping);
    }

    /// Lets no call in any more, drops every session's containers once its calls are gone, and resolves when
    /// the last one is.
    pub(in crate::session) async fn close_all(&self) {
        self.driver.tell(Event::Shutdown);
        self.driver.quiet().await;
    }

    /// Sessions that have containers, or are about to.
    pub(in crate::session) fn live(&self) -> usize {
        self.driver.counts().permits
    }

    /// What queues must know of a tenant.
    pub(in crate::session) fn share(&self, owner: &str) -> TenantShare {
        self.tenants.share(owner)
    }

    /// An owner may have more or fewer sessions at this node, and gives up some that rest.
    pub(in crate::session) fn limit_changed(&self, owner: &str, gives_up: u64) {
        self.driver.tell(Event::Limit { tenant: self.share(owner), gives_up });
    }

    /// What each owner uses.
    pub(in crate::session) fn use_by_owner(&self) -> BTreeMap<String, SessionsInUse> {
        self.driver.use_by_owner()
    }

    /// The sessions of an owner that are in memory.
    pub(in crate::session) fn of_owner(&self, owner: &str) -> Vec<SessionKey> {
        self.driver.of_owner(owner)
    }

    /// Sessions of each owner that have containers, or are about to.
    pub(in crate::session) fn live_by_owner(&self) -> BTreeMap<String, usize> {
        self.driver.permits_by_owner()
    }

    /// Sessions in memory, and calls that wait for their turn or for a permit.
    pub(in crate::session) fn known(&self) -> (usize, usize) {
        let counts = self.driver.counts();
        (counts.sessions, counts.waiting + counts.wanting)
    }

    /// Why a call got no turn, or no permit.
    fn denied(&self, answer: GateAnswer) -> SessionError {
        let (why, error) = match answer {
            GateAnswer::Denied(why, error) => (why, error),
            // The driver answers each question with its own kind of answer.
            GateAnswer::Turn { .. }
            | GateAnswer::Permit(_)
            | GateAnswer::Session(_)
            | GateAnswer::Closed { .. } => (Denial::ShuttingDown, None),
        };
        match (why, error) {
            (Denial::QueueFull(waiting), _) => SessionError::QueueFull(waiting),
            (Denial::TurnTooLate, _) => SessionError::TurnTooLate(self.terms.wait),
            (Denial::Busy, _) => SessionError::Busy,
            (Denial::Closed, _) => SessionError::Closed,
            (Denial::PermitQueueFull(waiting), _) => SessionError::TooManyWait(waiting),
            (Denial::PermitTooLate, _) => {
                SessionError::MaxSessions { max: self.terms.permits, wait: self.terms.wait }
            }
            (Denial::TenantFull(most), _) => SessionError::Limited(Limited::places("sessions", most, most)),
            (Denial::NoEviction, _) => SessionError::NoEviction(self.terms.permits),
            (Denial::StoreFailed, Some(error)) => error.into(),
            (Denial::StoreFailed, None) | (Denial::ShuttingDown, _) => {
                SessionError::NoContainer(LeaseRefusal::ShuttingDown)
            }
        }
    }
}
