//! The configuration, in the form that each part of the daemon takes.
//!
//! It must never decide anything: each value is the configured one.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use paddock_ledger::{LedgerConfig, Node, Terms};
use tokio::net::TcpListener;

use super::error::AppError;
use crate::api::{ApiConfig, ServerTls};
use crate::config::{Config, DropSettings, MountSettings, SharedStoreSettings, UrlStyle};
use crate::egress::CaBundle;
use crate::engine::{EngineHost, HostError};
use crate::execution::ExecutionBounds;
use crate::metrics::Metrics;
use crate::pool::mount::{places, touches};
use crate::pool::{AgentFiles, AgentTerms, Bounds, DataPlace, DiskBound, HostMount, PoolConfig, RunnerTerms};
use crate::ports::PortLinks;
use crate::session::SessionBounds;
use crate::sign::LinkTerms;
use crate::store::{Amount, Options, Quota};
use crate::tenants::Tenants;
use crate::tools::ToolLimits;

/// How long a content in S3 that no file names is kept.
const CONTENT_GRACE: Duration = Duration::from_secs(24 * 3600);

/// The address of the engine, and how to connect to it.
///
/// # Errors
/// `engine.host` cannot be used.
pub fn engine_host(config: &Config) -> Result<EngineHost, HostError> {
    EngineHost::new(&config.engine.host, config.engine.certificates.as_deref())
}

/// The pool of an owner. The secrets of its containers are derived from this key.
pub fn pool(config: &Config, owner: String, key: [u8; 32]) -> PoolConfig {
    PoolConfig {
        settings: config.pool.clone(),
        runners: RunnerTerms {
            bounds: container_bounds(config),
            idle: config.pool.idle_per_runner,
            // The pool finds out what its engine has.
            disk: DiskBound::Watched,
            coding_agents: config.coding_agents.clone(),
            runners: config.runners.clone(),
            mounts: mounts(config),
            packages: config.packages.fetch_bounds(),
        },
        owner,
        terms: AgentTerms {
            key,
            orphan_after: config.agent.orphan_after,
            listen_ports: config.egress.listen_ports.clone(),
        },
        agent_files: AgentFiles::new(config.egress.ca_bundle.as_ref().map(CaBundle::for_programs)),
        warm_parts: config.agent.warm_parts,
        // `serve` has a store to keep their record in.
        snapshots: None,
        workspaces: BTreeSet::new(),
        rescue: None,
        // `serve` has tenants.
        tenants: Arc::default(),
        metrics: Metrics::default(),
    }
}

/// The ledger of a store of many machines, for a node whose store on disk has this id.
pub(crate) fn ledger(config: &Config, id: &str) -> Option<LedgerConfig> {
    let SharedStoreSettings { url, objects } = config.store.shared.clone()?;
    let name = config.cluster.as_ref().map_or_else(node_name, |cluster| cluster.name.clone());
    let node = Node { name, id: id.to_owned(), address: String::new() };
    let (terms, grace) = (Terms::default(), CONTENT_GRACE);
    Some(LedgerConfig { url, objects, node, terms, grace })
}

/// The name of this node: that of its host.
fn node_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// The folders of the host that containers have. Only an engine on a Unix socket is on this host.
pub(crate) fn mounts(config: &Config) -> Vec<HostMount> {
    let is_here = engine_host(config).is_ok_and(|host| host.unix_path().is_some());
    let mounts = config.mounts.iter().cloned();
    let host_mount =
        |MountSettings { name, path, about, runners }| HostMount { name, path, about, runners, is_here };
    mounts.map(host_mount).collect()
}

/// The folders of all drop folders, by the names of tokens; each must be a folder that no link leads to.
pub(super) fn drop_roots(config: &Config) -> Result<HashMap<String, PathBuf>, AppError> {
    let roots = config.drops.iter().map(|DropSettings { tenant, path }| {
        crate::pool::mount::look(path)
            .map_err(|why| AppError::Drops(format!("drops: {} {why}", path.display())))?;
        Ok((tenant.clone(), path.clone()))
    });
    roots.collect()
}

/// Refuses a drop folder in which the engine on this host keeps its images and containers, or that is in it.
pub(super) fn drops_beside_engine(drops: &[DropSettings], root: Option<&Path>) -> Result<(), AppError> {
    let closed: Vec<PathBuf> = root.into_iter().flat_map(places).collect();
    for DropSettings { path, .. } in drops {
        if let Some(why) = closed.iter().find_map(|closed| touches(path, closed)) {
            return Err(AppError::Drops(format!("drops: {} {why}", path.display())));
        }
    }
    Ok(())
}

/// The limits of a language's container.
fn container_bounds(config: &Config) -> Bounds {
    let limits = &config.limits;
    Bounds {
        memory: limits.memory,
        cpus: limits.cpus,
        pids: limits.pids.into(),
        data: limits.data,
        data_inodes: limits.data_inodes.into(),
        place: DataPlace::Memory,
        stored: limits.data,
        tmp: limits.tmp,
        shm: limits.shm,
        open_files: limits.open_files.into(),
        file_size: limits.file_size,
        runtime: config.engine.runtime.clone().unwrap_or_default(),
    }
}

/// The quotas of the store.
pub(crate) fn store_options(config: &Config) -> Options {
    let limits = &config.limits;
    Options {
        quota: Quota { bytes: limits.data, entries: limits.data_inodes.into(), file: limits.file_size },
        total: Amount { bytes: config.store.max_bytes, entries: config.store.max_files },
    }
}

pub(crate) fn session_bounds(config: &Config, tenants: Arc<Tenants>) -> SessionBounds {
    SessionBounds {
        ttl: config.sessions.ttl,
        max: size(config.sessions.max.into()),
        sweep: config.sessions.sweep,
        when_full: config.sessions.when_full,
        queue: size(config.sessions.queue.into()),
        waiting: size(config.pool.queue.into()),
        wait: config.pool.wait,
        retention: config.sessions.retention,
        kept: config.tasks.kept,
        output: size(config.limits.output),
        shown: size(config.limits.shown),
        max_log: config.files.max_log,
        data: config.limits.data,
        data_inodes: config.limits.data_inodes.into(),
        longest: config.timeouts.max,
        tenants,
    }
}

pub(super) fn execution_bounds(config: &Config) -> ExecutionBounds {
    ExecutionBounds {
        max: size(config.exec.max.into()),
        per_session: size(config.exec.per_session.into()),
        keep: config.exec.keep,
        kept: size(config.exec.kept.into()),
    }
}

pub(super) fn link_terms(config: &Config) -> LinkTerms {
    LinkTerms { ttl: config.files.url_ttl, hashed: config.files.url_style == UrlStyle::Hashed }
}

/// Links to ports: to their own listener if there is one, or to the daemon at `url`.
pub(super) fn port_links(
    config: &Config,
    listener: Option<&TcpListener>,
    url: &str,
    secret: &[u8; 32],
    tenants: &Tenants,
) -> Arc<PortLinks> {
    let bound = listener.and_then(|listener| listener.local_addr().ok());
    let base = bound.map(|bound| config.ports.base_url(config.http.scheme(), bound));
    let book = tenants.book();
    let owners = book.tenants().map(|tenant| &*tenant.name);
    Arc::new(PortLinks::new(base.as_deref(), url, secret, owners))
}

pub(super) fn tool_limits(config: &Config) -> ToolLimits {
    ToolLimits {
        code: size(config.limits.code),
        upload: size(config.limits.upload),
        artifact_read: config.limits.artifact_read,
        output: size(config.limits.output),
        shown: size(config.limits.shown),
        environment: size(config.limits.environment),
        stdin: size(config.limits.stdin),
        run_code: config.timeouts.run_code,
        run_python: config.timeouts.run_python,
        execute_code: config.timeouts.execute_code,
        task: config.tasks.clone(),
        longest: config.timeouts.max,
        memory: config.limits.memory,
        file_size: config.limits.file_size,
    }
}

/// The HTTP side of a daemon whose public URL is `base`. MCP sessions are kept in `mcp_folder`, and `mcp_key`
/// derives the ids of sessions that their clients did not name.
pub(super) fn api(
    config: &Config,
    (base, tls): (&str, Option<Arc<ServerTls>>),
    mcp_folder: PathBuf,
    mcp_key: [u8; 32],
) -> ApiConfig {
    ApiConfig {
        public_url: base.to_owned(),
        hosts: config.http.allowed_hosts.clone(),
        origins: config.http.allowed_origins.clone(),
        metrics_token: config.metrics.token,
        tls,
        max_body: config.http.max_body,
        header_timeout: config.http.header_timeout,
        body_timeout: config.http.body_timeout,
        write_timeout: config.http.write_timeout,
        resume_window: config.mcp.resume_window,
        mcp_folder,
        mcp_key,
        max_file: config.limits.file_size,
        max_archive: (config.limits.data, config.limits.data_inodes.into()),
        #[cfg(feature = "conformance-fixtures")]
        conformance_fixtures: config.conformance_fixtures,
    }
}

fn size(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drop_folder_is_apart_from_what_the_engine_keeps() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        std::fs::create_dir(root.join("engine")).unwrap();
        std::os::unix::fs::symlink(root.join("engine"), root.join("link")).unwrap();
        let refused = |drop: &str| {
            let drops = [DropSettings { tenant: "default".to_owned(), path: root.join(drop) }];
            drops_beside_engine(&drops, Some(&root.join("link"))).is_err()
        };
        assert!(refused("engine") && refused("engine/volumes") && refused("link") && refused(""));
        assert!(!refused("drops") && !refused("engine2"));
    }
}
