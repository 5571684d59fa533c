//! MCP: tools as JSON-RPC, by the official SDK.
//!
//! ```text
//!  POST /mcp ─► shim: JSON? one object? ─┬─ a session's, or the beginning of one ─► full service: sessions, resumable
//!                                        └─ all else: bare calls (n8n, curl) and ─► stateless; JSON, or a stream
//!                                           revisions that have no sessions         where there is more to say
//! ```
//!
//! Both services run the same [`Handler`]; there is a pair for each token's name, so that nobody can use another's
//! MCP session. It must never decide anything about a tool.

mod handler;
mod head;
mod heard;
mod preference;
mod progress;
mod reader;
mod remembered;
mod resume;

use std::collections::HashMap;
use std::convert::Infallible;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use http::header::{ACCEPT, ALLOW, CONTENT_TYPE, HOST, HeaderValue};
use http::{Method, Request, Response, StatusCode, request};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, BodyStream, Full, StreamBody};
use rmcp::handler::server::ServerHandler;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::session::{SessionManager, SessionStore};
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::OwnedSemaphorePermit;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{Span, debug, info, warn};

pub(crate) use self::handler::Handler;
use self::head::{
    LAST_EVENT, SESSION, accepts_events, in_json, is_json, is_without_sessions, no_session, sets,
    the_session, unknown, unknown_event, unknown_revision,
};
use self::heard::{Heard, SESSIONS};
use self::preference::Preference;
use self::remembered::Remembered;
use self::resume::{Events, Reading, SharedEvents, Tie};
use super::aside::{Aside, set_aside};
use super::body::{Answer, SMALL, error, json};
use super::envelope::{JSON, Refusal, Seen, check, no_text, unread};
use super::fixtures::{Fixtures, Shared};
use super::initialize;
use super::listening::{Listeners, Listening};
use crate::session::SessionId;
use crate::tools::{ToolSets, Tools};

/// The POST of newer revisions that is kept open to listen, as JSON.
const LISTEN: &str = "\"subscriptions/listen\"";
const INITIALIZE: &str = "\"initialize\"";
/// The method whose calls have a line of their own, with the tool.
const CALL: &str = "\"tools/call\"";

/// An MCP session that nothing was heard of for this long leaves the memory; the disk has it for longer.
const KEEP_ALIVE: Duration = Duration::from_secs(4 * 3600);

/// A service, whatever its handler is.
type Service = Box<
    dyn Fn(Request<Full<Bytes>>) -> BoxFuture<'static, Response<BoxBody<Bytes, Infallible>>> + Send + Sync,
>;

fn service<H: ServerHandler>(
    make: impl Fn() -> H + Send + Sync + 'static,
    manager: Arc<LocalSessionManager>,
    config: StreamableHttpServerConfig,
) -> Service {
    let service = StreamableHttpService::new(move || Ok(make()), manager, config);
    Box::new(move |request| {
        let service = service.clone();
        Box::pin(async move { service.handle(request).await })
    })
}

/// What the endpoint is told.
pub(super) struct McpConfig<'a> {
    /// The names of the tokens.
    pub(super) owners: &'a [String],
    /// Bytes of a body.
    pub(super) max_body: u64,
    /// How long a call whose client went away goes on.
    pub(super) resume_window: Duration,
    /// Where sessions are remembered.
    pub(super) folder: &'a Path,
    /// Makes the ids of sessions that clients did not name.
    pub(super) key: [u8; 32],
    /// What stands in front of the tools; in tests only.
    pub(super) fixtures: Option<Arc<Shared>>,
    /// Bounds the streams that only listen.
    pub(super) listeners: Arc<Listeners>,
}

/// The endpoint.
pub(super) struct Mcp {
    tools: Arc<Tools>,
    /// By owner.
    services: HashMap<String, Pair>,
    window: Duration,
    key: [u8; 32],
    listeners: Arc<Listeners>,
    stop_streams: CancellationToken,
}

/// What a request brings beside its message; kept with it for as long as its call.
#[derive(Clone, Default)]
struct Asked {
    /// What the answer holds until it is sent.
    held: Arc<Mutex<Vec<OwnedSemaphorePermit>>>,
    sets: ToolSets,
    /// Nothing but the answer can be read.
    quiet: bool,
    /// Whether a refusal is to be seen by the status of HTTP.
    preference: Preference,
    /// The session of calls that name none.
    own_session: Option<SessionId>,
    tie: Option<Arc<Tie>>,
    /// What the lines of the request are found by.
    span: Option<Span>,
    /// Held by whatever is at work for it.
    call: Arc<()>,
    /// The long texts of its arguments, which the SDK does not see.
    aside: Aside,
    /// Its place among the streams that only listen.
    listening: Option<Arc<Listening>>,
}

/// One owner's services.
struct Pair {
    /// With sessions.
    full: Service,
    /// Without.
    bare: Service,
    manager: Arc<LocalSessionManager>,
    events: Arc<Events>,
    heard: Arc<Heard>,
    remembered: Arc<Remembered>,
}

impl Pair {
    /// Whether there is such a session, in memory or on disk.
    async fn knows(&self, id: &str) -> bool {
        let living = self.manager.has_session(&id.into()).await;
        living.unwrap_or(false) || self.remembered.load(id).await.is_ok_and(|state| state.is_some())
    }
}

impl Mcp {
    /// `stop_streams` ends the streams that only listen, `stop_calls` every call, and `cut` what is then left.
    pub(super) fn new(
        tools: &Arc<Tools>,
        config: &McpConfig<'_>,
        stop_streams: &CancellationToken,
        stop_calls: &CancellationToken,
        cut: &CancellationToken,
    ) -> Self {
        if let Err(error) = remembered::sweep_all(config.folder) {
            warn!(%error, "the folder of MCP sessions could not be looked through");
        }
        let max_body = usize::try_from(config.max_body).unwrap_or(usize::MAX);
        let pair = |owner: &String| {
            let events = Arc::new(Events::default());
            let mut manager =
                LocalSessionManager::default().with_event_store(Arc::new(SharedEvents(events.clone())));
            manager.session_config.keep_alive = Some(KEEP_ALIVE);
            let manager = Arc::new(manager);
            let serve = |manager, settings| {
                let (tools, owner, stop) = (tools.clone(), owner.clone(), stop_calls.clone());
                let make = move || Handler {
                    tools: tools.clone(),
                    owner: owner.clone(),
                    own_session: Arc::default(),
                    calls: TaskTracker::default(),
                    stop: stop.clone(),
                };
                match config.fixtures.clone() {
                    None => service(make, manager, settings),
                    Some(shared) => service(move || Fixtures::new(make(), shared.clone()), manager, settings),
                }
            };
            // Host and Origin are the guard's business, for every route alike.
            let common = || {
                StreamableHttpServerConfig::default()
                    .disable_allowed_hosts()
                    .disable_allowed_origins()
                    .with_max_request_body_bytes(max_body)
                    .with_cancellation_token(cut.child_token())
            };
            let mut with_sessions = common().with_legacy_session_mode(true);
            let heard = Arc::new(Heard::default());
            let remembered = Arc::new(Remembered::new(config.folder, owner, heard.clone()));
            if let Err(error) = remembered.sweep() {
                warn!(%error, owner, "MCP sessions cannot be kept on disk");
            }
            let store: Arc<dyn SessionStore> = remembered.clone();
            with_sessions.session_store = Some(store);
            let without = common().with_legacy_session_mode(false).with_json_response(true);
            let full = serve(manager.clone(), with_sessions);
            // No events are kept here: such a call ends with its connection.
            let none = Arc::new(LocalSessionManager::default());
            let bare = serve(none, without);
            (owner.clone(), Pair { full, bare, manager, events, heard, remembered })
        };
        Self {
            tools: tools.clone(),
            services: config.owners.iter().map(pair).collect(),
            window: config.resume_window,
            key: config.key,
            listeners: config.listeners.clone(),
            stop_streams: stop_streams.clone(),
        }
    }

    /// Answers one request whose body was read.
    pub(super) async fn serve(&self, owner: &str, mut parts: request::Parts, body: Bytes) -> Answer {
        let Some(pair) = self.services.get(owner) else {
            return error(StatusCode::UNAUTHORIZED, "unauthorized", "this token has no name that is served");
        };
        let mut asked = match sets(&parts, self.tools.sets) {
            Ok(sets) => Asked { sets, span: Some(Span::current()), ..Asked::default() },
            Err(problem) => return error(StatusCode::BAD_REQUEST, "invalid_argument", &problem),
        };
        let session = match the_session(&parts.headers) {
            Ok(session) => session,
            Err(problem) => return error(StatusCode::BAD_REQUEST, "invalid_argument", problem),
        };
        let (mut reading, mut request, mut shorter) = (None, None, None);
        let (service, listens) = match parts.method {
            Method::GET => {
                let last = parts.headers.get(LAST_EVENT).map(|value| value.to_str().unwrap_or_default());
                if let (Some(last), Some(session)) = (last, &session) {
                    if !pair.events.has(last, session) {
                        return unknown_event();
                    }
                    reading = Reading::again(last, &pair.events);
                }
                (&pair.full, true)
            }
            Method::DELETE => {
                if let Some(id) = &session
                    && !pair.knows(id).await
                {
                    return no_session();
                }
                (&pair.full, true)
            }
            Method::POST => {
                let wished = Preference::of(&parts.headers);
                let Seen { method, id, arguments } =
                    match may_take_long(body.len(), || check(&parts.headers, &body)) {
                        Ok(seen) => seen,
                        Err(refused) => return wished.wrong(*refused),
                    };
                if let Some(arguments) = arguments.filter(|_| body.len() as u64 > SMALL) {
                    match may_take_long(body.len(), || set_aside(&body, arguments)) {
                        Ok((short, aside)) => (shorter, asked.aside) = (Some(short), aside),
                        Err(error) => return wished.wrong(no_text(id.as_ref(), &error)),
                    }
                }
                if method != Some(CALL) {
                    let shown: String = method.unwrap_or("none").chars().take(80).collect();
                    info!(method = shown.trim_matches('"'), "message");
                }
                let reads_events = accepts_events(&parts.headers);
                asked.quiet = !reads_events;
                let begins = method == Some(INITIALIZE) && reads_events;
                let in_session = begins || (session.is_some() && !is_without_sessions(&parts.headers));
                if !in_session {
                    asked.preference = wished;
                }
                if method == Some(INITIALIZE) && !is_without_sessions(&parts.headers) {
                    match initialize::complete(&body) {
                        Ok(None) => {}
                        Ok(Some(whole)) => shorter = Some(whole),
                        Err(refusal) => {
                            return asked.preference.wrong(json(StatusCode::OK, &refusal.to_json()));
                        }
                    }
                }
                if let (Some(session), Some(id)) = (&session, &id)
                    && in_session
                    && !pair.heard.ask(session, id, &asked.call)
                {
                    let refusal = format!("`id` {id} is that of a request that is not answered yet");
                    return json(StatusCode::BAD_REQUEST, &Refusal::invalid(&refusal).to_json());
                }
                request = id;
                if in_session && method.is_some() {
                    asked.own_session = session.as_deref().map(|id| self.own_session(owner, id));
                    let tie = Tie::new(session.as_deref().unwrap_or_default(), self.window);
                    reading = Some(Reading::begin(tie.clone(), pair.events.clone()));
                    asked.tie = Some(tie);
                }
                // Clients name one type, none, or `*/*`; the SDK wants to see both.
                parts.headers.insert(ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
                parts.headers.insert(CONTENT_TYPE, HeaderValue::from_static(JSON));
                (if in_session { &pair.full } else { &pair.bare }, method == Some(LISTEN))
            }
            _ => {
                let message = "/mcp takes POST, and GET and DELETE for sessions";
                let mut answer = error(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", message);
                answer.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, POST, DELETE"));
                return answer;
            }
        };
        // From here on nobody has the long one.
        let body = shorter.map_or(body, Bytes::from);
        // The guard has judged what was there, and lets more pass than the SDK can read.
        parts.headers.insert(HOST, HeaderValue::from_static("localhost"));
        let ends = parts.method == Method::DELETE;
        let revision = unknown(&parts.headers);
        parts.extensions.insert(asked.clone());
        if listens && !ends {
            asked.listening = match self.listeners.take(owner) {
                Ok(place) => Some(Arc::new(place)),
                Err(full) => return full.answer(&self.tools.metrics),
            };
        }
        let mut response = service(Request::from_parts(parts, Full::new(body.clone()))).await;
        // The SDK says 202, which Python's takes for a failure: the session has ended by now.
        if ends && response.status() == StatusCode::ACCEPTED {
            *response.status_mut() = StatusCode::NO_CONTENT;
        }
        // The type was right, so it is the content that the SDK could not read.
        if response.status() == StatusCode::UNSUPPORTED_MEDIA_TYPE {
            return unread(&body);
        }
        let well = response.status().is_success();
        if well && is_json(response.headers()) {
            response = asked.preference.applied(response);
        }
        if !well && !is_json(response.headers()) {
            return match (revision, request) {
                (Some(revision), Some(id)) => unknown_revision(&revision, &id),
                (Some(_) | None, _) => in_json(response).await,
            };
        }
        if ends {
            if let Some(id) = session.filter(|_| well) {
                self.end(owner, &id).await;
            }
        } else {
            // A new session's id is in the answer; one that there is not is answered 404.
            let new = response.headers().get(SESSION).and_then(|id| id.to_str().ok()).map(str::to_owned);
            if let Some(id) = new.or(session).filter(|_| well) {
                let due = pair.heard.hear(&id, request.as_ref().map(|id| (&asked.call, id)));
                if due.note {
                    pair.remembered.clone().note_use(&id);
                }
                if let Some(gone) = due.gone {
                    debug!(
                        "an MCP session leaves the memory: its owner has {SESSIONS} that were heard of since"
                    );
                    let _ = pair.manager.close_session(&gone).await;
                }
            }
        }
        response.map(|body| {
            let body = body.map_err(|never| match never {});
            let stop = self.stop_streams.clone().cancelled_owned();
            let frames = BodyStream::new(body);
            let frames = if listens { frames.take_until(stop).left_stream() } else { frames.right_stream() };
            StreamBody::new(kept(frames, asked, reading)).boxed_unsync()
        })
    }

    /// The session of calls that name none, in an MCP session: not the protocol's own id, which others may see.
    fn own_session(&self, owner: &str, id: &str) -> SessionId {
        SessionId::derived(&self.key, &format!("{owner}\n{id}"))
    }

    /// An MCP session ended: what runs in the session that was made for it ends too. Its files stay.
    async fn end(&self, owner: &str, id: &str) {
        let own = self.own_session(owner, id);
        if let Err(error) = self.tools.sessions.close(owner, &own, false).await {
            warn!(%error, session_id = %own, "the session of an MCP session could not be closed");
        }
    }
}

/// Bytes from which on reading a message is no work for a thread that serves others: a millisecond, at a gigabyte a second.
const LONG: usize = 1 << 20;

/// Does what takes long if a message is this large; whoever else this thread serves is then served by another.
fn may_take_long<T>(bytes: usize, work: impl FnOnce() -> T) -> T {
    let others = Handle::current().runtime_flavor() == RuntimeFlavor::MultiThread;
    if bytes >= LONG && others { tokio::task::block_in_place(work) } else { work() }
}

/// A body that holds what its request brought, and says to `reading` what is read of it.
fn kept<E>(
    frames: impl futures_util::Stream<Item = Result<http_body::Frame<Bytes>, E>> + Send + 'static,
    asked: Asked,
    reading: Option<Reading>,
) -> impl futures_util::Stream<Item = Result<http_body::Frame<Bytes>, E>> + Send + 'static {
    let state = (Box::pin(frames), asked, reading);
    futures_util::stream::unfold(state, |(mut frames, asked, reading)| async move {
        let frame = frames.next().await;
        match (&frame, &reading) {
            (Some(Ok(frame)), Some(reading)) => reading.saw(frame),
            (None, Some(reading)) => reading.ended(),
            (Some(_) | None, _) => {}
        }
        Some((frame?, (frames, asked, reading)))
    })
}
