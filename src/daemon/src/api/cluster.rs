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
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use super::accept;
use super::answer::RequestAccess;
use super::body::{Answer, RequestBody, error, json as answer};
use super::connections::ConnectionPermit;
use super::events_elsewhere::Listener;
use super::linger::{Lingering, TrackedBody, UnreadBodies};
use super::mcp::may_take_long;
use super::raw::SessionPath;
use super::route::Route;
use super::server::{Ending, HEAD, HEADERS, Server, Way};
use super::stall::{StallTimeout, reset};
use crate::cluster::concern::{Access, Concern};
pub(super) use crate::cluster::hop::Entry;
use crate::cluster::hop::{HOP, Hop, Sender};
use crate::cluster::ids::NodeTag;
use crate::cluster::owners::SessionKey;
use crate::cluster::pass::{NOT_HERE, TOOK};
use crate::cluster::wire::{PassedBody, tune};
use crate::cluster::{Came, Cluster, ClusterFault, Location, NODE, OwnLoad, Target, drain, now_ms};
use crate::ports::{PortPath, PortTarget};
use crate::services::Services;
use crate::session::SessionId;

/// Connections of peers at one time: each carries one request.
const CONNECTIONS: usize = 4096;
/// What a node adds to the lines and the bytes of a head.
const MORE_HEADERS: usize = 8;
const MORE_HEAD: usize = 8 * 1024;
/// How long a peer's handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// The header that names an MCP session.
const MCP_SESSION: &str = "mcp-session-id";
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

    /// Where an admitted request is served, by its path and its headers. The body of a call of MCP says more:
    /// see [`Self::locate_call`].
    pub(super) async fn locate(
        &self,
        cluster: &Cluster,
        route: Route<'_>,
        admitted: &RequestAccess,
        parts: &request::Parts,
    ) -> Result<Location, ClusterFault> {
        let came = came(parts);
        let key = match (route, admitted) {
            (Route::Sessions(rest), RequestAccess::Owner(owner)) => match SessionPath::parse(rest) {
                Ok(Some(path)) => SessionKey::new(&owner.tenant.name, path.id),
                Ok(None) | Err(_) => return Ok(Location::Here),
            },
            (Route::Ports(rest), RequestAccess::Owner(owner)) => match PortPath::parse(rest) {
                Some(path) => SessionKey::new(&owner.tenant.name, path.session),
                None => return Ok(Location::Here),
            },
            (_, RequestAccess::Link(link, _)) => match link.session().parse() {
                Ok(session) => SessionKey::new(&link.owner, session),
                Err(_) => return Ok(Location::Here),
            },
            (Route::Mcp, _) => return mcp_session_at(cluster, &parts.headers, came),
            (_, RequestAccess::Owner(_) | RequestAccess::All) => return Ok(Location::Here),
        };
        let makes = matches!(route, Route::Sessions(_)) && parts.method == Method::PUT;
        cluster.locate(&key, if makes { Access::Make } else { Access::Existing }, came).await
    }

    /// Where a bare call of MCP is served, by its message. A call that names no session gets one here.
    pub(super) async fn locate_call(
        &self,
        cluster: &Cluster,
        owner: &str,
        parts: &mut request::Parts,
        body: &[u8],
    ) -> Result<Location, ClusterFault> {
        let read = may_take_long(body.len(), || {
            let Called { tool, arguments, state } = called(body)?;
            let concern = Concern::of_json(&tool, arguments.map_or(&[][..], |raw| raw.get().as_bytes()));
            Some((concern, state))
        });
        let (concern, state) = read.unwrap_or((Concern::Nothing, None));
        let came = came(parts);
        // A call that goes on: it waits at the node that asked its client something.
        if let Some((tag, _)) = state.as_deref().and_then(NodeTag::of_marked) {
            return Ok(if came == Came::ByHop { Location::Here } else { cluster.locate_tag(tag) });
        }
        match concern {
            Concern::Nothing => Ok(Location::Here),
            Concern::Session(session, access) => {
                cluster.locate(&SessionKey::new(owner, session), access, came).await
            }
            Concern::Execution(tag, id) => Ok(self.locate_execution(cluster, owner, (tag, &id), came)),
            // A bare call has no session of its own: the tool refuses it.
            Concern::Unnamed(Access::Existing) => Ok(Location::Here),
            Concern::Unnamed(Access::Make) => {
                let chosen =
                    parts.extensions.get::<PassedOn>().and_then(|PassedOn(hop)| hop.own_session.clone());
                let session = chosen.unwrap_or_else(SessionId::generate);
                let at = cluster.locate(&SessionKey::new(owner, session.clone()), Access::Make, came).await?;
                parts.extensions.insert(FreshSession(session));
                Ok(at)
            }
        }
    }

    /// Where an execution is: here, if it is known here, else at the node that made its id.
    fn locate_execution(
        &self,
        cluster: &Cluster,
        owner: &str,
        (tag, id): (NodeTag, &str),
        came: Came,
    ) -> Location {
        if came == Came::ByHop || self.tools.services.executions.get(owner, id).is_some() {
            return Location::Here;
        }
        cluster.locate_tag(tag)
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

/// Where the port of a link is.
pub(super) async fn link_at(
    cluster: &Cluster,
    target: &PortTarget,
    brought: &http::Extensions,
) -> Result<Location, ClusterFault> {
    let came = if brought.get::<PassedOn>().is_some() { Came::ByHop } else { Came::Directly };
    let key = SessionKey::new(&target.owner, target.session.clone());
    cluster.locate(&key, Access::Existing, came).await
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
fn came(parts: &request::Parts) -> Came {
    if parts.extensions.get::<PassedOn>().is_some() { Came::ByHop } else { Came::Directly }
}

/// Where an MCP session is that a request names.
fn mcp_session_at(cluster: &Cluster, headers: &HeaderMap, came: Came) -> Result<Location, ClusterFault> {
    let named = headers.get(MCP_SESSION).and_then(|id| id.to_str().ok()).and_then(NodeTag::of_marked);
    let Some((tag, _)) = named else { return Ok(Location::Here) };
    match cluster.locate_tag(tag) {
        Location::At(node) if came == Came::ByHop => Err(ClusterFault::NotHere(node.name)),
        at @ (Location::Here | Location::At(_)) => Ok(at),
    }
}

/// Takes this node's tag off the MCP session that a request names.
pub(super) fn without_tag(cluster: &Cluster, headers: &mut HeaderMap) {
    let named = headers.get(MCP_SESSION).and_then(|id| id.to_str().ok()).and_then(NodeTag::of_marked);
    let own = named.filter(|(tag, _)| *tag == cluster.tag()).map(|(_, id)| HeaderValue::try_from(id));
    if let Some(Ok(own)) = own {
        headers.insert(MCP_SESSION, own);
    }
}

/// Puts this node's tag on the MCP session that an answer names.
pub(super) fn with_tag(cluster: &Cluster, headers: &mut HeaderMap) {
    let id = headers.get(MCP_SESSION).and_then(|id| id.to_str().ok());
    let id = id.and_then(|id| HeaderValue::try_from(cluster.tag().mark(id)).ok());
    if let Some(id) = id {
        headers.insert(MCP_SESSION, id);
    }
}

/// Removes from a client's request what only nodes may say.
pub(super) fn strip(headers: &mut HeaderMap) {
    headers.remove(HOP);
}

/// What a message calls.
pub(super) struct Called<'a> {
    /// The name of the tool.
    pub(super) tool: String,
    /// Its arguments, not read.
    pub(super) arguments: Option<&'a RawValue>,
    /// The `requestState` of a call that goes on.
    pub(super) state: Option<String>,
}

/// What a message calls. `None` for a message that calls no tool, and for one that will be refused.
pub(super) fn called(message: &[u8]) -> Option<Called<'_>> {
    #[derive(Deserialize)]
    struct Message<'a> {
        method: Option<String>,
        #[serde(borrow)]
        params: Option<&'a RawValue>,
    }
    #[derive(Deserialize)]
    struct Params<'a> {
        name: String,
        #[serde(borrow)]
        arguments: Option<&'a RawValue>,
        #[serde(rename = "requestState", default)]
        state: Option<String>,
    }
    let message: Message<'_> = serde_json::from_slice(message).ok()?;
    message.method.filter(|method| method == "tools/call")?;
    let Params { name, arguments, state } = serde_json::from_str(message.params?.get()).ok()?;
    Some(Called { tool: name, arguments, state })
}

/// The answer to a request that no node serves now. `/mcp` speaks JSON-RPC, where the id of the request may
/// not be known.
pub(super) fn refusal(fault: &ClusterFault, is_call: bool) -> Answer {
    let (status, code) = match fault {
        ClusterFault::Broken(_) => (StatusCode::BAD_GATEWAY, "node_broke_off"),
        ClusterFault::Unreachable(_) => (StatusCode::SERVICE_UNAVAILABLE, "node_unreachable"),
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
