//! Images: which are there, and what they declare.
//!
//! It must never pull, build, tag or remove one: images are the operator's.

use std::collections::BTreeMap;

use http::Method;
use serde::Deserialize;

use super::Engine;
use super::call::Call;
use super::error::EngineError;
use super::ids::ImageRef;
use super::op::Op;
use super::shape::null_is_empty;

/// One image of a list. Source: `GET /images/json`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct ImageSummary {
    /// `sha256:` and 64 hexadecimal digits.
    pub id: ImageRef,
    /// `name:tag` of each; empty when untagged.
    #[serde(default, deserialize_with = "null_is_empty")]
    pub repo_tags: Vec<String>,
    /// When it was made, in seconds since 1970.
    pub created: i64,
    /// Its labels.
    #[serde(default, deserialize_with = "null_is_empty")]
    pub labels: BTreeMap<String, String>,
}

/// One image in full. Source: `GET /images/{name}/json`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct ImageDetail {
    /// `sha256:` and 64 hexadecimal digits.
    pub id: ImageRef,
    /// `name:tag` of each; empty when untagged.
    #[serde(default, deserialize_with = "null_is_empty")]
    pub repo_tags: Vec<String>,
    /// When it was made, RFC 3339 with any offset; empty when its maker did not say.
    #[serde(default, deserialize_with = "null_is_empty")]
    pub created: String,
    /// What its programs are made for, in Go's words, such as `amd64`; empty when its maker did not say.
    #[serde(default, deserialize_with = "null_is_empty")]
    pub architecture: String,
    /// What it declares for its containers.
    #[serde(default, deserialize_with = "null_is_empty")]
    pub config: ImageConfig,
}

/// What an image declares for its containers: `Config` of an image.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct ImageConfig {
    /// The program, before `cmd`.
    #[serde(deserialize_with = "null_is_empty")]
    pub entrypoint: Vec<String>,
    /// Arguments, or program and arguments when there is no entrypoint.
    #[serde(deserialize_with = "null_is_empty")]
    pub cmd: Vec<String>,
    /// `NAME=value` of each.
    #[serde(deserialize_with = "null_is_empty")]
    pub env: Vec<String>,
    /// Working directory; empty for `/`.
    #[serde(deserialize_with = "null_is_empty")]
    pub working_dir: String,
    /// `user[:group]`; empty for root.
    #[serde(deserialize_with = "null_is_empty")]
    pub user: String,
    /// Its labels.
    #[serde(deserialize_with = "null_is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Paths that get an anonymous volume unless mounted over: the keys of `Volumes`.
    #[serde(deserialize_with = "null_is_empty")]
    pub volumes: BTreeMap<String, serde_json::Value>,
}

impl Engine {
    /// The images that carry every one of `labels` (`name` or `name=value`); all when there are none.
    /// `GET /images/json`.
    pub async fn image_list(&self, labels: &[String]) -> Result<Vec<ImageSummary>, EngineError> {
        let limits = self.limits();
        let call =
            Call::new(Op::ImageList, Method::GET, "/images/json".into(), limits.read, limits.list_bytes)
                .filters(&[("label", labels)]);
        self.transport.ask(call).await?.json().await
    }

    /// One image by name or id; `is_not_found` when the engine has none such. `GET /images/{name}/json`.
    pub async fn image_inspect(&self, image: &ImageRef) -> Result<ImageDetail, EngineError> {
        let limits = self.limits();
        let path = format!("/images/{image}/json");
        let call = Call::new(Op::ImageInspect, Method::GET, path, limits.read, limits.answer_bytes);
        self.transport.ask(call).await?.json().await
    }
}
