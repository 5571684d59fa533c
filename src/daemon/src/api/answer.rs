//! From a request to its answer: its trace, its access, its log lines and its metrics.
//!
//! Access is checked first, so that every log line names the token and the peer. A refused request has one
//! log line ([`Refusals::tell`]), any other has two. This module must never demand a token for a route that a
//! signed link opens, nor serve any other protected route without one.
//!
//! [`Refusals::tell`]: super::refusals::Refusals::tell

use std::sync::Arc;
use std::time::Instant;

use http::header::{CONNECTION, HeaderName, HeaderValue, RETRY_AFTER};
use http::{Request, StatusCode};
use http_body_util::BodyExt;
use serde_json::json;
use tracing::{Instrument, debug, error_span, info, warn};

use super::body::{self, Answer, RequestBody, error};
use super::connections::ConnectionPermit;
use super::counted_body::CountedBody;
use super::files::{DownloadLink, LinkKind};
use super::guard::{Credential, unauthorized};
use super::linger::TrackedBody;
use super::refusals;
use super::route::Route;
use super::server::{REGULAR, Server, Way};
use super::{cluster, ports};
use crate::audit::{AuditEntry, Surface};
use crate::sign::DEFAULT_OWNER;
use crate::tenants::pace::STRANGERS;
use crate::tenants::{Limited, RequestPlace};
use crate::tools::Code;
use crate::tools::NOT_NOTED;
use crate::trace::{TRACEPARENT, Trace};

/// The header that tells the caller the trace of its request. Source: W3C Trace Context Level 2, a draft.
const TRACERESPONSE: HeaderName = HeaderName::from_static("traceresponse");

/// The most characters of a method and of a path in a log line.
const METHOD: usize = 20;
const PATH: usize = 200;

/// Requests of one tenant in flight while others have tokens too: it must not take every connection.
const OF_A_TENANT: usize = REGULAR / 4 * 3;

/// The code of JSON-RPC for a limit of a tenant, out of those that servers may define (-32000 to -32099).
const RATE_LIMITED: i64 = -32000;

/// The token's name in the log line of a request without a token.
const NOBODY: &str = "-";

/// By what right a request is served.
pub(super) enum RequestAccess {
    /// By a token.
    Owner(Credential),
    /// By a signed link to a file of this tenant.
    Link(DownloadLink, Credential),
    /// The route is open to everybody.
    All,
}

impl RequestAccess {
    /// The token or link that was shown.
    pub(super) fn credential(&self) -> Option<&Credential> {
        match self {
            Self::Owner(credential) | Self::Link(_, credential) => Some(credential),
            Self::All => None,
        }
    }

    /// The token's name in log lines.
    fn name(&self) -> &str {
        self.credential().map_or(NOBODY, |credential| &credential.tenant.name)
    }
}

/// The polls of its connection are those of a tenant until this request is answered: the next one may be
/// another's.
struct PacedRequest(Arc<ConnectionPermit>);

impl Drop for PacedRequest {
    fn drop(&mut self) {
        self.0.pace(None);
    }
}

impl Server {
    /// Answers a request of a connection that has this permit.
    pub(super) async fn answer(
        &self,
        mut request: Request<TrackedBody>,
        way: Way,
        permit: &Arc<ConnectionPermit>,
    ) -> Answer {
        cluster::strip(request.headers_mut());
        let Some(in_progress) = permit.begin() else { return full() };
        let uri = request.uri().clone();
        let route = Route::of(uri.path());
        let may_pass = || matches!(way, Way::Address(_)) && self.guard.is_operator(request.headers());
        if !route.is_probe() && permit.is_spare() && !may_pass() && !permit.promoted().await {
            self.tools.services.metrics.request_refused("busy");
            self.refusals.tell(|| warn!(peer = way.shown(), "refused: every connection permit is in use"));
            return full();
        }
        let mut given = request.headers().get_all(TRACEPARENT).iter();
        let (first, second) = (given.next(), given.next());
        let one = first.filter(|_| second.is_none()).and_then(|value| value.to_str().ok());
        let trace = one.and_then(Trace::of).unwrap_or_default();
        let metrics = &self.tools.services.metrics;
        let in_flight = metrics.request();
        let mut request = request.map(|body| CountedBody::new(body, metrics.received(route.as_str()), ()));
        if self.tools.services.cluster.is_some() {
            cluster::note_way(&mut request, way);
        }
        let admitted = self.admit(route, &request, way);
        let span = error_span!(
            "request",
            token = admitted.as_ref().map_or(NOBODY, RequestAccess::name),
            peer = way.shown(),
            trace_id = trace.trace_id,
            span_id = trace.span_id,
            parent_id = trace.parent_id
        );
        let begun = admitted.and_then(|admitted| {
            let is_passed_on = cluster::is_passed_on(&request);
            let place = self.begin((route, way), &admitted, permit, is_passed_on)?;
            Ok((admitted, place))
        });
        if begun.as_ref().is_err_and(|refused| refused.status() == StatusCode::UNAUTHORIZED)
            && self.tools.services.tenants.book().has_neighbours()
        {
            permit.pace(Some(STRANGERS));
        }
        let audited = begun.as_ref().ok().and_then(|(access, _)| self.audited(route, way, access));
        let request = with_audit(request, audited.as_ref());
        let pace = PacedRequest(permit.clone());
        if permit.paced().is_some() {
            tokio::task::yield_now().await; // to be polled again when its tenant may
        }
        let (mut answer, place) = match begun {
            Ok((admitted, place)) => {
                (self.answer_admitted(route, request, admitted).instrument(span).await, place)
            }
            Err(refused) => (span.in_scope(|| self.refuse(route, &request, way, *refused)), None),
        };
        drop(in_flight);
        if matches!(route, Route::Ports(_)) {
            ports::sandbox(answer.headers_mut());
        }
        if let Ok(trace) = HeaderValue::try_from(trace.to_string()) {
            answer.headers_mut().insert(TRACERESPONSE, trace);
        }
        let sent = audited.as_ref().map(|entry| entry.sent.clone());
        if let Some(entry) = &audited {
            entry.answered(answer.status().as_u16());
        }
        answer.map(|body| {
            let held = (in_progress, place, audited, pace);
            CountedBody::new(body, metrics.sent(route.as_str()), held).and(sent).boxed_unsync()
        })
    }

    /// The entry of a request in the audit log, if it can do something there.
    fn audited(&self, route: Route<'_>, way: Way, access: &RequestAccess) -> Option<Arc<AuditEntry>> {
        let is_of_interest = match route {
            Route::Mcp
            | Route::Sessions(_)
            | Route::Ports(_)
            | Route::Backup
            | Route::Files(_)
            | Route::Logs(_) => true,
            Route::Events
            | Route::Status
            | Route::Metrics
            | Route::Health
            | Route::Ready
            | Route::Cluster(_)
            | Route::Page(_) => false,
        };
        let credential = access.credential().filter(|_| is_of_interest)?;
        let audit = &self.tools.services.audit;
        let surface = match (route, access) {
            (Route::Mcp, _) => Surface::Mcp,
            (_, RequestAccess::Link(..)) => Surface::Link,
            (_, RequestAccess::Owner(_) | RequestAccess::All) => Surface::Rest,
        };
        let entry = audit.begin(&credential.tenant.name, &way.shown(), (surface, route.as_str()))?;
        let session = match (route, access) {
            (Route::Sessions(rest) | Route::Ports(rest), _) => rest.split('/').next().map(str::to_owned),
            (_, RequestAccess::Link(link, _)) => Some(link.session().to_owned()),
            (_, _) => None,
        };
        if let Some(session) = session {
            entry.uses(Some(&session));
        }
        Some(entry)
    }

    /// Begins a request that was admitted, if its tenant may have one more. A link is not counted: anybody
    /// may have it, and use it against the tenant.
    fn begin(
        &self,
        (route, way): (Route<'_>, Way),
        access: &RequestAccess,
        permit: &ConnectionPermit,
        is_passed_on: bool,
    ) -> Result<Option<RequestPlace>, Box<Answer>> {
        let Some(credential) = access.credential() else { return Ok(None) };
        if !permit.set_known(&credential.over) {
            return Err(unauthorized());
        }
        if self.tools.services.audit.refuses() && !matches!(route, Route::Status | Route::Events) {
            return Err(Box::new(error(StatusCode::SERVICE_UNAVAILABLE, "quota_exceeded", NOT_NOTED)));
        }
        let (RequestAccess::Owner(credential), Way::Address(_)) = (access, way) else { return Ok(None) };
        let tenants = &self.tools.services.tenants;
        let has_neighbours = tenants.book().has_neighbours();
        let is_bounded = !credential.tenant.terms.is_operator && has_neighbours;
        permit.pace(has_neighbours.then(|| tenants.share(&credential.tenant.name)));
        let most = if is_bounded { OF_A_TENANT } else { usize::MAX };
        let begun = tenants.begin_request(&credential.tenant, most, is_passed_on);
        begun.map(Some).map_err(|limited| Box::new(rate_limited(route, &limited)))
    }

    /// Decides by what right the request is served. Changes nothing.
    fn admit(
        &self,
        route: Route<'_>,
        request: &Request<RequestBody>,
        way: Way,
    ) -> Result<RequestAccess, Box<Answer>> {
        let (uri, headers) = (request.uri(), request.headers());
        let tenants = &self.tools.services.tenants;
        self.guard.admit(route, uri, headers)?;
        let owner = || match way {
            Way::Address(_) => self.guard.owner(headers),
            Way::Socket => Ok(Credential::of_owner(tenants, DEFAULT_OWNER)),
        };
        let link = |kind, rest| {
            let link = DownloadLink::of(&self.tools.services.signer, kind, rest, uri);
            let link = link.ok_or_else(|| Box::new(DownloadLink::refused()))?;
            let credential = Credential::of_owner(tenants, &link.owner);
            Ok(RequestAccess::Link(link, credential))
        };
        // Such a method needs no right: `route` refuses it later.
        if !route.takes(request.method()) {
            return Ok(RequestAccess::All);
        }
        match route {
            Route::Mcp | Route::Sessions(_) | Route::Ports(_) | Route::Events | Route::Status => {
                owner().map(RequestAccess::Owner)
            }
            Route::Metrics => match way {
                Way::Address(_) => {
                    let reader = self.guard.reads_metrics(headers)?;
                    Ok(reader.map_or(RequestAccess::All, RequestAccess::Owner))
                }
                Way::Socket => Ok(RequestAccess::All),
            },
            Route::Files(rest) => link(LinkKind::File, rest),
            Route::Logs(rest) => link(LinkKind::Log, rest),
            // Everything of every token is in it, so no token gives access to it: only the socket does.
            Route::Backup | Route::Cluster(_) => match way {
                Way::Address(_) => Ok(RequestAccess::All),
                Way::Socket => Ok(RequestAccess::Owner(Credential::of_owner(tenants, DEFAULT_OWNER))),
            },
            Route::Health | Route::Ready | Route::Page(_) => Ok(RequestAccess::All),
        }
    }

    /// Refuses a request that was not admitted: with its reason, or with the advice to wait if its peer was
    /// refused too often.
    fn refuse(&self, route: Route<'_>, request: &Request<RequestBody>, way: Way, answer: Answer) -> Answer {
        let begun = Instant::now();
        let metrics = &self.tools.services.metrics;
        let reason = match (answer.status(), route) {
            (StatusCode::FORBIDDEN, Route::Files(_) | Route::Logs(_)) => "link",
            (StatusCode::UNAUTHORIZED, _) => "token",
            (StatusCode::TOO_MANY_REQUESTS, _) => "tenant",
            _ => "guard",
        };
        // A Host or an Origin is no secret that a caller could guess, so the answer always says what is wrong
        // with it.
        let over = match way {
            Way::Address(peer) if !matches!(reason, "guard" | "tenant") => {
                self.refusals.count(peer.ip(), begun)
            }
            Way::Address(_) | Way::Socket => None,
        };
        let reason = over.map_or(reason, |_| "peer");
        let answer = over.map_or(answer, refusals::wait);
        metrics.request_refused(reason);
        metrics.answered(route.as_str(), request.method(), answer.status(), begun.elapsed());
        let (method, path) = shown(request);
        self.refusals.tell(|| warn!(method, path, status = answer.status().as_u16(), reason, "refused"));
        answer
    }

    async fn answer_admitted(
        &self,
        route: Route<'_>,
        request: Request<RequestBody>,
        admitted: RequestAccess,
    ) -> Answer {
        let begun = Instant::now();
        let (method, path) = shown(&request);
        let verb = request.method().clone();
        // Anybody may request these routes as often as they like, so they must not fill the log.
        let is_quiet = route.is_probe() || matches!(admitted, RequestAccess::All);
        if is_quiet {
            debug!(method, path, "request");
        } else {
            info!(method, path, "request");
        }
        let over = match &admitted {
            RequestAccess::Owner(credential) => Some(credential.over.clone()),
            RequestAccess::Link(..) | RequestAccess::All => None,
        };
        let mut answer = self.route(route, request, admitted).await;
        // What was revoked meanwhile has ended its sessions too: the caller hears why, not how.
        if over.is_some_and(|over| over.is_cancelled()) {
            answer = *unauthorized();
        }
        let took = begun.elapsed();
        self.tools.services.metrics.answered(route.as_str(), &verb, answer.status(), took);
        let (status, ms) = (answer.status().as_u16(), (took.as_secs_f64() * 1e4).round() / 10.0);
        if !is_quiet || answer.status().is_server_error() {
            info!(method, path, status, ms, "answer");
        } else if answer.status().is_client_error() {
            self.refusals.tell(|| info!(method, path, status, ms, "answer"));
        } else {
            debug!(method, path, status, ms, "answer");
        }
        answer
    }
}

/// The request, which brings its entry along and counts its bytes for it.
pub(super) fn with_audit(
    request: Request<RequestBody>,
    entry: Option<&Arc<AuditEntry>>,
) -> Request<RequestBody> {
    let Some(entry) = entry else { return request };
    entry.asked(request.method().as_str());
    let mut request = request.map(|body| body.and(Some(entry.received.clone())));
    request.extensions_mut().insert(entry.clone());
    request
}

/// A request's method and path for a log line. The path may hold a session id and a file name, never a
/// signature, which is in the query.
fn shown(request: &Request<RequestBody>) -> (String, String) {
    let method = request.method().as_str().chars().take(METHOD).collect();
    (method, request.uri().path().chars().take(PATH).collect())
}

/// The answer to a request of a tenant that has reached a limit. `/mcp` speaks JSON-RPC, and its body was not
/// read: the id of the request is not known.
fn rate_limited(route: Route<'_>, limited: &Limited) -> Answer {
    let (code, message) = (Code::RateLimited.as_str(), limited.to_string());
    let mut data = limited.details();
    data.insert("error".into(), json!(code));
    let document = if matches!(route, Route::Mcp) {
        let error = json!({ "code": RATE_LIMITED, "message": message, "data": data });
        json!({ "jsonrpc": "2.0", "id": null, "error": error })
    } else {
        data.insert("message".into(), json!(message));
        json!(data)
    };
    let mut answer = body::json(StatusCode::TOO_MANY_REQUESTS, &document);
    if let Some(seconds) = limited.retry_seconds() {
        answer.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    answer
}

/// The answer to a request without a permit.
fn full() -> Answer {
    let message = "the daemon is busy with as many requests as it takes at one time; try again in a second";
    let mut answer = error(StatusCode::SERVICE_UNAVAILABLE, "busy", message);
    answer.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    answer
}
