//! The notifications of the other nodes for a client that listens at this one: `GET /mcp/events` of each of
//! them, followed for as long as the client listens, and put together as they come.
//!
//! ```text
//!  client ── GET /mcp/events ─► this node ─┬─ its own notifications
//!                                          ├─ TLS ── GET /mcp/events ─► node b: its own, and no others
//!                                          └─ TLS ── GET /mcp/events ─► node c
//! ```
//!
//! A node that joins, or comes back, is followed within [`AGAIN`]; what it said before that is not told. It
//! must never follow for a request that another node has passed on: every notification would come twice.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use http::header::{AUTHORIZATION, HOST, HeaderMap, HeaderValue};
use http::{Request, StatusCode};
use http_body_util::BodyExt;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tracing::debug;

use crate::cluster::hop::{Entry, Hop, Sender};
use crate::cluster::wire::{PassedBody, nothing};
use crate::cluster::{Cluster, Target};

/// How often nodes that are not followed are looked for.
const AGAIN: Duration = Duration::from_secs(1);
/// How long the nodes may take to begin before the client gets its own node's notifications.
const BEGIN: Duration = Duration::from_secs(1);
/// Notifications that wait for a slow client: then its nodes wait, and each tells it what it missed.
const BACKLOG: usize = 64;
/// Bytes of one notification.
const LONGEST: usize = 1 << 20;

/// Who listens.
pub(super) struct Listener {
    /// Vouches for the client, or for the daemon's own user.
    pub(super) sender: Sender,
    /// The client's right.
    pub(super) authorization: Option<HeaderValue>,
}

/// The notifications of all other nodes. Dropping it ends the following.
pub(super) struct EventsElsewhere {
    events: mpsc::Receiver<Bytes>,
    _following: AbortOnDropHandle<()>,
}

impl EventsElsewhere {
    /// Follows the nodes that answer. Resolves once each of them sends its events, or after [`BEGIN`]: from
    /// then on the client is told of runs at all of them.
    pub(super) async fn follow(cluster: Arc<Cluster>, listener: Listener) -> Self {
        let (to, events) = mpsc::channel(BACKLOG);
        let mut following = Following { listener, to, nodes: JoinSet::new(), followed: HashSet::new() };
        following.begin(&cluster).await;
        let task = tokio::spawn(async move {
            loop {
                let ended = async {
                    match following.nodes.join_next().await {
                        Some(ended) => ended.ok(),
                        None => std::future::pending().await,
                    }
                };
                tokio::select! {
                    () = tokio::time::sleep(AGAIN) => following.begin(&cluster).await,
                    Some(node) = ended => {
                        following.followed.remove(&node);
                        tokio::time::sleep(AGAIN).await;
                    }
                }
            }
        });
        Self { events, _following: AbortOnDropHandle::new(task) }
    }

    /// The next notification, as it stands in the stream.
    pub(super) async fn next(&mut self) -> Option<Bytes> {
        self.events.recv().await
    }
}

/// Which nodes are followed.
struct Following {
    listener: Listener,
    to: mpsc::Sender<Bytes>,
    nodes: JoinSet<String>,
    followed: HashSet<String>,
}

impl Following {
    /// Begins with the nodes that are not followed.
    async fn begin(&mut self, cluster: &Arc<Cluster>) {
        let others = cluster.others().into_iter().filter(|node| !self.followed.contains(&node.name));
        let asked: FuturesUnordered<_> = others.map(|node| ask(cluster, node, &self.listener)).collect();
        let mut asked = std::pin::pin!(asked.take_until(tokio::time::sleep(BEGIN)));
        let mut begun = Vec::new();
        while let Some(answer) = asked.next().await {
            begun.extend(answer);
        }
        for (node, body) in begun {
            self.followed.insert(node.clone());
            let to = self.to.clone();
            self.nodes.spawn(async move {
                pass_events(body, &to).await;
                node
            });
        }
    }
}

/// Asks one node for its notifications.
async fn ask(cluster: &Cluster, node: Target, listener: &Listener) -> Option<(String, PassedBody)> {
    let mut request = Request::get("/mcp/events").body(nothing()).ok()?;
    let headers: &mut HeaderMap = request.headers_mut();
    headers.insert(HOST, HeaderValue::from_static("localhost"));
    if let Some(authorization) = &listener.authorization {
        headers.insert(AUTHORIZATION, authorization.clone());
    }
    let hop = Hop {
        from: cluster.name().to_owned(),
        sender: listener.sender,
        entry: Entry::Http,
        own_session: None,
    };
    let over = [(); 2].map(|()| CancellationToken::new());
    match cluster.pass(&node, &hop, request, over).await {
        Ok(answer) if answer.status() == StatusCode::OK => Some((node.name, answer.into_body())),
        Ok(answer) => {
            debug!(node = node.name, status = answer.status().as_u16(), "a node tells no notifications");
            None
        }
        Err(fault) => {
            debug!(node = node.name, %fault, "a node tells no notifications");
            None
        }
    }
}

/// Passes the notifications of one node on, until it ends.
async fn pass_events(mut body: PassedBody, to: &mpsc::Sender<Bytes>) {
    let mut read = BytesMut::new();
    while let Some(Ok(frame)) = body.frame().await {
        let Ok(data) = frame.into_data() else { continue };
        read.extend_from_slice(&data);
        while let Some(event) = next_event(&mut read) {
            if to.send(event).await.is_err() {
                return;
            }
        }
        if read.len() > LONGEST {
            return;
        }
    }
}

/// The next whole notification. Comments are left out: this node sends its own.
fn next_event(read: &mut BytesMut) -> Option<Bytes> {
    loop {
        let end = memchr::memmem::find(read, b"\n\n")? + 2;
        let event = read.split_to(end);
        if event.starts_with(b"data:") {
            return Some(event.freeze());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_notifications_are_passed_on_and_comments_are_not() {
        let text = b": paddock\n\ndata: 1\n\n: heartbeat\n\ndata: 22\n\ndata: 3";
        for piece in 1..text.len() {
            let (mut read, mut events) = (BytesMut::new(), Vec::new());
            for chunk in text.chunks(piece) {
                read.extend_from_slice(chunk);
                events.extend(std::iter::from_fn(|| next_event(&mut read)));
            }
            assert_eq!(events, ["data: 1\n\n", "data: 22\n\n"], "{piece}");
            assert_eq!(read, &b"data: 3"[..]);
        }
    }
}
