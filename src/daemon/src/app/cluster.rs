//! The wiring of a node of a cluster: its table of owners, and what it knows of its peers when it begins.

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};

use paddock_ledger::{Ledger, Standing};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::error::AppError;
use crate::cluster::Cluster;
use crate::cluster::in_ledger::OwnersInLedger;
use crate::cluster::owners::Owners;
use crate::config::{ClusterSettings, Config};
use crate::metrics::Metrics;
use crate::session::Sessions;
use crate::store::Store;

/// This node among its peers, each of which was asked once; `None` on a single machine.
pub(super) async fn open(
    config: &Config,
    store: &Arc<Store>,
    metrics: &Metrics,
) -> Result<Option<Arc<Cluster>>, AppError> {
    let Some(settings) = &config.cluster else { return Ok(None) };
    let owners = owners(settings, store)?;
    let cluster = Cluster::new(settings, owners, metrics.clone());
    let cluster = cluster.map_err(|error| AppError::Cluster(error.to_string()))?;
    cluster.ask_all(&mut BTreeSet::new()).await;
    Ok(Some(Arc::new(cluster)))
}

/// The table of owners that all nodes share.
fn owners(settings: &ClusterSettings, store: &Arc<Store>) -> Result<Arc<dyn Owners>, AppError> {
    if let Some(ledger) = store.ledger() {
        return Ok(OwnersInLedger::new(store.clone(), ledger.clone()));
    }
    #[cfg(feature = "conformance-fixtures")]
    if let Some(folder) = std::env::var_os(crate::cluster::table::FOLDER).filter(|folder| !folder.is_empty())
    {
        let table = crate::cluster::table::TableInFolder::new(folder.as_ref(), &settings.name);
        return Ok(Arc::new(table));
    }
    let _ = settings;
    let why =
        "cluster.peers names peers, and there is no table that says whose a session is: it takes store.url";
    Err(AppError::Cluster(why.to_owned()))
}

/// Returns when another daemon has joined under this node's name: this one never acknowledges anything again.
pub(super) async fn replaced(ledger: Option<&Ledger>) -> AppError {
    if let Some(ledger) = ledger {
        let mut standing = ledger.standing();
        if standing.wait_for(|now| *now == Standing::Replaced).await.is_ok() {
            return AppError::Cluster(format!(
                "another daemon has joined as node {:?}, or the row of this one is gone: it may not answer \
                 for its sessions any more; each node needs its own cluster.name",
                ledger.node().name
            ));
        }
    }
    std::future::pending().await
}

/// Ends what runs here whenever the lease of this node ends: what it owned may be another node's by then.
pub(super) async fn end_with_lease(ledger: Ledger, sessions: Weak<Sessions>, stopping: CancellationToken) {
    let mut standing = ledger.standing();
    drop(ledger); // or it would be kept for ever
    while stopping
        .run_until_cancelled(standing.wait_for(|now| *now == Standing::Holds))
        .await
        .is_some_and(|held| held.is_ok())
        && stopping
            .run_until_cancelled(standing.wait_for(|now| *now != Standing::Holds))
            .await
            .is_some_and(|ended| ended.is_ok())
    {
        let Some(sessions) = sessions.upgrade() else { return };
        warn!(
            "the lease of this node has ended: what runs here ends, since another node may have its sessions"
        );
        for owner in sessions.live_by_owner().into_keys() {
            sessions.close_owner(&owner).await;
        }
    }
}
