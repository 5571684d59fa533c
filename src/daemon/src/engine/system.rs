//! The engine itself: whether it answers, and what it can do.
//!
//! It must never change anything.

use std::collections::BTreeMap;
use std::time::Duration;

use http::Method;
use serde::Deserialize;

use super::Engine;
use super::call::Call;
use super::error::EngineError;
use super::op::Op;
use super::shape::null_is_empty;

/// What an engine is and can do. Source: `GET /info`; only what is used here.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct EngineInfo {
    /// Id of the engine, stable over restarts.
    #[serde(rename = "ID")]
    pub id: String,
    /// Name of its host.
    pub name: String,
    /// Its own version.
    pub server_version: String,
    /// Operating system of its containers.
    #[serde(rename = "OSType")]
    pub os_type: String,
    /// Architecture in the kernel's words, such as `x86_64`.
    pub architecture: String,
    /// Release of its kernel.
    pub kernel_version: String,
    /// Processors it sees.
    #[serde(rename = "NCPU")]
    pub ncpu: u32,
    /// Memory of its host, in bytes.
    pub mem_total: u64,
    /// `1` or `2`; empty on engines that do not say.
    #[serde(default)]
    pub cgroup_version: String,
    /// Its storage driver, such as `overlay2`.
    pub driver: String,
    /// Its clock, RFC 3339 with nanoseconds.
    pub system_time: String,
    /// Runtimes by name, as `HostConfig.runtime` names them.
    #[serde(default, deserialize_with = "null_is_empty")]
    pub runtimes: BTreeMap<String, Runtime>,
    /// The runtime used when none is named.
    #[serde(default)]
    pub default_runtime: String,
    /// Such as `name=seccomp,profile=default`, `name=userns`, `name=rootless`.
    #[serde(default, deserialize_with = "null_is_empty")]
    pub security_options: Vec<String>,
    /// Its plugins.
    #[serde(default)]
    pub plugins: Plugins,
    /// Whether containers outlive the engine's restart.
    #[serde(default)]
    pub live_restore_enabled: bool,
    /// Who makes control groups: `cgroupfs`, `systemd`, or `none`.
    #[serde(default)]
    pub cgroup_driver: String,
    /// Whether its kernel bounds memory; engines that do not say are taken to.
    #[serde(default = "yes")]
    pub memory_limit: bool,
    /// The same of swap.
    #[serde(default = "yes")]
    pub swap_limit: bool,
    /// The same of processes.
    #[serde(default = "yes")]
    pub pids_limit: bool,
    /// The same of processor time.
    #[serde(default = "yes")]
    pub cpu_cfs_quota: bool,
}

fn yes() -> bool {
    true
}

impl EngineInfo {
    /// Whether its containers have a user namespace of their own: it is rootless, or started with userns-remap.
    pub fn maps_users(&self) -> bool {
        let options = self.security_options.iter().flat_map(|option| option.split(','));
        options.into_iter().any(|part| matches!(part, "name=rootless" | "name=userns"))
    }
}

/// Plugins of an engine, by what they do; only what is used here.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Plugins {
    /// Those that decide who may ask it for what.
    #[serde(default, deserialize_with = "null_is_empty")]
    pub authorization: Vec<String>,
}

/// One runtime of an engine.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Runtime {
    /// Its program; absent for a shim named by type.
    #[serde(default)]
    pub path: Option<String>,
}

impl Engine {
    /// Whether the engine answers: `GET /_ping`.
    pub async fn ping(&self) -> Result<(), EngineError> {
        self.ping_within(self.limits().read).await
    }

    /// The same, with a deadline of its own.
    pub async fn ping_within(&self, within: Duration) -> Result<(), EngineError> {
        let call = Call::new(Op::Ping, Method::GET, "/_ping".into(), within, self.limits().answer_bytes);
        self.transport.ask(call).await?.discard().await
    }

    /// What the engine is and can do: `GET /info`.
    pub async fn info(&self) -> Result<EngineInfo, EngineError> {
        let limits = self.limits();
        let call = Call::new(Op::Info, Method::GET, "/info".into(), limits.read, limits.answer_bytes);
        self.transport.ask(call).await?.json().await
    }
}
