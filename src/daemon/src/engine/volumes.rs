//! Volumes: create, inspect, list, remove.
//!
//! It must never remove a volume by anything but its name.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Engine;
use super::call::EngineCall;
use super::error::EngineError;
use super::ids::VolumeName;
use super::op::EngineOp;
use super::shape::null_is_empty;

/// The specification of a volume: the body of `POST /volumes/create`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct VolumeSpec {
    /// Its name, unique on the engine.
    pub name: VolumeName,
    /// Its driver, `local` for the engine's own.
    pub driver: String,
    /// The driver's options. For a `local` tmpfs: `type=tmpfs`, `device=tmpfs`, `o=size=…,nr_inodes=…,uid=…`.
    pub driver_opts: BTreeMap<String, String>,
    /// Its labels, which cannot change later.
    pub labels: BTreeMap<String, String>,
}

impl VolumeSpec {
    /// A plain volume of the `local` driver, without options or labels.
    pub fn local(name: VolumeName) -> VolumeSpec {
        VolumeSpec { name, driver: "local".to_owned(), driver_opts: BTreeMap::new(), labels: BTreeMap::new() }
    }
}

/// An existing volume. Source: `GET /volumes/{name}`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Volume {
    /// Its name.
    pub name: VolumeName,
    /// Its driver.
    pub driver: String,
    /// Where it is on the engine's host; empty when the driver does not say.
    #[serde(default, deserialize_with = "null_is_empty")]
    pub mountpoint: String,
    /// When it was made, RFC 3339; empty when the driver does not know.
    #[serde(default, deserialize_with = "null_is_empty")]
    pub created_at: String,
    /// Its labels.
    #[serde(default, deserialize_with = "null_is_empty")]
    pub labels: BTreeMap<String, String>,
    /// The driver's options that it was made with.
    #[serde(default, deserialize_with = "null_is_empty")]
    pub options: BTreeMap<String, String>,
}

impl Engine {
    /// Creates a volume: `POST /volumes/create`.
    ///
    /// A name that exists is no error: the engine answers with the existing volume, whatever its options and
    /// labels. The caller must compare those.
    pub async fn volume_create(&self, spec: &VolumeSpec) -> Result<Volume, EngineError> {
        let limits = self.limits();
        let path = "/volumes/create".to_owned();
        let call =
            EngineCall::new(EngineOp::VolumeCreate, path, limits.change, limits.answer_bytes).json(spec)?;
        self.transport.ask(call).await?.json().await
    }

    /// One volume: `GET /volumes/{name}`. Errors: `is_not_found` when it does not exist.
    pub async fn volume_inspect(&self, name: &VolumeName) -> Result<Volume, EngineError> {
        let limits = self.limits();
        let path = format!("/volumes/{name}");
        let call = EngineCall::new(EngineOp::VolumeInspect, path, limits.read, limits.answer_bytes);
        self.transport.ask(call).await?.json().await
    }

    /// The volumes that have all of `labels` (`name` or `name=value`); all volumes if `labels` is empty.
    /// `GET /volumes`.
    ///
    /// A volume whose name is not a valid [`VolumeName`] (of another driver) fails the whole list, so use a
    /// filter.
    pub async fn volume_list(&self, labels: &[String]) -> Result<Vec<Volume>, EngineError> {
        self.volumes(&[("label", labels)]).await
    }

    /// Those of them that no container has, not even a stopped one.
    pub async fn volume_list_unused(&self, labels: &[String]) -> Result<Vec<Volume>, EngineError> {
        self.volumes(&[("label", labels), ("dangling", &["true".to_owned()])]).await
    }

    async fn volumes(&self, filters: &[(&'static str, &[String])]) -> Result<Vec<Volume>, EngineError> {
        #[derive(Deserialize)]
        struct VolumeList {
            #[serde(default, rename = "Volumes", deserialize_with = "null_is_empty")]
            volumes: Vec<Volume>,
        }
        let limits = self.limits();
        let call = EngineCall::new(EngineOp::VolumeList, "/volumes".into(), limits.read, limits.list_bytes)
            .filters(filters);
        let list: VolumeList = self.transport.ask(call).await?.json().await?;
        Ok(list.volumes)
    }

    /// Removes a volume: `DELETE /volumes/{name}`. Errors: `is_conflict` while a container uses it, even a
    /// stopped one.
    pub async fn volume_remove(&self, name: &VolumeName) -> Result<(), EngineError> {
        let limits = self.limits();
        let path = format!("/volumes/{name}");
        let call = EngineCall::new(EngineOp::VolumeRemove, path, limits.change, limits.answer_bytes);
        self.transport.ask(call).await?.discard().await
    }
}
