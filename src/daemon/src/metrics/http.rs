//! Requests, and the bytes of their bodies.

use std::time::Duration;

use prometheus::{HistogramVec, IntCounter, IntCounterVec, IntGauge};

use super::{Make, Metrics};

pub(super) struct Http {
    requests: IntCounterVec,
    took: HistogramVec,
    in_flight: IntGauge,
    connections: IntGauge,
    received: IntCounterVec,
    sent: IntCounterVec,
    refused: IntCounterVec,
    cut: IntCounterVec,
}

/// Why a request can be refused before it does anything.
const REFUSED: [&str; 11] = [
    "guard",
    "token",
    "link",
    "peer",
    "busy",
    "streams",
    "structure",
    "too_large",
    "too_slow",
    "no_room",
    "broken",
];

/// Why a connection can be cut.
const CUT: [&str; 4] = ["silent", "idle", "slow", "stalled"];

impl Http {
    pub(super) fn new(make: &Make) -> Self {
        let http = Self {
            requests: make.counters(
                "paddock_http_requests_total",
                "HTTP requests that were answered, by route, method and status code.",
                &["route", "method", "code"],
            ),
            took: make.histograms(
                "paddock_http_request_duration_seconds",
                "From the head of a request to the head of its answer.",
                &["route"],
            ),
            in_flight: make
                .gauge("paddock_http_requests_in_flight", "HTTP requests that have no answer yet."),
            connections: make.gauge("paddock_http_connections", "Open HTTP connections."),
            received: make.counters(
                "paddock_http_received_bytes_total",
                "Bytes of request bodies, by route.",
                &["route"],
            ),
            sent: make.counters(
                "paddock_http_sent_bytes_total",
                "Bytes of answers' bodies, by route.",
                &["route"],
            ),
            refused: make.counters(
                "paddock_http_refused_total",
                "HTTP requests that were refused before they did anything, by reason.",
                &["reason"],
            ),
            cut: make.counters(
                "paddock_http_connections_cut_total",
                "HTTP connections that were cut: silent, idle or slow ones when others came, stalled ones in any case.",
                &["reason"],
            ),
        };
        for reason in REFUSED {
            http.refused.with_label_values(&[reason]);
        }
        for reason in CUT {
            http.cut.with_label_values(&[reason]);
        }
        http
    }
}

/// Counted for as long as it lives.
pub struct Held(IntGauge);

impl Held {
    fn of(gauge: &IntGauge) -> Self {
        gauge.inc();
        Self(gauge.clone())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl Metrics {
    /// There is this route: what was not asked of it yet is 0, not unknown, and its series are there from the beginning.
    pub fn know_route(&self, route: &'static str) {
        let http = &self.0.http;
        http.took.with_label_values(&[route]);
        http.received.with_label_values(&[route]);
        http.sent.with_label_values(&[route]);
    }

    /// A connection is open for as long as the answer lives.
    #[must_use]
    pub fn connection(&self) -> Held {
        Held::of(&self.0.http.connections)
    }

    /// A request is being answered for as long as the answer lives.
    #[must_use]
    pub fn request(&self) -> Held {
        Held::of(&self.0.http.in_flight)
    }

    /// A request was answered.
    pub fn answered(
        &self,
        route: &'static str,
        method: &http::Method,
        code: http::StatusCode,
        took: Duration,
    ) {
        let http = &self.0.http;
        http.requests.with_label_values(&[route, method_name(method), code.as_str()]).inc();
        http.took.with_label_values(&[route]).observe(took.as_secs_f64());
    }

    /// A request was refused before it did anything.
    pub fn request_refused(&self, reason: &'static str) {
        self.0.http.refused.with_label_values(&[reason]).inc();
    }

    /// A connection was cut.
    pub fn connection_cut(&self, reason: &'static str) {
        self.0.http.cut.with_label_values(&[reason]).inc();
    }

    /// Counts the bytes that come in on this route.
    #[must_use]
    pub fn received(&self, route: &'static str) -> IntCounter {
        self.0.http.received.with_label_values(&[route])
    }

    /// Counts the bytes that go out on this route.
    #[must_use]
    pub fn sent(&self, route: &'static str) -> IntCounter {
        self.0.http.sent.with_label_values(&[route])
    }
}

/// A method of the usual ones; any other is `other`, whatever it is called.
fn method_name(method: &http::Method) -> &'static str {
    const USUAL: [&str; 7] = ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"];
    USUAL.into_iter().find(|usual| *usual == method.as_str()).unwrap_or("other")
}
