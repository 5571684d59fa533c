//! The pool's leases and starts; how it stands is in [`super::standing`].

use std::time::Duration;

use prometheus::{HistogramVec, IntCounter, IntCounterVec};

use super::{Make, Metrics};

/// Why a caller can get no container.
const REFUSALS: [&str; 7] = [
    "queue_full",
    "waited_too_long",
    "full",
    "engine_unavailable",
    "unknown_runner",
    "start_failing",
    "shutting_down",
];

/// Where a start can fail.
const STEPS: [&str; 6] = ["no_image", "create", "start", "arm", "deadline", "died"];

pub(super) struct Pool {
    leases: IntCounterVec,
    waited: HistogramVec,
    refusals: IntCounterVec,
    starts: HistogramVec,
    failures: IntCounterVec,
    removals: IntCounter,
}

impl Pool {
    pub(super) fn new(make: &Make) -> Self {
        let pool = Self {
            leases: make.counters(
                "paddock_pool_leases_total",
                "Containers handed out: hit where one stood ready, miss where the caller waited for it.",
                &["language", "result"],
            ),
            waited: make.histograms(
                "paddock_pool_lease_wait_seconds",
                "How long callers waited for a container.",
                &["language"],
            ),
            refusals: make.counters(
                "paddock_pool_refusals_total",
                "Callers that got no container, by reason.",
                &["reason"],
            ),
            starts: make.histograms(
                "paddock_pool_start_seconds",
                "What it took to create, start and arm a container: the time of a refill.",
                &["language"],
            ),
            failures: make.counters(
                "paddock_pool_start_failures_total",
                "Containers that did not come up, by the step that failed.",
                &["language", "step"],
            ),
            removals: make
                .counter("paddock_pool_removals_total", "Containers removed, their volumes with them."),
        };
        // The first refusal must be an increase from 0: an alert does not see a series that begins at 1.
        for reason in REFUSALS {
            pool.refusals.with_label_values(&[reason]);
        }
        pool
    }

    /// A runner of this language is there: what did not happen yet is 0, not unknown.
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
    /// A container was handed out, to one who waited so long.
    pub fn granted(&self, language: &str, waited: Duration) {
        let pool = &self.0.pool;
        let result = if waited.is_zero() { "hit" } else { "miss" };
        pool.leases.with_label_values(&[language, result]).inc();
        pool.waited.with_label_values(&[language]).observe(waited.as_secs_f64());
    }

    /// Somebody got none.
    pub fn refused(&self, reason: &'static str) {
        self.0.pool.refusals.with_label_values(&[reason]).inc();
    }

    /// A container stands armed, after so long.
    pub fn armed(&self, language: &str, took: Duration) {
        self.0.pool.starts.with_label_values(&[language]).observe(took.as_secs_f64());
    }

    /// One did not come up.
    pub fn start_failed(&self, language: &str, step: &'static str) {
        self.0.pool.failures.with_label_values(&[language, step]).inc();
    }

    /// One is gone.
    pub fn removed(&self) {
        self.0.pool.removals.inc();
    }
}
