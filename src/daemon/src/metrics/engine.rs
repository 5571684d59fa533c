//! Metrics of the calls of the Engine's API.

use std::time::Duration;

use prometheus::{HistogramVec, IntCounterVec};

use super::{Make, Metrics};

pub(super) struct EngineMetrics {
    calls: IntCounterVec,
    took: HistogramVec,
}

impl EngineMetrics {
    pub(super) fn new(make: &Make) -> Self {
        Self {
            calls: make.counters(
                "paddock_engine_calls_total",
                "Calls to the Docker Engine API, by operation and outcome: ok, not_found, conflict, refused, \
                 unreachable, deadline, lost, protocol.",
                &["operation", "outcome"],
            ),
            took: make.histograms(
                "paddock_engine_call_duration_seconds",
                "Time from the start of a call to the Docker Engine API to the head of its response.",
                &["operation"],
            ),
        }
    }
}

impl Metrics {
    /// A call of the Engine's API has ended.
    pub fn engine_called(&self, operation: &'static str, outcome: &'static str, took: Duration) {
        let engine = &self.0.engine;
        engine.calls.with_label_values(&[operation, outcome]).inc();
        engine.took.with_label_values(&[operation]).observe(took.as_secs_f64());
    }
}
