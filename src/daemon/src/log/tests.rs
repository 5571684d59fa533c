//! Lines as they are written, and what spans add to them.

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
    let lines = Lines { json: true, sink, metrics: Metrics::default() };
    tracing::subscriber::with_default(tracing_subscriber::registry().with(lines), say);
    drop(flush);
    let mut text = String::new();
    file.rewind().unwrap();
    file.read_to_string(&mut text).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn the_folders_that_a_file_lacks_are_made() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("var/log/paddock.log");
    open(&path).unwrap();
    assert!(path.is_file());
    // One that cannot be made is an error, as a file that cannot be opened is.
    assert!(open(&path.join("below/a/file.log")).is_err());
}

#[test]
fn a_line_has_what_is_said_around_it_and_the_nearest_word_counts() {
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
