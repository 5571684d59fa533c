//! As much of a JSON-RPC message as a front has to know: whether it asks, answers, or begins.
//!
//! It must never change a message, nor let an answer through twice.

use std::collections::BTreeSet;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

/// The outermost of a message.
#[derive(Deserialize)]
struct Envelope<'a> {
    jsonrpc: Option<String>,
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    method: Option<String>,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
}

/// What is taken back.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Cancelled<'a> {
    #[serde(borrow)]
    request_id: &'a RawValue,
}

/// An id as everyone writes it: the same text can be escaped in more than one way. `None` if it is none, so that no
/// answer to it will come.
fn id_of(id: &RawValue) -> Option<String> {
    let id: Value = serde_json::from_str(id.get()).ok()?;
    (id.is_string() || id.is_i64()).then(|| id.to_string())
}

/// What a client says.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Inbound {
    /// The beginning of a session; its id as JSON.
    Initialize(String),
    /// The client is ready.
    Initialized,
    /// A request is taken back: it is answered no more.
    Cancelled(String),
    /// Anything else that is to be answered.
    Request(String),
    /// A notification, an answer, or no message at all.
    Other,
}

impl Inbound {
    /// Whether an answer is due.
    pub(super) fn is_request(&self) -> bool {
        matches!(self, Self::Initialize(_) | Self::Request(_))
    }
}

/// Reads a client's message.
pub(super) fn read(line: &[u8]) -> Inbound {
    let Ok(Envelope { jsonrpc: Some(version), id, method: Some(method), params }) =
        serde_json::from_slice::<Envelope<'_>>(line)
    else {
        return Inbound::Other;
    };
    if version != "2.0" {
        return Inbound::Other;
    }
    let cancelled = || {
        let cancelled: Cancelled<'_> = serde_json::from_str(params?.get()).ok()?;
        id_of(cancelled.request_id).map(Inbound::Cancelled)
    };
    let inbound = match (method.as_str(), id) {
        ("initialize", Some(id)) => id_of(id).map(Inbound::Initialize),
        ("notifications/cancelled", None) => cancelled(),
        ("notifications/initialized", None) => Some(Inbound::Initialized),
        (_, Some(id)) => id_of(id).map(Inbound::Request),
        (_, None) => None,
    };
    inbound.unwrap_or(Inbound::Other)
}

/// Requests that wait for an answer, by their ids as JSON.
#[derive(Debug, Default)]
pub(super) struct Pending {
    asked: BTreeSet<String>,
    /// Asked again of another daemon: the client has its answer already.
    silent: BTreeSet<String>,
}

impl Pending {
    pub(super) fn is_empty(&self) -> bool {
        self.asked.is_empty()
    }

    /// A request goes to the daemon.
    pub(super) fn ask(&mut self, id: String) {
        self.asked.insert(id);
    }

    /// Whether this request waits for its answer.
    pub(super) fn has_asked(&self, line: &[u8]) -> bool {
        matches!(read(line), Inbound::Initialize(id) | Inbound::Request(id) if self.asked.contains(&id))
    }

    /// A request was taken back, and will not be answered.
    pub(super) fn forget(&mut self, id: &str) {
        self.asked.remove(id);
    }

    /// A request goes to the daemon again, and its answer to nobody.
    pub(super) fn ask_silently(&mut self, line: &[u8]) {
        if let Inbound::Initialize(id) | Inbound::Request(id) = read(line) {
            self.silent.insert(id);
        }
    }

    /// What the daemon says; whether it is for the client.
    pub(super) fn hear(&mut self, line: &[u8]) -> bool {
        let Ok(Envelope { id: Some(id), method: None, .. }) = serde_json::from_slice::<Envelope<'_>>(line)
        else {
            return true;
        };
        let Some(id) = id_of(id) else { return true };
        if self.silent.remove(&id) {
            return false;
        }
        self.asked.remove(&id);
        true
    }

    /// Nobody will answer what was asked until now: what the client is told instead.
    pub(super) fn give_up(&mut self, why: &str) -> impl Iterator<Item = Vec<u8>> + use<> {
        let message = format!("{why}; what the call did is unknown, it is not repeated");
        self.silent.clear();
        std::mem::take(&mut self.asked).into_iter().map(move |id| {
            let id: Value = serde_json::from_str(&id).unwrap_or(Value::Null);
            let answer =
                json!({ "jsonrpc": "2.0", "id": id, "error": { "code": -32603, "message": message } });
            let mut line = answer.to_string().into_bytes();
            line.push(b'\n');
            line
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_goes_to_whoever_asked_and_once() {
        let mut pending = Pending::default();
        for (line, want) in [
            (r#"{"jsonrpc":"2.0","id":1,"method":"initialize"}"#, Inbound::Initialize("1".into())),
            (r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#, Inbound::Initialized),
            (r#"{"jsonrpc":"2.0","id":"a","method":"tools/call"}"#, Inbound::Request("\"a\"".into())),
            (r#"{"jsonrpc":"2.0","id":"a","result":{}}"#, Inbound::Other),
            ("no json", Inbound::Other),
            // What the SDK takes for no request is answered without an id, or not at all.
            (r#"{"jsonrpc":"2.0","id":1.5,"method":"ping"}"#, Inbound::Other),
            (r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#, Inbound::Other),
            (r#"{"jsonrpc":"1.0","id":9,"method":"ping"}"#, Inbound::Other),
            (r#"{"id":9,"method":"ping"}"#, Inbound::Other),
        ] {
            assert_eq!(read(line.as_bytes()), want, "{line}");
            if let Inbound::Initialize(id) | Inbound::Request(id) = want {
                pending.ask(id);
            }
        }
        assert!(pending.hear(br#"{"jsonrpc":"2.0","id":1,"result":{}}"#));
        assert!(pending.hear(br#"{"jsonrpc":"2.0","method":"notifications/progress"}"#));
        assert!(pending.hear(br#"{"jsonrpc":"2.0","id":7,"method":"ping"}"#), "a question of the daemon's");
        let told: Vec<_> = pending.give_up("it is gone").collect();
        assert_eq!(told.len(), 1);
        assert!(String::from_utf8_lossy(&told[0]).contains(r#""id":"a""#));
        pending.ask_silently(br#"{"jsonrpc":"2.0","id":1,"method":"initialize"}"#);
        assert!(pending.is_empty(), "nobody waits for it");
        // One text, written in two ways; and one that is taken back.
        pending.ask("\"\u{e9}\"".to_owned());
        assert!(pending.hear("{\"id\":\"\\u00e9\",\"result\":{}}".as_bytes()) && pending.is_empty());
        let cancelled = br#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":5}}"#;
        assert_eq!(read(cancelled), Inbound::Cancelled("5".into()));
        pending.ask("5".into());
        pending.forget("5");
        assert!(pending.is_empty());
        assert!(!pending.hear(br#"{"jsonrpc":"2.0","id":1,"result":{}}"#));
        assert!(pending.hear(br#"{"jsonrpc":"2.0","id":1,"result":{}}"#));
    }
}
