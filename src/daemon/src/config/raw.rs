//! The shape of the file: every key and its type, nothing about its sense. There must be no default here and
//! no key that [`check`](super::check) does not use; the compiler and a test see to both.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::types::{LogFormat, ToolSet, UrlStyle, WhenFull};
use super::value::{Secret, Size, Time};

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub(super) struct Raw {
    pub(super) http: RawHttp,
    pub(super) auth: RawAuth,
    pub(super) mcp: RawMcp,
    pub(super) store: RawStore,
    pub(super) files: RawFiles,
    pub(super) engine: RawEngine,
    pub(super) limits: RawLimits,
    pub(super) timeouts: RawTimeouts,
    pub(super) exec: RawExec,
    pub(super) sessions: RawSessions,
    pub(super) pool: RawPool,
    pub(super) runners: BTreeMap<String, String>,
    pub(super) agent: RawAgent,
    pub(super) metrics: RawMetrics,
    pub(super) log: RawLog,
    pub(super) shutdown: RawShutdown,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub(super) struct RawHttp {
    pub(super) addr: String,
    pub(super) public_url: String,
    pub(super) allowed_hosts: Vec<String>,
    pub(super) allowed_origins: Vec<String>,
    pub(super) allow_open: bool,
    pub(super) max_body: Size,
    pub(super) header_timeout: Time,
    pub(super) body_timeout: Time,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub(super) struct RawAuth {
    pub(super) token: Secret,
    /// The one key that is absent by default: an empty list of tables cannot stand above a commented one.
    #[serde(default)]
    pub(super) tokens: Vec<RawToken>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub(super) struct RawToken {
    pub(super) name: String,
    pub(super) sha256: Secret,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub(super) struct RawStore {
    pub(super) root: String,
    pub(super) max_bytes: Size,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub(super) struct RawMcp {
    pub(super) resume_window: Time,
    pub(super) toolsets: Vec<ToolSet>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub(super) struct RawFiles {
    pub(super) secret: Secret,
    pub(super) previous_secrets: Vec<Secret>,
    pub(super) url_ttl: Time,
    pub(super) url_style: UrlStyle,
    pub(super) max_log: Size,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub(super) struct RawEngine {
    pub(super) host: String,
    pub(super) certificates: String,
    pub(super) runtime: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub(super) struct RawLimits {
    pub(super) memory: Size,
    pub(super) cpus: f64,
    pub(super) pids: u32,
    pub(super) output: Size,
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
pub(super) struct RawTimeouts {
    pub(super) run_code: Time,
    pub(super) run_python: Time,
    pub(super) execute_code: Time,
    pub(super) max: Time,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub(super) struct RawExec {
    pub(super) runner: String,
    pub(super) max: u32,
    pub(super) per_session: u32,
    pub(super) keep: Time,
    pub(super) kept: u32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub(super) struct RawSessions {
    pub(super) ttl: Time,
    pub(super) max: u32,
    pub(super) sweep: Time,
    pub(super) when_full: WhenFull,
    pub(super) queue: u32,
    pub(super) retention: Time,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub(super) struct RawPool {
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
pub(super) struct RawAgent {
    pub(super) orphan_after: Time,
    pub(super) warm_parts: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub(super) struct RawMetrics {
    pub(super) addr: String,
    pub(super) token: Secret,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub(super) struct RawLog {
    pub(super) level: String,
    pub(super) format: LogFormat,
    pub(super) file: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub(super) struct RawShutdown {
    pub(super) drain: Time,
}
