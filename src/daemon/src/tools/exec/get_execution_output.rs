//! `get_execution_output`: events of an execution, from any number on, at once or when there are some.

use std::sync::Arc;

use paddock_proto::OutputStream;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::{WAIT, find_execution, put_state};
use crate::config::ToolSet;
use crate::execution::{EventBody, Execution, ExecutionEvent, Page};
use crate::session::excerpt;
use crate::tools::answer::{HINT_READS, ShownOutput, hint};
use crate::tools::fault::Failure;
use crate::tools::registry::{Effect, Offer, Tool};
use crate::tools::session_name::SessionName;
use crate::tools::task::put_task_page;
use crate::tools::{Caller, Outcome, Tools};

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::tools) struct GetExecutionOutput {
    /// The id of the execution, from an earlier answer.
    #[serde(alias = "executionId")]
    execution_id: String,
    /// Wait until there is an event to read.
    #[schemars(extend("default" = false))]
    wait: Option<bool>,
    /// Return each line as an event of its own.
    #[schemars(extend("default" = false))]
    lines: Option<bool>,
    /// The seq of the last event already read: next_since of the previous answer.
    since: Option<u64>,
    /// Names the session and its files. Without it: the session of this connection, which the answer names.
    session_id: Option<SessionName>,
    /// Another name for session_id.
    #[serde(rename = "conversationId")]
    conversation_id: Option<SessionName>,
}

impl Tool for GetExecutionOutput {
    const NAME: &'static str = "get_execution_output";
    const SET: ToolSet = ToolSet::Exec;
    const TITLE: &'static str = "Read a command's output";
    const SUMMARY: &'static str = "returns the events after `since`. With `wait` it waits for the next event \
                                   or, without `since`, for the end";
    const EFFECT: Effect = Effect::ReadOnly;

    fn description(_: &Offer<'_>) -> String {
        "Read the events of an execution: ready, stdout and stderr (lines), resource_limit (which limit \
         ended it), and as the last event exit, timeout, cancelled or error. Each event has a seq; joined \
         lines have the seq of the last line. Events can be read again. With wait true the call waits: \
         for an event after since, or without since for the end; up to 45 seconds, and longer if the call \
         asks for progress. When more is true, call again with since set to next_since. An execution can \
         be read and ended by its id from any session of the same token; list_executions lists those of one \
         session."
            .to_owned()
    }

    async fn call(
        self,
        tools: &Arc<Tools>,
        caller: &Caller,
        cancel: CancellationToken,
    ) -> Result<Outcome, Failure> {
        let names = (self.conversation_id.as_ref(), self.session_id.as_ref());
        let execution = find_execution(tools, caller, Self::NAME, (&self.execution_id, names))?;
        if self.wait == Some(true) {
            // A caller that says how far it has read wants what comes next; any other wants all of it.
            let news = async {
                match self.since {
                    Some(since) => execution.news(since).await,
                    None => execution.over().await,
                }
            };
            tokio::select! {
                () = news => {}
                // A client that hears of the progress does not give up.
                () = tokio::time::sleep(WAIT), if caller.output.is_none() => {}
                () = cancel.cancelled() => {}
            }
        }
        let mut outcome = Outcome::default();
        put_state(&mut outcome.document, &execution);
        let since = self.since.unwrap_or(0);
        put_page(tools, &mut outcome, &execution, since, self.lines == Some(true)).await?;
        Ok(outcome)
    }
}

/// Adds `output`, and where to read on: `next_since`, and `more` if there is more already. With `apart` each
/// line is an event of its own.
pub(super) async fn put_page(
    tools: &Tools,
    outcome: &mut Outcome,
    execution: &Arc<Execution>,
    since: u64,
    apart: bool,
) -> Result<(), Failure> {
    if execution.spec.task.is_some() {
        return put_task_page(tools, outcome, execution, since).await;
    }
    let is_over = execution.end().is_some();
    let page = execution.page(since, tools.limits.output, !apart).await?;
    // A number that no event has yet would skip the events up to it.
    let since = since.min(execution.last_event());
    let last = page.events.last().map_or(since, |event| event.seq);
    outcome.output = Some(shorten(tools.limits.shown, execution, since, &page, is_over).await?);
    let document = &mut outcome.document;
    document.insert("output".into(), page.events.iter().map(ExecutionEvent::json).collect());
    document.insert("next_since".into(), json!(last));
    document.insert("more".into(), json!(page.more));
    let errors = text(&page.events, |stream| stream == OutputStream::Stderr);
    let end = &errors[errors.len() - errors.len().min(HINT_READS)..];
    let failed = execution.end().is_some_and(|end| end.exit_code != Some(0));
    let network = tools.network_of(execution.network().is_some());
    let errors = String::from_utf8_lossy(end);
    let packages = tools.takes_packages(&tools.exec_runner);
    let hint = hint(&errors, failed, network, packages).filter(|_| is_over);
    if let Some(hint) = tools.with_libraries(hint, &errors, failed, &tools.exec_runner) {
        document.insert("hint".into(), json!(hint));
    }
    Ok(())
}

/// Shortens the events after `since` for a model. A caller that reads on gets the next events; a caller that
/// reads all of an execution that has ended gets the beginning and the end, if all is too much.
async fn shorten(
    shown: usize,
    execution: &Arc<Execution>,
    since: u64,
    page: &Page,
    is_over: bool,
) -> Result<ShownOutput, Failure> {
    let size: usize = page.events.iter().map(ExecutionEvent::output_size).sum();
    let fits = !page.more && size <= shown && is_joined(page);
    let all = usize::try_from(execution.output()).unwrap_or(usize::MAX);
    let is_cut = is_over && since == 0 && all > shown;
    let joined = if fits {
        None
    } else {
        Some(execution.page(since, if is_cut { shown / 2 } else { shown }, true).await?)
    };
    let head = joined.as_ref().unwrap_or(page);
    let next_since = head.events.last().map_or(since, |event| event.seq);
    let first = text(&head.events, |_| true);
    let tail = if is_cut && head.more {
        Some(text(&execution.tail(next_since, shown / 2).await?.events, |_| true))
    } else {
        None
    };
    let last = tail.as_deref().unwrap_or_default();
    // A line that is longer than all that is shown is on a page by itself, and shortened within.
    let cut = if is_cut && first.len() + last.len() < all {
        excerpt(&first, last, all as u64, shown)
    } else {
        let known = [&first, last].concat();
        excerpt(&known, &known, known.len() as u64, shown)
    };
    Ok(ShownOutput {
        text: cut.text,
        events: head.events.iter().map(ExecutionEvent::json).collect(),
        next_since,
        more: head.more,
        tail: tail.map(|tail| String::from_utf8_lossy(&tail).into_owned()),
    })
}

/// Whether all lines are joined that can be.
fn is_joined(page: &Page) -> bool {
    page.events.windows(2).all(|pair| !pair[0].goes_on_with(&pair[1]))
}

/// The output in these events, of the wanted streams.
fn text(events: &[ExecutionEvent], wanted: impl Fn(OutputStream) -> bool) -> Vec<u8> {
    let mut all = Vec::new();
    for event in events {
        match &event.body {
            EventBody::Output { stream, bytes, eol } if wanted(*stream) => {
                all.extend_from_slice(bytes);
                all.extend(eol.then_some(b'\n'));
            }
            EventBody::Output { .. } | EventBody::Lifecycle(_) => {}
        }
    }
    all
}
