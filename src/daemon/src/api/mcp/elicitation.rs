//! The questions of a call's programs, put to its client as MCP elicitation.
//!
//! ```text
//!  revisions with sessions, stdio: Question ─► elicitation/create on the call's stream ─► accept? yes : no
//!  2026-07-28:                     Question ─► the call is answered with it (rounds.rs)
//! ```
//!
//! It must never take anything but `accept` for a yes, nor put a question to a client that has not declared
//! that it asks its user by forms.

use rmcp::model::{
    ClientResult, ElicitRequest, ElicitRequestParams, ElicitResult, ElicitationAction, ElicitationSchema,
    ProtocolVersion, ServerRequest,
};
use rmcp::service::{PeerRequestOptions, RequestContext, RoleServer};

use super::call_context::CallContext;
use crate::egress::{Question, Questions};

/// How the client of a call can be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Elicitation {
    /// By a request while the call goes on.
    Request,
    /// By an answer to the call, which is then called again.
    Round,
}

impl Elicitation {
    /// How the client of this call can be asked; `None`: it cannot.
    pub(super) fn of(
        context: &RequestContext<RoleServer>,
        call_context: Option<&CallContext>,
    ) -> Option<Self> {
        let declared = context.client_capabilities()?.elicitation?;
        // A client that names no way means forms: there was no other at first.
        if declared.form.is_none() && declared.url.is_some() {
            return None;
        }
        if context.protocol_version()? >= ProtocolVersion::V_2026_07_28 {
            return Some(Self::Round);
        }
        // A bare call of HTTP has no session in which an answer could come back.
        let has_stream = call_context.is_none_or(|own| own.resumable.is_some() && !own.quiet);
        has_stream.then_some(Self::Request)
    }
}

/// The request for the client's user. It asks for no data: to accept it is the yes.
pub(super) fn request(question: &Question) -> ElicitRequest {
    let requested_schema = ElicitationSchema::new(Default::default());
    ElicitRequest::new(ElicitRequestParams::FormElicitationParams {
        meta: None,
        message: question.message(),
        requested_schema,
    })
}

/// Whether an answer is a yes.
pub(super) fn is_yes(result: &ElicitResult) -> bool {
    result.action == ElicitationAction::Accept
}

/// Puts each question to the client of the call, one at a time, as long as the call goes on.
pub(super) async fn serve(context: &RequestContext<RoleServer>, questions: Option<Questions>) {
    let Some(mut questions) = questions else { return };
    while let Some(mut question) = questions.next().await {
        let request = ServerRequest::ElicitRequest(request(&question));
        let sent = context.peer.send_cancellable_request(request, PeerRequestOptions::no_options()).await;
        // A client that is gone is noticed elsewhere; the question that is dropped is a no.
        let Ok(mut asked) = sent else { continue };
        tokio::select! {
            answered = &mut asked.rx => {
                let is_allowed = match answered.ok().and_then(Result::ok) {
                    Some(ClientResult::ElicitResult(result)) => is_yes(&result),
                    _ => false,
                };
                question.answer(is_allowed);
            }
            () = question.abandoned() => {
                let _ = asked.cancel(Some("the program does not wait any more".to_owned())).await;
            }
        }
    }
}
