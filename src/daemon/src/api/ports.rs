//! The way in over HTTP: by signed links on the listener of `ports.addr`, and by token below `/ports`.
//!
//! On its listener nothing else is served: every path without a valid signature is refused in the same way,
//! so a page from there finds no token, no `/mcp`, no page of the daemon's. The `Host` may be anything, as
//! for links to files: a stranger's site whose name resolves to this machine (DNS rebinding) knows no
//! signature.
//!
//! Below `/ports` a page would have the daemon's own origin. So every answer there, the daemon's own
//! included, carries `Content-Security-Policy: sandbox`: a browser that is led there (it has no token, but a
//! daemon may need none) gives it no origin and runs nothing of it.
//!
//! It must never log a signature, nor forward a request without a right to its port.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use http::header::{
    ALLOW, CONTENT_SECURITY_POLICY, HeaderMap, HeaderValue, LOCATION, RETRY_AFTER, X_CONTENT_TYPE_OPTIONS,
};
use http::{Method, Request, StatusCode};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, debug, error_span, warn};

use super::accept;
use super::answer::with_audit;
use super::body::{Answer, RequestBody, error, full};
use super::cluster;
use super::connections::ConnectionPermit;
use super::counted_body::CountedBody;
use super::guard::Credential;
use super::linger::{Lingering, TrackedBody, UnreadBodies};
use super::locate;
use super::refusals;
use super::route::Route;
use super::server::{Ending, Secured, Server, Way};
use super::stall::{StallTimeout, reset};
use crate::audit::Surface;
use crate::cluster::Location;
use crate::ports::{PortFault, PortPath, PortRequest, PortTarget};

/// Connections to the listener at one time.
const CONNECTIONS: usize = 1024;

/// Characters of a signature.
const SIGNATURE: usize = 64;

/// Its name in metrics.
const ROUTE: Route<'static> = Route::Ports("");

/// Forbids a browser to run anything of an answer.
pub(super) fn sandbox(headers: &mut HeaderMap) {
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static("sandbox"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
}

fn nothing_here() -> Answer {
    error(StatusCode::NOT_FOUND, "not_found", "there is nothing at this path")
}

impl Server {
    /// Answers a request by token; `rest` is the path behind `/ports/`.
    pub(super) async fn port(
        &self,
        credential: &Credential,
        rest: &str,
        request: Request<RequestBody>,
    ) -> Answer {
        let Some(PortPath { session, port, rest }) = PortPath::parse(rest) else {
            let message = "this path takes /ports/{session}/{port}/…, with a port from 1 to 65535";
            return error(StatusCode::NOT_FOUND, "not_found", message);
        };
        let target = PortTarget { owner: credential.tenant.name.to_string(), session, port };
        let (path, over) = (rest.to_owned(), credential.over.clone());
        let (rest, signature, drops_authorization) = (path.as_str(), None, true);
        self.forward(PortRequest { target, rest, signature, drops_authorization, over, request }).await
    }

    async fn forward(&self, asked: PortRequest<'_, RequestBody>) -> Answer {
        let ports = &self.tools.services.ports;
        let method = asked.request.method();
        if matches!(*method, Method::CONNECT | Method::TRACE) {
            let message = "a port takes every method but CONNECT and TRACE";
            let mut answer = error(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", message);
            answer
                .headers_mut()
                .insert(ALLOW, HeaderValue::from_static("GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"));
            return answer;
        }
        if asked.rest.is_empty() {
            // Relative addresses in a page need the slash.
            let query = asked.request.uri().query().map(|query| format!("?{query}")).unwrap_or_default();
            let to = format!("{}/{query}", ports.prefix(&asked.target, asked.signature));
            let mut answer = Answer::new(full(""));
            *answer.status_mut() = StatusCode::PERMANENT_REDIRECT;
            answer.headers_mut().extend(HeaderValue::try_from(to).ok().map(|to| (LOCATION, to)));
            return answer;
        }
        match ports.forward(asked).await {
            Ok(answer) => answer,
            Err(fault) => {
                let (status, code) = fault.status();
                let mut answer = error(status, code, &fault.to_string());
                if matches!(fault, PortFault::TooMany | PortFault::TooManyOfOwner) {
                    answer.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
                }
                answer
            }
        }
    }

    /// Serves links to ports, and nothing else, until the end.
    pub(crate) async fn serve_ports(self: Arc<Self>, listener: TcpListener, ending: Ending) {
        let permits = self.permits(CONNECTIONS, 0);
        accept::until_drained(&permits, listener, ending, |connection, seat, stop, abort| {
            let server = self.clone();
            async move { server.port_connection(connection, seat, &stop, &abort).await }
        })
        .await;
    }

    async fn port_connection(
        self: Arc<Self>,
        (stream, peer): (TcpStream, SocketAddr),
        seat: ConnectionPermit,
        stop: &CancellationToken,
        abort: &CancellationToken,
    ) {
        let _ = stream.set_nodelay(true);
        let stream = StallTimeout::new(stream, self.config.write_timeout, seat.stall.clone(), reset);
        match self.secured(stream, &seat, stop).await {
            Secured::Plain(stream) => self.serve_links((stream, peer), seat, stop, abort).await,
            Secured::Tls(stream) => self.serve_links((stream, peer), seat, stop, abort).await,
            Secured::Over => {}
        }
    }

    async fn serve_links(
        self: Arc<Self>,
        (stream, peer): (impl AsyncRead + AsyncWrite + Unpin + Send + 'static, SocketAddr),
        seat: ConnectionPermit,
        stop: &CancellationToken,
        abort: &CancellationToken,
    ) {
        let (cut, seat) = (seat.cut.clone(), Arc::new(seat));
        let unread = UnreadBodies::default();
        let service = service_fn(|request: Request<Incoming>| {
            let (server, seat) = (self.clone(), seat.clone());
            let request = request.map(|body| unread.track(body));
            async move { Ok::<_, Infallible>(server.answer_link(request, peer, &seat).await) }
        });
        let stream = TokioIo::new(Lingering::new(stream, unread.clone()));
        let mut connection = std::pin::pin!(self.http().serve_connection(stream, service).with_upgrades());
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

    /// Answers a request by its link.
    pub(super) async fn answer_link(
        &self,
        mut request: Request<TrackedBody>,
        peer: SocketAddr,
        seat: &Arc<ConnectionPermit>,
    ) -> Answer {
        cluster::strip(request.headers_mut());
        let Some(in_progress) = seat.begin() else {
            return error(
                StatusCode::SERVICE_UNAVAILABLE,
                "busy",
                "too many connections are open; try again",
            );
        };
        let (metrics, begun) = (&self.tools.services.metrics, Instant::now());
        let in_flight = metrics.request();
        let request = request.map(|body| CountedBody::new(body, metrics.received(ROUTE.as_str()), ()));
        let (verb, uri) = (request.method().clone(), request.uri().clone());
        let mut audited = None;
        let answer = match self.linked(uri.path()) {
            Ok((signature, target, rest, over)) => {
                seat.set_known(&over);
                let of = (Surface::Link, ROUTE.as_str());
                audited = self.tools.services.audit.begin(&target.owner, &peer.to_string(), of);
                if let Some(entry) = &audited {
                    entry.uses(Some(target.session.as_str()));
                }
                let mut request = with_audit(request, audited.as_ref());
                let (session, port) = (target.session.to_string(), target.port);
                let span =
                    error_span!("port", token = target.owner, peer = %peer, session_id = session, port);
                let drops_authorization = self.guard.has_token(request.headers());
                let signature = Some(signature);
                let at = match &self.tools.services.cluster {
                    Some(cluster) => {
                        cluster::note_way(&mut request, Way::Address(peer));
                        locate::link_at(cluster, &target, request.extensions()).await
                    }
                    None => Ok(Location::Here),
                };
                async {
                    let answer = match (at, &self.tools.services.cluster) {
                        (Ok(Location::At(node)), Some(cluster)) => {
                            self.pass_on((&**cluster, &node), cluster::Entry::Ports, over, request).await
                        }
                        (Err(fault), _) => cluster::refusal(&fault, false),
                        (Ok(_), _) => {
                            let asked =
                                PortRequest { target, rest, signature, drops_authorization, over, request };
                            self.forward(asked).await
                        }
                    };
                    debug!(method = %verb, status = answer.status().as_u16(), "answer");
                    answer
                }
                .instrument(span)
                .await
            }
            Err(answer) if answer.status() == StatusCode::NOT_FOUND => *answer,
            Err(answer) => {
                let over = self.refusals.count(peer.ip(), begun);
                metrics.request_refused(if over.is_some() { "peer" } else { "link" });
                self.refusals.tell(|| warn!(peer = %peer, "refused: a link to a port is not valid"));
                over.map_or(*answer, refusals::wait)
            }
        };
        drop(in_flight);
        metrics.answered(ROUTE.as_str(), &verb, answer.status(), begun.elapsed());
        let sent = audited.as_ref().map(|entry| entry.sent.clone());
        if let Some(entry) = &audited {
            entry.answered(answer.status().as_u16());
        }
        answer.map(|body| {
            let held = (in_progress, audited);
            CountedBody::new(body, metrics.sent(ROUTE.as_str()), held).and(sent).boxed_unsync()
        })
    }

    /// What a path of the listener leads to: its signature, its port, and the path behind it.
    /// What ends the right to it comes last.
    fn linked<'a>(
        &self,
        path: &'a str,
    ) -> Result<(&'a str, PortTarget, &'a str, CancellationToken), Box<Answer>> {
        let missing = || Box::new(nothing_here());
        let (signature, rest) =
            path.strip_prefix('/').and_then(|path| path.split_once('/')).ok_or_else(missing)?;
        if signature.len() != SIGNATURE {
            return Err(missing());
        }
        let PortPath { session, port, rest } = PortPath::parse(rest).ok_or_else(missing)?;
        let owner = self.tools.services.ports.links().owner(signature, &session, port);
        let refused = || Box::new(error(StatusCode::FORBIDDEN, "forbidden", "the link is not valid"));
        let owner = owner.ok_or_else(refused)?;
        let over = Credential::of_owner(&self.tools.services.tenants, &owner).over;
        if over.is_cancelled() {
            return Err(refused());
        }
        Ok((signature, PortTarget { owner, session, port }, rest, over))
    }
}
