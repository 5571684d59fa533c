//! The session that a call names: as `session_id` or as `conversationId`, which mean the same.

use schemars::JsonSchema;
use serde::Deserialize;

use super::{ArgumentError, Caller};
use crate::session::SessionId;

/// A session's id, as a caller wrote it.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct SessionName(#[schemars(length(min = 1, max = 256))] String);

/// The `conversationId` and the `session_id` of a call.
pub(super) type SessionNames<'a> = (Option<&'a SessionName>, Option<&'a SessionName>);

/// The session that a call names, or the caller's own.
pub(super) fn named_or_own(
    tool: &'static str,
    caller: &Caller,
    names: SessionNames<'_>,
) -> Result<SessionId, ArgumentError> {
    let named = optional(tool, names)?;
    let fresh = || caller.fresh_session.clone().unwrap_or_else(SessionId::generate);
    Ok(named.unwrap_or_else(|| caller.own_session.get_or_init(fresh).clone()))
}

/// The session that a call must name.
pub(super) fn required(tool: &'static str, names: SessionNames<'_>) -> Result<SessionId, ArgumentError> {
    let named = optional(tool, names)?;
    named.ok_or_else(|| ArgumentError::new(tool, "missing field `session_id` (or `conversationId`)"))
}

/// The session that a call may name.
pub(super) fn optional(
    tool: &'static str,
    names: SessionNames<'_>,
) -> Result<Option<SessionId>, ArgumentError> {
    let (argument, SessionName(text)) = match names {
        (Some(a), Some(b)) if a.0 != b.0 => {
            let problem = "conversationId and session_id name the same thing but differ; give one of them";
            return Err(ArgumentError::new(tool, problem));
        }
        (Some(name), _) => ("conversationId", name),
        (None, Some(name)) => ("session_id", name),
        (None, None) => return Ok(None),
    };
    let id =
        text.parse().map_err(|error| ArgumentError::new(tool, format!("argument `{argument}` {error}")))?;
    Ok(Some(id))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Option<SessionName> {
        Some(SessionName(text.to_owned()))
    }

    #[test]
    fn a_session_has_one_name() {
        let caller = Caller::new("default", None);
        let named = |a: Option<SessionName>, b: Option<SessionName>| {
            named_or_own("t", &caller, (a.as_ref(), b.as_ref())).map(|id| id.as_str().to_owned())
        };
        assert_eq!(named(name("x"), None).unwrap(), "x");
        assert_eq!(named(None, name("y")).unwrap(), "y");
        assert_eq!(named(name("z"), name("z")).unwrap(), "z");
        assert!(named(name("x"), name("y")).is_err());
        assert!(named(name(""), None).unwrap_err().to_string().contains("`conversationId` is empty"));
        assert!(named(None, name(&"x".repeat(257))).is_err());
        let made = named(None, None).unwrap();
        assert!(made.starts_with("sess_") && made.len() == 17, "{made}");
        assert_eq!(named(None, None).unwrap(), made);
        let missing = required("t", (None, None)).unwrap_err();
        assert!(missing.to_string().contains("missing field `session_id`"));
        assert_eq!(required("t", (name("a").as_ref(), None)).unwrap().as_str(), "a");
    }
}
