//! The tools as the SDK wants them: one handler for every way to be asked.
//!
//! It must never decide anything about a tool, nor say something to a client that did not ask to hear it.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::{Arc, OnceLock, PoisonError};
use std::time::Duration;

use http::request;
use rmcp::handler::server::ServerHandler;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, CompleteRequestParams, CompleteResult,
    ContentBlock, ErrorData, Implementation, ListPromptsResult, ListResourceTemplatesResult,
    ListResourcesResult, ListToolsResult, PaginatedRequestParams, ProtocolVersion, RequestMetaObject,
    Resource, ServerCapabilities, ServerConfig, Tool, ToolAnnotations,
};
use rmcp::service::{RequestContext, RoleServer};
use serde_json::{Map, Value, json};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{Instrument, Span, error_span, info};

use super::Asked;
use super::progress::Progress;
use super::reader::Reader;
use crate::session::{Listener, SessionId};
use crate::tools::{CallError, Caller, Outcome, Timing, ToolSets, Tools};
use crate::trace::{TRACEPARENT, Trace};

/// Pieces of output that wait for a client that reads slowly.
const LIVE: usize = 4;

/// In a call's `_meta`: `whole`, if a program that is quicker than its reader is to wait.
const OUTPUT: &str = "paddock/output";
const WHOLE: &str = "whole";

/// How long the last pieces of output may take to be told before the answer.
const LAST_PIECES: Duration = Duration::from_secs(5);

/// In a result's `_meta`: where the time of a run went, see [`Timing`].
const TIMING: &str = "paddock/timing";

/// Files of one answer that are linked as resources too; all are in the document.
const LINKS: usize = 20;

/// What serves one client, or one call.
pub(crate) struct Handler {
    pub(super) tools: Arc<Tools>,
    /// The name of the token.
    pub(super) owner: String,
    /// The session for calls that name none, where the way in has no name for it itself.
    pub(super) own_session: Arc<OnceLock<SessionId>>,
    /// The calls at work.
    pub(super) calls: TaskTracker,
    /// Ends every call: what it did is saved, and it is answered.
    pub(super) stop: CancellationToken,
}

impl Handler {
    /// One for a single client, whose calls that name no session are of `own`, are told to `calls`, and end with `stop`.
    pub(crate) fn new(
        tools: Arc<Tools>,
        owner: String,
        own: SessionId,
        calls: TaskTracker,
        stop: CancellationToken,
    ) -> Self {
        Self { tools, owner, own_session: Arc::new(OnceLock::from(own)), calls, stop }
    }

    /// What the request brought beside its message.
    fn asked(context: &RequestContext<RoleServer>) -> Option<&Asked> {
        context.extensions.get::<request::Parts>().and_then(|parts| parts.extensions.get::<Asked>())
    }

    fn sets(context: &RequestContext<RoleServer>) -> ToolSets {
        Self::asked(context).map_or_else(ToolSets::default, |asked| asked.sets)
    }

    fn caller(&self, asked: Option<&Asked>, live: Option<Listener>) -> Caller {
        let own_session = match asked.and_then(|asked| asked.own_session.clone()) {
            Some(id) => Arc::new(OnceLock::from(id)),
            None => self.own_session.clone(),
        };
        Caller { owner: self.owner.clone(), own_session, live }
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
            let message = "`cursor` is none of ours: all tools are on one page";
            return Err(ErrorData::invalid_params(message, None));
        }
        let tools = self.tools.list(Self::sets(&context)).into_iter().map(|tool| {
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
        let _at_work = self.calls.token();
        let mut arguments = request.arguments.unwrap_or_default();
        let asked = Self::asked(&context);
        if let Some(asked) = asked {
            asked.aside.put_back(&mut arguments);
        }
        let token = context.meta.get_progress_token();
        let token = token.filter(|_| asked.is_none_or(|asked| !asked.quiet));
        let (live, pieces) = token.as_ref().map(|_| mpsc::channel(LIVE)).unzip();
        let whole = context.meta.get(OUTPUT).is_some_and(|wanted| wanted == WHOLE);
        let caller = self.caller(asked, live.map(|pieces| Listener { pieces, whole }));
        let cancel = context.ct.clone();
        let span = span(asked, &self.owner, &context.meta);
        let gone = async {
            match asked.and_then(|asked| asked.tie.as_ref()) {
                Some(tie) => tie.gone().await,
                None => std::future::pending().await,
            }
        };
        let over = CancellationToken::new();
        let mut telling = pin!(Progress::new(&context, token, pieces).tell(over.clone()));
        let done = {
            let sets = Self::sets(&context);
            let call = self.tools.call(&caller, sets, &request.name, arguments, cancel.clone());
            let mut call = pin!(call.instrument(span.clone()));
            tokio::select! {
                done = &mut call => done,
                // It goes on until the call is over.
                never = async { (&mut telling).await; std::future::pending::<Infallible>().await } => match never {},
                () = async { tokio::select! { () = gone => {}, () = self.stop.cancelled() => {} } } => {
                    // What it did until now is still saved.
                    cancel.cancel();
                    call.await
                }
            }
        };
        drop(caller); // it could write more
        over.cancel();
        let _ = tokio::time::timeout(LAST_PIECES, telling).await;
        if let Some(asked) = asked {
            asked.preference.note(&done);
        }
        let mut outcome = done.map_err(|error| match error {
            CallError::UnknownTool(..) | CallError::Arguments(_) => {
                ErrorData::invalid_params(error.to_string(), None)
            }
            CallError::Internal(message) => ErrorData::internal_error(message, None),
        })?;
        if let (Some(place), Some(asked)) = (outcome.place.take(), asked) {
            asked.held.lock().unwrap_or_else(PoisonError::into_inner).push(place);
        }
        span.in_scope(|| info!(tool = %known(&request.name), failed = outcome.failed, "tool called"));
        // Before this revision a client can refuse a whole answer for a kind of content that it does not know.
        let is_new =
            context.protocol_version().is_some_and(|version| version >= ProtocolVersion::V_2025_06_18);
        let client = context.client_info();
        let reader = Reader::of(
            asked.is_some_and(|asked| asked.quiet),
            is_new,
            client.as_ref().map(|client| client.name.as_str()),
            outcome.is_of_a_command(),
        );
        Ok(CallToolResponse::Complete(result(outcome, reader, is_new, self.tools.limits.shown)))
    }

    // The SDK answers these with nothing, although nothing of the kind is advertised.

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

/// Milliseconds, with their parts.
fn timing(timing: &Timing) -> Value {
    let ms = |time: Duration| (time.as_secs_f64() * 1e6).round() / 1e3;
    json!({
        "queued_ms": ms(timing.queued),
        "files_in_ms": ms(timing.files_in),
        "program_ms": ms(timing.program),
        "files_out_ms": ms(timing.files_out),
        "total_ms": ms(timing.total),
    })
}

/// One answer, as text and as data for whoever reads it, and what else goes with it. `shown` bytes of output for a
/// model.
fn result(outcome: Outcome, reader: Reader, linked: bool, shown: usize) -> CallToolResult {
    let links = if linked { links(&outcome.document) } else { Vec::new() };
    let text = match reader {
        Reader::Program => serde_json::to_string(&*outcome.compact()).unwrap_or_default(),
        Reader::Model | Reader::ModelOfDocuments => outcome.text(shown),
    };
    let document = match reader {
        Reader::ModelOfDocuments => outcome.for_a_model(shown),
        Reader::Model | Reader::Program => outcome.document,
    };
    let document = Value::Object(document);
    let mut content = vec![ContentBlock::text(text)];
    content.extend(outcome.images.into_iter().map(|image| ContentBlock::image(image.data, image.mime_type)));
    content.extend(links);
    let mut result =
        if outcome.failed { CallToolResult::error(content) } else { CallToolResult::success(content) };
    result.structured_content = Some(document);
    result.meta = outcome.timing.map(|spent| Map::from_iter([(TIMING.to_owned(), timing(&spent))]).into());
    result
}

/// What a run made, as links to resources.
fn links(document: &Map<String, Value>) -> Vec<ContentBlock> {
    let artifacts = document.get("artifacts").and_then(Value::as_array);
    let link = |artifact: &Value| {
        let text = |key: &str| artifact[key].as_str().map(str::to_owned);
        let mut resource = Resource::new(text("download_url")?, text("filename")?);
        resource.mime_type = text("mime_type");
        resource.size = artifact["size_bytes"].as_u64();
        Some(ContentBlock::resource_link(resource))
    };
    artifacts.into_iter().flatten().filter_map(link).take(LINKS).collect()
}

/// What the lines of a call are found by: the trace of its request, or of its own where the message names another.
fn span(asked: Option<&Asked>, owner: &str, meta: &RequestMetaObject) -> Span {
    let around = asked.and_then(|asked| asked.span.clone());
    let given = meta.get(TRACEPARENT).and_then(Value::as_str).and_then(Trace::of);
    match (given, around) {
        (None, Some(around)) => around,
        (given, around) => {
            let Trace { trace_id, span_id, parent_id, .. } = given.unwrap_or_default();
            let around = around.and_then(|around| around.id());
            if asked.is_none() {
                let peer = "stdio";
                return error_span!(parent: None, "call", token = owner, peer, trace_id, span_id, parent_id);
            }
            error_span!(parent: around, "call", trace_id, span_id, parent_id)
        }
    }
}

/// A tool's name for the log: only names that exist reach it, at their known lengths.
fn known(name: &str) -> &str {
    name.get(..name.len().min(40)).unwrap_or("?")
}
