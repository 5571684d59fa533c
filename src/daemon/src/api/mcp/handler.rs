//! The tools as the SDK wants them: one handler for every way in.
//!
//! It must never decide anything about a tool.

use std::sync::{Arc, OnceLock};

use http::request;
use rmcp::handler::server::ServerHandler;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CompleteRequestParams, CompleteResult, ErrorData,
    Implementation, ListPromptsResult, ListResourceTemplatesResult, ListResourcesResult, ListToolsResult,
    PaginatedRequestParams, ProtocolVersion, RequestMetaObject, ServerCapabilities, ServerConfig, Tool,
    ToolAnnotations,
};
use rmcp::service::{RequestContext, RoleServer};
use serde_json::Value;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{Instrument, Span, error_span, info};

use super::audience::Audience;
use super::call_context::CallContext;
use super::elicitation::Elicitation;
use super::elsewhere::not_now;
use super::result::result;
use super::rounds::ParkedCalls;
use crate::audit::Surface;
use crate::cluster::ids::NodeTag;
use crate::egress::Asker;
use crate::session::{OutputBacklog, SessionId};
use crate::tools::{ArrivedMessage, CallError, Caller, ToolSets, Tools};
use crate::trace::{TRACEPARENT, Trace};

/// Serves one client, or one call.
pub(crate) struct Handler {
    pub(super) tools: Arc<Tools>,
    /// The name of the token.
    owner: String,
    /// The session of calls that name none, unless the request brings one.
    own_session: Arc<OnceLock<SessionId>>,
    /// The calls in progress.
    pub(super) calls: TaskTracker,
    /// Ends every call: its files are saved, and it is answered.
    pub(super) stop: CancellationToken,
    /// Calls that wait for a client's answer to a question.
    pub(super) parked: Arc<ParkedCalls>,
}

impl Handler {
    /// A handler for a single client. Its calls that name no session are of the session `own`; `calls` tracks
    /// them, and `stop` ends them.
    pub(crate) fn new(
        tools: Arc<Tools>,
        owner: String,
        own: SessionId,
        calls: TaskTracker,
        stop: CancellationToken,
    ) -> Self {
        let own_session = Arc::new(OnceLock::from(own));
        Self { tools, owner, own_session, calls, stop, parked: Arc::default() }
    }

    /// A handler for one request, or for one MCP session. `stop` ends its calls; `parked` are those of the
    /// same token that wait for an answer.
    pub(super) fn of_request(
        tools: Arc<Tools>,
        owner: String,
        stop: CancellationToken,
        parked: Arc<ParkedCalls>,
    ) -> Self {
        Self { tools, owner, own_session: Arc::default(), calls: TaskTracker::default(), stop, parked }
    }

    /// What the request brought beside its message.
    pub(super) fn call_context(context: &RequestContext<RoleServer>) -> Option<&CallContext> {
        context.extensions.get::<request::Parts>().and_then(|parts| parts.extensions.get::<CallContext>())
    }

    /// Whose calls these are.
    pub(super) fn owner(&self) -> &str {
        &self.owner
    }

    /// Whether this node has this execution of the owner.
    pub(super) fn has_execution(&self, id: &str) -> bool {
        self.tools.services.executions.get(&self.owner, id).is_some()
    }

    /// This node, where there are others.
    pub(super) fn node(&self) -> Option<NodeTag> {
        self.tools.services.cluster.as_ref().map(|cluster| cluster.tag())
    }

    /// The session of calls that name none.
    pub(super) fn own_session(&self, call_context: Option<&CallContext>) -> Option<SessionId> {
        let of_request = call_context.and_then(|context| context.own_session.clone());
        of_request.or_else(|| self.own_session.get().cloned())
    }

    pub(super) fn sets(context: &RequestContext<RoleServer>) -> ToolSets {
        Self::call_context(context).map_or_else(ToolSets::default, |call_context| call_context.sets)
    }

    pub(super) fn caller(
        &self,
        call_context: Option<&CallContext>,
        output: Option<OutputBacklog>,
        asker: Option<Asker>,
    ) -> Caller {
        let own_session = match call_context.and_then(|context| context.own_session.clone()) {
            Some(id) => Arc::new(OnceLock::from(id)),
            None => self.own_session.clone(),
        };
        let message = call_context.and_then(|context| context.message.clone());
        let message = message.map(|message| message as Arc<dyn ArrivedMessage>);
        let audit = match call_context {
            Some(context) => context.audit.clone(),
            None => self.tools.services.audit.begin(&self.owner, "stdio", (Surface::Stdio, "mcp")),
        };
        let fresh_session = call_context.and_then(|context| context.fresh_session.clone());
        let owner = self.owner.clone();
        Caller { owner, own_session, fresh_session, output, message, asker, audit }
    }
}

impl ServerHandler for Handler {
    fn get_info(&self) -> ServerConfig {
        let server = Implementation::new("paddock", env!("CARGO_PKG_VERSION"));
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build()).with_server_info(server)
    }

    async fn list_tools(
        &self,
        page: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        if page.is_some_and(|page| page.cursor.is_some()) {
            let message = "`cursor` does not come from this daemon: all tools are on one page";
            return Err(ErrorData::invalid_params(message, None));
        }
        let tools = self.tools.list(Self::sets(&context)).into_iter().map(|tool| {
            let annotations = ToolAnnotations::new().read_only(tool.read_only).open_world(false);
            // This says something only about tools that change something.
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
        let _in_progress = self.calls.token();
        let call_context = Self::call_context(&context);
        let span = span(call_context, &self.owner, &context.meta);
        let (name, mut arguments) = (&*request.name, request.arguments.unwrap_or_default());
        if let Some(cluster) = &self.tools.services.cluster {
            let node = self.elsewhere(cluster, name, &mut arguments, call_context).await;
            if let Some(node) = node.map_err(|fault| not_now(&fault))? {
                let answered = self.call_at((&**cluster, &node), (name, arguments), &context);
                let answered = answered.instrument(span.clone()).await;
                let tool = shortened(&request.name);
                span.in_scope(|| info!(%tool, node = node.name, failed = answered.is_err(), "tool called"));
                return answered;
            }
        }
        let going_on = match (&request.request_state, self.elicitation(&context)) {
            (Some(state), _) => Ok(self.parked.take_up(name, state, request.input_responses.as_ref())?),
            (None, Some(Elicitation::Round)) => Ok(self.begin(name, arguments, &context, &span)),
            (None, Some(Elicitation::Request) | None) => Err(arguments),
        };
        let done = match going_on {
            Err(arguments) => Ok(self.call(name, arguments, &context, &span).await),
            Ok(call) => self.go_on(name, call, &context).await,
        };
        let done = match done {
            Ok(done) => done,
            Err(asks) => return Ok(CallToolResponse::InputRequired(asks)),
        };
        if let Some(call_context) = call_context {
            call_context.preference.note(&done);
        }
        let mut outcome = done.map_err(|error| match error {
            CallError::UnknownTool(..) | CallError::Arguments(_) => {
                ErrorData::invalid_params(error.to_string(), None)
            }
            CallError::Internal(message) => ErrorData::internal_error(message, None),
        })?;
        if let (Some(permit), Some(call_context)) = (outcome.permit.take(), call_context) {
            call_context.keep(permit);
        }
        span.in_scope(|| info!(tool = %shortened(&request.name), failed = outcome.failed, "tool called"));
        // Before this revision a client can refuse a whole answer for a kind of content that it does not
        // know.
        let is_new =
            context.protocol_version().is_some_and(|version| version >= ProtocolVersion::V_2025_06_18);
        let client = context.client_info();
        let audience = Audience::of(
            call_context.is_some_and(|call_context| call_context.quiet),
            is_new,
            client.as_ref().map(|client| client.name.as_str()),
            outcome.is_of_a_command(),
        );
        Ok(CallToolResponse::Complete(result(outcome, audience, is_new, self.tools.limits.shown)))
    }

    // The SDK answers these with empty lists, although the daemon advertises nothing of the kind.

    async fn complete(
        &self,
        _: CompleteRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        Err(ErrorData::method_not_found::<rmcp::model::CompleteRequestMethod>())
    }

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

/// The span whose ids every log line of a call has: that of its request, or its own where the message names
/// another trace.
fn span(call_context: Option<&CallContext>, owner: &str, meta: &RequestMetaObject) -> Span {
    let around = call_context.and_then(|context| context.span.clone());
    let given = meta.get(TRACEPARENT).and_then(Value::as_str).and_then(Trace::of);
    match (given, around) {
        (None, Some(around)) => around,
        (given, around) => {
            let Trace { trace_id, span_id, parent_id, .. } = given.unwrap_or_default();
            let around = around.and_then(|around| around.id());
            if call_context.is_none() {
                let peer = "stdio";
                return error_span!(parent: None, "call", token = owner, peer, trace_id, span_id, parent_id);
            }
            error_span!(parent: around, "call", trace_id, span_id, parent_id)
        }
    }
}

/// A tool's name for the log: only the names of tools reach it.
fn shortened(name: &str) -> &str {
    name.get(..name.len().min(40)).unwrap_or("?")
}
