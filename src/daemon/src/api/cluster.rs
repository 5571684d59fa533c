//! Many machines over HTTP: the listener for peers, and the layer before the routes that passes a request to
//! the node that has its session.
//!
//! ```text
//!  cluster.addr ─► TLS by cluster.key ─► GET /paddock-cluster/node ─► how this node is
//!                                     └► hop checked, sender and session taken ─► as any request
//!  a request of a client, admitted ─► locate: whose session? ─┬─ here ─► its route
//!                                                            └─ another node's ─► pass
//! ```
//!
//! A request from a peer is admitted like any other, by its token or its link. It must never be passed on
//! again, and a request of a client must never bring a hop of its own: the header is removed at once.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{AUTHORIZATION, HeaderMap, HeaderValue, RETRY_AFTER};
use http::{Method, Request, StatusCode, request};
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use super::accept;
use super::body::{Answer, RequestBody, error, json as answer};
use super::connections::ConnectionPermit;
use super::events_elsewhere::Listener;
use super::linger::{Lingering, TrackedBody, UnreadBodies};
use super::server::{Ending, HEAD, HEADERS, Server, Way};
use super::stall::{StallTimeout, reset};
pub(super) use crate::cluster::hop::Entry;
use crate::cluster::hop::{HOP, Hop, Sender};
use crate::cluster::pass::{NOT_HERE, TOOK};
use crate::cluster::wire::{PassedBody, tune};
use crate::cluster::{Came, Cluster, ClusterFault, NODE, OwnLoad, Target, drain, now_ms};
use crate::services::Services;
use crate::session::SessionId;

/// Connections of peers at one time: each carries one request.
const CONNECTIONS: usize = 4096;
/// What a node adds to the lines and the bytes of a head.
const MORE_HEADERS: usize = 8;
const MORE_HEAD: usize = 8 * 1024;
/// How long a peer's handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// The error code of JSON-RPC for a fault of the cluster. Servers may give codes from -32099 to -32000 a
/// meaning of their own.
const NOT_NOW: i64 = -32000;

/// The session of a call that names none: chosen before the call, so that it is known who has it.
#[derive(Debug, Clone)]
pub(super) struct FreshSession(pub(super) SessionId);

/// Marks the refusal of a request that this node should not have got.
#[derive(Debug, Clone, Copy)]
struct RefusedHere;

/// Marks a request that another node has passed on.
#[derive(Debug, Clone)]
pub(super) struct PassedOn(pub(super) Hop);

impl Server {
    /// Says to the cluster how this node is.
    pub(super) fn introduce_to_cluster(self: &Arc<Self>) {
        let Some(cluster) = &self.tools.services.cluster else { return };
        let server = Arc::downgrade(self);
        cluster.introduce(move || {
            let Some(server) = server.upgrade() else { return OwnLoad::default() };
            let services = &server.tools.services;
            let (sessions, max) = (services.sessions.live(), services.sessions.bounds().max);
            OwnLoad { sessions, max, ready: super::health::serves_runs(services) }
        });
    }

    /// Serves the peers, and nobody else, until the end.
    pub(crate) async fn serve_peers(
        self: Arc<Self>,
        cluster: Arc<Cluster>,
        listener: TcpListener,
        ending: Ending,
    ) {
        let permits = self.permits(CONNECTIONS, 0);
        accept::until_drained(&permits, listener, ending, |connection, seat, stop, abort| {
            let (server, cluster) = (self.clone(), cluster.clone());
            async move { server.peer_connection(&cluster, connection, seat, &stop, &abort).await }
        })
        .await;
    }

    async fn peer_connection(
        self: Arc<Self>,
        cluster: &Arc<Cluster>,
        (stream, peer): (TcpStream, SocketAddr),
        seat: ConnectionPermit,
        stop: &CancellationToken,
        abort: &CancellationToken,
    ) {
        let _ = tune(&stream);
        let stream = StallTimeout::new(stream, self.config.write_timeout, seat.stall.clone(), reset);
        let accepted = tokio::time::timeout(HANDSHAKE, cluster.tls().acceptor.accept(stream)).await;
        let stream = match accepted {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) if error.kind() == io::ErrorKind::InvalidData => {
                cluster.refused_peer("handshake");
                self.refusals
                    .tell(|| warn!(%peer, "refused: no node of this cluster, its cluster.key is another"));
                return;
            }
            // A node that did not wait until this one had started, or a port scanner.
            Ok(Err(_)) | Err(_) => return debug!(%peer, "a connection ended before it showed a key"),
        };
        let (cut, seat) = (seat.cut.clone(), Arc::new(seat));
        let unread = UnreadBodies::default();
        let service = service_fn(|request: Request<Incoming>| {
            let (server, cluster, seat) = (self.clone(), cluster.clone(), seat.clone());
            let request = request.map(|body| unread.track(body));
            async move { Ok::<_, Infallible>(server.answer_peer(&cluster, request, peer, &seat).await) }
        });
        let stream = TokioIo::new(Lingering::new(stream, unread.clone()));
        let mut http = self.http();
        // A node has added headers to those of its client.
        http.max_headers(HEADERS + MORE_HEADERS).max_buf_size(HEAD + MORE_HEAD);
        // A peer keeps its connections; the kernel says when it is gone.
        http.header_read_timeout(None::<Duration>);
        let mut connection = std::pin::pin!(http.serve_connection(stream, service).with_upgrades());
        let ended = async {
            tokio::select! {
                _ = connection.as_mut() => return,
                () = stop.cancelled() => connection.as_mut().graceful_shutdown(),
            }
            let _ = connection.await;
        };
        tokio::select! {
            () = ended => {}
            () = abort.cancelled() => {}
            () = cut.cancelled() => {}
        }
    }

    /// Answers a request that came by the listener for peers.
    async fn answer_peer(
        &self,
        cluster: &Cluster,
        mut request: Request<TrackedBody>,
        peer: SocketAddr,
        seat: &Arc<ConnectionPermit>,
    ) -> Answer {
        let begun = Instant::now();
        if request.uri().path() == NODE {
            return answer(StatusCode::OK, &serde_json::to_value(cluster.report()).unwrap_or_default());
        }
        let (method, uri) = (request.method().clone(), request.uri().clone());
        let hop = match cluster.take_hop((&method, &uri), request.headers_mut(), now_ms()) {
            Ok(hop) => hop,
            Err(refused) => {
                self.refusals.tell(|| warn!(%peer, reason = refused.as_str(), "refused: {refused}"));
                return error(StatusCode::FORBIDDEN, "forbidden", &refused.to_string());
            }
        };
        debug!(node = hop.from, method = %method, "a request from another node");
        let (entry, sender) = (hop.entry, hop.sender);
        request.extensions_mut().insert(PassedOn(hop));
        let mut answer = match (entry, sender) {
            (Entry::Http, Sender::Client(address)) => self.answer(request, Way::Address(address), seat).await,
            (Entry::Http, Sender::LocalUser) => self.answer(request, Way::Socket, seat).await,
            (Entry::Ports, Sender::Client(address)) => self.answer_link(request, address, seat).await,
            (Entry::Ports, Sender::LocalUser) => {
                return error(
                    StatusCode::FORBIDDEN,
                    "forbidden",
                    "links to ports have clients with addresses",
                );
            }
        };
        // A server in a container may answer with any header, and must not speak for this node.
        answer.headers_mut().remove(NOT_HERE);
        if answer.extensions().get::<RefusedHere>().is_some() {
            answer.headers_mut().insert(NOT_HERE, HeaderValue::from_static("1"));
        }
        answer.headers_mut().insert(TOOK, HeaderValue::from(duration_us(begun)));
        answer
    }

    /// Has another node answer a request.
    pub(super) async fn pass_on<B>(
        &self,
        (cluster, node): (&Cluster, &Target),
        entry: Entry,
        over: CancellationToken,
        request: Request<B>,
    ) -> Answer
    where
        B: Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send + 'static,
    {
        let is_call = request.uri().path() == "/mcp";
        let way = request.extensions().get::<Way>().copied();
        let own_session = request.extensions().get::<FreshSession>().map(|FreshSession(id)| id.clone());
        let Some(sender) = sender(way) else {
            return error(StatusCode::INTERNAL_SERVER_ERROR, "internal", "the request came no way");
        };
        let hop = Hop { from: cluster.name().to_owned(), sender, entry, own_session };
        let request = request.map(|body| body.map_err(io::Error::other).boxed_unsync());
        debug!(node = node.name, "passed on");
        let request: Request<PassedBody> = request;
        cluster
            .pass(node, &hop, request, [over, self.cut.clone()])
            .await
            .unwrap_or_else(|fault| refusal(&fault, is_call))
    }

    /// `GET /cluster`: the nodes. `POST /cluster/drain` and `/cluster/resume`. Only for the daemon's own
    /// user.
    pub(super) fn cluster_command(&self, rest: &str, method: &Method) -> Answer {
        let Some(cluster) = &self.tools.services.cluster else {
            let message = "this daemon is alone: its cluster.peers names no peers";
            return error(StatusCode::NOT_FOUND, "not_found", message);
        };
        match (method, rest) {
            (&Method::GET, "") => {}
            (&Method::POST, "/drain") => {
                if !cluster.is_draining() {
                    cluster.set_draining(true);
                    let services = &self.tools.services;
                    let (sessions, stopping) = (services.sessions.clone(), services.stopping.clone());
                    tokio::spawn(drain::hand_over(cluster.clone(), sessions, stopping));
                }
            }
            (&Method::POST, "/resume") => cluster.set_draining(false),
            _ => return error(StatusCode::NOT_FOUND, "not_found", "there is nothing at this path"),
        }
        let nodes = cluster.nodes().into_iter().map(|node| {
            let state = node.state();
            json!({
                "name": node.report.name,
                "address": node.address.map(|address| address.to_string()),
                "version": node.report.version,
                "state": state,
                "sessions": node.report.sessions,
                "free": node.report.free,
                "owned": node.report.owned,
                "silent_ms": u64::try_from(node.silent.as_millis()).unwrap_or(u64::MAX),
                "round_trip_us": node.took.map(|took| u64::try_from(took.as_micros()).unwrap_or(u64::MAX)),
            })
        });
        answer(StatusCode::OK, &json!({ "name": cluster.name(), "nodes": nodes.collect::<Vec<_>>() }))
    }
}

/// The cluster whose other nodes a client listens to as well, and who listens; `None` on a single machine,
/// and for a request that another node has passed on.
pub(super) fn listens_elsewhere(
    services: &Services,
    parts: &request::Parts,
) -> Option<(Arc<Cluster>, Listener)> {
    let cluster = services.cluster.clone().filter(|_| came(parts) == Came::Directly)?;
    let sender = sender(parts.extensions.get::<Way>().copied())?;
    Some((cluster, Listener { sender, authorization: parts.headers.get(AUTHORIZATION).cloned() }))
}

/// Whom this node vouches for: each request has come some way.
fn sender(way: Option<Way>) -> Option<Sender> {
    Some(match way? {
        Way::Address(peer) => Sender::Client(peer),
        Way::Socket => Sender::LocalUser,
    })
}

/// Whether another node has passed this request on.
pub(super) fn is_passed_on<B>(request: &Request<B>) -> bool {
    request.extensions().get::<PassedOn>().is_some()
}

/// How a request came to this node.
pub(super) fn came(parts: &request::Parts) -> Came {
    if parts.extensions.get::<PassedOn>().is_some() { Came::ByHop } else { Came::Directly }
}

/// Removes from a client's request what only nodes may say.
pub(super) fn strip(headers: &mut HeaderMap) {
    headers.remove(HOP);
}

/// The answer to a request that no node serves now. `/mcp` speaks JSON-RPC, where the id of the request may
/// not be known.
pub(super) fn refusal(fault: &ClusterFault, is_call: bool) -> Answer {
    let (status, code) = match fault {
        ClusterFault::Broken(_) => (StatusCode::BAD_GATEWAY, "node_broke_off"),
        ClusterFault::Unreachable(_) | ClusterFault::Silent(_) => {
            (StatusCode::SERVICE_UNAVAILABLE, "node_unreachable")
        }
        ClusterFault::NotHere(_) => (StatusCode::SERVICE_UNAVAILABLE, "not_here"),
        ClusterFault::NoNode => (StatusCode::SERVICE_UNAVAILABLE, "no_node"),
        ClusterFault::Owners(_) => (StatusCode::SERVICE_UNAVAILABLE, "no_owners"),
    };
    let message = fault.to_string();
    let mut refused = if is_call {
        let error = json!({ "code": NOT_NOW, "message": message, "data": { "error": code } });
        answer(status, &json!({ "jsonrpc": "2.0", "id": Value::Null, "error": error }))
    } else {
        error(status, code, &message)
    };
    if status == StatusCode::SERVICE_UNAVAILABLE {
        refused.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    }
    if matches!(fault, ClusterFault::NotHere(_)) {
        refused.extensions_mut().insert(RefusedHere);
    }
    refused
}

fn duration_us(begun: Instant) -> u64 {
    u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX)
}

/// A request whose body was read, to be passed on as it came.
pub(super) fn whole(parts: request::Parts, body: Bytes) -> Request<http_body_util::Full<Bytes>> {
    Request::from_parts(parts, http_body_util::Full::new(body))
}

/// What a request of a client brings along where there is a cluster: the way by which it came.
pub(super) fn note_way(request: &mut Request<RequestBody>, way: Way) {
    request.extensions_mut().insert(way);
}
