//! One call of a tool, from its beginning to its end, and the reports of its progress beside it.
//!
//! It must never report progress to a client that did not ask for it.

use std::convert::Infallible;
use std::pin::pin;
use std::time::Duration;

use rmcp::model::{InputRequiredResult, ProgressToken};
use rmcp::service::{RequestContext, RoleServer};
use serde_json::{Map, Value};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, Span};

use super::call_context::CallContext;
use super::elicitation::{self, Elicitation};
use super::handler::Handler;
use super::progress::ProgressReports;
use super::rounds::OngoingCall;
use crate::egress::questions;
use crate::session::{OutputBacklog, Pace};
use crate::tools::{CallError, Outcome};

/// In a call's `_meta`: `whole`, if the program is to wait for a slow reader.
const OUTPUT: &str = "paddock/output";
const WHOLE: &str = "whole";

/// How long the last pieces of output may take to be sent before the answer.
const LAST_PIECES: Duration = Duration::from_secs(5);

impl Handler {
    /// Calls a tool and reports its progress, until it has ended: by itself, because its client took it back
    /// or went away, or because the daemon ends.
    pub(super) async fn call(
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
    pub(super) fn begin(
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
    pub(super) async fn go_on(
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
    pub(super) fn elicitation(&self, context: &RequestContext<RoleServer>) -> Option<Elicitation> {
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
