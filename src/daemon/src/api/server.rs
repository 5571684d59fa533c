//! The listener: accepts, bounds, and ends in two phases (no new connections, then no old ones).

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info};

use super::accept;
use super::body;
use super::fixtures;
use super::guard::Guard;
use super::mcp::{Mcp, McpConfig};
use super::metrics;
use super::raw::{Raw, RawLimits};
use super::route::Route;
use super::socket::Socket;
use crate::config::Token;
use crate::store::Store;
use crate::tools::Tools;

/// Connections at one time; more wait in the kernel's queue.
pub(crate) const CONNECTIONS: usize = 1024;
/// Connections at one time to the listener of the metrics.
const SCRAPERS: usize = 256;
/// How long one of these may take to ask: it is open to everyone, and one that says nothing must not keep a place for long.
const SCRAPE: Duration = Duration::from_secs(2);
/// How long calls that were ended may take to save what they did and to be answered.
pub(crate) const LAST_ANSWERS: Duration = Duration::from_secs(5);
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
    /// The SHA-256 of a token that opens the metrics and nothing else.
    pub metrics_token: Option<[u8; 32]>,
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

/// How a daemon's serving ends.
#[derive(Debug, Clone)]
pub(crate) struct Ending {
    /// Nothing new is taken once it is cancelled.
    pub(crate) stop: CancellationToken,
    /// How long what is under way may go on then.
    pub(crate) drain: Duration,
    /// Cancelled when it may not go on any longer.
    pub(crate) hurry: CancellationToken,
}

impl Ending {
    /// Waits for what is under way as long as that may go on; whether all of it ended.
    pub(crate) async fn drained(&self, all: impl Future<Output = ()>) -> bool {
        tokio::select! {
            ended = tokio::time::timeout(self.drain, all) => ended.is_ok(),
            () = self.hurry.cancelled() => false,
        }
    }
}

/// How a request came.
#[derive(Debug, Clone, Copy)]
pub(super) enum Way {
    /// To the daemon's address: it has to bring a token.
    Address(#[expect(dead_code, reason = "it is for the log")] SocketAddr),
    /// By the socket in the store, which only the daemon's own user can open.
    Socket,
}

/// The HTTP side of a daemon.
pub struct Server {
    pub(super) config: ApiConfig,
    pub(super) guard: Guard,
    pub(super) tools: Arc<Tools>,
    pub(super) store: Arc<Store>,
    pub(super) mcp: Mcp,
    pub(super) raw: Raw,
    pub(super) room: body::Room,
    pub(super) begun: Instant,
    /// Ends streams that only listen.
    pub(super) stop_streams: CancellationToken,
    /// Ends calls.
    pub(super) stop_calls: CancellationToken,
    pub(super) cut: CancellationToken,
}

impl Server {
    /// A server over these tools and files.
    pub fn new(config: ApiConfig, tools: Arc<Tools>, store: Arc<Store>) -> Arc<Self> {
        let guard = Guard::new(
            &config.public_url,
            &config.hosts,
            &config.origins,
            config.tokens.clone(),
            config.metrics_token,
        );
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
        tools.introduce();
        Route::ALL.iter().for_each(|route| tools.metrics.know_route(route.as_str()));
        let begun = Instant::now();
        Arc::new(Self { config, guard, tools, store, mcp, raw, room, begun, stop_streams, stop_calls, cut })
    }

    /// Serves until it is to stop, then lets what is under way end as long as the drain lasts, then breaks off.
    pub(crate) async fn serve(self: Arc<Self>, (listener, socket): (TcpListener, Socket), ending: Ending) {
        let stop = &ending.stop;
        let abort = CancellationToken::new();
        let connection = |(stream, peer): (TcpStream, SocketAddr)| {
            let (server, stop, abort) = (self.clone(), stop.clone(), abort.clone());
            async move {
                let _ = stream.set_nodelay(true);
                server.connection(stream, Way::Address(peer), stop, abort).await;
            }
        };
        let local = |(stream, _)| {
            let (server, stop, abort) = (self.clone(), stop.clone(), abort.clone());
            async move { server.connection(stream, Way::Socket, stop, abort).await }
        };
        let (connections, locals) = tokio::join!(
            accept::each(CONNECTIONS, stop, || listener.accept(), connection),
            accept::each(CONNECTIONS, stop, || socket.listener.accept(), local),
        );
        drop((listener, socket));
        let all = async {
            connections.wait().await;
            locals.wait().await;
        };
        self.stop_streams.cancel();
        if !ending.drained(all).await {
            let left = connections.len() + locals.len();
            info!(
                left,
                "requests are broken off: they took longer than they may at the end (shutdown.drain)"
            );
        }
        // Calls of MCP sessions may go on without a connection.
        self.stop_calls.cancel();
        let _ = tokio::time::timeout(LAST_ANSWERS, connections.wait()).await;
        let _ = tokio::time::timeout(LAST_ANSWERS, locals.wait()).await;
        self.cut.cancel();
        abort.cancel();
        connections.wait().await;
        locals.wait().await;
    }

    /// Serves nothing but the metrics, and that to whoever comes, until `stop`.
    pub async fn serve_metrics(self: Arc<Self>, listener: TcpListener, stop: CancellationToken) {
        let connection = |(stream, _)| {
            let (server, stop) = (self.clone(), stop.clone());
            async move {
                let service = service_fn(|request: Request<Incoming>| {
                    let server = server.clone();
                    async move {
                        let (tools, store) = (&server.tools, &server.store);
                        let answer = metrics::alone(tools, store, request.method(), request.uri().path());
                        Ok::<_, Infallible>(answer.await)
                    }
                });
                let mut http = server.http();
                let serving =
                    http.header_read_timeout(SCRAPE).serve_connection(TokioIo::new(stream), service);
                tokio::select! {
                    _ = serving => {}
                    () = stop.cancelled() => {}
                }
            }
        };
        accept::each(SCRAPERS, &stop, || listener.accept(), connection).await.wait().await;
    }

    /// How any connection is spoken to.
    fn http(&self) -> http1::Builder {
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new())
            .header_read_timeout(self.config.header_timeout)
            .max_headers(HEADERS)
            .max_buf_size(HEAD)
            .half_close(false);
        http
    }

    async fn connection(
        self: Arc<Self>,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        way: Way,
        stop: CancellationToken,
        abort: CancellationToken,
    ) {
        let service = service_fn(|request| {
            let server = self.clone();
            async move { Ok::<_, Infallible>(server.answer(request, way).await) }
        });
        let _counted = self.tools.metrics.connection();
        let connection = self.http().serve_connection(TokioIo::new(stream), service);
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
            debug!(?way, %error, "connection ended");
        }
    }
}
