//! Log lines: `[LAYER] time LEVEL message key=value …` on the console, or one JSON object each.
//!
//! The layer is the module that speaks. Lines go to standard error (standard output belongs to protocols), and to
//! a file where one is named. It must never be given a token, a secret, a signature or an environment value.

use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::Mutex;
use std::time::SystemTime;

use serde_json::{Map, Value, json};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::{Layer, filter, util::SubscriberInitExt};

use crate::config::{Log, LogFormat, LogLevel};

/// Begins to log as configured.
///
/// # Errors
/// The file that is named cannot be opened.
pub fn init(config: &Log) -> io::Result<()> {
    let level = match config.level {
        LogLevel::Error => Level::ERROR,
        LogLevel::Warn => Level::WARN,
        LogLevel::Info => Level::INFO,
        LogLevel::Debug => Level::DEBUG,
        LogLevel::Trace => Level::TRACE,
    };
    let file = config.file.as_deref().map(open).transpose()?.map(Mutex::new);
    // What libraries say matters only when it warns.
    let filter = filter::Targets::new().with_default(Level::WARN.min(level)).with_target("paddock", level);
    let lines = Lines { json: config.format == LogFormat::Json, file };
    // Fails only when logging was set up before, by a test.
    let _ = tracing_subscriber::registry().with(lines.with_filter(filter)).try_init();
    Ok(())
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).open(path)
}

struct Lines {
    json: bool,
    file: Option<Mutex<File>>,
}

impl<S: Subscriber> Layer<S> for Lines {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let layer = layer(event.metadata().target());
        let level = event.metadata().level().as_str();
        let now = time(SystemTime::now());
        let mut line =
            if self.json { fields.json(layer, level, &now) } else { fields.console(layer, level, &now) };
        line.push('\n');
        let _ = io::stderr().lock().write_all(line.as_bytes());
        if let Some(file) = &self.file
            && let Ok(mut file) = file.lock()
        {
            let _ = file.write_all(line.as_bytes());
        }
    }
}

/// The name of the layer that a module is part of.
fn layer(target: &str) -> &'static str {
    let mut parts = target.split("::").skip(usize::from(target.starts_with("paddock")));
    match (parts.next(), parts.next()) {
        (Some("api"), Some("mcp")) => "MCP",
        (Some("api"), _) => "HTTP",
        (Some("session"), Some("run")) => "RUN",
        (Some("session"), _) => "SESSION",
        (Some("tools"), _) => "TOOL",
        (Some("pool"), _) => "POOL",
        (Some("link"), _) => "LINK",
        (Some("engine"), _) => "ENGINE",
        (Some("store"), _) => "STORE",
        (Some("app" | "config"), _) | (None, _) => "APP",
        _ => "LIB",
    }
}

#[derive(Default)]
struct Fields {
    message: String,
    rest: Map<String, Value>,
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

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.rest.insert(field.name().to_owned(), json!(value));
    }
}

impl Fields {
    fn json(self, layer: &str, level: &str, now: &str) -> String {
        let mut line = Map::new();
        line.insert("time".into(), json!(now));
        line.insert("level".into(), json!(level));
        line.insert("layer".into(), json!(layer));
        line.insert("message".into(), json!(self.message));
        line.extend(self.rest);
        Value::Object(line).to_string()
    }

    /// One line whatever the values hold: control characters are escaped.
    fn console(self, layer: &str, level: &str, now: &str) -> String {
        let mut line = format!("[{layer}] {now} {level} ");
        escape(&self.message, &mut line);
        for (name, value) in self.rest {
            let _ = write!(line, " {name}=");
            match &value {
                Value::String(text) if text.contains([' ', '"', '=']) || text.is_empty() => {
                    let _ = write!(line, "{text:?}");
                }
                Value::String(text) => escape(text, &mut line),
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
                    let _ = write!(line, "{value}");
                }
            }
        }
        line
    }
}

fn escape(text: &str, line: &mut String) {
    for c in text.chars() {
        if c.is_control() { line.extend(c.escape_default()) } else { line.push(c) }
    }
}

/// `2026-02-06T12:34:56.789Z`
fn time(now: SystemTime) -> String {
    humantime::format_rfc3339_millis(now).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_one_line_and_begins_with_its_layer() {
        let mut fields = Fields { message: "a\nb".into(), ..Fields::default() };
        fields.rest.insert("path".into(), json!("x\ny"));
        fields.rest.insert("why".into(), json!("two words"));
        fields.rest.insert("ms".into(), json!(3));
        let line = fields.console(layer("paddock::pool::driver"), "INFO", "T");
        assert_eq!(line, "[POOL] T INFO a\\nb path=x\\ny why=\"two words\" ms=3");
        assert_eq!(layer("paddock::api::mcp"), "MCP");
        assert_eq!(layer("paddock::api::server"), "HTTP");
        assert_eq!(layer("rmcp::service"), "LIB");
    }
}
