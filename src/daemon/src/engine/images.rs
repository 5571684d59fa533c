//! Images: list and inspect.
//!
//! It must never pull, build, tag or remove an image: they belong to the operator.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::Engine;
use super::call::EngineCall;
use super::error::EngineError;
use super::ids::ImageRef;
use super::op::EngineOp;
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
    /// When it was made, RFC 3339 with any offset; empty when the image does not say.
    #[serde(default, deserialize_with = "null_is_empty")]
    pub created: String,
    /// The architecture of its programs by Go's names, such as `amd64`; empty when the image does not say.
    #[serde(default, deserialize_with = "null_is_empty")]
    pub architecture: String,
    /// Its settings for containers.
    #[serde(default, deserialize_with = "null_is_empty")]
    pub config: ImageConfig,
}

/// An image's settings for its containers: `Config` of an image.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct ImageConfig {
    /// The program, before `cmd`.
    #[serde(deserialize_with = "null_is_empty")]
    pub entrypoint: Vec<String>,
    /// Arguments, or program and arguments when there is no entrypoint.
    #[serde(deserialize_with = "null_is_empty")]
    pub cmd: Vec<String>,
    /// Variables, `NAME=value`.
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
    /// Paths that get an anonymous volume unless something else is mounted there: the keys of `Volumes`.
    #[serde(deserialize_with = "null_is_empty")]
    pub volumes: BTreeMap<String, serde_json::Value>,
}

impl Engine {
    /// The images that have all of `labels` (`name` or `name=value`); all images if `labels` is empty.
    /// `GET /images/json`.
    pub async fn image_list(&self, labels: &[String]) -> Result<Vec<ImageSummary>, EngineError> {
        let limits = self.limits();
        let call =
            EngineCall::new(EngineOp::ImageList, "/images/json".into(), limits.read, limits.list_bytes)
                .filters(&[("label", labels)]);
        self.transport.ask(call).await?.json().await
    }

    /// One image by name or id: `GET /images/{name}/json`. Errors: `is_not_found` when the engine does not
    /// have it.
    pub async fn image_inspect(&self, image: &ImageRef) -> Result<ImageDetail, EngineError> {
        let limits = self.limits();
        let path = format!("/images/{image}/json");
        let call = EngineCall::new(EngineOp::ImageInspect, path, limits.read, limits.answer_bytes);
        self.transport.ask(call).await?.json().await
    }
}
