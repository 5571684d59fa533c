//! A line of Claude Code's stream (`--output-format stream-json --verbose`) as events.
//!
//! ```text
//!  assistant: text ─► Message · tool_use ─► Tool · system/permission_denied, a missing tool ─► Denied
//!  result ─► Result · every other line of the stream: nothing to tell
//! ```
//!
//! What the agent writes comes out of a container: it is data to show, and nothing here decides by it. It
//! must never fail: a line that is none of the stream's is the caller's to show as text.

use serde_json::Value;

use crate::agents::event::{
    AgentEvent, MESSAGE, RememberedUses, TaskResult, Tokens, WHAT, beginning, one_line, shown_path,
};

/// Reads the lines of one task in their order.
#[derive(Debug, Default)]
pub(in crate::agents) struct Stream {
    uses: RememberedUses,
}

impl Stream {
    /// The events of a line; `None` if it is no line of the stream.
    pub(in crate::agents) fn read(&mut self, line: &[u8]) -> Option<Vec<AgentEvent>> {
        let line: Value = serde_json::from_slice(line).ok()?;
        let kind = line["type"].as_str()?;
        let mut events = Vec::new();
        match (kind, line["subtype"].as_str()) {
            ("assistant", _) => parts(&line).for_each(|part| events.extend(self.said(part))),
            ("system", Some("permission_denied")) => {
                events.extend(self.denied(&line["tool_use_id"], line["tool_name"].as_str()));
            }
            ("user", _) => {
                let missing = parts(&line).filter(|part| is_of_no_tool(part));
                let missing = missing.map(|part| &part["tool_use_id"]);
                let all = missing.chain(rejected(&line));
                events.extend(all.filter_map(|id| self.denied(id, None)));
            }
            ("result", _) => events.push(AgentEvent::Result(result(&line))),
            _ => {}
        }
        Some(events)
    }

    /// A part of what the model said.
    fn said(&mut self, part: &Value) -> Option<AgentEvent> {
        match part["type"].as_str()? {
            "text" => {
                let text = part["text"].as_str().filter(|text| !text.trim().is_empty())?;
                Some(AgentEvent::Message { text: beginning(text, MESSAGE) })
            }
            "tool_use" => {
                let tool = beginning(part["name"].as_str()?, WHAT);
                let what = describe(&tool, &part["input"]);
                let id = beginning(part["id"].as_str().unwrap_or_default(), WHAT);
                self.uses.push(id, tool.clone(), what.clone());
                Some(AgentEvent::Tool { tool, what })
            }
            _ => None,
        }
    }

    /// A use of a tool that was denied, told once.
    fn denied(&mut self, id: &Value, tool: Option<&str>) -> Option<AgentEvent> {
        match (self.uses.take(id.as_str()?), tool) {
            (Some((tool, what)), _) => Some(AgentEvent::Denied { tool, what }),
            (None, Some(tool)) => {
                let tool = beginning(tool, WHAT);
                Some(AgentEvent::Denied { what: format!("uses {tool}"), tool })
            }
            (None, None) => None,
        }
    }
}

fn parts(line: &Value) -> impl Iterator<Item = &Value> {
    line["message"]["content"].as_array().into_iter().flatten()
}

/// Whether the result of a tool says that the level does not have this tool.
fn is_of_no_tool(part: &Value) -> bool {
    part["type"] == "tool_result"
        && part["is_error"] == true
        && part["content"].as_str().is_some_and(|text| text.contains("No such tool available"))
}

/// The uses of tools that a rule rejected, where the stream says so beside their results.
fn rejected(line: &Value) -> impl Iterator<Item = &Value> {
    let all = line["tool_result_meta"].as_array().into_iter().flatten();
    all.filter(|one| one["permission_decision"]["decision"] == "reject").map(|one| &one["id"])
}

/// How the agent says that it ended.
fn result(line: &Value) -> TaskResult {
    let success = line["subtype"] == "success" && line["is_error"] != true;
    let errors = line["errors"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let errors = errors.collect::<Vec<_>>().join("; ");
    let said = line["result"].as_str().filter(|text| !text.is_empty());
    let text = match said {
        Some(text) => text,
        None if !errors.is_empty() => &errors,
        None => line["subtype"].as_str().unwrap_or_default(),
    };
    let models = || line["modelUsage"].as_object().into_iter().flat_map(|models| models.values());
    let sum = |key: &str| models().filter_map(|model| model[key].as_u64()).fold(0, u64::saturating_add);
    TaskResult {
        success,
        text: beginning(text, MESSAGE),
        turns: line["num_turns"].as_u64().unwrap_or_default(),
        cost_usd: line["total_cost_usd"].as_f64().unwrap_or_default(),
        tokens: Tokens {
            input: sum("inputTokens"),
            output: sum("outputTokens"),
            cache_read: sum("cacheReadInputTokens"),
            cache_write: sum("cacheCreationInputTokens"),
        },
    }
}

/// What a tool does, in one line.
fn describe(tool: &str, input: &Value) -> String {
    let value = |key: &str| input[key].as_str().unwrap_or_default();
    let path = |key: &str| shown_path(value(key));
    let what = match tool {
        "Write" => format!("writes {}", path("file_path")),
        "Edit" => format!("edits {}", path("file_path")),
        "NotebookEdit" => format!("edits {}", path("notebook_path")),
        "Read" => format!("reads {}", path("file_path")),
        "Bash" => format!("runs {}", value("command")),
        "Glob" | "Grep" => format!("searches for {}", value("pattern")),
        "WebFetch" => format!("fetches {}", value("url")),
        "WebSearch" => format!("searches the web for {}", value("query")),
        _ => format!("uses {tool}"),
    };
    one_line(&what)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::agents::event::REMEMBERED;

    fn read(reader: &mut Stream, line: &Value) -> Vec<AgentEvent> {
        reader.read(line.to_string().as_bytes()).expect("a line of the stream")
    }

    fn used(id: &str, tool: &str, input: &Value) -> Value {
        let part = json!({ "type": "tool_use", "id": id, "name": tool, "input": input });
        json!({ "type": "assistant", "message": { "content": [part] } })
    }

    fn denied(tool: &str, what: &str) -> Vec<AgentEvent> {
        vec![AgentEvent::Denied { tool: tool.to_owned(), what: what.to_owned() }]
    }

    #[test]
    fn every_use_of_a_tool_says_what_it_does() {
        for (tool, input, expected) in [
            ("Write", json!({ "file_path": "/workspace/src/app.py" }), "writes src/app.py"),
            ("Edit", json!({ "file_path": "/data/a b.py" }), "edits a b.py"),
            ("Read", json!({ "file_path": "/etc/passwd" }), "reads /etc/passwd"),
            ("Bash", json!({ "command": "npm test\n  --all" }), "runs npm test --all"),
            ("Grep", json!({ "pattern": "TODO" }), "searches for TODO"),
            ("WebFetch", json!({ "url": "http://a.com/" }), "fetches http://a.com/"),
            ("WebSearch", json!({ "query": "rust" }), "searches the web for rust"),
            ("NotebookEdit", json!({ "notebook_path": "/mnt/data/n.ipynb" }), "edits n.ipynb"),
            ("TodoWrite", json!({}), "uses TodoWrite"),
            ("Bash", json!({ "command": 7 }), "runs"),
        ] {
            let events = read(&mut Stream::default(), &used("t", tool, &input));
            let expected = AgentEvent::Tool { tool: tool.to_owned(), what: expected.to_owned() };
            assert_eq!(events, [expected], "{input}");
        }
        let long = used("t", "Bash", &json!({ "command": "x".repeat(5000) }));
        let [AgentEvent::Tool { what, .. }] = &read(&mut Stream::default(), &long)[..] else { panic!() };
        assert_eq!(what.chars().count(), WHAT + 1);
    }

    #[test]
    fn what_is_denied_is_told_once_with_what_it_was() {
        let mut reader = Stream::default();
        read(&mut reader, &used("t1", "Bash", &json!({ "command": "docker ps" })));
        read(&mut reader, &used("t2", "Bash", &json!({ "command": "touch x" })));
        let rule = json!({ "type": "system", "subtype": "permission_denied", "tool_name": "Bash",
                           "tool_use_id": "t1" });
        assert_eq!(read(&mut reader, &rule), denied("Bash", "runs docker ps"));
        let refused = |id: &str, text: &str, is_error: bool| {
            let part =
                json!({ "type": "tool_result", "is_error": is_error, "tool_use_id": id, "content": text });
            json!({ "type": "user", "message": { "role": "user", "content": [part] } })
        };
        let missing = "<tool_use_error>Error: No such tool available: Bash. It is disabled.</tool_use_error>";
        assert_eq!(read(&mut reader, &refused("t1", missing, true)), [], "a second time");
        assert_eq!(read(&mut reader, &refused("t2", missing, false)), [], "a program's own words");
        assert_eq!(read(&mut reader, &refused("t2", "exit code 1", true)), []);
        assert_eq!(read(&mut reader, &refused("t2", missing, true)), denied("Bash", "runs touch x"));
        read(&mut reader, &used("t3", "Write", &json!({ "file_path": "/data/.agent/x" })));
        let meta = |decision: &str| {
            json!({ "type": "user", "tool_result_meta": [
                { "id": "t3", "permission_decision": { "decision": decision } }] })
        };
        assert_eq!(read(&mut reader, &meta("accept")), []);
        assert_eq!(read(&mut reader, &meta("reject")), denied("Write", "writes .agent/x"));
        let unknown = json!({ "type": "system", "subtype": "permission_denied", "tool_name": "Write",
                              "tool_use_id": "t9" });
        assert_eq!(read(&mut reader, &unknown), denied("Write", "uses Write"));
    }

    #[test]
    fn the_result_has_its_words_its_cost_and_its_tokens() {
        let usage = json!({ "m": { "inputTokens": 300, "outputTokens": 60, "cacheReadInputTokens": 2,
            "cacheCreationInputTokens": 1 }, "n": { "inputTokens": 10, "outputTokens": u64::MAX } });
        let done = json!({ "type": "result", "subtype": "success", "is_error": false, "num_turns": 3,
            "total_cost_usd": 0.0024, "result": "Done: 42", "modelUsage": usage });
        let tokens = Tokens { input: 310, output: u64::MAX, cache_read: 2, cache_write: 1 };
        let expected =
            TaskResult { success: true, text: "Done: 42".into(), turns: 3, cost_usd: 0.0024, tokens };
        assert_eq!(read(&mut Stream::default(), &done), [AgentEvent::Result(expected)]);
        for (line, text) in [
            (
                json!({ "type": "result", "subtype": "error_max_budget_usd", "is_error": true,
                        "errors": ["Reached maximum budget ($0.1)"] }),
                "Reached maximum budget ($0.1)",
            ),
            (json!({ "type": "result", "subtype": "error_max_turns", "is_error": true }), "error_max_turns"),
            (json!({ "type": "result", "subtype": "success", "is_error": true, "result": "API" }), "API"),
            (json!({ "type": "result" }), ""),
        ] {
            let [AgentEvent::Result(result)] = &read(&mut Stream::default(), &line)[..] else { panic!() };
            assert_eq!((result.success, result.text.as_str()), (false, text), "{line}");
        }
    }

    #[test]
    fn a_line_of_something_else_is_none_and_one_that_says_nothing_has_no_event() {
        let mut reader = Stream::default();
        for line in ["", "hello", "{", "[]", "null", r#"{"kind":"x"}"#, r#"{"type":5}"#, "\u{1}"] {
            assert_eq!(reader.read(line.as_bytes()), None, "{line:?}");
        }
        assert_eq!(reader.read(b"\xff\xfe"), None);
        for line in [
            json!({ "type": "system", "subtype": "init", "tools": ["Read"] }),
            json!({ "type": "assistant" }),
            json!({ "type": "assistant", "message": { "content": [{ "type": "text", "text": " " }, 7] } }),
            json!({ "type": "something_new" }),
        ] {
            assert_eq!(read(&mut reader, &line), [], "{line}");
        }
        for number in 0..2000 {
            read(&mut reader, &used(&number.to_string(), "Read", &json!({})));
        }
        assert_eq!(reader.uses.len(), REMEMBERED);
    }
}
