//! The addresses that a daemon listens on. They are taken before anything is made: a port in use is the most
//! frequent fault.
//!
//! Nothing here may answer anybody.

use std::net::SocketAddr;

use tokio::net::TcpListener;

use super::AppError;
use crate::config::Config;
use crate::{listener, stand_in_port};

/// What to do when `http.addr` is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Port {
    /// Fail.
    AsConfigured,
    /// Take another, and the same one the next time if it is free then: see [`crate::stand_in_port`].
    OrAnother,
}

/// The open listeners.
pub(super) struct Listeners {
    pub(super) http: TcpListener,
    /// The listener of the metrics, where it has an address of its own.
    pub(super) metrics: Option<TcpListener>,
    /// The listener of links to ports, if there is one.
    pub(super) ports: Option<TcpListener>,
    /// The listener of peers, if there are any.
    pub(super) peers: Option<TcpListener>,
    /// What clients call the first one by.
    pub(super) url: String,
}

impl Listeners {
    /// Takes all addresses of the configuration.
    pub(super) async fn open(config: &Config, port: Port) -> Result<Self, AppError> {
        let addr = config.http.addr;
        let http = match port {
            Port::AsConfigured => listener::bind(addr).await,
            Port::OrAnother => stand_in_port::bind(addr, &config.store.root).await,
        };
        let (http, bound) = http
            .and_then(|http| http.local_addr().map(|bound| (http, bound)))
            .map_err(|error| cannot_listen(addr, "http.addr", error))?;
        Ok(Self {
            http,
            metrics: listen(config.metrics.addr, "metrics.addr").await?,
            ports: listen(config.ports.addr, "ports.addr").await?,
            peers: listen(config.cluster.as_ref().map(|cluster| cluster.addr), "cluster.addr").await?,
            url: config.http.base_url(bound),
        })
    }
}

/// A listener at this address, if there is one.
async fn listen(addr: Option<SocketAddr>, setting: &'static str) -> Result<Option<TcpListener>, AppError> {
    let Some(addr) = addr else { return Ok(None) };
    listener::bind(addr).await.map(Some).map_err(|error| cannot_listen(addr, setting, error))
}

fn cannot_listen(addr: SocketAddr, setting: &'static str, error: std::io::Error) -> AppError {
    AppError::Listen { addr, setting, error }
}
