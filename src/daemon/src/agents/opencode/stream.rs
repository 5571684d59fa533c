//! A line of opencode's stream (`run --format json`) as events.
//!
//! ```text
//!  text ─► Message · tool_use ─► Tool, and Denied if a rule or the level forbade it · error ─► Result
//!  step_finish: one turn of the model; the last one ─► Result · every other line: nothing to tell
//! ```
//!
//! opencode writes a use of a tool when it is over. Its stream has no last line: a turn that calls no tool is
//! the last one. It must never fail: a line that is none of the stream's is the caller's to show as text.

use serde_json::Value;

use crate::agents::event::{AgentEvent, MESSAGE, TaskResult, WHAT, beginning, one_line, shown_path};

/// How results of tools begin that a rule, the level, or nobody's answer forbade. They are opencode's own
/// words.
const REFUSALS: [&str; 3] = [
    "The user has specified a rule which prevents you from using this specific tool call",
    "Model tried to call unavailable tool",
    "The user rejected permission to use this specific tool call",
];
/// What the model says of a turn that called tools: another one follows.
const GOES_ON: &str = "tool-calls";
/// What the model says of a turn that ends the task.
const COMPLETE: &str = "stop";
/// The longest id of a conversation.
const ID: usize = 64;

/// Reads the lines of one task in their order.
#[derive(Debug, Default)]
pub(in crate::agents) struct Stream {
    /// What was used so far.
    used: TaskResult,
    conversation: Option<String>,
}

impl Stream {
    /// The events of a line; `None` if it is no line of the stream.
    pub(in crate::agents) fn read(&mut self, line: &[u8]) -> Option<Vec<AgentEvent>> {
        let line: Value = serde_json::from_slice(line).ok()?;
        let (kind, part) = (line["type"].as_str()?, &line["part"]);
        if let Some(id) = line["sessionID"].as_str().filter(|id| is_id(id)) {
            self.conversation = Some(id.to_owned());
        }
        let events = match kind {
            "text" => {
                let text = part["text"].as_str().filter(|text| !text.trim().is_empty());
                let text = text.map(|text| beginning(text, MESSAGE));
                if let Some(text) = &text {
                    self.used.text.clone_from(text);
                }
                text.map(|text| AgentEvent::Message { text }).into_iter().collect()
            }
            "tool_use" => tool_use(part),
            "step_finish" => self.turn(part).map(AgentEvent::Result).into_iter().collect(),
            "error" => {
                let error = &line["error"];
                let said = error["data"]["message"].as_str().or(error["name"].as_str());
                let text = beginning(said.unwrap_or("opencode failed"), MESSAGE);
                vec![AgentEvent::Result(TaskResult { success: false, text, ..self.used.clone() })]
            }
            _ => Vec::new(),
        };
        Some(events)
    }

    /// The id of the conversation, once a line has it.
    pub(in crate::agents) fn conversation(&self) -> Option<&str> {
        self.conversation.as_deref()
    }

    /// Counts a turn of the model. The result, if no other follows.
    fn turn(&mut self, part: &Value) -> Option<TaskResult> {
        let used = &mut self.used;
        let count = |value: &Value| value.as_u64().unwrap_or_default();
        let tokens = &part["tokens"];
        used.turns = used.turns.saturating_add(1);
        used.cost_usd += part["cost"].as_f64().filter(|cost| cost.is_finite()).unwrap_or_default();
        let output = count(&tokens["output"]).saturating_add(count(&tokens["reasoning"]));
        for (all, one) in [
            (&mut used.tokens.input, count(&tokens["input"])),
            (&mut used.tokens.output, output),
            (&mut used.tokens.cache_read, count(&tokens["cache"]["read"])),
            (&mut used.tokens.cache_write, count(&tokens["cache"]["write"])),
        ] {
            *all = all.saturating_add(one);
        }
        let text = std::mem::take(&mut used.text);
        match part["reason"].as_str() {
            Some(GOES_ON) => None,
            Some(COMPLETE) => Some(TaskResult { success: true, text, ..used.clone() }),
            reason => {
                let why = beginning(reason.unwrap_or("unknown"), WHAT);
                let text = format!("the model stopped before it was done: {why}");
                Some(TaskResult { success: false, text, ..used.clone() })
            }
        }
    }
}

/// Whether a text is an id as opencode gives them. No other text may become an argument of its program.
fn is_id(text: &str) -> bool {
    let rest = text.strip_prefix("ses_").unwrap_or_default();
    (1..=ID).contains(&rest.len()) && rest.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

fn tool_use(part: &Value) -> Vec<AgentEvent> {
    let Some(tool) = part["tool"].as_str() else { return Vec::new() };
    let (tool, state) = (beginning(tool, WHAT), &part["state"]);
    let what = describe(&tool, &state["input"]);
    let used = AgentEvent::Tool { tool: tool.clone(), what: what.clone() };
    let error = state["error"].as_str().filter(|_| state["status"] == "error").unwrap_or_default();
    match REFUSALS.iter().any(|refusal| error.starts_with(refusal)) {
        true => vec![used, AgentEvent::Denied { tool, what }],
        false => vec![used],
    }
}

/// What a tool does, in one line.
fn describe(tool: &str, input: &Value) -> String {
    let value = |key: &str| input[key].as_str().unwrap_or_default();
    let path = || shown_path(value("filePath"));
    let what = match tool {
        "write" => format!("writes {}", path()),
        "edit" => format!("edits {}", path()),
        "read" => format!("reads {}", path()),
        "apply_patch" => format!("edits {}", patched(value("patchText"))),
        "bash" => format!("runs {}", value("command")),
        "glob" | "grep" => format!("searches for {}", value("pattern")),
        "webfetch" => format!("fetches {}", value("url")),
        "websearch" => format!("searches the web for {}", value("query")),
        _ => format!("uses {tool}"),
    };
    one_line(&what)
}

/// The files that a patch names.
fn patched(patch: &str) -> String {
    let named = patch.lines().filter_map(|line| {
        let (action, path) = line.strip_prefix("*** ")?.split_once(" File: ")?;
        ["Add", "Update", "Delete"].contains(&action).then_some(shown_path(path.trim()))
    });
    named.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::agents::Tokens;

    fn read(stream: &mut Stream, line: &Value) -> Vec<AgentEvent> {
        stream.read(line.to_string().as_bytes()).expect("a line of the stream")
    }

    fn used(tool: &str, input: &Value, state: &Value) -> Value {
        let mut state = state.clone();
        state["input"] = input.clone();
        json!({ "type": "tool_use", "sessionID": "ses_df3a", "part": { "tool": tool, "state": state } })
    }

    fn finished(reason: &str) -> Value {
        let tokens = json!({ "total": 18, "input": 10, "output": 5, "reasoning": 1,
                             "cache": { "read": 2, "write": 1 } });
        json!({ "type": "step_finish", "part": { "reason": reason, "cost": 0.25, "tokens": tokens } })
    }

    #[test]
    fn every_use_of_a_tool_says_what_it_does() {
        let done = json!({ "status": "completed", "output": "ok" });
        for (tool, input, expected) in [
            ("write", json!({ "filePath": "/workspace/src/app.py" }), "writes src/app.py"),
            ("edit", json!({ "filePath": "/data/a b.py" }), "edits a b.py"),
            ("read", json!({ "filePath": "/etc/passwd" }), "reads /etc/passwd"),
            ("bash", json!({ "command": "npm test\n  --all" }), "runs npm test --all"),
            ("grep", json!({ "pattern": "TODO" }), "searches for TODO"),
            ("webfetch", json!({ "url": "http://a.com/" }), "fetches http://a.com/"),
            (
                "apply_patch",
                json!({ "patchText": "*** Begin Patch\n*** Add File: /data/a\n+x\n*** Update File: b\n" }),
                "edits a, b",
            ),
            ("todowrite", json!({}), "uses todowrite"),
            ("bash", json!({ "command": 7 }), "runs"),
        ] {
            let events = read(&mut Stream::default(), &used(tool, &input, &done));
            let expected = AgentEvent::Tool { tool: tool.to_owned(), what: expected.to_owned() };
            assert_eq!(events, [expected], "{input}");
        }
        let long = used("bash", &json!({ "command": "x".repeat(5000) }), &done);
        let [AgentEvent::Tool { what, .. }] = &read(&mut Stream::default(), &long)[..] else { panic!() };
        assert_eq!(what.chars().count(), WHAT + 1);
    }

    #[test]
    fn what_a_rule_or_the_level_forbade_is_denied_and_other_errors_are_not() {
        let input = json!({ "command": "docker ps" });
        let rule =
            "The user has specified a rule which prevents you from using this specific tool call. Here";
        let missing = "Model tried to call unavailable tool 'invalid'. Available tools: edit, write.";
        for (status, error, is_denied) in [
            ("error", rule, true),
            ("error", missing, true),
            ("error", "The user rejected permission to use this specific tool call.", true),
            ("error", "exit code 1", false),
            ("completed", rule, false),
            ("error", &format!("a program's own words: {rule}"), false),
        ] {
            let state = json!({ "status": status, "error": error, "output": error });
            let events = read(&mut Stream::default(), &used("bash", &input, &state));
            let denied = AgentEvent::Denied { tool: "bash".into(), what: "runs docker ps".into() };
            assert_eq!(events.contains(&denied), is_denied, "{status} {error}");
            assert_eq!(events.len(), if is_denied { 2 } else { 1 });
        }
    }

    #[test]
    fn the_result_is_the_last_turn_with_what_all_turns_used() {
        let mut stream = Stream::default();
        let text = |text: &str| json!({ "type": "text", "part": { "text": text } });
        assert_eq!(read(&mut stream, &text("I look.")), [AgentEvent::Message { text: "I look.".into() }]);
        assert_eq!(read(&mut stream, &finished("tool-calls")), []);
        read(&mut stream, &text("Done: 42"));
        let tokens = Tokens { input: 20, output: 12, cache_read: 4, cache_write: 2 };
        let expected = TaskResult { success: true, text: "Done: 42".into(), turns: 2, cost_usd: 0.5, tokens };
        assert_eq!(read(&mut stream, &finished("stop")), [AgentEvent::Result(expected)]);
        let [AgentEvent::Result(result)] = &read(&mut stream, &finished("length"))[..] else { panic!() };
        assert!(!result.success && result.text.ends_with("length"), "{result:?}");
        let api =
            json!({ "type": "error", "error": { "name": "APIError", "data": { "message": "used up" } } });
        for (line, text) in [
            (api, "used up"),
            (json!({ "type": "error", "error": { "name": "ProviderAuthError" } }), "ProviderAuthError"),
            (json!({ "type": "error" }), "opencode failed"),
        ] {
            let [AgentEvent::Result(result)] = &read(&mut stream, &line)[..] else { panic!() };
            assert_eq!((result.success, result.text.as_str(), result.turns), (false, text, 3), "{line}");
        }
    }

    #[test]
    fn a_conversation_has_an_id_of_opencodes_form_or_none() {
        let mut stream = Stream::default();
        for (id, expected) in [
            (json!("--auto"), None),
            (json!(7), None),
            (json!("ses_"), None),
            (json!("ses_a-b"), None),
            (json!(format!("ses_{}", "a".repeat(ID + 1))), None),
            (json!("ses_df3a81a8cffeMSt1O9LQIGBj3f"), Some("ses_df3a81a8cffeMSt1O9LQIGBj3f")),
            (json!("no"), Some("ses_df3a81a8cffeMSt1O9LQIGBj3f")),
        ] {
            read(&mut stream, &json!({ "type": "step_start", "sessionID": id }));
            assert_eq!(stream.conversation(), expected);
        }
    }

    #[test]
    fn a_line_of_something_else_is_none_and_one_that_says_nothing_has_no_event() {
        let mut stream = Stream::default();
        for line in ["", "hello", "{", "[]", "null", r#"{"kind":"x"}"#, r#"{"type":5}"#] {
            assert_eq!(stream.read(line.as_bytes()), None, "{line:?}");
        }
        for line in [
            json!({ "type": "step_start", "part": {} }),
            json!({ "type": "tool_use" }),
            json!({ "type": "text", "part": { "text": " " } }),
            json!({ "type": "something_new" }),
        ] {
            assert_eq!(read(&mut stream, &line), [], "{line}");
        }
    }
}
