//! Metrics of HTTP requests, their bodies and their connections.

use std::time::Duration;

use prometheus::{HistogramVec, IntCounter, IntCounterVec, IntGauge};

use super::{GaugeGuard, Make, Metrics};
use crate::degradation::Degradation;

pub(super) struct HttpMetrics {
    requests: IntCounterVec,
    took: HistogramVec,
    in_flight: IntGauge,
    connections: IntGauge,
    received: IntCounterVec,
    sent: IntCounterVec,
    refused: IntCounterVec,
    cut: IntCounterVec,
    handshakes: IntCounterVec,
    outdated: IntGauge,
}

/// All reasons for which a request is refused before it does anything.
const REFUSED: [&str; 12] = [
    "guard",
    "token",
    "link",
    "peer",
    "tenant",
    "busy",
    "streams",
    "structure",
    "too_large",
    "too_slow",
    "no_room",
    "broken",
];

/// All reasons for which the daemon cuts a connection.
const CUT: [&str; 5] = ["silent", "idle", "slow", "stalled", "revoked"];

/// All outcomes of a handshake.
const HANDSHAKES: [&str; 4] = ["ok", "failed", "late", "plain"];

impl HttpMetrics {
    pub(super) fn new(make: &Make) -> Self {
        let http = Self {
            requests: make.counters(
                "paddock_http_requests_total",
                "HTTP requests answered, by route, method and status code.",
                &["route", "method", "code"],
            ),
            took: make.histograms(
                "paddock_http_request_duration_seconds",
                "Time from the head of a request to the head of its response, by route.",
                &["route"],
            ),
            in_flight: make
                .gauge("paddock_http_requests_in_flight", "HTTP requests that are not answered yet."),
            connections: make.gauge("paddock_http_connections", "Open HTTP connections."),
            received: make.counters(
                "paddock_http_received_bytes_total",
                "Bytes received in request bodies, by route.",
                &["route"],
            ),
            sent: make.counters(
                "paddock_http_sent_bytes_total",
                "Bytes sent in response bodies, by route.",
                &["route"],
            ),
            refused: make.counters(
                "paddock_http_refused_total",
                "HTTP requests refused before they had any effect, by reason.",
                &["reason"],
            ),
            cut: make.counters(
                "paddock_http_connections_cut_total",
                "HTTP connections that the daemon closed, by reason: silent, idle or slow when others needed \
                 the room, stalled at any time, revoked when their token or link was not good any more.",
                &["reason"],
            ),
            handshakes: make.counters(
                "paddock_tls_handshakes_total",
                "TLS handshakes of clients, by outcome: ok, failed, late (not done in time), plain (HTTP \
                 without TLS).",
                &["outcome"],
            ),
            outdated: make.gauge(
                "paddock_tls_certificate_outdated",
                "1 while the newest certificate or key cannot be used, so that the previous pair serves.",
            ),
        };
        for outcome in HANDSHAKES {
            http.handshakes.with_label_values(&[outcome]);
        }
        for reason in REFUSED {
            http.refused.with_label_values(&[reason]);
        }
        for reason in CUT {
            http.cut.with_label_values(&[reason]);
        }
        http
    }
}

impl Metrics {
    /// Makes the series of a route, so that they are 0, not absent, before its first request.
    pub fn know_route(&self, route: &'static str) {
        let http = &self.0.http;
        http.took.with_label_values(&[route]);
        http.received.with_label_values(&[route]);
        http.sent.with_label_values(&[route]);
    }

    /// A connection is open, for as long as the guard lives.
    pub fn connection(&self) -> GaugeGuard {
        GaugeGuard::of(self.0.http.connections.clone())
    }

    /// A request is being answered, for as long as the guard lives.
    pub fn request(&self) -> GaugeGuard {
        GaugeGuard::of(self.0.http.in_flight.clone())
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

    /// A TLS handshake of a client has ended.
    pub fn tls_handshake(&self, outcome: &'static str) {
        self.0.http.handshakes.with_label_values(&[outcome]).inc();
    }

    /// The newest certificate and key were read, and are in use or cannot be used.
    pub fn tls_pair(&self, is_in_use: bool) {
        self.0.http.outdated.set(i64::from(!is_in_use));
        self.0.degradations.note(Degradation::CertificateOutdated, !is_in_use);
    }

    /// The counter of bytes received on this route.
    #[must_use]
    pub fn received(&self, route: &'static str) -> IntCounter {
        self.0.http.received.with_label_values(&[route])
    }

    /// The counter of bytes sent on this route.
    #[must_use]
    pub fn sent(&self, route: &'static str) -> IntCounter {
        self.0.http.sent.with_label_values(&[route])
    }
}

/// The method's name as a label: `other` for all but the usual ones, since a caller may invent any number of
/// methods.
fn method_name(method: &http::Method) -> &'static str {
    const USUAL: [&str; 7] = ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"];
    USUAL.into_iter().find(|usual| *usual == method.as_str()).unwrap_or("other")
}
