//! Bounds the structure of a JSON message before it is parsed.
//!
//! A parsed message takes memory for each of its values, not for each byte: `{"":0},` is 7 bytes, and some
//! 800 once it is parsed. So the values and keys, the depth, and the bytes outside texts are counted while
//! the bytes arrive, and a message that exceeds a bound is refused before it is parsed. Only texts may be
//! large: a file in base64 is one text.
//!
//! It must never allocate, nor judge whether the message is valid JSON: the parser does that.

use memchr::memchr2;

/// The most values, and keys of objects, in one message. Parsed, each takes up to some 400 bytes.
const PARTS: usize = 65_536;

/// How deep objects and arrays may be nested. The parser's own limit is 128.
const DEPTH: usize = 64;

/// The most bytes outside of texts: numbers, white space and punctuation.
const OUTSIDE: usize = 4 << 20;

/// The most bytes of all keys together.
const KEYS: usize = 1 << 20;

/// The bound that a message exceeds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum StructureExcess {
    #[error("the message has more than {PARTS} values and keys, which is the limit")]
    Parts,
    #[error("the message nests objects and arrays more than {DEPTH} deep, which is the limit")]
    Depth,
    #[error("the message has more than {OUTSIDE} bytes outside of texts, which is the limit")]
    Outside,
    #[error("the keys of the message have more than {KEYS} bytes together, which is the limit")]
    Keys,
}

/// The counts of one message so far.
#[derive(Debug, Default)]
pub(crate) struct StructureCounter {
    parts: usize,
    depth: usize,
    outside: usize,
    keys: usize,
    /// Bytes of the text that is open, or was the last.
    text: usize,
    in_text: bool,
    /// The next byte belongs to an escape.
    escaped: bool,
}

impl StructureCounter {
    /// Counts a whole message.
    pub(crate) fn of(message: &[u8]) -> Result<(), StructureExcess> {
        Self::default().count(message)
    }

    /// Values and keys so far.
    pub(crate) fn parts(&self) -> usize {
        self.parts
    }

    /// Counts the next piece of the message. Pieces may be cut anywhere.
    pub(crate) fn count(&mut self, mut piece: &[u8]) -> Result<(), StructureExcess> {
        while !piece.is_empty() {
            piece = if self.in_text { self.inside(piece) } else { self.outside(piece)? };
        }
        Ok(())
    }

    /// Counts up to the end of the open text. The rest of the piece.
    fn inside<'a>(&mut self, piece: &'a [u8]) -> &'a [u8] {
        if std::mem::take(&mut self.escaped) {
            self.text += 1;
            return &piece[1..];
        }
        let Some(at) = memchr2(b'"', b'\\', piece) else {
            self.text += piece.len();
            return &[];
        };
        self.text += at;
        if piece[at] == b'"' {
            self.in_text = false;
        } else {
            (self.text, self.escaped) = (self.text + 1, true);
        }
        &piece[at + 1..]
    }

    /// Counts up to the next text. The rest of the piece, behind the quotation mark.
    fn outside<'a>(&mut self, piece: &'a [u8]) -> Result<&'a [u8], StructureExcess> {
        let mut end = piece.len();
        for (at, byte) in piece.iter().enumerate() {
            match byte {
                b'"' => {
                    (self.in_text, self.text, end) = (true, 0, at + 1);
                    break;
                }
                b',' => self.parts += 1,
                b':' => (self.parts, self.keys) = (self.parts + 1, self.keys + self.text),
                b'[' | b'{' => (self.parts, self.depth) = (self.parts + 1, self.depth + 1),
                b']' | b'}' => self.depth = self.depth.saturating_sub(1),
                _ => {}
            }
            // Checked for every byte and not once for each piece, since a piece can be the whole message.
            if self.parts > PARTS {
                return Err(StructureExcess::Parts);
            }
            if self.depth > DEPTH {
                return Err(StructureExcess::Depth);
            }
        }
        self.outside += end;
        if self.outside > OUTSIDE {
            return Err(StructureExcess::Outside);
        }
        if self.keys > KEYS {
            return Err(StructureExcess::Keys);
        }
        Ok(&piece[end..])
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    /// Values and keys, as the parser sees them.
    fn counted(value: &Value) -> usize {
        match value {
            Value::Array(items) => 1 + items.iter().map(counted).sum::<usize>(),
            Value::Object(members) => 1 + members.values().map(|value| 1 + counted(value)).sum::<usize>(),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 1,
        }
    }

    #[test]
    fn the_count_is_the_number_of_values_that_the_parser_makes() {
        for text in [
            r#"{"a":[1,2,{"b":"x,y:{[\"]}"}],"c\\":{},"d":[],"\u005c":null}"#,
            r#"[[],[[]],{"":{"":0}}]"#,
            r#" { "long" : "a\\\\\"b" , "n" : -1.5e3 } "#,
            r#"["\\","\"","\u0000,"]"#,
        ] {
            let parts = counted(&serde_json::from_str(text).unwrap());
            let mut whole = StructureCounter::default();
            whole.count(text.as_bytes()).unwrap();
            // An empty object or array is counted as if it had a member; the message itself is not counted.
            let empty = text.matches("[]").count() + text.matches("{}").count();
            assert_eq!(whole.parts(), parts - 1 + empty, "{text}");
            assert!(!whole.in_text && whole.depth == 0, "{text}");
            // Wherever it is cut, also within an escape.
            for cut in 0..text.len() {
                let mut pieces = StructureCounter::default();
                pieces.count(&text.as_bytes()[..cut]).unwrap();
                pieces.count(&text.as_bytes()[cut..]).unwrap();
                assert_eq!((pieces.parts, pieces.keys), (whole.parts, whole.keys), "{text} cut at {cut}");
            }
        }
    }

    #[test]
    fn each_bound_is_the_last_that_passes() {
        let list = |n: usize| format!("[{}0]", "0,".repeat(n));
        assert_eq!(StructureCounter::of(list(PARTS - 1).as_bytes()), Ok(()));
        assert_eq!(StructureCounter::of(list(PARTS).as_bytes()), Err(StructureExcess::Parts));
        assert_eq!(StructureCounter::of("[".repeat(DEPTH).as_bytes()), Ok(()));
        assert_eq!(StructureCounter::of("{".repeat(DEPTH + 1).as_bytes()), Err(StructureExcess::Depth));
        assert_eq!(StructureCounter::of(" ".repeat(OUTSIDE).as_bytes()), Ok(()));
        assert_eq!(StructureCounter::of("9".repeat(OUTSIDE + 1).as_bytes()), Err(StructureExcess::Outside));
        let key = |n: usize| format!("{{\"{}\":0}}", "k".repeat(n));
        assert_eq!(StructureCounter::of(key(KEYS).as_bytes()), Ok(()));
        assert_eq!(StructureCounter::of(key(KEYS + 1).as_bytes()), Err(StructureExcess::Keys));
    }

    #[test]
    fn a_text_of_any_length_passes_whatever_is_in_it() {
        for inside in ["[", "{", ",", ":", "\\\"", "\\\\", "\\u0000"] {
            let text = format!("{{\"content\":\"{}\"}}", inside.repeat(2 * PARTS));
            assert_eq!(StructureCounter::of(text.as_bytes()), Ok(()), "{inside}");
        }
    }

    #[test]
    fn millions_of_anything_are_refused() {
        for unit in ["0,", "[],", "{\"\":0},", "\"\",", "[[", "{\"a\":{\"b\":[", "null, ", "1e999,"] {
            let text = format!("{{\"arguments\":{{\"a\":[{}", unit.repeat(1_000_000));
            assert!(StructureCounter::of(text.as_bytes()).is_err(), "{unit}");
        }
        let keys: String = (0..1_000_000).map(|n| format!("\"{n}\":0,")).collect();
        assert_eq!(StructureCounter::of(format!("{{{keys}").as_bytes()), Err(StructureExcess::Parts));
    }
}
