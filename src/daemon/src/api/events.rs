//! `GET /mcp/events`: the progress of the caller's runs and executions, as JSON-RPC notifications in an event
//! stream.
//!
//! Those of other nodes come through [`EventsElsewhere`]. A heartbeat every [`HEARTBEAT`] keeps proxies from
//! closing it. It must never reveal another owner's runs.

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
use super::events_elsewhere::{EventsElsewhere, Listener};
use super::listening::ListenPermits;
use crate::cluster::Cluster;
use crate::notifications::Notification;
use crate::services::Services;

/// The longest silence of a stream: then it sends a comment.
const HEARTBEAT: Duration = Duration::from_secs(15);

/// A slow reader receives this notification in place of the notifications that it has missed.
const MISSED: &str = "notifications/missed";

/// Streams until the client disconnects, or `stop`. `elsewhere` is for a client whose cluster has other
/// nodes.
pub(super) async fn events(
    services: &Services,
    owner: &str,
    listeners: &Arc<ListenPermits>,
    stop: &CancellationToken,
    elsewhere: Option<(Arc<Cluster>, Listener)>,
) -> Answer {
    let listening = match listeners.take(owner) {
        Ok(listening) => listening,
        Err(full) => return full.answer(&services.metrics),
    };
    let (notes, stop) = (services.notifications.subscribe(owner), stop.clone());
    let others = match elsewhere {
        Some((cluster, listener)) => Some(EventsElsewhere::follow(cluster, listener).await),
        None => None,
    };
    let first = Some(Bytes::from_static(b": paddock\n\n"));
    let stream = futures_util::stream::unfold((notes, others, stop, first, listening), |state| async move {
        let (mut notes, mut others, stop, first, listening) = state;
        let text = match first {
            Some(first) => first,
            None => tokio::select! {
                () = stop.cancelled() => return None,
                text = next(&mut notes) => Bytes::from(text?),
                Some(text) = next_elsewhere(others.as_mut()) => text,
            },
        };
        let frame = Ok::<_, Infallible>(Frame::data(text));
        Some((frame, (notes, others, stop, None, listening)))
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

/// The next notification of another node; never, where there is none.
async fn next_elsewhere(others: Option<&mut EventsElsewhere>) -> Option<Bytes> {
    match others {
        Some(others) => others.next().await,
        None => std::future::pending().await,
    }
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
