//! The only wiring: from a configuration to a running daemon, and its end.
//!
//! ```text
//!  open   store (lock) ─► listeners ─► engine ─► pool (runners, proof, leftovers)
//!         ─► sessions (their containers) ─► executions ─► tools ─► server
//!  serve  until a reason to end
//!  drain  no new requests ─► those in progress end ─► all files saved ─► all containers removed
//! ```
//!
//! A second signal cuts the drain short.

mod cluster;
mod error;
mod limits;
mod listeners;
mod serving;
mod settings;
mod tokens;

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tracing::info;

pub use self::error::AppError;
use self::listeners::Listeners;
pub(crate) use self::listeners::Port;
use self::serving::{REMOVAL, ServingApp};
#[cfg(test)]
pub(crate) use self::settings::session_bounds;
pub use self::settings::{engine_host, pool};
pub(crate) use self::settings::{ledger, mounts, store_options};
use crate::api::{Ending, LocalServer, Server, ServerTls, Socket, SocketKind};
use crate::audit::AuditLog;
use crate::cluster::Cluster;
use crate::cluster::keys::ClusterKeys;
use crate::config::Config;
use crate::drops::Drops;
use crate::egress::Egress;
use crate::engine::{Engine, EngineLimits};
use crate::execution::Executions;
use crate::metrics::Metrics;
use crate::notifications::Notifications;
use crate::packages::Packages;
use crate::pool::{Adopted, Pool, PoolConfig, Rescue, SnapshotSettings};
use crate::ports::PortForwarder;
use crate::run_history::RunHistory;
use crate::services::Services;
use crate::session::{LostFiles, Sessions};
use crate::sign::Signer;
use crate::signals::Signals;
use crate::store::{Store, StoreError};
use crate::tenants::Tenants;
use crate::tools::{MessageShares, ReadPermits, TaskPermits, ToolSets, Tools};

/// When a daemon is to end.
pub(crate) struct Until<F> {
    /// Resolves with the reason to end.
    pub(crate) why: F,
    /// Cancelled to cut the drain short: what still runs is ended, and its files are saved.
    pub(crate) hurry: CancellationToken,
}

/// Runs a daemon until a signal ends it. A second signal cuts the drain short.
///
/// # Errors
/// [`AppError`], once everything that the daemon had made is removed again where the engine lets it.
pub async fn serve(config: Config, metrics: Metrics) -> Result<(), AppError> {
    let hurry = CancellationToken::new();
    let again = hurry.clone();
    let why = async move {
        let Ok(mut signals) = Signals::new() else { return std::future::pending().await };
        let why = signals.next().await;
        tokio::spawn(async move {
            let why = signals.next().await;
            info!(why, "told again: what still runs is ended now");
            again.cancel();
        });
        why
    };
    run(config, metrics, Port::AsConfigured, Until { why, hurry }).await
}

/// Runs a daemon until `until` says that it is to end.
///
/// # Errors
/// As [`serve`].
pub(crate) async fn run(
    config: Config,
    metrics: Metrics,
    port: Port,
    until: Until<impl Future<Output = &'static str>>,
) -> Result<(), AppError> {
    let app = App::open(&config, metrics, port).await?;
    let serving = app.serve(config.shutdown.drain, until.hurry);
    let ended = serving.until(until.why).await;
    serving.drain().await;
    ended
}

/// A daemon that is ready to serve: it has its store, its engine, its sessions and its listeners.
struct App {
    services: Arc<Services>,
    server: Arc<Server>,
    /// TLS of the listeners, if they speak it.
    tls: Option<Arc<ServerTls>>,
    /// MCP by the socket in the store.
    local: LocalServer,
    listeners: Listeners,
    /// The socket in the store, for HTTP.
    socket: Socket,
}

impl App {
    /// Opens a daemon. Nothing is left behind if it fails.
    async fn open(config: &Config, metrics: Metrics, port: Port) -> Result<Self, AppError> {
        let store = Arc::new(Store::open(&config.store.root, settings::store_options(config))?);
        store.count(metrics.clone());
        if let Some(shared) = settings::ledger(config, &store.owner) {
            let ledger = paddock_ledger::Ledger::open(shared).await.map_err(StoreError::Ledger)?;
            info!(node = ledger.node().name, "the store is one of many machines");
            store.share(ledger);
        }
        let tls = config.http.tls.clone();
        let tls = tls.map(|files| ServerTls::open(files, metrics.clone())).transpose()?;
        let auth = &config.auth;
        let tenants = Tenants::open(auth.tokens.clone(), Some(auth.tokens_file.clone()), metrics.clone());
        let tenants = tenants.map_err(AppError::Tokens)?;
        let (of_store, stored) = (tenants.clone(), Arc::<limits::StoredElsewhere>::default());
        let elsewhere = stored.clone();
        store.limit_owners(move |owner| elsewhere.bounds(&of_store, owner));
        let audit = AuditLog::open(&config.audit, metrics.clone()).map_err(AppError::Audit)?;
        let listeners = Listeners::open(config, port).await?;
        let cluster = cluster::open(config, &store, &metrics).await?;
        let lost = LostFiles::open(&store, &settings::session_bounds(config, tenants.clone()))?;
        let (pool, adopted) = open_pool(config, &store, (&metrics, &tenants), lost.clone()).await?;
        match Self::over(
            config,
            (store, metrics, tenants, audit),
            pool.clone(),
            (adopted, lost),
            (listeners, tls),
            (cluster, stored),
        )
        .await
        {
            Ok(app) => Ok(app),
            Err(error) => {
                // The pool has containers already.
                let _ = tokio::time::timeout(REMOVAL, pool.shutdown()).await;
                Err(error)
            }
        }
    }

    /// Everything that serves clients of a pool.
    async fn over(
        config: &Config,
        (store, metrics, tenants, audit): (Arc<Store>, Metrics, Arc<Tenants>, Arc<AuditLog>),
        pool: Pool,
        (adopted, lost): (Adopted, Arc<LostFiles>),
        (listeners, tls): (Listeners, Option<Arc<ServerTls>>),
        (cluster, stored): (Option<Arc<Cluster>>, Arc<limits::StoredElsewhere>),
    ) -> Result<Self, AppError> {
        let shared = cluster.as_deref().map(Cluster::keys);
        let url = &listeners.url;
        let signer = open_signer(config, &store, &tenants, (url, shared)).await?;
        let egress = Egress::open(config.egress.clone(), metrics.clone());
        egress.keep_spending(store.folder("models")?.join("spending.json"));
        egress.limit_tenants(tenants.clone());
        let bounds = settings::session_bounds(config, tenants.clone());
        let sessions = Sessions::new(store.clone(), pool.clone(), egress.clone(), bounds, metrics.clone())?;
        let notifications = Arc::new(Notifications::default());
        let bounds = settings::execution_bounds(config);
        let own = store.secret("port-links.secret")?;
        let secret = shared.map_or(own, |keys| keys.ports);
        let links = settings::port_links(config, listeners.ports.as_ref(), url, &secret, &tenants);
        let executions = Executions::new(sessions.clone(), bounds, notifications.clone(), links.clone());
        let packages = Packages::open(
            &config.packages,
            (&pool, &egress, &tenants, &metrics),
            (store.secret("packages.secret")?, store.folder("packages")?),
            config.timeouts.max,
        );
        let in_flight = sessions.adopt(adopted, &lost).await;
        if let Some(cluster) = &cluster {
            executions.name_node(cluster.tag());
        }
        executions.recover(&store, in_flight).await?;
        let stopping = CancellationToken::new();
        let bounds = config.ports.bounds.clone();
        let forwarder =
            PortForwarder::new(sessions.clone(), links, url, bounds, tenants.clone(), stopping.clone());
        if let Some(ledger) = store.ledger() {
            let sessions = Arc::downgrade(&sessions);
            tokio::spawn(cluster::end_with_lease(ledger.clone(), sessions, stopping.clone()));
            let counted = (Arc::downgrade(&store), tenants.clone(), ledger.clone());
            tokio::spawn(stored.count(counted, stopping.clone()));
        }
        let entries = config.limits.data_inodes.into();
        let drops = Drops::new(settings::drop_roots(config)?, entries);
        let services = Arc::new(Services {
            store: store.clone(),
            drops: Arc::new(drops),
            pool,
            sessions,
            executions,
            egress,
            packages,
            ports: Arc::new(forwarder),
            tenants,
            audit,
            cluster: cluster.clone(),
            signer,
            notifications,
            run_history: RunHistory::default(),
            metrics,
            stopping,
        });
        if let Some(cluster) = &cluster {
            limits::divide(cluster, &services);
        }
        let tools = Arc::new(Tools {
            services: services.clone(),
            limits: settings::tool_limits(config),
            sets: ToolSets::configured(&config.mcp.toolsets),
            exec_runner: config.exec.runner.clone(),
            reading: ReadPermits::default(),
            message_shares: Arc::new(MessageShares::default()),
            task_permits: TaskPermits::default(),
        });
        let own = store.secret("mcp.secret")?;
        let mcp_key = shared.map_or(own, |keys| keys.mcp);
        let api = settings::api(config, (url, tls.clone()), store.folder("mcp")?, mcp_key);
        let root = &config.store.root;
        let in_store = |error| AppError::ListenInStore { folder: root.clone(), error };
        let lines = Socket::bind(root, SocketKind::Lines).map_err(in_store)?;
        let socket = Socket::bind(root, SocketKind::Http).map_err(in_store)?;
        let local = LocalServer::new(lines, tools.clone(), mcp_key, config.http.max_body);
        let server = Server::new(api, tools, store);
        Ok(Self { services, server, tls, local, listeners, socket })
    }

    /// Begins to serve. After the end, requests in progress have `drain` to finish, unless `hurry` is
    /// cancelled.
    fn serve(self, drain: Duration, hurry: CancellationToken) -> ServingApp {
        let Self { services, server, tls, local, listeners, socket } = self;
        let url = listeners.url;
        let addr = listeners.http.local_addr().ok();
        let scraped = listeners.metrics.as_ref().and_then(|listener| listener.local_addr().ok());
        let end = Ending { stop: services.stopping.clone(), drain, hurry };
        let stop_scraping = CancellationToken::new();
        services.sessions.start_sweeping();
        if let Some(tls) = tls {
            tokio::spawn(tls.watch(services.stopping.clone()));
        }
        let ports = listeners.ports.as_ref().and_then(|listener| listener.local_addr().ok());
        let of_ports =
            listeners.ports.map(|listener| tokio::spawn(server.clone().serve_ports(listener, end.clone())));
        let of_peers = services.cluster.clone().zip(listeners.peers).map(|(cluster, listener)| {
            tokio::spawn(cluster.clone().watch(services.stopping.clone()));
            tokio::spawn(server.clone().serve_peers(cluster, listener, end.clone()))
        });
        let requests = [
            tokio::spawn(local.serve(end.clone())),
            tokio::spawn(server.clone().serve((listeners.http, socket), end)),
        ];
        let serving = ServingApp {
            requests: requests.into_iter().chain(of_ports).chain(of_peers).collect(),
            sweep: tokio::spawn(services.executions.clone().sweep()),
            tokens: [
                tokio::spawn(services.tenants.clone().watch()),
                tokio::spawn(tokens::follow(services.clone(), server.clone())),
            ],
            scraping: listeners
                .metrics
                .map(|listener| tokio::spawn(server.serve_metrics(listener, stop_scraping.clone()))),
            stop_scraping,
            services,
        };
        if let Some(addr) = addr {
            info!(%addr, url, "serving");
        }
        // For a unit of systemd with Type=notify; without one it does nothing.
        let _ = sd_notify::notify(false, &[sd_notify::NotifyState::Ready]);
        if let Some(addr) = scraped {
            info!(%addr, "serving the metrics, to everyone who can reach this address");
        }
        if let Some(addr) = ports {
            info!(%addr, "serving ports of sessions, by signed links");
        }
        serving
    }
}

/// The pool on the configured engine, and what it takes over of an earlier daemon.
async fn open_pool(
    config: &Config,
    store: &Store,
    (metrics, tenants): (&Metrics, &Arc<Tenants>),
    lost: Arc<LostFiles>,
) -> Result<(Pool, Adopted), AppError> {
    let host = engine_host(config).map_err(AppError::EngineHost)?;
    let connecting = Engine::connect_counted(&host, EngineLimits::default(), metrics.clone());
    let engine = connecting.await.map_err(AppError::connecting)?;
    if host.unix_path().is_some() && !config.drops.is_empty() {
        let info = engine.info().await.map_err(AppError::connecting)?;
        settings::drops_beside_engine(&config.drops, info.root().as_deref())?;
    }
    let key = store.secret("agent.secret")?;
    let (metrics, workspaces) = (metrics.clone(), Sessions::noted_workspaces(store)?);
    let snapshots = Some(SnapshotSettings {
        folder: store.folder("snapshots")?,
        enabled: config.agent.snapshots && config.agent.warm_parts,
        age: config.agent.snapshot_age,
    });
    let rescue: Option<Arc<dyn Rescue>> = Some(lost);
    let pool = pool(config, store.owner.clone(), key);
    let tenants = tenants.clone();
    let settings = PoolConfig { metrics, workspaces, snapshots, rescue, tenants, ..pool };
    Pool::start(engine, settings).await.map_err(AppError::CannotServe)
}

/// The signer of links that begin with `url`.
async fn open_signer(
    config: &Config,
    store: &Store,
    tenants: &Tenants,
    (url, shared): (&str, Option<&ClusterKeys>),
) -> Result<Signer, AppError> {
    let key = match (&config.files.secret, shared) {
        (Some(secret), _) => secret.expose().as_bytes().to_vec(),
        (None, Some(keys)) => keys.files.to_vec(),
        (None, None) => store.secret("files.secret")?.to_vec(),
    };
    let book = tenants.book();
    let owners = book.tenants().map(|tenant| &*tenant.name);
    let previous: Vec<_> =
        config.files.previous_secrets.iter().map(|secret| secret.expose().as_bytes().to_vec()).collect();
    let signer = Signer::new(url, &key, &previous, owners, settings::link_terms(config));
    if signer.is_hashed() {
        for stored in store.stored().await? {
            signer.learn(&stored.owner, &stored.session);
        }
    }
    Ok(signer)
}
