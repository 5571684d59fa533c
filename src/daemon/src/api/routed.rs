//! What becomes of a request that was admitted: the node that it is for, and the part of the daemon that
//! serves its route.
//!
//! A route that needs a token must never be served to somebody who showed none.

use bytes::Bytes;
use futures_util::TryStreamExt;
use http::{Method, Request, StatusCode, request};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use tracing::warn;

use super::answer::RequestAccess;
use super::body::{self, Answer, RequestBody, error};
use super::guard::Credential;
use super::route::Route;
use super::server::Server;
use super::{cluster, events, health, locate, mcp, metrics, page, status};
use crate::backup;
use crate::cluster::Location;
use crate::cluster::hop::Entry;

impl Server {
    /// Serves a request that was admitted by this right.
    pub(super) async fn route(
        &self,
        route: Route<'_>,
        request: Request<RequestBody>,
        admitted: RequestAccess,
    ) -> Answer {
        let (mut parts, incoming) = request.into_parts();
        if !route.takes(&parts.method) {
            let message = "this path takes GET and HEAD";
            return error(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", message);
        }
        if let Some(cluster) = &self.tools.services.cluster {
            match self.locate(cluster, route, &admitted, &parts).await {
                Ok(Location::Here) => locate::without_tag(cluster, &mut parts.headers),
                Ok(Location::At(node)) => {
                    let over = admitted.credential().map(|credential| credential.over.clone());
                    let request = Request::from_parts(parts, incoming);
                    let (to, over) = ((&**cluster, &node), over.unwrap_or_default());
                    return self.pass_on(to, Entry::Http, over, request).await;
                }
                Err(fault) => return cluster::refusal(&fault, matches!(route, Route::Mcp)),
            }
        }
        match (route, admitted) {
            (Route::Ports(rest), RequestAccess::Owner(owner)) => {
                self.port(&owner, rest, Request::from_parts(parts, incoming)).await
            }
            (Route::Mcp, RequestAccess::Owner(owner)) => self.mcp(&owner, parts, incoming).await,
            (Route::Sessions(rest), RequestAccess::Owner(owner)) => {
                self.raw.serve(&owner.tenant.name, rest, &parts, incoming).await
            }
            (Route::Events, RequestAccess::Owner(owner)) => {
                let (listeners, stop) = (&self.listeners, &self.stop_streams);
                let elsewhere = cluster::listens_elsewhere(&self.tools.services, &parts);
                events::events(&self.tools.services, &owner.tenant.name, listeners, stop, elsewhere).await
            }
            (Route::Status, RequestAccess::Owner(owner)) => {
                status::status(&self.tools, &owner.tenant.name, &parts.uri, self.begun).await
            }
            (Route::Files(_) | Route::Logs(_), RequestAccess::Link(link, _)) => {
                let executions = &self.tools.services.executions;
                link.serve(&self.store, executions, &parts.method, &parts.headers).await
            }
            (Route::Metrics, RequestAccess::All | RequestAccess::Owner(_)) => {
                metrics::metrics(&self.tools.services, &self.store).await
            }
            (Route::Health, RequestAccess::All) => health::health(&self.tools.services),
            (Route::Ready, RequestAccess::All) => health::ready(&self.tools.services),
            (Route::Backup, RequestAccess::Owner(_)) => self.backup().await,
            (Route::Cluster(rest), RequestAccess::Owner(_)) => self.cluster_command(rest, &parts.method),
            (Route::Backup | Route::Cluster(_), RequestAccess::All) => nothing(),
            (Route::Page(path), RequestAccess::All) => {
                page::part(path, &parts.headers).unwrap_or_else(nothing)
            }
            // `admit` returns none of these combinations; if it did, the request must not be served.
            (_, RequestAccess::Owner(_) | RequestAccess::Link(..) | RequestAccess::All) => {
                error(StatusCode::INTERNAL_SERVER_ERROR, "internal", "this request was not admitted")
            }
        }
    }

    /// A backup of the store; it breaks off if it cannot be completed.
    async fn backup(&self) -> Answer {
        match self.store.snapshot().await {
            Ok(snapshot) => {
                let broke = |error: &std::io::Error| warn!(%error, "a backup broke off");
                let archive = backup::pack(snapshot).inspect_err(broke).map_ok(Frame::data);
                Answer::new(StreamBody::new(Box::pin(archive)).boxed_unsync())
            }
            Err(problem) => error(StatusCode::SERVICE_UNAVAILABLE, "not_possible_now", &problem.to_string()),
        }
    }

    async fn mcp(&self, credential: &Credential, mut parts: request::Parts, incoming: RequestBody) -> Answer {
        let owner = &*credential.tenant.name;
        let body = if parts.method == Method::POST {
            let (max, patience) = (self.config.max_body, self.config.body_timeout);
            let part = self.tools.services.tenants.part(owner, &self.large_bodies.parts);
            match body::read(incoming, max, patience, (&self.large_bodies, part.as_ref())).await {
                // The SDK keeps the parts of a request until its call ends, even if that is after the answer.
                Ok((body, permits)) => {
                    parts.extensions.insert(permits);
                    body
                }
                Err(error) => {
                    self.tools.services.metrics.request_refused(error.reason());
                    return error.answer();
                }
            }
        } else {
            Bytes::new()
        };
        let Some(cluster) = &self.tools.services.cluster else {
            return self.mcp.serve(owner, parts, body).await;
        };
        // A call within an MCP session is passed on by the tool: its answer can be resumed here.
        if parts.method == Method::POST && !mcp::is_in_session(&parts.headers) {
            match self.locate_call(cluster, owner, &mut parts, &body).await {
                Ok(Location::Here) => {}
                Ok(Location::At(node)) => {
                    let to = (&**cluster, &node);
                    let request = cluster::whole(parts, body);
                    return self.pass_on(to, Entry::Http, credential.over.clone(), request).await;
                }
                Err(fault) => return cluster::refusal(&fault, true),
            }
        }
        let mut answer = self.mcp.serve(owner, parts, body).await;
        locate::with_tag(cluster, answer.headers_mut());
        answer
    }
}

fn nothing() -> Answer {
    error(StatusCode::NOT_FOUND, "not_found", "there is nothing at this path")
}
