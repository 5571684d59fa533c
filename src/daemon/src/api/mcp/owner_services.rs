//! The SDK's services for one token's name: one with sessions, one for bare calls.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{Request, Response};
use http_body_util::Full;
use http_body_util::combinators::BoxBody;
use rmcp::handler::server::ServerHandler;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::session::{SessionManager, SessionStore};
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::handler::Handler;
use super::in_memory::SessionsInMemory;
use super::on_disk::SessionsOnDisk;
use super::replay::{Replay, SharedReplay};
use super::restore::Restorations;
use super::rounds::ParkedCalls;
use super::{McpConfig, McpStops};
#[cfg(feature = "conformance-fixtures")]
use crate::api::fixtures::Fixtures;
use crate::tools::Tools;

/// An MCP session that no request has named for this long leaves the memory; the disk keeps it for longer.
const KEEP_ALIVE: Duration = Duration::from_secs(4 * 3600);

/// A service of the SDK, whatever its handler is.
pub(super) type SdkService = Box<
    dyn Fn(Request<Full<Bytes>>) -> BoxFuture<'static, Response<BoxBody<Bytes, Infallible>>> + Send + Sync,
>;

/// One owner's services.
pub(super) struct OwnerServices {
    /// With sessions.
    pub(super) full: SdkService,
    /// Without.
    pub(super) bare: SdkService,
    pub(super) manager: Arc<LocalSessionManager>,
    pub(super) replay: Arc<Replay>,
    pub(super) in_memory: Arc<SessionsInMemory>,
    pub(super) on_disk: Arc<SessionsOnDisk>,
    /// Ends all its calls.
    pub(super) stop: CancellationToken,
}

impl OwnerServices {
    pub(super) fn new(owner: &str, tools: &Arc<Tools>, config: &McpConfig, stops: &McpStops) -> Self {
        let replay = Arc::new(Replay::default());
        let mut manager =
            LocalSessionManager::default().with_event_store(Arc::new(SharedReplay(replay.clone())));
        manager.session_config.keep_alive = Some(KEEP_ALIVE);
        let manager = Arc::new(manager);
        let in_memory = Arc::new(SessionsInMemory::default());
        let on_disk = Arc::new(SessionsOnDisk::new(&config.folder, owner, in_memory.clone()));
        if let Err(error) = on_disk.sweep() {
            warn!(%error, owner, "MCP sessions cannot be kept on disk");
        }
        // The guard has checked Host and Origin, for every route alike.
        let common = || {
            StreamableHttpServerConfig::default()
                .disable_allowed_hosts()
                .disable_allowed_origins()
                .with_max_request_body_bytes(usize::try_from(config.max_body).unwrap_or(usize::MAX))
                .with_cancellation_token(stops.rest.child_token())
        };
        let mut with_sessions = common().with_legacy_session_mode(true);
        let store: Arc<dyn SessionStore> = on_disk.clone();
        with_sessions.session_store = Some(store);
        let without = common().with_legacy_session_mode(false).with_json_response(true);
        let (tools, owner, stop) = (tools.clone(), owner.to_owned(), stops.calls.child_token());
        let parked = Arc::<ParkedCalls>::default();
        let calls = stop.clone();
        let handler =
            move || Handler::of_request(tools.clone(), owner.clone(), calls.clone(), parked.clone());
        let full = service(handler.clone(), manager.clone(), with_sessions, config);
        let full = Restorations::new(manager.clone(), on_disk.clone(), full).service();
        // A bare call ends with its connection: no events are kept for it.
        let bare = service(handler, Arc::default(), without, config);
        Self { full, bare, manager, replay, in_memory, on_disk, stop }
    }

    /// Whether there is such a session, in memory or on disk.
    pub(super) async fn knows(&self, id: &str) -> bool {
        let in_memory = self.manager.has_session(&id.into()).await;
        in_memory.unwrap_or(false) || self.on_disk.load(id).await.is_ok_and(|state| state.is_some())
    }
}

#[cfg(feature = "conformance-fixtures")]
fn service(
    handler: impl Fn() -> Handler + Send + Sync + 'static,
    manager: Arc<LocalSessionManager>,
    settings: StreamableHttpServerConfig,
    config: &McpConfig,
) -> SdkService {
    match config.fixtures.clone() {
        None => plain_service(handler, manager, settings),
        Some(state) => plain_service(move || Fixtures::new(handler(), state.clone()), manager, settings),
    }
}

#[cfg(not(feature = "conformance-fixtures"))]
fn service(
    handler: impl Fn() -> Handler + Send + Sync + 'static,
    manager: Arc<LocalSessionManager>,
    settings: StreamableHttpServerConfig,
    _: &McpConfig,
) -> SdkService {
    plain_service(handler, manager, settings)
}

fn plain_service<H: ServerHandler>(
    handler: impl Fn() -> H + Send + Sync + 'static,
    manager: Arc<LocalSessionManager>,
    settings: StreamableHttpServerConfig,
) -> SdkService {
    let service = StreamableHttpService::new(move || Ok(handler()), manager, settings);
    Box::new(move |request| {
        let service = service.clone();
        Box::pin(async move { service.handle(request).await })
    })
}
