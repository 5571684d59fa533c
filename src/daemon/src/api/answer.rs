//! From a request to its answer: its trace, its lines in the log, what is counted, who asks, and which route it takes.
//!
//! It must never ask a token of what is open by a link, nor serve anything else without one.

use std::time::Instant;

use bytes::Bytes;
use http::header::{HeaderName, HeaderValue};
use http::{Method, Request, StatusCode, request};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tracing::{Instrument, debug, error_span, info};

use super::body::{self, Answer, Given, error};
use super::count::Counted;
use super::files::{self, Kind};
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

impl Server {
    /// Answers a request.
    pub(super) async fn answer(&self, request: Request<Incoming>, way: Way) -> Answer {
        let mut given = request.headers().get_all(TRACEPARENT).iter();
        let (first, second) = (given.next(), given.next());
        let one = first.filter(|_| second.is_none()).and_then(|value| value.to_str().ok());
        let trace = one.and_then(Trace::of).unwrap_or_default();
        let span = error_span!(
            "request",
            trace_id = trace.trace_id,
            span_id = trace.span_id,
            parent_id = trace.parent_id
        );
        let mut answer = self.answer_in_its_trace(request, way).instrument(span).await;
        if let Ok(trace) = HeaderValue::try_from(trace.to_string()) {
            answer.headers_mut().insert(TRACERESPONSE, trace);
        }
        answer
    }

    async fn answer_in_its_trace(&self, request: Request<Incoming>, way: Way) -> Answer {
        let begun = Instant::now();
        let metrics = &self.tools.metrics;
        let _in_flight = metrics.request();
        let method = request.method().clone();
        let shown: String = method.as_str().chars().take(METHOD).collect();
        let asked = Route::of(request.uri().path());
        let (route, is_probe) = (asked.as_str(), asked.is_probe());
        // The path may hold a session id and a file name, never a signature; that is in the query.
        let path: String = request.uri().path().chars().take(PATH).collect();
        if is_probe {
            debug!(method = shown, path, "request");
        } else {
            info!(method = shown, path, "request");
        }
        let routed = self.route(request.map(|body| Counted::new(body, metrics.received(route))), way).await;
        let answer = routed.unwrap_or_else(|refused| *refused);
        let took = begun.elapsed();
        metrics.answered(route, &method, answer.status(), took);
        let (status, ms) = (answer.status().as_u16(), (took.as_secs_f64() * 1e4).round() / 10.0);
        if is_probe && answer.status().is_success() {
            debug!(method = shown, path, status, ms, "answer");
        } else {
            info!(method = shown, path, status, ms, "answer");
        }
        answer.map(|body| Counted::new(body, metrics.sent(route)).boxed_unsync())
    }

    async fn route(&self, request: Request<Given>, way: Way) -> Result<Answer, Box<Answer>> {
        let (parts, incoming) = request.into_parts();
        let route = Route::of(parts.uri.path());
        self.guard.admit(route, &parts.uri, &parts.headers)?;
        let takes_others = matches!(route, Route::Mcp | Route::Sessions(_));
        if !takes_others && !matches!(parts.method, Method::GET | Method::HEAD) {
            let message = "this path takes GET and HEAD";
            return Ok(error(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", message));
        }
        let owner = || match way {
            Way::Address(_) => self.guard.owner(&parts.headers),
            Way::Socket => Ok(DEFAULT_OWNER),
        };
        Ok(match route {
            Route::Mcp => self.mcp(owner()?, parts, incoming).await,
            Route::Sessions(rest) => self.raw.serve(owner()?, rest, &parts, incoming).await,
            Route::Events => events::events(&self.tools, owner()?, &self.stop_streams),
            Route::Status => status::status(&self.tools, owner()?, &parts.uri, self.begun).await,
            Route::Metrics => {
                if matches!(way, Way::Address(_)) {
                    self.guard.reads_metrics(&parts.headers)?;
                }
                metrics::metrics(&self.tools, &self.store).await
            }
            Route::Files(rest) => self.signed(Kind::File, rest, &parts).await,
            Route::Logs(rest) => self.signed(Kind::Log, rest, &parts).await,
            Route::Health => health::health(&self.tools.pool, &self.store),
            Route::Ready => health::ready(&self.tools.pool, &self.store),
            Route::Page(path) => page::part(path, &parts.headers).unwrap_or_else(|| {
                error(StatusCode::NOT_FOUND, "not_found", "there is nothing at this path")
            }),
        })
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
                Err(error) => return error.answer(),
            }
        } else {
            Bytes::new()
        };
        self.mcp.serve(owner, parts, body).await
    }

    async fn signed(&self, kind: Kind, rest: &str, parts: &request::Parts) -> Answer {
        let (signer, headers) = (&self.tools.signer, &parts.headers);
        files::serve(&self.store, signer, kind, rest, &parts.uri, &parts.method, headers).await
    }
}
