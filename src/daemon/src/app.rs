//! The only wiring: configuration in, a running daemon out, and its end.
//!
//! ```text
//!  store (lock) ─► engine ─► pool (runners, proof, leftovers) ─► sessions (whose they are) ─► tools ─► server ─► signal ─► drain
//! ```

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::api::{ApiConfig, Door, Local, Server, Socket};
use crate::config::{Config, UrlStyle};
use crate::engine::{Engine, EngineHost, EngineLimits};
use crate::execution::{ExecutionBounds, Executions};
use crate::feed::Feed;
use crate::metrics::Metrics;
use crate::pool::{Adopted, AgentTerms, Bounds, Pool, PoolConfig};
use crate::recent::Recent;
use crate::session::{SessionBounds, Sessions};
use crate::sign::{LinkTerms, Signer};
use crate::store::{self, Quota, Store, StoreError};
use crate::tools::{Room, ToolLimits, ToolSets, Tools};

/// How long the removal of all containers may take at the end: each is under a second, a few at a time.
const REMOVAL: Duration = Duration::from_secs(60);

/// Why a daemon did not start, or ended: one sentence for whoever started it.
#[derive(Debug, thiserror::Error)]
pub enum AppError {
    /// Another daemon has the store.
    #[error("{0}")]
    InUse(String),
    /// Everything else.
    #[error("{0}")]
    Failed(String),
}

fn failed(what: &'static str) -> impl Fn(&dyn std::fmt::Display) -> AppError {
    move |error| AppError::Failed(format!("{what}: {error}"))
}

/// Runs a daemon until a signal ends it.
///
/// # Errors
/// [`AppError`], with everything that it had made removed again where the engine lets it.
pub async fn serve(config: Config, metrics: Metrics) -> Result<(), AppError> {
    run(config, metrics, Port::AsConfigured, ended_by_signal()).await
}

/// What to do when `http.addr` is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Port {
    /// Nothing: it is an error.
    AsConfigured,
    /// Take a free one: links are good for as long as this daemon lives.
    OrAny,
}

/// Runs a daemon until `until` says why it is to end.
///
/// # Errors
/// As [`serve`].
pub(crate) async fn run(
    config: Config,
    metrics: Metrics,
    port: Port,
    until: impl Future<Output = &'static str>,
) -> Result<(), AppError> {
    let limits = &config.limits;
    let options = store::Options {
        quota: Quota { bytes: limits.data, entries: limits.data_inodes.into(), file: limits.file_size },
        total: config.store.max_bytes,
    };
    let store = Store::open(&config.store.root, options).map_err(|error| {
        let text = error.to_string();
        if matches!(error, StoreError::InUse(_)) { AppError::InUse(text) } else { AppError::Failed(text) }
    })?;
    let store = Arc::new(store);
    store.count(metrics.clone());
    // Bound first: a port in use is the commonest fault, and nothing was made yet.
    let mut listener = TcpListener::bind(config.http.addr).await;
    if port == Port::OrAny && listener.as_ref().is_err_and(|error| error.kind() == ErrorKind::AddrInUse) {
        warn!(addr = %config.http.addr, "the address (http.addr) is taken: links to files get another port");
        listener = TcpListener::bind((config.http.addr.ip(), 0)).await;
    }
    let listener = listener
        .map_err(|e| AppError::Failed(format!("cannot listen on {} (http.addr): {e}", config.http.addr)))?;
    let scraped =
        match config.metrics.addr {
            None => None,
            Some(addr) => Some(TcpListener::bind(addr).await.map_err(|error| {
                AppError::Failed(format!("cannot listen on {addr} (metrics.addr): {error}"))
            })?),
        };
    let metrics_addr = scraped.as_ref().and_then(|listener| listener.local_addr().ok());
    let bound = listener.local_addr().map_err(|e| AppError::Failed(e.to_string()))?;
    let base = config.http.base_url(bound);

    let host: EngineHost = config
        .engine
        .host
        .parse()
        .map_err(|e: crate::engine::HostError| AppError::Failed(format!("engine.host: {e}")))?;
    let connecting = Engine::connect_counted(&host, EngineLimits::default(), metrics.clone());
    let engine = connecting.await.map_err(|error| {
        let hint = if is_denied(&error) {
            ", which this user may not use: sudo usermod -aG docker $USER, then log in again"
        } else if error.is_unreachable() {
            "; is Docker running? (DOCKER_HOST or engine.host names it)"
        } else {
            ""
        };
        AppError::Failed(format!("{error}{hint}"))
    })?;
    let key = store.secret("agent.secret").map_err(|e| AppError::Failed(e.to_string()))?;
    let pool = PoolConfig { metrics: metrics.clone(), ..pool(&config, store.owner.clone(), key) };
    let (pool, adopted) = Pool::start(engine, pool).await.map_err(|error| failed("cannot serve")(&error))?;

    let Made { sessions, executions, server, local, socket } =
        match make(&config, &metrics, &store, &pool, adopted, &base).await {
            Ok(made) => made,
            Err(error) => {
                let _ = tokio::time::timeout(REMOVAL, pool.shutdown()).await;
                return Err(error);
            }
        };
    let stop = CancellationToken::new();
    let local = tokio::spawn(local.serve(stop.clone(), config.shutdown.drain));
    let sweeping = tokio::spawn(sessions.clone().sweep());
    let tidying = tokio::spawn(executions.clone().sweep());
    // Served to the very end: the last runs are worth counting too.
    let stop_scraping = CancellationToken::new();
    let scraping =
        scraped.map(|listener| tokio::spawn(server.clone().serve_metrics(listener, stop_scraping.clone())));
    let serving = tokio::spawn(server.serve((listener, socket), stop.clone(), config.shutdown.drain));
    info!(addr = %bound, url = base, "serving");
    if let Some(addr) = metrics_addr {
        info!(%addr, "serving the metrics, to whoever can reach this address");
    }

    let fatal = tokio::select! {
        why = until => {
            info!(why, "shutting down");
            None
        }
        error = pool.fatal() => Some(AppError::Failed(format!("cannot go on: {error}"))),
    };
    stop.cancel();
    let _ = serving.await;
    let _ = local.await;
    sweeping.abort();
    tidying.abort();
    let removal = async {
        executions.close().await;
        sessions.close_all().await;
        pool.shutdown().await;
    };
    if tokio::time::timeout(REMOVAL, removal).await.is_err() {
        warn!("some containers could not be removed; the next start of this store removes them");
    }
    stop_scraping.cancel();
    if let Some(scraping) = scraping {
        let _ = scraping.await;
    }
    store.close().await;
    info!("stopped");
    fatal.map_or(Ok(()), Err)
}

/// Whether the system forbids it.
fn is_denied(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut causes = std::iter::successors(Some(error), |error| error.source());
    causes.any(|cause| {
        cause.downcast_ref::<std::io::Error>().is_some_and(|io| io.kind() == ErrorKind::PermissionDenied)
    })
}

/// What serves clients.
struct Made {
    sessions: Arc<Sessions>,
    executions: Arc<Executions>,
    server: Arc<Server>,
    local: Local,
    socket: Socket,
}

/// Puts together what serves clients of a pool. When it fails the pool has containers already.
async fn make(
    config: &Config,
    metrics: &Metrics,
    store: &Arc<Store>,
    pool: &Pool,
    adopted: Vec<Adopted>,
    base: &str,
) -> Result<Made, AppError> {
    let secret = |name| store.secret(name).map_err(|e| AppError::Failed(e.to_string()));
    let key = match &config.files.secret {
        Some(secret) => secret.expose().as_bytes().to_vec(),
        None => secret("files.secret")?.to_vec(),
    };
    let owners = config.auth.tokens.iter().map(|token| token.name.as_str());
    let previous: Vec<_> =
        config.files.previous_secrets.iter().map(|secret| secret.expose().as_bytes().to_vec()).collect();
    let terms = LinkTerms { ttl: config.files.url_ttl, hashed: config.files.url_style == UrlStyle::Hashed };
    let signer = Signer::new(base, &key, &previous, owners, terms);
    if signer.is_hashed() {
        for stored in store.stored().await.map_err(|e| AppError::Failed(e.to_string()))? {
            signer.learn(&stored.owner, &stored.session);
        }
    }
    let sessions = Sessions::new(store.clone(), pool.clone(), session_bounds(config), metrics.clone())
        .map_err(|e| AppError::Failed(e.to_string()))?;
    let feed = Arc::new(Feed::default());
    let executions = Executions::new(sessions.clone(), execution_bounds(config), feed.clone());
    let begun = sessions.adopt(adopted).await;
    executions.recover(store, begun).await.map_err(|e| AppError::Failed(e.to_string()))?;
    let tools = Arc::new(Tools {
        sessions: sessions.clone(),
        pool: pool.clone(),
        signer,
        limits: tool_limits(config),
        sets: ToolSets::configured(&config.mcp.toolsets),
        reading: Room::default(),
        feed,
        metrics: metrics.clone(),
        recent: Recent::default(),
        executions: executions.clone(),
        exec_runner: config.exec.runner.clone(),
    });
    let api = ApiConfig {
        public_url: base.to_owned(),
        hosts: config.http.allowed_hosts.clone(),
        origins: config.http.allowed_origins.clone(),
        tokens: config.auth.tokens.clone(),
        metrics_token: config.metrics.token,
        max_body: config.http.max_body,
        header_timeout: config.http.header_timeout,
        body_timeout: config.http.body_timeout,
        resume_window: config.mcp.resume_window,
        mcp_folder: store.folder("mcp").map_err(|e| AppError::Failed(e.to_string()))?,
        mcp_key: secret("mcp.secret")?,
        max_file: config.limits.file_size,
        max_archive: (config.limits.data, config.limits.data_inodes.into()),
        conformance_fixtures: config.conformance_fixtures,
    };
    let what = |e: std::io::Error| {
        AppError::Failed(format!("cannot listen in {}: {e}", config.store.root.display()))
    };
    let key = secret("mcp.secret")?;
    let lines = Socket::bind(&config.store.root, Door::Lines).map_err(what)?;
    let socket = Socket::bind(&config.store.root, Door::Http).map_err(what)?;
    let local = Local::new(lines, tools.clone(), key, config.http.max_body);
    let server = Server::new(api, tools, store.clone());
    Ok(Made { sessions, executions, server, local, socket })
}

/// Resolves with the first signal that asks the daemon to end; further ones change nothing: `shutdown.drain` and
/// [`REMOVAL`] bound how long the end takes.
pub(crate) async fn ended_by_signal() -> &'static str {
    let (Ok(mut term), Ok(mut int), Ok(mut hup)) =
        (signal(SignalKind::terminate()), signal(SignalKind::interrupt()), signal(SignalKind::hangup()))
    else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = term.recv() => "SIGTERM",
        _ = int.recv() => "SIGINT",
        _ = hup.recv() => "SIGHUP",
    }
}

/// The pool as it is configured, of an owner whose containers' secrets are derived from this key.
pub fn pool(config: &Config, owner: String, key: [u8; 32]) -> PoolConfig {
    PoolConfig {
        settings: config.pool.clone(),
        bounds: bounds(config),
        owner,
        terms: AgentTerms { key, orphan_after: config.agent.orphan_after },
        images: config.runners.clone(),
        warm_parts: config.agent.warm_parts,
        metrics: Metrics::default(),
    }
}

/// What a container may use, of what is configured.
fn bounds(config: &Config) -> Bounds {
    let limits = &config.limits;
    Bounds {
        memory: limits.memory,
        cpus: limits.cpus,
        pids: limits.pids.into(),
        data: limits.data,
        data_inodes: limits.data_inodes.into(),
        tmp: limits.tmp,
        shm: limits.shm,
        open_files: limits.open_files.into(),
        file_size: limits.file_size,
        runtime: config.engine.runtime.clone().unwrap_or_default(),
    }
}

pub(crate) fn session_bounds(config: &Config) -> SessionBounds {
    SessionBounds {
        ttl: config.sessions.ttl,
        max: size(config.sessions.max.into()),
        sweep: config.sessions.sweep,
        when_full: config.sessions.when_full,
        queue: size(config.sessions.queue.into()),
        retention: config.sessions.retention,
        output: size(config.limits.output),
        max_log: config.files.max_log,
        data: config.limits.data,
        data_inodes: config.limits.data_inodes.into(),
        longest: config.timeouts.max,
    }
}

fn execution_bounds(config: &Config) -> ExecutionBounds {
    ExecutionBounds {
        max: size(config.exec.max.into()),
        per_session: size(config.exec.per_session.into()),
        keep: config.exec.keep,
        kept: size(config.exec.kept.into()),
    }
}

fn tool_limits(config: &Config) -> ToolLimits {
    ToolLimits {
        code: size(config.limits.code),
        upload: size(config.limits.upload),
        artifact_read: config.limits.artifact_read,
        output: size(config.limits.output),
        environment: size(config.limits.environment),
        stdin: size(config.limits.stdin),
        run_code: config.timeouts.run_code,
        run_python: config.timeouts.run_python,
        execute_code: config.timeouts.execute_code,
        longest: config.timeouts.max,
        memory: config.limits.memory,
        file_size: config.limits.file_size,
    }
}

fn size(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}
