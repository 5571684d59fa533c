//! `GET /logs/{session}/{execution}.jsonl?sig=…`: what the agent of a task wrote to its standard output, as
//! it came out of the container: lines of JSON, up to now or to the end.
//!
//! It is made from the execution's log, which no program of the container can change. It must never hold more
//! of it than one page.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{
    CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderValue, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS,
};
use http::{Method, Response};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use paddock_proto::OutputStream;

use super::body::{Answer, full};
use crate::execution::{EventBody, Execution, ExecutionEvent};

/// Bytes of the log that are read at one time.
const PAGE: usize = 256 << 10;

/// The whole transcript of a task.
pub(super) fn answer(execution: Arc<Execution>, method: &Method) -> Answer {
    let name = format!("inline; filename=\"{}.jsonl\"", execution.id);
    let body = if *method == Method::HEAD {
        full(Bytes::new())
    } else {
        let pages =
            futures_util::stream::try_unfold((execution, 0, true), async |(execution, since, more)| {
                if !more {
                    return Ok(None);
                }
                let page = execution.page(since, PAGE, false).await.map_err(io::Error::other)?;
                let last = page.events.last().map_or(since, |event| event.seq);
                let piece = page.events.iter().flat_map(written).collect::<Vec<u8>>();
                // A page without progress would be asked for again and again.
                let more = page.more && last > since;
                io::Result::Ok(Some((Frame::data(Bytes::from(piece)), (execution, last, more))))
            });
        StreamBody::new(Box::pin(pages)).boxed_unsync()
    };
    let mut answer = Response::new(body);
    let headers = [
        (CONTENT_TYPE, "text/plain; charset=utf-8"),
        (CONTENT_DISPOSITION, &name),
        (CACHE_CONTROL, "private, no-cache"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (CONTENT_SECURITY_POLICY, "sandbox; default-src 'none'"),
        (REFERRER_POLICY, "no-referrer"),
    ];
    for (name, value) in headers {
        if let Ok(value) = HeaderValue::from_str(value) {
            answer.headers_mut().insert(name, value);
        }
    }
    answer
}

/// What an event adds to the transcript.
fn written(event: &ExecutionEvent) -> Vec<u8> {
    match &event.body {
        EventBody::Output { stream: OutputStream::Stdout, bytes, eol } => {
            let mut line = bytes.clone();
            line.extend(eol.then_some(b'\n'));
            line
        }
        EventBody::Output { stream: OutputStream::Stderr, .. } | EventBody::Lifecycle(_) => Vec::new(),
    }
}
