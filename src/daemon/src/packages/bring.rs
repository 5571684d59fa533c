//! Brings one layer: looks for it if an earlier daemon knew it, else waits for a turn and fetches it.
//!
//! It must never begin a fetch that nobody waits for, nor end one that has begun because its callers have
//! gone.

use std::sync::Arc;
use std::time::Instant;

use tokio::sync::watch;
use tracing::{debug, info, warn};

use super::fetch::FetchError;
use super::list::{LayerKey, PackageList};
use super::shelf::Layer;
use super::{News, Packages, ending};
use crate::pool::Runner;
use crate::tenants::TenantShare;
use crate::tenants::turns::FairPlace;

/// Brings one layer.
pub(super) struct BringTask {
    pub(super) packages: Arc<Packages>,
    pub(super) key: LayerKey,
    pub(super) directory: String,
    /// What an earlier daemon knew of it.
    pub(super) earlier: Option<Layer>,
    pub(super) runner: Runner,
    pub(super) list: PackageList,
    /// Who asked for it first.
    pub(super) tenant: TenantShare,
    /// To those who wait for it.
    pub(super) sender: Arc<watch::Sender<News>>,
}

impl BringTask {
    /// `None` if nobody waited for it any more when its turn had not come: then it is not in the queue.
    pub(super) async fn bring(self) -> Option<Result<(), FetchError>> {
        if let Some(layer) = &self.earlier
            && let Some(done) = self.look(layer).await
        {
            return Some(done);
        }
        let begun = Instant::now();
        let fetching = async {
            let _place = self.turn().await?;
            self.packages.save().await; // that something is written, in case this daemon dies meanwhile
            Some(self.packages.fetcher.fetch(self.tenant, &self.runner, &self.list, &self.directory).await)
        };
        let fetched = tokio::select! {
            fetched = fetching => fetched,
            () = self.packages.ending.cancelled() => Some(Err(ending())),
        };
        let Some(fetched) = fetched else {
            debug!(packages = self.list.entries().join(" "), "nobody waits for these packages any more");
            return None;
        };
        Some(self.note(fetched, begun))
    }

    /// Looks whether a layer of an earlier daemon is there. `None`: it is not, and has to be fetched.
    async fn look(&self, layer: &Layer) -> Option<Result<(), FetchError>> {
        let packages = &self.packages;
        match packages.fetcher.layers.holds(&self.runner.image_id, &layer.directory).await {
            Ok(true) => {
                packages.state().shelf.fetched(self.key, layer.clone(), Instant::now());
                Some(Ok(()))
            }
            Ok(false) => {
                warn!(packages = layer.locked.join(" "), "a layer of packages is gone");
                None
            }
            Err(error) => {
                packages.state().shelf.not_seen(&self.key);
                Some(Err(error.into()))
            }
        }
    }

    /// Waits for the turn of this fetch; `None` if it was given up.
    async fn turn(&self) -> Option<FairPlace> {
        let mut turn = std::pin::pin!(self.packages.fetches.enter(self.tenant));
        loop {
            tokio::select! {
                biased;
                // A call that joined meanwhile is seen under the lock: then the fetch keeps its place.
                () = self.sender.closed() => if self.give_up() { return None },
                place = &mut turn => return Some(place),
            }
        }
    }

    fn give_up(&self) -> bool {
        let mut state = self.packages.state();
        let is_out = state.queue.give_up(&self.key, |news| news.receiver_count() > 0);
        if is_out {
            state.shelf.failed(&self.key);
        }
        is_out
    }

    /// Notes the end of a fetch.
    fn note(&self, fetched: Result<Layer, FetchError>, begun: Instant) -> Result<(), FetchError> {
        let packages = &self.packages;
        let asked = self.list.entries().join(" ");
        let ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        let outcome = fetched.as_ref().map_or_else(|error| error.fault.as_str(), |_| "ok");
        packages.metrics.packages_fetched(outcome, begun.elapsed());
        match fetched {
            Ok(layer) => {
                info!(
                    language = self.runner.language,
                    packages = asked,
                    bytes = layer.bytes,
                    files = layer.entries,
                    ms,
                    "packages fetched"
                );
                packages.state().shelf.fetched(self.key, layer, Instant::now());
                Ok(())
            }
            Err(error) => {
                warn!(language = self.runner.language, packages = asked, ms, %error, "packages not fetched");
                packages.state().shelf.failed(&self.key);
                Err(error)
            }
        }
    }
}
