//! Containers: make, start, look at, list, kill, pause, remove.
//!
//! It must never remove or stop one that was not named by its full id.

use std::collections::BTreeMap;

use http::Method;
use serde::Deserialize;

use super::Engine;
use super::call::Call;
use super::error::EngineError;
use super::ids::ContainerId;
use super::op::Op;
use super::shape::null_is_empty;
use super::spec::ContainerSpec;

/// A container just made. Source: `POST /containers/create`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct CreatedContainer {
    /// Its id.
    pub id: ContainerId,
    /// What the engine will not do as asked, such as a limit the kernel does not have.
    #[serde(default, deserialize_with = "null_is_empty")]
    pub warnings: Vec<String>,
}

/// Where a container is in its life.
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
    /// A word this client does not know.
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
    /// The image as it was named when the container was made, or its id when that name has moved on.
    pub image: String,
    /// The image's id.
    #[serde(rename = "ImageID")]
    pub image_id: String,
    /// When it was made, in seconds since 1970.
    pub created: i64,
    /// Where it is in its life.
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
    /// How it is now.
    pub state: ContainerState,
    /// Its labels, the image's included.
    pub labels: BTreeMap<String, String>,
}

/// How a container is: `State` of `GET /containers/{id}/json`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct ContainerState {
    /// Where it is in its life.
    pub status: ContainerStatus,
    /// Whether PID 1 itself was killed for want of memory. Not set when that hit only an exec's process; the
    /// `oom` event tells.
    #[serde(rename = "OOMKilled")]
    pub oom_killed: bool,
    /// Its PID 1 as the engine's host sees it; 0 when it does not run.
    pub pid: i64,
    /// How its PID 1 ended: 0 also when it has not, 128 + n after signal n.
    pub exit_code: i64,
    /// Why it could not be started, in the runtime's words; mostly empty.
    #[serde(default, deserialize_with = "null_is_empty")]
    pub error: String,
    /// When it was started last, RFC 3339; year 1 for never.
    #[serde(default, deserialize_with = "null_is_empty")]
    pub started_at: String,
    /// When it ended last, RFC 3339; year 1 for never.
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

impl Engine {
    /// Makes a container, named `name` or by the engine: `POST /containers/create`.
    ///
    /// Errors: `is_not_found` for an image that is not there, `is_conflict` for a name that is taken. After one
    /// that [may have happened](EngineError::may_have_happened), look for it by label: its id is not known here.
    pub async fn container_create(
        &self,
        name: Option<&str>,
        spec: &ContainerSpec,
    ) -> Result<CreatedContainer, EngineError> {
        let limits = self.limits();
        let path = "/containers/create".to_owned();
        let mut call = Call::new(Op::ContainerCreate, Method::POST, path, limits.change, limits.answer_bytes);
        if let Some(name) = name {
            call = call.query("name", name);
        }
        self.transport.ask(call.json(spec)?).await?.json().await
    }

    /// Starts a container; one that already runs is left so. `POST /containers/{id}/start`.
    ///
    /// A program that cannot be run is an `Api` error of status 400 or 500 with the runtime's words, and leaves
    /// the container `Created`.
    pub async fn container_start(&self, id: &ContainerId) -> Result<(), EngineError> {
        self.container_post(Op::ContainerStart, id, "start").await
    }

    /// One container in full: `GET /containers/{id}/json`.
    pub async fn container_inspect(&self, id: &ContainerId) -> Result<ContainerDetail, EngineError> {
        let limits = self.limits();
        let path = format!("/containers/{id}/json");
        let call = Call::new(Op::ContainerInspect, Method::GET, path, limits.read, limits.answer_bytes);
        let found: Inspected = self.transport.ask(call).await?.json().await?;
        let Inspected { id, name, created, image, state, config } = found;
        Ok(ContainerDetail { id, name, created, image, state, labels: config.labels })
    }

    /// The containers that carry every one of `labels` (`name` or `name=value`), whatever their state; all when
    /// there are none. `GET /containers/json?all=true`.
    pub async fn container_list(&self, labels: &[String]) -> Result<Vec<ContainerSummary>, EngineError> {
        let limits = self.limits();
        let path = "/containers/json".to_owned();
        let call = Call::new(Op::ContainerList, Method::GET, path, limits.read, limits.list_bytes)
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
        let call = Call::new(Op::ContainerKill, Method::POST, path, limits.change, limits.answer_bytes)
            .query("signal", signal.as_str());
        self.transport.ask(call).await?.discard().await
    }

    /// Freezes every process in it: `POST /containers/{id}/pause`. `is_conflict` when it does not run.
    pub async fn container_pause(&self, id: &ContainerId) -> Result<(), EngineError> {
        self.container_post(Op::ContainerPause, id, "pause").await
    }

    /// Lets them go on: `POST /containers/{id}/unpause`. An `Api` error when it is not paused.
    pub async fn container_unpause(&self, id: &ContainerId) -> Result<(), EngineError> {
        self.container_post(Op::ContainerUnpause, id, "unpause").await
    }

    /// Kills and removes a container with its anonymous volumes: `DELETE /containers/{id}?force=true&v=true`.
    ///
    /// Named volumes stay. Errors: `is_not_found` when it is gone, `is_conflict` while another removal is under
    /// way.
    pub async fn container_remove(&self, id: &ContainerId) -> Result<(), EngineError> {
        let limits = self.limits();
        let path = format!("/containers/{id}");
        let call = Call::new(Op::ContainerRemove, Method::DELETE, path, limits.change, limits.answer_bytes)
            .query("force", "true")
            .query("v", "true");
        self.transport.ask(call).await?.discard().await
    }

    async fn container_post(&self, op: Op, id: &ContainerId, verb: &str) -> Result<(), EngineError> {
        let limits = self.limits();
        let path = format!("/containers/{id}/{verb}");
        let call = Call::new(op, Method::POST, path, limits.change, limits.answer_bytes);
        self.transport.ask(call).await?.discard().await
    }
}
