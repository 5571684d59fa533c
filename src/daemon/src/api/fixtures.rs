//! The fixtures of the MCP conformance suite: tools, prompts and resources with names and answers that its
//! scenarios prescribe, in front of the real tools.
//!
//! ```text
//!  Fixtures ─┬ tools/call ─► content   the same answer each time
//!            │               live      notifications and requests to the client while the call runs
//!            │               rounds    answers that ask for input first (SEP-2322)
//!            │               tasks     answers that come later (SEP-2663)
//!            ├ prompts/*  ─► prompts
//!            ├ resources/*─► resources
//!            └ the rest, and every other tool ─► the real handler
//! ```
//!
//! Tests build them by the cargo feature `conformance-fixtures`, which releases leave out, and use them only
//! if the environment asks for them at the start. They must never touch a session, a file or a container, and
//! without that request none of them may be listed, callable or advertised.

#![expect(deprecated, reason = "the suite asks for sampling, roots and logging, which SEP-2577 deprecates")]

mod content;
mod live;
mod prompts;
mod resources;
mod rounds;
mod tasks;
mod tools;

use std::sync::{Arc, Mutex, PoisonError};

use rmcp::handler::server::ServerHandler;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, CancelTaskParams, ClientCapabilities,
    CompleteRequestParams, CompleteResult, ContentBlock, ErrorData, GetPromptRequestParams,
    GetPromptResponse, GetTaskParams, GetTaskResult, ListPromptsResult, ListResourceTemplatesResult,
    ListResourcesResult, ListToolsResult, LoggingLevel, PaginatedRequestParams, ReadResourceRequestParams,
    ReadResourceResponse, RequestStateCodec, ServerCapabilities, ServerConfig, SetLevelRequestParams,
    SubscribeRequestParams, SubscriptionFilter, Tool, UnsubscribeRequestParams, UpdateTaskParams,
};
use rmcp::service::{RequestContext, RoleServer, SubscriptionContext};
use rmcp::task_manager::TaskManager;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::broadcast;

use self::rounds::Round;
use crate::id::random_bytes;

/// List changes that a stream has not sent yet; a stream that is further behind hears of the newest only.
const CHANGES: usize = 16;

/// A list whose change is announced.
#[derive(Clone, Copy, PartialEq)]
enum ListChange {
    Tools,
    Prompts,
}

/// What all calls share: a client of 2026-07-28 has no session, and each of its requests has a handler of its
/// own.
pub(super) struct FixtureState {
    tasks: TaskManager,
    states: RequestStateCodec,
    changes: broadcast::Sender<ListChange>,
}

/// The fixtures of one daemon.
pub(super) fn state() -> Arc<FixtureState> {
    Arc::new(FixtureState {
        tasks: TaskManager::new(),
        // Nothing of a fixture outlives its daemon: a new key for each daemon is enough.
        states: RequestStateCodec::new(random_bytes::<32>()),
        changes: broadcast::channel(CHANGES).0,
    })
}

/// The fixtures in front of a real handler.
pub(super) struct Fixtures<H> {
    real: H,
    shared: Arc<FixtureState>,
    /// What `logging/setLevel` set, in revisions that have it.
    level: Mutex<LoggingLevel>,
    /// Subscribed before a stream is acknowledged, so that no change after it is missed.
    changes: Mutex<Option<broadcast::Receiver<ListChange>>>,
}

impl<H> Fixtures<H> {
    /// The fixtures for one session, or one request without any.
    pub(super) fn new(real: H, shared: Arc<FixtureState>) -> Self {
        Self { real, shared, level: Mutex::new(LoggingLevel::Info), changes: Mutex::default() }
    }

    /// The level from which on a request wants log messages; in newer revisions each request names it.
    fn level(&self, context: &RequestContext<RoleServer>) -> Option<LoggingLevel> {
        if context.meta.protocol_version().is_some() {
            return context.meta.log_level();
        }
        Some(*self.level.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl<H: ServerHandler> ServerHandler for Fixtures<H> {
    fn get_info(&self) -> ServerConfig {
        let mut info = self.real.get_info();
        info.capabilities = ServerCapabilities::builder()
            .enable_logging()
            .enable_completions()
            .enable_prompts()
            .enable_prompts_list_changed()
            .enable_resources()
            .enable_resources_subscribe()
            .enable_tools()
            .enable_tool_list_changed()
            .enable_tasks()
            .build();
        info
    }

    async fn list_tools(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let mut listed = self.real.list_tools(request, context).await?;
        listed.tools.splice(0..0, tools::all());
        Ok(listed)
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        tools::all().into_iter().find(|tool| tool.name == name).or_else(|| self.real.get_tool(name))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let name: &str = &request.name;
        if let Some(content) = content::of(name) {
            return content;
        }
        let arguments = request.arguments.clone().unwrap_or_default();
        let round = Round::new(
            name,
            request.input_responses.as_ref(),
            request.request_state.as_deref(),
            capabilities(&context),
            &self.shared.states,
        );
        if let Some(answer) = rounds::call(&round) {
            return answer;
        }
        if let Some(answer) = tasks::call(&self.shared.tasks, &round, &arguments).await {
            return answer;
        }
        let level = self.level(&context);
        if let Some(answer) = live::call(name, &arguments, level, &context, &self.shared.changes).await {
            return answer;
        }
        self.real.call_tool(request, context).await
    }

    async fn set_level(
        &self,
        request: SetLevelRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        if context.meta.protocol_version().is_some() {
            return Err(ErrorData::method_not_found::<rmcp::model::SetLevelRequestMethod>());
        }
        *self.level.lock().unwrap_or_else(PoisonError::into_inner) = request.level;
        Ok(())
    }

    async fn complete(
        &self,
        request: CompleteRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        prompts::complete(&request)
    }

    async fn list_prompts(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        Ok(ListPromptsResult::with_all_items(prompts::all()?))
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        let round = Round::new(
            &request.name,
            request.input_responses.as_ref(),
            request.request_state.as_deref(),
            capabilities(&context),
            &self.shared.states,
        );
        prompts::get(&round, &request.arguments.unwrap_or_default())
    }

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        Ok(ListResourcesResult::with_all_items(resources::all()?))
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        Ok(ListResourceTemplatesResult::with_all_items(resources::templates()?))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        resources::read(&request.uri).map(ReadResourceResponse::from)
    }

    async fn subscribe(
        &self,
        request: SubscribeRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        resources::read(&request.uri).map(drop)
    }

    async fn unsubscribe(
        &self,
        request: UnsubscribeRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        resources::read(&request.uri).map(drop)
    }

    fn accepted_subscription_filter(&self, requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        let changes = self.shared.changes.subscribe();
        *self.changes.lock().unwrap_or_else(PoisonError::into_inner) = Some(changes);
        Some(requested.clone())
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let changes = self.changes.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(changes) = changes else {
            return Err(ErrorData::internal_error("a stream was opened that nobody had accepted", None));
        };
        live::tell(&context, changes).await;
        Ok(())
    }

    async fn get_task(
        &self,
        request: GetTaskParams,
        _: RequestContext<RoleServer>,
    ) -> Result<GetTaskResult, ErrorData> {
        self.shared.tasks.get_task(&request.task_id).map(GetTaskResult::new)
    }

    async fn update_task(
        &self,
        request: UpdateTaskParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.shared.tasks.update_task(&request.task_id, request.input_responses)
    }

    async fn cancel_task(
        &self,
        request: CancelTaskParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.shared.tasks.cancel_task(&request.task_id)
    }
}

fn capabilities(context: &RequestContext<RoleServer>) -> ClientCapabilities {
    context.client_capabilities().unwrap_or_default()
}

/// A message of the protocol, as it stands on the wire.
fn made<T: DeserializeOwned>(document: Value) -> Result<T, ErrorData> {
    serde_json::from_value(document)
        .map_err(|error| ErrorData::internal_error(format!("a fixture is no such message: {error}"), None))
}

fn text(text: impl Into<String>) -> CallToolResult {
    CallToolResult::success(vec![ContentBlock::text(text.into())])
}

fn failure(text: impl Into<String>) -> CallToolResult {
    CallToolResult::error(vec![ContentBlock::text(text.into())])
}
