//! Containers: create, start, inspect, list, kill, pause, weigh, remove.
//!
//! It must never remove or stop a container by anything but its full id.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Engine;
use super::call::EngineCall;
use super::error::EngineError;
use super::ids::ContainerId;
use super::op::EngineOp;
use super::shape::null_is_empty;
use super::spec::ContainerSpec;

/// A container just made. Source: `POST /containers/create`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct CreatedContainer {
    /// Its id.
    pub id: ContainerId,
    /// The settings that the engine ignores, such as a limit that the kernel does not support.
    #[serde(default, deserialize_with = "null_is_empty")]
    pub warnings: Vec<String>,
}

/// The status of a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ContainerStatus {
    /// Made, never started.
    Created,
    /// Its PID 1 runs.
    Running,
    /// Frozen.
    Paused,
    /// Between two starts.
    Restarting,
    /// Being removed.
    Removing,
    /// Its PID 1 has ended.
    Exited,
    /// Its removal failed.
    Dead,
    /// A status that this client does not know.
    #[serde(other)]
    Unknown,
}

/// One container of a list. Source: `GET /containers/json`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct ContainerSummary {
    /// Its id.
    pub id: ContainerId,
    /// Its names, each with a leading `/`.
    #[serde(default, deserialize_with = "null_is_empty")]
    pub names: Vec<String>,
    /// The image's name when the container was made, or its id if another image has that name now.
    pub image: String,
    /// The image's id.
    #[serde(rename = "ImageID")]
    pub image_id: String,
    /// When it was made, in seconds since 1970.
    pub created: i64,
    /// Its status.
    pub state: ContainerStatus,
    /// Its labels.
    #[serde(default, deserialize_with = "null_is_empty")]
    pub labels: BTreeMap<String, String>,
}

/// One container in full. Source: `GET /containers/{id}/json`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerDetail {
    /// Its id.
    pub id: ContainerId,
    /// Its name, with a leading `/`.
    pub name: String,
    /// When it was made, RFC 3339.
    pub created: String,
    /// The image's id.
    pub image: String,
    /// Its state at this moment.
    pub state: ContainerState,
    /// Its labels, including the image's.
    pub labels: BTreeMap<String, String>,
}

/// The state of a container: `State` of `GET /containers/{id}/json`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct ContainerState {
    /// Its status.
    pub status: ContainerStatus,
    /// Whether the kernel killed PID 1 itself for lack of memory. If it killed only an exec's process, this
    /// is not set, and only the `oom` event reports it.
    #[serde(rename = "OOMKilled")]
    pub oom_killed: bool,
    /// The process id of its PID 1 on the engine's host; 0 when it does not run.
    pub pid: i64,
    /// The exit code of its PID 1: 128 + n after signal n, and 0 also while it runs.
    pub exit_code: i64,
    /// The runtime's message if it could not be started; otherwise empty.
    #[serde(default, deserialize_with = "null_is_empty")]
    pub error: String,
    /// The time of its last start, RFC 3339; year 1 for never.
    #[serde(default, deserialize_with = "null_is_empty")]
    pub started_at: String,
    /// The time of its last end, RFC 3339; year 1 for never.
    #[serde(default, deserialize_with = "null_is_empty")]
    pub finished_at: String,
}

/// A signal for a container's PID 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Signal {
    /// `SIGKILL`: the container ends, and with it every process in it.
    Kill,
    /// `SIGTERM`.
    Term,
    /// `SIGINT`.
    Int,
    /// `SIGHUP`.
    Hup,
}

impl Signal {
    fn as_str(self) -> &'static str {
        match self {
            Signal::Kill => "KILL",
            Signal::Term => "TERM",
            Signal::Int => "INT",
            Signal::Hup => "HUP",
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Inspected {
    id: ContainerId,
    name: String,
    created: String,
    image: String,
    state: ContainerState,
    config: InspectedConfig,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct InspectedConfig {
    #[serde(default, deserialize_with = "null_is_empty")]
    labels: BTreeMap<String, String>,
}

/// The body of `POST /containers/{id}/update`. What it does not name stays.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct ProcessorUpdate<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    cpu_shares: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cpuset_cpus: Option<&'a str>,
}

/// Its answer.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ContainerUpdated {
    #[serde(default, deserialize_with = "null_is_empty")]
    warnings: Vec<String>,
}

impl Engine {
    /// Creates a container, named `name` or by the engine: `POST /containers/create`.
    ///
    /// Errors: `is_not_found` when the image does not exist, `is_conflict` when the name is in use. After an
    /// error that [may have happened](EngineError::may_have_happened), look for the container by its labels,
    /// since its id is unknown.
    pub async fn container_create(
        &self,
        name: Option<&str>,
        spec: &ContainerSpec,
    ) -> Result<CreatedContainer, EngineError> {
        let limits = self.limits();
        let path = "/containers/create".to_owned();
        let mut call = EngineCall::new(EngineOp::ContainerCreate, path, limits.change, limits.answer_bytes);
        if let Some(name) = name {
            call = call.query("name", name);
        }
        self.transport.ask(call.json(spec)?).await?.json().await
    }

    /// Starts a container, or leaves it running if it runs already: `POST /containers/{id}/start`.
    ///
    /// If its program cannot be run, the error is `Api` with status 400 or 500 and the runtime's message, and
    /// the container stays `Created`.
    pub async fn container_start(&self, id: &ContainerId) -> Result<(), EngineError> {
        self.container_post(EngineOp::ContainerStart, id, "start").await
    }

    /// One container in full: `GET /containers/{id}/json`.
    pub async fn container_inspect(&self, id: &ContainerId) -> Result<ContainerDetail, EngineError> {
        let limits = self.limits();
        let path = format!("/containers/{id}/json");
        let call = EngineCall::new(EngineOp::ContainerInspect, path, limits.read, limits.answer_bytes);
        let found: Inspected = self.transport.ask(call).await?.json().await?;
        let Inspected { id, name, created, image, state, config } = found;
        Ok(ContainerDetail { id, name, created, image, state, labels: config.labels })
    }

    /// The containers that have all of `labels` (`name` or `name=value`), whatever their state; all
    /// containers if `labels` is empty. `GET /containers/json?all=true`.
    pub async fn container_list(&self, labels: &[String]) -> Result<Vec<ContainerSummary>, EngineError> {
        let limits = self.limits();
        let path = "/containers/json".to_owned();
        let call = EngineCall::new(EngineOp::ContainerList, path, limits.read, limits.list_bytes)
            .query("all", "true")
            .filters(&[("label", labels)]);
        self.transport.ask(call).await?.json().await
    }

    /// Sends `signal` to PID 1: `POST /containers/{id}/kill`. `is_conflict` when it does not run.
    ///
    /// Returns when the signal is sent, not when the container has ended.
    pub async fn container_kill(&self, id: &ContainerId, signal: Signal) -> Result<(), EngineError> {
        let limits = self.limits();
        let path = format!("/containers/{id}/kill");
        let call = EngineCall::new(EngineOp::ContainerKill, path, limits.change, limits.answer_bytes)
            .query("signal", signal.as_str());
        self.transport.ask(call).await?.discard().await
    }

    /// Freezes every process in it: `POST /containers/{id}/pause`. `is_conflict` when it does not run.
    pub async fn container_pause(&self, id: &ContainerId) -> Result<(), EngineError> {
        self.container_post(EngineOp::ContainerPause, id, "pause").await
    }

    /// Ends a pause: `POST /containers/{id}/unpause`. An `Api` error when it is not paused.
    pub async fn container_unpause(&self, id: &ContainerId) -> Result<(), EngineError> {
        self.container_post(EngineOp::ContainerUnpause, id, "unpause").await
    }

    /// Changes what a container has of the processors: `POST /containers/{id}/update`. `shares` are CPU
    /// shares: how much it weighs against others where processors are short (it was made with 1024).
    /// `processors` are those on which its programs may run, such as `0-2,5`. Everything else of it stays.
    /// Returns the engine's warnings: each names a change that it cannot make on its host.
    pub async fn container_processors(
        &self,
        id: &ContainerId,
        shares: Option<u64>,
        processors: Option<&str>,
    ) -> Result<Vec<String>, EngineError> {
        let limits = self.limits();
        let path = format!("/containers/{id}/update");
        let call = EngineCall::new(EngineOp::ContainerUpdate, path, limits.change, limits.answer_bytes);
        let update = ProcessorUpdate { cpu_shares: shares, cpuset_cpus: processors };
        let updated: ContainerUpdated = self.transport.ask(call.json(&update)?).await?.json().await?;
        Ok(updated.warnings)
    }

    /// Kills and removes a container with its anonymous volumes: `DELETE /containers/{id}?force=true&v=true`.
    ///
    /// Named volumes stay. Errors: `is_not_found` when it is gone, `is_conflict` while another removal is
    /// under way.
    pub async fn container_remove(&self, id: &ContainerId) -> Result<(), EngineError> {
        let limits = self.limits();
        let path = format!("/containers/{id}");
        let call = EngineCall::new(EngineOp::ContainerRemove, path, limits.change, limits.answer_bytes)
            .query("force", "true")
            .query("v", "true");
        self.transport.ask(call).await?.discard().await
    }

    async fn container_post(&self, op: EngineOp, id: &ContainerId, verb: &str) -> Result<(), EngineError> {
        let limits = self.limits();
        let path = format!("/containers/{id}/{verb}");
        let call = EngineCall::new(op, path, limits.change, limits.answer_bytes);
        self.transport.ask(call).await?.discard().await
    }
}
