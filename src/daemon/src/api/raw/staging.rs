//! Permits for uploads on their way to the disk, some for each tenant: one tenant's slow bodies delay no
//! other tenant.
//!
//! It must never keep more tenants than there are tokens.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::refusal::RawRefusal;
use crate::api::body::BodyError;

/// Uploads of one tenant that are staged at one time. Each holds a few MiB of memory and one open file; more
/// wait.
const PERMITS: usize = 32;

/// How long an upload waits for a permit.
const PATIENCE: Duration = Duration::from_secs(5);

/// The permits, by tenant.
#[derive(Default)]
pub(super) struct Staging(Mutex<HashMap<String, Arc<Semaphore>>>);

impl Staging {
    /// A permit of this tenant.
    ///
    /// # Errors
    /// [`BodyError::NoRoom`]: none became free in time.
    pub(super) async fn permit(&self, tenant: &str) -> Result<OwnedSemaphorePermit, RawRefusal> {
        let permits = {
            let mut tenants = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            match tenants.get(tenant) {
                Some(permits) => permits.clone(),
                None => tenants.entry(tenant.to_owned()).or_insert(Arc::new(Semaphore::new(PERMITS))).clone(),
            }
        };
        let permit = tokio::time::timeout(PATIENCE, permits.acquire_owned()).await;
        permit.ok().and_then(Result::ok).ok_or(RawRefusal::Body(BodyError::NoRoom))
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
        for _ in 0..PERMITS {
            held.push(staging.permit("slow").await.ok().unwrap());
        }
        assert!(staging.permit("slow").now_or_never().is_none(), "it waits");
        assert!(staging.permit("other").await.is_ok());
        held.pop();
        assert!(staging.permit("slow").await.is_ok());
    }
}
