//! Calls in rounds, for clients of 2026-07-28, which take no requests: a call whose program asks something is
//! answered with the question, and goes on while its client asks its user.
//!
//! ```text
//!  tools/call ─► OngoingCall ─ Question ─► answered: inputRequests, requestState ─► parked
//!  tools/call with requestState, inputResponses ─► taken up again ─► … ─► the result
//! ```
//!
//! A `requestState` is a random name that counts once, for the same token and tool. The program of a parked
//! call goes on as one whose question is not answered yet; a result that nobody takes up is dropped after an
//! hour. It must never start a program a second time for a client that comes back.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rmcp::model::{ElicitResult, ErrorData, InputRequest, InputRequiredResult, InputResponses};
use tokio::sync::oneshot;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::AbortOnDropHandle;

use super::elicitation;
use crate::cluster::ids::NodeTag;
use crate::egress::{Question, Questions};
use crate::session::OutputBacklog;
use crate::tools::{CallError, Outcome};

/// The name of the question among the inputs of a round.
const APPROVAL: &str = "approval";

/// Calls of one token that wait for their clients.
const MAX_PARKED: usize = 256;

/// How long a call waits for its client: longer than any question waits for an answer.
const PARKED_FOR: Duration = Duration::from_secs(3600 + 60);

/// A call that goes on beside its requests. Dropping it ends its program.
pub(super) struct OngoingCall {
    /// Its result.
    pub(super) done: oneshot::Receiver<Result<Outcome, CallError>>,
    /// What its program asks.
    pub(super) questions: Questions,
    /// Where its output can be followed.
    pub(super) output: Option<OutputBacklog>,
    /// Ends its program.
    pub(super) cancel: CancellationToken,
    _end: DropGuard,
}

impl OngoingCall {
    pub(super) fn new(
        done: oneshot::Receiver<Result<Outcome, CallError>>,
        questions: Questions,
        output: Option<OutputBacklog>,
        cancel: CancellationToken,
    ) -> Self {
        Self { done, questions, output, _end: cancel.clone().drop_guard(), cancel }
    }
}

/// A call whose client was sent a question.
struct ParkedCall {
    tool: String,
    call: OngoingCall,
    question: Question,
    /// Forgets it in time.
    _timer: AbortOnDropHandle<()>,
}

/// The calls of one token that wait for their clients, by their `requestState`.
#[derive(Default)]
pub(super) struct ParkedCalls(Mutex<HashMap<String, ParkedCall>>);

impl ParkedCalls {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, ParkedCall>> {
        // No code that can panic runs under this lock, so even a poisoned one holds valid data.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a call aside whose program asks something, and gives the answer for its client. Where there are
    /// other nodes, the answer's `requestState` says that the call waits at this one.
    ///
    /// # Errors
    /// Too many wait: the question is answered with no, and the call is given back.
    pub(super) fn park(
        self: &Arc<Self>,
        tool: &str,
        (call, question): (OngoingCall, Question),
        node: Option<NodeTag>,
    ) -> Result<InputRequiredResult, OngoingCall> {
        let request = InputRequest::Elicitation(elicitation::request(&question));
        let state = crate::id::random_hex::<16>();
        let state = node.map_or_else(|| state.clone(), |node| node.mark(&state));
        let (all, expired) = (Arc::downgrade(self), state.clone());
        let timer = tokio::spawn(async move {
            tokio::time::sleep(PARKED_FOR).await;
            if let Some(all) = all.upgrade() {
                let forgotten = all.lock().remove(&expired);
                drop(forgotten); // not under the lock
            }
        });
        let mut parked = self.lock();
        if parked.len() >= MAX_PARKED {
            timer.abort();
            question.answer(false);
            return Err(call);
        }
        let _timer = AbortOnDropHandle::new(timer);
        parked.insert(state.clone(), ParkedCall { tool: tool.to_owned(), call, question, _timer });
        drop(parked);
        let inputs = BTreeMap::from([(APPROVAL.to_owned(), request)]);
        Ok(InputRequiredResult::new(Some(inputs), Some(state)))
    }

    /// The call that a client takes up again, whose program has the client's answer from now on.
    ///
    /// # Errors
    /// No call of this tool waits under that state.
    pub(super) fn take_up(
        &self,
        tool: &str,
        state: &str,
        responses: Option<&InputResponses>,
    ) -> Result<OngoingCall, ErrorData> {
        let mut parked = self.lock();
        if parked.get(state).is_none_or(|call| call.tool != tool) {
            let message = "`requestState` names no call of this tool that waits for its client: it counts \
                           once, and for an hour; call again without it";
            return Err(ErrorData::invalid_params(message, None));
        }
        let found = parked.remove(state);
        drop(parked);
        let Some(ParkedCall { call, question, .. }) = found else {
            return Err(ErrorData::internal_error("a parked call is gone", None));
        };
        let answer = responses.and_then(|responses| responses.get(APPROVAL)).cloned();
        let answer = answer.and_then(|answer| serde_json::from_value::<ElicitResult>(answer).ok());
        question.answer(answer.is_some_and(|answer| elicitation::is_yes(&answer)));
        Ok(call)
    }
}
