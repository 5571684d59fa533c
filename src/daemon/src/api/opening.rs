//! The beginning of an MCP connection that is not HTTP: the SDK ends such a connection if anything but a
//! request comes before its session has begun. Neither a notification nor an answer that was not asked for
//! needs an answer, so both are dropped until then.
//!
//! It must never drop a request, nor anything once the session has begun.

use std::future::Future;

use rmcp::RoleServer;
use rmcp::model::{ClientJsonRpcMessage, ClientRequest, GetMeta, ProtocolVersion};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use tracing::debug;

/// A transport that drops what comes before the session has begun and is no request.
pub(super) struct Opening<T> {
    inner: T,
    /// What the server speaks.
    versions: Vec<ProtocolVersion>,
    has_begun: bool,
}

impl<T> Opening<T> {
    pub(super) fn new(inner: T, versions: Vec<ProtocolVersion>) -> Self {
        Self { inner, versions, has_begun: false }
    }

    /// Whether the SDK receives this message.
    fn admits(&mut self, message: &ClientJsonRpcMessage) -> bool {
        if let ClientJsonRpcMessage::Request(request) = message {
            self.has_begun |= begins(&request.request, &self.versions);
            return true;
        }
        self.has_begun
    }
}

/// Whether the SDK begins a session with this request: `initialize`, or the first request that says by itself
/// which known revision it speaks. `ping` and `server/discover` begin none.
fn begins(request: &ClientRequest, versions: &[ProtocolVersion]) -> bool {
    if matches!(request, ClientRequest::InitializeRequest(_)) {
        return true;
    }
    if matches!(request, ClientRequest::PingRequest(_) | ClientRequest::DiscoverRequest(_)) {
        return false;
    }
    let meta = request.get_meta();
    meta.missing_required_keys(&ProtocolVersion::V_2026_07_28).is_empty()
        && meta.protocol_version().is_some_and(|version| versions.contains(&version))
}

impl<T: Transport<RoleServer>> Transport<RoleServer> for Opening<T> {
    type Error = T::Error;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        self.inner.send(message)
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        loop {
            let message = self.inner.receive().await?;
            if self.admits(&message) {
                return Some(message);
            }
            debug!("a message before `initialize` that is no request is ignored");
        }
    }

    fn close(&mut self) -> impl Future<Output = Result<(), Self::Error>> + Send {
        self.inner.close()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn opening() -> Opening<()> {
        Opening::new((), ProtocolVersion::KNOWN_VERSIONS.to_vec())
    }

    fn message(text: Value) -> ClientJsonRpcMessage {
        serde_json::from_value(text).expect("a message")
    }

    fn notification() -> ClientJsonRpcMessage {
        message(json!({
            "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 1 }
        }))
    }

    /// A request of the revision that has no `initialize`.
    fn own(method: &str, version: &str) -> ClientJsonRpcMessage {
        let meta = json!({
            "io.modelcontextprotocol/protocolVersion": version,
            "io.modelcontextprotocol/clientCapabilities": {}
        });
        message(json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": { "_meta": meta } }))
    }

    #[test]
    fn what_is_no_request_waits_for_none_and_is_dropped_until_a_session_begins() {
        let initialize = message(json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
            "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "x", "version": "1" }
        }}));
        for first in [initialize, own("tools/list", "2026-07-28")] {
            let mut opening = opening();
            for dropped in [
                notification(),
                message(json!({ "jsonrpc": "2.0", "method": "notifications/initialized" })),
                message(json!({ "jsonrpc": "2.0", "method": "notifications/nobody" })),
                message(json!({ "jsonrpc": "2.0", "id": 7, "result": {} })),
                message(json!({ "jsonrpc": "2.0", "id": 7, "error": { "code": 1, "message": "x" } })),
            ] {
                assert!(!opening.admits(&dropped), "{dropped:?}");
            }
            assert!(opening.admits(&first) && opening.admits(&notification()), "{first:?}");
        }
    }

    #[test]
    fn a_request_that_the_sdk_answers_by_itself_begins_no_session() {
        for request in [
            message(json!({ "jsonrpc": "2.0", "id": 1, "method": "ping" })),
            message(json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" })),
            own("tools/list", "2031-01-01"),
            own("server/discover", "2026-07-28"),
        ] {
            let mut opening = opening();
            assert!(opening.admits(&request) && !opening.admits(&notification()), "{request:?}");
        }
    }
}
