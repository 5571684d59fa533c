//! Metrics of tool calls.

use std::time::Duration;

use prometheus::{HistogramVec, IntCounterVec};

use super::{Make, Metrics};

/// All limits that can end a run, or refuse a call.
const LIMITS: [&str; 14] = [
    "wall_time",
    "output",
    "memory",
    "pids",
    "cpu_time",
    "file_size",
    "disk",
    "too_large",
    "artifact_too_large",
    "session_busy",
    "max_sessions",
    "queue_full",
    "quota_exceeded",
    "rate_limited",
];

/// The outcomes that depend on the daemon and not on the call. Alerts watch them, and only see an increase
/// from 0.
const OF_THE_DAEMON: [&str; 6] =
    ["ok", "queue_full", "max_sessions", "engine_unavailable", "lost", "internal"];

pub(super) struct ToolMetrics {
    calls: IntCounterVec,
    took: HistogramVec,
    limits: IntCounterVec,
}

impl ToolMetrics {
    pub(super) fn new(make: &Make) -> Self {
        let tools = Self {
            calls: make.counters(
                "paddock_tool_calls_total",
                "Tool calls by outcome: ok, failed (the program failed), an error code, or invalid (a \
                 malformed call).",
                &["tool", "outcome"],
            ),
            took: make.histograms("paddock_tool_call_duration_seconds", "Time of a tool call.", &["tool"]),
            limits: make.counters(
                "paddock_limits_hit_total",
                "Limits that ended a run (wall_time, output, memory, pids, cpu_time, file_size, disk) or \
                 refused a call, by limit.",
                &["limit"],
            ),
        };
        for limit in LIMITS {
            tools.limits.with_label_values(&[limit]);
        }
        tools
    }
}

impl Metrics {
    /// Makes the series of a tool, so that they are 0, not absent, before its first call.
    pub fn know_tool(&self, tool: &'static str) {
        for outcome in OF_THE_DAEMON {
            self.0.tools.calls.with_label_values(&[tool, outcome]);
        }
        self.0.tools.took.with_label_values(&[tool]);
    }

    /// A tool was called.
    pub fn tool_called(&self, tool: &'static str, outcome: &'static str, took: Duration) {
        let tools = &self.0.tools;
        tools.calls.with_label_values(&[tool, outcome]).inc();
        tools.took.with_label_values(&[tool]).observe(took.as_secs_f64());
    }

    /// A caller named an unknown tool, whose name must not become a label.
    pub fn no_tool_called(&self, outcome: &'static str) {
        self.0.tools.calls.with_label_values(&["other", outcome]).inc();
    }

    /// A limit ended a run, or refused a call.
    pub fn limit_hit(&self, limit: &'static str) {
        self.0.tools.limits.with_label_values(&[limit]).inc();
    }
}
