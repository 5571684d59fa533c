//! Places for uploads on their way to the disk, some for each tenant: one tenant's slow bodies take nobody else's.
//!
//! It must never keep more tenants than there are tokens.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::refusal::Refusal;
use crate::api::body::BodyError;

/// Uploads of one tenant staged at one time. Each holds up to a few MiB in memory and one open file; more wait.
const PLACES: usize = 32;

/// How long an upload waits for a place among those.
const PATIENCE: Duration = Duration::from_secs(5);

/// Who stages how much.
#[derive(Default)]
pub(super) struct Staging(Mutex<HashMap<String, Arc<Semaphore>>>);

impl Staging {
    /// A place among this tenant's uploads.
    ///
    /// # Errors
    /// [`BodyError::NoRoom`]: none became free in time.
    pub(super) async fn place(&self, tenant: &str) -> Result<OwnedSemaphorePermit, Refusal> {
        let places = {
            let mut tenants = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            match tenants.get(tenant) {
                Some(places) => places.clone(),
                None => tenants.entry(tenant.to_owned()).or_insert(Arc::new(Semaphore::new(PLACES))).clone(),
            }
        };
        let place = tokio::time::timeout(PATIENCE, places.acquire_owned()).await;
        place.ok().and_then(Result::ok).ok_or(Refusal::Body(BodyError::NoRoom))
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[tokio::test]
    async fn a_tenant_that_stages_all_it_may_delays_only_itself() {
        let staging = Staging::default();
        let mut held = Vec::new();
        for _ in 0..PLACES {
            held.push(staging.place("slow").await.ok().unwrap());
        }
        assert!(staging.place("slow").now_or_never().is_none(), "it waits");
        assert!(staging.place("other").await.is_ok());
        held.pop();
        assert!(staging.place("slow").await.is_ok());
    }
}
