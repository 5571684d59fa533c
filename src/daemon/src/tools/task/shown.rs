//! A page of a task's log as `get_execution_output` gives it: the agent's lines as events `message`, `tool`,
//! `denied` and `result`, and everything else as the output that it is.
//!
//! An event has the number of the line that it comes from. It must never pass over a line that is not whole
//! yet.

use std::sync::Arc;

use serde_json::{Value, json};

use super::progress::{TaskLog, line};
use crate::agents::{AgentEvent, Transcript};
use crate::execution::{EventBody, Execution, ExecutionEvent, Page};
use crate::session::excerpt;
use crate::tools::answer::ShownOutput;
use crate::tools::fault::Failure;
use crate::tools::{Outcome, Tools};

/// What a page shows.
struct ShownPage {
    events: Vec<Value>,
    text: String,
    /// The number of the last event that is shown in full.
    last: u64,
}

/// Adds `output`, `next_since` and `more`, as for a command.
pub(in crate::tools) async fn put_task_page(
    tools: &Tools,
    outcome: &mut Outcome,
    execution: &Arc<Execution>,
    since: u64,
) -> Result<(), Failure> {
    let is_over = execution.end().is_some();
    let since = since.min(execution.last_event());
    // What a line is about can stand in a line before it, on an earlier page.
    let mut log = TaskLog::of(execution);
    log.read_to(execution, since).await?;
    let page = execution.page(since, tools.limits.output, false).await?;
    let shown = show(&mut log.transcript, &page, since, is_over);
    let text = shown.text.as_bytes();
    outcome.output = Some(ShownOutput {
        text: excerpt(text, text, text.len() as u64, tools.limits.shown).text,
        events: shown.events.clone(),
        next_since: shown.last,
        more: page.more,
        tail: None,
    });
    outcome.document.insert("output".into(), Value::Array(shown.events));
    outcome.document.insert("next_since".into(), json!(shown.last));
    outcome.document.insert("more".into(), json!(page.more));
    Ok(())
}

fn show(transcript: &mut Transcript, page: &Page, since: u64, is_over: bool) -> ShownPage {
    let mut shown = ShownPage { events: Vec::new(), text: String::new(), last: since };
    let mut is_whole = true;
    for event in &page.events {
        let told = match &event.body {
            EventBody::Output { stream, bytes, eol } => {
                let told = transcript.take(*stream, bytes, *eol);
                is_whole = *eol || told.is_none();
                told
            }
            EventBody::Lifecycle(_) => None,
        };
        match &told {
            Some(events) => events.iter().for_each(|told| shown.tell(event, told)),
            None => shown.events.push(event.json()),
        }
        if let (None, EventBody::Output { bytes, .. }) = (&told, &event.body) {
            shown.say(&String::from_utf8_lossy(bytes));
        }
        if is_whole {
            shown.last = event.seq;
        }
    }
    // A line that never ends, or is longer than a page, has to be passed over all the same.
    if is_over || shown.last == since {
        shown.last = page.events.last().map_or(shown.last, |event| event.seq);
    }
    shown
}

impl ShownPage {
    fn tell(&mut self, event: &ExecutionEvent, told: &AgentEvent) {
        let mut value = serde_json::to_value(told).unwrap_or_default();
        let whole = event.json();
        (value["seq"], value["ts"]) = (whole["seq"].clone(), whole["ts"].clone());
        self.events.push(value);
        if let Some(line) = line(told) {
            self.say(&line);
        }
    }

    fn say(&mut self, line: &str) {
        self.text.push_str(line);
        self.text.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use paddock_proto::OutputStream;

    use super::*;
    use crate::execution::Lifecycle;

    fn output(seq: u64, text: &str, eol: bool) -> ExecutionEvent {
        let body = EventBody::Output { stream: OutputStream::Stdout, bytes: text.as_bytes().to_vec(), eol };
        ExecutionEvent { seq, at_ms: 0, body }
    }

    fn shown_of(page: &Page, since: u64, is_over: bool) -> ShownPage {
        show(&mut Transcript::of(crate::agents::CLAUDE_CODE), page, since, is_over)
    }

    fn page(events: Vec<ExecutionEvent>) -> Page {
        Page { events, more: false }
    }

    const MESSAGE: &str = r#"{"type":"assistant","message":{"content":[{"type":"text","text":"hi"},
        {"type":"tool_use","id":"1","name":"Bash","input":{"command":"ls"}}]}}"#;

    fn kinds(shown: &ShownPage) -> Vec<(&str, u64)> {
        let kind = |event: &Value| event["seq"].as_u64().unwrap();
        shown.events.iter().map(|event| (event["type"].as_str().unwrap(), kind(event))).collect()
    }

    #[test]
    fn lines_of_the_agent_are_events_and_others_are_output() {
        let message = MESSAGE.replace('\n', "");
        let ready = ExecutionEvent { seq: 1, at_ms: 0, body: EventBody::Lifecycle(Lifecycle::Ready) };
        let events = vec![
            ready,
            output(2, &message, true),
            output(3, r#"{"type":"system"}"#, true),
            output(4, "x", true),
        ];
        let shown = shown_of(&page(events), 0, false);
        assert_eq!(kinds(&shown), [("ready", 1), ("message", 2), ("tool", 2), ("stdout", 4)]);
        assert_eq!((shown.text.as_str(), shown.last), ("hi\n[runs ls]\nx\n", 4));
    }

    #[test]
    fn a_denial_says_what_was_denied_on_an_earlier_page_and_is_told_once() {
        let refused =
            r#"{"type":"system","subtype":"permission_denied","tool_use_id":"1","tool_name":"Bash"}"#;
        let ended = r#"{"type":"result","is_error":false,"result":"done",
            "permission_denials":[{"tool_use_id":"1","tool_name":"Bash"}]}"#;
        let pages = [(2, MESSAGE), (3, refused), (4, ended)];
        let mut transcript = Transcript::of(crate::agents::CLAUDE_CODE);
        let shown: Vec<_> = pages
            .into_iter()
            .map(|(seq, line)| {
                let page = page(vec![output(seq, &line.replace('\n', ""), true)]);
                show(&mut transcript, &page, seq - 1, false)
            })
            .collect();
        assert_eq!(kinds(&shown[1]), [("denied", 3)]);
        assert_eq!(shown[1].events[0]["what"], "runs ls");
        assert_eq!(kinds(&shown[2]), [("result", 4)], "it was told before");
    }

    #[test]
    fn a_line_that_is_not_whole_is_read_again() {
        let message = MESSAGE.replace('\n', "");
        let (first, last) = message.split_at(50);
        let shown =
            shown_of(&page(vec![output(2, "{\"type\":\"a\"}", true), output(3, first, false)]), 1, false);
        assert_eq!((kinds(&shown), shown.last), (vec![], 2));
        let shown = shown_of(&page(vec![output(3, first, false), output(4, last, true)]), 2, false);
        assert_eq!((kinds(&shown), shown.last), (vec![("message", 4), ("tool", 4)], 4));
        assert_eq!(shown_of(&page(vec![output(3, first, false)]), 2, false).last, 3, "it fills the page");
        let over = shown_of(&page(vec![output(2, "x", true), output(3, first, false)]), 1, true);
        assert_eq!(over.last, 3, "nothing more comes");
    }
}
