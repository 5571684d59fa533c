//! What a request brings beside its message.

use std::sync::{Arc, Mutex, PoisonError};

use tracing::Span;

use super::preference::Preference;
use super::resume::ResumableCall;
use crate::api::body::ReadMessage;
use crate::api::listening::ListenPermit;
use crate::api::long_texts::LongTexts;
use crate::audit::AuditEntry;
use crate::session::SessionId;
use crate::tools::{ReadPermit, ToolSets};

/// What a request brings beside its message. The SDK keeps a clone of it with the call, the answer's body
/// another.
#[derive(Clone, Default)]
pub(super) struct CallContext {
    /// What the answer holds until it is sent.
    permits: Arc<Mutex<Vec<ReadPermit>>>,
    /// The tool sets that the URL asks for.
    pub(super) sets: ToolSets,
    /// The client reads nothing but the answer: no stream of events.
    pub(super) quiet: bool,
    /// Whether a refusal is to be seen by the status of HTTP.
    pub(super) preference: Preference,
    /// The session of calls that name none.
    pub(super) own_session: Option<SessionId>,
    /// The id of the session that a call makes which names none, if it was chosen already.
    pub(super) fresh_session: Option<SessionId>,
    /// Ends the call some time after its client went away.
    pub(super) resumable: Option<Arc<ResumableCall>>,
    /// The span of the request, whose ids every line of its call has.
    pub(super) span: Option<Span>,
    /// Held by everything that works for the request: it is over when nothing holds it.
    pub(super) in_progress: Arc<()>,
    /// The long texts of its arguments, which the SDK does not see.
    pub(super) long_texts: LongTexts,
    /// Its message as it was read, with the permits of its body.
    pub(super) message: Option<Arc<ReadMessage>>,
    /// Its line in the audit log.
    pub(super) audit: Option<Arc<AuditEntry>>,
    /// Its permit among the streams that only listen.
    pub(super) listening: Option<Arc<ListenPermit>>,
}

impl CallContext {
    /// The context of a request that asks for these tool sets, within its span.
    pub(super) fn new(sets: ToolSets) -> Self {
        Self { sets, span: Some(Span::current()), ..Self::default() }
    }

    /// Keeps a permit until the answer is sent.
    pub(super) fn keep(&self, permit: ReadPermit) {
        self.permits.lock().unwrap_or_else(PoisonError::into_inner).push(permit);
    }
}
