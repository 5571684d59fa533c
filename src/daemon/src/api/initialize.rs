//! Fills in the fields that a client may leave out of its `initialize`.
//!
//! The revisions of MCP require a version, capabilities and the client's name. People who write the message
//! by hand (an n8n workflow, a line of curl) send the version alone, and the SDK takes a message without the
//! other fields for an unknown method. This module must never change a field that a client did send, nor any
//! other message.

use rmcp::model::InitializeRequestParams;
use serde_json::{Map, Value, json};

use super::envelope::RpcRefusal;

/// Where a request of revision 2026-07-28 or later names its revision, as a JSON pointer into `params`.
const NAMES_ITS_REVISION: &str = "/_meta/io.modelcontextprotocol~1protocolVersion";

/// The revision of a client that names none. Source: MCP, Streamable HTTP transport, on a request without
/// `MCP-Protocol-Version`.
const ASSUMED: &str = "2025-03-26";

/// The name and version of a client that sends none.
const UNKNOWN: &str = "unknown";

/// The same message with all fields that the SDK requires; `None` if none is missing, or if it is not an
/// `initialize`.
///
/// # Errors
/// A field has the wrong type.
pub(crate) fn complete(message: &[u8]) -> Result<Option<Vec<u8>>, RpcRefusal> {
    let Ok(mut document) = serde_json::from_slice::<Map<String, Value>>(message) else { return Ok(None) };
    if document.get("method") != Some(&json!("initialize")) {
        return Ok(None);
    }
    let given = document.remove("params").unwrap_or(Value::Null);
    // Revisions that are named in every request have no `initialize`: the SDK refuses it.
    if given.pointer(NAMES_ITS_REVISION).is_some() {
        return Ok(None);
    }
    let whole = filled(given.clone());
    if let Err(error) = serde_json::from_value::<InitializeRequestParams>(whole.clone()) {
        let id = document.remove("id").unwrap_or(Value::Null);
        return Err(RpcRefusal::params(id, &format!("the `params` of `initialize` cannot be read: {error}")));
    }
    if whole == given {
        return Ok(None);
    }
    document.insert("params".to_owned(), whole);
    Ok(Some(Value::Object(document).to_string().into_bytes()))
}

/// `params` with the fields filled in that are missing or `null`. If it is not an object, it stays as it is.
fn filled(params: Value) -> Value {
    let mut params = match params {
        Value::Object(params) => params,
        Value::Null => Map::new(),
        other @ (Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_)) => return other,
    };
    fill(&mut params, "protocolVersion", || json!(ASSUMED));
    fill(&mut params, "capabilities", || json!({}));
    fill(&mut params, "clientInfo", || json!({}));
    if let Some(Value::Object(client)) = params.get_mut("clientInfo") {
        fill(client, "name", || json!(UNKNOWN));
        fill(client, "version", || json!(UNKNOWN));
    }
    Value::Object(params)
}

fn fill(fields: &mut Map<String, Value>, name: &str, default: impl FnOnce() -> Value) {
    let field = fields.entry(name).or_insert(Value::Null);
    if field.is_null() {
        *field = default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn params(given: &str) -> Value {
        let message = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"initialize"{given}}}"#);
        let whole = complete(message.as_bytes()).unwrap().unwrap_or_else(|| message.into_bytes());
        let document: Value = serde_json::from_slice(&whole).unwrap();
        assert_eq!((&document["id"], &document["method"]), (&json!(1), &json!("initialize")));
        document["params"].clone()
    }

    #[test]
    fn missing_fields_are_filled_in_and_the_others_stay() {
        let unknown = json!({ "name": "unknown", "version": "unknown" });
        let version = "2024-11-05";
        for (given, want) in [
            (
                r#","params":{"protocolVersion":"2024-11-05"}"#,
                json!({ "protocolVersion": version, "capabilities": {}, "clientInfo": unknown }),
            ),
            (
                concat!(
                    r#","params":{"protocolVersion":"2024-11-05","#,
                    r#""clientInfo":{"name":"client-name","version":"1.0.0"}}"#
                ),
                json!({
                    "protocolVersion": version,
                    "capabilities": {},
                    "clientInfo": { "name": "client-name", "version": "1.0.0" },
                }),
            ),
            (
                r#","params":{"capabilities":{"roots":{}},"clientInfo":{"name":"x"}}"#,
                json!({
                    "protocolVersion": ASSUMED,
                    "capabilities": { "roots": {} },
                    "clientInfo": { "name": "x", "version": "unknown" },
                }),
            ),
            (
                r#","params":{"capabilities":null,"clientInfo":null,"x":[1]}"#,
                json!({ "protocolVersion": ASSUMED, "capabilities": {}, "clientInfo": unknown, "x": [1] }),
            ),
            ("", json!({ "protocolVersion": ASSUMED, "capabilities": {}, "clientInfo": unknown })),
        ] {
            assert_eq!(params(given), want, "{given}");
        }
    }

    #[test]
    fn a_complete_message_or_another_one_is_left_alone() {
        for message in [
            concat!(
                r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","#,
                r#""capabilities":{},"clientInfo":{"name":"c","version":"1"}}}"#
            ),
            concat!(
                r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"_meta":"#,
                r#"{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}"#
            ),
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#,
            r#"{"jsonrpc":"2.0","id":1,"result":{}}"#,
            "[]",
            "no json",
        ] {
            assert_eq!(complete(message.as_bytes()), Ok(None), "{message}");
        }
    }

    #[test]
    fn a_wrong_field_is_refused_under_the_messages_id() {
        for wrong in [
            r#"{"protocolVersion":7}"#,
            r#"{"protocolVersion":"2025-11-25","capabilities":[]}"#,
            r#"{"clientInfo":"curl"}"#,
            r#"{"clientInfo":{"name":7}}"#,
        ] {
            let message = format!(r#"{{"jsonrpc":"2.0","id":"a","method":"initialize","params":{wrong}}}"#);
            let refusal = complete(message.as_bytes()).unwrap_err().to_json();
            assert_eq!((&refusal["id"], &refusal["error"]["code"]), (&json!("a"), &json!(-32602)), "{wrong}");
        }
    }
}
