//! Finds the few values that count in a JSON text, byte by byte. Pure.
//!
//! It keeps a short value of interest and nothing else, so that a text of any length costs no memory. It must
//! never fail: of a text that is no JSON it finds what looks like it, or nothing.

/// The longest value that is kept, in bytes: a usage has a few hundred.
const LONGEST_VALUE: usize = 4096;

/// The longest key that is looked at, in bytes.
const LONGEST_KEY: usize = 32;

/// The keys of what a model writes, in answers that come in pieces.
const WRITTEN: [&[u8]; 8] = [
    b"text",
    b"thinking",
    b"partial_json",
    b"content",
    b"reasoning",
    b"reasoning_content",
    b"arguments",
    b"delta",
];

/// What a value is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Slot {
    /// `usage`.
    Usage,
    /// `message.usage`, or `response.usage`.
    InnerUsage,
    /// `model`, also that of `message` or `response`.
    Model,
}

/// What the first key of a path can be.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Outer {
    /// `message` or `response`.
    Wrapper,
    #[default]
    Other,
}

/// A value that is being kept.
#[derive(Debug)]
struct Kept {
    slot: Slot,
    depth: usize,
    /// Empty once it is too long.
    bytes: Vec<u8>,
    is_too_long: bool,
}

/// Reads one JSON text after another.
#[derive(Debug, Default)]
pub(super) struct Scanner {
    depth: usize,
    outer: Outer,
    in_string: bool,
    is_escaped: bool,
    /// The beginning of the current string.
    string: Vec<u8>,
    length: u64,
    /// Whether the next string of the JSON is text that the model has written.
    is_written: bool,
    kept: Option<Kept>,
    /// Bytes of strings that a model wrote, of all texts.
    written: u64,
}

impl Scanner {
    /// Reads a byte, and tells the value that ends with it.
    pub(super) fn push(&mut self, byte: u8) -> Option<(Slot, Vec<u8>)> {
        if self.in_string {
            self.keep(byte);
            self.within_string(byte);
            return None;
        }
        let mut found = None;
        match byte {
            b'"' => {
                self.in_string = true;
                self.string.clear();
                self.length = 0;
            }
            b'{' | b'[' => {
                self.depth = self.depth.saturating_add(1);
                self.is_written = false;
                if self.depth == 1 {
                    self.outer = Outer::Other;
                }
            }
            b'}' | b']' => {
                found = self.end_of_value();
                self.depth = self.depth.saturating_sub(1);
            }
            b',' => {
                found = self.end_of_value();
                self.is_written = false;
            }
            b':' => {
                self.keep(byte);
                self.begin_value(); // the byte is no part of this one
                return None;
            }
            _ => {}
        }
        self.keep(byte);
        found
    }

    /// Bytes of strings that a model wrote.
    pub(super) fn written(&self) -> u64 {
        self.written
    }

    /// A new text begins, whatever came before.
    pub(super) fn restart(&mut self) {
        *self = Self { written: self.written, ..Self::default() };
    }

    fn within_string(&mut self, byte: u8) {
        match byte {
            _ if self.is_escaped => self.is_escaped = false,
            b'\\' => self.is_escaped = true,
            b'"' => {
                self.in_string = false;
                if std::mem::take(&mut self.is_written) {
                    self.written = self.written.saturating_add(self.length);
                }
                return;
            }
            _ => {}
        }
        self.length = self.length.saturating_add(1);
        if self.string.len() < LONGEST_KEY {
            self.string.push(byte);
        }
    }

    /// The last string was a key.
    fn begin_value(&mut self) {
        let key = self.string.as_slice();
        self.is_written = WRITTEN.contains(&key);
        let slot = match (self.depth, self.outer, key) {
            (1, _, b"usage") => Some(Slot::Usage),
            (2, Outer::Wrapper, b"usage") => Some(Slot::InnerUsage),
            (1, _, b"model") | (2, Outer::Wrapper, b"model") => Some(Slot::Model),
            _ => None,
        };
        if self.depth == 1 {
            let is_wrapper = [&b"message"[..], b"response"].contains(&key);
            self.outer = if is_wrapper { Outer::Wrapper } else { Outer::Other };
        }
        if let (Some(slot), None) = (slot, &self.kept) {
            self.kept = Some(Kept { slot, depth: self.depth, bytes: Vec::new(), is_too_long: false });
        }
    }

    fn keep(&mut self, byte: u8) {
        if let Some(kept) = &mut self.kept {
            kept.is_too_long |= kept.bytes.len() >= LONGEST_VALUE;
            if kept.is_too_long {
                kept.bytes = Vec::new();
            } else {
                kept.bytes.push(byte);
            }
        }
    }

    /// The kept value, if it ends here.
    fn end_of_value(&mut self) -> Option<(Slot, Vec<u8>)> {
        let kept = self.kept.take_if(|kept| kept.depth >= self.depth)?;
        (!kept.is_too_long).then_some((kept.slot, kept.bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scan(text: &str) -> (Vec<(Slot, String)>, u64) {
        let mut scanner = Scanner::default();
        let found = text.bytes().filter_map(|byte| scanner.push(byte));
        let found = found.map(|(slot, bytes)| (slot, String::from_utf8(bytes).unwrap())).collect();
        (found, scanner.written())
    }

    #[test]
    fn values_are_found_where_they_count_and_nowhere_else() {
        let text = r#"{"a":[{"usage":{"x":1}},"usage",{"model":"n"}],"usage" : {"b":{"c":[1,2]},"d":"},\"}"},
            "content":{"usage":3,"model":"no"},"model":"m","message":{"id":"usage",
            "usage":{"e":5},"x":{"model":"no"},
            "model":"inner"},"usage":7}"#;
        let expected = [
            (Slot::Usage, r#" {"b":{"c":[1,2]},"d":"},\"}"}"#),
            (Slot::Model, r#""m""#),
            (Slot::InnerUsage, r#"{"e":5}"#),
            (Slot::Model, r#""inner""#),
            (Slot::Usage, "7"),
        ];
        let expected: Vec<_> = expected.into_iter().map(|(slot, text)| (slot, text.to_owned())).collect();
        assert_eq!(scan(text).0, expected);
    }

    #[test]
    fn what_a_model_wrote_is_measured() {
        let text = r#"{"type":"content_block_delta","delta":{"type":"text_delta","text":"four"}}"#;
        assert_eq!(scan(text).1, 4);
        assert_eq!(scan(r#"{"choices":[{"delta":{"content":"ab\"c","role":"assistant"}}]}"#).1, 5);
        assert_eq!(scan(r#"{"delta":"abc","item_id":"abcdef","arguments":["not","these"]}"#).1, 3);
    }

    #[test]
    fn a_value_that_is_too_long_is_dropped_and_the_next_one_is_found() {
        let long = format!(r#"{{"usage":{{"a":"{}"}},"model":"m"}}"#, "x".repeat(LONGEST_VALUE));
        assert_eq!(scan(&long).0, [(Slot::Model, r#""m""#.to_owned())]);
    }

    #[test]
    fn a_new_text_begins_after_a_restart() {
        let mut scanner = Scanner::default();
        r#"{"usage":{"text":"ab","b":"#.bytes().for_each(|byte| drop(scanner.push(byte)));
        scanner.restart();
        let found: Vec<_> = r#"{"usage":1}"#.bytes().filter_map(|byte| scanner.push(byte)).collect();
        assert_eq!((found, scanner.written()), (vec![(Slot::Usage, b"1".to_vec())], 2));
    }
}
