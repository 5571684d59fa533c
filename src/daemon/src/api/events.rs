//! `GET /mcp/events`: the progress of the caller's runs and executions, as JSON-RPC notifications in an event
//! stream.
//!
//! A heartbeat every [`HEARTBEAT`] keeps proxies from closing it. It must never reveal another owner's runs.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue};
use http::{Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use serde_json::json;
use tokio::sync::broadcast::error::RecvError;
use tokio_util::sync::CancellationToken;

use super::body::Answer;
use super::listening::ListenPermits;
use crate::notifications::Notification;
use crate::services::Services;

/// The longest silence of a stream: then it sends a comment.
const HEARTBEAT: Duration = Duration::from_secs(15);

/// A slow reader receives this notification in place of the notifications that it has missed.
const MISSED: &str = "notifications/missed";

/// Streams until the client disconnects, or `stop`.
pub(super) fn events(
    services: &Services,
    owner: &str,
    listeners: &Arc<ListenPermits>,
    stop: &CancellationToken,
) -> Answer {
    let listening = match listeners.take(owner) {
        Ok(listening) => listening,
        Err(full) => return full.answer(&services.metrics),
    };
    let (notes, stop) = (services.notifications.subscribe(owner), stop.clone());
    let first = Some(": paddock\n\n".to_owned());
    let stream = futures_util::stream::unfold((notes, stop, first, listening), |state| async move {
        let (mut notes, stop, first, listening) = state;
        let text = match first {
            Some(first) => first,
            None => tokio::select! {
                () = stop.cancelled() => return None,
                text = next(&mut notes) => text?,
            },
        };
        let frame = Ok::<_, Infallible>(Frame::data(Bytes::from(text)));
        Some((frame, (notes, stop, None, listening)))
    });
    let body = StreamBody::new(stream).map_err(|never| match never {}).boxed_unsync();
    let mut answer = Response::new(body);
    *answer.status_mut() = StatusCode::OK;
    for (name, value) in [
        (CONTENT_TYPE, "text/event-stream"),
        (CACHE_CONTROL, "no-cache"),
        (HeaderName::from_static("x-accel-buffering"), "no"),
    ] {
        answer.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    answer
}

/// The next piece of the stream.
async fn next(notes: &mut tokio::sync::broadcast::Receiver<Notification>) -> Option<String> {
    let heartbeat = tokio::time::sleep(HEARTBEAT);
    tokio::pin!(heartbeat);
    tokio::select! {
        () = &mut heartbeat => Some(": heartbeat\n\n".to_owned()),
        note = notes.recv() => match note {
            Ok(note) => {
                let message = json!({ "jsonrpc": "2.0", "method": note.method, "params": &*note.params });
                Some(format!("data: {message}\n\n"))
            }
            Err(RecvError::Lagged(missed)) => {
                let message = json!({ "jsonrpc": "2.0", "method": MISSED, "params": { "count": missed } });
                Some(format!("data: {message}\n\n"))
            }
            Err(RecvError::Closed) => None,
        },
    }
}
