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
use serde_json::Value;
use tokio::sync::OwnedSemaphorePermit;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info};

use super::body::{Answer, error};
use super::envelope::{JSON, check, unread};
use crate::tools::{CallError, Caller, Tools};

const EVENTS: &str = "text/event-stream";
const SESSION: &str = "mcp-session-id";
/// The POST of newer revisions that is kept open to listen, as JSON.
const LISTEN: &str = "\"subscriptions/listen\"";

/// An MCP session that nothing was heard of for this long is forgotten.
const KEEP_ALIVE: Duration = Duration::from_secs(4 * 3600);

/// MCP sessions of one owner. Each takes some 50 KB, and many clients make one for every call and never end it: of
/// more than these the one unheard of for longest goes.
const SESSIONS: usize = 500;

type Service = StreamableHttpService<Handler, LocalSessionManager>;

/// The endpoint.
pub(super) struct Mcp {
    /// By owner.
    services: HashMap<String, Pair>,
    stop_streams: CancellationToken,
}

/// What answers of one request hold, until they are sent: kept with the request and with the answer's body.
#[derive(Clone, Default)]
struct Held(Arc<Mutex<Vec<OwnedSemaphorePermit>>>);

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
        let held = Held::default();
        parts.extensions.insert(held.clone());
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
            let body = body.map_err(|never| match never {}).map_frame(move |frame| {
                let _until_the_body_ends = &held;
                frame
            });
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
            // Says something only of tools that change something.
            let annotations =
                if tool.read_only { annotations } else { annotations.destructive(tool.destructive) };
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
        let held =
            context.extensions.get::<request::Parts>().and_then(|parts| parts.extensions.get::<Held>());
        let outcome = done.map_err(|error| match error {
            CallError::UnknownTool(..) | CallError::Arguments(_) => {
                ErrorData::invalid_params(error.to_string(), None)
            }
            CallError::Internal(message) => ErrorData::internal_error(message, None),
        })?;
        if let (Some(place), Some(Held(held))) = (outcome.place, held) {
            held.lock().unwrap_or_else(PoisonError::into_inner).push(place);
        }
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
