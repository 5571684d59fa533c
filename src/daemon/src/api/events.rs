//! `GET /mcp/events`: what becomes of the caller's runs and executions, as JSON-RPC notifications in an event stream.
//!
//! A heartbeat every [`HEARTBEAT`] keeps proxies from closing it. It must never tell of another owner's runs.

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
use super::listening::Listeners;
use crate::feed::Note;
use crate::tools::Tools;

/// Between two words, if there is nothing to tell.
const HEARTBEAT: Duration = Duration::from_secs(15);

/// The notification that says that others were missed, by a client that reads too slowly.
const MISSED: &str = "notifications/missed";

/// Streams until the client goes, or `stop`.
pub(super) fn events(
    tools: &Tools,
    owner: &str,
    listeners: &Arc<Listeners>,
    stop: &CancellationToken,
) -> Answer {
    let listening = match listeners.take(owner) {
        Ok(listening) => listening,
        Err(full) => return full.answer(&tools.metrics),
    };
    let (notes, stop) = (tools.feed.watch(owner), stop.clone());
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
async fn next(notes: &mut tokio::sync::broadcast::Receiver<Note>) -> Option<String> {
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
