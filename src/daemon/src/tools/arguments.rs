//! Arguments of a call: read into a tool's own type, with errors that name the argument.
//!
//! It must never repeat a value that could be secret (environment, file content) beyond its type.

use paddock_proto::RelPath;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::{Code, Fault};

/// Characters of a parser's error that a caller reads: it can repeat a value of any length.
const SAID: usize = 300;

/// The arguments are not what the tool takes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{tool}: {problem}")]
pub struct ArgumentError {
    tool: &'static str,
    problem: String,
}

impl ArgumentError {
    pub(super) fn new(tool: &'static str, problem: impl Into<String>) -> Self {
        Self { tool, problem: problem.into() }
    }
}

/// Reads a tool's arguments. Unknown ones are refused.
pub(super) fn read<T: DeserializeOwned>(
    tool: &'static str,
    arguments: Map<String, Value>,
) -> Result<T, ArgumentError> {
    serde_path_to_error::deserialize(Value::Object(arguments)).map_err(|error| {
        let path = error.path().to_string();
        let inner = shortened(error.into_inner().to_string());
        let problem = if path == "." { inner } else { format!("argument `{path}`: {inner}") };
        ArgumentError::new(tool, problem)
    })
}

fn shortened(mut text: String) -> String {
    if let Some((at, _)) = text.char_indices().nth(SAID) {
        text.truncate(at);
        text.push('…');
    }
    text
}

/// A path that a caller wrote.
pub(super) fn path(argument: &str, text: &str) -> Result<RelPath, Fault> {
    RelPath::from_user(text).map_err(|error| {
        let shown: String = text.chars().take(80).collect();
        Fault::new(Code::InvalidArgument, format!("`{argument}` is {shown:?}: {error}"))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_error_names_the_argument_and_repeats_little_of_a_value() {
        #[derive(Debug, serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Example {
            #[expect(dead_code, reason = "only its errors are looked at")]
            files: Vec<u8>,
        }
        let refused = |arguments: Value| {
            let Value::Object(arguments) = arguments else { panic!("no object") };
            read::<Example>("t", arguments).unwrap_err().to_string()
        };
        assert_eq!(refused(json!({})), "t: missing field `files`");
        assert!(refused(json!({ "files": [1, "x"] })).starts_with("t: argument `files[1]`: invalid type"));
        let long = refused(json!({ "files": "s".repeat(5000) }));
        assert!(long.len() < SAID + 100 && long.ends_with('…'), "{long}");
    }
}
