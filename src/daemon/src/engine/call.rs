//! One request as data: method, path, query, body, and the bounds of its answer.
//!
//! The only place that builds request paths and queries. It must never put unchecked text into a path: paths
//! are formatted from the types of `ids`, and all other values go through [`EngineCall::query`], which
//! encodes them.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use http::Method;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Empty, Full};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Serialize;

use super::error::{BoxError, EngineError};
use super::op::EngineOp;

/// A request's body: none, bytes, or a stream that the caller provides.
pub(super) type SendBody = UnsyncBoxBody<Bytes, BoxError>;

pub(super) struct EngineCall {
    pub(super) op: EngineOp,
    pub(super) method: Method,
    /// Path and query, without the version.
    pub(super) target: String,
    pub(super) content_type: Option<&'static str>,
    pub(super) body: SendBody,
    /// The deadline of the whole answer, or of its head when the body is a stream with bounds of its own.
    pub(super) within: Duration,
    /// The most bytes of a successful answer's body.
    pub(super) cap: usize,
}

impl EngineCall {
    /// A request without a body. `path` is absolute, is one of `op`, and holds only checked names.
    pub(super) fn new(op: EngineOp, path: String, within: Duration, cap: usize) -> EngineCall {
        debug_assert!(op.takes(path.split('?').next().unwrap_or_default()), "{op} is not {path}");
        let method = op.method();
        EngineCall { op, method, target: path, content_type: None, body: nothing(), within, cap }
    }

    /// Adds `key=value` to the query, and encodes `value`.
    pub(super) fn query(mut self, key: &'static str, value: &str) -> EngineCall {
        self.target.push(if self.target.contains('?') { '&' } else { '?' });
        self.target.push_str(key);
        self.target.push('=');
        self.target.extend(utf8_percent_encode(value, NON_ALPHANUMERIC));
        self
    }

    /// Adds `filters=` with the engine's JSON map of lists; adds nothing when every list is empty.
    pub(super) fn filters(self, filters: &[(&'static str, &[String])]) -> EngineCall {
        let filters: BTreeMap<_, _> =
            filters.iter().filter(|(_, values)| !values.is_empty()).copied().collect();
        if filters.is_empty() {
            return self;
        }
        let json = serde_json::json!(filters).to_string();
        self.query("filters", &json)
    }

    /// Sends `body` as JSON.
    pub(super) fn json(mut self, body: &impl Serialize) -> Result<EngineCall, EngineError> {
        let bytes = serde_json::to_vec(body)
            .map_err(|source| EngineError::Upload { op: self.op, source: source.into() })?;
        self.content_type = Some("application/json");
        self.body = whole(bytes.into());
        Ok(self)
    }

    /// Sends `body` as it is.
    pub(super) fn body(mut self, content_type: &'static str, body: SendBody) -> EngineCall {
        self.content_type = Some(content_type);
        self.body = body;
        self
    }
}

pub(super) fn nothing() -> SendBody {
    Empty::new().map_err(|never| match never {}).boxed_unsync()
}

pub(super) fn whole(bytes: Bytes) -> SendBody {
    Full::new(bytes).map_err(|never| match never {}).boxed_unsync()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call() -> EngineCall {
        EngineCall::new(EngineOp::ContainerList, "/containers/json".into(), Duration::ZERO, 0)
    }

    #[test]
    fn a_query_value_cannot_end_its_parameter() {
        let target = call().query("a", "1&b=2#c d/\r\n").query("e", "é").target;
        assert_eq!(target, "/containers/json?a=1%26b%3D2%23c%20d%2F%0D%0A&e=%C3%A9");
    }

    #[test]
    fn filters_are_the_engines_map_of_lists() {
        let target = call().filters(&[("label", &["a=b".into()]), ("status", &[])]).target;
        assert_eq!(target, "/containers/json?filters=%7B%22label%22%3A%5B%22a%3Db%22%5D%7D");
        assert_eq!(call().filters(&[("label", &[])]).target, "/containers/json");
    }
}
