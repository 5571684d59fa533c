//! The wiring of a node of a cluster: its table of owners, and what it knows of its peers when it begins.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::error::AppError;
use crate::cluster::Cluster;
use crate::cluster::owners::Owners;
use crate::config::{ClusterSettings, Config};
use crate::metrics::Metrics;

/// This node among its peers, each of which was asked once; `None` on a single machine.
pub(super) async fn open(config: &Config, metrics: &Metrics) -> Result<Option<Arc<Cluster>>, AppError> {
    let Some(settings) = &config.cluster else { return Ok(None) };
    let owners = owners(settings)?;
    let cluster = Cluster::new(settings, owners, metrics.clone());
    let cluster = cluster.map_err(|error| AppError::Cluster(error.to_string()))?;
    cluster.ask_all(&mut BTreeSet::new()).await;
    Ok(Some(Arc::new(cluster)))
}

/// The table of owners that all nodes share.
fn owners(settings: &ClusterSettings) -> Result<Arc<dyn Owners>, AppError> {
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
