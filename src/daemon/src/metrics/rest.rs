//! What was built, the store's disk, sessions that gave their containers up, and log lines.

use std::time::Duration;

use prometheus::{GaugeVec, Histogram, IntCounter, IntCounterVec};

use super::{DISK, Make, Metrics};
use crate::build;

/// Why a session can give its containers up.
const REASONS: [&str; 3] = ["idle", "evicted", "closed"];

/// How loud a log line can be.
const LEVELS: [&str; 5] = ["error", "warn", "info", "debug", "trace"];

pub(super) struct Rest {
    build: GaugeVec,
    fsync: Histogram,
    fsync_failures: IntCounter,
    released: IntCounterVec,
    lines: IntCounterVec,
    lines_lost: IntCounter,
}

impl Rest {
    pub(super) fn new(make: &Make) -> Self {
        let rest = Self {
            build: make.gauges(
                "paddock_build_info",
                "1, with the version and the commit of this daemon.",
                &["version", "commit"],
            ),
            fsync: make.histogram(
                "paddock_store_fsync_seconds",
                "What syncs of the store's journal took; each answer that saved something waited for one.",
                &DISK,
            ),
            fsync_failures: make.counter(
                "paddock_store_fsync_failures_total",
                "Writes or syncs of the store's journal that failed; nothing of them was acknowledged.",
            ),
            released: make.counters(
                "paddock_sessions_released_total",
                "Sessions that gave their containers up: idle, evicted (for another) or closed.",
                &["reason"],
            ),
            lines: make.counters("paddock_log_lines_total", "Log lines by level.", &["level"]),
            lines_lost: make.counter(
                "paddock_log_lines_lost_total",
                "Log lines that could not be written: a full disk, or a reader that does not read.",
            ),
        };
        for reason in REASONS {
            rest.released.with_label_values(&[reason]);
        }
        for level in LEVELS {
            rest.lines.with_label_values(&[level]);
        }
        rest
    }

    /// What this program is.
    pub(super) fn built(&self) {
        self.build.with_label_values(&[build::VERSION, build::COMMIT]).set(1.0);
    }
}

impl Metrics {
    /// The store's journal was written and synced, or was not.
    pub fn synced(&self, took: Duration, well: bool) {
        self.0.rest.fsync.observe(took.as_secs_f64());
        if !well {
            self.0.rest.fsync_failures.inc();
        }
    }

    /// A session gave its containers up.
    pub fn released(&self, reason: &'static str) {
        self.0.rest.released.with_label_values(&[reason]).inc();
    }

    /// A log line was made.
    pub fn logged(&self, level: &'static str) {
        self.0.rest.lines.with_label_values(&[level]).inc();
    }

    /// Log lines were lost.
    pub fn log_lines_lost(&self, lines: u64) {
        self.0.rest.lines_lost.inc_by(lines);
    }
}
