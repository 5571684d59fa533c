//! The headers of a request to the endpoint, and the refusals of the endpoint.
//!
//! It must never refuse in another way than the rest of the daemon: with a document that says what was wrong.

use std::convert::Infallible;

use bytes::Bytes;
use http::header::{ACCEPT, ALLOW, CONTENT_TYPE, HeaderMap, HeaderValue};
use http::{Response, StatusCode, request};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Collected};
use rmcp::model::{ErrorCode, ProtocolVersion};
use serde_json::{Value, json};

use crate::api::body::{Answer, error, json as answer};
use crate::api::envelope::{JSON, RpcRefusal};
use crate::tools::ToolSets;

const EVENTS: &str = "text/event-stream";
pub(super) const SESSION: &str = "mcp-session-id";
const VERSION: &str = "mcp-protocol-version";
pub(super) const LAST_EVENT: &str = "last-event-id";
/// The first revision without sessions. The names of revisions are dates: compared as texts, they are in
/// order.
const WITHOUT_SESSIONS: &str = "2026-07-28";
/// Characters of a caller's text that a refusal repeats.
const SHOWN: usize = 40;

/// The MCP session that a request names.
pub(super) fn the_session(headers: &HeaderMap) -> Result<Option<String>, &'static str> {
    let mut named = headers.get_all(SESSION).iter();
    match (named.next().map(HeaderValue::to_str), named.next()) {
        (None, _) => Ok(None),
        (Some(Ok(id)), None) => Ok(Some(id.to_owned())),
        (Some(_), _) => Err("Mcp-Session-Id must be one id, as it was given"),
    }
}

/// The refusal of an event that is not kept, or belongs to another session.
pub(super) fn unknown_event() -> Answer {
    let message = "no stream of this session has the event of Last-Event-ID, or keeps it still: its answer \
                   cannot be read any more";
    answer(StatusCode::BAD_REQUEST, &RpcRefusal::invalid(message).to_json())
}

pub(super) fn no_session() -> Answer {
    error(StatusCode::NOT_FOUND, "session_not_found", "this token has no MCP session of this id")
}

pub(super) fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    kind.is_some_and(|kind| kind.starts_with(JSON))
}

/// A refusal of the SDK, which is plain text, in the form of every other refusal.
pub(super) async fn in_json(response: Response<BoxBody<Bytes, Infallible>>) -> Answer {
    let (parts, body) = response.into_parts();
    let text = body.collect().await.map(Collected::to_bytes).unwrap_or_default();
    let mut answer = error(parts.status, refused(parts.status), String::from_utf8_lossy(&text).trim());
    answer.headers_mut().extend(parts.headers.into_iter().filter(|(name, _)| name.as_ref() == Some(&ALLOW)));
    answer
}

/// A word for a status that the SDK answers with.
fn refused(status: StatusCode) -> &'static str {
    match status {
        StatusCode::NOT_FOUND => "session_not_found",
        StatusCode::METHOD_NOT_ALLOWED => "method_not_allowed",
        status if status.is_client_error() => "invalid_argument",
        _ => "internal",
    }
}

/// The tool sets that the URL asks for, out of the served ones.
pub(super) fn sets(parts: &request::Parts, served: ToolSets) -> Result<ToolSets, String> {
    let pairs = parts.uri.query().unwrap_or("").split('&').filter_map(|pair| pair.split_once('='));
    let mut asked = pairs.filter(|(key, _)| *key == "toolsets");
    match (asked.next(), asked.next()) {
        (_, Some(_)) => Err("`toolsets` stands twice in the URL: name all in one, code,exec".to_owned()),
        (Some((_, text)), None) => {
            let text = percent_encoding::percent_decode_str(text).decode_utf8_lossy();
            served.choose(&text).map_err(|problem| format!("`toolsets` in the URL: {problem}"))
        }
        (None, None) => Ok(served),
    }
}

pub(super) fn is_without_sessions(headers: &HeaderMap) -> bool {
    headers
        .get(VERSION)
        .and_then(|value| value.to_str().ok())
        .is_some_and(|version| version >= WITHOUT_SESSIONS)
}

/// The revision that a request names, if it is unknown.
pub(super) fn unknown(headers: &HeaderMap) -> Option<String> {
    let named = headers.get(VERSION)?.to_str().ok()?;
    let is_known = ProtocolVersion::KNOWN_VERSIONS.iter().any(|known| known.as_str() == named);
    (!is_known).then(|| named.chars().take(SHOWN).collect())
}

/// The refusal of the request `id`, whose revision is unknown. The SDK refuses it in plain text where only
/// the header names the revision.
pub(super) fn unknown_revision(named: &str, id: &Value) -> Answer {
    let error = json!({
        "code": ErrorCode::UNSUPPORTED_PROTOCOL_VERSION,
        "message": format!("MCP-Protocol-Version {named:?} is not served"),
        "data": { "requested": named, "supported": ProtocolVersion::KNOWN_VERSIONS },
    });
    answer(StatusCode::BAD_REQUEST, &json!({ "jsonrpc": "2.0", "id": id, "error": error }))
}

pub(super) fn accepts_events(headers: &HeaderMap) -> bool {
    let values = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    values
        .flat_map(|value| value.split(','))
        .any(|part| part.split(';').next().is_some_and(|essence| essence.trim().eq_ignore_ascii_case(EVENTS)))
}
