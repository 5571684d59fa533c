//! Metrics of the daemon itself: its version, the syncs of its store, the release of sessions, and its log.

use std::time::Duration;

use prometheus::{GaugeVec, Histogram, IntCounter, IntCounterVec};

use super::{DISK, Make, Metrics};
use crate::build;

/// All reasons for which a session gives its containers up.
const REASONS: [&str; 3] = ["idle", "evicted", "closed"];

/// All levels of log lines.
const LEVELS: [&str; 5] = ["error", "warn", "info", "debug", "trace"];

pub(super) struct DaemonMetrics {
    build: GaugeVec,
    fsync: Histogram,
    fsync_failures: IntCounter,
    released: IntCounterVec,
    lines: IntCounterVec,
    lines_lost: IntCounter,
}

impl DaemonMetrics {
    pub(super) fn new(make: &Make) -> Self {
        let rest = Self {
            build: make.gauges(
                "paddock_build_info",
                "Always 1; the labels name the version and the commit of this daemon.",
                &["version", "commit"],
            ),
            fsync: make.histogram(
                "paddock_store_fsync_seconds",
                "Time of each sync of the store's journal. Every answer that saved a file waited for one.",
                &DISK,
            ),
            fsync_failures: make.counter(
                "paddock_store_fsync_failures_total",
                "Failed writes and syncs of the store's journal. None of their files was acknowledged.",
            ),
            released: make.counters(
                "paddock_sessions_released_total",
                "Sessions that gave up their containers, by reason: idle, evicted (for another) or closed.",
                &["reason"],
            ),
            lines: make.counters("paddock_log_lines_total", "Log lines written, by level.", &["level"]),
            lines_lost: make.counter(
                "paddock_log_lines_lost_total",
                "Log lines lost because the disk was full or the reader of the log did not read.",
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

    /// Publishes the version and the commit.
    pub(super) fn built(&self) {
        self.build.with_label_values(&[build::VERSION, build::COMMIT]).set(1.0);
    }
}

impl Metrics {
    /// A write and sync of the store's journal has ended, with or without success.
    pub fn synced(&self, took: Duration, succeeded: bool) {
        self.0.daemon.fsync.observe(took.as_secs_f64());
        if !succeeded {
            self.0.daemon.fsync_failures.inc();
        }
    }

    /// A session gave its containers up.
    pub fn released(&self, reason: &'static str) {
        self.0.daemon.released.with_label_values(&[reason]).inc();
    }

    /// A log line was made.
    pub fn logged(&self, level: &'static str) {
        self.0.daemon.lines.with_label_values(&[level]).inc();
    }

    /// Log lines were lost.
    pub fn log_lines_lost(&self, lines: u64) {
        self.0.daemon.lines_lost.inc_by(lines);
    }
}
