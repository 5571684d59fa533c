//! One request to a server in a container, from the session to the end of the answer.
//!
//! ```text
//!  session ─► its containers ─► dial each until one connects ─► HTTP/1.1 ─► head ─► body, streamed
//!     │            │                     │                                    └─ 101 ─► a tunnel
//!     └ NoSession  └ NoContainer         └ NothingListens, Reserved, …  NoAnswer ┘
//! ```
//!
//! A server lives as long as the run that started it, and a session under way keeps its containers, so a
//! request needs no turn and no lease: it must never make or keep a container, nor wait for a call of the
//! session.

use std::error::Error;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::uri::PathAndQuery;
use http::{HeaderMap, Request, Response, StatusCode, Uri, Version};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Empty};
use hyper::body::{Body, Incoming};
use hyper::client::conn::http1;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use paddock_proto::limits::MAX_DIALS;
use paddock_proto::message::ConnectFailure;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::headers::{HeaderRules, upgrade};
use super::idle::{Activity, IdleBody};
use super::links::{PortLinks, PortTarget, path_of, place, scheme_of};
use super::location::Addresses;
use super::owners::{OwnerCounts, OwnerPlace};
use super::tunnel::{PortConnection, tunnel};
use crate::audit::AuditEntry;
use crate::link::{Dials, PortDialError};
use crate::session::Sessions;
use crate::store::StoreError;
use crate::tenants::Tenants;

/// Lines and bytes of the head of an answer.
const HEADERS: usize = 128;
const HEAD: usize = 64 * 1024;

/// The bounds of the way in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortBounds {
    /// Connections of all sessions at one time.
    pub connections: usize,
    /// How long a connection to a server may take.
    pub connect: Duration,
    /// How long a server may take to begin its answer, while nothing of the request moves.
    pub answer: Duration,
    /// How long nothing may move on a connection.
    pub idle: Duration,
}

/// Why a request was not answered by a server.
#[derive(Debug, thiserror::Error)]
pub enum PortFault {
    /// The session does not exist, or has no container.
    #[error(
        "nothing runs in this session: it does not exist, or it has no container; a server lives as long as \
         the run or the command that started it"
    )]
    NothingRuns,
    /// No program listens.
    #[error(
        "no program listens on port {0} of this session; a server must listen on 127.0.0.1, ::1 or every \
         address of its container, and lives as long as the run or the command that started it"
    )]
    NothingListens(u16),
    /// The port belongs to the container itself.
    #[error("port {0} belongs to the container itself; a server takes another one")]
    Reserved(u16),
    /// The server did not accept the connection in time.
    #[error("the program on port {0} accepted no connection within {1:?} (ports.connect_timeout)")]
    NotAccepted(u16, Duration),
    /// The server did not begin its answer in time.
    #[error("the program on port {0} did not begin its answer within {1:?} (ports.answer_timeout)")]
    NoAnswer(u16, Duration),
    /// The server's answer is no HTTP, or broke off.
    #[error("the program on port {0} gave no valid answer: {1}")]
    BadAnswer(u16, String),
    /// There are as many connections as may be.
    #[error(
        "there are as many connections as there may be: ports.connections of all sessions, {MAX_DIALS} of \
         one container; try again later"
    )]
    TooMany,
    /// The owner has as many connections as it may have.
    #[error(
        "this token has as many connections as it may have while others have tokens too: three quarters of \
         ports.connections; close some, or try again later"
    )]
    TooManyOfOwner,
    /// The container cannot be reached.
    #[error("the container of this session cannot be reached now; try again in some seconds")]
    Unreachable,
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl PortFault {
    /// The status and the code of the answer to a client.
    #[must_use]
    pub fn status(&self) -> (StatusCode, &'static str) {
        match self {
            Self::NothingRuns => (StatusCode::NOT_FOUND, "not_found"),
            Self::NothingListens(_) => (StatusCode::BAD_GATEWAY, "nothing_listens"),
            Self::Reserved(_) => (StatusCode::FORBIDDEN, "reserved_port"),
            Self::NotAccepted(..) | Self::NoAnswer(..) => (StatusCode::GATEWAY_TIMEOUT, "no_answer"),
            Self::BadAnswer(..) => (StatusCode::BAD_GATEWAY, "bad_answer"),
            Self::TooMany | Self::TooManyOfOwner => (StatusCode::SERVICE_UNAVAILABLE, "busy"),
            Self::Unreachable => (StatusCode::BAD_GATEWAY, "unreachable"),
            Self::Store(_) => (StatusCode::INTERNAL_SERVER_ERROR, "internal"),
        }
    }
}

/// A request to a port, as it came.
pub struct PortRequest<'a, B> {
    /// The port.
    pub target: PortTarget,
    /// The path behind the port; it begins with a slash.
    pub rest: &'a str,
    /// The signature in the path, for a request on the listener of ports; `None`: by token.
    pub signature: Option<&'a str>,
    /// Whether its `Authorization` is for the daemon.
    pub drops_authorization: bool,
    /// Cancelled when the right to be there ends.
    pub over: CancellationToken,
    /// The request.
    pub request: Request<B>,
}

/// Forwards requests to ports.
pub struct PortForwarder {
    sessions: Arc<Sessions>,
    links: Arc<PortLinks>,
    /// The daemon's own URL.
    url: String,
    bounds: PortBounds,
    connections: Arc<Semaphore>,
    owners: OwnerCounts,
    tenants: Arc<Tenants>,
    /// Cancelled when the daemon ends: connections that changed their protocol end with it.
    stopping: CancellationToken,
}

/// What an answer keeps until its end: its right to be there, its owner's place, the task of its connection,
/// and its entry in the audit log.
type Held = (OwnedSemaphorePermit, OwnerPlace, AbortOnDropHandle<()>, Option<Arc<AuditEntry>>);

/// The body of an answer.
pub type PortBody = UnsyncBoxBody<Bytes, io::Error>;

impl PortForwarder {
    /// Nothing is open yet. `url` is the daemon's own URL.
    pub fn new(
        sessions: Arc<Sessions>,
        links: Arc<PortLinks>,
        url: &str,
        bounds: PortBounds,
        tenants: Arc<Tenants>,
        stopping: CancellationToken,
    ) -> Self {
        let connections = Arc::new(Semaphore::new(bounds.connections));
        let owners = OwnerCounts::default();
        Self { sessions, links, url: url.to_owned(), bounds, connections, owners, tenants, stopping }
    }

    /// The links that this forwarder serves.
    pub fn links(&self) -> &PortLinks {
        &self.links
    }

    /// The path of a port as a browser has it, without a slash at its end.
    pub fn prefix(&self, target: &PortTarget, signature: Option<&str>) -> String {
        let PortTarget { session, port, .. } = target;
        match signature {
            Some(signature) => self.links.prefix(signature, session, *port),
            None => format!("{}/ports/{}", path_of(&self.url), place(session, *port)),
        }
    }

    /// Has a request answered by the server on its port.
    ///
    /// # Errors
    /// [`PortFault`]; the client is to be answered with its sentence.
    pub async fn forward<B>(&self, asked: PortRequest<'_, B>) -> Result<Response<PortBody>, PortFault>
    where
        B: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Send + Unpin + 'static,
    {
        let PortRequest { target, rest, signature, drops_authorization, over, mut request } = asked;
        let place = self.owners.begin(&target.owner, self.most_of(&target.owner));
        let place = place.ok_or(PortFault::TooManyOfOwner)?;
        let permit = self.connections.clone().try_acquire_owned().map_err(|_| PortFault::TooMany)?;
        let connection = self.connect(&target).await?;
        let rules = self.rules(&target, signature, drops_authorization, &request);
        let audited = request.extensions().get::<Arc<AuditEntry>>().cloned();
        let protocol = upgrade(request.headers()).cloned().filter(|_| request.version() == Version::HTTP_11);
        let client = protocol.as_ref().map(|_| hyper::upgrade::on(&mut request));
        let headers = rules.inward(request.headers(), protocol.as_ref());
        let activity = Activity::default();
        let request = inward(request, rest, headers, self.bounds.idle, &activity, client.is_some());
        let (response, task) = self.ask(connection, target.port, request, &activity).await?;
        let held = (permit, place, task, audited);
        self.outward(response, &rules, client.map(|client| (client, over)), held, activity)
    }

    /// How many connections an owner may have now: not all of them while others have tokens too.
    fn most_of(&self, owner: &str) -> usize {
        let book = self.tenants.book();
        let is_operator = book.tenant(owner).is_some_and(|tenant| tenant.terms.is_operator);
        let is_bounded = !is_operator && book.has_neighbours();
        if is_bounded { (self.bounds.connections * 3 / 4).max(1) } else { usize::MAX }
    }

    /// A connection to the server on this port, in whichever container of the session it is.
    async fn connect(&self, target: &PortTarget) -> Result<PortConnection, PortFault> {
        let (port, within) = (target.port, self.bounds.connect);
        let dials = self.sessions.dials(&target.owner, &target.session).await?;
        if dials.is_empty() {
            return Err(PortFault::NothingRuns);
        }
        let dialed = tokio::time::timeout(within, dial(&dials, port)).await;
        dialed.map_err(|_| PortFault::NotAccepted(port, within))?
    }

    fn rules<B>(
        &self,
        target: &PortTarget,
        signature: Option<&str>,
        drops_authorization: bool,
        request: &Request<B>,
    ) -> HeaderRules {
        let scheme = if signature.is_some() { self.links.scheme() } else { scheme_of(&self.url) };
        let host = request.headers().get(http::header::HOST).and_then(|host| host.to_str().ok());
        let host = request.uri().authority().map(http::uri::Authority::as_str).or(host).unwrap_or_default();
        let outside = format!("{scheme}://{}", host.to_ascii_lowercase());
        let prefix = self.prefix(target, signature);
        HeaderRules {
            addresses: Addresses { outside, prefix, port: target.port },
            cookies: self.links.cookie_key(target),
            is_sandboxed: signature.is_none(),
            drops_authorization,
        }
    }

    /// Sends the request, and waits for the head of its answer.
    async fn ask(
        &self,
        connection: PortConnection,
        port: u16,
        request: Request<PortBody>,
        activity: &Activity,
    ) -> Result<(Response<Incoming>, AbortOnDropHandle<()>), PortFault> {
        let bad = |error: hyper::Error| {
            let cause = error.source().map(|cause| format!(": {cause}")).unwrap_or_default();
            PortFault::BadAnswer(port, format!("{error}{cause}"))
        };
        let mut http = http1::Builder::new();
        http.max_headers(HEADERS).max_buf_size(HEAD);
        let (mut sender, connection) = http.handshake(TokioIo::new(connection)).await.map_err(bad)?;
        let task = AbortOnDropHandle::new(tokio::spawn(async move {
            let _ = connection.with_upgrades().await;
        }));
        tokio::select! {
            answered = sender.send_request(request) => Ok((answered.map_err(bad)?, task)),
            () = activity.is_still(self.bounds.answer) => Err(PortFault::NoAnswer(port, self.bounds.answer)),
        }
    }

    /// The answer for the client. If both change to another protocol, a tunnel begins.
    fn outward(
        &self,
        mut response: Response<Incoming>,
        rules: &HeaderRules,
        client: Option<(OnUpgrade, CancellationToken)>,
        held: Held,
        activity: Activity,
    ) -> Result<Response<PortBody>, PortFault> {
        let port = rules.addresses.port;
        if response.status() != StatusCode::SWITCHING_PROTOCOLS {
            let mut answer = Response::new(());
            *answer.status_mut() = response.status();
            *answer.headers_mut() = rules.outward(response.headers(), None);
            return Ok(answer.map(|()| {
                IdleBody::new(response.into_body(), activity, self.bounds.idle, held).boxed_unsync()
            }));
        }
        let protocol = upgrade(response.headers()).cloned();
        let (Some(protocol), Some((client, over))) = (protocol, client) else {
            return Err(PortFault::BadAnswer(
                port,
                "it changes to a protocol that was not asked for".to_owned(),
            ));
        };
        let server = hyper::upgrade::on(&mut response);
        let (patience, stopping) = (self.bounds.idle, self.stopping.clone());
        let counts = held.3.as_ref().map(|entry| (entry.received.clone(), entry.sent.clone()));
        tokio::spawn(async move {
            let carrying = async {
                // The client's side comes when the answer below was sent to it.
                if let Ok(Ok((client, server))) =
                    tokio::time::timeout(patience, async { tokio::try_join!(client, server) }).await
                {
                    let counts = counts.unwrap_or_default();
                    tunnel(TokioIo::new(client), TokioIo::new(server), patience, counts).await;
                }
            };
            tokio::select! {
                () = carrying => {}
                () = stopping.cancelled() => {}
                () = over.cancelled() => {}
            }
            drop(held);
        });
        let none = Empty::new().map_err(|never| match never {}).boxed_unsync();
        let mut answer = Response::new(none);
        *answer.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        *answer.headers_mut() = rules.outward(response.headers(), Some(&protocol));
        Ok(answer)
    }
}

/// Connects to the first container in which a program listens on this port.
async fn dial(dials: &[Dials], port: u16) -> Result<PortConnection, PortFault> {
    let mut fault = PortFault::NothingListens(port);
    for one in dials {
        fault = match one.dial(port).await {
            Ok(stream) => return Ok(PortConnection::over(stream)),
            Err(PortDialError::Refused(ConnectFailure::Blocked)) => PortFault::Reserved(port),
            Err(PortDialError::Refused(ConnectFailure::TooMany)) => PortFault::TooMany,
            Err(PortDialError::Refused(
                ConnectFailure::Refused
                | ConnectFailure::NoAddress
                | ConnectFailure::Unreachable
                | ConnectFailure::TimedOut,
            )) => fault,
            Err(PortDialError::Link(_)) if matches!(fault, PortFault::NothingListens(_)) => {
                PortFault::Unreachable
            }
            Err(PortDialError::Link(_)) => fault,
        };
    }
    Err(fault)
}

/// The request for the server.
fn inward<B>(
    request: Request<B>,
    rest: &str,
    headers: HeaderMap,
    patience: Duration,
    activity: &Activity,
    is_upgrade: bool,
) -> Request<PortBody>
where
    B: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Send + Unpin + 'static,
{
    let query = request.uri().query().map(|query| format!("?{query}")).unwrap_or_default();
    // Both are parts of a URI that was parsed before.
    let uri = PathAndQuery::try_from(format!("{rest}{query}")).map(Uri::from).unwrap_or_default();
    let (parts, body) = request.into_parts();
    // With an upgrade, what follows the head belongs to the tunnel.
    let body = if is_upgrade {
        Empty::new().map_err(|never| match never {}).boxed_unsync()
    } else {
        IdleBody::new(body, activity.clone(), patience, ()).boxed_unsync()
    };
    let mut inward = Request::new(body);
    *inward.method_mut() = parts.method;
    *inward.uri_mut() = uri;
    *inward.headers_mut() = headers;
    inward
}
