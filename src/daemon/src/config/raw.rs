//! The shape of the file: every key and its type, without its meaning. There must be no default here and no
//! key that [`check`](super::check) does not use; the compiler and a test ensure both.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::types::{LogFormat, ToolSet, UrlStyle, WhenFull};
use super::value::{Secret, Size, Time};
use crate::egress::{NetworkMode, Provider};
use crate::tenants::TokenTable;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub(super) struct RawConfig {
    pub(super) http: HttpTable,
    pub(super) auth: AuthTable,
    pub(super) audit: AuditTable,
    pub(super) mcp: McpTable,
    pub(super) store: StoreTable,
    pub(super) cluster: ClusterTable,
    pub(super) files: FilesTable,
    pub(super) engine: EngineTable,
    pub(super) limits: LimitsTable,
    pub(super) timeouts: TimeoutsTable,
    pub(super) exec: ExecTable,
    pub(super) sessions: SessionsTable,
    pub(super) pool: PoolTable,
    pub(super) egress: EgressTable,
    pub(super) models: BTreeMap<String, ModelTable>,
    pub(super) packages: PackagesTable,
    pub(super) ports: PortsTable,
    pub(super) tasks: TasksTable,
    pub(super) coding_agents: RunnerTable,
    pub(super) runners: BTreeMap<String, RunnerTable>,
    /// Left out of the example, as [`AuthTable::tokens`].
    #[serde(default)]
    pub(super) mounts: Vec<MountTable>,
    #[serde(default)]
    pub(super) drops: Vec<DropTable>,
    pub(super) agent: AgentTable,
    pub(super) metrics: MetricsTable,
    pub(super) log: LogTable,
    pub(super) telemetry: TelemetryTable,
    pub(super) shutdown: ShutdownTable,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub(super) struct HttpTable {
    pub(super) addr: String,
    pub(super) public_url: String,
    pub(super) allowed_hosts: Vec<String>,
    pub(super) allowed_origins: Vec<String>,
    pub(super) allow_open: bool,
    pub(super) tls_certificate: String,
    pub(super) tls_key: String,
    pub(super) max_body: Size,
    pub(super) header_timeout: Time,
    pub(super) body_timeout: Time,
    pub(super) write_timeout: Time,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub(super) struct AuthTable {
    pub(super) token: Secret,
    /// This key, `egress.services`, `mounts` and `drops` are left out of the example: an empty list of
    /// tables cannot stand above a commented one.
    #[serde(default)]
    pub(super) tokens: Vec<TokenTable>,
    pub(super) tokens_file: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub(super) struct AuditTable {
    pub(super) file: String,
    pub(super) required: bool,
    pub(super) rotate: Size,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub(super) struct StoreTable {
    pub(super) root: String,
    pub(super) url: Secret,
    pub(super) objects: String,
    pub(super) credentials: String,
    pub(super) max_bytes: Size,
    pub(super) max_files: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub(super) struct ClusterTable {
    pub(super) peers: Vec<String>,
    pub(super) key: Secret,
    pub(super) name: String,
    pub(super) addr: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub(super) struct McpTable {
    pub(super) resume_window: Time,
    pub(super) toolsets: Vec<ToolSet>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub(super) struct FilesTable {
    pub(super) secret: Secret,
    pub(super) previous_secrets: Vec<Secret>,
    pub(super) url_ttl: Time,
    pub(super) url_style: UrlStyle,
    pub(super) max_log: Size,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub(super) struct EngineTable {
    pub(super) host: String,
    pub(super) certificates: String,
    pub(super) allow_plain: bool,
    pub(super) runtime: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub(super) struct LimitsTable {
    pub(super) memory: Size,
    pub(super) cpus: f64,
    pub(super) pids: u32,
    pub(super) output: Size,
    pub(super) shown: Size,
    pub(super) code: Size,
    pub(super) upload: Size,
    pub(super) artifact_read: Size,
    pub(super) data: Size,
    pub(super) data_inodes: u32,
    pub(super) tmp: Size,
    pub(super) shm: Size,
    pub(super) open_files: u32,
    pub(super) file_size: Size,
    pub(super) environment: Size,
    pub(super) stdin: Size,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub(super) struct TimeoutsTable {
    pub(super) run_code: Time,
    pub(super) run_python: Time,
    pub(super) execute_code: Time,
    pub(super) max: Time,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub(super) struct ExecTable {
    pub(super) runner: String,
    pub(super) max: u32,
    pub(super) per_session: u32,
    pub(super) keep: Time,
    pub(super) kept: u32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub(super) struct SessionsTable {
    pub(super) ttl: Time,
    pub(super) max: u32,
    pub(super) sweep: Time,
    pub(super) when_full: WhenFull,
    pub(super) queue: u32,
    pub(super) retention: Time,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub(super) struct PoolTable {
    pub(super) idle: u32,
    pub(super) idle_ttl: Time,
    pub(super) queue: u32,
    pub(super) wait: Time,
    pub(super) uids: String,
    pub(super) starting: u32,
    pub(super) max_containers: u32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub(super) struct EgressTable {
    pub(super) mode: NetworkMode,
    pub(super) allow: Vec<String>,
    pub(super) deny: Vec<String>,
    pub(super) private: Vec<String>,
    pub(super) own_addresses: Vec<String>,
    pub(super) connections: u32,
    pub(super) connections_per_token: u32,
    pub(super) connections_per_run: u32,
    pub(super) bytes: Size,
    pub(super) names: u32,
    pub(super) requests: u32,
    pub(super) ask: bool,
    pub(super) prompts: u32,
    pub(super) prompt_timeout: Time,
    pub(super) connect_timeout: Time,
    pub(super) idle_timeout: Time,
    pub(super) upstream_proxy: Secret,
    pub(super) upstream_resolves: bool,
    pub(super) ca_bundle: String,
    pub(super) listen_ports: Vec<u32>,
    pub(super) hosts: BTreeMap<String, String>,
    #[serde(default)]
    pub(super) services: Vec<ServiceTable>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub(super) struct ServiceTable {
    pub(super) name: String,
    pub(super) url: String,
    /// Not secrets, but somebody could write one here by mistake.
    #[serde(default)]
    pub(super) headers: BTreeMap<String, Secret>,
    #[serde(default)]
    pub(super) tenants: Vec<String>,
}

/// Its keys are explained in the example, and have their defaults in [`check`](super::check): there is no
/// table of this kind in the example.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub(super) struct ModelTable {
    pub(super) provider: Provider,
    pub(super) url: Option<String>,
    /// Not a secret, but somebody could write one here by mistake.
    pub(super) key: Option<Secret>,
    #[serde(default)]
    pub(super) headers: BTreeMap<String, Secret>,
    pub(super) tenants: Option<Vec<String>>,
    #[serde(default)]
    pub(super) tenant_usd_per_day: f64,
    #[serde(default)]
    pub(super) tenant_tokens_per_day: u64,
    #[serde(default)]
    pub(super) prices: BTreeMap<String, PriceTable>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub(super) struct PriceTable {
    pub(super) input: f64,
    pub(super) output: f64,
    pub(super) cache_read: Option<f64>,
    pub(super) cache_write: Option<f64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub(super) struct PackagesTable {
    pub(super) enabled: bool,
    pub(super) max_bytes: Size,
    pub(super) max_files: u32,
    pub(super) total_bytes: Size,
    pub(super) retention: Time,
    pub(super) timeout: Time,
    pub(super) fetches: u32,
    pub(super) python_index: String,
    pub(super) npm_registry: String,
    pub(super) hosts: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub(super) struct PortsTable {
    pub(super) addr: String,
    pub(super) public_url: String,
    pub(super) connections: u32,
    pub(super) connect_timeout: Time,
    pub(super) answer_timeout: Time,
    pub(super) idle_timeout: Time,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub(super) struct TasksTable {
    pub(super) agent: String,
    pub(super) level: u32,
    pub(super) timeout: Time,
    pub(super) retention: Time,
    pub(super) workspaces: u32,
}

/// The settings of one runner, where what is not here is as for all others; and those of all coding agents,
/// where the example has a default for each key but `image`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "the name of an image or a table")]
pub(super) struct RunnerTable {
    pub(super) image: Option<String>,
    pub(super) idle: Option<u32>,
    pub(super) memory: Option<Size>,
    pub(super) cpus: Option<f64>,
    pub(super) pids: Option<u32>,
    pub(super) data: Option<Size>,
    pub(super) data_inodes: Option<u32>,
    pub(super) stored: Option<Size>,
    pub(super) tmp: Option<Size>,
    pub(super) open_files: Option<u32>,
    pub(super) file_size: Option<Size>,
    pub(super) runtime: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub(super) struct MountTable {
    pub(super) name: String,
    pub(super) path: String,
    #[serde(default)]
    pub(super) about: String,
    #[serde(default)]
    pub(super) runners: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub(super) struct DropTable {
    pub(super) tenant: Option<String>,
    pub(super) path: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub(super) struct AgentTable {
    pub(super) orphan_after: Time,
    pub(super) warm_parts: bool,
    pub(super) snapshots: bool,
    pub(super) snapshot_age: Time,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub(super) struct MetricsTable {
    pub(super) addr: String,
    pub(super) token: Secret,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub(super) struct LogTable {
    pub(super) level: String,
    pub(super) format: LogFormat,
    pub(super) file: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub(super) struct TelemetryTable {
    pub(super) otlp_endpoint: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub(super) struct ShutdownTable {
    pub(super) drain: Time,
}
