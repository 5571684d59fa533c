//! The form of log lines, and the fields that spans add.

use std::io::{Read, Seek};

use serde_json::{Value, json};

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

/// What `say` logs, as JSON.
fn said(say: impl FnOnce()) -> Vec<Value> {
    let mut file = tempfile::tempfile().unwrap();
    let (sink, flush) = Sink::open(Some(file.try_clone().unwrap()), Metrics::default()).unwrap();
    let lines = LogLayer { json: true, sink, metrics: Metrics::default() };
    tracing::subscriber::with_default(tracing_subscriber::registry().with(lines), say);
    drop(flush);
    let mut text = String::new();
    file.rewind().unwrap();
    file.read_to_string(&mut text).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn missing_folders_of_the_log_file_are_made() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("var/log/paddock.log");
    open(&path).unwrap();
    assert!(path.is_file());
    // A folder that cannot be made is an error.
    assert!(open(&path.join("below/a/file.log")).is_err());
}

#[test]
fn a_line_has_the_fields_of_its_spans_and_the_innermost_value_counts() {
    let lines = said(|| {
        let request = tracing::error_span!("request", trace_id = "t", method = "POST");
        let _in_request = request.enter();
        let run = tracing::error_span!("run", run_id = "r", container = tracing::field::Empty);
        {
            let _in_run = run.enter();
            run.record("container", "c");
            tracing::info!(method = "other", ms = 1.23456, code = -3, "ended");
        }
        tracing::warn!("behind it");
    });
    let [run, behind] = &lines[..] else { panic!("{lines:?}") };
    for (key, value) in [
        ("trace_id", json!("t")),
        ("run_id", json!("r")),
        ("container", json!("c")),
        ("method", json!("other")),
        ("ms", json!(1.235)),
        ("code", json!(-3)),
        ("level", json!("INFO")),
        ("message", json!("ended")),
    ] {
        assert_eq!(run[key], value, "{key} of {run}");
    }
    assert_eq!((&behind["trace_id"], behind.get("run_id")), (&json!("t"), None), "{behind}");
}

#[test]
fn the_sdk_s_errors_about_clients_that_leave_are_logged_at_debug_only() {
    let levels = [(Level::INFO, false), (Level::WARN, false), (Level::DEBUG, true), (Level::TRACE, true)];
    for (level, want) in levels {
        assert_eq!(targets(level).would_enable("rmcp::service", &Level::ERROR), want, "{level}");
        assert!(
            targets(level).would_enable("rmcp::transport", &Level::ERROR),
            "others of the SDK at {level}"
        );
        assert!(!targets(level).would_enable("rmcp::transport", &Level::INFO), "{level}");
        assert!(targets(level).would_enable("paddock::api", &level), "{level}");
    }
}
