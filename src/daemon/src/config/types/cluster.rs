//! Many machines.

use std::net::SocketAddr;

use crate::config::value::Secret;

/// This node among others.
#[derive(Debug, Clone)]
#[cfg_attr(test, derive(PartialEq))]
pub struct ClusterSettings {
    /// `host:port` of the peers; a host may stand for several.
    pub peers: Vec<String>,
    /// The key of the cluster.
    pub key: Secret,
    /// The name of this node.
    pub name: String,
    /// The listener for peers.
    pub addr: SocketAddr,
}
