//! A request on its way to the node that has its session, and the answer on its way back.
//!
//! Bodies stream in both directions, at the pace of the slower side; nothing of them is kept. A client that
//! goes away takes its request at the other node with it, since the connection between the nodes is closed.
//! A request that could have reached the other node must never be sent again. Where the other machine was cut
//! off no packet says so: then what waits for it is given up when the table of owners has its node as ended.

use std::error::Error;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::header::{
    CONNECTION, EXPECT, HeaderMap, HeaderName, HeaderValue, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
};
use http::{Request, Response, StatusCode, Uri, Version};
use http_body_util::BodyExt;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper_util::rt::TokioIo;
use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::hop::{HOP, Hop};
use super::wire::{PassedBody, nothing};
use super::{Cluster, ClusterFault, Target, now_ms};

/// How long the owner took for the head of its answer, in microseconds: what is left of the first node's time
/// is the cost of the hop.
pub(crate) const TOOK: HeaderName = HeaderName::from_static("paddock-took");
/// Marks the refusal of a node that does not have the session.
pub(crate) const NOT_HERE: HeaderName = HeaderName::from_static("paddock-not-here");

/// What concerns one connection only. Source: RFC 9110, 7.6.1.
const OF_ONE_CONNECTION: [HeaderName; 7] = [
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    EXPECT,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
];

/// How long the client's side may take to change its protocol after it was told to.
const UPGRADED: Duration = Duration::from_secs(30);

impl Cluster {
    /// Has another node answer a request. Each of `over` ends a connection that has changed its protocol.
    ///
    /// # Errors
    /// The node cannot be reached, or broke off before it answered.
    pub async fn pass(
        &self,
        to: &Target,
        hop: &Hop,
        mut request: Request<PassedBody>,
        over: [CancellationToken; 2],
    ) -> Result<Response<PassedBody>, ClusterFault> {
        let begun = Instant::now();
        let protocol = upgrade(request.headers()).filter(|_| request.version() == Version::HTTP_11);
        let client = protocol.is_some().then(|| hyper::upgrade::on(&mut request));
        let path = request.uri().path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
        let unreachable = || ClusterFault::Unreachable(to.name.clone());
        let uri: Uri = format!("http://{}{path}", to.address).parse().map_err(|_| unreachable())?;
        let (mut parts, body) = request.into_parts();
        clean(&mut parts.headers, protocol.as_ref());
        parts.headers.insert(HOP, hop.header(self.keys(), &to.name, (&parts.method, &uri), now_ms()));
        parts.uri = uri;
        parts.version = Version::HTTP_11;
        // What bounds the memory of a body is held until it was sent.
        let _held = std::mem::take(&mut parts.extensions);
        let answered = tokio::select! {
            answered = self.client.request(Request::from_parts(parts, body)) => answered.map_err(Some),
            () = self.end_of(&to.name) => Err(None),
        };
        let mut response = match answered {
            Ok(response) => response,
            Err(error) => {
                let said =
                    error.as_ref().map_or_else(|| "the node has ended".to_owned(), |error| cause(error));
                debug!(node = to.name, error = said, "a request could not be passed on");
                self.doubt(&to.name);
                let (outcome, fault) = if error.is_some_and(|error| error.is_connect()) {
                    self.view_mut().suspect(&to.name);
                    ("unreachable", unreachable())
                } else {
                    ("broken", ClusterFault::Broken(to.name.clone()))
                };
                self.metrics.cluster_passed(outcome, None);
                return Err(fault);
            }
        };
        let took = response.headers_mut().remove(TOOK).and_then(|took| took.to_str().ok()?.parse().ok());
        let hop = took.map(|took| begun.elapsed().saturating_sub(Duration::from_micros(took)));
        let is_refused = response.headers_mut().remove(NOT_HERE).is_some();
        if is_refused {
            self.doubt(&to.name);
        }
        self.metrics.cluster_passed(if is_refused { "not_here" } else { "answered" }, hop);
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            let end = self.end_of(&to.name);
            return tunnel(response, client, over, end).ok_or_else(|| ClusterFault::Broken(to.name.clone()));
        }
        clean(response.headers_mut(), None);
        let end = Box::pin(self.end_of(&to.name));
        Ok(response.map(|body| UntilEnd { body, end }.boxed_unsync()))
    }
}

/// The body of an answer, which breaks off when the node that sends it has ended.
struct UntilEnd {
    body: Incoming,
    end: BoxFuture<'static, ()>,
}

impl Body for UntilEnd {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        match Pin::new(&mut self.body).poll_frame(context) {
            Poll::Ready(frame) => Poll::Ready(frame.map(|frame| frame.map_err(io::Error::other))),
            Poll::Pending => self.end.as_mut().poll(context).map(|()| {
                Some(Err(io::Error::new(io::ErrorKind::ConnectionAborted, "the node that answers has ended")))
            }),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The answer that changes the protocol; both sides are connected as soon as the client has it. `None` if the
/// client did not ask for it.
fn tunnel(
    mut response: Response<Incoming>,
    client: Option<hyper::upgrade::OnUpgrade>,
    over: [CancellationToken; 2],
    end: impl Future<Output = ()> + Send + 'static,
) -> Option<Response<PassedBody>> {
    let client = client?;
    let server = hyper::upgrade::on(&mut response);
    let protocol = upgrade(response.headers());
    let [one, another] = over;
    tokio::spawn(async move {
        let both = async { tokio::try_join!(client, server) };
        let Ok(Ok((client, server))) = tokio::time::timeout(UPGRADED, both).await else { return };
        let (mut client, mut server) = (TokioIo::new(client), TokioIo::new(server));
        tokio::select! {
            _ = tokio::io::copy_bidirectional(&mut client, &mut server) => {}
            () = one.cancelled() => {}
            () = another.cancelled() => {}
            () = end => {}
        }
    });
    clean(response.headers_mut(), protocol.as_ref());
    Some(response.map(|_| nothing()))
}

/// The protocol that a message asks to change to.
fn upgrade(headers: &HeaderMap) -> Option<HeaderValue> {
    let asks = headers.get_all(CONNECTION).iter().filter_map(|value| value.to_str().ok());
    let asks = asks.flat_map(|value| value.split(',')).any(|one| one.trim().eq_ignore_ascii_case("upgrade"));
    headers.get(UPGRADE).filter(|_| asks).cloned()
}

/// Removes what concerns one connection only, and what only nodes may say.
fn clean(headers: &mut HeaderMap, protocol: Option<&HeaderValue>) {
    let named: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| HeaderName::try_from(name.trim()).ok())
        .collect();
    for name in named.iter().chain(&OF_ONE_CONNECTION).chain(&[CONNECTION, HOP, TOOK, NOT_HERE]) {
        headers.remove(name);
    }
    if let Some(protocol) = protocol {
        headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(UPGRADE, protocol.clone());
    }
}

/// An error with all that caused it.
pub(super) fn cause(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(list: &[(&'static str, &'static str)]) -> HeaderMap {
        list.iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
            .collect()
    }

    #[test]
    fn what_concerns_one_connection_stays_on_it() {
        let given = [
            ("connection", "close, X-Mine"),
            ("x-mine", "1"),
            ("keep-alive", "timeout=5"),
            ("transfer-encoding", "chunked"),
            ("expect", "100-continue"),
            ("upgrade", "h2c"),
            ("paddock-hop", "from=x"),
            ("paddock-took", "1"),
            ("paddock-not-here", "1"),
            ("authorization", "Bearer x"),
            ("content-length", "5"),
            ("host", "a"),
        ];
        let mut passed = headers(&given);
        clean(&mut passed, None);
        assert_eq!(passed, headers(&given[9..]));
    }

    #[test]
    fn a_change_of_protocol_is_asked_for_again() {
        let mut passed = headers(&[("connection", "keep-alive, Upgrade"), ("upgrade", "websocket")]);
        let protocol = upgrade(&passed);
        clean(&mut passed, protocol.as_ref());
        assert_eq!(passed, headers(&[("connection", "upgrade"), ("upgrade", "websocket")]));
        assert_eq!(upgrade(&headers(&[("upgrade", "h2c")])), None);
    }
}
