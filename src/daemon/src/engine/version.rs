//! Versions of the Engine API, and the choice of one.
//!
//! It must never choose a version that the engine did not offer, nor a version that this client does not
//! support.

use std::fmt;
use std::str::FromStr;

use serde::Deserialize;

use super::Engine;
use super::call::EngineCall;
use super::error::EngineError;
use super::op::EngineOp;
use super::shape::null_is_empty;
use super::transport::Transport;

/// A version such as `1.41`, ordered by number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub struct ApiVersion {
    /// The number before the dot.
    pub major: u16,
    /// The number after it.
    pub minor: u16,
}

impl ApiVersion {
    /// The oldest version that this client speaks: that of Engine 20.10, the oldest engine that distributions
    /// still ship, and the first with `CgroupnsMode`.
    pub const OLDEST: ApiVersion = ApiVersion { major: 1, minor: 41 };
    /// The newest version that this client was written against: that of Engine 27.
    pub const NEWEST: ApiVersion = ApiVersion { major: 1, minor: 47 };
    /// The first version in which Content-Type distinguishes raw from multiplexed streams.
    pub(super) const TYPED_STREAMS: ApiVersion = ApiVersion { major: 1, minor: 42 };
}

/// The text is not a version.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected a version such as `1.41`")]
pub struct VersionError;

impl FromStr for ApiVersion {
    type Err = VersionError;

    fn from_str(text: &str) -> Result<ApiVersion, VersionError> {
        let (major, minor) = text.split_once('.').ok_or(VersionError)?;
        let number = |digits: &str| match digits.bytes().all(|b| b.is_ascii_digit()) {
            true => digits.parse().map_err(|_| VersionError),
            false => Err(VersionError),
        };
        Ok(ApiVersion { major: number(major)?, minor: number(minor)? })
    }
}

impl TryFrom<String> for ApiVersion {
    type Error = VersionError;

    fn try_from(text: String) -> Result<ApiVersion, VersionError> {
        text.parse()
    }
}

impl fmt::Display for ApiVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// The versions of an engine. Source: `GET /version`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct EngineVersion {
    /// The engine's own version, such as `20.10.24+dfsg1`.
    pub version: String,
    /// The newest API version that it speaks.
    pub api_version: ApiVersion,
    /// The oldest API version that it speaks.
    #[serde(rename = "MinAPIVersion")]
    pub min_api_version: ApiVersion,
    /// Operating system of its containers, `linux`.
    pub os: String,
    /// Architecture by Go's name, such as `amd64`.
    pub arch: String,
    /// The programs that it consists of; empty on engines that do not report it.
    #[serde(default, deserialize_with = "null_is_empty")]
    pub components: Vec<Component>,
}

/// One program of an engine.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Component {
    /// Its name, such as `Engine`, `containerd` or `runc`.
    pub name: String,
    /// Its version, such as `1.1.5+ds1`.
    pub version: String,
}

impl Engine {
    /// The engine's versions at this moment: `GET /version`.
    pub async fn version(&self) -> Result<EngineVersion, EngineError> {
        ask(&self.transport).await
    }

    /// The version of the API that [`Engine::connect`] chose.
    pub fn api_version(&self) -> ApiVersion {
        self.api_version
    }
}

async fn ask(transport: &Transport) -> Result<EngineVersion, EngineError> {
    let limits = &transport.limits;
    let call = EngineCall::new(EngineOp::Version, "/version".into(), limits.read, limits.answer_bytes);
    transport.ask(call).await?.json().await
}

/// Asks the engine for its versions and chooses the newest that both speak.
pub(super) async fn negotiate(transport: &Transport) -> Result<ApiVersion, EngineError> {
    let engine = ask(transport).await?;
    choose(engine.min_api_version, engine.api_version).ok_or_else(|| EngineError::Version {
        host: transport.host.clone(),
        oldest: engine.min_api_version,
        newest: engine.api_version,
        needs_from: ApiVersion::OLDEST,
        needs_to: ApiVersion::NEWEST,
    })
}

fn choose(oldest: ApiVersion, newest: ApiVersion) -> Option<ApiVersion> {
    let best = newest.min(ApiVersion::NEWEST);
    (best >= oldest && best >= ApiVersion::OLDEST).then_some(best)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn v(text: &str) -> ApiVersion {
        text.parse().expect(text)
    }

    #[test]
    fn the_newest_common_version_is_chosen() {
        assert_eq!(choose(v("1.12"), v("1.41")), Some(v("1.41")));
        assert_eq!(choose(v("1.24"), v("1.45")), Some(v("1.45")));
        assert_eq!(choose(v("1.44"), v("1.52")), Some(v("1.47")));
        assert_eq!(choose(v("1.12"), v("1.40")), None);
        assert_eq!(choose(v("1.48"), v("1.60")), None);
    }

    #[test]
    fn versions_order_by_number_and_refuse_all_else() {
        assert!(v("1.9") < v("1.41"));
        for text in ["", "1", "1.", ".1", "1.x", "1.41.2", "+1.41", "1.+4", "1.70000", " 1.41"] {
            text.parse::<ApiVersion>().expect_err(text);
        }
    }
}
