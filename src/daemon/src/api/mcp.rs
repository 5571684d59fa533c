//! MCP: tools as JSON-RPC, by the official SDK.
//!
//! ```text
//!  POST /mcp ─► message: JSON? one object? ─┬─ of a session, or its beginning ─► full: sessions, resumable
//!                                           └─ bare calls (n8n, curl), and     ─► bare: JSON, or a stream
//!                                              revisions without sessions         where more is to be said
//!  GET, DELETE /mcp ─► of a session: its stream of notifications, its end
//! ```
//!
//! What a program asks of its caller goes to the client by `elicitation/create` (`elicitation`), or in rounds
//! where the revision has no requests to clients (`rounds`). Both services run the same [`Handler`]. Each
//! token's name has a pair of its own, so that nobody can use another's MCP session. It must never decide
//! anything about a tool.

mod audience;
mod call;
mod call_context;
mod elicitation;
mod elsewhere;
mod forward;
mod handler;
mod head;
mod in_memory;
mod on_disk;
mod owner_services;
mod post;
mod preference;
mod progress;
mod replay;
mod restore;
mod result;
mod resume;
mod rounds;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::header::{ALLOW, HeaderValue};
use http::{Method, StatusCode, request};
use serde_json::Value;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use self::call_context::CallContext;
pub(crate) use self::handler::Handler;
use self::head::{LAST_EVENT, no_session, sets, the_session, unknown_event};
use self::owner_services::{OwnerServices, SdkService};
pub(super) use self::post::may_take_long;
use self::resume::AnswerReader;
use super::body::{Answer, error};
#[cfg(feature = "conformance-fixtures")]
use super::fixtures::FixtureState;
use super::listening::ListenPermits;
use crate::session::SessionId;
use crate::tools::Tools;

/// The settings of the endpoint.
pub(super) struct McpConfig {
    /// Bytes of a message.
    pub(super) max_body: u64,
    /// How long a call goes on whose client went away.
    pub(super) resume_window: Duration,
    /// The folder of the sessions on disk.
    pub(super) folder: PathBuf,
    /// Derives the ids of sessions that clients did not name.
    pub(super) key: [u8; 32],
    /// The fixtures in front of the tools, in a test of conformance.
    #[cfg(feature = "conformance-fixtures")]
    pub(super) fixtures: Option<Arc<FixtureState>>,
    /// Bounds the streams that only listen.
    pub(super) listeners: Arc<ListenPermits>,
}

/// What ends the endpoint's work, step by step.
pub(super) struct McpStops {
    /// Ends the streams that only listen.
    pub(super) streams: CancellationToken,
    /// Ends every call.
    pub(super) calls: CancellationToken,
    /// Ends what is left then.
    pub(super) rest: CancellationToken,
}

/// The endpoint.
pub(super) struct McpEndpoint {
    tools: Arc<Tools>,
    config: McpConfig,
    stops: McpStops,
    /// Those of each tenant that has called, made at its first call.
    owners: Mutex<HashMap<String, Arc<OwnerServices>>>,
}

/// A request on its way to the SDK.
struct Forwarded<'a> {
    parts: request::Parts,
    body: Bytes,
    service: &'a SdkService,
    context: CallContext,
    /// The MCP session that it names.
    session: Option<String>,
    /// The id of the request; `None` for a message that has no answer.
    id: Option<Value>,
    /// Notices how far its answer is read, where that can be resumed.
    reader: Option<AnswerReader>,
    /// Whether its answer is a stream that only listens.
    listens: bool,
}

impl McpEndpoint {
    /// An endpoint over these tools.
    pub(super) fn new(tools: &Arc<Tools>, config: McpConfig, stops: McpStops) -> Self {
        if let Err(error) = on_disk::sweep_all(&config.folder) {
            warn!(%error, "the folder of MCP sessions could not be swept");
        }
        Self { tools: tools.clone(), config, stops, owners: Mutex::default() }
    }

    /// The services of this owner, whose token was checked.
    fn services(&self, owner: &str) -> Arc<OwnerServices> {
        // No code that can panic runs under this lock, so even a poisoned one holds valid data.
        let mut owners = self.owners.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(services) = owners.get(owner) {
            return services.clone();
        }
        let services = Arc::new(OwnerServices::new(owner, &self.tools, &self.config, &self.stops));
        owners.insert(owner.to_owned(), services.clone());
        services
    }

    /// Ends all calls of an owner, also of sessions that wait for their client to come back.
    pub(super) fn end_owner(&self, owner: &str) {
        let gone = self.owners.lock().unwrap_or_else(PoisonError::into_inner).remove(owner);
        if let Some(services) = gone {
            services.stop.cancel();
        }
    }

    /// Answers one request whose body was read.
    pub(super) async fn serve(&self, owner: &str, parts: request::Parts, body: Bytes) -> Answer {
        let services = &*self.services(owner);
        let sets = match sets(&parts, self.tools.sets) {
            Ok(sets) => sets,
            Err(problem) => return error(StatusCode::BAD_REQUEST, "invalid_argument", &problem),
        };
        let session = match the_session(&parts.headers) {
            Ok(session) => session,
            Err(problem) => return error(StatusCode::BAD_REQUEST, "invalid_argument", problem),
        };
        let context = CallContext::new(sets);
        let request = Forwarded {
            parts,
            body,
            service: &services.full,
            context,
            session,
            id: None,
            reader: None,
            listens: false,
        };
        let prepared = match request.parts.method {
            Method::GET => get(services, request),
            Method::DELETE => delete(services, request).await,
            Method::POST => self.post(owner, services, request),
            _ => Err(Box::new(not_allowed())),
        };
        match prepared {
            Ok(request) => self.forward(owner, services, request).await,
            Err(refusal) => *refusal,
        }
    }

    /// The session of calls that name none, within an MCP session: not the protocol's own id, which others
    /// may see.
    fn own_session(&self, owner: &str, id: &str) -> SessionId {
        SessionId::derived(&self.config.key, &format!("{owner}\n{id}"))
    }

    /// An MCP session ended: the programs of the session that was made for it end too. Its files stay.
    async fn end(&self, owner: &str, id: &str) {
        let own = self.own_session(owner, id);
        if let Err(error) = self.tools.services.sessions.close(owner, &own, false).await {
            warn!(%error, session_id = %own, "the session of an MCP session could not be closed");
        }
    }
}

/// Whether a request belongs to an MCP session.
pub(super) fn is_in_session(headers: &http::HeaderMap) -> bool {
    headers.contains_key(head::SESSION) && !head::is_without_sessions(headers)
}

/// A GET: a session's stream of notifications, or, with the id of an event, the rest of the stream that had
/// it.
fn get<'a>(services: &OwnerServices, mut request: Forwarded<'a>) -> Result<Forwarded<'a>, Box<Answer>> {
    let last = request.parts.headers.get(LAST_EVENT).map(|value| value.to_str().unwrap_or_default());
    if let (Some(last), Some(session)) = (last, &request.session) {
        if !services.replay.has(last, session) {
            return Err(Box::new(unknown_event()));
        }
        request.reader = AnswerReader::again(last, &services.replay);
    }
    request.listens = true;
    Ok(request)
}

/// A DELETE: the end of a session.
async fn delete<'a>(services: &OwnerServices, request: Forwarded<'a>) -> Result<Forwarded<'a>, Box<Answer>> {
    match &request.session {
        Some(id) if !services.knows(id).await => Err(Box::new(no_session())),
        Some(_) | None => Ok(request),
    }
}

fn not_allowed() -> Answer {
    let message = "/mcp takes POST, and GET and DELETE for sessions";
    let mut answer = error(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", message);
    answer.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, POST, DELETE"));
    answer
}
