//! Which session a tool call is about, from its name and its arguments: pure.
//!
//! Only three members are read, and nothing is checked: a call whose arguments are wrong concerns nothing, so
//! the node that got it refuses it, in the same words as any other.

use serde::Deserialize;
use serde_json::{Map, Value};

use super::ids::NodeTag;
use crate::session::SessionId;

/// What a call may do to the session that it is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// It uses what is there, or ends it: a session that does not exist gets no owner by it.
    Existing,
    /// It makes the session if there is none.
    Make,
}

/// What a call is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Concern {
    /// No session: any node answers it.
    Nothing,
    /// A session of this name.
    Session(SessionId, Access),
    /// The session of calls that name none, which may be new.
    Unnamed(Access),
    /// The execution of this id, made by the node that has this tag.
    Execution(NodeTag, String),
}

/// What a tool works on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Subject {
    /// What every node has.
    Node,
    /// A session.
    Session(Access),
    /// An execution.
    Execution,
}

/// The members of a call's arguments that say whom it concerns.
#[derive(Default, Deserialize)]
struct Named {
    session_id: Option<Value>,
    #[serde(rename = "conversationId")]
    conversation_id: Option<Value>,
    #[serde(alias = "executionId")]
    execution_id: Option<Value>,
}

impl Concern {
    /// What a call is about whose arguments are this JSON.
    #[must_use]
    pub fn of_json(tool: &str, arguments: &[u8]) -> Self {
        let named =
            if arguments.is_empty() { Ok(Named::default()) } else { serde_json::from_slice(arguments) };
        named.map_or(Self::Nothing, |named: Named| Self::of(tool, named))
    }

    /// What a call is about whose arguments were read already.
    #[must_use]
    pub fn of_arguments(tool: &str, arguments: &Map<String, Value>) -> Self {
        let member = |name: &str| arguments.get(name).cloned();
        let named = Named {
            session_id: member("session_id"),
            conversation_id: member("conversationId"),
            execution_id: member("execution_id").or_else(|| member("executionId")),
        };
        Self::of(tool, named)
    }

    fn of(tool: &str, named: Named) -> Self {
        let Some(subject) = subject(tool.strip_prefix("sandbox.").unwrap_or(tool)) else {
            return Self::Nothing;
        };
        let text = |value: Option<Value>| match value {
            Some(Value::String(text)) => Ok(Some(text)),
            Some(Value::Null) | None => Ok(None),
            Some(_) => Err(()),
        };
        let (Ok(one), Ok(another)) = (text(named.session_id), text(named.conversation_id)) else {
            return Self::Nothing;
        };
        let id = match (one, another) {
            (Some(one), Some(another)) if one != another => return Self::Nothing,
            (one, another) => one.or(another),
        };
        match (subject, id) {
            (Subject::Node, _) => Self::Nothing,
            (Subject::Execution, _) => match text(named.execution_id) {
                Ok(Some(id)) => {
                    NodeTag::of_execution(&id).map_or(Self::Nothing, |tag| Self::Execution(tag, id))
                }
                Ok(None) | Err(()) => Self::Nothing,
            },
            (Subject::Session(access), Some(id)) => {
                id.parse().map_or(Self::Nothing, |id| Self::Session(id, access))
            }
            (Subject::Session(access), None) => Self::Unnamed(access),
        }
    }
}

/// What a tool works on; `None` for a name that no tool has.
fn subject(tool: &str) -> Option<Subject> {
    Some(match tool {
        "run_code" | "run_python" | "upload_file" | "execute_code" | "execute_code_async"
        | "execute_task" => Subject::Session(Access::Make),
        "read_artifact" | "list_artifacts" | "close_session" | "list_executions" | "get_sandbox_status"
        | "download_files" | "cleanup_sandbox" => Subject::Session(Access::Existing),
        "get_execution_output" | "get_execution_status" | "send_stdin" | "cancel_execution" => {
            Subject::Execution
        }
        "list_runners" => Subject::Node,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tool_has_a_subject() {
        for tool in &crate::tools::TOOLS {
            assert!(subject(tool.name).is_some(), "{}: which node answers it?", tool.name);
        }
        assert_eq!(subject("run"), None);
    }

    #[test]
    fn a_call_concerns_the_session_that_it_names() {
        let session = |id: &str, access| Concern::Session(id.parse().unwrap(), access);
        for (tool, arguments, want) in [
            ("run_code", r#"{"session_id":"a","code":"x"}"#, session("a", Access::Make)),
            ("sandbox.run_code", r#"{"conversationId":"a"}"#, session("a", Access::Make)),
            ("run_python", r#"{"session_id":"a","conversationId":"a"}"#, session("a", Access::Make)),
            ("run_code", r#"{"session_id":null,"code":"session_id"}"#, Concern::Unnamed(Access::Make)),
            ("run_code", "", Concern::Unnamed(Access::Make)),
            ("read_artifact", r#"{"session_id":"é"}"#, session("é", Access::Existing)),
            ("list_executions", "{}", Concern::Unnamed(Access::Existing)),
            ("list_runners", r#"{"session_id":"a"}"#, Concern::Nothing),
            // What the tool will refuse, this node refuses.
            ("run_code", r#"{"session_id":"a","conversationId":"b"}"#, Concern::Nothing),
            ("run_code", r#"{"session_id":""}"#, Concern::Nothing),
            ("run_code", r#"{"session_id":7}"#, Concern::Nothing),
            ("run_code", r#"{"session_id":"a","session_id":"b"}"#, Concern::Nothing),
            ("no_tool", r#"{"session_id":"a"}"#, Concern::Nothing),
        ] {
            assert_eq!(Concern::of_json(tool, arguments.as_bytes()), want, "{tool} {arguments}");
            if let Ok(read) = serde_json::from_str(if arguments.is_empty() { "{}" } else { arguments })
                && !arguments.contains(r#""session_id":"a","session_id""#)
            {
                assert_eq!(Concern::of_arguments(tool, &read), want, "{tool} {arguments}");
            }
        }
    }

    #[test]
    fn a_call_about_an_execution_concerns_the_node_that_made_it() {
        let tag = NodeTag::of("node-a");
        let of =
            |id: &str| Concern::of_json("send_stdin", format!(r#"{{"execution_id":"{id}"}}"#).as_bytes());
        let id = tag.execution_id();
        assert_eq!(of(&id), Concern::Execution(tag, id.clone()));
        let other = Concern::of_json("send_stdin", format!(r#"{{"executionId":"{id}"}}"#).as_bytes());
        assert_eq!(other, of(&id));
        assert_eq!(of("7"), Concern::Nothing);
    }
}
