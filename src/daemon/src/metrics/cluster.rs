//! Metrics of a node among others. On a single machine all of them stay 0.

use std::time::Duration;

use prometheus::{GaugeVec, Histogram, IntCounterVec, IntGauge};

use super::{Make, Metrics};

/// The buckets for the cost of a hop, which is a round trip within a data centre.
const HOP: [f64; 11] = [0.0001, 0.0002, 0.0003, 0.0005, 0.00075, 0.001, 0.002, 0.005, 0.01, 0.05, 0.25];

/// All outcomes of a request that is passed on.
const PASSED: [&str; 4] = ["answered", "not_here", "unreachable", "broken"];

/// All outcomes of a request from another node, by the check of its header.
const RECEIVED: [&str; 6] = ["served", "handshake", "missing", "forged", "late", "replayed"];

pub(super) struct ClusterMetrics {
    nodes: GaugeVec,
    draining: IntGauge,
    owned: IntGauge,
    passed: IntCounterVec,
    hop: Histogram,
    received: IntCounterVec,
}

impl ClusterMetrics {
    pub(super) fn new(make: &Make) -> Self {
        let cluster = Self {
            nodes: make.gauges(
                "paddock_cluster_nodes",
                "Nodes of the cluster as this one sees them, itself included, by state: up, draining, \
                 unready, lost.",
                &["state"],
            ),
            draining: make.gauge(
                "paddock_cluster_draining",
                "1 while this node was told to drain: it takes no new \
                        session.",
            ),
            owned: make.gauge("paddock_cluster_sessions_owned", "Sessions that this node owns."),
            passed: make.counters(
                "paddock_cluster_passed_total",
                "Requests passed on to another node, by outcome: answered, not_here (its owner changed), \
                 unreachable, broken (no answer).",
                &["outcome"],
            ),
            hop: make.histogram(
                "paddock_cluster_hop_seconds",
                "Time that passing a request on added to the head of its answer.",
                &HOP,
            ),
            received: make.counters(
                "paddock_cluster_received_total",
                "Requests from other nodes, by outcome: served, or why they were refused: handshake \
                 (another key), missing, forged, late, replayed.",
                &["outcome"],
            ),
        };
        for outcome in PASSED {
            cluster.passed.with_label_values(&[outcome]);
        }
        for outcome in RECEIVED {
            cluster.received.with_label_values(&[outcome]);
        }
        cluster
    }
}

impl Metrics {
    /// The nodes were asked.
    pub fn cluster_nodes(&self, states: [(&str, usize); 4]) {
        for (state, nodes) in states {
            self.0.cluster.nodes.with_label_values(&[state]).set(nodes as f64);
        }
    }

    /// This node was told to drain, or not to any more.
    pub fn cluster_draining(&self, draining: bool) {
        self.0.cluster.draining.set(draining.into());
    }

    /// How many sessions this node owns.
    pub fn cluster_owned(&self, sessions: usize) {
        self.0.cluster.owned.set(i64::try_from(sessions).unwrap_or(i64::MAX));
    }

    /// A request was passed on; `hop` is what that cost, if the other node said how long it took itself.
    pub fn cluster_passed(&self, outcome: &'static str, hop: Option<Duration>) {
        self.0.cluster.passed.with_label_values(&[outcome]).inc();
        if let Some(hop) = hop {
            self.0.cluster.hop.observe(hop.as_secs_f64());
        }
    }

    /// A request came from another node, or from somebody who is none.
    pub fn cluster_received(&self, outcome: &'static str) {
        self.0.cluster.received.with_label_values(&[outcome]).inc();
    }
}
