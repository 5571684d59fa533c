//! What the driver does outside of its mutex: it answers and cancels calls, loads sessions, drops their
//! containers, whose unsaved files it has saved before, deletes their files, and looks for files that no call
//! uses.
//!
//! Each piece of work is answered with one event. It must never begin any that the core did not ask for.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tracing::{info, warn};

use super::driver::GateDriver;
use super::message::{Event, ReleaseReason, SessionKey};
use super::order::Order;
use crate::session::lease::Leased;
use crate::session::registry::Session;
use crate::store::{StoreError, StoredSession, blocking};

/// A last use that is to come by more than this is one of another clock.
const AHEAD: Duration = Duration::from_secs(60 * 60);

impl GateDriver {
    /// Does what the core said, in that order. What needs the disk goes on in a task of its own.
    pub(super) fn carry_out(self: &Arc<Self>, orders: Vec<Order>) {
        for order in orders {
            match order {
                Order::Answer(reply, answer) => drop(reply.send(answer)),
                Order::Cancel(token) => token.cancel(),
                Order::DropAnswer { .. } | Order::DropPass { .. } | Order::DropSession { .. } => {}
                Order::Load(key) => self.in_background(|driver| async move { driver.load(key).await }),
                Order::Release(key, session, why) => {
                    self.log_release(&key, why);
                    self.tidy(key, session, |_| true, why != ReleaseReason::Deleted);
                }
                Order::DropLost(key, session) => self.tidy(key, session, Leased::is_lost, true),
                Order::Delete { key, by_call } => {
                    self.in_background(move |driver| async move { driver.delete(key, by_call).await });
                }
                Order::KeepClosed(key, session) => {
                    self.in_background(|driver| async move { driver.keep_closed(key, session).await });
                }
                Order::AskHolders => self.count_holders(),
                Order::LookForUnused => {
                    self.in_background(|driver| async move { driver.look_for_unused().await });
                }
            }
        }
    }

    fn in_background<F>(self: &Arc<Self>, work: impl FnOnce(Arc<Self>) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.runtime.spawn(work(self.clone()));
    }

    fn log_release(&self, key: &SessionKey, why: ReleaseReason) {
        let session_id = key.id();
        match why {
            ReleaseReason::Idle => {
                info!(%session_id, why = "idle", "containers released");
                self.metrics.released("idle");
            }
            ReleaseReason::Evicted => {
                info!(%session_id, why = "evicted for another", "containers released");
                self.metrics.released("evicted");
            }
            ReleaseReason::Closed | ReleaseReason::Deleted => self.metrics.released("closed"),
            ReleaseReason::Shutdown => {}
        }
    }

    /// Takes these containers out of a session that no call is in. They go before the core hears that they
    /// are gone. If `saves`, their files that the store has not are saved first, and workspaces of coding
    /// agents are kept.
    fn tidy(
        self: &Arc<Self>,
        key: SessionKey,
        session: Option<Arc<Session>>,
        which: fn(&Leased) -> bool,
        saves: bool,
    ) {
        let done = Event::Tidied { key };
        let Some(session) = session else { return self.tell(done) };
        let is_done = match session.try_work() {
            Some(mut work) if !(saves && work.have_unsaved(which)) => {
                if !saves {
                    work.keep_no_workspace();
                }
                work.give_up(which);
                true
            }
            Some(_) | None => false,
        };
        if is_done {
            drop(session); // or it would count as held at a sweep
            return self.tell(done);
        }
        // There are files to save, or a container of an earlier daemon is just being given back.
        self.in_background(move |driver| async move {
            {
                let mut work = session.work().await;
                if saves {
                    work.save_unsaved(&session, which).await;
                } else {
                    work.keep_no_workspace();
                }
                work.give_up(which);
            }
            drop(session);
            driver.tell(done);
        });
    }

    async fn load(self: Arc<Self>, key: SessionKey) {
        match self.store.space(key.owner(), key.id().as_str()).await {
            Ok(space) => {
                let found = space.is_stored();
                self.loaded(key.clone(), Session::new(key, space), found);
            }
            Err(error) => self.tell_failed(Event::LoadFailed { key }, error),
        }
    }

    async fn delete(self: Arc<Self>, key: SessionKey, by_call: bool) {
        match self.store.forget(key.owner(), key.id().as_str()).await {
            Ok(found) => {
                // Before the core hears of it: a new session of this id must not find them.
                let found = self.workspaces.delete(&key) || found;
                let session_id = key.id();
                if by_call {
                    info!(%session_id, "session closed, its files deleted");
                } else {
                    info!(%session_id, "files deleted: nobody used them for sessions.retention");
                }
                self.tell(Event::Deleted { key, found });
            }
            Err(error) => {
                if !by_call {
                    warn!(session_id = %key, %error, "a session could not be deleted after its retention");
                }
                self.tell_failed(Event::NotDeleted { key }, error);
            }
        }
    }

    async fn keep_closed(self: Arc<Self>, key: SessionKey, session: Option<Arc<Session>>) {
        let kept = blocking(move || {
            if let Some(session) = session {
                session.space.set_closed(true);
            }
            Ok(())
        });
        match kept.await {
            Ok(()) => info!(session_id = %key, "session closed"),
            Err(error) => warn!(session_id = %key, %error, "the store was not told that a session is closed"),
        }
        self.tell(Event::KeptClosed { key });
    }

    /// Finds the sessions whose stored files no call used for the whole retention.
    async fn look_for_unused(self: Arc<Self>) {
        let keys = self.unused().await.unwrap_or_else(|error| {
            warn!(%error, "no session can be looked at for its retention");
            Vec::new()
        });
        self.tell(Event::Unused { keys });
    }

    async fn unused(&self) -> Result<Vec<SessionKey>, StoreError> {
        let Some(retention) = self.retention else { return Ok(Vec::new()) };
        let now = self.clock.now();
        let is_old = |used: SystemTime| now.duration_since(used).is_ok_and(|unused| unused >= retention);
        let stored = self.store.stored().await?;
        for one in stored.iter().filter(|one| one.used > now + AHEAD) {
            // The clock was set back while no daemon ran: it would never grow old.
            if let Some(space) = self.store.find(&one.owner, &one.session).await? {
                space.touch();
            }
        }
        let old = stored.into_iter().filter(|stored| is_old(stored.used));
        let key = |StoredSession { owner, session, .. }: StoredSession| {
            Some(SessionKey::new(&owner, &session.parse().ok()?))
        };
        Ok(old.filter_map(key).collect())
    }
}
