//! The ends of a session: closed by its owner, forgotten with its files, or expired after its retention.
//!
//! ```text
//!  close:  cancel what runs and what waits ─► turn ─► containers go ─► marked closed, or files deleted too
//!  expire: nobody at work, nobody waiting, no container, unused for the whole retention ─► files deleted
//! ```
//!
//! A closed session is as before when it is used again. A deleted one is gone for whoever still holds it: the next
//! turn is one of a new, empty session. It must never delete what someone works on, and never bring a deleted file
//! back.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::{Session, SessionId, Sessions, Work};
use crate::store::{StoreError, Stored, blocking};

/// What a session knows of its own end.
#[derive(Default)]
pub(super) struct Closing {
    /// Cancelled while someone closes the session, and a new one after that.
    now: Mutex<CancellationToken>,
    /// Who closes it at the moment.
    closers: AtomicUsize,
    /// Its files were deleted: no turn is had here any more.
    gone: AtomicBool,
    /// When the last turn began.
    begun: Mutex<Option<Instant>>,
}

impl Closing {
    fn token(&self) -> CancellationToken {
        self.now.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    fn note_turn(&self) {
        *self.begun.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    fn turned_since(&self, then: Instant) -> bool {
        self.begun.lock().unwrap_or_else(PoisonError::into_inner).is_some_and(|begun| begun >= then)
    }
}

/// Someone is closing the session: until this is dropped whatever runs in it is cancelled.
struct Closer<'a>(&'a Closing);

impl<'a> Closer<'a> {
    fn begin(closing: &'a Closing) -> Self {
        let now = closing.now.lock().unwrap_or_else(PoisonError::into_inner);
        closing.closers.fetch_add(1, Ordering::Relaxed);
        now.cancel();
        Self(closing)
    }
}

impl Drop for Closer<'_> {
    fn drop(&mut self) {
        let mut now = self.0.now.lock().unwrap_or_else(PoisonError::into_inner);
        if self.0.closers.fetch_sub(1, Ordering::Relaxed) == 1 {
            *now = CancellationToken::new();
        }
    }
}

impl Session {
    /// Does `work`, which `cancel` ends; it is cancelled when the session is closed. Also whether it was.
    pub async fn unless_closed<T>(
        &self,
        cancel: &CancellationToken,
        work: impl Future<Output = T>,
    ) -> (T, bool) {
        let closed = self.closing.token();
        tokio::pin!(work);
        tokio::select! {
            biased;
            () = closed.cancelled() => cancel.cancel(),
            done = &mut work => return (done, false),
        }
        (work.await, true)
    }
}

impl Sessions {
    /// The session of this owner and id, if there is one: at work, or with something stored.
    ///
    /// # Errors
    /// The store's.
    pub async fn find(&self, owner: &str, id: &SessionId) -> Result<Option<Arc<Session>>, StoreError> {
        let known = self.all().get(&(owner.to_owned(), id.clone())).cloned();
        if let Some(session) = known.filter(|session| !session.closing.is_gone()) {
            return Ok(Some(session));
        }
        match self.store.find(owner, id.as_str()).await? {
            None => Ok(None),
            Some(_) => self.get(owner, id).await.map(Some),
        }
    }

    /// Ends a session: what runs or waits in it is cancelled (what it did is still saved), its containers go, and,
    /// if `delete`, its files. False if there is none, or it is closed already and there is nothing to delete.
    ///
    /// # Errors
    /// The store's; with `delete` the files are then still there.
    pub async fn close(&self, owner: &str, id: &SessionId, delete: bool) -> Result<bool, StoreError> {
        let Some(session) = self.find(owner, id).await? else { return Ok(false) };
        let _whole = {
            let _closer = Closer::begin(&session.closing);
            self.whole(&session).await
        };
        let mut work = session.places.work().await;
        if session.closing.is_gone() {
            return Ok(false); // someone else has just deleted it
        }
        let was_closed = work.permit.is_none() && session.space.is_closed();
        if work.permit.is_some() {
            self.metrics.released("closed");
        }
        *work = Work::default();
        drop(work);
        if delete {
            let deleted = self.delete(&session).await?;
            info!(session_id = %id, "session closed, its files deleted");
            return Ok(deleted || !was_closed);
        }
        if was_closed {
            return Ok(false);
        }
        let space = session.space.clone();
        blocking(move || {
            space.set_closed(true);
            Ok(())
        })
        .await?;
        info!(session_id = %id, "session closed");
        Ok(true)
    }

    /// Deletes all that is stored for a session whose turn the caller has. Until that is done the session keeps its
    /// place, so that nobody gets a new one over the old files.
    async fn delete(&self, session: &Arc<Session>) -> Result<bool, StoreError> {
        let deleted = self.store.forget(&session.owner, session.id.as_str()).await?;
        session.closing.gone.store(true, Ordering::Release);
        self.all().retain(|_, known| !Arc::ptr_eq(known, session));
        Ok(deleted)
    }

    /// Deletes the sessions that nobody used for the whole retention.
    pub(super) async fn expire(&self, clock: &Clock) {
        let Some(retention) = self.bounds.retention else { return };
        let begun = Instant::now();
        let now = clock.now();
        let stored = match self.store.stored().await {
            Ok(stored) => stored,
            Err(error) => return warn!(%error, "no session can be looked at for its retention"),
        };
        let is_old = |used: SystemTime| now.duration_since(used).is_ok_and(|unused| unused >= retention);
        for Stored { owner, session, .. } in stored.into_iter().filter(|stored| is_old(stored.used)) {
            let Ok(id) = session.parse() else { continue };
            if let Err(error) = self.expire_one(&owner, &id, begun).await {
                warn!(session_id = %id, %error, "a session could not be deleted after its retention");
            }
        }
    }

    async fn expire_one(&self, owner: &str, id: &SessionId, looked: Instant) -> Result<(), StoreError> {
        let session = self.get(owner, id).await?;
        if session.places.waiting() > 0 {
            return Ok(());
        }
        let Some((_alone, work)) = session.places.resting() else { return Ok(()) };
        if work.permit.is_some() || session.closing.is_gone() || session.closing.turned_since(looked) {
            return Ok(());
        }
        drop(work);
        self.delete(&session).await?;
        info!(session_id = %id, "files deleted: nobody used them for sessions.retention");
        Ok(())
    }
}

impl Session {
    /// What every turn begins with.
    pub(super) async fn begin_turn(&self) {
        self.touch();
        self.closing.note_turn();
        if !self.is_to_be_noted() {
            return;
        }
        let space = self.space.clone();
        let used = blocking(move || {
            space.set_closed(false);
            space.touch();
            Ok(())
        });
        if let Err(error) = used.await {
            warn!(session_id = %self.id, %error, "the time of a session's use could not be kept");
        }
    }
}

/// The time of day as it was at the start, and what passed since: a clock that is set in between moves nothing, so
/// that no jump of it deletes a session.
pub(super) struct Clock {
    day: SystemTime,
    start: Instant,
}

impl Clock {
    pub(super) fn new() -> Self {
        Self { day: SystemTime::now(), start: Instant::now() }
    }

    fn now(&self) -> SystemTime {
        let passed: Duration = self.start.elapsed();
        self.day.checked_add(passed).unwrap_or(self.day)
    }
}
