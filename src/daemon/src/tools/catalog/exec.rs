//! The tools of the set `exec` as clients are shown them.

use serde_json::{Map, Value, json};

use super::{ToolInfo, object};
use crate::config::ToolSet;
use crate::tools::{ToolLimits, values};

/// The tools of the set.
pub(super) fn list(runner: &str, limits: &ToolLimits) -> Vec<ToolInfo> {
    let tool = |name, title, description: String, read_only, destructive, input: Value| ToolInfo {
        set: ToolSet::Exec,
        name,
        title,
        description,
        input: object(input),
        read_only,
        destructive,
    };
    vec![
        tool(
            "execute_code",
            "Run a shell command",
            format!(
                "Run a shell command (/bin/sh -c) in an isolated container with the tools of the {runner} image, and \
                 get its output. Each command is a new process that starts in /data (also /mnt/data and /workspace); \
                 files there stay for the session. No network, no package installation. Ends after {} seconds unless \
                 timeout_seconds says otherwise. A command that takes longer than 45 seconds goes on by itself, \
                 unless the call asks for progress: the answer then has status running; read on with \
                 get_execution_output. Of a long output the beginning and the end are shown, {} in all; \
                 get_execution_output reads the rest. `output` in the document is a list of events; lines that were \
                 written within half a second are one event, unless lines is true.",
                limits.execute_code.as_secs_f64(),
                values::size(limits.shown as u64),
            ),
            false,
            true,
            begin(limits, true),
        ),
        tool(
            "execute_code_async",
            "Start a shell command",
            "Start a shell command as execute_code does, without waiting for it: for servers, long computations and \
             interactive programs. Read its output with get_execution_output, end it with cancel_execution."
                .to_owned(),
            false,
            true,
            begin(limits, false),
        ),
        tool(
            "get_execution_output",
            "Read a command's output",
            "Read the events of an execution: ready, stdout and stderr (lines), resource_limit with the bound that \
             ended it, and last exit, timeout, cancelled or error. Each has a seq: that of its last line, where \
             lines are joined. Nothing is used up by reading. With wait true it waits up to 45 seconds: for \
             something after since if that is given, else for the end. When more is true, call again with since = \
             next_since. Whoever has an execution's id can read and end it, from any session of the same token; \
             list_executions lists one session's."
                .to_owned(),
            true,
            false,
            by_id(json!({
                "wait": { "type": "boolean", "default": false, "description": "Wait until there is something to read." },
                "lines": { "type": "boolean", "default": false, "description": "Give each line an event of its own." },
                "since": {
                    "type": "integer", "minimum": 0,
                    "description": "The seq of the last event that is known already; next_since of the answer before.",
                },
            })),
        ),
        tool(
            "get_execution_status",
            "Look at a command",
            "See how an execution stands: running, completed, failed, timeout, cancelled or lost; its exit code and times."
                .to_owned(),
            true,
            false,
            by_id(json!({})),
        ),
        tool(
            "list_executions",
            "List commands",
            "List the executions of the session, those that have ended lately too, the oldest first.".to_owned(),
            true,
            false,
            json!({ "type": "object", "additionalProperties": false, "properties": session() }),
        ),
        tool(
            "send_stdin",
            "Send a command input",
            "Send a line to an execution that was started with interactive true. A newline is put behind it if it \
             has none. What the program has not read when the daemon is restarted can be lost."
                .to_owned(),
            false,
            false,
            by_id(json!({
                "input_data": { "type": "string", "description": "What the program is to read." },
                "eof": {
                    "type": "boolean", "default": false,
                    "description": "End the input after that: the program reads end of file.",
                },
            })),
        ),
        tool(
            "cancel_execution",
            "End a command",
            "End an execution with everything that it started. It is asked first (SIGTERM) and killed 5 seconds \
             later; with force it is killed at once. Its output stays to be read."
                .to_owned(),
            false,
            true,
            by_id(json!({
                "force": { "type": "boolean", "default": false, "description": "Kill it at once." },
            })),
        ),
    ]
}

fn session() -> Value {
    let same = json!({ "type": "string", "minLength": 1, "maxLength": 256, "description": "The same as session_id." });
    json!({
        "session_id": {
            "type": "string", "minLength": 1, "maxLength": 256,
            "description": "Names the session, with its files. Left out: this connection's own; it is in the answer.",
        },
        "conversationId": same,
    })
}

fn with(properties: Value, more: Value) -> Map<String, Value> {
    let mut all = object(properties);
    all.extend(object(more));
    all
}

fn by_id(more: Value) -> Value {
    let id = json!({ "execution_id": { "type": "string", "description": "The execution, as an earlier answer named it." } });
    let properties = with(Value::Object(with(id, more)), session());
    json!({ "type": "object", "additionalProperties": false, "required": ["execution_id"], "properties": properties })
}

fn begin(limits: &ToolLimits, waits: bool) -> Value {
    let patterns =
        |what: &str| json!({ "type": "array", "items": { "type": "string" }, "description": what });
    let most = |what: &str| json!({ "type": "integer", "minimum": 1, "description": what });
    let mut properties = with(
        json!({
            "command": { "type": "string", "description": "The command, for /bin/sh." },
            "timeout_seconds": {
                "type": "number", "exclusiveMinimum": 0, "maximum": limits.longest.as_secs_f64(),
                "default": limits.execute_code.as_secs_f64(),
                "description": "It is ended after this long; its output and files until then are kept.",
            },
            "interactive": {
                "type": "boolean", "default": false,
                "description": "Let it read what send_stdin sends; else it has no input.",
            },
            "working_directory": { "type": "string", "description": "Where it starts. Default: /data." },
            "environment": {
                "type": "object", "additionalProperties": { "type": "string" },
                "description": "Environment variables for this command.",
            },
            "sandbox_config": {
                "type": "object", "additionalProperties": false,
                "description": "What this command may use, beside what its container may.",
                "properties": {
                    "network": {
                        "type": "object", "additionalProperties": false,
                        "description": "There is no network: domains that are allowed are refused.",
                        "properties": {
                            "allowed_domains": patterns("Must be empty."),
                            "denied_domains": patterns("Nothing can be reached anyway."),
                        },
                    },
                    "filesystem": {
                        "type": "object", "additionalProperties": false,
                        "description": "Paths, absolute, below ~ or relative to the working directory; * ? [] and ** \
                            match. A name without a / in a deny list matches at any depth below the working \
                            directory.",
                        "properties": {
                            "allow_write": patterns("Only this may be written. Left out: all that usually may."),
                            "deny_write": patterns("This may not be written, for example .env or *.key."),
                            "deny_read": patterns("This may not be read."),
                        },
                    },
                    "resource_limits": {
                        "type": "object", "additionalProperties": false,
                        "properties": {
                            "max_memory_mb": most("MiB of memory of all its processes together."),
                            "max_cpu_seconds": most("Seconds of CPU time of each of its processes."),
                            "max_file_size_mb": most("MiB of a file that it writes."),
                            "max_processes": most("Processes at one time. One more ends the command and all that it \
                                started; fork does not fail."),
                        },
                    },
                },
            },
        }),
        session(),
    );
    if waits {
        properties.insert(
            "lines".into(),
            json!({ "type": "boolean", "default": false, "description": "Give each line an event of its own." }),
        );
        properties.insert(
            "wait_for_completion".into(),
            json!({ "type": "boolean", "default": true, "description": "false: answer at once, as execute_code_async." }),
        );
    }
    json!({ "type": "object", "additionalProperties": false, "required": ["command"], "properties": properties })
}
