//! The checked configuration, as the rest of the daemon sees it. Defaults, bounds and reasons are in
//! `config.example.toml`; this module checks nothing.

mod cluster;
mod containers;
mod files;
mod listeners;
mod process;
mod work;

use std::collections::BTreeMap;

pub use self::cluster::ClusterSettings;
pub use self::containers::{AgentSettings, EngineSettings, LimitsSettings, RunnerSettings};
pub use self::files::{
    DropSettings, FilesSettings, MountSettings, SharedStoreSettings, StoreSettings, UrlStyle,
};
pub(super) use self::listeners::MetricsSettings;
pub(crate) use self::listeners::reachable;
pub use self::listeners::{
    AuthSettings, HttpSettings, McpSettings, PortsSettings, PublicUrl, TlsFiles, ToolSet,
};
pub use self::process::{
    AuditSettings, LogFormat, LogLevel, LogSettings, ShutdownSettings, TelemetrySettings,
};
pub(super) use self::work::ExecSettings;
pub use self::work::{KeptWorkspaces, SessionsSettings, TaskSettings, TimeoutsSettings, WhenFull};
use crate::config::PoolSettings;
use crate::egress::EgressSettings;
use crate::packages::PackagesSettings;

/// All settings. Sizes are in bytes.
#[derive(Debug, Clone)]
#[cfg_attr(test, derive(PartialEq))]
pub struct Config {
    /// The listener.
    pub http: HttpSettings,
    /// The tokens of callers.
    pub auth: AuthSettings,
    /// The audit log.
    pub audit: AuditSettings,
    /// The directory of sessions on disk.
    pub store: StoreSettings,
    /// This node among others; `None` on a single machine.
    pub cluster: Option<ClusterSettings>,
    /// Signed links and logs of runs.
    pub files: FilesSettings,
    /// How the daemon serves MCP clients.
    pub mcp: McpSettings,
    /// The container engine.
    pub engine: EngineSettings,
    /// The resources that a container and a call may use.
    pub limits: LimitsSettings,
    /// How long runs may take.
    pub timeouts: TimeoutsSettings,
    /// Shell commands.
    pub exec: ExecSettings,
    /// How long and how many sessions have containers.
    pub sessions: SessionsSettings,
    /// How many containers stand idle; the pool itself checks it.
    pub pool: PoolSettings,
    /// What programs may reach outside of their containers.
    pub egress: EgressSettings,
    /// Packages beyond the images of runners.
    pub packages: PackagesSettings,
    /// The way in to servers that programs run.
    pub ports: PortsSettings,
    /// What every coding agent's runner has; each value is set.
    pub coding_agents: RunnerSettings,
    /// What a task has that its call does not name.
    pub tasks: TaskSettings,
    /// By the name of the runner, what differs from all others of its kind.
    pub runners: BTreeMap<String, RunnerSettings>,
    /// The folders of the engine's host that programs can read.
    pub mounts: Vec<MountSettings>,
    /// Where drop folders are.
    pub drops: Vec<DropSettings>,
    /// The program in the container.
    pub agent: AgentSettings,
    /// Who may read the metrics.
    pub metrics: MetricsSettings,
    /// The destination of logs.
    pub log: LogSettings,
    /// Where spans are exported to.
    pub telemetry: TelemetrySettings,
    /// How the daemon stops.
    pub shutdown: ShutdownSettings,
    /// Whether the fixtures of the MCP conformance suite are served; only the environment can set this.
    pub conformance_fixtures: bool,
}
