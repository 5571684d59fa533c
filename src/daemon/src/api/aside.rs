//! Long texts of a call's arguments, set aside before the SDK reads the message and put back when the tool is called.
//!
//! The SDK copies a message several times while it finds out what it is: a text that has one escape in it was in memory eight
//! times over. So of a large message the SDK gets everything but the long texts, which are decoded once: the body, what is
//! decoded, and the decoder's own buffer are all that there is at one time.
//!
//! It must never touch anything but a call's arguments: an id, a name and what stands in `_meta` are the SDK's.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Map, Value};

/// Bytes of the longest text of a large message that the SDK gets to see.
const SHORT: usize = 256;

/// The texts that were set aside of one message.
#[derive(Debug, Clone, Default)]
pub(super) struct Aside {
    /// What stands in the place of each begins with this, which no client can guess.
    mark: String,
    texts: Arc<Mutex<Vec<String>>>,
}

impl Aside {
    /// Puts what was set aside back into the arguments that the SDK read.
    pub(super) fn put_back(&self, arguments: &mut Map<String, Value>) {
        if self.mark.is_empty() {
            return;
        }
        let mut texts = self.texts.lock().unwrap_or_else(PoisonError::into_inner);
        arguments.values_mut().for_each(|value| self.put_into(value, &mut texts));
    }

    fn put_into(&self, value: &mut Value, texts: &mut [String]) {
        match value {
            Value::String(text) => {
                let number = text.strip_prefix(&self.mark).and_then(|number| number.parse::<usize>().ok());
                if let Some(kept) = number.and_then(|number| texts.get_mut(number)) {
                    *text = std::mem::take(kept);
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.put_into(item, texts)),
            Value::Object(members) => members.values_mut().for_each(|member| self.put_into(member, texts)),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
}

/// The message without its long texts. `arguments` is where the arguments stand in `message`, which is JSON.
///
/// # Errors
/// A long text is none: an escape in it is no character.
pub(super) fn set_aside(
    message: &[u8],
    arguments: Range<usize>,
) -> Result<(Vec<u8>, Aside), serde_json::Error> {
    let aside = Aside { mark: format!("{}:", crate::id::random_hex::<16>()), texts: Arc::default() };
    let mut texts = Vec::new();
    let mut short = message[..arguments.start].to_vec();
    let mut rest = &message[arguments.clone()];
    while let Some(begin) = memchr::memchr(b'"', rest) {
        short.extend_from_slice(&rest[..begin]);
        rest = &rest[begin..];
        let end = text_end(rest);
        let (text, behind) = rest.split_at(end);
        let is_key = behind.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b':');
        if text.len() > SHORT && !is_key {
            short.extend_from_slice(format!("\"{}{}\"", aside.mark, texts.len()).as_bytes());
            texts.push(serde_json::from_slice(text)?);
        } else {
            short.extend_from_slice(text);
        }
        rest = behind;
    }
    short.extend_from_slice(rest);
    short.extend_from_slice(&message[arguments.end..]);
    *aside.texts.lock().unwrap_or_else(PoisonError::into_inner) = texts;
    Ok((short, aside))
}

/// Where the text that `json` begins with ends, its quotation marks included.
fn text_end(json: &[u8]) -> usize {
    let mut at = 1;
    while let Some(found) = json.get(at..).and_then(|rest| memchr::memchr2(b'"', b'\\', rest)) {
        at += found + 1;
        if json[at - 1] == b'"' {
            return at;
        }
        at += 1; // the escaped one
    }
    json.len()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn message(arguments: &Value) -> (String, Range<usize>) {
        let arguments = arguments.to_string();
        let head = r#"{"id":1,"params":{"arguments":"#;
        let long = "m".repeat(2 * SHORT);
        let text = format!(r#"{head}{arguments},"_meta":{{"token":"{long}"}}}}}}"#);
        (text, head.len()..head.len() + arguments.len())
    }

    #[test]
    fn what_is_put_back_is_what_was_sent() {
        let long = "x\"\\\n\u{0}\u{e9}\u{1f600}".repeat(SHORT);
        let key = "k".repeat(2 * SHORT);
        for arguments in [
            json!({ "content": long, "path": "a" }),
            json!({ "files": [{ "content": long }, { "content": "short" }, long], "n": [1, null, true] }),
            json!({ key: long, "deep": [[[{ "a": [long.clone(), long.clone() + "2"] }]]] }),
            json!({ "a": "x".repeat(SHORT - 2), "b": "x".repeat(SHORT), "c": "" }),
            json!({}),
        ] {
            let (text, at) = message(&arguments);
            let (short, aside) = set_aside(text.as_bytes(), at).unwrap();
            let mut read: Value = serde_json::from_slice(&short).unwrap();
            // What is not an argument stays as it is.
            assert_eq!(read["params"]["_meta"]["token"], "m".repeat(2 * SHORT));
            let read = read["params"]["arguments"].as_object_mut().unwrap();
            let texts = aside.texts.lock().unwrap().len();
            assert!(short.len() <= text.len() && read.len() == arguments.as_object().unwrap().len());
            aside.put_back(read);
            assert_eq!(Value::Object(read.clone()), arguments, "{texts} texts");
        }
    }

    #[test]
    fn white_space_before_a_colon_makes_no_value_of_a_key() {
        let text = format!("{{\"{}\" \n: \"{}\"}}", "k".repeat(300), "v".repeat(300));
        let (short, aside) = set_aside(text.as_bytes(), 0..text.len()).unwrap();
        assert_eq!(aside.texts.lock().unwrap().as_slice(), ["v".repeat(300)]);
        assert!(String::from_utf8(short).unwrap().starts_with("{\"kkk"));
    }

    #[test]
    fn an_escape_that_is_no_character_is_an_error() {
        let text = format!("{{\"a\":\"{}\\ud800\"}}", "v".repeat(300));
        assert!(set_aside(text.as_bytes(), 0..text.len()).is_err());
    }

    #[test]
    fn nobody_else_s_words_are_put_back() {
        let mut arguments = json!({ "a": "0", "b": ":0" });
        Aside::default().put_back(arguments.as_object_mut().unwrap());
        let (_, aside) = set_aside(br#"{"a":"0"}"#, 0..9).unwrap();
        aside.put_back(arguments.as_object_mut().unwrap());
        assert_eq!(arguments, json!({ "a": "0", "b": ":0" }));
    }
}
