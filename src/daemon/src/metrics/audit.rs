//! Metrics of the audit log.

use prometheus::{IntCounter, IntGauge};

use super::{Make, Metrics};

pub(super) struct AuditMetrics {
    lines: IntCounter,
    lost: IntCounter,
    failing: IntGauge,
}

impl AuditMetrics {
    pub(super) fn new(make: &Make) -> Self {
        Self {
            lines: make.counter("paddock_audit_lines_total", "Lines written to the audit log."),
            lost: make.counter(
                "paddock_audit_lines_lost_total",
                "Lines that the audit log lacks: it could not be written, or not fast enough.",
            ),
            failing: make.gauge(
                "paddock_audit_failing",
                "1 while the audit log cannot be written, else 0, also without one.",
            ),
        }
    }
}

impl Metrics {
    /// A line was written.
    pub fn audit_line(&self) {
        self.0.audit.lines.inc();
    }

    /// A line was lost.
    pub fn audit_lost(&self) {
        self.0.audit.lost.inc();
    }

    /// Whether the log cannot be written.
    pub fn audit_failing(&self, fails: bool) {
        self.0.audit.failing.set(i64::from(fails));
    }
}
