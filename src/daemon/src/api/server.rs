//! The listener: accepts, bounds, routes, and ends in two phases (no new connections, then no old ones).

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Method, Request, StatusCode};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info};

use super::accept;
use super::body::{self, Answer, error};
use super::events;
use super::files::{self, Kind};
use super::fixtures;
use super::guard::Guard;
use super::mcp::{Mcp, McpConfig};
use super::raw::{Raw, RawLimits};
use super::{health, page, status};
use crate::config::Token;
use crate::store::Store;
use crate::tools::Tools;

/// Connections at one time; more wait in the kernel's queue.
const CONNECTIONS: usize = 1024;
/// How long calls that were ended may take to save what they did and to be answered.
pub(super) const LAST_ANSWERS: Duration = Duration::from_secs(5);
/// Lines of a request's head.
const HEADERS: usize = 64;
/// Bytes of a request's head.
const HEAD: usize = 32 * 1024;

/// What the server is told.
pub struct ApiConfig {
    /// The public URL.
    pub public_url: String,
    /// `Host` values that are served besides loopback and the public URL's.
    pub hosts: Vec<String>,
    /// `Origin` values that are served besides the own.
    pub origins: Vec<String>,
    /// Who may ask; none: everyone.
    pub tokens: Vec<Token>,
    /// Bytes of a request body.
    pub max_body: u64,
    /// How long the head of a request may take.
    pub header_timeout: Duration,
    /// How long its body may take, if it is slow.
    pub body_timeout: Duration,
    /// How long a call whose client went away goes on.
    pub resume_window: Duration,
    /// Where MCP sessions are remembered.
    pub mcp_folder: PathBuf,
    /// Makes the ids of sessions that MCP clients did not name.
    pub mcp_key: [u8; 32],
    /// Bytes of one file that is put as it is.
    pub max_file: u64,
    /// Bytes, and files and directories, of an archive.
    pub max_archive: (u64, u64),
    /// Whether the fixtures of the MCP conformance suite are served.
    pub conformance_fixtures: bool,
}

/// The HTTP side of a daemon.
pub struct Server {
    config: ApiConfig,
    guard: Guard,
    tools: Arc<Tools>,
    store: Arc<Store>,
    mcp: Mcp,
    raw: Raw,
    room: body::Room,
    begun: Instant,
    /// Ends streams that only listen.
    stop_streams: CancellationToken,
    /// Ends calls.
    stop_calls: CancellationToken,
    cut: CancellationToken,
}

impl Server {
    /// A server over these tools and files.
    pub fn new(config: ApiConfig, tools: Arc<Tools>, store: Arc<Store>) -> Arc<Self> {
        let guard = Guard::new(&config.public_url, &config.hosts, &config.origins, config.tokens.clone());
        let mut owners: Vec<String> = config.tokens.iter().map(|token| token.name.clone()).collect();
        owners.push(crate::sign::DEFAULT_OWNER.to_owned());
        owners.sort();
        owners.dedup();
        let [stop_streams, stop_calls, cut] = std::array::from_fn(|_| CancellationToken::new());
        let mcp = McpConfig {
            owners: &owners,
            max_body: config.max_body,
            resume_window: config.resume_window,
            folder: &config.mcp_folder,
            key: config.mcp_key,
            fixtures: config.conformance_fixtures.then(fixtures::shared),
        };
        let mcp = Mcp::new(&tools, &mcp, &stop_streams, &stop_calls, &cut);
        let room = body::Room::new(config.max_body);
        let limits = RawLimits {
            file: config.max_file,
            data: config.max_archive.0,
            entries: config.max_archive.1,
            patience: config.body_timeout,
        };
        let raw = Raw::new(tools.clone(), store.clone(), limits);
        let begun = Instant::now();
        Arc::new(Self { config, guard, tools, store, mcp, raw, room, begun, stop_streams, stop_calls, cut })
    }

    /// Serves until `stop`, then lets what is under way end for at most `drain`, then breaks off.
    pub async fn serve(self: Arc<Self>, listener: TcpListener, stop: CancellationToken, drain: Duration) {
        let abort = CancellationToken::new();
        let connection = |(stream, peer)| {
            let (server, stop, abort) = (self.clone(), stop.clone(), abort.clone());
            async move { server.connection(stream, peer, stop, abort).await }
        };
        let connections = accept::each(CONNECTIONS, &stop, || listener.accept(), connection).await;
        drop(listener);
        self.stop_streams.cancel();
        if tokio::time::timeout(drain, connections.wait()).await.is_err() {
            info!(left = connections.len(), "requests are broken off: they took longer than shutdown.drain");
        }
        // Calls of MCP sessions may go on without a connection.
        self.stop_calls.cancel();
        let _ = tokio::time::timeout(LAST_ANSWERS, connections.wait()).await;
        self.cut.cancel();
        abort.cancel();
        connections.wait().await;
    }

    async fn connection(
        self: Arc<Self>,
        stream: TcpStream,
        peer: SocketAddr,
        stop: CancellationToken,
        abort: CancellationToken,
    ) {
        let _ = stream.set_nodelay(true);
        let service = service_fn(|request| {
            let server = self.clone();
            async move { Ok::<_, Infallible>(server.answer(request).await) }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(self.config.header_timeout)
            .max_headers(HEADERS)
            .max_buf_size(HEAD)
            .half_close(false)
            .serve_connection(TokioIo::new(stream), service);
        let mut connection = std::pin::pin!(connection);
        let ended = tokio::select! {
            ended = connection.as_mut() => ended,
            () = abort.cancelled() => return,
            () = stop.cancelled() => {
                connection.as_mut().graceful_shutdown();
                tokio::select! {
                    ended = connection.as_mut() => ended,
                    () = abort.cancelled() => return,
                }
            }
        };
        if let Err(error) = ended {
            debug!(%peer, %error, "connection ended");
        }
    }

    async fn answer(&self, request: Request<Incoming>) -> Answer {
        let begun = Instant::now();
        let method = request.method().clone();
        // The path may hold a session id and a file name, never a signature; that is in the query.
        let path: String = request.uri().path().chars().take(200).collect();
        info!(%method, path, "request");
        let answer = self.route(request).await;
        let ms = begun.elapsed().as_secs_f64() * 1e3;
        info!(%method, path, status = answer.status().as_u16(), ms = format_args!("{ms:.1}"), "answer");
        answer
    }

    async fn route(&self, request: Request<Incoming>) -> Answer {
        if let Err(refused) = self.guard.admit(request.headers()) {
            return *refused;
        }
        let (mut parts, incoming) = request.into_parts();
        let path = parts.uri.path();
        if path == "/mcp" {
            let owner = match self.guard.owner(&parts.headers) {
                Ok(owner) => owner,
                Err(refused) => return *refused,
            };
            let body = if parts.method == Method::POST {
                let (max, patience) = (self.config.max_body, self.config.body_timeout);
                match body::read(incoming, max, patience, &self.room).await {
                    // The SDK keeps the parts of a request with its call, whether that is answered at once or not.
                    Ok((body, place)) => {
                        parts.extensions.insert(place);
                        body
                    }
                    Err(error) => return error.answer(),
                }
            } else {
                Bytes::new()
            };
            return self.mcp.serve(owner, parts, body).await;
        }
        if let Some(rest) = path.strip_prefix("/sessions/") {
            return match self.guard.owner(&parts.headers) {
                Ok(owner) => self.raw.serve(owner, rest, &parts, incoming).await,
                Err(refused) => *refused,
            };
        }
        if !matches!(parts.method, Method::GET | Method::HEAD) {
            return error(
                StatusCode::METHOD_NOT_ALLOWED,
                "method_not_allowed",
                "this path takes GET and HEAD",
            );
        }
        let signed = [("/files/", Kind::File), ("/logs/", Kind::Log)];
        for (prefix, kind) in signed {
            if let Some(rest) = path.strip_prefix(prefix) {
                let (signer, headers) = (&self.tools.signer, &parts.headers);
                return files::serve(&self.store, signer, kind, rest, &parts.uri, &parts.method, headers)
                    .await;
            }
        }
        if path == "/status" {
            return match self.guard.owner(&parts.headers) {
                Ok(owner) => status::status(&self.tools, owner, &parts.uri, self.begun).await,
                Err(refused) => *refused,
            };
        }
        if path == "/mcp/events" {
            return match self.guard.owner(&parts.headers) {
                Ok(owner) => events::events(&self.tools, owner, &self.stop_streams),
                Err(refused) => *refused,
            };
        }
        match path {
            "/health" => health::health(&self.tools.pool),
            "/ready" => health::ready(&self.tools.pool),
            other => page::part(other).unwrap_or_else(|| {
                error(StatusCode::NOT_FOUND, "not_found", "there is nothing at this path")
            }),
        }
    }
}
