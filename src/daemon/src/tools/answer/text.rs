//! An answer as plain text for a language model, as a good colleague would paste it: the output as it was,
//! the files that were made, and what went wrong, each once. Programs read the document instead.
//!
//! Where it cuts something, it must never leave out where the rest is.

mod lines;

use std::borrow::Cow;

use serde_json::{Map, Value, json};

use self::lines::TextLines;
use crate::session::excerpt;
use crate::tools::registry::AnswerForm;
use crate::tools::{Outcome, values};

/// Files that the text names; for more it names the tool that lists them all.
const FILES: usize = 20;

/// The fields of a run that its compact document keeps: the least that clients were promised, and what went
/// wrong.
const OF_A_RUN: [&str; 15] = [
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
    "network",
    "models",
];

/// Fields that repeat another.
const SAID_ELSEWHERE: [&str; 4] = ["success", "conversationId", "id", "url"];

/// The output of a command, shortened for a model.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::tools) struct ShownOutput {
    /// As text, with a mark where something is left out.
    pub(in crate::tools) text: String,
    /// The events of its beginning, with joined lines.
    pub(in crate::tools) events: Vec<Value>,
    /// The number of the last of these events.
    pub(in crate::tools) next_since: u64,
    /// Whether more events follow.
    pub(in crate::tools) more: bool,
    /// The end of the output, where its middle is left out.
    pub(in crate::tools) tail: Option<String>,
}

impl Outcome {
    /// The answer as text: about `shown` bytes of output, and the words around it.
    pub(crate) fn text(&self, shown: usize) -> String {
        let mut lines = TextLines::default();
        if self.code().is_some() && !self.document.contains_key("run_id") {
            fault(&self.document, &mut lines);
        } else {
            match (self.form, &self.output) {
                (_, Some(output)) => command(&self.document, output, &mut lines),
                (AnswerForm::Run, None) => run(&self.document, &mut lines),
                (AnswerForm::File, None) => {
                    read_artifact(&self.document, !self.images.is_empty(), shown, &mut lines);
                }
                (AnswerForm::Files, None) => list_artifacts(&self.document, &mut lines),
                (AnswerForm::Fields, None) => lines.fields(&self.document, &SAID_ELSEWHERE),
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

    /// The answer as a document for a model, or for a client that reads nothing but the text: a run with its
    /// most important fields, a command with its events joined and bounded, anything else in full.
    pub(crate) fn compact(&self) -> Cow<'_, Map<String, Value>> {
        let picked = |wanted: &dyn Fn(&str, &Value) -> bool| -> Map<String, Value> {
            let fields = self.document.iter().filter(|(key, value)| wanted(key, value));
            fields.map(|(key, value)| (key.clone(), value.clone())).collect()
        };
        match (self.form, &self.output) {
            (AnswerForm::Run, _) => {
                let output = self.document.get("output").and_then(Value::as_str).unwrap_or_default();
                // The output ends with why the program ended, but not with why nothing is saved.
                let is_new = |value: &Value| value.as_str().is_some_and(|text| !output.ends_with(text));
                Cow::Owned(picked(&|key, value| {
                    OF_A_RUN.contains(&key) || (key == "message" && is_new(value))
                }))
            }
            (_, Some(shown)) => {
                let mut document = picked(&|key, _| !["output", "conversationId"].contains(&key));
                document.insert("output".into(), Value::Array(shown.events.clone()));
                document.insert("next_since".into(), json!(shown.next_since));
                document.insert("more".into(), json!(shown.more));
                if let Some(tail) = &shown.tail {
                    document.insert("tail".into(), json!(tail));
                }
                Cow::Owned(document)
            }
            (AnswerForm::Fields | AnswerForm::File | AnswerForm::Files, None) => {
                Cow::Borrowed(&self.document)
            }
        }
    }

    /// The same without base64, which a model cannot read.
    pub(crate) fn for_a_model(&self, shown: usize) -> Map<String, Value> {
        let compact = self.compact();
        let readable = compact.iter().filter(|(key, _)| *key != "content_base64");
        let mut document: Map<String, Value> =
            readable.map(|(key, value)| (key.clone(), value.clone())).collect();
        if self.form == AnswerForm::File
            && let Some(text) = document.get("text").and_then(Value::as_str)
        {
            let text = excerpt(text.as_bytes(), text.as_bytes(), text.len() as u64, shown).text;
            document.insert("text".into(), json!(text));
        }
        document
    }
}

/// The output of a command, and its state.
fn command(document: &Map<String, Value>, output: &ShownOutput, lines: &mut TextLines) {
    let text = |key: &str| document.get(key).and_then(Value::as_str);
    lines.paste(&output.text);
    let id = text("execution_id").unwrap_or_default();
    let code = document.get("exit_code").and_then(Value::as_i64);
    match (text("status"), text("error_message")) {
        (Some("completed"), _) if code == Some(0) && output.text.is_empty() => lines.say("(no output)"),
        (Some("completed"), _) if code == Some(0) => {}
        (Some("completed"), _) => lines.say(&format!("[exit code {}]", code.unwrap_or(-1))),
        (Some("running"), _) => {
            lines.say(&format!("[running: execution_id {id}, next_since {}]", output.next_since));
        }
        (Some(status), Some(message)) => lines.say(&format!("[{status}: {message}]")),
        (Some(status), None) => lines.say(&format!("[{status}]")),
        (None, _) => {}
    }
    if output.more {
        let since = output.next_since;
        lines.say(&format!(
            "[there is more: get_execution_output with execution_id {id} and since {since} reads on]"
        ));
    }
    for open in document.get("ports").and_then(Value::as_array).into_iter().flatten() {
        lines.say(&format!(
            "[port {} is open at {}]",
            open["port"],
            open["url"].as_str().unwrap_or_default()
        ));
    }
    blocked(document, lines);
    lines.say_all(document, &["hint", "message"]);
}

/// One sentence for each destination that the program could not reach by policy.
fn blocked(document: &Map<String, Value>, lines: &mut TextLines) {
    let all = document.get("network").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    for destination in all.iter().filter(|destination| destination["allowed"] == json!(false)) {
        let text = |key: &str| destination[key].as_str().unwrap_or_default();
        let (host, port) = (text("host"), &destination["port"]);
        let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
        // Of a name that was looked up and refused no port is known.
        let port = if port == &json!(0) { String::new() } else { format!(":{port}") };
        lines.say(&format!("{host}{port} was blocked: {}", text("reason")));
    }
}

/// A refusal: its code, its sentence and its details.
fn fault(document: &Map<String, Value>, lines: &mut TextLines) {
    let text = |key: &str| document.get(key).and_then(Value::as_str).unwrap_or_default();
    lines.say(&format!("{}: {}", text("error"), text("message")));
    lines.fields(document, &["success", "error", "message", "output", "files", "conversationId"]);
}

fn run(document: &Map<String, Value>, lines: &mut TextLines) {
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
    // Where a limit ended the program, the output names it.
    if code != 0 && !document.contains_key("message") {
        lines.say(&format!("[exit code {code}]"));
    }
    // The output ends with why the program ended, but not with why nothing is saved.
    if let Some(message) = text("message").filter(|message| !output.ends_with(message)) {
        lines.say(message);
    }
    blocked(document, lines);
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
fn files(all: &[Value], are_more: bool, lines: &mut TextLines) {
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

fn list_artifacts(document: &Map<String, Value>, lines: &mut TextLines) {
    let listed = document.get("artifacts").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    if listed.is_empty() {
        lines.say("(no files)");
    }
    // A caller that asks for the list gets all of it.
    listed.chunks(FILES).for_each(|some| files(some, false, lines));
    if let Some(cursor) = document.get("next_cursor").and_then(Value::as_str) {
        let total = document.get("total").and_then(Value::as_u64).unwrap_or_default();
        lines.say(&format!("[{} of {total} files; call again with cursor {cursor}]", listed.len()));
    }
}

fn read_artifact(document: &Map<String, Value>, is_shown: bool, shown: usize, lines: &mut TextLines) {
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
