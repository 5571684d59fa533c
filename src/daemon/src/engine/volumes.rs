//! Volumes: make, look at, list, remove.
//!
//! It must never remove one that was not named.

use std::collections::BTreeMap;

use http::Method;
use serde::{Deserialize, Serialize};

use super::Engine;
use super::call::Call;
use super::error::EngineError;
use super::ids::VolumeName;
use super::op::Op;
use super::shape::null_is_empty;

/// A volume to make: the body of `POST /volumes/create`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct VolumeSpec {
    /// Its name, unique on the engine.
    pub name: VolumeName,
    /// Its driver, `local` for what the engine itself does.
    pub driver: String,
    /// The driver's options. For a `local` tmpfs: `type=tmpfs`, `device=tmpfs`, `o=size=…,nr_inodes=…,uid=…`.
    pub driver_opts: BTreeMap<String, String>,
    /// Its labels, fixed for its life.
    pub labels: BTreeMap<String, String>,
}

impl VolumeSpec {
    /// A plain volume of the `local` driver, without options or labels.
    pub fn local(name: VolumeName) -> VolumeSpec {
        VolumeSpec { name, driver: "local".to_owned(), driver_opts: BTreeMap::new(), labels: BTreeMap::new() }
    }
}

/// A volume there is. Source: `GET /volumes/{name}`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Volume {
    /// Its name.
    pub name: VolumeName,
    /// Its driver.
    pub driver: String,
    /// When it was made, RFC 3339; empty when the driver does not know.
    #[serde(default, deserialize_with = "null_is_empty")]
    pub created_at: String,
    /// Its labels.
    #[serde(default, deserialize_with = "null_is_empty")]
    pub labels: BTreeMap<String, String>,
    /// The driver's options it was made with.
    #[serde(default, deserialize_with = "null_is_empty")]
    pub options: BTreeMap<String, String>,
}

impl Engine {
    /// Makes a volume: `POST /volumes/create`.
    ///
    /// A name that is taken is no error: the engine answers with the volume that has it, whatever its options and
    /// labels. Compare them in the answer.
    pub async fn volume_create(&self, spec: &VolumeSpec) -> Result<Volume, EngineError> {
        let limits = self.limits();
        let path = "/volumes/create".to_owned();
        let call =
            Call::new(Op::VolumeCreate, Method::POST, path, limits.change, limits.answer_bytes).json(spec)?;
        self.transport.ask(call).await?.json().await
    }

    /// One volume; `is_not_found` when there is none such. `GET /volumes/{name}`.
    pub async fn volume_inspect(&self, name: &VolumeName) -> Result<Volume, EngineError> {
        let limits = self.limits();
        let path = format!("/volumes/{name}");
        let call = Call::new(Op::VolumeInspect, Method::GET, path, limits.read, limits.answer_bytes);
        self.transport.ask(call).await?.json().await
    }

    /// The volumes that carry every one of `labels` (`name` or `name=value`); all when there are none.
    /// `GET /volumes`.
    ///
    /// Volumes whose names [`VolumeName`] does not take (another driver's) fail the whole list, so do filter.
    pub async fn volume_list(&self, labels: &[String]) -> Result<Vec<Volume>, EngineError> {
        #[derive(Deserialize)]
        struct List {
            #[serde(default, rename = "Volumes", deserialize_with = "null_is_empty")]
            volumes: Vec<Volume>,
        }
        let limits = self.limits();
        let call = Call::new(Op::VolumeList, Method::GET, "/volumes".into(), limits.read, limits.list_bytes)
            .filters(&[("label", labels)]);
        let list: List = self.transport.ask(call).await?.json().await?;
        Ok(list.volumes)
    }

    /// Removes a volume: `DELETE /volumes/{name}`. `is_conflict` while a container has it, stopped ones included.
    pub async fn volume_remove(&self, name: &VolumeName) -> Result<(), EngineError> {
        let limits = self.limits();
        let path = format!("/volumes/{name}");
        let call = Call::new(Op::VolumeRemove, Method::DELETE, path, limits.change, limits.answer_bytes);
        self.transport.ask(call).await?.discard().await
    }
}
