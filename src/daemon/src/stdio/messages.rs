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

/// An id as everyone writes it: the same text can be escaped in more than one way.
fn id_of(id: &RawValue) -> String {
    serde_json::from_str::<Value>(id.get()).map_or_else(|_| id.get().to_owned(), |id| id.to_string())
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
    let Ok(Envelope { id, method: Some(method), params }) = serde_json::from_slice::<Envelope<'_>>(line)
    else {
        return Inbound::Other;
    };
    match (method.as_str(), id) {
        ("initialize", Some(id)) => Inbound::Initialize(id_of(id)),
        ("notifications/cancelled", None) => {
            let cancelled =
                params.and_then(|params| serde_json::from_str::<Cancelled<'_>>(params.get()).ok());
            cancelled.map_or(Inbound::Other, |cancelled| Inbound::Cancelled(id_of(cancelled.request_id)))
        }
        ("notifications/initialized", None) => Inbound::Initialized,
        (_, Some(id)) => Inbound::Request(id_of(id)),
        (_, None) => Inbound::Other,
    }
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
        let id = id_of(id);
        if self.silent.remove(&id) {
            return false;
        }
        self.asked.remove(&id);
        true
    }

    /// Nobody will answer what was asked until now: what the client is told instead.
    pub(super) fn give_up(&mut self) -> impl Iterator<Item = Vec<u8>> + use<> {
        self.silent.clear();
        std::mem::take(&mut self.asked).into_iter().map(|id| {
            let id: Value = serde_json::from_str(&id).unwrap_or(Value::Null);
            let message =
                "the daemon ended before it answered; what the call did is unknown, it is not repeated";
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
            (r#"{"id":1,"method":"initialize"}"#, Inbound::Initialize("1".into())),
            (r#"{"method":"notifications/initialized"}"#, Inbound::Initialized),
            (r#"{"id":"a","method":"tools/call"}"#, Inbound::Request("\"a\"".into())),
            (r#"{"id":"a","result":{}}"#, Inbound::Other),
            ("no json", Inbound::Other),
        ] {
            assert_eq!(read(line.as_bytes()), want, "{line}");
            if let Inbound::Initialize(id) | Inbound::Request(id) = want {
                pending.ask(id);
            }
        }
        assert!(pending.hear(br#"{"id":1,"result":{}}"#));
        assert!(pending.hear(br#"{"method":"notifications/progress"}"#));
        assert!(pending.hear(br#"{"id":7,"method":"ping"}"#), "a question of the daemon's");
        let told: Vec<_> = pending.give_up().collect();
        assert_eq!(told.len(), 1);
        assert!(String::from_utf8_lossy(&told[0]).contains(r#""id":"a""#));
        pending.ask_silently(br#"{"id":1,"method":"initialize"}"#);
        assert!(pending.is_empty(), "nobody waits for it");
        // One text, written in two ways; and one that is taken back.
        pending.ask("\"\u{e9}\"".to_owned());
        assert!(pending.hear("{\"id\":\"\\u00e9\",\"result\":{}}".as_bytes()) && pending.is_empty());
        let cancelled = br#"{"method":"notifications/cancelled","params":{"requestId":5}}"#;
        assert_eq!(read(cancelled), Inbound::Cancelled("5".into()));
        pending.ask("5".into());
        pending.forget("5");
        assert!(pending.is_empty());
        assert!(!pending.hear(br#"{"id":1,"result":{}}"#));
        assert!(pending.hear(br#"{"id":1,"result":{}}"#));
    }
}
