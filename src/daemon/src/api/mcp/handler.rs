//! The tools as the SDK wants them: one handler for every way in.
//!
//! It must never decide anything about a tool, nor report progress to a client that did not ask for it.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use http::request;
use rmcp::handler::server::ServerHandler;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CompleteRequestParams, CompleteResult, ErrorData,
    Implementation, InputRequiredResult, ListPromptsResult, ListResourceTemplatesResult, ListResourcesResult,
    ListToolsResult, PaginatedRequestParams, ProgressToken, ProtocolVersion, RequestMetaObject,
    ServerCapabilities, ServerConfig, Tool, ToolAnnotations,
};
use rmcp::service::{RequestContext, RoleServer};
use serde_json::{Map, Value};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{Instrument, Span, error_span, info};

use super::audience::Audience;
use super::call_context::CallContext;
use super::elicitation::{self, Elicitation};
use super::elsewhere::not_now;
use super::progress::ProgressReports;
use super::result::result;
use super::rounds::{OngoingCall, ParkedCalls};
use crate::audit::Surface;
use crate::cluster::ids::NodeTag;
use crate::egress::{Asker, questions};
use crate::session::{OutputBacklog, Pace, SessionId};
use crate::tools::{ArrivedMessage, CallError, Caller, Outcome, ToolSets, Tools};
use crate::trace::{TRACEPARENT, Trace};

/// In a call's `_meta`: `whole`, if the program is to wait for a slow reader.
const OUTPUT: &str = "paddock/output";
const WHOLE: &str = "whole";

/// How long the last pieces of output may take to be sent before the answer.
const LAST_PIECES: Duration = Duration::from_secs(5);

/// Serves one client, or one call.
pub(crate) struct Handler {
    tools: Arc<Tools>,
    /// The name of the token.
    owner: String,
    /// The session of calls that name none, unless the request brings one.
    own_session: Arc<OnceLock<SessionId>>,
    /// The calls in progress.
    calls: TaskTracker,
    /// Ends every call: its files are saved, and it is answered.
    stop: CancellationToken,
    /// Calls that wait for a client's answer to a question.
    parked: Arc<ParkedCalls>,
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
    fn node(&self) -> Option<NodeTag> {
        self.tools.services.cluster.as_ref().map(|cluster| cluster.tag())
    }

    /// The session of calls that name none.
    pub(super) fn own_session(&self, call_context: Option<&CallContext>) -> Option<SessionId> {
        let of_request = call_context.and_then(|context| context.own_session.clone());
        of_request.or_else(|| self.own_session.get().cloned())
    }

    fn sets(context: &RequestContext<RoleServer>) -> ToolSets {
        Self::call_context(context).map_or_else(ToolSets::default, |call_context| call_context.sets)
    }

    fn caller(
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

impl Handler {
    /// Calls a tool and reports its progress, until it has ended: by itself, because its client took it back
    /// or went away, or because the daemon ends.
    async fn call(
        &self,
        name: &str,
        mut arguments: Map<String, Value>,
        context: &RequestContext<RoleServer>,
        span: &Span,
    ) -> Result<Outcome, CallError> {
        let call_context = Self::call_context(context);
        if let Some(call_context) = call_context {
            call_context.long_texts.put_back(&mut arguments);
        }
        let (token, pace) = Self::reports(context);
        let output = token.as_ref().map(|_| OutputBacklog::default());
        let follower = output.as_ref().map(|output| output.follow(pace));
        let (asker, questions) = match self.elicitation(context) {
            Some(_) => Some(questions()).unzip(),
            None => (None, None),
        };
        let caller = self.caller(call_context, output, asker);
        let cancel = context.ct.clone();
        let over = CancellationToken::new();
        let mut reporting = pin!(ProgressReports::new(context, token, follower).send(over.clone()));
        let call = self.tools.call(&caller, Self::sets(context), name, arguments, cancel.clone());
        let ended = async {
            self.ended(call_context).await;
            cancel.cancel(); // what the program did until now is still saved
        };
        let ended = async { tokio::join!(ended, elicitation::serve(context, questions)).0 };
        let done = beside(call.instrument(span.clone()), reporting.as_mut(), ended).await;
        drop(caller); // it holds the backlog open
        over.cancel();
        let _ = tokio::time::timeout(LAST_PIECES, reporting).await;
        done
    }

    /// Begins a call that can be answered with questions, and goes on beside its requests.
    fn begin(
        &self,
        name: &str,
        mut arguments: Map<String, Value>,
        context: &RequestContext<RoleServer>,
        span: &Span,
    ) -> OngoingCall {
        let call_context = Self::call_context(context);
        if let Some(call_context) = call_context {
            call_context.long_texts.put_back(&mut arguments);
        }
        let output = Self::reports(context).0.map(|_| OutputBacklog::default());
        let (asker, questions) = questions();
        let caller = self.caller(call_context, output.clone(), Some(asker));
        let (tools, sets, name) = (self.tools.clone(), Self::sets(context), name.to_owned());
        let (in_progress, cancel) = (self.calls.token(), self.stop.child_token());
        let (answer, done) = oneshot::channel();
        let cancelled = cancel.clone();
        let call = async move {
            let done = tools.call(&caller, sets, &name, arguments, cancelled).await;
            drop((caller, in_progress));
            let _ = answer.send(done); // a client that never came back for it
        };
        tokio::spawn(call.instrument(span.clone()));
        OngoingCall::new(done, questions, output, cancel)
    }

    /// Goes on with a call until it is over, or its program asks something, and reports its progress.
    async fn go_on(
        &self,
        name: &str,
        mut call: OngoingCall,
        context: &RequestContext<RoleServer>,
    ) -> Result<Result<Outcome, CallError>, InputRequiredResult> {
        let (token, pace) = Self::reports(context);
        let follower = call.output.as_ref().map(|output| output.follow(pace));
        let over = CancellationToken::new();
        let mut reporting = pin!(ProgressReports::new(context, token, follower).send(over.clone()));
        let done = loop {
            let cancel = call.cancel.clone();
            let ended = async {
                tokio::select! {
                    () = self.ended(Self::call_context(context)) => {}
                    () = context.ct.cancelled() => {}
                }
                cancel.cancel();
            };
            let next = async {
                tokio::select! {
                    biased;
                    done = &mut call.done => Ok(done),
                    Some(question) = call.questions.next() => Err(question),
                }
            };
            match beside(next, reporting.as_mut(), ended).await {
                Ok(done) => break done,
                Err(question) => match self.parked.park(name, (call, question), self.node()) {
                    Ok(asks) => return Err(asks),
                    Err(back) => call = back,
                },
            }
        };
        drop(call); // it holds the backlog open
        over.cancel();
        let _ = tokio::time::timeout(LAST_PIECES, reporting).await;
        Ok(done.unwrap_or_else(|_| Err(CallError::Internal("the call broke off".to_owned()))))
    }

    /// The reports that a request asks for, and at which pace its output is read.
    pub(super) fn reports(context: &RequestContext<RoleServer>) -> (Option<ProgressToken>, Pace) {
        let token = context.meta.get_progress_token();
        let quiet = Self::call_context(context).is_some_and(|call_context| call_context.quiet);
        let is_whole = context.meta.get(OUTPUT).is_some_and(|wanted| wanted == WHOLE);
        (token.filter(|_| !quiet), if is_whole { Pace::Lossless } else { Pace::Lossy })
    }

    /// How the client of a call can be asked, where this daemon asks at all.
    fn elicitation(&self, context: &RequestContext<RoleServer>) -> Option<Elicitation> {
        let asks = self.tools.services.egress.asks();
        asks.then(|| Elicitation::of(context, Self::call_context(context))).flatten()
    }

    /// Resolves when a call has to end: its client is gone for too long, or the daemon ends.
    pub(super) async fn ended(&self, call_context: Option<&CallContext>) {
        let abandoned = async {
            match call_context.and_then(|call_context| call_context.resumable.as_ref()) {
                Some(call) => call.abandoned().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = abandoned => {}
            () = self.stop.cancelled() => {}
        }
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

/// The result of a call, beside which its progress is reported and its end awaited. Both go on until the call
/// is over: a program that is told to end can still have output for its reader.
async fn beside<T>(
    call: impl Future<Output = T>,
    reporting: impl Future<Output = ()>,
    ended: impl Future<Output = ()>,
) -> T {
    let others = async {
        tokio::join!(reporting, ended);
        std::future::pending::<Infallible>().await
    };
    tokio::select! {
        done = call => done,
        never = others => match never {},
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

#[cfg(test)]
mod tests {
    use tokio::sync::Semaphore;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn reports_go_on_while_a_call_that_has_to_end_ends() {
        let (told, read) = (CancellationToken::new(), Semaphore::new(0));
        let call = async {
            told.cancelled().await;
            drop(read.acquire().await); // the program waits for its reader
        };
        let reporting = async {
            told.cancelled().await;
            tokio::time::sleep(Duration::from_secs(1)).await;
            read.add_permits(1);
        };
        let ended = async { told.cancel() };
        let done = tokio::time::timeout(Duration::from_secs(60), beside(call, reporting, ended)).await;
        done.expect("nobody reads what the program writes");
    }
}
