//! A daemon that serves, and its end. It must never remove a container before all files are saved.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::{AppError, cluster};
use crate::services::Services;

/// How long the removal of all containers may take at the end: each takes less than a second, and a few go at
/// a time.
pub(super) const REMOVAL: Duration = Duration::from_secs(60);
/// How long the end waits for an engine that does not answer: without it no container can be removed.
const ENGINE_BACK: Duration = Duration::from_secs(5);

/// A daemon that serves.
pub(super) struct ServingApp {
    pub(super) services: Arc<Services>,
    pub(super) requests: Vec<JoinHandle<()>>,
    pub(super) sweep: JoinHandle<()>,
    /// Take up what becomes of tokens.
    pub(super) tokens: [JoinHandle<()>; 2],
    pub(super) scraping: Option<JoinHandle<()>>,
    pub(super) stop_scraping: CancellationToken,
}

impl ServingApp {
    /// Waits for a reason to end.
    ///
    /// # Errors
    /// The pool cannot go on, or another daemon is this node now.
    pub(super) async fn until(&self, why: impl Future<Output = &'static str>) -> Result<(), AppError> {
        tokio::select! {
            why = why => {
                info!(why, "shutting down");
                let _ = sd_notify::notify(false, &[sd_notify::NotifyState::Stopping]);
                Ok(())
            }
            error = self.services.pool.fatal() => Err(AppError::CannotGoOn(error)),
            replaced = cluster::replaced(self.services.store.ledger()) => Err(replaced),
        }
    }

    /// Ends: first the requests, then sessions and containers, then the metrics, which count to the end, then
    /// the store.
    pub(super) async fn drain(self) {
        let Self { services, requests, sweep, tokens, scraping, stop_scraping } = self;
        services.stopping.cancel();
        for request in requests {
            let _ = request.await;
        }
        sweep.abort();
        tokens.iter().for_each(JoinHandle::abort);
        let removal = async {
            services.executions.close().await;
            if let Some(packages) = &services.packages {
                packages.close().await;
            }
            services.sessions.close_all().await;
            tokio::select! {
                () = services.pool.shutdown() => true,
                () = services.pool.engine_lost(ENGINE_BACK) => false,
            }
        };
        if tokio::time::timeout(REMOVAL, removal).await != Ok(true) {
            warn!("some containers could not be removed; the next start of this store removes them");
        } else if let Some(packages) = &services.packages {
            packages.forget_if_empty().await;
        }
        stop_scraping.cancel();
        if let Some(scraping) = scraping {
            let _ = scraping.await;
        }
        let audit = services.audit.clone();
        let _ = tokio::task::spawn_blocking(move || audit.close()).await;
        services.store.close().await;
        if let Some(ledger) = services.store.ledger()
            && let Err(error) = ledger.leave().await
        {
            warn!(%error, "other machines wait for the end of this lease before they take its sessions");
        }
        info!("stopped");
    }
}
