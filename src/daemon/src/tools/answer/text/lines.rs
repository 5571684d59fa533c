//! A text that is put together line by line.

use serde_json::{Map, Value};

/// The text so far.
#[derive(Default)]
pub(super) struct TextLines(String);

impl TextLines {
    /// Output, exactly as it is.
    pub(super) fn paste(&mut self, output: &str) {
        self.begin();
        self.0.push_str(output);
    }

    /// A line of its own.
    pub(super) fn say(&mut self, line: &str) {
        self.begin();
        self.0.push_str(line);
    }

    /// The texts of these fields, where there are any.
    pub(super) fn say_all(&mut self, document: &Map<String, Value>, keys: &[&str]) {
        for text in keys.iter().filter_map(|key| document.get(*key).and_then(Value::as_str)) {
            self.say(text);
        }
    }

    /// Every field as `name: value`, but for those `without`; of a list each element on a line.
    pub(super) fn fields(&mut self, document: &Map<String, Value>, without: &[&str]) {
        for (key, value) in document.iter().filter(|(key, _)| !without.contains(&key.as_str())) {
            match value {
                Value::Null => {}
                Value::Array(all) => {
                    self.say(&format!("{key}:{}", if all.is_empty() { " none" } else { "" }));
                    all.iter().for_each(|one| self.say(&format!("- {}", inline(one, without))));
                }
                Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => {
                    self.say(&format!("{key}: {}", inline(value, without)));
                }
            }
        }
    }

    /// Whether it says this already.
    pub(super) fn has(&self, text: &str) -> bool {
        self.0.contains(text)
    }

    pub(super) fn done(self) -> String {
        self.0
    }

    fn begin(&mut self) {
        if !self.0.is_empty() && !self.0.ends_with('\n') {
            self.0.push('\n');
        }
    }
}

/// A value within a line.
fn inline(value: &Value, without: &[&str]) -> String {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => value.to_string(),
        Value::String(text) => text.clone(),
        Value::Array(all) => all.iter().map(|one| inline(one, without)).collect::<Vec<_>>().join(", "),
        Value::Object(fields) => {
            let told =
                fields.iter().filter(|(key, value)| !value.is_null() && !without.contains(&key.as_str()));
            told.map(|(key, value)| format!("{key}: {}", inline(value, without)))
                .collect::<Vec<_>>()
                .join("; ")
        }
    }
}
