//! Metrics of the pool's leases and starts. The counts of its containers are in [`super::state`].

use std::time::Duration;

use prometheus::{HistogramVec, IntCounter, IntCounterVec};

use super::{Make, Metrics};

/// All reasons for which a caller gets no container.
const REFUSALS: [&str; 8] = [
    "queue_full",
    "waited_too_long",
    "full",
    "engine_unavailable",
    "unknown_runner",
    "no_workspace",
    "start_failing",
    "shutting_down",
];

/// All steps at which a start can fail.
const STEPS: [&str; 6] = ["no_image", "create", "start", "arm", "deadline", "died"];

/// What happens to a workspace of a coding agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkspaceEvent {
    /// Its container went, and it stays.
    Kept,
    /// Its session has a container over it again.
    Continued,
    /// It was removed after its retention.
    Expired,
    /// It was removed for another.
    Displaced,
    /// It was removed with its session.
    Deleted,
    /// It was removed because no container could begin over it.
    Unusable,
}

impl WorkspaceEvent {
    const ALL: [Self; 6] =
        [Self::Kept, Self::Continued, Self::Expired, Self::Displaced, Self::Deleted, Self::Unusable];

    /// A stable word for metrics and logs.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Kept => "kept",
            Self::Continued => "continued",
            Self::Expired => "expired",
            Self::Displaced => "displaced",
            Self::Deleted => "deleted",
            Self::Unusable => "unusable",
        }
    }
}

pub(super) struct PoolMetrics {
    leases: IntCounterVec,
    waited: HistogramVec,
    refusals: IntCounterVec,
    starts: HistogramVec,
    failures: IntCounterVec,
    removals: IntCounter,
    workspaces: IntCounterVec,
}

impl PoolMetrics {
    pub(super) fn new(make: &Make) -> Self {
        let pool = Self {
            leases: make.counters(
                "paddock_pool_leases_total",
                "Containers leased: hit if a warm one was ready, miss if the caller waited for one.",
                &["language", "result"],
            ),
            waited: make.histograms(
                "paddock_pool_lease_wait_seconds",
                "Time that a caller waited for a container.",
                &["language"],
            ),
            refusals: make.counters(
                "paddock_pool_refusals_total",
                "Callers that were refused a container, by reason.",
                &["reason"],
            ),
            starts: make.histograms(
                "paddock_pool_start_seconds",
                "Time to create, start and arm a container.",
                &["language"],
            ),
            failures: make.counters(
                "paddock_pool_start_failures_total",
                "Containers that failed to start, by the step that failed.",
                &["language", "step"],
            ),
            removals: make.counter("paddock_pool_removals_total", "Containers removed."),
            workspaces: make.counters(
                "paddock_workspaces_total",
                "Workspaces of coding agents: kept without a container, continued by another container, and \
                 removed, by reason (expired, displaced, deleted, unusable).",
                &["event"],
            ),
        };
        // Each series begins at 0, since an alert on an increase does not see a series that begins at 1.
        for reason in REFUSALS {
            pool.refusals.with_label_values(&[reason]);
        }
        for event in WorkspaceEvent::ALL {
            pool.workspaces.with_label_values(&[event.as_str()]);
        }
        pool
    }

    /// Makes the series of a language, so that they are 0, not absent, before its first lease.
    pub(super) fn know(&self, language: &str) {
        for result in ["hit", "miss"] {
            self.leases.with_label_values(&[language, result]);
        }
        for step in STEPS {
            self.failures.with_label_values(&[language, step]);
        }
        self.waited.with_label_values(&[language]);
        self.starts.with_label_values(&[language]);
    }
}

impl Metrics {
    /// A container was handed out to a caller, who had waited so long.
    pub fn granted(&self, language: &str, waited: Duration) {
        let pool = &self.0.pool;
        let result = if waited.is_zero() { "hit" } else { "miss" };
        pool.leases.with_label_values(&[language, result]).inc();
        pool.waited.with_label_values(&[language]).observe(waited.as_secs_f64());
    }

    /// A caller got no container.
    pub fn refused(&self, reason: &'static str) {
        self.0.pool.refusals.with_label_values(&[reason]).inc();
    }

    /// A start that took so long has succeeded.
    pub fn armed(&self, language: &str, took: Duration) {
        self.0.pool.starts.with_label_values(&[language]).observe(took.as_secs_f64());
    }

    /// A start has failed at this step.
    pub fn start_failed(&self, language: &str, step: &'static str) {
        self.0.pool.failures.with_label_values(&[language, step]).inc();
    }

    /// Something happened to a workspace.
    pub fn workspace(&self, event: WorkspaceEvent) {
        self.0.pool.workspaces.with_label_values(&[event.as_str()]).inc();
    }

    /// A container was removed.
    pub fn removed(&self) {
        self.0.pool.removals.inc();
    }
}
