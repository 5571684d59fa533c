//! Metrics of spans on their way to a collector of OpenTelemetry.

use prometheus::IntCounter;

use super::{Make, Metrics};

pub(super) struct TelemetryMetrics {
    sent: IntCounter,
    lost: IntCounter,
}

impl TelemetryMetrics {
    pub(super) fn new(make: &Make) -> Self {
        Self {
            sent: make.counter("paddock_spans_sent_total", "Spans that the collector of OpenTelemetry took."),
            lost: make.counter(
                "paddock_spans_lost_total",
                "Spans that the collector of OpenTelemetry did not take, or not fast enough.",
            ),
        }
    }
}

impl Metrics {
    /// The collector took spans.
    pub fn spans_sent(&self, spans: usize) {
        self.0.telemetry.sent.inc_by(spans as u64);
    }

    /// Spans were lost.
    pub fn spans_lost(&self, spans: usize) {
        self.0.telemetry.lost.inc_by(spans as u64);
    }
}
