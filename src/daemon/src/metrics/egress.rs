//! Metrics of the way out: connections of programs, what was blocked, and their bytes.

use std::time::Duration;

use prometheus::{Histogram, IntCounter, IntCounterVec, IntGauge};

use super::{GaugeGuard, Make, Metrics, SECONDS};

/// All ends of a program's attempt to connect.
const OUTCOMES: [&str; 4] = ["connected", "blocked", "failed", "limited"];

/// All reasons for which the daemon blocks a name or a connection.
const REASONS: [&str; 14] = [
    "not_allowed",
    "not_approved",
    "mode",
    "denied",
    "not_global",
    "own_address",
    "tls_name",
    "encrypted_hello",
    "no_tls_name",
    "not_tls",
    "service",
    "limit",
    "bad_name",
    "unknown_run",
];

/// What came of a request to a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServiceOutcome {
    /// The service has answered.
    Answered,
    /// It was not sent.
    Refused,
    /// The run has made as many as it may.
    Limited,
    /// There is no answer that can be passed on.
    Failed,
}

impl ServiceOutcome {
    const ALL: [Self; 4] = [Self::Answered, Self::Refused, Self::Limited, Self::Failed];

    fn label(self) -> &'static str {
        match self {
            Self::Answered => "answered",
            Self::Refused => "refused",
            Self::Limited => "limited",
            Self::Failed => "failed",
        }
    }
}

pub(super) struct EgressMetrics {
    connections: IntCounterVec,
    blocked: IntCounterVec,
    open: IntGauge,
    services: IntCounterVec,
    bytes_in: IntCounter,
    bytes_out: IntCounter,
    connect: Histogram,
}

impl EgressMetrics {
    pub(super) fn new(make: &Make) -> Self {
        let bytes = make.counters(
            "paddock_egress_bytes_total",
            "Bytes of connections of programs: in to the program, out of it.",
            &["direction"],
        );
        let egress = Self {
            connections: make.counters(
                "paddock_egress_connections_total",
                "Connections that programs asked for, by outcome: connected, blocked (by policy), failed (on \
                 the network), limited (too many).",
                &["outcome"],
            ),
            blocked: make.counters(
                "paddock_egress_blocked_total",
                "Names and connections that were blocked, and connections cut for what they sent, by reason.",
                &["reason"],
            ),
            open: make.gauge("paddock_egress_connections_open", "Connections of programs that are open."),
            services: make.counters(
                "paddock_egress_service_requests_total",
                "Requests of programs to services, by outcome: answered (by the service), refused (not \
                 sent), limited (too many), failed (no answer that can be passed on).",
                &["outcome"],
            ),
            bytes_in: bytes.with_label_values(&["in"]),
            bytes_out: bytes.with_label_values(&["out"]),
            connect: make.histogram(
                "paddock_egress_connect_seconds",
                "Time from a program's request to its connection, names resolved.",
                &SECONDS,
            ),
        };
        // Each series begins at 0, since an alert on an increase does not see a series that begins at 1.
        for outcome in OUTCOMES {
            egress.connections.with_label_values(&[outcome]);
        }
        for outcome in ServiceOutcome::ALL {
            egress.services.with_label_values(&[outcome.label()]);
        }
        for reason in REASONS {
            egress.blocked.with_label_values(&[reason]);
        }
        egress
    }

    fn ended(&self, outcome: &'static str) {
        self.connections.with_label_values(&[outcome]).inc();
    }
}

impl Metrics {
    /// A program has its connection, which took so long to make. It counts as open while the value lives.
    pub fn egress_connected(&self, took: Duration) -> GaugeGuard {
        let egress = &self.0.egress;
        egress.ended("connected");
        egress.connect.observe(took.as_secs_f64());
        GaugeGuard::of(egress.open.clone())
    }

    /// A program got no connection, because its run may not have it.
    pub fn egress_refused(&self, reason: &'static str) {
        self.0.egress.ended("blocked");
        self.egress_blocked(reason);
    }

    /// A program got no connection, because a limit was reached.
    pub fn egress_limited(&self, reason: &'static str) {
        self.0.egress.ended("limited");
        self.egress_blocked(reason);
    }

    /// A program got no connection, because the network or the other side gave none.
    pub fn egress_failed(&self) {
        self.0.egress.ended("failed");
    }

    /// A name was not answered, or an open connection was cut.
    pub fn egress_blocked(&self, reason: &'static str) {
        self.0.egress.blocked.with_label_values(&[reason]).inc();
    }

    /// A request of a program to a service has come to its end.
    pub fn service_request(&self, outcome: ServiceOutcome) {
        self.0.egress.services.with_label_values(&[outcome.label()]).inc();
    }

    /// So many bytes came in to a program.
    pub fn egress_came_in(&self, bytes: u64) {
        self.0.egress.bytes_in.inc_by(bytes);
    }

    /// So many bytes went out of a program.
    pub fn egress_went_out(&self, bytes: u64) {
        self.0.egress.bytes_out.inc_by(bytes);
    }
}
