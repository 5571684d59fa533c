//! A JSON-RPC message from outside: checked before the SDK sees it, and refused in the words of JSON-RPC.
//!
//! It must never look into a tool's arguments: it checks only that they are an object.

use std::fmt;
use std::ops::Range;

use http::StatusCode;
use http::header::{CONTENT_TYPE, HeaderMap};
use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::body::{Answer, error, json as answer};
use super::structure::StructureCounter;

/// The content type of every message.
pub(super) const JSON: &str = "application/json";

/// Bytes of a message beside the arguments of a tool call: what a client says of itself is kept for as long
/// as its session.
const SMALL: usize = 64 * 1024;

/// The outermost members of a JSON-RPC message.
#[derive(Deserialize)]
struct MessageEnvelope<'a> {
    #[serde(borrow)]
    jsonrpc: Option<&'a RawValue>,
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    method: Option<&'a RawValue>,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
    #[serde(borrow)]
    result: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

/// An error of JSON-RPC: why a message is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RpcRefusal {
    /// `null` where the message has no valid id.
    id: Value,
    code: i32,
    message: String,
}

impl RpcRefusal {
    /// The refusal of a message without a valid id.
    pub(crate) fn invalid(message: &str) -> Self {
        Self { id: Value::Null, code: INVALID, message: message.to_owned() }
    }

    /// The refusal of the request `id`, whose id another request has that is not answered yet.
    pub(super) fn repeated_id(id: &Value) -> Self {
        let message = format!("`id` {id} is that of a request that is not answered yet");
        Self { id: id.clone(), code: INVALID, message }
    }

    /// The refusal of the request `id` for its `params`.
    pub(super) fn params(id: Value, message: &str) -> Self {
        Self { id, code: PARAMS, message: message.to_owned() }
    }

    /// The refusal as a JSON-RPC answer.
    pub(crate) fn to_json(&self) -> Value {
        json!({ "jsonrpc": "2.0", "id": self.id, "error": { "code": self.code, "message": self.message } })
    }

    fn answer(&self) -> Box<Answer> {
        let status = if self.code == PARAMS { StatusCode::OK } else { StatusCode::BAD_REQUEST };
        Box::new(answer(status, &self.to_json()))
    }
}

/// The codes of JSON-RPC 2.0, section 5.1.
const NOT_JSON: i32 = -32700;
const INVALID: i32 = -32600;
const PARAMS: i32 = -32602;

/// What was read of a message.
#[derive(Debug, Default)]
pub(super) struct Seen<'a> {
    /// The method, in its quotation marks.
    pub(super) method: Option<&'a str>,
    /// The id of a request.
    pub(super) id: Option<Value>,
    /// The place of a tool call's arguments in the message.
    pub(super) arguments: Option<Range<usize>>,
}

/// Checks a message whose structure was counted already, and refuses what the SDK would answer in another way
/// than JSON-RPC says.
pub(super) fn check<'a>(headers: &HeaderMap, body: &'a [u8]) -> Result<Seen<'a>, Box<Answer>> {
    let essence =
        headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).and_then(|v| v.split(';').next());
    if !essence.is_some_and(|essence| essence.trim().eq_ignore_ascii_case(JSON)) {
        let message = "Content-Type must be application/json";
        return Err(Box::new(error(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", message)));
    }
    look(body).map_err(|refusal| refusal.answer())
}

/// Checks a message that came another way than HTTP, and counts its structure as well.
///
/// # Errors
/// The refusal to answer in place of the SDK.
pub(super) fn inspect(body: &[u8]) -> Result<Seen<'_>, RpcRefusal> {
    let seen = look(body)?;
    StructureCounter::of(body).map_err(|excess| RpcRefusal {
        id: seen.id.clone().unwrap_or_default(),
        code: INVALID,
        message: excess.to_string(),
    })?;
    // The SDK drops a line that it cannot read, and its caller would wait for ever.
    serde_json::from_slice::<Readable>(body).map_err(|error| RpcRefusal {
        id: seen.id.clone().unwrap_or_default(),
        code: NOT_JSON,
        message: format!("this is not JSON: {error}"),
    })?;
    Ok(seen)
}

/// Any value, of which nothing is kept: each escape stands for a character, and it is not nested too deep.
/// [`serde::de::IgnoredAny`] looks at neither.
struct Readable;

impl<'de> Deserialize<'de> for Readable {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(Readable)
    }
}

impl<'de> Visitor<'de> for Readable {
    type Value = Self;

    fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_str<E>(self, _: &str) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self, A::Error> {
        while items.next_element::<Self>()?.is_some() {}
        Ok(self)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Self, A::Error> {
        while members.next_entry::<Self, Self>()?.is_some() {}
        Ok(self)
    }
}

fn look(body: &[u8]) -> Result<Seen<'_>, RpcRefusal> {
    let refuse = |code: i32, message: &str| RpcRefusal { id: Value::Null, code, message: message.to_owned() };
    let envelope: MessageEnvelope<'_> = match serde_json::from_slice(body) {
        Ok(envelope) => envelope,
        Err(error) if error.is_data() => {
            let message = "a message is one JSON object, each key once; batches are not taken";
            return Err(refuse(INVALID, message));
        }
        Err(error) => return Err(refuse(NOT_JSON, &format!("this is not JSON: {error}"))),
    };
    if envelope.jsonrpc.map(RawValue::get) != Some("\"2.0\"") {
        return Err(refuse(INVALID, "`jsonrpc` must be \"2.0\""));
    }
    let method = envelope.method.map(RawValue::get);
    let named = method.is_some_and(|method| method.starts_with('"'));
    let answers = envelope.result.is_some() || envelope.error.is_some();
    if named == answers {
        return Err(refuse(
            INVALID,
            "a message has either a `method`, a text such as \"tools/call\", or a `result` or `error`",
        ));
    }
    let is_call = method == Some("\"tools/call\"");
    if !is_call && body.len() > SMALL {
        let message =
            format!("only a `tools/call` may have more than {SMALL} bytes; this has {}", body.len());
        return Err(refuse(INVALID, &message));
    }
    let id: Value = match envelope.id.map(RawValue::get) {
        None if named && !method.is_some_and(|method| method.starts_with("\"notifications/")) => {
            return Err(refuse(INVALID, "`id` is missing: without it only notifications are taken"));
        }
        None => return Ok(Seen { method, id: None, arguments: None }),
        Some(text) => serde_json::from_str(text).unwrap_or(Value::Null),
    };
    if !(id.is_string() || id.is_i64()) {
        return Err(refuse(INVALID, "`id` must be a text or a whole number below 2^63"));
    }
    let invalid = |message: &str| RpcRefusal { id: id.clone(), code: PARAMS, message: message.to_owned() };
    if envelope.params.is_some_and(|params| !params.get().starts_with('{')) {
        return Err(invalid("`params` must be an object"));
    }
    let mut at = None;
    if is_call {
        let params: CallParams<'_> = match envelope.params.map(|params| serde_json::from_str(params.get())) {
            None => CallParams::default(),
            Some(Ok(params)) => params,
            // It is an object, and its members are JSON: one of them stands there twice.
            Some(Err(error)) => return Err(invalid(&format!("`params`: {error}; give each key once"))),
        };
        let Some(name) = params.name.filter(|name| name.get().starts_with('"')) else {
            return Err(invalid("`params` must have the tool's `name`, a text"));
        };
        let arguments = params.arguments.map_or("", RawValue::get);
        if !arguments.is_empty() && !arguments.starts_with('{') {
            let name: String = name.get().chars().take(80).collect();
            return Err(invalid(&format!("the `arguments` of {name} must be an object")));
        }
        let others = body.len() - arguments.len();
        if others > SMALL {
            let message =
                format!("all of a message but its `arguments` may have {SMALL} bytes; this has {others}");
            return Err(invalid(&message));
        }
        at = params.arguments.map(|arguments| range_of(body, arguments));
    }
    Ok(Seen { method, id: named.then_some(id), arguments: at })
}

/// The members of a tool call's `params`.
#[derive(Default, Deserialize)]
struct CallParams<'a> {
    #[serde(borrow)]
    name: Option<&'a RawValue>,
    #[serde(borrow)]
    arguments: Option<&'a RawValue>,
}

/// The place of a part in the message that it is borrowed from.
fn range_of(body: &[u8], part: &RawValue) -> Range<usize> {
    let begin = part.get().as_ptr().addr() - body.as_ptr().addr();
    begin..begin + part.get().len()
}

/// The refusal of a message in which an escape is no character.
pub(super) fn no_text(id: Option<&Value>, error: &serde_json::Error) -> Answer {
    let message = format!("this is not JSON: {error}");
    *RpcRefusal { id: id.cloned().unwrap_or_default(), code: NOT_JSON, message }.answer()
}

/// The refusal of a message that passed the checks here and that the SDK could not read: an escape that is no
/// character, or too much nesting.
pub(super) fn unread(body: &[u8]) -> Answer {
    let refusal = match serde_json::from_slice::<Value>(body) {
        Err(error) => {
            RpcRefusal { id: Value::Null, code: NOT_JSON, message: format!("this is not JSON: {error}") }
        }
        Ok(_) => RpcRefusal::invalid("this is no JSON-RPC request, notification or response"),
    };
    *refusal.answer()
}

#[cfg(test)]
mod tests {
    use http::header::HeaderValue;
    use http_body_util::BodyExt;

    use super::*;

    async fn refused(body: &str) -> Option<(u16, i64, Value)> {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json; charset=utf-8"));
        let answer = *check(&headers, body.as_bytes()).err()?;
        let status = answer.status().as_u16();
        let bytes = answer.into_body().collect().await.unwrap().to_bytes();
        let document: Value = serde_json::from_slice(&bytes).unwrap();
        Some((status, document["error"]["code"].as_i64().unwrap(), document["id"].clone()))
    }

    #[tokio::test]
    async fn what_is_no_request_is_told_why() {
        for (body, want) in [
            ("", (400, -32700, json!(null))),
            ("{}{}", (400, -32700, json!(null))),
            ("[]", (400, -32600, json!(null))),
            (r#"{"id":1,"method":"ping"}"#, (400, -32600, json!(null))),
            (r#"{"jsonrpc":"2.0","id":1}"#, (400, -32600, json!(null))),
            (r#"{"jsonrpc":"2.0","id":1,"method":"ping","result":{}}"#, (400, -32600, json!(null))),
            (r#"{"jsonrpc":"2.0","method":"tools/list"}"#, (400, -32600, json!(null))),
            (r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#, (400, -32600, json!(null))),
            (r#"{"jsonrpc":"2.0","id":9223372036854775808,"method":"ping"}"#, (400, -32600, json!(null))),
            (r#"{"jsonrpc":"2.0","id":1,"method":"a","method":"b"}"#, (400, -32600, json!(null))),
            (r#"{"jsonrpc":"2.0","id":1.5,"method":"ping"}"#, (400, -32600, json!(null))),
            (r#"{"jsonrpc":"2.0","id":{},"method":"ping"}"#, (400, -32600, json!(null))),
            (r#"{"jsonrpc":"2.0","id":99999999999999999999,"method":"ping"}"#, (400, -32600, json!(null))),
            (r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":[]}"#, (200, -32602, json!(1))),
            (r#"{"jsonrpc":"2.0","id":"a","method":"tools/call"}"#, (200, -32602, json!("a"))),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":7}}"#,
                (200, -32602, json!(1)),
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","arguments":[]}}"#,
                (200, -32602, json!(1)),
            ),
        ] {
            assert_eq!(refused(body).await, Some(want), "{body}");
        }
        let long = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"initialize","x":"{}"}}"#, "x".repeat(SMALL));
        assert_eq!(refused(&long).await, Some((400, -32600, json!(null))));
        for body in [
            r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
            r#"{"jsonrpc":"2.0","id":0,"method":"ping","params":{}}"#,
            r#"{"jsonrpc":"2.0","id":"","method":"tools/call","params":{"name":"x","arguments":{}}}"#,
            r#"{"jsonrpc":"2.0","id":1,"result":{}}"#,
        ] {
            assert_eq!(refused(body).await, None, "{body}");
        }
    }

    #[test]
    fn a_key_of_a_call_that_stands_twice_is_named() {
        for (params, key) in [
            (r#"{"name":"x","arguments":{},"arguments":{}}"#, "`arguments`"),
            (r#"{"name":"x","name":"y"}"#, "`name`"),
        ] {
            let call = format!(r#"{{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{params}}}"#);
            let refusal = inspect(call.as_bytes()).unwrap_err();
            assert_eq!((&refusal.id, refusal.code), (&json!(4), PARAMS));
            assert!(
                refusal.message.contains("duplicate") && refusal.message.contains(key),
                "{}",
                refusal.message
            );
        }
    }

    #[test]
    fn what_the_sdk_cannot_read_is_refused_with_its_id() {
        let call = |arguments: &str| {
            let call = r#"{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"x","arguments":"#;
            inspect(format!("{call}{arguments}}}}}").as_bytes())
                .err()
                .map(|refusal| (refusal.id, refusal.code))
        };
        for arguments in [r#"{"code":"\ud800"}"#, r#"{"\udc00":1}"#, r#"{"a":[{"b":"\ud800x"}]}"#] {
            assert_eq!(call(arguments), Some((json!(3), NOT_JSON)), "{arguments}");
        }
        for arguments in [r#"{"code":"\ud83d\ude00","n":[1,-2,3.5,true,null,"\u0000"]}"#, "{}"] {
            assert_eq!(call(arguments), None, "{arguments}");
        }
    }

    #[test]
    fn a_repeated_id_is_refused_by_that_id() {
        for id in [json!(7), json!("a")] {
            let refusal = RpcRefusal::repeated_id(&id).to_json();
            assert_eq!((&refusal["id"], &refusal["error"]["code"]), (&id, &json!(INVALID)));
            assert!(
                refusal["error"]["message"].as_str().unwrap().contains(&format!("`id` {id} ")),
                "{refusal}"
            );
        }
    }

    #[test]
    fn what_is_too_much_is_refused_with_its_id() {
        let call = |arguments: &str, more: &str| {
            format!(
                r#"{{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{{"name":"x","arguments":{arguments}{more}}}}}"#
            )
        };
        let refused = |text: &str| inspect(text.as_bytes()).err().map(|refusal| (refusal.id, refusal.code));
        let many = format!(r#"{{"a":[{}0]}}"#, "0,".repeat(70_000));
        assert_eq!(refused(&call(&many, "")), Some((json!(3), INVALID)));
        let beside = format!(r#","_meta":{{"a":"{}"}}"#, "x".repeat(SMALL));
        assert_eq!(refused(&call("{}", &beside)), Some((json!(3), PARAMS)));
        // In its arguments a text may have any length.
        let long = format!(r#"{{"content":"{}"}}"#, "x".repeat(2 * SMALL));
        let text = call(&long, r#","_meta":{}"#);
        let arguments = inspect(text.as_bytes()).unwrap().arguments.unwrap();
        assert_eq!(text[arguments], long);
    }
}
