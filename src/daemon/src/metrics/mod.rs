//! Everything that the daemon counts and measures, for Prometheus: one facade, whose methods are named after
//! events.
//!
//! ```text
//!  api ─ tools ─ session ─ pool ─ engine ─ store ─ log        each reports events: metrics.granted(…)
//!                      │
//!                  Metrics ── http, tools, runs, pool, egress, packages, tenants, daemon, …: families
//!                      │
//!  GET /metrics ── DaemonState (gauges, gathered at the scrape) ── text
//! ```
//!
//! Names and units follow <https://prometheus.io/docs/practices/naming/>: seconds, bytes, `_total`. Labels
//! have closed sets of values: words of this program and of its operator, and the languages of the runner
//! images. No label may ever hold text from a caller or a program: no session, no path, no name of an
//! unknown tool, no error's text.
//!
//! A handle is cheap to clone. Nobody reads what a handle made by `default` counts.

mod audit;
mod cluster;
mod daemon;
mod egress;
mod engine;
mod http;
mod models;
mod packages;
mod pool;
mod runs;
mod snapshots;
mod state;
mod telemetry;
mod tenants;
mod tools;

use std::cell::RefCell;
use std::sync::Arc;

use prometheus::core::Collector;
use prometheus::{
    CounterVec, Gauge, GaugeVec, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge,
    Opts, Registry, TextEncoder,
};

use crate::degradation::Degradations;

pub use self::egress::ServiceOutcome;
pub use self::models::ModelOutcome;
pub use self::pool::WorkspaceEvent;
pub use self::runs::RunKind;
pub use self::snapshots::{RestoreFailure, SnapshotGauge};
pub use self::state::{DaemonState, RunnerContainers};
pub use self::tenants::TenantState;

/// The buckets for durations from less than a millisecond to minutes.
const SECONDS: [f64; 18] = [
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0,
    600.0,
];

/// The buckets for operations of a disk.
const DISK: [f64; 13] =
    [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0];

/// All families, and their registry.
#[derive(Clone)]
pub struct Metrics(Arc<Families>);

struct Families {
    registry: Registry,
    families: Vec<Family>,
    http: http::HttpMetrics,
    tools: tools::ToolMetrics,
    runs: runs::RunMetrics,
    pool: pool::PoolMetrics,
    engine: engine::EngineMetrics,
    egress: egress::EgressMetrics,
    models: models::ModelMetrics,
    packages: packages::PackageMetrics,
    tenants: tenants::TenantMetrics,
    audit: audit::AuditMetrics,
    cluster: cluster::ClusterMetrics,
    telemetry: telemetry::TelemetryMetrics,
    daemon: daemon::DaemonMetrics,
    snapshots: snapshots::SnapshotMetrics,
    state: state::StateGauges,
    degradations: Degradations,
}

impl Default for Metrics {
    fn default() -> Self {
        let make = Make { registry: Registry::new(), made: RefCell::default() };
        let made = Families {
            http: http::HttpMetrics::new(&make),
            tools: tools::ToolMetrics::new(&make),
            runs: runs::RunMetrics::new(&make),
            pool: pool::PoolMetrics::new(&make),
            engine: engine::EngineMetrics::new(&make),
            egress: egress::EgressMetrics::new(&make),
            models: models::ModelMetrics::new(&make),
            packages: packages::PackageMetrics::new(&make),
            tenants: tenants::TenantMetrics::new(&make),
            audit: audit::AuditMetrics::new(&make),
            cluster: cluster::ClusterMetrics::new(&make),
            telemetry: telemetry::TelemetryMetrics::new(&make),
            daemon: daemon::DaemonMetrics::new(&make),
            snapshots: snapshots::SnapshotMetrics::new(&make),
            state: state::StateGauges::new(&make),
            degradations: Degradations::default(),
            families: make.made.into_inner(),
            registry: make.registry,
        };
        Self(Arc::new(made))
    }
}

impl std::fmt::Debug for Metrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Metrics")
    }
}

impl Metrics {
    /// The metrics of this process, which include its CPU, memory, descriptors, threads, version and commit.
    #[must_use]
    pub fn of_process() -> Self {
        let metrics = Self::default();
        let process = prometheus::process_collector::ProcessCollector::for_self();
        let _ = metrics.0.registry.register(Box::new(process)); // fails only for a second one
        metrics.0.daemon.built();
        metrics
    }

    /// What the parts of the daemon have noted that fails.
    #[must_use]
    pub fn degradations(&self) -> &Degradations {
        &self.0.degradations
    }

    /// All families, except those of the process itself.
    #[must_use]
    pub fn families(&self) -> &[Family] {
        &self.0.families
    }

    /// All metrics, in Prometheus' text format 0.0.4.
    #[must_use]
    pub fn text(&self, now: &DaemonState) -> String {
        self.0.state.set(now);
        self.0.tenants.set(&now.tenants);
        self.0.snapshots.set(&now.snapshots);
        for runner in &now.runners {
            self.0.runs.know(&runner.language);
            self.0.pool.know(&runner.language);
        }
        // This fails only for a family without samples, and gather() leaves those out.
        TextEncoder::new().encode_to_string(&self.0.registry.gather()).unwrap_or_default()
    }
}

/// Makes families and registers each at once.
struct Make {
    registry: Registry,
    made: RefCell<Vec<Family>>,
}

/// The description of a family, for the reference in the documentation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Family {
    /// Its name.
    pub name: String,
    /// The names of its labels.
    pub labels: Vec<String>,
    /// Its HELP text.
    pub help: String,
}

/// Counts one in a gauge for as long as it lives.
#[must_use]
pub struct GaugeGuard(IntGauge);

impl GaugeGuard {
    fn of(gauge: IntGauge) -> Self {
        gauge.inc();
        Self(gauge)
    }
}

impl Drop for GaugeGuard {
    fn drop(&mut self) {
        self.0.dec();
    }
}

#[expect(clippy::expect_used, reason = "the names and labels are constants, and every test makes them all")]
impl Make {
    fn register<C: Collector + Clone + 'static>(&self, made: prometheus::Result<C>) -> C {
        let family = made.expect("a good family");
        let described = family.desc().into_iter().map(|desc| Family {
            name: desc.fq_name.clone(),
            labels: desc.variable_labels.clone(),
            help: desc.help.clone(),
        });
        self.made.borrow_mut().extend(described);
        self.registry.register(Box::new(family.clone())).expect("a name that was not used before");
        family
    }

    fn counter(&self, name: &str, help: &str) -> IntCounter {
        self.register(IntCounter::with_opts(Opts::new(name, help)))
    }

    fn counters(&self, name: &str, help: &str, labels: &[&str]) -> IntCounterVec {
        self.register(IntCounterVec::new(Opts::new(name, help), labels))
    }

    fn amounts(&self, name: &str, help: &str, labels: &[&str]) -> CounterVec {
        self.register(CounterVec::new(Opts::new(name, help), labels))
    }

    fn gauge(&self, name: &str, help: &str) -> IntGauge {
        self.register(IntGauge::with_opts(Opts::new(name, help)))
    }

    fn ratio(&self, name: &str, help: &str) -> Gauge {
        self.register(Gauge::with_opts(Opts::new(name, help)))
    }

    fn gauges(&self, name: &str, help: &str, labels: &[&str]) -> GaugeVec {
        self.register(GaugeVec::new(Opts::new(name, help), labels))
    }

    fn histogram(&self, name: &str, help: &str, buckets: &[f64]) -> Histogram {
        self.register(Histogram::with_opts(HistogramOpts::new(name, help).buckets(buckets.to_vec())))
    }

    fn histograms(&self, name: &str, help: &str, labels: &[&str]) -> HistogramVec {
        self.register(HistogramVec::new(HistogramOpts::new(name, help).buckets(SECONDS.to_vec()), labels))
    }
}

#[cfg(test)]
mod tests;
