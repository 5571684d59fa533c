//! Metrics of snapshots of warm parts: attempts, failures, and what is in use.

pub use paddock_proto::message::RestoreFailure;
use prometheus::{GaugeVec, IntCounter, IntCounterVec};

use super::{Make, Metrics};
use crate::pool::TakeOutcome;

/// The snapshot of one runner that can have one, at one moment.
#[derive(Debug, Clone, PartialEq)]
pub struct SnapshotGauge {
    /// The runner.
    pub language: String,
    /// Seconds since it was taken and bytes of its files; `None` while its containers import.
    pub used: Option<(f64, u64)>,
}

pub(super) struct SnapshotMetrics {
    takes: IntCounterVec,
    failures: IntCounterVec,
    poisoned: IntCounter,
    used: GaugeVec,
    age: GaugeVec,
    bytes: GaugeVec,
}

impl SnapshotMetrics {
    pub(super) fn new(make: &Make) -> Self {
        Self {
            takes: make.counters(
                "paddock_snapshot_takes_total",
                "Attempts to take a snapshot of a warm part, by outcome: ok, busy (no container was free, or \
                 a caller needed it), disk (it has too little room), unsupported (no snapshot works on this \
                 machine), save, unfit (what was saved cannot be a snapshot), restore, proof (a program did \
                 not come out alike), engine, store (it could not be noted).",
                &["language", "outcome"],
            ),
            failures: make.counters(
                "paddock_snapshot_restore_failures_total",
                "Containers whose warm part could not be restored from its snapshot: it said so (said), no \
                 snapshot works on this machine (unsupported), or it died or was late (died).",
                &["language", "reason"],
            ),
            poisoned: make.counter(
                "paddock_snapshots_poisoned_total",
                "Snapshots of an earlier daemon that were refused because their files are not those that \
                 were saved.",
            ),
            used: make.gauges(
                "paddock_snapshot_in_use",
                "1 if new containers restore their warm part from a snapshot, 0 if they import; absent where \
                 no snapshot works on this machine.",
                &["language"],
            ),
            age: make.gauges(
                "paddock_snapshot_age_seconds",
                "Time since the snapshot in use was taken.",
                &["language"],
            ),
            bytes: make.gauges("paddock_snapshot_bytes", "Bytes of the snapshot in use.", &["language"]),
        }
    }

    pub(super) fn set(&self, now: &[SnapshotGauge]) {
        for gauges in [&self.used, &self.age, &self.bytes] {
            gauges.reset(); // forgets runners that are gone
        }
        for SnapshotGauge { language, used } in now {
            let language = &[language.as_str()];
            // So that an increase is seen from the first one on.
            for outcome in TakeOutcome::ALL {
                self.takes.with_label_values(&[language[0], outcome.as_str()]);
            }
            for failure in RestoreFailure::ALL {
                self.failures.with_label_values(&[language[0], failure.as_str()]);
            }
            self.used.with_label_values(language).set(f64::from(u8::from(used.is_some())));
            if let Some((age, bytes)) = used {
                self.age.with_label_values(language).set(*age);
                self.bytes.with_label_values(language).set(super::state::count(*bytes));
            }
        }
    }
}

impl Metrics {
    /// An attempt to take a snapshot has ended.
    pub fn snapshot_taken(&self, language: &str, outcome: &'static str) {
        self.0.snapshots.takes.with_label_values(&[language, outcome]).inc();
    }

    /// A part could not be restored.
    pub fn not_restored(&self, language: &str, failure: RestoreFailure) {
        self.0.snapshots.failures.with_label_values(&[language, failure.as_str()]).inc();
    }

    /// A snapshot of an earlier daemon was refused.
    pub fn snapshot_poisoned(&self) {
        self.0.snapshots.poisoned.inc();
    }
}
