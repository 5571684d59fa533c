//! MCP: tools as JSON-RPC, by the official SDK.
//!
//! ```text
//!  POST /mcp ─► shim: JSON? one object? ─┬─ Accept has text/event-stream, or a session ─► full service (sessions)
//!                                        └─ neither: the bare call (n8n, curl) ─────────► stateless, plain JSON
//! ```
//!
//! Both services run the same [`Handler`]; there is a pair for each token's name, so that nobody can use another's
//! MCP session. It must never decide anything about a tool.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use http::header::{ACCEPT, ALLOW, CONTENT_TYPE, HeaderMap, HeaderValue};
use http::{Method, Request, StatusCode, request};
use http_body_util::{BodyExt, BodyStream, Full, StreamBody};
use rmcp::handler::server::ServerHandler;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ErrorData, Implementation,
    ListPromptsResult, ListResourceTemplatesResult, ListResourcesResult, ListToolsResult,
    PaginatedRequestParams, ServerCapabilities, ServerConfig, Tool, ToolAnnotations,
};
use rmcp::service::{RequestContext, RoleServer};
use rmcp::transport::streamable_http_server::session::SessionManager;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info};

use super::body::{Answer, error, json as answer};
use crate::tools::{CallError, Caller, Tools};

const JSON: &str = "application/json";
const EVENTS: &str = "text/event-stream";
const SESSION: &str = "mcp-session-id";
/// The POST of newer revisions that is kept open to listen, as JSON.
const LISTEN: &str = "\"subscriptions/listen\"";

/// An MCP session that nothing was heard of for this long is forgotten.
const KEEP_ALIVE: Duration = Duration::from_secs(4 * 3600);

/// MCP sessions of one owner. Each takes some 50 KB, and many clients make one for every call and never end it: of
/// more than these the one unheard of for longest goes.
const SESSIONS: usize = 500;

/// Bytes of a body that is no tool call: what a client says of itself is kept as long as its session.
const SMALL: usize = 64 * 1024;

type Service = StreamableHttpService<Handler, LocalSessionManager>;

/// The endpoint.
pub(super) struct Mcp {
    /// By owner.
    services: HashMap<String, Pair>,
    stop_streams: CancellationToken,
}

/// One owner's services.
struct Pair {
    /// With sessions.
    full: Service,
    /// Without.
    bare: Service,
    manager: Arc<LocalSessionManager>,
    /// The sessions, the one heard of last at the end.
    heard: Mutex<VecDeque<Arc<str>>>,
}

impl Pair {
    /// Notes that a session was heard of; the one that has to go for it, if one has.
    fn hear(&self, id: &str) -> Option<Arc<str>> {
        let mut heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        let known = heard.iter().position(|known| **known == *id).and_then(|at| heard.remove(at));
        heard.push_back(known.unwrap_or_else(|| id.into()));
        if heard.len() > SESSIONS { heard.pop_front() } else { None }
    }
}

impl Mcp {
    /// `stop_streams` ends the streams that only listen, `stop_calls` every call.
    pub(super) fn new(
        tools: &Arc<Tools>,
        owners: &[String],
        max_body: u64,
        stop_streams: &CancellationToken,
        stop_calls: &CancellationToken,
    ) -> Self {
        let pair = |owner: &String| {
            let mut manager = LocalSessionManager::default();
            manager.session_config.keep_alive = Some(KEEP_ALIVE);
            let manager = Arc::new(manager);
            let service = |with_sessions: bool| {
                let (tools, owner) = (tools.clone(), owner.clone());
                let make = move || {
                    let own_session = Arc::default();
                    Ok(Handler { tools: tools.clone(), caller: Caller { owner: owner.clone(), own_session } })
                };
                // Host and Origin are the guard's business, for every route alike.
                let config = StreamableHttpServerConfig::default()
                    .disable_allowed_hosts()
                    .disable_allowed_origins()
                    .with_legacy_session_mode(with_sessions)
                    .with_json_response(!with_sessions)
                    .with_max_request_body_bytes(usize::try_from(max_body).unwrap_or(usize::MAX))
                    .with_cancellation_token(stop_calls.child_token());
                StreamableHttpService::new(make, manager.clone(), config)
            };
            let (full, bare) = (service(true), service(false));
            (owner.clone(), Pair { full, bare, manager, heard: Mutex::default() })
        };
        Self { services: owners.iter().map(pair).collect(), stop_streams: stop_streams.clone() }
    }

    /// Answers one request whose body was read.
    pub(super) async fn serve(&self, owner: &str, mut parts: request::Parts, body: Bytes) -> Answer {
        let Some(pair) = self.services.get(owner) else {
            return error(StatusCode::UNAUTHORIZED, "unauthorized", "this token has no name that is served");
        };
        let (service, listens) = match parts.method {
            Method::GET | Method::DELETE => (&pair.full, true),
            Method::POST => {
                let method = match check(&parts.headers, &body) {
                    Ok(method) => method,
                    Err(refused) => return *refused,
                };
                let listens = method == Some(LISTEN);
                let is_bare = !accepts_events(&parts.headers) && !parts.headers.contains_key(SESSION);
                // Clients name one type, none, or `*/*`; the SDK wants to see both.
                parts.headers.insert(ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
                parts.headers.insert(CONTENT_TYPE, HeaderValue::from_static(JSON));
                (if is_bare { &pair.bare } else { &pair.full }, listens)
            }
            _ => {
                let message = "/mcp takes POST, and GET and DELETE for sessions";
                let mut answer = error(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", message);
                answer.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, POST, DELETE"));
                return answer;
            }
        };
        let asked = parts.headers.get(SESSION).filter(|_| parts.method != Method::DELETE).cloned();
        let response = service.handle(Request::from_parts(parts, Full::new(body.clone()))).await;
        // The type was right, so it is the content that the SDK could not read.
        if response.status() == StatusCode::UNSUPPORTED_MEDIA_TYPE {
            return unread(&body);
        }
        // A new session's id is in the answer; one that there is not is answered 404.
        let id =
            response.headers().get(SESSION).cloned().or(asked).filter(|_| response.status().is_success());
        if let Some(id) = id.as_ref().and_then(|id| id.to_str().ok())
            && let Some(gone) = pair.hear(id)
        {
            debug!("an MCP session is forgotten: its owner has {SESSIONS} that were heard of since");
            let _ = pair.manager.close_session(&gone).await;
        }
        response.map(|body| {
            let body = body.map_err(|never| match never {});
            if !listens {
                return body.boxed_unsync();
            }
            let stop = self.stop_streams.clone().cancelled_owned();
            StreamBody::new(BodyStream::new(body).take_until(stop)).boxed_unsync()
        })
    }
}

fn accepts_events(headers: &HeaderMap) -> bool {
    let values = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    values
        .flat_map(|value| value.split(','))
        .any(|part| part.split(';').next().is_some_and(|essence| essence.trim().eq_ignore_ascii_case(EVENTS)))
}

/// The outermost of a JSON-RPC message: enough to say what is wrong with it.
#[derive(Deserialize)]
struct Envelope<'a> {
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

/// What the SDK would answer otherwise than JSON-RPC says; the method as it stands in the body.
fn check<'a>(headers: &HeaderMap, body: &'a [u8]) -> Result<Option<&'a str>, Box<Answer>> {
    let essence =
        headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).and_then(|v| v.split(';').next());
    if !essence.is_some_and(|essence| essence.trim().eq_ignore_ascii_case(JSON)) {
        let message = "Content-Type must be application/json";
        return Err(Box::new(error(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", message)));
    }
    let refuse =
        |code: i32, message: &str| Box::new(refusal(StatusCode::BAD_REQUEST, Value::Null, code, message));
    let envelope: Envelope<'a> = match serde_json::from_slice(body) {
        Ok(envelope) => envelope,
        Err(error) if error.is_data() => {
            let message =
                format!("a request is one JSON object, each key once; batches are not taken ({error})");
            return Err(refuse(-32600, &message));
        }
        Err(error) => return Err(refuse(-32700, &format!("the body is not JSON: {error}"))),
    };
    if envelope.jsonrpc.map(RawValue::get) != Some("\"2.0\"") {
        return Err(refuse(-32600, "`jsonrpc` must be \"2.0\""));
    }
    let named = envelope.method.is_some_and(|method| method.get().starts_with('"'));
    if !named && envelope.result.is_none() && envelope.error.is_none() {
        return Err(refuse(-32600, "`method` must be a text such as \"tools/call\""));
    }
    let is_call = envelope.method.map(RawValue::get) == Some("\"tools/call\"");
    if !is_call && body.len() > SMALL {
        let message =
            format!("only a `tools/call` may have more than {SMALL} bytes; this has {}", body.len());
        return Err(refuse(-32600, &message));
    }
    let id = match envelope.id.map(RawValue::get) {
        None => return Ok(envelope.method.map(RawValue::get)),
        Some(text) => serde_json::from_str(text).unwrap_or(Value::Null),
    };
    if !(id.is_string() || id.is_i64() || id.is_u64()) {
        return Err(refuse(-32600, "`id` must be a text or a whole number"));
    }
    let invalid = |message: &str| Box::new(refusal(StatusCode::OK, id.clone(), -32602, message));
    if envelope.params.is_some_and(|params| !params.get().starts_with('{')) {
        return Err(invalid("`params` must be an object"));
    }
    if is_call {
        let shape: Option<Shape<'_>> =
            envelope.params.and_then(|params| serde_json::from_str(params.get()).ok());
        let Some(name) =
            shape.as_ref().and_then(|shape| shape.name).filter(|name| name.get().starts_with('"'))
        else {
            return Err(invalid("`params` must have the tool's `name`, a text"));
        };
        let arguments = shape.and_then(|shape| shape.arguments).map_or("{", RawValue::get);
        if !arguments.starts_with('{') {
            let name: String = name.get().chars().take(80).collect();
            return Err(invalid(&format!("the `arguments` of {name} must be an object")));
        }
    }
    Ok(envelope.method.map(RawValue::get))
}

/// What a tool call must look like to be one.
#[derive(Deserialize)]
struct Shape<'a> {
    #[serde(borrow)]
    name: Option<&'a RawValue>,
    #[serde(borrow)]
    arguments: Option<&'a RawValue>,
}

fn refusal(status: StatusCode, id: Value, code: i32, message: &str) -> Answer {
    answer(status, &json!({ "jsonrpc": "2.0", "id": id, "error": { "code": code, "message": message } }))
}

/// Why the SDK could not read a body that [`check`] let through: an escape that is no character, too much nesting.
fn unread(body: &[u8]) -> Answer {
    let (code, message) = match serde_json::from_slice::<Value>(body) {
        Err(error) => (-32700, format!("the body is not JSON: {error}")),
        Ok(_) => (-32600, "the body is no JSON-RPC request, notification or response".to_owned()),
    };
    refusal(StatusCode::BAD_REQUEST, Value::Null, code, &message)
}

/// The tools as the SDK wants them.
struct Handler {
    tools: Arc<Tools>,
    caller: Caller,
}

impl ServerHandler for Handler {
    fn get_info(&self) -> ServerConfig {
        let server = Implementation::new("paddock", env!("CARGO_PKG_VERSION"));
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build()).with_server_info(server)
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let tools = self.tools.list().into_iter().map(|tool| {
            let annotations = ToolAnnotations::new().read_only(tool.read_only).open_world(false);
            Tool::new(tool.name, tool.description, tool.input)
                .with_title(tool.title)
                .with_annotations(annotations)
        });
        Ok(ListToolsResult::with_all_items(tools.collect()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let arguments = request.arguments.unwrap_or_default();
        let done = self.tools.call(&self.caller, &request.name, arguments, context.ct).await;
        let outcome = done.map_err(|error| match error {
            CallError::UnknownTool(..) | CallError::Arguments(_) => {
                ErrorData::invalid_params(error.to_string(), None)
            }
            CallError::Internal(message) => ErrorData::internal_error(message, None),
        })?;
        let document = Value::Object(outcome.document);
        let mut content = vec![ContentBlock::text(document.to_string())];
        content
            .extend(outcome.images.into_iter().map(|image| ContentBlock::image(image.data, image.mime_type)));
        let mut result =
            if outcome.failed { CallToolResult::error(content) } else { CallToolResult::success(content) };
        result.structured_content = Some(document);
        info!(tool = %known(&request.name), failed = outcome.failed, "tool called");
        Ok(CallToolResponse::Complete(result))
    }

    // The SDK answers these with empty lists, although nothing of the kind is advertised.

    async fn list_prompts(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        Err(ErrorData::method_not_found::<rmcp::model::ListPromptsRequestMethod>())
    }

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        Err(ErrorData::method_not_found::<rmcp::model::ListResourcesRequestMethod>())
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        Err(ErrorData::method_not_found::<rmcp::model::ListResourceTemplatesRequestMethod>())
    }
}

/// A tool's name for the log: only names that exist reach it, at their known lengths.
fn known(name: &str) -> &str {
    name.get(..name.len().min(40)).unwrap_or("?")
}

#[cfg(test)]
mod tests {
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
}
