//! Calls of the Engine's API.

use std::time::Duration;

use prometheus::{HistogramVec, IntCounterVec};

use super::{Make, Metrics};

pub(super) struct Engine {
    calls: IntCounterVec,
    took: HistogramVec,
}

impl Engine {
    pub(super) fn new(make: &Make) -> Self {
        Self {
            calls: make.counters(
                "paddock_engine_calls_total",
                "Calls of the Engine's API by operation and outcome: ok, not_found, conflict, refused, unreachable, deadline, lost, protocol.",
                &["operation", "outcome"],
            ),
            took: make.histograms(
                "paddock_engine_call_duration_seconds",
                "What calls of the Engine's API took until their answer's head.",
                &["operation"],
            ),
        }
    }
}

impl Metrics {
    /// The engine was asked for something.
    pub fn engine_called(&self, operation: &'static str, outcome: &'static str, took: Duration) {
        let engine = &self.0.engine;
        engine.calls.with_label_values(&[operation, outcome]).inc();
        engine.took.with_label_values(&[operation]).observe(took.as_secs_f64());
    }
}
