//! Arguments of a call: read into a tool's own type, with errors that name the argument.
//!
//! It must never echo a value that could be secret (environment, file content) beyond its type.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use paddock_proto::RelPath;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::{Caller, Code, Fault};
use crate::session::SessionId;

/// Characters of a line of base64, at least, where it is wrapped: `base64` makes 76 of them, PEM 64.
const WRAPPED: usize = 60;

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

/// Content that a caller sent in one of two arguments: as base64, or as the text that it is. At most `limit` bytes of
/// it.
pub(super) fn content(
    (argument, base64): (&str, Option<&str>),
    (as_text, text): (&str, Option<&str>),
    limit: usize,
) -> Result<Vec<u8>, Fault> {
    match (base64, text) {
        (Some(base64), None) => decoded(argument, base64, as_text, limit),
        (None, Some(text)) if text.len() > limit => Err(too_large(as_text, text.len(), limit)),
        (None, Some(text)) => Ok(text.as_bytes().to_vec()),
        (Some(_), Some(_)) => {
            let message =
                format!("`{argument}` and `{as_text}` are the content in two forms; give one of them");
            Err(Fault::new(Code::InvalidArgument, message))
        }
        (None, None) => {
            let message =
                format!("there is no content: give `{as_text}` (plain text) or `{argument}` (base64)");
            Err(Fault::new(Code::InvalidArgument, message))
        }
    }
}

/// Base64 of the standard alphabet, with its padding, in one line or wrapped as programs wrap it. Nothing else
/// passes: plain text that happens to have the alphabet's characters would be saved as garbage.
fn decoded(argument: &str, base64: &str, as_text: &str, limit: usize) -> Result<Vec<u8>, Fault> {
    let tight = unwrapped(base64);
    let tight = tight.as_deref().unwrap_or(base64);
    let least = tight.len() / 4 * 3;
    if least.saturating_sub(2) > limit {
        return Err(too_large(argument, least, limit));
    }
    let bytes = BASE64_STANDARD.decode(tight).map_err(|error| {
        let message = format!(
            "`{argument}` is not base64 of the standard alphabet with its padding (A-Z a-z 0-9 + / =): {error}; \
             plain text goes into `{as_text}`"
        );
        Fault::new(Code::InvalidArgument, message)
    })?;
    if bytes.len() > limit { Err(too_large(argument, bytes.len(), limit)) } else { Ok(bytes) }
}

fn too_large(argument: &str, bytes: usize, limit: usize) -> Fault {
    Fault::new(Code::TooLarge, format!("`{argument}` has {bytes} bytes, the limit is {limit}"))
}

/// The one line of base64 that was wrapped into several of one length; `None` if it was not.
fn unwrapped(text: &str) -> Option<String> {
    let mut lines =
        text.trim_ascii_end().split('\n').map(|line| line.strip_suffix('\r').unwrap_or(line)).peekable();
    let length = lines.peek()?.len();
    let mut tight = String::with_capacity(text.len());
    while let Some(line) = lines.next() {
        let is_last = lines.peek().is_none();
        let fits = if is_last { line.len() <= length || tight.is_empty() } else { line.len() == length };
        if !fits || (!is_last && length < WRAPPED) {
            return None;
        }
        tight.push_str(line);
    }
    Some(tight)
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, OnceLock};

    use super::*;

    fn base64(text: &str, limit: usize) -> Result<Vec<u8>, Fault> {
        content(("content", Some(text)), ("text", None), limit)
    }

    #[test]
    fn base64_is_read_by_one_rule() {
        for (text, want) in [("YWI=", "ab"), ("YWI=\n", "ab"), ("", ""), ("YWJj", "abc")] {
            assert_eq!(base64(text, 100).unwrap(), want.as_bytes(), "{text:?}");
        }
        for text in [
            "Y",
            "YWI",
            "YWI=YWI=",
            "YW_I",
            "YW-I",
            "\u{fc}",
            "=",
            "YWI===",
            " YWI=",
            "YW\r\nI=",
            "a,b\n1,2\n",
        ] {
            let refused = base64(text, 100).unwrap_err();
            assert_eq!(refused.code, Code::InvalidArgument, "{text:?}");
            assert!(refused.message.contains("plain text goes into `text`"), "{}", refused.message);
        }
        assert_eq!(base64(&"A".repeat(400), 100).unwrap_err().code, Code::TooLarge);
        assert!(base64(&"AAAA".repeat(100), 300).is_ok());
    }

    #[test]
    fn base64_can_be_wrapped_as_programs_wrap_it_and_text_is_never_taken_for_that() {
        let line = "QUJD".repeat(19);
        for end in ["\n", "\r\n"] {
            let wrapped = format!("{line}{end}{line}{end}QQ=={end}");
            assert_eq!(base64(&wrapped, 1000).unwrap(), format!("{}A", "ABC".repeat(38)).into_bytes());
        }
        assert_eq!(base64(&format!("{line}\n{line}"), 113).unwrap_err().code, Code::TooLarge);
        for text in [
            "abcd\nefgh\n",
            "name\nanna\nbert\n",
            &format!("{line}\nAAAA\n{line}"),
            &format!("{line} {line}"),
        ] {
            assert_eq!(base64(text, 1000).unwrap_err().code, Code::InvalidArgument, "{text:?}");
        }
    }

    #[test]
    fn content_is_one_of_base64_and_text() {
        let given = |base64, text| content(("content", base64), ("text", text), 10);
        assert_eq!(given(None, Some("hello123")).unwrap(), b"hello123");
        assert_eq!(given(None, Some("")).unwrap(), b"");
        assert_eq!(given(None, Some("12345678901")).unwrap_err().code, Code::TooLarge);
        for (base64, text) in [(None, None), (Some("YWI="), Some("ab"))] {
            let refused = given(base64, text).unwrap_err();
            assert!(
                refused.message.contains("`text`") && refused.message.contains("`content`"),
                "{}",
                refused.message
            );
        }
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
