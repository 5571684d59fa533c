//! Takes the long texts out of a call's arguments before the SDK reads the message, and puts them back when
//! the tool is called.
//!
//! The SDK copies a message several times while it parses it: a text with one escape in it was in memory
//! eight times. So of a large message the SDK receives everything but the long texts, which this module
//! decodes once: at any time memory holds only the body, the decoded text, and the decoder's own buffer.
//!
//! It must never change anything but a call's arguments: the id, the names and `_meta` belong to the SDK.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Map, Value};

/// Longer texts, in bytes, are taken out.
const SHORT: usize = 256;

/// The texts that were taken out of one message.
#[derive(Debug, Clone, Default)]
pub(super) struct LongTexts {
    /// The random beginning of each placeholder, which no client can guess.
    mark: String,
    texts: Arc<Mutex<Vec<String>>>,
}

impl LongTexts {
    /// Puts the texts back into the arguments that the SDK has read.
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

/// Replaces the long texts of a message by placeholders. `arguments` is the range of the arguments in
/// `message`, which must be JSON.
///
/// # Errors
/// A long text has an escape that stands for no character.
pub(super) fn take_out(
    message: &[u8],
    arguments: Range<usize>,
) -> Result<(Vec<u8>, LongTexts), serde_json::Error> {
    let taken = LongTexts { mark: format!("{}:", crate::id::random_hex::<16>()), texts: Arc::default() };
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
            short.extend_from_slice(format!("\"{}{}\"", taken.mark, texts.len()).as_bytes());
            texts.push(serde_json::from_slice(text)?);
        } else {
            short.extend_from_slice(text);
        }
        rest = behind;
    }
    short.extend_from_slice(rest);
    short.extend_from_slice(&message[arguments.end..]);
    *taken.texts.lock().unwrap_or_else(PoisonError::into_inner) = texts;
    Ok((short, taken))
}

/// The length of the text that `json` begins with, including its quotation marks.
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
    fn the_texts_put_back_are_those_that_were_sent() {
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
            let (short, aside) = take_out(text.as_bytes(), at).unwrap();
            let mut read: Value = serde_json::from_slice(&short).unwrap();
            // Nothing but the arguments was changed.
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
        let (short, aside) = take_out(text.as_bytes(), 0..text.len()).unwrap();
        assert_eq!(aside.texts.lock().unwrap().as_slice(), ["v".repeat(300)]);
        assert!(String::from_utf8(short).unwrap().starts_with("{\"kkk"));
    }

    #[test]
    fn an_escape_that_is_no_character_is_an_error() {
        let text = format!("{{\"a\":\"{}\\ud800\"}}", "v".repeat(300));
        assert!(take_out(text.as_bytes(), 0..text.len()).is_err());
    }

    #[test]
    fn a_text_that_looks_like_a_placeholder_is_left_alone() {
        let mut arguments = json!({ "a": "0", "b": ":0" });
        LongTexts::default().put_back(arguments.as_object_mut().unwrap());
        let (_, aside) = take_out(br#"{"a":"0"}"#, 0..9).unwrap();
        aside.put_back(arguments.as_object_mut().unwrap());
        assert_eq!(arguments, json!({ "a": "0", "b": ":0" }));
    }
}
