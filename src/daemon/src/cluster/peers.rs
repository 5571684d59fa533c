//! Asks the peers how they are, every second: the driver of [`super::view`].
//!
//! `cluster.peers` is resolved again in every round, so that a node that joins or moves is found within one.
//! A round of many peers takes longer than a second; a peer that did not answer is asked every second
//! nevertheless. A peer that does not answer is no fault of the caller's: nothing here may ever hold up a
//! call.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use http::Request;
use http_body_util::{BodyExt, Limited};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::Cluster;
use super::limits::RoundClock;
use super::view::{Heard, NodeReport};
use super::wire::nothing;
use crate::store::utc_day;

/// The path at which a node says how it is.
pub(crate) const NODE: &str = "/paddock-cluster/node";

/// How often each peer is asked; of many peers each less often, so that a node asks [`A_SECOND`] of them.
pub(super) const EVERY: Duration = Duration::from_secs(1);
const A_SECOND: u32 = 50;

/// How long a peer, or the resolver, may take to answer.
const ANSWER: Duration = Duration::from_secs(1);

/// Peers that are asked at one time.
const AT_ONCE: usize = 32;

/// How soon a node asks again whose callers wait for their part of a limit, if its peers are so few that each
/// is asked every second anyway.
const SOON: Duration = Duration::from_millis(100);

/// Bytes of an answer: some 300 for each tenant at work.
const REPORT: usize = 4 << 20;

/// A node is lost when it has not answered for three rounds, whether it was asked or not: its address may be
/// gone.
pub(super) fn lost_after(every: Duration) -> Duration {
    3 * every + ANSWER
}

fn of_many(peers: usize) -> Duration {
    EVERY.max(EVERY * u32::try_from(peers).unwrap_or(u32::MAX) / A_SECOND)
}

impl Cluster {
    /// Asks all peers until `stop`.
    pub(crate) async fn watch(self: Arc<Self>, stop: CancellationToken) {
        let mut told = BTreeSet::new();
        let mut clock = RoundClock::new();
        let (mut every, mut next_round) = (EVERY, Instant::now());
        loop {
            let begun = Instant::now();
            if next_round <= begun {
                if let Some(limited) = self.limited.get() {
                    let others = self.others_with_limits(begun);
                    self.limits.publish(&self.name, limited.measure(), &others, clock.turn());
                }
                every = of_many(self.ask_all(&mut told).await);
                if let Some(limited) = self.limited.get() {
                    let changed = self.limits.settle(&self.others_with_limits(begun));
                    limited.changed(&changed);
                }
                next_round = Instant::now() + every;
                self.view_mut().set_lost_after(lost_after(every));
            } else {
                self.ask_suspects().await;
            }
            let lost = self.view_mut().newly_lost(Instant::now());
            for node in lost {
                warn!(node, "a node of the cluster does not answer any more");
                self.doubt(&node);
            }
            self.judge().await;
            self.count();
            let soon = async {
                tokio::time::sleep(SOON).await;
                match every > EVERY {
                    true => std::future::pending().await,
                    false => self.limits.wanted().await,
                }
            };
            tokio::select! {
                () = tokio::time::sleep(EVERY) => {}
                () = soon => next_round = Instant::now(),
                () = stop.cancelled() => return,
            }
        }
    }

    /// One round; returns how many addresses were asked. `told` has the faults that the log knows.
    pub(crate) async fn ask_all(&self, told: &mut BTreeSet<String>) -> usize {
        let mut addresses = BTreeSet::new();
        let mut faults = BTreeSet::new();
        for peer in &self.peers {
            match tokio::time::timeout(ANSWER, tokio::net::lookup_host(peer)).await {
                Ok(Ok(found)) => addresses.extend(found),
                Ok(Err(error)) => {
                    faults.insert(format!("cluster.peers: {peer} cannot be resolved: {error}"));
                }
                Err(_) => {
                    faults.insert(format!("cluster.peers: {peer} was not resolved within 1 s"));
                }
            }
        }
        let asked = addresses.len();
        faults.extend(self.ask_each(addresses).await);
        for fault in faults.difference(told) {
            warn!("{fault}");
        }
        *told = faults;
        asked
    }

    /// Asks the peers again that have not answered.
    pub(crate) async fn ask_suspects(&self) {
        let suspects = self.view().suspects(Instant::now()).take(A_SECOND as usize).collect();
        self.ask_each(suspects).await;
    }

    /// Asks these peers; returns what is wrong with the cluster.
    async fn ask_each(&self, addresses: BTreeSet<SocketAddr>) -> BTreeSet<String> {
        let mut faults = BTreeSet::new();
        let answers = futures_util::stream::iter(addresses).map(|address| async move {
            let begun = Instant::now();
            let report = tokio::time::timeout(ANSWER, self.ask(address)).await;
            (address, report.unwrap_or_else(|_| Err("no answer within 1 s".to_owned())), begun.elapsed())
        });
        let mut answers = std::pin::pin!(answers.buffer_unordered(AT_ONCE));
        while let Some((address, report, took)) = answers.next().await {
            let mut report = match report {
                Ok(report) => report,
                Err(error) => {
                    debug!(%address, error, "a peer does not answer");
                    self.view_mut().missed(address);
                    continue;
                }
            };
            let name = report.name.clone();
            let (instance, amounts) = (report.instance.clone(), std::mem::take(&mut report.amounts));
            let now = Instant::now();
            let heard = self.view_mut().heard(report, address, took, now);
            if matches!(heard, Heard::New | Heard::Known) {
                self.limits.amounts().hear((&name, &instance), &amounts, utc_day(), now);
            }
            match heard {
                Heard::New => info!(node = name, %address, "a node of the cluster answers"),
                Heard::NameTaken => {
                    faults.insert(format!(
                        "two nodes are called {name}, one of them at {address}: each needs a cluster.name \
                         of its own"
                    ));
                }
                Heard::Known | Heard::Myself => {}
            }
        }
        faults
    }

    /// How the node at this address is.
    async fn ask(&self, address: SocketAddr) -> Result<NodeReport, String> {
        let request = Request::get(format!("http://{address}{NODE}")).body(nothing());
        let request = request.map_err(|error| error.to_string())?;
        let answer = self.client.request(request).await.map_err(|error| super::pass::cause(&error))?;
        if !answer.status().is_success() {
            return Err(format!("it answers {}", answer.status()));
        }
        let body =
            Limited::new(answer.into_body(), REPORT).collect().await.map_err(|error| error.to_string())?;
        serde_json::from_slice(&body.to_bytes()).map_err(|error| error.to_string())
    }

    /// Finds out which of the nodes that do not answer have ended: what was passed on to those is given up.
    pub(super) async fn judge(&self) {
        let (mut ended, mut new) = (BTreeSet::new(), Vec::new());
        for node in self.nodes().into_iter().filter(|node| !node.answers).map(|node| node.report.name) {
            let is_known = self.ended.borrow().contains(&node);
            if is_known {
                ended.insert(node);
            } else if let Ok(Ok(true)) = tokio::time::timeout(ANSWER, self.owners.has_ended(&node)).await {
                new.push(node.clone());
                ended.insert(node);
            }
        }
        self.ended.send_if_modified(|known| {
            let is_new = *known != ended;
            *known = ended;
            is_new
        });
        for node in new {
            info!(node, "a node of the cluster has ended: its sessions are free");
        }
    }

    /// Brings the gauges up to date.
    fn count(&self) {
        let nodes = self.nodes();
        let count = |state| (state, nodes.iter().filter(|node| node.state() == state).count());
        self.metrics.cluster_nodes(["up", "draining", "unready", "lost"].map(count));
        self.metrics.cluster_owned(self.owners.owned());
    }
}
