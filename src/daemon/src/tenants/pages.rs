//! Pages of the book of tokens: what changes them, and what ends with a page.
//!
//! It must never leave a token good that is revoked or over: what is not on the new page ends at once.

use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use tokio::sync::watch;
use tracing::{info, warn};

use super::watched::Watched;
use super::{KnownToken, Tenant, Tenants, file};
use crate::store::StoreClock;

/// How often the file of tokens is looked at. A revoked token ends this much later, and a little more.
const LOOK: Duration = Duration::from_millis(250);

impl Tenants {
    /// Changes whenever tokens come or go, once those that are gone have ended.
    pub fn pages(&self) -> watch::Receiver<u64> {
        self.pages.subscribe()
    }

    /// The tenants that are gone since the last call.
    pub fn take_gone(&self) -> Vec<Arc<Tenant>> {
        std::mem::take(&mut self.gone.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// What is wrong with the file of tokens; what it said before is still good.
    pub fn fault(&self) -> Option<String> {
        self.watched().fault.clone()
    }

    /// Takes up changes of the file, and ends tokens at their time, until the future is dropped.
    pub async fn watch(self: Arc<Self>) {
        let mut tick = tokio::time::interval(LOOK);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tick.tick().await;
            let this = self.clone();
            // A file system can hang, and must not hang anybody else.
            let looked = tokio::task::spawn_blocking(move || this.look(StoreClock::new().for_expiry()));
            if looked.await.is_err() {
                warn!("the file of tokens could not be looked at");
            }
        }
    }

    /// Takes up what has changed since the last look.
    pub(super) fn look(&self, now: SystemTime) {
        let stamped = self.file.as_ref().map(|file| (file, file::stamp(&file.path)));
        let (has_changed, went_back) = {
            let mut watched = self.watched();
            let changed = stamped.is_some_and(|(file, stamp)| watched.look(file, stamp, &self.metrics));
            (changed, watched.went_back(now))
        };
        let ends = self.book().next_end().is_some_and(|end| end <= now);
        if has_changed || ends || went_back {
            let (tokens, is_known) = {
                let watched = self.watched();
                (watched.tokens.clone(), watched.is_known)
            };
            self.turn_page(&tokens, is_known, now);
        }
    }

    /// A new page of the book: what is not on it ends at once.
    pub(super) fn turn_page(&self, of_file: &[KnownToken], has_file: bool, now: SystemTime) {
        let earlier = self.book();
        let tokens = self.configured.iter().chain(of_file);
        let is_named = self.file.as_ref().is_some_and(|file| file.mark.is_none());
        let is_guarded = is_named || has_file || !self.configured.is_empty();
        let next = Arc::new(earlier.next(tokens, is_guarded, now, |name| self.number(name)));
        *self.book.write().unwrap_or_else(PoisonError::into_inner) = next.clone();
        let gone = next.end_what_is_not_in(&earlier);
        for tenant in &gone {
            info!(token = %tenant.name, "every token of this name is revoked or over: what it had is ended");
            self.places.state().core.forget(tenant.id);
        }
        self.metrics.tokens(next.len());
        self.gone.lock().unwrap_or_else(PoisonError::into_inner).extend(gone);
        self.pages.send_modify(|page| *page += 1);
    }

    fn watched(&self) -> MutexGuard<'_, Watched> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
