//! A POST: which message it brings, and which of the two services answers it.

use http::StatusCode;
use http::header::{ACCEPT, CONTENT_TYPE, HeaderValue};
use serde_json::Value;
use tokio::runtime::{Handle, RuntimeFlavor};
use tracing::info;

use super::head::{accepts_events, is_without_sessions};
use super::owner_services::OwnerServices;
use super::preference::Preference;
use super::resume::{AnswerReader, ResumableCall};
use super::{Forwarded, McpEndpoint};
use crate::api::body::{Answer, SMALL, json};
use crate::api::cluster::FreshSession;
use crate::api::envelope::{JSON, RpcRefusal, Seen, check, no_text};
use crate::api::initialize;
use crate::api::long_texts::take_out;

/// The methods that are treated in a way of their own, as JSON.
const INITIALIZE: &str = "\"initialize\"";
/// The request of newer revisions whose answer is a stream that only listens.
const LISTEN: &str = "\"subscriptions/listen\"";
/// The method whose calls have a line of their own in the log, with the tool.
const CALL: &str = "\"tools/call\"";

/// Bytes from which on a thread that serves others should not read a message: a millisecond, at a gigabyte a
/// second.
const LONG: usize = 1 << 20;

impl McpEndpoint {
    /// Prepares a POST for the service that answers it, or refuses it.
    pub(super) fn post<'a>(
        &self,
        owner: &str,
        services: &'a OwnerServices,
        mut request: Forwarded<'a>,
    ) -> Result<Forwarded<'a>, Box<Answer>> {
        let body = request.body.clone();
        let headers = &request.parts.headers;
        let wished = Preference::of(headers);
        let Seen { method, id, arguments } = may_take_long(body.len(), || check(headers, &body))
            .map_err(|refused| Box::new(wished.wrong(*refused)))?;
        let is_without_sessions = is_without_sessions(headers);
        let reads_events = accepts_events(headers);
        if let Some(arguments) = arguments.filter(|_| body.len() as u64 > SMALL) {
            let (short, long_texts) = may_take_long(body.len(), || take_out(&body, arguments))
                .map_err(|error| Box::new(wished.wrong(no_text(id.as_ref(), &error))))?;
            request.body = short.into();
            request.context.long_texts = long_texts;
        }
        request.context.message = request.parts.extensions.get().cloned();
        request.context.audit = request.parts.extensions.get().cloned();
        let fresh = request.parts.extensions.get().map(|FreshSession(id): &FreshSession| id.clone());
        request.context.fresh_session = fresh;
        log_message(method);
        request.context.quiet = !reads_events;
        let begins = method == Some(INITIALIZE) && reads_events;
        let in_session = begins || (request.session.is_some() && !is_without_sessions);
        if !in_session {
            request.context.preference = wished;
        }
        if method == Some(INITIALIZE) && !is_without_sessions {
            let whole = initialize::complete(&body);
            let whole = whole.map_err(|refusal| json(StatusCode::OK, &refusal.to_json()));
            if let Some(whole) =
                whole.map_err(|refusal| Box::new(request.context.preference.wrong(refusal)))?
            {
                request.body = whole.into();
            }
        }
        if in_session {
            note_id(services, &request, id.as_ref())?;
            if method.is_some() {
                self.make_resumable(owner, services, &mut request);
            }
        } else {
            request.service = &services.bare;
        }
        request.id = id;
        request.listens = method == Some(LISTEN);
        // Clients name one type, none, or `*/*`; the SDK wants to see both.
        let headers = &mut request.parts.headers;
        headers.insert(ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(JSON));
        Ok(request)
    }

    /// A message of a session: its answer can be resumed, and its calls that name no session have one of
    /// their own.
    fn make_resumable(&self, owner: &str, services: &OwnerServices, request: &mut Forwarded<'_>) {
        let session = request.session.as_deref();
        request.context.own_session = session.map(|id| self.own_session(owner, id));
        let call = ResumableCall::new(session.unwrap_or_default(), self.config.resume_window);
        request.reader = Some(AnswerReader::begin(call.clone(), services.replay.clone()));
        request.context.resumable = Some(call);
    }
}

/// Notes the id of a request. Refuses an id if the session has an unanswered request with the same id.
fn note_id(services: &OwnerServices, request: &Forwarded<'_>, id: Option<&Value>) -> Result<(), Box<Answer>> {
    if let (Some(session), Some(id)) = (&request.session, id)
        && !services.in_memory.ask(session, id, &request.context.in_progress)
    {
        let refusal = RpcRefusal::repeated_id(id);
        return Err(Box::new(json(StatusCode::BAD_REQUEST, &refusal.to_json())));
    }
    Ok(())
}

/// Logs a message that is not a call: a call has a line of its own.
fn log_message(method: Option<&str>) {
    if method != Some(CALL) {
        let shown: String = method.unwrap_or("none").chars().take(80).collect();
        info!(method = shown.trim_matches('"'), "message");
    }
}

/// Does work that takes long if a message is this large; the others that this thread serves are then served
/// by another.
pub(in crate::api) fn may_take_long<T>(bytes: usize, work: impl FnOnce() -> T) -> T {
    let others = Handle::current().runtime_flavor() == RuntimeFlavor::MultiThread;
    if bytes >= LONG && others { tokio::task::block_in_place(work) } else { work() }
}
