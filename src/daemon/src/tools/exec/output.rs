//! `get_execution_output`: events of an execution, from any number on, now or when there are some.

use std::sync::Arc;

use paddock_proto::Channel;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{WAIT, named, put_standing};
use crate::execution::{Event, Execution, Page, What};
use crate::session::excerpt;
use crate::tools::fault::Failure;
use crate::tools::text::Said;
use crate::tools::{Caller, Outcome, Tools, arguments, hint};

const TOOL: &str = "get_execution_output";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    #[serde(alias = "executionId")]
    execution_id: String,
    wait: Option<bool>,
    since: Option<u64>,
    lines: Option<bool>,
    session_id: Option<String>,
    #[serde(rename = "conversationId")]
    conversation_id: Option<String>,
}

pub(in crate::tools) async fn call(
    tools: &Arc<Tools>,
    caller: &Caller,
    given: Map<String, Value>,
) -> Result<Outcome, Failure> {
    let given: Arguments = arguments::read(TOOL, given)?;
    let ids = (given.execution_id.as_str(), given.conversation_id.as_deref(), given.session_id.as_deref());
    let execution = named(tools, caller, TOOL, ids)?;
    let since = given.since.unwrap_or(0);
    if given.wait == Some(true) {
        // Whoever says how far it has read wants what comes next; whoever does not wants all of it.
        let news = async {
            match given.since {
                Some(since) => execution.news(since).await,
                None => execution.over().await,
            }
        };
        let _ = tokio::time::timeout(WAIT, news).await;
    }
    let mut outcome = Outcome::default();
    put_standing(&mut outcome.document, &execution);
    put_page(tools, &mut outcome, &execution, since, given.lines == Some(true)).await?;
    Ok(outcome)
}

/// `output`, and where to go on: `next_since`, and `more` if there is more already. `apart` if each line is to be an
/// event of its own.
pub(super) async fn put_page(
    tools: &Tools,
    outcome: &mut Outcome,
    execution: &Arc<Execution>,
    since: u64,
    apart: bool,
) -> Result<(), Failure> {
    let is_over = execution.end().is_some();
    let page = execution.page(since, tools.limits.output, !apart).await?;
    // A number that there is not yet would pass over what is to come.
    let since = since.min(execution.progress().borrow().last);
    let last = page.events.last().map_or(since, |event| event.seq);
    outcome.said = Some(said(tools.limits.shown, execution, since, &page, is_over).await?);
    let document = &mut outcome.document;
    document.insert("output".into(), page.events.iter().map(Event::json).collect());
    document.insert("next_since".into(), json!(last));
    document.insert("more".into(), json!(page.more));
    let errors = text(&page.events, |channel| channel == Channel::Stderr);
    let end = &errors[errors.len() - errors.len().min(hint::LOOKED_AT)..];
    let failed = execution.end().is_some_and(|end| end.exit_code != Some(0));
    if let Some(hint) = hint::hint(&String::from_utf8_lossy(end), failed).filter(|_| is_over) {
        document.insert("hint".into(), json!(hint));
    }
    Ok(())
}

/// What a model is shown of the events after `since`. Whoever reads on gets the next of them; whoever reads all of
/// what is over, and more than is shown, gets the beginning and the end.
async fn said(
    shown: usize,
    execution: &Arc<Execution>,
    since: u64,
    page: &Page,
    is_over: bool,
) -> Result<Said, Failure> {
    let size: usize = page.events.iter().map(Event::output_size).sum();
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
    // A line that is longer than what is shown is on a page by itself, and cut within.
    let cut = if is_cut && first.len() + last.len() < all {
        excerpt(&first, last, all as u64, shown)
    } else {
        let known = [&first, last].concat();
        excerpt(&known, &known, known.len() as u64, shown)
    };
    Ok(Said {
        text: cut.text,
        events: head.events.iter().map(Event::json).collect(),
        next_since,
        more: head.more,
        tail: tail.map(|tail| String::from_utf8_lossy(&tail).into_owned()),
    })
}

/// Whether no line stands beside another that it could be joined with.
fn is_joined(page: &Page) -> bool {
    page.events.windows(2).all(|pair| !pair[0].goes_on_with(&pair[1]))
}

/// The output that events have, of the streams that are wanted.
fn text(events: &[Event], wanted: impl Fn(Channel) -> bool) -> Vec<u8> {
    let mut all = Vec::new();
    for event in events {
        match &event.what {
            What::Output { channel, bytes, eol } if wanted(*channel) => {
                all.extend_from_slice(bytes);
                all.extend(eol.then_some(b'\n'));
            }
            What::Output { .. } | What::Mark(_) => {}
        }
    }
    all
}
