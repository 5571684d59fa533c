//! To the SDK and back: a request goes in, and the SDK's answer is put into the form that clients know.

use std::convert::Infallible;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::Stream;
use http::header::{HOST, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, BodyStream, Full, StreamBody};
use rmcp::transport::streamable_http_server::session::SessionManager;
use serde_json::Value;
use tracing::debug;

use super::call_context::CallContext;
use super::head::{SESSION, in_json, is_json, unknown, unknown_revision};
use super::in_memory::SESSIONS;
use super::owner_services::OwnerServices;
use super::resume::AnswerReader;
use super::{Forwarded, McpEndpoint};
use crate::api::body::Answer;
use crate::api::envelope::unread;

/// The answer of the SDK.
type SdkAnswer = Response<BoxBody<Bytes, Infallible>>;

impl McpEndpoint {
    /// Lets the SDK answer a request.
    pub(super) async fn forward(
        &self,
        owner: &str,
        services: &OwnerServices,
        request: Forwarded<'_>,
    ) -> Answer {
        let Forwarded { mut parts, body, service, mut context, session, id, reader, listens } = request;
        // The guard has checked it, and admits more than the SDK can read.
        parts.headers.insert(HOST, HeaderValue::from_static("localhost"));
        let ends = parts.method == Method::DELETE;
        let revision = unknown(&parts.headers);
        parts.extensions.insert(context.clone());
        if listens {
            context.listening = match self.config.listeners.take(owner) {
                Ok(permit) => Some(permit.into()),
                Err(full) => return full.answer(&self.tools.services.metrics),
            };
        }
        let mut answer = service(Request::from_parts(parts, Full::new(body.clone()))).await;
        // The SDK says 202, which Python's SDK takes for a failure: the session has ended by now.
        if ends && answer.status() == StatusCode::ACCEPTED {
            *answer.status_mut() = StatusCode::NO_CONTENT;
        }
        if let Some(refusal) = refused(&answer, &body) {
            return refusal;
        }
        let is_well = answer.status().is_success();
        if is_well && is_json(answer.headers()) {
            answer = context.preference.applied(answer);
        }
        if !is_well && !is_json(answer.headers()) {
            return match (revision, id) {
                (Some(revision), Some(id)) => unknown_revision(&revision, &id),
                (Some(_) | None, _) => in_json(answer).await,
            };
        }
        match session.filter(|_| is_well) {
            Some(id) if ends => self.end(owner, &id).await,
            named if is_well && !ends => note_use(services, &answer, named, &context, id.as_ref()).await,
            Some(_) | None => {}
        }
        self.streamed(answer, context, reader, listens)
    }

    /// The answer with a body that holds what its request brought, and tells the reader what is read of it.
    fn streamed(
        &self,
        answer: SdkAnswer,
        context: CallContext,
        reader: Option<AnswerReader>,
        listens: bool,
    ) -> Answer {
        answer.map(|body| {
            let body = body.map_err(|never| match never {});
            let stop = self.stops.streams.clone().cancelled_owned();
            let frames = BodyStream::new(body);
            let frames = if listens { frames.take_until(stop).left_stream() } else { frames.right_stream() };
            StreamBody::new(held(frames, context, reader)).boxed_unsync()
        })
    }
}

/// The refusal of a message that the SDK could not read: its type was right, so it is the content.
fn refused(answer: &SdkAnswer, body: &[u8]) -> Option<Answer> {
    (answer.status() == StatusCode::UNSUPPORTED_MEDIA_TYPE).then(|| unread(body))
}

/// Notes that a session is in use. The request names it, or the answer does if the session is new.
/// Evicts another from memory if there are too many.
async fn note_use(
    services: &OwnerServices,
    answer: &SdkAnswer,
    named: Option<String>,
    context: &CallContext,
    id: Option<&Value>,
) {
    let new = answer.headers().get(SESSION).and_then(|id| id.to_str().ok()).map(str::to_owned);
    let Some(session) = new.or(named) else { return };
    let due = services.in_memory.note_use(&session, id.map(|id| (&context.in_progress, id)));
    if due.note_on_disk {
        services.on_disk.clone().note_use(&session);
    }
    if let Some(evicted) = due.evicted {
        debug!("an MCP session is evicted from memory: its owner has used {SESSIONS} others since");
        let _ = services.manager.close_session(&evicted).await;
    }
}

/// The frames of an answer, which hold what its request brought until they are sent.
fn held<E>(
    frames: impl Stream<Item = Result<Frame<Bytes>, E>> + Send + 'static,
    context: CallContext,
    reader: Option<AnswerReader>,
) -> impl Stream<Item = Result<Frame<Bytes>, E>> + Send + 'static {
    let state = (Box::pin(frames), context, reader);
    futures_util::stream::unfold(state, |(mut frames, context, reader)| async move {
        let frame = frames.next().await;
        match (&frame, &reader) {
            (Some(Ok(frame)), Some(reader)) => reader.saw(frame),
            (None, Some(reader)) => reader.ended(),
            (Some(_) | None, _) => {}
        }
        Some((frame?, (frames, context, reader)))
    })
}
