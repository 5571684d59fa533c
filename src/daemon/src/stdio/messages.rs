//! The parts of a JSON-RPC message that a relay needs: whether it is a request, an answer, or the beginning
//! of a session.
//!
//! It must never change a message, nor let an answer through twice.

use std::collections::BTreeSet;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

/// The outer fields of a message.
#[derive(Deserialize)]
struct MessageHead<'a> {
    jsonrpc: Option<String>,
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    method: Option<String>,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
}

/// The parameters of a cancellation.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CancelParams<'a> {
    #[serde(borrow)]
    request_id: &'a RawValue,
}

/// An id in one notation, since the same text can be escaped in several ways. `None` if it is not a valid id:
/// no answer to it will come.
fn id_of(id: &RawValue) -> Option<String> {
    let id: Value = serde_json::from_str(id.get()).ok()?;
    (id.is_string() || id.is_i64()).then(|| id.to_string())
}

/// A message of the client.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ClientMessage {
    /// The beginning of a session, with its id as JSON.
    Initialize(String),
    /// The client is ready.
    Initialized,
    /// The client cancels a request: no answer to it will come.
    Cancelled(String),
    /// Any other request.
    Request(String),
    /// An answer to a request of the daemon with this id.
    Answer(String),
    /// A notification, or not a message at all.
    Other,
}

impl ClientMessage {
    /// Whether it needs an answer.
    pub(super) fn is_request(&self) -> bool {
        matches!(self, Self::Initialize(_) | Self::Request(_))
    }
}

/// Parses a client's message.
pub(super) fn read(line: &[u8]) -> ClientMessage {
    let Ok(MessageHead { jsonrpc: Some(version), id, method, params }) =
        serde_json::from_slice::<MessageHead<'_>>(line)
    else {
        return ClientMessage::Other;
    };
    if version != "2.0" {
        return ClientMessage::Other;
    }
    let Some(method) = method else {
        return id.and_then(id_of).map_or(ClientMessage::Other, ClientMessage::Answer);
    };
    let cancelled = || {
        let cancelled: CancelParams<'_> = serde_json::from_str(params?.get()).ok()?;
        id_of(cancelled.request_id).map(ClientMessage::Cancelled)
    };
    let message = match (method.as_str(), id) {
        ("initialize", Some(id)) => id_of(id).map(ClientMessage::Initialize),
        ("notifications/cancelled", None) => cancelled(),
        ("notifications/initialized", None) => Some(ClientMessage::Initialized),
        (_, Some(id)) => id_of(id).map(ClientMessage::Request),
        (_, None) => None,
    };
    message.unwrap_or(ClientMessage::Other)
}

/// Requests that wait for an answer, by their ids as JSON.
#[derive(Debug, Default)]
pub(super) struct PendingRequests {
    asked: BTreeSet<String>,
    /// Requests sent again to another daemon: the client has their answers already.
    silent: BTreeSet<String>,
    /// Requests of the daemon that wait for the client's answer.
    questions: BTreeSet<String>,
}

impl PendingRequests {
    pub(super) fn is_empty(&self) -> bool {
        self.asked.is_empty()
    }

    /// Notes a request that was sent to the daemon.
    pub(super) fn ask(&mut self, id: String) {
        self.asked.insert(id);
    }

    /// Whether this request waits for its answer.
    pub(super) fn has_asked(&self, line: &[u8]) -> bool {
        match read(line) {
            ClientMessage::Initialize(id) | ClientMessage::Request(id) => self.asked.contains(&id),
            ClientMessage::Initialized
            | ClientMessage::Cancelled(_)
            | ClientMessage::Answer(_)
            | ClientMessage::Other => false,
        }
    }

    /// Forgets a request that was cancelled, and will not be answered.
    pub(super) fn forget(&mut self, id: &str) {
        self.asked.remove(id);
    }

    /// Forgets a request that the daemon has not begun, since it is to be sent again. False if nobody waits
    /// for its answer.
    pub(super) fn take_back(&mut self, line: &[u8]) -> bool {
        match read(line) {
            ClientMessage::Initialize(id) | ClientMessage::Request(id) => self.asked.remove(&id),
            ClientMessage::Initialized
            | ClientMessage::Cancelled(_)
            | ClientMessage::Answer(_)
            | ClientMessage::Other => false,
        }
    }

    /// Notes a request that was sent to the daemon again, and whose answer the client must not receive.
    pub(super) fn ask_silently(&mut self, line: &[u8]) {
        if let ClientMessage::Initialize(id) | ClientMessage::Request(id) = read(line) {
            self.silent.insert(id);
        }
    }

    /// Whether the daemon must not receive this message: it is an answer that no daemon waits for. The SDK
    /// ends the connection if one comes before the session begins.
    pub(super) fn is_unasked(&mut self, line: &[u8]) -> bool {
        matches!(read(line), ClientMessage::Answer(id) if !self.questions.remove(&id))
    }

    /// Notes a message of the daemon; whether the client receives it.
    pub(super) fn hear(&mut self, line: &[u8]) -> bool {
        let Ok(MessageHead { id: Some(id), method, .. }) = serde_json::from_slice::<MessageHead<'_>>(line)
        else {
            return true;
        };
        let Some(id) = id_of(id) else { return true };
        if method.is_some() {
            self.questions.insert(id);
            return true;
        }
        if self.silent.remove(&id) {
            return false;
        }
        self.asked.remove(&id);
        true
    }

    /// Returns an error for every request that waits, since nobody will answer them.
    pub(super) fn give_up(&mut self, why: &str) -> impl Iterator<Item = Vec<u8>> + use<> {
        let message = format!("{why}; what the call did is unknown, and it is not repeated");
        self.silent.clear();
        self.questions.clear();
        std::mem::take(&mut self.asked).into_iter().map(move |id| error(&id, &message))
    }
}

/// The answer to a request that no daemon has begun; `None` if it is no request.
pub(super) fn not_begun(line: &[u8], why: &str) -> Option<Vec<u8>> {
    match read(line) {
        ClientMessage::Initialize(id) | ClientMessage::Request(id) => {
            Some(error(&id, &format!("{why}; it did not begin, and may be sent again")))
        }
        ClientMessage::Initialized
        | ClientMessage::Cancelled(_)
        | ClientMessage::Answer(_)
        | ClientMessage::Other => None,
    }
}

/// The answer to the request with this id, as JSON.
fn error(id: &str, message: &str) -> Vec<u8> {
    let id: Value = serde_json::from_str(id).unwrap_or(Value::Null);
    let answer = json!({ "jsonrpc": "2.0", "id": id, "error": { "code": -32603, "message": message } });
    let mut line = answer.to_string().into_bytes();
    line.push(b'\n');
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_client_receives_each_answer_once() {
        let mut pending = PendingRequests::default();
        for (line, want) in [
            (r#"{"jsonrpc":"2.0","id":1,"method":"initialize"}"#, ClientMessage::Initialize("1".into())),
            (r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#, ClientMessage::Initialized),
            (r#"{"jsonrpc":"2.0","id":"a","method":"tools/call"}"#, ClientMessage::Request("\"a\"".into())),
            (r#"{"jsonrpc":"2.0","id":"a","result":{}}"#, ClientMessage::Answer("\"a\"".into())),
            ("no json", ClientMessage::Other),
            // The SDK answers these without an id, or not at all.
            (r#"{"jsonrpc":"2.0","id":1.5,"method":"ping"}"#, ClientMessage::Other),
            (r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#, ClientMessage::Other),
            (r#"{"jsonrpc":"1.0","id":9,"method":"ping"}"#, ClientMessage::Other),
            (r#"{"id":9,"method":"ping"}"#, ClientMessage::Other),
        ] {
            assert_eq!(read(line.as_bytes()), want, "{line}");
            if let ClientMessage::Initialize(id) | ClientMessage::Request(id) = want {
                pending.ask(id);
            }
        }
        assert!(pending.hear(br#"{"jsonrpc":"2.0","id":1,"result":{}}"#));
        assert!(pending.hear(br#"{"jsonrpc":"2.0","method":"notifications/progress"}"#));
        assert!(pending.hear(br#"{"jsonrpc":"2.0","id":7,"method":"ping"}"#), "a request of the daemon");
        let pong = br#"{"jsonrpc":"2.0","id":7,"result":{}}"#;
        assert!(!pending.is_unasked(pong) && pending.is_unasked(pong), "it is answered once");
        let ping = br#"{"jsonrpc":"2.0","id":"a","method":"ping"}"#;
        assert!(pending.take_back(ping) && !pending.take_back(ping), "it is sent again once");
        assert!(!pending.take_back(br#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#));
        let refused = not_begun(ping, "it is gone").unwrap();
        assert!(String::from_utf8_lossy(&refused).contains(r#""id":"a","error""#));
        pending.ask("\"a\"".into());
        let told: Vec<_> = pending.give_up("it is gone").collect();
        assert_eq!(told.len(), 1);
        assert!(String::from_utf8_lossy(&told[0]).contains(r#""id":"a""#));
        pending.ask_silently(br#"{"jsonrpc":"2.0","id":1,"method":"initialize"}"#);
        assert!(pending.is_empty(), "nobody waits for it");
        // One id in two notations, and a request that is cancelled.
        pending.ask("\"\u{e9}\"".to_owned());
        assert!(pending.hear("{\"id\":\"\\u00e9\",\"result\":{}}".as_bytes()) && pending.is_empty());
        let cancelled = br#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":5}}"#;
        assert_eq!(read(cancelled), ClientMessage::Cancelled("5".into()));
        pending.ask("5".into());
        pending.forget("5");
        assert!(pending.is_empty());
        assert!(!pending.hear(br#"{"jsonrpc":"2.0","id":1,"result":{}}"#));
        assert!(pending.hear(br#"{"jsonrpc":"2.0","id":1,"result":{}}"#));
    }
}
