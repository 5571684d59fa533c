//! The fields of a line, and the two forms of a line.
//!
//! It must never let a value end a line or look like another field.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};
use tracing::field::{Field, Visit};

use crate::printable::{printable, printable_json};

/// The message and the fields of an event or a span.
#[derive(Default)]
pub(super) struct Fields {
    pub(super) message: String,
    pub(super) rest: Map<String, Value>,
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        let text = format!("{value:?}");
        if field.name() == "message" {
            self.message = text;
        } else {
            self.rest.insert(field.name().to_owned(), Value::String(text));
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "message" {
            value.clone_into(&mut self.message);
        } else {
            self.rest.insert(field.name().to_owned(), json!(value));
        }
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.rest.insert(field.name().to_owned(), json!(value));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.rest.insert(field.name().to_owned(), json!(value));
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        let thousandths = (value * 1e3).round() / 1e3;
        self.rest.insert(field.name().to_owned(), json!(thousandths));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.rest.insert(field.name().to_owned(), json!(value));
    }
}

impl Fields {
    /// Adds the fields of a surrounding span, except fields that are here already.
    pub(super) fn add(&mut self, around: &Self) {
        for (name, value) in &around.rest {
            if !self.rest.contains_key(name) {
                self.rest.insert(name.clone(), value.clone());
            }
        }
    }

    pub(super) fn json(self, layer: &str, level: &str, now: &str) -> String {
        let mut line = Map::new();
        line.insert("time".into(), json!(now));
        line.insert("level".into(), json!(level));
        line.insert("layer".into(), json!(layer));
        line.insert("message".into(), json!(self.message));
        line.extend(self.rest);
        printable_json(Value::Object(line).to_string())
    }

    /// The form for a console. It is always one line, since control characters are escaped.
    pub(super) fn console(self, layer: &str, level: &str, now: &str) -> String {
        let mut line = format!("[{layer}] {now} {level} ");
        line.push_str(&printable(&self.message));
        for (name, value) in self.rest {
            let _ = write!(line, " {name}=");
            match &value {
                Value::String(text) if text.contains([' ', '"', '=']) || text.is_empty() => {
                    let _ = write!(line, "{text:?}");
                }
                Value::String(text) => line.push_str(&printable(text)),
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
                    let _ = write!(line, "{value}");
                }
            }
        }
        line
    }
}
