//! How things stand at the moment of a scrape: nothing is counted along the way, so that nothing can drift.

use prometheus::{Gauge, GaugeVec, IntGauge};

use super::Make;
use crate::store::Amount;

/// How the daemon stands at one moment.
#[derive(Debug, Clone, Default)]
pub struct Standing {
    /// Whether the engine answers.
    pub engine_up: bool,
    /// Each runner that there is.
    pub runners: Vec<RunnerStanding>,
    /// Idle containers that are wanted of each runner.
    pub idle_target: usize,
    /// Containers that there may be.
    pub containers_max: usize,
    /// Sessions that have a container, and how many may.
    pub sessions: (usize, usize),
    /// Sessions in memory.
    pub sessions_known: usize,
    /// Calls that wait for their turn in a session.
    pub calls_waiting: usize,
    /// Commands under way, and how many may be.
    pub executions: (usize, usize),
    /// Commands that can be read of.
    pub executions_kept: usize,
    /// Whether the store's file system takes what is to be saved.
    pub store_writable: bool,
    /// What is in the store, and what may be.
    pub store: (Amount, Amount),
    /// Who reads an event stream.
    pub watchers: usize,
}

/// How one runner's containers stand.
#[derive(Debug, Clone, Default)]
pub struct RunnerStanding {
    /// Its language.
    pub language: String,
    /// Being started.
    pub starting: usize,
    /// Armed, and nobody's.
    pub idle: usize,
    /// A session's.
    pub leased: usize,
    /// On their way out.
    pub removing: usize,
    /// Callers that wait.
    pub waiting: usize,
}

pub(super) struct Gauges {
    engine_up: IntGauge,
    containers: GaugeVec,
    waiting: GaugeVec,
    idle_target: IntGauge,
    containers_max: IntGauge,
    sessions_live: IntGauge,
    sessions_max: IntGauge,
    sessions_known: IntGauge,
    calls_waiting: IntGauge,
    executions: IntGauge,
    executions_max: IntGauge,
    executions_kept: IntGauge,
    store_writable: IntGauge,
    store_used: Gauge,
    store_max: Gauge,
    store_files: Gauge,
    store_files_max: Gauge,
    watchers: IntGauge,
}

impl Gauges {
    pub(super) fn new(make: &Make) -> Self {
        let gauge = |name, help| make.gauge(name, help);
        Self {
            engine_up: gauge("paddock_engine_up", "1 while the container engine answers."),
            containers: make.gauges(
                "paddock_pool_containers",
                "Containers by state: starting, idle, leased, removing.",
                &["language", "state"],
            ),
            waiting: make.gauges("paddock_pool_waiting", "Callers that wait for a container.", &["language"]),
            idle_target: gauge(
                "paddock_pool_idle_target",
                "Idle containers wanted of each language (pool.idle).",
            ),
            containers_max: gauge(
                "paddock_pool_containers_max",
                "Containers that there may be (pool.max_containers).",
            ),
            sessions_live: gauge("paddock_sessions_live", "Sessions that have a container."),
            sessions_max: gauge("paddock_sessions_live_max", "Sessions that may have one (sessions.max)."),
            sessions_known: gauge(
                "paddock_sessions_loaded",
                "Sessions in memory, with a container or without.",
            ),
            calls_waiting: gauge(
                "paddock_session_calls_waiting",
                "Calls that wait for their turn in a session.",
            ),
            executions: gauge("paddock_executions_running", "Shell commands under way."),
            executions_max: gauge("paddock_executions_running_max", "Shell commands that may be (exec.max)."),
            executions_kept: gauge("paddock_executions_kept", "Shell commands whose output can be read."),
            store_writable: gauge("paddock_store_writable", "1 while the store can be written."),
            store_used: make.ratio("paddock_store_used_bytes", "Files of all sessions."),
            store_max: make
                .ratio("paddock_store_limit_bytes", "What they may have together (store.max_bytes)."),
            store_files: make.ratio(
                "paddock_store_files",
                "Files, directories and links of all sessions, and 3 for each session.",
            ),
            store_files_max: make
                .ratio("paddock_store_limit_files", "How many those may be (store.max_files)."),
            watchers: gauge("paddock_event_streams", "Clients that read GET /mcp/events."),
        }
    }

    pub(super) fn set(&self, now: &Standing) {
        let whole = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
        self.engine_up.set(i64::from(now.engine_up));
        self.containers.reset(); // a runner that is gone has none
        self.waiting.reset();
        for runner in &now.runners {
            let states = [
                ("starting", runner.starting),
                ("idle", runner.idle),
                ("leased", runner.leased),
                ("removing", runner.removing),
            ];
            for (state, count) in states {
                self.containers.with_label_values(&[runner.language.as_str(), state]).set(real(count));
            }
            self.waiting.with_label_values(&[runner.language.as_str()]).set(real(runner.waiting));
        }
        self.idle_target.set(whole(now.idle_target));
        self.containers_max.set(whole(now.containers_max));
        self.sessions_live.set(whole(now.sessions.0));
        self.sessions_max.set(whole(now.sessions.1));
        self.sessions_known.set(whole(now.sessions_known));
        self.calls_waiting.set(whole(now.calls_waiting));
        self.executions.set(whole(now.executions.0));
        self.executions_max.set(whole(now.executions.1));
        self.executions_kept.set(whole(now.executions_kept));
        self.store_writable.set(i64::from(now.store_writable));
        let (used, most) = now.store;
        self.store_used.set(count(used.bytes));
        self.store_max.set(count(most.bytes));
        self.store_files.set(count(used.entries));
        self.store_files_max.set(count(most.entries));
        self.watchers.set(whole(now.watchers));
    }
}

/// Counts of containers are small.
fn real(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}

#[expect(clippy::cast_precision_loss, reason = "Prometheus has nothing but floats")]
fn count(count: u64) -> f64 {
    count as f64
}
