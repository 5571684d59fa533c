//! Arguments of a call: read into a tool's own type, with errors that name the argument.
//!
//! It must never echo a value that could be secret (environment, file content) beyond its type.

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use paddock_proto::RelPath;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::{Caller, Code, Fault};
use crate::session::SessionId;

/// The standard alphabet, padded or not. White space is allowed between, since people wrap lines.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Characters of what an error says of a value.
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
        let inner = cut(error.into_inner().to_string());
        // serde_json puts a position behind errors of text; values have none.
        let problem = if path == "." { inner } else { format!("argument `{path}`: {inner}") };
        ArgumentError::new(tool, problem)
    })
}

/// What an error says, without all of a value that it repeats.
fn cut(mut text: String) -> String {
    if let Some((at, _)) = text.char_indices().nth(SAID) {
        text.truncate(at);
        text.push('…');
    }
    text
}

/// The session that a call names by either of two names, or the caller's own.
pub(super) fn session(
    tool: &'static str,
    caller: &Caller,
    conversation_id: Option<&str>,
    session_id: Option<&str>,
) -> Result<SessionId, ArgumentError> {
    let given = given_session(tool, conversation_id, session_id)?;
    Ok(given.unwrap_or_else(|| caller.own_session.get_or_init(SessionId::generate).clone()))
}

/// The session that a call must name, by either of two names.
pub(super) fn named_session(
    tool: &'static str,
    conversation_id: Option<&str>,
    session_id: Option<&str>,
) -> Result<SessionId, ArgumentError> {
    let given = given_session(tool, conversation_id, session_id)?;
    given.ok_or_else(|| ArgumentError::new(tool, "missing field `session_id` (or `conversationId`)"))
}

pub(super) fn given_session(
    tool: &'static str,
    conversation_id: Option<&str>,
    session_id: Option<&str>,
) -> Result<Option<SessionId>, ArgumentError> {
    let (name, text) = match (conversation_id, session_id) {
        (Some(a), Some(b)) if a != b => {
            let problem = "conversationId and session_id name the same thing but differ; give one of them";
            return Err(ArgumentError::new(tool, problem));
        }
        (Some(id), _) => ("conversationId", id),
        (None, Some(id)) => ("session_id", id),
        (None, None) => return Ok(None),
    };
    let id = text.parse().map_err(|error| ArgumentError::new(tool, format!("argument `{name}` {error}")))?;
    Ok(Some(id))
}

/// A path that a caller wrote.
pub(super) fn path(argument: &str, text: &str) -> Result<RelPath, Fault> {
    RelPath::from_user(text).map_err(|error| {
        let shown: String = text.chars().take(80).collect();
        Fault::new(Code::InvalidArgument, format!("`{argument}` is {shown:?}: {error}"))
    })
}

/// Content that a caller sent as base64, at most `limit` bytes of it.
pub(super) fn content(argument: &str, text: &str, limit: usize) -> Result<Vec<u8>, Fault> {
    let too_large = |bytes: usize| {
        let message = format!("`{argument}` has {bytes} bytes, the limit is {limit}");
        Fault::new(Code::TooLarge, message)
    };
    let least = text.len() / 4 * 3;
    let spaced = text.bytes().any(|b| b.is_ascii_whitespace());
    if !spaced && least.saturating_sub(2) > limit {
        return Err(too_large(least));
    }
    let decoded = if spaced {
        let tight: Vec<u8> = text.bytes().filter(|b| !b.is_ascii_whitespace()).collect();
        BASE64.decode(tight)
    } else {
        BASE64.decode(text)
    };
    let bytes = decoded.map_err(|error| {
        let message =
            format!("`{argument}` is not base64 of the standard alphabet (A-Z a-z 0-9 + /): {error}");
        Fault::new(Code::InvalidArgument, message)
    })?;
    if bytes.len() > limit { Err(too_large(bytes.len())) } else { Ok(bytes) }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, OnceLock};

    use super::*;

    #[test]
    fn base64_is_read_by_one_rule() {
        for (text, want) in [("YWI=", "ab"), ("YWI", "ab"), (" YW\r\nI=\n", "ab"), ("", ""), ("YWJj", "abc")]
        {
            assert_eq!(content("content", text, 100).unwrap(), want.as_bytes(), "{text:?}");
        }
        for text in ["Y", "YWI=YWI=", "YW_I", "YW-I", "ü", "=", "YWI==="] {
            assert_eq!(content("content", text, 100).unwrap_err().code, Code::InvalidArgument, "{text:?}");
        }
        assert_eq!(content("content", &"A".repeat(400), 100).unwrap_err().code, Code::TooLarge);
        assert_eq!(content("content", &"AAA\n".repeat(100), 50).unwrap_err().code, Code::TooLarge);
        assert!(content("content", &"AAAA".repeat(100), 300).is_ok());
    }

    #[test]
    fn a_session_has_one_name() {
        let caller = Caller { owner: "default".into(), own_session: Arc::new(OnceLock::new()), live: None };
        let named = |a, b| session("t", &caller, a, b).map(|id| id.as_str().to_owned());
        assert_eq!(named(Some("x"), None).unwrap(), "x");
        assert_eq!(named(None, Some("y")).unwrap(), "y");
        assert_eq!(named(Some("z"), Some("z")).unwrap(), "z");
        assert!(named(Some("x"), Some("y")).is_err());
        assert!(named(Some(""), None).unwrap_err().to_string().contains("`conversationId` is empty"));
        let long = "x".repeat(257);
        assert!(named(None, Some(&long)).is_err());
        let made = named(None, None).unwrap();
        assert!(made.starts_with("sess_") && made.len() == 17, "{made}");
        assert_eq!(named(None, None).unwrap(), made);
        assert!(
            named_session("t", None, None).unwrap_err().to_string().contains("missing field `session_id`")
        );
        assert_eq!(named_session("t", Some("a"), None).unwrap().as_str(), "a");
    }
}
