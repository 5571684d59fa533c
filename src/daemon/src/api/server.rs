//! The server: accepts connections, bounds them, and ends in two phases (no new connections, then no old
//! ones).

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
use rustix::net::sockopt;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info};

use super::accept;
use super::body::LargeBodies;
use super::connections::{ConnectionPermit, ConnectionPermits};
use super::counted_body::CountedBody;
#[cfg(feature = "conformance-fixtures")]
use super::fixtures;
use super::guard::Guard;
use super::linger::{Lingering, UnreadBodies};
use super::listening::ListenPermits;
use super::mcp::{McpConfig, McpEndpoint, McpStops};
use super::metrics;
use super::paced::Pacer;
use super::raw::{RawFileLimits, RawFiles};
use super::refusals::Refusals;
use super::route::Route;
use super::socket::Socket;
use super::stall::{StallTimeout, reset};
use super::tls::ServerTls;
use crate::store::Store;
use crate::tools::Tools;

/// Connections with a regular place at one time; [`super::connections`] says what happens to more.
pub(super) const REGULAR: usize = 1024;
/// Connections beside them, for probes.
const SPARE: usize = 128;
/// Connections at one time.
pub(crate) const CONNECTIONS: usize = REGULAR + SPARE;
/// How long the head of a request may take on one of those.
const SPARE_HEAD: Duration = Duration::from_secs(2);
/// Connections at one time to the listener of the metrics.
const SCRAPERS: usize = 256;
/// How long one of these may take to send its request: everyone can connect, and a silent connection must not
/// keep a place for long.
const SCRAPE: Duration = Duration::from_secs(2);
/// How long calls that were ended may take to save their files and to be answered.
pub(crate) const LAST_ANSWERS: Duration = Duration::from_secs(5);
/// Bytes of an answer that the kernel buffers for each connection until the client reads them; it uses as
/// many again for itself. Its default is megabytes, and a thousand clients that do not read would use up the
/// memory of the machine.
const UNREAD: usize = 256 * 1024;
/// Lines of a request's head.
pub(super) const HEADERS: usize = 64;
/// Bytes of a request's head.
pub(super) const HEAD: usize = 32 * 1024;

/// The settings of the server.
pub struct ApiConfig {
    /// The public URL.
    pub public_url: String,
    /// `Host` values that are served besides loopback and the public URL's.
    pub hosts: Vec<String>,
    /// `Origin` values that are served besides the own.
    pub origins: Vec<String>,
    /// The SHA-256 of a token that opens the metrics and nothing else.
    pub metrics_token: Option<[u8; 32]>,
    /// Bytes of a request body.
    pub max_body: u64,
    /// TLS of the listeners of requests and of links to ports; without it they speak plain HTTP.
    pub tls: Option<Arc<ServerTls>>,
    /// How long the head of a request may take.
    pub header_timeout: Duration,
    /// How long its body may take, if it is slow.
    pub body_timeout: Duration,
    /// How long a client may read nothing of its answer.
    pub write_timeout: Duration,
    /// How long a call goes on whose client went away.
    pub resume_window: Duration,
    /// The folder of the MCP sessions on disk.
    pub mcp_folder: PathBuf,
    /// Derives the ids of sessions that MCP clients did not name.
    pub mcp_key: [u8; 32],
    /// Bytes of one file that is uploaded as a plain body.
    pub max_file: u64,
    /// Bytes, and files and directories, of an archive.
    pub max_archive: (u64, u64),
    /// Whether the fixtures of the MCP conformance suite are served.
    #[cfg(feature = "conformance-fixtures")]
    pub conformance_fixtures: bool,
}

/// The end of serving.
#[derive(Debug, Clone)]
pub(crate) struct Ending {
    /// Cancelled when no new request is accepted any more.
    pub(crate) stop: CancellationToken,
    /// How long requests in progress may go on after that.
    pub(crate) drain: Duration,
    /// Cancelled when they may not go on any longer.
    pub(crate) hurry: CancellationToken,
}

impl Ending {
    /// Waits for the requests in progress for as long as they may go on; true if all of them ended.
    pub(crate) async fn drained(&self, all: impl Future<Output = ()>) -> bool {
        tokio::select! {
            ended = tokio::time::timeout(self.drain, all) => ended.is_ok(),
            () = self.hurry.cancelled() => false,
        }
    }
}

/// The way by which a request came.
#[derive(Debug, Clone, Copy)]
pub(super) enum Way {
    /// To the daemon's address, from this peer: it needs a token.
    Address(SocketAddr),
    /// By the socket in the store, which only the daemon's own user can open.
    Socket,
}

impl Way {
    /// The peer, as the log names it.
    pub(super) fn shown(self) -> String {
        match self {
            Self::Address(peer) => peer.to_string(),
            Self::Socket => "socket".to_owned(),
        }
    }
}

/// A new connection, after its handshake if the daemon speaks TLS.
pub(super) enum Secured {
    Plain(StallTimeout<TcpStream>),
    Tls(Box<TlsStream<StallTimeout<TcpStream>>>),
    /// It failed, or came too late.
    Over,
}

/// The HTTP side of a daemon.
pub struct Server {
    pub(super) config: ApiConfig,
    pub(super) guard: Guard,
    pub(super) tools: Arc<Tools>,
    pub(super) store: Arc<Store>,
    pub(super) mcp: McpEndpoint,
    pub(super) raw: RawFiles,
    pub(super) large_bodies: LargeBodies,
    pub(super) listeners: Arc<ListenPermits>,
    pub(super) refusals: Refusals,
    pub(super) pacer: Arc<Pacer>,
    pub(super) begun: Instant,
    /// Cancelled to end the streams that only listen.
    pub(super) stop_streams: CancellationToken,
    /// Cancelled to end all calls.
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
            config.tls.is_some(),
            tools.services.tenants.clone(),
            config.metrics_token,
        );
        let [stop_streams, stop_calls, cut] = std::array::from_fn(|_| CancellationToken::new());
        let listeners = Arc::new(ListenPermits::default());
        let mcp = McpConfig {
            listeners: listeners.clone(),
            max_body: config.max_body,
            resume_window: config.resume_window,
            folder: config.mcp_folder.clone(),
            key: config.mcp_key,
            #[cfg(feature = "conformance-fixtures")]
            fixtures: config.conformance_fixtures.then(fixtures::state),
        };
        let stops = McpStops { streams: stop_streams.clone(), calls: stop_calls.clone(), rest: cut.clone() };
        let mcp = McpEndpoint::new(&tools, mcp, stops);
        let limits = RawFileLimits {
            file: config.max_file,
            data: config.max_archive.0,
            entries: config.max_archive.1,
            patience: config.body_timeout,
        };
        let raw = RawFiles::new(tools.clone(), store.clone(), limits);
        tools.introduce();
        Route::ALL.iter().for_each(|route| tools.services.metrics.know_route(route.as_str()));
        let (begun, pacer) = (Instant::now(), Pacer::start(tools.services.tenants.clone()));
        let (large_bodies, refusals) = (LargeBodies::default(), Refusals::default());
        let server = Arc::new(Self {
            config,
            guard,
            tools,
            store,
            mcp,
            raw,
            large_bodies,
            listeners,
            refusals,
            pacer,
            begun,
            stop_streams,
            stop_calls,
            cut,
        });
        server.introduce_to_cluster();
        server
    }

    /// Serves until `ending.stop`, then lets requests in progress end while the drain lasts, then breaks the
    /// rest off.
    pub(crate) async fn serve(self: Arc<Self>, (listener, socket): (TcpListener, Socket), ending: Ending) {
        let stop = &ending.stop;
        let abort = CancellationToken::new();
        let connection = |(stream, peer): (TcpStream, SocketAddr), seat: ConnectionPermit| {
            let (server, stop, abort) = (self.clone(), stop.clone(), abort.clone());
            async move {
                let _ = stream.set_nodelay(true);
                let _ = sockopt::set_socket_send_buffer_size(&stream, UNREAD);
                let stream =
                    StallTimeout::new(stream, server.config.write_timeout, seat.stall.clone(), reset);
                match server.secured(stream, &seat, &stop).await {
                    Secured::Plain(stream) => {
                        server.connection(stream, Way::Address(peer), seat, stop, abort).await;
                    }
                    Secured::Tls(stream) => {
                        server.connection(stream, Way::Address(peer), seat, stop, abort).await;
                    }
                    Secured::Over => {}
                }
            }
        };
        // Here a client such as `paddock run` writes into a pipe, whose reader may be slow.
        let local = |(stream, _), seat| {
            let (server, stop, abort) = (self.clone(), stop.clone(), abort.clone());
            async move { server.connection(stream, Way::Socket, seat, stop, abort).await }
        };
        let permits = || self.permits(REGULAR, SPARE);
        let (tcp_permits, socket_permits) = (permits(), permits());
        let of_peer = |(_, peer): &(TcpStream, SocketAddr)| Some(peer.ip());
        let (connections, locals) = tokio::join!(
            accept::with_permits(&tcp_permits, stop, || listener.accept(), of_peer, connection),
            accept::with_permits(&socket_permits, stop, || socket.listener.accept(), |_| None, local),
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

    /// Permits for connections, which are cut when their tokens or links end.
    pub(super) fn permits(&self, regular: usize, spare: usize) -> Arc<ConnectionPermits> {
        let services = &self.tools.services;
        let permits = ConnectionPermits::new(regular, spare, services.metrics.clone());
        let (weak, mut pages) = (Arc::downgrade(&permits), services.tenants.pages());
        tokio::spawn(async move {
            while pages.changed().await.is_ok()
                && let Some(permits) = weak.upgrade()
            {
                permits.cut_ended();
            }
        });
        permits
    }

    /// A tenant has no token any more: its calls end, also those that go on without a connection.
    pub(crate) fn end_tenant(&self, name: &str) {
        self.mcp.end_owner(name);
    }

    /// Serves the metrics, and nothing else, to everyone who connects, until `stop`.
    pub async fn serve_metrics(self: Arc<Self>, listener: TcpListener, stop: CancellationToken) {
        let connection = |(stream, _): (TcpStream, SocketAddr), seat: ConnectionPermit| {
            let (server, stop) = (self.clone(), stop.clone());
            async move {
                let stream =
                    StallTimeout::new(stream, server.config.write_timeout, seat.stall.clone(), reset);
                let (cut, seat) = (seat.cut.clone(), Arc::new(seat));
                let service = service_fn(|request: Request<Incoming>| {
                    let (server, seat) = (server.clone(), seat.clone());
                    async move {
                        let at_work = seat.begin();
                        let (services, store) = (&server.tools.services, &server.store);
                        let answer = metrics::alone(services, store, request.method(), request.uri().path());
                        let sent = services.metrics.sent(Route::Metrics.as_str());
                        Ok::<_, Infallible>(answer.await.map(|body| CountedBody::new(body, sent, at_work)))
                    }
                });
                let mut http = server.http();
                // One answer for each connection: it costs work, and no client should ask for many that it
                // does not read.
                let serving = http
                    .header_read_timeout(SCRAPE)
                    .keep_alive(false)
                    .serve_connection(TokioIo::new(stream), service);
                tokio::select! {
                    _ = serving => {}
                    () = cut.cancelled() => {}
                    () = stop.cancelled() => {}
                }
            }
        };
        let permits = ConnectionPermits::new(SCRAPERS, 0, self.tools.services.metrics.clone());
        let of_peer = |(_, peer): &(TcpStream, SocketAddr)| Some(peer.ip());
        accept::with_permits(&permits, &stop, || listener.accept(), of_peer, connection).await.wait().await;
    }

    /// Does the handshake of a new connection where the daemon speaks TLS.
    pub(super) async fn secured(
        &self,
        stream: StallTimeout<TcpStream>,
        seat: &ConnectionPermit,
        stop: &CancellationToken,
    ) -> Secured {
        let Some(tls) = &self.config.tls else { return Secured::Plain(stream) };
        let longest = self.config.header_timeout;
        let longest = if seat.is_spare() { SPARE_HEAD.min(longest) } else { longest };
        tokio::select! {
            secured = tls.accept(stream, longest) => {
                secured.map_or(Secured::Over, |stream| Secured::Tls(Box::new(stream)))
            }
            () = seat.cut.cancelled() => Secured::Over,
            () = stop.cancelled() => Secured::Over,
        }
    }

    /// HTTP, as every connection speaks it.
    pub(super) fn http(&self) -> http1::Builder {
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
        seat: ConnectionPermit,
        stop: CancellationToken,
        abort: CancellationToken,
    ) {
        let (cut, seat) = (seat.cut.clone(), Arc::new(seat));
        let mut http = self.http();
        if seat.is_spare() {
            http.header_read_timeout(SPARE_HEAD.min(self.config.header_timeout));
        }
        let unread = UnreadBodies::default();
        let service = service_fn(|request: Request<Incoming>| {
            let (server, seat) = (self.clone(), seat.clone());
            let request = request.map(|body| unread.track(body));
            async move { Ok::<_, Infallible>(server.answer(request, way, &seat).await) }
        });
        let _counted = self.tools.services.metrics.connection();
        // A client of a port may change to another protocol.
        let connection = http.serve_connection(TokioIo::new(Lingering::new(stream, unread.clone())), service);
        let connection = connection.with_upgrades();
        let mut connection = std::pin::pin!(connection);
        let mut polls = self.pacer.connection();
        let of = || seat.paced();
        let paced = std::future::poll_fn(|context| polls.poll(&of, context, connection.as_mut()));
        let ended = tokio::select! {
            ended = paced => ended,
            () = abort.cancelled() => return,
            () = cut.cancelled() => return,
            () = stop.cancelled() => {
                drop(polls);
                connection.as_mut().graceful_shutdown();
                tokio::select! {
                    ended = connection.as_mut() => ended,
                    () = abort.cancelled() => return,
                    () = cut.cancelled() => return,
                }
            }
        };
        if let Err(error) = ended {
            if seat.stall.lasts() >= Some(self.config.write_timeout) {
                self.tools.services.metrics.connection_cut("stalled");
            }
            debug!(?way, %error, "connection ended");
        }
    }
}
