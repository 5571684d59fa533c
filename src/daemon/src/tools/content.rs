//! The content of a file, as a call brings it: as plain text or as base64.
//!
//! It must never take plain text for base64: it would be saved as garbage.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

use super::{Code, Fault};

/// The fewest characters of a line of wrapped base64: `base64` makes 76 of them, PEM 64.
const WRAPPED: usize = 60;

/// An argument that can bring content: its name, and its value if the call has it.
pub(super) type ContentArgument<'a> = (&'a str, Option<&'a str>);

/// The content that a call brings, in one of two arguments: at most `limit` bytes.
pub(super) fn decode(
    (argument, base64): ContentArgument<'_>,
    (as_text, text): ContentArgument<'_>,
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

/// Decodes base64 of the standard alphabet with its padding, in one line or wrapped as programs wrap it.
/// Plain text whose characters happen to be in the alphabet is refused.
fn decoded(argument: &str, base64: &str, as_text: &str, limit: usize) -> Result<Vec<u8>, Fault> {
    let one_line = unwrapped(base64);
    let one_line = one_line.as_deref().unwrap_or(base64);
    let least = one_line.len() / 4 * 3;
    if least.saturating_sub(2) > limit {
        return Err(too_large(argument, least, limit));
    }
    let bytes = BASE64_STANDARD.decode(one_line).map_err(|error| {
        let message = format!(
            "`{argument}` is not base64 of the standard alphabet with its padding (A-Z a-z 0-9 + / =): \
             {error}; plain text goes into `{as_text}`"
        );
        Fault::new(Code::InvalidArgument, message)
    })?;
    if bytes.len() > limit { Err(too_large(argument, bytes.len(), limit)) } else { Ok(bytes) }
}

fn too_large(argument: &str, bytes: usize, limit: usize) -> Fault {
    Fault::new(Code::TooLarge, format!("`{argument}` has {bytes} bytes, the limit is {limit}"))
}

/// Joins base64 that was wrapped into lines of one length; `None` if the text was not.
fn unwrapped(text: &str) -> Option<String> {
    let mut lines =
        text.trim_ascii_end().split('\n').map(|line| line.strip_suffix('\r').unwrap_or(line)).peekable();
    let length = lines.peek()?.len();
    let mut joined = String::with_capacity(text.len());
    while let Some(line) = lines.next() {
        let is_last = lines.peek().is_none();
        let fits = if is_last { line.len() <= length || joined.is_empty() } else { line.len() == length };
        if !fits || (!is_last && length < WRAPPED) {
            return None;
        }
        joined.push_str(line);
    }
    Some(joined)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn base64(text: &str, limit: usize) -> Result<Vec<u8>, Fault> {
        decode(("content", Some(text)), ("text", None), limit)
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
        let given = |base64, text| decode(("content", base64), ("text", text), 10);
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
}
