//! What a call has of the gate: its turn in a session, and the session's permit. Dropping either only tells
//! the driver.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::MutexGuard;
use tokio_util::sync::CancellationToken;

use super::driver::GateDriver;
use super::message::{CallId, Event, SessionKey};
use crate::session::lease::Leases;
use crate::session::registry::Session;

/// A call's right to be inside its session, until it is dropped.
pub struct Turn {
    session: Arc<Session>,
    /// When the call asked, as its waits for its turn, a permit and a container count it: they end
    /// `pool.wait` later.
    pub(in crate::session) since: Instant,
    /// Cancelled when a call closes the session.
    closing: CancellationToken,
    // Dropped last: until then the session is the call's.
    pass: Pass,
}

/// Tells the driver that the call leaves.
pub(super) struct Pass {
    driver: Arc<GateDriver>,
    key: SessionKey,
    call: CallId,
}

impl Pass {
    pub(super) fn new(driver: Arc<GateDriver>, key: SessionKey, call: CallId) -> Self {
        Self { driver, key, call }
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        self.driver.leave(&self.key, self.call);
    }
}

impl Turn {
    pub(super) fn new(session: Arc<Session>, since: Instant, closing: CancellationToken, pass: Pass) -> Self {
        Self { session, since, closing, pass }
    }

    /// The session that the call is in.
    pub fn session(&self) -> &Arc<Session> {
        &self.session
    }

    pub(super) fn key(&self) -> &SessionKey {
        &self.pass.key
    }

    pub(super) fn call(&self) -> CallId {
        self.pass.call
    }

    /// How long it is since the call asked.
    pub(in crate::session) fn waited(&self) -> Duration {
        tokio::time::Instant::now().saturating_duration_since(self.since.into())
    }

    /// Keeps all other calls out until [`Turn::for_program`], if none is in; whether it does.
    #[must_use]
    pub fn claim(&self) -> bool {
        self.pass.driver.claim(self.key(), self.call())
    }

    /// The call was held back for so long, and has as long for its container as if it had not been.
    #[must_use]
    pub fn held_back(mut self, held: Duration) -> Self {
        self.since += held;
        let (key, call) = (self.key().clone(), self.call());
        self.pass.driver.tell(Event::Delay { key, call, by: held });
        self
    }

    /// Lets programs of `language` in beside the call, which runs one itself.
    #[must_use]
    pub fn for_program(self, language: &str) -> Self {
        let (key, call) = (self.key().clone(), self.call());
        self.pass.driver.tell(Event::Share { key, call, language: language.to_owned() });
        self
    }

    /// The session's containers, and files on their way.
    pub(in crate::session) async fn work(&self) -> MutexGuard<'_, Leases> {
        self.session.work().await
    }

    /// Does `work`, which `cancel` ends; it is cancelled when a call closes the session. Also whether it was.
    pub async fn unless_closed<T>(
        &self,
        cancel: &CancellationToken,
        work: impl Future<Output = T>,
    ) -> (T, bool) {
        tokio::pin!(work);
        tokio::select! {
            biased;
            () = self.closing.cancelled() => cancel.cancel(),
            done = &mut work => return (done, false),
        }
        (work.await, true)
    }
}
