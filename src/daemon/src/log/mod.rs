//! Log lines: `[LAYER] time LEVEL message key=value …` on the console, or one JSON object each.
//!
//! ```text
//!  event ─► LogLayer: the event's fields, then those of its spans ─► sink (threads) ─► stderr, file
//! ```
//!
//! The layer names the module that logs. The fields of a span (the trace of a request, the run, its
//! container) are part of every line within it, so that a request, its run and its container can be found by
//! any of their ids. Lines go to standard error (standard output belongs to protocols), and to a file if one
//! is configured. No line may ever hold a token, a secret, a signature or an environment value.

mod line;
mod sink;

use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;
use std::time::SystemTime;

use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::{Layer, filter, util::SubscriberInitExt};

use self::line::Fields;
pub use self::sink::Flush;
use self::sink::Sink;
use crate::config::{LogFormat, LogLevel, LogSettings};
use crate::metrics::Metrics;
use crate::telemetry::SpanLayer;

/// Begins to log as configured, and to hand spans to this layer. Dropping the value writes the last lines.
///
/// # Errors
/// The configured file cannot be opened, or one of its missing folders cannot be made.
pub fn init(config: &LogSettings, spans: Option<SpanLayer>, metrics: &Metrics) -> io::Result<Flush> {
    let level = match config.level {
        LogLevel::Error => Level::ERROR,
        LogLevel::Warn => Level::WARN,
        LogLevel::Info => Level::INFO,
        LogLevel::Debug => Level::DEBUG,
        LogLevel::Trace => Level::TRACE,
    };
    let file = config.file.as_deref().map(open).transpose()?;
    let (sink, flush) = Sink::open(file, metrics.clone())?;
    let lines = LogLayer { json: config.format == LogFormat::Json, sink, metrics: metrics.clone() };
    // This fails only if a test has set up logging before.
    let of_daemon = filter::Targets::new().with_target("paddock", Level::INFO);
    let spans = spans.map(|spans| spans.with_filter(of_daemon));
    let _ = tracing_subscriber::registry().with(lines.with_filter(targets(level))).with(spans).try_init();
    Ok(flush)
}

/// The filter of a level. Of libraries only warnings and errors matter.
fn targets(level: Level) -> filter::Targets {
    // The SDK logs an error for each bare call whose client leaves before the answer: nothing is wrong here.
    let sdk = if level >= Level::DEBUG { filter::LevelFilter::WARN } else { filter::LevelFilter::OFF };
    filter::Targets::new()
        .with_default(Level::WARN.min(level))
        .with_target("paddock", level)
        .with_target("rmcp::service", sdk)
}

fn open(path: &Path) -> io::Result<File> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    OpenOptions::new().create(true).append(true).open(path)
}

struct LogLayer {
    json: bool,
    sink: Sink,
    metrics: Metrics,
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for LogLayer {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        span.extensions_mut().insert(fields);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        if let Some(fields) = span.extensions_mut().get_mut::<Fields>() {
            values.record(fields);
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        // From the innermost span outwards: the innermost value of a field counts.
        for span in context.event_scope(event).into_iter().flatten() {
            if let Some(around) = span.extensions().get::<Fields>() {
                fields.add(around);
            }
        }
        let layer = layer(event.metadata().target());
        let level = event.metadata().level().as_str();
        self.metrics.logged(level_name(event.metadata().level()));
        let now = time(SystemTime::now());
        let mut line =
            if self.json { fields.json(layer, level, &now) } else { fields.console(layer, level, &now) };
        line.push('\n');
        self.sink.line(line);
    }
}

/// A level as a label of metrics.
fn level_name(level: &Level) -> &'static str {
    match *level {
        Level::ERROR => "error",
        Level::WARN => "warn",
        Level::INFO => "info",
        Level::DEBUG => "debug",
        Level::TRACE => "trace",
    }
}

/// The layer of a module.
fn layer(target: &str) -> &'static str {
    let mut parts = target.split("::").skip(usize::from(target.starts_with("paddock")));
    match (parts.next(), parts.next()) {
        (Some("api"), Some("mcp")) => "MCP",
        (Some("api"), _) => "HTTP",
        (Some("session"), Some("run")) => "RUN",
        (Some("session"), _) => "SESSION",
        (Some("tools" | "execution"), _) => "TOOL",
        (Some("pool"), _) => "POOL",
        (Some("packages"), _) => "PACKAGES",
        (Some("link"), _) => "LINK",
        (Some("engine"), _) => "ENGINE",
        (Some("egress"), _) => "EGRESS",
        (Some("store"), _) => "STORE",
        (Some("app" | "config" | "local_daemon" | "port" | "stdio"), _) | (None, _) => "APP",
        _ => "LIB",
    }
}

/// `2026-02-06T12:34:56.789Z`
fn time(now: SystemTime) -> String {
    humantime::format_rfc3339_millis(now).to_string()
}

#[cfg(test)]
mod tests;
