//! Makes text from others safe for a terminal or a log: it stays on one line, in its order.
//!
//! It must never let a character through that moves a cursor, ends a line, or reverses the rest of it.

/// Whether a character has another effect than to be shown: control characters, line and paragraph
/// separators, and marks that change the direction of the following text.
pub(crate) fn is_odd(c: char) -> bool {
    let turns =
        matches!(c, '\u{200e}' | '\u{200f}' | '\u{061c}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    c.is_control() || matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}') || turns
}

/// The text with such characters escaped.
pub(crate) fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if is_odd(c) { shown.extend(c.escape_default()) } else { shown.push(c) }
    }
    shown
}

/// JSON with such characters escaped; in JSON they can only be inside a string.
pub(crate) fn printable_json(json: String) -> String {
    if !json.chars().any(is_odd) {
        return json;
    }
    let mut shown = String::with_capacity(json.len());
    for c in json.chars() {
        if is_odd(c) { shown.push_str(&format!("\\u{:04x}", u32::from(c))) } else { shown.push(c) }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_controls_a_terminal_or_reverses_a_line() {
        assert_eq!(printable("a\u{1b}[31m\nb\u{202e}c\u{2028}é🐎"), "a\\u{1b}[31m\\nb\\u{202e}c\\u{2028}é🐎");
        let text = "x\u{202e}y\u{2028}\u{feff}z\n";
        let json = printable_json(serde_json::json!(text).to_string());
        assert!(!json.chars().any(is_odd), "{json:?}");
        assert_eq!(serde_json::from_str::<String>(&json).unwrap(), text);
    }
}
