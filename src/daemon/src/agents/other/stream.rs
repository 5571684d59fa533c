//! A line of a stranger's agent as events: paddock's own form, as `runner-images/README.md` documents it.
//!
//! ```text
//!  {"type":"message","text":"…"}                      {"type":"tool","tool":"…","what":"…"}
//!  {"type":"denied","tool":"…","what":"…"}            {"type":"result","success":true,"text":"…", …}
//! ```
//!
//! It must never fail: a line that is none of these is the caller's to show as text.

use serde_json::Value;

use crate::agents::event::{AgentEvent, MESSAGE, TaskResult, Tokens, WHAT, beginning, one_line, shown_path};

/// Reads the lines of one task; each stands for itself.
#[derive(Debug, Default)]
pub(in crate::agents) struct Stream;

impl Stream {
    /// The events of a line; `None` if it is no line of the form. A line of a type that this version does not
    /// know is one of it, without an event.
    #[expect(clippy::unused_self, reason = "as the streams of other agents")]
    pub(in crate::agents) fn read(&mut self, line: &[u8]) -> Option<Vec<AgentEvent>> {
        let line: Value = serde_json::from_slice(line).ok()?;
        let text = |key: &str, most| beginning(line[key].as_str().unwrap_or_default(), most);
        let tool = || {
            let tool = text("tool", WHAT);
            let what = line["what"].as_str().map_or_else(|| format!("uses {tool}"), str::to_owned);
            (tool, one_line(shown_path(&what)))
        };
        let event = match line["type"].as_str()? {
            "message" => {
                let text = text("text", MESSAGE);
                (!text.trim().is_empty()).then_some(AgentEvent::Message { text })
            }
            "tool" => Some(tool()).map(|(tool, what)| AgentEvent::Tool { tool, what }),
            "denied" => Some(tool()).map(|(tool, what)| AgentEvent::Denied { tool, what }),
            "result" => Some(AgentEvent::Result(TaskResult {
                success: line["success"] == true,
                text: text("text", MESSAGE),
                turns: line["turns"].as_u64().unwrap_or_default(),
                cost_usd: line["cost_usd"].as_f64().unwrap_or_default(),
                tokens: tokens(&line["tokens"]),
            })),
            _ => None,
        };
        Some(event.into_iter().collect())
    }
}

fn tokens(of: &Value) -> Tokens {
    let count = |key: &str| of[key].as_u64().unwrap_or_default();
    Tokens {
        input: count("input"),
        output: count("output"),
        cache_read: count("cache_read"),
        cache_write: count("cache_write"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Option<Vec<AgentEvent>> {
        Stream.read(line.as_bytes())
    }

    #[test]
    fn each_type_of_line_is_an_event() {
        let what = |what: &str| ("shell".to_owned(), what.to_owned());
        for (line, expected) in [
            (r#"{"type":"message","text":"hi"}"#, Some(AgentEvent::Message { text: "hi".into() })),
            (r#"{"type":"message","text":" "}"#, None),
            (
                r#"{"type":"tool","tool":"shell","what":"runs\nls"}"#,
                Some(what("runs ls")).map(|(tool, what)| AgentEvent::Tool { tool, what }),
            ),
            (
                r#"{"type":"denied","tool":"shell"}"#,
                Some(what("uses shell")).map(|(tool, what)| AgentEvent::Denied { tool, what }),
            ),
            (
                r#"{"type":"result","success":true,"text":"ok","turns":2,"cost_usd":0.5,"tokens":{"input":3}}"#,
                Some(AgentEvent::Result(TaskResult {
                    success: true,
                    text: "ok".into(),
                    turns: 2,
                    cost_usd: 0.5,
                    tokens: Tokens { input: 3, ..Tokens::default() },
                })),
            ),
            (r#"{"type":"result"}"#, Some(AgentEvent::Result(TaskResult::default()))),
            (r#"{"type":"thought","text":"hm"}"#, None),
        ] {
            assert_eq!(read(line), Some(expected.into_iter().collect()), "{line}");
        }
        for line in ["", "x", "[]", r#"{"text":"hi"}"#, r#"{"type":1}"#] {
            assert_eq!(read(line), None, "{line}");
        }
        let long = format!(r#"{{"type":"tool","tool":"{0}","what":"{0}"}}"#, "x".repeat(9000));
        let Some([AgentEvent::Tool { tool, what }]) = read(&long).as_deref().map(|all| [all[0].clone()])
        else {
            panic!("a tool")
        };
        assert_eq!((tool.chars().count(), what.chars().count()), (WHAT + 1, WHAT + 1));
    }
}
