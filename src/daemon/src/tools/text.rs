//! What a model reads of an answer: plain text, as a good colleague would paste it. The output as it was, the files
//! that were made, what went wrong; nothing twice. Programs read the document.
//!
//! It must never leave out where the rest is of what it cuts.

mod lines;

use std::borrow::Cow;

use serde_json::{Map, Value, json};

use self::lines::Lines;
use super::{Outcome, catalog, values};
use crate::config::ToolSet;
use crate::session::excerpt;

/// Files of one answer that are named; the tool that lists all of them is named too.
const FILES: usize = 20;

/// Fields of a run that its compact document has, where they are there: the least that S0 promises, and what went
/// wrong.
const OF_A_RUN: [&str; 13] = [
    "success",
    "output",
    "files",
    "files_truncated",
    "session_id",
    "exit_code",
    "limit",
    "error",
    "hint",
    "log_url",
    "not_saved",
    "earlier_runs",
    "images_not_shown",
];

/// Fields that say what another says already.
const SAID_ELSEWHERE: [&str; 4] = ["success", "conversationId", "id", "url"];

/// Output of a command, in what a model is shown.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Said {
    /// As text, with a mark where something is left out.
    pub(super) text: String,
    /// The events of its beginning, lines joined.
    pub(super) events: Vec<Value>,
    /// The number of the last of them.
    pub(super) next_since: u64,
    /// Whether there are more behind them.
    pub(super) more: bool,
    /// The end of an output whose middle is left out.
    pub(super) tail: Option<String>,
}

impl Outcome {
    /// The answer as text, in about `shown` bytes and what is said around the output.
    pub(crate) fn text(&self, shown: usize) -> String {
        let mut lines = Lines::default();
        if self.document.contains_key("error") && !self.document.contains_key("run_id") {
            fault(&self.document, &mut lines);
        } else {
            match self.tool {
                "run_code" | "run_python" => run(&self.document, &mut lines),
                "execute_code" | "get_execution_output" if self.said.is_some() => self.command(&mut lines),
                "read_artifact" => read_artifact(&self.document, !self.images.is_empty(), shown, &mut lines),
                "list_artifacts" => list_artifacts(&self.document, &mut lines),
                _ => lines.fields(&self.document, &SAID_ELSEWHERE),
            }
        }
        if self.is_new_session
            && let Some(id) = self.document.get("session_id").and_then(Value::as_str)
            && !lines.has(id)
        {
            lines.say(&format!("session_id: {id}"));
        }
        lines.done()
    }

    /// The answer as a document for a model, or for a client that has nothing but its text: of a run the least that
    /// there must be, of a command its events, joined and bounded; of anything else all of it.
    pub(crate) fn compact(&self) -> Cow<'_, Map<String, Value>> {
        let picked = |wanted: &dyn Fn(&str, &Value) -> bool| -> Map<String, Value> {
            let fields = self.document.iter().filter(|(key, value)| wanted(key, value));
            fields.map(|(key, value)| (key.clone(), value.clone())).collect()
        };
        match (self.tool, &self.said) {
            ("run_code" | "run_python", _) => {
                let output = self.document.get("output").and_then(Value::as_str).unwrap_or_default();
                // What is said of an end stands in the output already; that nothing is saved does not.
                let is_new = |value: &Value| value.as_str().is_some_and(|text| !output.ends_with(text));
                Cow::Owned(picked(&|key, value| {
                    OF_A_RUN.contains(&key) || (key == "message" && is_new(value))
                }))
            }
            (_, Some(said)) => {
                let mut document = picked(&|key, _| !["output", "conversationId"].contains(&key));
                document.insert("output".into(), Value::Array(said.events.clone()));
                document.insert("next_since".into(), json!(said.next_since));
                document.insert("more".into(), json!(said.more));
                if let Some(tail) = &said.tail {
                    document.insert("tail".into(), json!(tail));
                }
                Cow::Owned(document)
            }
            (_, None) => Cow::Borrowed(&self.document),
        }
    }

    /// The same without what a model cannot read.
    pub(crate) fn for_a_model(&self, shown: usize) -> Map<String, Value> {
        let compact = self.compact();
        let readable = compact.iter().filter(|(key, _)| *key != "content_base64");
        let mut document: Map<String, Value> =
            readable.map(|(key, value)| (key.clone(), value.clone())).collect();
        if self.tool == "read_artifact"
            && let Some(text) = document.get("text").and_then(Value::as_str)
        {
            let text = excerpt(text.as_bytes(), text.as_bytes(), text.len() as u64, shown).text;
            document.insert("text".into(), json!(text));
        }
        document
    }

    /// Whether it tells of shell commands.
    pub(crate) fn is_of_a_command(&self) -> bool {
        catalog::find(self.tool).is_some_and(|(_, set)| set == ToolSet::Exec)
    }

    /// A command's output, and how it stands.
    fn command(&self, lines: &mut Lines) {
        let document = &self.document;
        let text = |key: &str| document.get(key).and_then(Value::as_str);
        let Some(said) = &self.said else { return };
        lines.paste(&said.text);
        let id = text("execution_id").unwrap_or_default();
        let code = document.get("exit_code").and_then(Value::as_i64);
        match (text("status"), text("error_message")) {
            (Some("completed"), _) if code == Some(0) && said.text.is_empty() => lines.say("(no output)"),
            (Some("completed"), _) if code == Some(0) => {}
            (Some("completed"), _) => lines.say(&format!("[exit code {}]", code.unwrap_or(-1))),
            (Some("running"), _) => {
                lines.say(&format!("[running: execution_id {id}, next_since {}]", said.next_since));
            }
            (Some(status), Some(message)) => lines.say(&format!("[{status}: {message}]")),
            (Some(status), None) => lines.say(&format!("[{status}]")),
            (None, _) => {}
        }
        if said.more {
            let since = said.next_since;
            lines.say(&format!(
                "[there is more: get_execution_output with execution_id {id} and since {since} reads on]"
            ));
        }
        lines.say_all(document, &["hint", "message"]);
    }
}

/// What could not be done, and why.
fn fault(document: &Map<String, Value>, lines: &mut Lines) {
    let text = |key: &str| document.get(key).and_then(Value::as_str).unwrap_or_default();
    lines.say(&format!("{}: {}", text("error"), text("message")));
    lines.fields(document, &["success", "error", "message", "output", "files", "conversationId"]);
}

fn run(document: &Map<String, Value>, lines: &mut Lines) {
    let text = |key: &str| document.get(key).and_then(Value::as_str);
    let is_set = |key: &str| document.get(key) == Some(&Value::Bool(true));
    let output = text("output").unwrap_or_default();
    lines.paste(output);
    let code = document.get("exit_code").and_then(Value::as_i64).unwrap_or_default();
    if output.is_empty() && code == 0 {
        lines.say("(no output)");
    }
    if let Some(made) = document.get("artifacts").and_then(Value::as_array).filter(|made| !made.is_empty()) {
        lines.say("Files made or changed:");
        files(made, is_set("artifacts_truncated"), lines);
    }
    // A bound that ended it is named in the output.
    if code != 0 && !document.contains_key("message") {
        lines.say(&format!("[exit code {code}]"));
    }
    // What is said of an end stands in the output already; that nothing is saved does not.
    if let Some(message) = text("message").filter(|message| !output.ends_with(message)) {
        lines.say(message);
    }
    lines.say_all(document, &["hint"]);
    if let Some(url) = text("log_url") {
        lines.say(&format!("The whole output: {url}"));
    }
    for key in ["not_saved", "earlier_runs"] {
        if let Some(told) = document.get(key) {
            lines.say(&format!("{key}: {told}"));
        }
    }
    if let Some(more) = document.get("images_not_shown") {
        lines.say(&format!("[{more} more pictures are not shown]"));
    }
}

/// One line for each file, of the first of them.
fn files(all: &[Value], are_more: bool, lines: &mut Lines) {
    for file in all.iter().take(FILES) {
        let text = |key: &str| file[key].as_str().unwrap_or_default();
        let size = values::size(file["size_bytes"].as_u64().unwrap_or_default());
        lines.say(&format!("{} ({size}, {}) {}", text("path"), text("mime_type"), text("download_url")));
    }
    if all.len() > FILES || are_more {
        let more = if are_more { "more".to_owned() } else { format!("{} more", all.len() - FILES) };
        lines.say(&format!("[{more}: list_artifacts lists all files]"));
    }
}

fn list_artifacts(document: &Map<String, Value>, lines: &mut Lines) {
    let listed = document.get("artifacts").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    if listed.is_empty() {
        lines.say("(no files)");
    }
    // Whoever asks for a list is told all of it.
    listed.chunks(FILES).for_each(|some| files(some, false, lines));
    if let Some(cursor) = document.get("next_cursor").and_then(Value::as_str) {
        let total = document.get("total").and_then(Value::as_u64).unwrap_or_default();
        lines.say(&format!("[{} of {total} files; call again with cursor {cursor}]", listed.len()));
    }
}

fn read_artifact(document: &Map<String, Value>, is_shown: bool, shown: usize, lines: &mut Lines) {
    let text = |key: &str| document.get(key).and_then(Value::as_str).unwrap_or_default();
    if let Some(content) = document.get("text").and_then(Value::as_str).filter(|_| !is_shown) {
        let cut = excerpt(content.as_bytes(), content.as_bytes(), content.len() as u64, shown);
        lines.paste(&cut.text);
        if cut.truncated {
            lines.say(&format!("The whole file: {}", text("download_url")));
        }
        return;
    }
    let size = values::size(document.get("size_bytes").and_then(Value::as_u64).unwrap_or_default());
    let why = if is_shown { "" } else { "; it is not text, or too long to be shown" };
    lines.say(&format!("{} ({size}, {}{why}) {}", text("path"), text("mime_type"), text("download_url")));
}

#[cfg(test)]
mod tests;
