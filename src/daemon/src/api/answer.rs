//! From a request to its answer: its trace, who asks, its lines in the log, what is counted, and which route it takes.
//!
//! Who asks is found out first, so that every line names the token and the peer, and a request that is refused has one line
//! ([`Refusals::tell`]) where others have two. It must never ask a token of what is open by a link, nor serve anything else
//! without one.
//!
//! [`Refusals::tell`]: super::refusals::Refusals::tell

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use http::header::{CONNECTION, HeaderName, HeaderValue, RETRY_AFTER};
use http::{Method, Request, StatusCode, request};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tracing::{Instrument, debug, error_span, info, warn};

use super::body::{self, Answer, Given, error};
use super::count::Counted;
use super::files::{Kind, Link};
use super::places::Seat;
use super::refusals;
use super::route::Route;
use super::server::{Server, Way};
use super::{events, health, metrics, page, status};
use crate::sign::DEFAULT_OWNER;
use crate::trace::{TRACEPARENT, Trace};

/// Tells whoever asked which trace its request became. Source: W3C Trace Context Level 2, a draft.
const TRACERESPONSE: HeaderName = HeaderName::from_static("traceresponse");

/// Characters of a method and of a path that a line of the log has.
const METHOD: usize = 20;
const PATH: usize = 200;

/// What a line says of a request that showed no token, where none is asked for.
const NOBODY: &str = "-";

/// Who may have what is asked for.
enum Admitted<'a> {
    /// Whoever has this name's token.
    Owner(&'a str),
    /// Whoever has the link.
    Link(Link),
    /// Everybody.
    All,
}

impl Admitted<'_> {
    /// The name of the token that a line of the log says.
    fn name(&self) -> &str {
        match self {
            Self::Owner(owner) => owner,
            Self::Link(link) => &link.owner,
            Self::All => NOBODY,
        }
    }
}

impl Server {
    /// Answers a request of a connection that has this place.
    pub(super) async fn answer(&self, request: Request<Incoming>, way: Way, seat: &Arc<Seat>) -> Answer {
        let Some(at_work) = seat.begin() else { return full() };
        let is_probe = Route::of(request.uri().path()).is_probe();
        if !is_probe && seat.is_spare() && !seat.promoted().await {
            self.tools.metrics.request_refused("busy");
            self.refusals.tell(|| warn!(peer = way.shown(), "refused: every place is taken"));
            return full();
        }
        let mut given = request.headers().get_all(TRACEPARENT).iter();
        let (first, second) = (given.next(), given.next());
        let one = first.filter(|_| second.is_none()).and_then(|value| value.to_str().ok());
        let trace = one.and_then(Trace::of).unwrap_or_default();
        let metrics = &self.tools.metrics;
        let in_flight = metrics.request();
        let route = Route::of(request.uri().path()).as_str();
        let request = request.map(|body| Counted::new(body, metrics.received(route), ()));
        let admitted = self.admit(&request, way);
        let span = error_span!(
            "request",
            token = admitted.as_ref().map_or(NOBODY, Admitted::name),
            peer = way.shown(),
            trace_id = trace.trace_id,
            span_id = trace.span_id,
            parent_id = trace.parent_id
        );
        let mut answer = match admitted {
            Ok(admitted) => {
                if !matches!(admitted, Admitted::All) {
                    seat.is_known();
                }
                self.answer_admitted(request, admitted).instrument(span).await
            }
            Err(refused) => span.in_scope(|| self.refuse(&request, way, *refused)),
        };
        drop(in_flight);
        if let Ok(trace) = HeaderValue::try_from(trace.to_string()) {
            answer.headers_mut().insert(TRACERESPONSE, trace);
        }
        answer.map(|body| Counted::new(body, metrics.sent(route), at_work).boxed_unsync())
    }

    /// Finds out who asks, and whether that is enough for what is asked for. Nothing is touched.
    fn admit(&self, request: &Request<Given>, way: Way) -> Result<Admitted<'_>, Box<Answer>> {
        let (uri, headers) = (request.uri(), request.headers());
        let route = Route::of(uri.path());
        self.guard.admit(route, uri, headers)?;
        let owner = || match way {
            Way::Address(_) => self.guard.owner(headers),
            Way::Socket => Ok(DEFAULT_OWNER),
        };
        let link = |kind, rest| {
            let link = Link::of(&self.store, &self.tools.signer, kind, rest, uri);
            link.map(Admitted::Link).ok_or_else(|| Box::new(Link::refused()))
        };
        // Said below, to whoever asks.
        if !route.takes(request.method()) {
            return Ok(Admitted::All);
        }
        match route {
            Route::Mcp | Route::Sessions(_) | Route::Events | Route::Status => owner().map(Admitted::Owner),
            Route::Metrics => match way {
                Way::Address(_) => self.guard.reads_metrics(headers).map(|()| Admitted::All),
                Way::Socket => Ok(Admitted::All),
            },
            Route::Files(rest) => link(Kind::File, rest),
            Route::Logs(rest) => link(Kind::Log, rest),
            Route::Health | Route::Ready | Route::Page(_) => Ok(Admitted::All),
        }
    }

    /// Refuses what was not admitted: with its reason, or with the advice to wait where there were too many.
    fn refuse(&self, request: &Request<Given>, way: Way, answer: Answer) -> Answer {
        let begun = Instant::now();
        let metrics = &self.tools.metrics;
        let route = Route::of(request.uri().path());
        let reason = match (answer.status(), route) {
            (StatusCode::FORBIDDEN, Route::Files(_) | Route::Logs(_)) => "link",
            (StatusCode::UNAUTHORIZED, _) => "token",
            _ => "guard",
        };
        // A Host or an Origin is no secret that could be guessed: it is always told what is wrong with it.
        let over = match way {
            Way::Address(peer) if reason != "guard" => self.refusals.count(peer.ip(), begun),
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

    async fn answer_admitted(&self, request: Request<Given>, admitted: Admitted<'_>) -> Answer {
        let begun = Instant::now();
        let (method, path) = shown(&request);
        let asked = Route::of(request.uri().path());
        let (route, verb) = (asked.as_str(), request.method().clone());
        // What anybody may ask for as often as he likes is no news.
        let is_quiet = asked.is_probe() || matches!(admitted, Admitted::All);
        if is_quiet {
            debug!(method, path, "request");
        } else {
            info!(method, path, "request");
        }
        let answer = self.route(request, admitted).await;
        let took = begun.elapsed();
        self.tools.metrics.answered(route, &verb, answer.status(), took);
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

    async fn route(&self, request: Request<Given>, admitted: Admitted<'_>) -> Answer {
        let (parts, incoming) = request.into_parts();
        let route = Route::of(parts.uri.path());
        if !route.takes(&parts.method) {
            let message = "this path takes GET and HEAD";
            return error(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", message);
        }
        match (route, admitted) {
            (Route::Mcp, Admitted::Owner(owner)) => self.mcp(owner, parts, incoming).await,
            (Route::Sessions(rest), Admitted::Owner(owner)) => {
                self.raw.serve(owner, rest, &parts, incoming).await
            }
            (Route::Events, Admitted::Owner(owner)) => {
                events::events(&self.tools, owner, &self.listeners, &self.stop_streams)
            }
            (Route::Status, Admitted::Owner(owner)) => {
                status::status(&self.tools, owner, &parts.uri, self.begun).await
            }
            (Route::Files(_) | Route::Logs(_), Admitted::Link(link)) => {
                link.serve(&parts.method, &parts.headers).await
            }
            (Route::Metrics, Admitted::All) => metrics::metrics(&self.tools, &self.store).await,
            (Route::Health, Admitted::All) => health::health(&self.tools.pool, &self.store),
            (Route::Ready, Admitted::All) => health::ready(&self.tools.pool, &self.store),
            (Route::Page(path), Admitted::All) => page::part(path, &parts.headers).unwrap_or_else(|| {
                error(StatusCode::NOT_FOUND, "not_found", "there is nothing at this path")
            }),
            // `admit` gives none of these; if it did, nobody should be served.
            (_, Admitted::Owner(_) | Admitted::Link(_) | Admitted::All) => {
                error(StatusCode::INTERNAL_SERVER_ERROR, "internal", "this request was not admitted")
            }
        }
    }

    async fn mcp(&self, owner: &str, mut parts: request::Parts, incoming: Given) -> Answer {
        let body = if parts.method == Method::POST {
            let (max, patience) = (self.config.max_body, self.config.body_timeout);
            match body::read(incoming, max, patience, &self.room).await {
                // The SDK keeps the parts of a request with its call, whether that is answered at once or not.
                Ok((body, place)) => {
                    parts.extensions.insert(place);
                    body
                }
                Err(error) => {
                    self.tools.metrics.request_refused(error.reason());
                    return error.answer();
                }
            }
        } else {
            Bytes::new()
        };
        self.mcp.serve(owner, parts, body).await
    }
}

/// A request's method and path for a line of the log. The path may hold a session id and a file name, never a signature;
/// that is in the query.
fn shown(request: &Request<Given>) -> (String, String) {
    let method = request.method().as_str().chars().take(METHOD).collect();
    (method, request.uri().path().chars().take(PATH).collect())
}

/// The answer where there is no place for a request.
fn full() -> Answer {
    let message = "the daemon has as many requests as it takes; try again in a second";
    let mut answer = error(StatusCode::SERVICE_UNAVAILABLE, "busy", message);
    answer.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    answer
}
