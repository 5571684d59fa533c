//! The tools as clients are shown them: names, what they are for, what they take and give.
//!
//! Names are `[a-z0-9_]` and end up before language models: descriptions say what is so on this daemon, with its
//! languages, libraries and limits. It must never describe what is not there.

mod exec;

use serde_json::{Map, Value, json};

use super::{ToolLimits, listing, values};
use crate::config::ToolSet;
use crate::pool::Runners;

/// One tool.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolInfo {
    /// Which set it is of.
    pub set: ToolSet,
    /// What it is called.
    pub name: &'static str,
    /// For people.
    pub title: &'static str,
    /// For models.
    pub description: String,
    /// JSON Schema of its arguments.
    pub input: Map<String, Value>,
    /// Whether it changes nothing.
    pub read_only: bool,
    /// Whether it can end or delete what there was.
    pub destructive: bool,
}

/// Every tool, and the set that it is of.
pub(crate) const TOOLS: [(&str, ToolSet); 14] = [
    ("run_code", ToolSet::Code),
    ("run_python", ToolSet::Code),
    ("upload_file", ToolSet::Code),
    ("read_artifact", ToolSet::Code),
    ("list_artifacts", ToolSet::Code),
    ("close_session", ToolSet::Code),
    ("list_runners", ToolSet::Code),
    ("execute_code", ToolSet::Exec),
    ("execute_code_async", ToolSet::Exec),
    ("get_execution_output", ToolSet::Exec),
    ("get_execution_status", ToolSet::Exec),
    ("list_executions", ToolSet::Exec),
    ("send_stdin", ToolSet::Exec),
    ("cancel_execution", ToolSet::Exec),
];

/// The tool of this name, and its set.
pub(super) fn find(name: &str) -> Option<(&'static str, ToolSet)> {
    TOOLS.into_iter().find(|(known, _)| *known == name)
}

/// The tools, with the runners of now.
pub(super) fn list(runners: &Runners, exec_runner: &str, limits: &ToolLimits) -> Vec<ToolInfo> {
    let mut all = code(runners, limits);
    all.extend(exec::list(exec_runner, limits));
    all
}

fn code(runners: &Runners, limits: &ToolLimits) -> Vec<ToolInfo> {
    let languages: Vec<&str> = runners.keys().map(String::as_str).collect();
    let id = json!({
        "type": "string", "minLength": 1, "maxLength": 256,
        "description": "Names the conversation. Calls with the same id share the files in /data; nobody else sees \
            them. Left out, one is made up: it is in the answer, give it back to go on with the same files.",
    });
    let same = json!({ "type": "string", "minLength": 1, "maxLength": 256, "description": "The same as conversationId." });
    let existing = json!({
        "type": "string", "minLength": 1, "maxLength": 256,
        "description": "Names the conversation, as earlier answers did.",
    });
    let same_as_session = json!({ "type": "string", "minLength": 1, "maxLength": 256, "description": "The same as session_id." });
    let mut language = json!({
        "type": "string",
        "description": format!("Programming language. Available: {}", or_none(&languages)),
    });
    if !languages.is_empty() {
        language["enum"] = json!(languages);
    }
    vec![
        ToolInfo {
            set: ToolSet::Code,
            name: "run_code",
            title: "Run code",
            description: run_code_text(runners, limits),
            read_only: false,
            destructive: true,
            input: object(json!({
                "type": "object",
                "additionalProperties": false,
                "required": ["language", "code"],
                "properties": {
                    "language": language,
                    "code": {
                        "type": "string",
                        "description": "The source code. Files that it writes to /data are kept and come back as links.",
                    },
                    "conversationId": id,
                    "session_id": same,
                    "network": {
                        "type": "boolean", "default": false,
                        "description": "Must be false: programs have no network here.",
                    },
                    "environment": {
                        "type": "object", "additionalProperties": { "type": "string" },
                        "description": "Environment variables for this run.",
                    },
                    "timeout_seconds": {
                        "type": "number", "exclusiveMinimum": 0, "maximum": limits.longest.as_secs_f64(),
                        "default": limits.run_code.as_secs_f64(),
                        "description": "The program is ended after this long; its output and files until then are kept.",
                    },
                    "stdin": { "type": "string", "description": "The program's standard input." },
                    "files": {
                        "type": "array",
                        "description": "Files to put into /data before the run, in place of older ones.",
                        "items": {
                            "type": "object",
                            "additionalProperties": false,
                            "required": ["path"],
                            "properties": {
                                "path": { "type": "string", "description": "Where, relative to /data." },
                                "text": { "type": "string", "description": "The content of a text file, as it is." },
                                "content": {
                                    "type": "string",
                                    "description": "Instead of text: the content of any other file, as base64 with padding.",
                                },
                            },
                        },
                    },
                },
            })),
        },
        ToolInfo {
            set: ToolSet::Code,
            name: "run_python",
            title: "Run Python",
            description: format!(
                "Run Python in an isolated container and get its output and the files it made or changed as download \
                 links. Each run is a new process; files in /mnt/data (also /data and /workspace) stay for the \
                 session. Figures of matplotlib that are shown or left open are saved. No network, no package \
                 installation. At most {} bytes of code, {} seconds. Answers session_busy while another run of the \
                 session is at work.",
                limits.code,
                limits.run_python.as_secs_f64(),
            ),
            read_only: false,
            destructive: true,
            input: object(json!({
                "type": "object",
                "additionalProperties": false,
                "required": ["code"],
                "properties": {
                    "code": { "type": "string", "description": "Python source code." },
                    "session_id": id,
                    "conversationId": same_as_session,
                },
            })),
        },
        ToolInfo {
            set: ToolSet::Code,
            name: "upload_file",
            title: "Upload a file",
            description: format!(
                "Put a file into /data of a conversation, for programs of run_code to read. At most {} bytes.",
                limits.upload
            ),
            read_only: false,
            destructive: true,
            input: object(json!({
                "type": "object",
                "additionalProperties": false,
                "required": ["filename"],
                "properties": {
                    "conversationId": id,
                    "session_id": same,
                    "filename": {
                        "type": "string",
                        "description": "Name of the file, for example data.csv; directories in it are made.",
                    },
                    "text": { "type": "string", "description": "The content of a text file, as it is." },
                    "content": {
                        "type": "string",
                        "description": "Instead of text: the content of any other file, as base64 with padding.",
                    },
                    "content_base64": { "type": "string", "description": "The same as content." },
                    "overwrite": {
                        "type": "boolean",
                        "description":
                            "Replace a file of this name. Default: true with conversationId and without \
                            content_base64, else false.",
                    },
                },
            })),
        },
        ToolInfo {
            set: ToolSet::Code,
            name: "read_artifact",
            title: "Read a file",
            description: format!(
                "Get the content of one file of /data within the answer, to look at it: pictures as pictures, short texts \
                 as text, everything as base64. At most {} bytes; larger ones by their download_url.",
                limits.artifact_read
            ),
            read_only: true,
            destructive: false,
            input: object(json!({
                "type": "object",
                "additionalProperties": false,
                "required": ["path"],
                "properties": {
                    "path": { "type": "string", "description": "The file, for example /mnt/data/chart.png." },
                    "session_id": existing,
                    "conversationId": same_as_session,
                },
            })),
        },
        ToolInfo {
            set: ToolSet::Code,
            name: "list_artifacts",
            title: "List files",
            description: format!(
                "List the files in /data of a session with sizes, types and download links, {} at a time unless limit \
                 says otherwise. When truncated is true, call again with next_cursor as cursor.",
                listing::PAGE
            ),
            read_only: true,
            destructive: false,
            input: object(json!({
                "type": "object",
                "additionalProperties": false,
                "properties": {
                    "session_id": existing,
                    "conversationId": same_as_session,
                    "limit": {
                        "type": "integer", "minimum": 1, "maximum": listing::MAX_PAGE, "default": listing::PAGE,
                        "description": "Files of one answer, at most.",
                    },
                    "cursor": { "type": "string", "description": "next_cursor of the answer before." },
                },
            })),
        },
        ToolInfo {
            set: ToolSet::Code,
            name: "close_session",
            title: "Close a session",
            description:
                "End a session: what runs in it is stopped, its containers go. Its files stay and are there \
                again when the same id is used later, unless delete_files is true."
                    .to_owned(),
            read_only: false,
            destructive: true,
            input: object(json!({
                "type": "object",
                "additionalProperties": false,
                "properties": {
                    "session_id": existing,
                    "conversationId": same_as_session,
                    "delete_files": {
                        "type": "boolean", "default": false,
                        "description": "Also delete the session's files, for good.",
                    },
                },
            })),
        },
        ToolInfo {
            set: ToolSet::Code,
            name: "list_runners",
            title: "List languages",
            description: "List the languages that code can be run in, their images and libraries.".to_owned(),
            read_only: true,
            destructive: false,
            input: object(json!({ "type": "object", "additionalProperties": false, "properties": {} })),
        },
    ]
}

fn run_code_text(runners: &Runners, limits: &ToolLimits) -> String {
    let languages: Vec<&str> = runners.keys().map(String::as_str).collect();
    let mut text = format!(
        "Run a program in an isolated container and get its output and files. Languages: {}. Each run is a new \
         process: variables are gone afterwards, files in /data (also /mnt/data and /workspace) stay for the \
         conversation and come back as download links. Figures of matplotlib that are shown (plt.show) or left open \
         are saved as /data/figure_1.png and so on; small pictures come back with the answer. Of a long output the \
         beginning and the end are shown, {} in all (`output` too; `stdout` and `stderr` have up to {} each); \
         log_url has all of it. No network, no package installation. At most {} bytes of code, {} seconds unless \
         timeout_seconds says otherwise.",
        or_none(&languages),
        values::size(limits.shown as u64),
        values::size(limits.output as u64),
        limits.code,
        limits.run_code.as_secs_f64(),
    );
    let with_libraries = runners.values().filter(|(_, runner)| !runner.libraries.is_empty());
    let lines: Vec<String> =
        with_libraries.map(|(_, runner)| format!("- {}: {}", runner.language, runner.libraries)).collect();
    if !lines.is_empty() {
        text.push_str("\n\nLibraries:\n");
        text.push_str(&lines.join("\n"));
    }
    text
}

fn or_none(languages: &[&str]) -> String {
    if languages.is_empty() { "none at the moment".to_owned() } else { languages.join(", ") }
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => Map::new(),
    }
}
