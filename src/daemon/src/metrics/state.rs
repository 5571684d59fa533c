//! Gauges of the daemon's state. They are gathered at each scrape, and never counted up and down, so they
//! cannot drift.

use prometheus::{Gauge, GaugeVec, IntGauge};

use super::tenants::TenantState;
use super::{Make, SnapshotGauge};
use crate::degradation::Degradation;
use crate::store::Amount;

/// The daemon's state at one moment.
#[derive(Debug, Clone, Default)]
pub struct DaemonState {
    /// Whether the engine answers.
    pub engine_up: bool,
    /// The containers of each runner.
    pub runners: Vec<RunnerContainers>,
    /// The most containers.
    pub containers_max: usize,
    /// Sessions that have a container, and the most that may.
    pub sessions: (usize, usize),
    /// Workspaces that are kept without a container, and the most that may be.
    pub workspaces: (usize, usize),
    /// Sessions in memory.
    pub sessions_known: usize,
    /// Calls that wait for their turn in a session.
    pub calls_waiting: usize,
    /// Executions that run, and the most that may.
    pub executions: (usize, usize),
    /// Executions whose output can be read.
    pub executions_kept: usize,
    /// Whether the store can be written.
    pub store_writable: bool,
    /// The store's size, and its limits.
    pub store: (Amount, Amount),
    /// The snapshot of each runner that can have one.
    pub snapshots: Vec<SnapshotGauge>,
    /// Clients that read an event stream.
    pub watchers: usize,
    /// What each tenant uses.
    pub tenants: Vec<TenantState>,
    /// What does not work.
    pub degraded: Vec<Degradation>,
}

/// The containers of one runner, by state.
#[derive(Debug, Clone, Default)]
pub struct RunnerContainers {
    /// Its language.
    pub language: String,
    /// Containers that are being started.
    pub starting: usize,
    /// Armed containers that no session has.
    pub idle: usize,
    /// Containers that a session has.
    pub leased: usize,
    /// Containers that are being removed.
    pub removing: usize,
    /// Callers that wait for a container.
    pub waiting: usize,
    /// How many idle containers the pool keeps for it.
    pub idle_target: usize,
}

pub(super) struct StateGauges {
    engine_up: IntGauge,
    containers: GaugeVec,
    waiting: GaugeVec,
    idle_target: GaugeVec,
    containers_max: IntGauge,
    sessions_live: IntGauge,
    sessions_max: IntGauge,
    workspaces: IntGauge,
    workspaces_max: IntGauge,
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
    degraded: GaugeVec,
}

impl StateGauges {
    pub(super) fn new(make: &Make) -> Self {
        let gauge = |name, help| make.gauge(name, help);
        Self {
            engine_up: gauge("paddock_engine_up", "1 while the container engine answers, else 0."),
            containers: make.gauges(
                "paddock_pool_containers",
                "Containers, by state: starting, idle, leased, removing.",
                &["language", "state"],
            ),
            waiting: make.gauges("paddock_pool_waiting", "Callers waiting for a container.", &["language"]),
            idle_target: make.gauges(
                "paddock_pool_idle_target",
                "Idle containers that the pool keeps (pool.idle, or the runner's own idle).",
                &["language"],
            ),
            containers_max: gauge(
                "paddock_pool_containers_max",
                "The most containers that may exist (pool.max_containers).",
            ),
            sessions_live: gauge("paddock_sessions_live", "Sessions that hold a container."),
            sessions_max: gauge(
                "paddock_sessions_live_max",
                "The most sessions that may hold a container (sessions.max).",
            ),
            workspaces: gauge(
                "paddock_workspaces_kept",
                "Workspaces of coding agents that are kept without a container.",
            ),
            workspaces_max: gauge(
                "paddock_workspaces_kept_max",
                "The most workspaces that may be kept (tasks.workspaces; 0 without tasks.retention).",
            ),
            sessions_known: gauge(
                "paddock_sessions_loaded",
                "Sessions in memory, with or without a container.",
            ),
            calls_waiting: gauge(
                "paddock_session_calls_waiting",
                "Calls waiting for their turn in a session.",
            ),
            executions: gauge("paddock_executions_running", "Shell commands in progress."),
            executions_max: gauge(
                "paddock_executions_running_max",
                "The most shell commands in progress at one time (exec.max).",
            ),
            executions_kept: gauge(
                "paddock_executions_kept",
                "Shell commands whose output can still be read.",
            ),
            store_writable: gauge("paddock_store_writable", "1 while the store can be written, else 0."),
            store_used: make.ratio("paddock_store_used_bytes", "Bytes of the files of all sessions."),
            store_max: make.ratio(
                "paddock_store_limit_bytes",
                "The most bytes that these files may have (store.max_bytes).",
            ),
            store_files: make.ratio(
                "paddock_store_files",
                "Files, directories and links of all sessions, plus 3 for each session.",
            ),
            store_files_max: make.ratio(
                "paddock_store_limit_files",
                "The most files, directories and links (store.max_files).",
            ),
            watchers: gauge("paddock_event_streams", "Clients reading GET /mcp/events."),
            degraded: make.gauges(
                "paddock_degraded",
                "1 for what does not work at the moment, by its name in the table of degradations, else 0.",
                &["what"],
            ),
        }
    }

    pub(super) fn set(&self, now: &DaemonState) {
        let whole = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
        self.engine_up.set(i64::from(now.engine_up));
        self.containers.reset(); // forgets runners that are gone
        self.waiting.reset();
        self.idle_target.reset();
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
            let idle_target = self.idle_target.with_label_values(&[runner.language.as_str()]);
            idle_target.set(real(runner.idle_target));
        }
        self.containers_max.set(whole(now.containers_max));
        self.sessions_live.set(whole(now.sessions.0));
        self.sessions_max.set(whole(now.sessions.1));
        self.workspaces.set(whole(now.workspaces.0));
        self.workspaces_max.set(whole(now.workspaces.1));
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
        for what in Degradation::ALL {
            let fails = now.degraded.contains(&what);
            self.degraded.with_label_values(&[what.name()]).set(f64::from(u8::from(fails)));
        }
    }
}

/// A count of containers or callers, which is far below the limit of `u32`.
fn real(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}

#[expect(clippy::cast_precision_loss, reason = "Prometheus has nothing but floats")]
pub(super) fn count(count: u64) -> f64 {
    count as f64
}
