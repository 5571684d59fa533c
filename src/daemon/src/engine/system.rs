//! The engine itself: ping and info. It must never change anything.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;

use super::Engine;
use super::call::EngineCall;
use super::error::EngineError;
use super::op::EngineOp;
use super::shape::null_is_empty;

/// The description of an engine. Source: `GET /info`, only the fields that are used here.
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
    /// Architecture by the kernel's name, such as `x86_64`. Docker says it so, Podman by Go's name.
    #[serde(deserialize_with = "kernels_name")]
    pub architecture: String,
    /// Release of its kernel.
    pub kernel_version: String,
    /// The number of processors.
    #[serde(rename = "NCPU")]
    pub ncpu: u32,
    /// Memory of its host, in bytes.
    pub mem_total: u64,
    /// `1` or `2`; empty on engines that do not report it.
    #[serde(default)]
    pub cgroup_version: String,
    /// Its storage driver, such as `overlay2`.
    pub driver: String,
    /// Its clock, RFC 3339 with nanoseconds.
    pub system_time: String,
    /// Runtimes, by the names that `HostConfig.runtime` takes.
    #[serde(default, deserialize_with = "null_is_empty")]
    pub runtimes: BTreeMap<String, Runtime>,
    /// The runtime of a container that names none.
    #[serde(default)]
    pub default_runtime: String,
    /// Where it keeps images and containers, on its host.
    #[serde(default)]
    pub docker_root_dir: String,
    /// Such as `name=seccomp,profile=default`, `name=userns`, `name=rootless`.
    #[serde(default, deserialize_with = "null_is_empty")]
    pub security_options: Vec<String>,
    /// Its plugins.
    #[serde(default)]
    pub plugins: Plugins,
    /// Whether containers outlive a restart of the engine.
    #[serde(default)]
    pub live_restore_enabled: bool,
    /// The driver of control groups: `cgroupfs`, `systemd`, or `none`.
    #[serde(default)]
    pub cgroup_driver: String,
    /// Whether its kernel can limit memory; true if the engine does not report it.
    #[serde(default = "yes")]
    pub memory_limit: bool,
    /// Whether its kernel can limit swap; true if the engine does not report it.
    #[serde(default = "yes")]
    pub swap_limit: bool,
    /// Whether its kernel can limit processes; true if the engine does not report it.
    #[serde(default = "yes")]
    pub pids_limit: bool,
    /// Whether its kernel can limit processor time; true if the engine does not report it.
    #[serde(default = "yes")]
    pub cpu_cfs_quota: bool,
}

/// The kernel's name of an architecture, of which an engine may say Go's.
fn kernels_name<'de, D: serde::Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    let said = String::deserialize(from)?;
    Ok(match said.as_str() {
        "amd64" => "x86_64".to_owned(),
        "arm64" => "aarch64".to_owned(),
        _ => said,
    })
}

fn yes() -> bool {
    true
}

impl EngineInfo {
    /// Where it keeps images and containers, if it says so.
    pub fn root(&self) -> Option<PathBuf> {
        Some(&self.docker_root_dir).filter(|root| !root.is_empty()).map(PathBuf::from)
    }

    /// Whether its containers have a user namespace of their own: the engine is rootless, or runs with
    /// userns-remap.
    pub fn maps_users(&self) -> bool {
        let options = self.security_options.iter().flat_map(|option| option.split(','));
        options.into_iter().any(|part| matches!(part, "name=rootless" | "name=userns"))
    }

    /// The user and the group of its host that are 0 in its containers, as its own mounts count them. With
    /// userns-remap its folder is named after them. A rootless engine mounts where its containers are: 0.
    pub fn first_user(&self) -> (u32, u32) {
        let options = self.security_options.iter().flat_map(|option| option.split(','));
        let folder = self.docker_root_dir.rsplit('/').next().unwrap_or_default();
        let named =
            folder.split_once('.').and_then(|(uid, gid)| Some((uid.parse().ok()?, gid.parse().ok()?)));
        named.filter(|_| options.into_iter().any(|part| part == "name=userns")).unwrap_or_default()
    }
}

/// Plugins of an engine by type, only the types that are used here.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Plugins {
    /// The plugins that decide which calls are allowed.
    #[serde(default, deserialize_with = "null_is_empty")]
    pub authorization: Vec<String>,
}

/// One runtime of an engine.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Runtime {
    /// Its program; `None` for a shim that is named by its type.
    #[serde(default)]
    pub path: Option<String>,
}

impl Engine {
    /// Whether the engine answers: `GET /_ping`.
    pub async fn ping(&self) -> Result<(), EngineError> {
        self.ping_within(self.limits().read).await
    }

    /// The same, with this deadline.
    pub async fn ping_within(&self, within: Duration) -> Result<(), EngineError> {
        let call = EngineCall::new(EngineOp::Ping, "/_ping".into(), within, self.limits().answer_bytes);
        self.transport.ask(call).await?.discard().await
    }

    /// The description of the engine: `GET /info`.
    pub async fn info(&self) -> Result<EngineInfo, EngineError> {
        let limits = self.limits();
        let call = EngineCall::new(EngineOp::Info, "/info".into(), limits.read, limits.answer_bytes);
        self.transport.ask(call).await?.json().await
    }
}
