//! Metrics of packages: fetches, uses, and what is kept.

use std::time::Duration;

use prometheus::{Histogram, IntCounterVec, IntGauge};

use super::{Make, Metrics};

/// Buckets for a fetch: a small package takes a second, a large one minutes.
const FETCH: [f64; 9] = [0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0];
const OUTCOMES: [&str; 8] =
    ["ok", "list", "too_large", "no_room", "no_network", "no_container", "no_engine", "failed"];
const USES: [&str; 2] = ["hit", "fetched"];

pub(super) struct PackageMetrics {
    fetches: IntCounterVec,
    seconds: Histogram,
    uses: IntCounterVec,
    layers: IntGauge,
    bytes: IntGauge,
}

impl PackageMetrics {
    pub(super) fn new(make: &Make) -> Self {
        let packages = Self {
            fetches: make.counters(
                "paddock_package_fetches_total",
                "Fetches of packages, by outcome: ok, list (it asks for what cannot be had), too_large, \
                 no_room, no_network, no_container, no_engine, failed.",
                &["outcome"],
            ),
            seconds: make.histogram(
                "paddock_package_fetch_seconds",
                "Time from a call that found no layer to the end of its fetch.",
                &FETCH,
            ),
            uses: make.counters(
                "paddock_package_uses_total",
                "Calls that got their packages: hit if they were there, fetched if the call waited for them.",
                &["result"],
            ),
            layers: make.gauge("paddock_package_layers", "Layers of packages that are kept."),
            bytes: make.gauge("paddock_package_bytes", "Bytes of all layers of packages."),
        };
        for outcome in OUTCOMES {
            packages.fetches.with_label_values(&[outcome]);
        }
        for result in USES {
            packages.uses.with_label_values(&[result]);
        }
        packages
    }
}

impl Metrics {
    /// A fetch has come to its end.
    pub fn packages_fetched(&self, outcome: &'static str, took: Duration) {
        self.0.packages.fetches.with_label_values(&[outcome]).inc();
        self.0.packages.seconds.observe(took.as_secs_f64());
    }

    /// A call has its packages.
    pub fn packages_used(&self, has_waited: bool) {
        let result = if has_waited { "fetched" } else { "hit" };
        self.0.packages.uses.with_label_values(&[result]).inc();
    }

    /// So much is kept now.
    pub fn packages_kept(&self, layers: usize, bytes: u64) {
        self.0.packages.layers.set(i64::try_from(layers).unwrap_or(i64::MAX));
        self.0.packages.bytes.set(i64::try_from(bytes).unwrap_or(i64::MAX));
    }
}
