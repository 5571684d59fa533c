//! Answers as texts, without a daemon.

use super::*;
use crate::tools::registry;

fn outcome(tool: &str, document: Value) -> Outcome {
    let Value::Object(document) = document else { panic!("no object") };
    let form = registry::find(tool).unwrap().form;
    Outcome { document, form, ..Outcome::default() }
}

fn run_of(output: &str, exit_code: i64) -> Value {
    json!({
        "success": exit_code == 0, "output": output, "stdout": output, "stderr": "",
        "exit_code": exit_code, "files": [], "artifacts": [],
        "session_id": "sess_0", "conversationId": "sess_0", "run_id": "run_1", "language": "sh",
        "duration_ms": 3,
    })
}

#[test]
fn a_run_is_its_output_its_files_and_what_went_wrong() {
    assert_eq!(outcome("run_code", run_of("hi\n", 0)).text(1000), "hi\n");
    assert_eq!(outcome("run_code", run_of("", 0)).text(1000), "(no output)");
    assert_eq!(outcome("run_code", run_of("no newline", 3)).text(1000), "no newline\n[exit code 3]");
    let mut limited = run_of("half\nExecution timed out after 1 seconds", -1);
    limited["message"] = json!("Execution timed out after 1 seconds");
    let limited = outcome("run_python", limited);
    assert_eq!(limited.text(1000), "half\nExecution timed out after 1 seconds");
    assert!(!limited.compact().contains_key("message"), "it is said once");
    let mut unsaved = run_of("out\n", 0);
    unsaved["success"] = json!(false);
    unsaved["error"] = json!("quota_exceeded");
    unsaved["message"] = json!("the files are not saved");
    unsaved["hint"] = json!("a hint");
    unsaved["log_url"] = json!("http://x/logs");
    let unsaved = outcome("run_code", unsaved);
    assert_eq!(unsaved.text(1000), "out\nthe files are not saved\na hint\nThe whole output: http://x/logs");
    assert_eq!(unsaved.compact()["message"], "the files are not saved");
}

#[test]
fn what_was_blocked_is_said_destination_by_destination() {
    let mut run = run_of("out\n", 1);
    run["network"] = json!([
        { "host": "pypi.org", "port": 443, "allowed": true, "reason": null, "bytes_in": 9, "bytes_out": 5 },
        { "host": "api.github.com", "port": 443, "allowed": false, "reason": "not in allowed_domains",
          "bytes_in": 0, "bytes_out": 0 },
        { "host": "::1", "port": 80, "allowed": false, "reason": "a loopback address", "bytes_in": 0,
          "bytes_out": 0 },
    ]);
    let run = outcome("run_code", run);
    let said = "out\n[exit code 1]\napi.github.com:443 was blocked: not in allowed_domains\n\
                [::1]:80 was blocked: a loopback address";
    assert_eq!(run.text(1000), said);
    assert!(run.compact().contains_key("network"));
}

#[test]
fn many_files_are_counted_and_the_tool_that_lists_them_is_named() {
    let files: Vec<Value> = (0..25)
        .map(|n| {
            let path = format!("/mnt/data/{n}");
            json!({ "path": path, "size_bytes": 1500, "mime_type": "text/csv", "download_url": "u" })
        })
        .collect();
    let mut made = run_of("", 0);
    made["artifacts"] = json!(files);
    let text = outcome("run_code", made.clone()).text(1000);
    assert!(
        text.contains("\n/mnt/data/0 (1.4 KiB, text/csv) u\n") && text.contains("/mnt/data/19"),
        "{text}"
    );
    assert!(
        !text.contains("/mnt/data/20") && text.ends_with("\n[5 more: list_artifacts lists all files]"),
        "{text}"
    );
    made["artifacts_truncated"] = json!(true);
    assert!(outcome("run_code", made).text(1000).ends_with("\n[more: list_artifacts lists all files]"));
    let listed =
        outcome("list_artifacts", json!({ "artifacts": files, "total": 90, "next_cursor": "c" })).text(1000);
    assert_eq!(listed.lines().count(), 26);
    assert!(listed.ends_with("\n[25 of 90 files; call again with cursor c]"), "{listed}");
}

#[test]
fn a_session_that_nobody_named_is_named_in_the_text() {
    let mut ran = outcome("run_code", run_of("hi\n", 0));
    ran.is_new_session = true;
    assert_eq!(ran.text(1000), "hi\nsession_id: sess_0");
}

#[test]
fn an_open_port_is_told_with_its_link() {
    let mut running = outcome(
        "execute_code_async",
        json!({ "execution_id": "x", "status": "running", "ports": [{ "port": 80, "url": "http://p/" }] }),
    );
    running.output = Some(ShownOutput { text: "hi\n".to_owned(), next_since: 3, ..ShownOutput::default() });
    let text = running.text(1000);
    assert_eq!(text, "hi\n[running: execution_id x, next_since 3]\n[port 80 is open at http://p/]");
}

#[test]
fn a_refusal_is_its_code_its_sentence_and_its_details() {
    let refused = json!({
        "success": false, "error": "artifact_too_large", "message": "too large", "output": "too large",
        "files": [], "download_url": "http://x/f",
    });
    let refused = outcome("read_artifact", refused);
    assert_eq!(refused.text(1000), "artifact_too_large: too large\ndownload_url: http://x/f");
}

#[test]
fn of_a_file_a_model_gets_the_text_or_the_link_and_no_base64() {
    let file = |text: Option<&str>| {
        let mut file = json!({
            "success": true, "path": "/mnt/data/f", "mime_type": "text/plain", "size_bytes": 6000,
            "download_url": "u", "content_base64": "eA==",
        });
        if let Some(text) = text {
            file["text"] = json!(text);
        }
        outcome("read_artifact", file)
    };
    assert_eq!(file(Some("a\nb\n")).text(1000), "a\nb\n");
    let long = file(Some(&"line\n".repeat(1200)));
    let text = long.text(1000);
    assert!(text.len() < 1100 && text.ends_with("\nThe whole file: u"), "{text}");
    assert!(long.for_a_model(1000)["text"].as_str().is_some_and(|text| text.len() < 1100));
    assert_eq!(*long.compact(), long.document, "a program reads all of it");
    assert_eq!(
        file(None).text(1000),
        "/mnt/data/f (6 KB, text/plain; it is not text, or too long to be shown) u"
    );
    assert!(!file(None).for_a_model(1000).contains_key("content_base64"));
}

#[test]
fn whatever_else_is_told_is_told_field_by_field() {
    let runners = json!({ "languages": [
        { "language": "python", "image": "i", "libraries": ["a=1", "b=2"] },
        { "language": "sh", "libraries": [] } ] });
    let wanted = "languages:\n- language: python; image: i; libraries: a=1, b=2\n- language: sh; libraries: ";
    assert_eq!(outcome("list_runners", runners).text(1000), wanted);
    let status =
        json!({ "id": "x", "execution_id": "x", "status": "running", "exit_code": null, "executions": [] });
    assert_eq!(
        outcome("get_execution_status", status).text(1000),
        "execution_id: x\nstatus: running\nexecutions: none"
    );
}
