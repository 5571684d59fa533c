//! What the daemon counts and measures, as Prometheus reads it: one facade, whose methods name what happened.
//!
//! ```text
//!  api ─ tools ─ session ─ pool ─ engine ─ store ─ log        each says what happened: metrics.granted(…)
//!                      │
//!                  Metrics ── http, tools, runs, pool, engine, rest: the families of each
//!                      │
//!  GET /metrics ── Standing (how things stand, asked for at the scrape) ── text
//! ```
//!
//! Names and units follow <https://prometheus.io/docs/practices/naming/>: seconds, bytes, `_total`. Labels have closed sets of
//! values: words that stand in this program, and the languages of the runner images found. No label may ever hold what a
//! caller or a program said: not a session, a path, a tool's name that there is none of, nor an error's text.
//!
//! A handle is cheap to clone. One made by `default` is nobody's: what it counts is not read.

mod engine;
mod http;
mod pool;
mod rest;
mod runs;
mod standing;
mod tools;

use std::cell::RefCell;
use std::sync::Arc;

use prometheus::core::Collector;
use prometheus::{
    Gauge, GaugeVec, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, Opts,
    Registry, TextEncoder,
};

pub use self::runs::{Kind, Running};
pub use self::standing::{RunnerStanding, Standing};

/// Bounds of the buckets of all that can be over in less than a millisecond and take minutes.
const SECONDS: [f64; 18] = [
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0,
    600.0,
];

/// Bounds of the buckets of what a disk does.
const DISK: [f64; 13] =
    [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0];

/// All families, and the registry that they are in.
#[derive(Clone)]
pub struct Metrics(Arc<Families>);

struct Families {
    registry: Registry,
    families: Vec<Family>,
    http: http::Http,
    tools: tools::Tools,
    runs: runs::Runs,
    pool: pool::Pool,
    engine: engine::Engine,
    rest: rest::Rest,
    standing: standing::Gauges,
}

impl Default for Metrics {
    fn default() -> Self {
        let make = Make { registry: Registry::new(), made: RefCell::default() };
        let made = Families {
            http: http::Http::new(&make),
            tools: tools::Tools::new(&make),
            runs: runs::Runs::new(&make),
            pool: pool::Pool::new(&make),
            engine: engine::Engine::new(&make),
            rest: rest::Rest::new(&make),
            standing: standing::Gauges::new(&make),
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
    /// Those of this process: with its own figures (CPU, memory, descriptors, threads), and what was built into it.
    #[must_use]
    pub fn of_process() -> Self {
        let metrics = Self::default();
        let process = prometheus::process_collector::ProcessCollector::for_self();
        let _ = metrics.0.registry.register(Box::new(process)); // refused only if it was there
        metrics.0.rest.built();
        metrics
    }

    /// The families that there are, beside those of the process itself.
    #[must_use]
    pub fn families(&self) -> &[Family] {
        &self.0.families
    }

    /// All of it, in Prometheus' text format 0.0.4.
    #[must_use]
    pub fn text(&self, now: &Standing) -> String {
        self.0.standing.set(now);
        for runner in &now.runners {
            self.0.runs.know(&runner.language);
            self.0.pool.know(&runner.language);
        }
        // Fails only for a family without samples, which gather() leaves out.
        TextEncoder::new().encode_to_string(&self.0.registry.gather()).unwrap_or_default()
    }
}

/// Makes families, each in the registry from its first moment.
struct Make {
    registry: Registry,
    /// Name and labels of each, for whoever lists them.
    made: RefCell<Vec<Family>>,
}

/// A family as documents list it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Family {
    /// Its name.
    pub name: String,
    /// Its labels.
    pub labels: Vec<String>,
    /// What it is.
    pub help: String,
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
