//! opencode, the program of the same name: how it is started.
//!
//! | file | what is there |
//! |---|---|
//! | `permissions` | what a level means in its configuration |
//! | `model` | which of the caller's models it uses, and that model's entry in its configuration |
//! | `stream` | its lines of JSON as events |
//!
//! All of its configuration is in one variable, whose values win over those of every file. Still a repository
//! could raise its level: opencode 1.18 runs the plugins in `.opencode` of its working directory and of every
//! directory above, and the plugins that an `opencode.json` there names. No switch of opencode prevents this.
//! So nothing of the task can read these files ([`hidden`]). Its directory for global configuration is one of
//! the image (`/etc/opencode`), which no task can write; those for caches and the like are new in each task.
//!
//! It keeps its conversations in one database for each directory (`/data/.agent/opencode/*.db`), which
//! programs of level 3 can change. A task goes on in a copy of the conversation (`--fork`), which has none of
//! the permissions that a stored conversation can have.
//!
//! It must never be given a setting by a file that the agent or a repository could have written.

mod model;
mod permissions;
mod stream;

use paddock_proto::FilePolicy;
use paddock_proto::message::{Entry, EntryKind};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

pub use self::model::choose;
pub(super) use self::stream::Stream;
use super::{AgentCommand, OPENCODE, Resume, STATE_DIR, TaskRequest};

/// Its program.
const PROGRAM: &str = "opencode";
/// The program by which it searches files.
const SEARCH: &str = "rg";
/// Where the workspace is in the container; nothing above it can be written.
const WORKSPACE: &str = "/workspace";
/// What it reads as the configuration of a project, plugins included, in each directory from its own upwards.
const PROJECT_FILES: [&str; 3] = [".opencode", "opencode.json", "opencode.jsonc"];
/// Characters of a directory in the name of its database.
const SHOWN: usize = 60;
/// The agent, in opencode's sense, that does tasks. All others are switched off: what they do is not in the
/// stream.
const AGENT: &str = "build";

/// How it is started.
pub(super) fn command(task: &TaskRequest) -> AgentCommand {
    let named = model::named(task);
    let mut argv: Vec<&str> = vec![
        PROGRAM,
        "run",
        "--format",
        "json",
        "--agent",
        AGENT,
        "--log-level",
        "ERROR",
        // With a title of its own it does not ask the model for one.
        "--title",
        "task",
    ];
    if let Some(named) = &named {
        argv.extend(["--model", named]);
    }
    match &task.resume {
        Some(Resume::Conversation(id)) => argv.extend(["--session", id, "--fork"]),
        Some(Resume::Newest) => argv.extend(["--continue", "--fork"]),
        None => {}
    }
    let of_task = |name: &str| format!("/tmp/.{PROGRAM}-{}/{name}", task.nonce);
    let mut environment = vec![
        ("OPENCODE_CONFIG_CONTENT", configuration(task, named.as_deref()).to_string()),
        ("OPENCODE_DB", format!("{}.db", slug(&task.directory))),
        // A stored login could name a server that gives it a configuration.
        ("OPENCODE_AUTH_CONTENT", "{}".to_owned()),
        ("XDG_DATA_HOME", format!("/data/{STATE_DIR}")),
        ("XDG_CONFIG_HOME", "/etc".to_owned()),
        ("XDG_CACHE_HOME", of_task("cache")),
        ("XDG_STATE_HOME", of_task("state")),
        // Its own idea of the home directory, in which it looks for `.opencode`. Programs have another.
        ("OPENCODE_TEST_HOME", "/nonexistent".to_owned()),
    ];
    environment.extend(
        [
            "OPENCODE_DISABLE_PROJECT_CONFIG",
            "OPENCODE_PURE",
            "OPENCODE_DISABLE_DEFAULT_PLUGINS",
            "OPENCODE_DISABLE_EXTERNAL_SKILLS",
            "OPENCODE_DISABLE_CLAUDE_CODE",
            "OPENCODE_DISABLE_MODELS_FETCH",
            "OPENCODE_DISABLE_AUTOUPDATE",
            "OPENCODE_DISABLE_LSP_DOWNLOAD",
            // No directory can be watched where something may not be read.
            "OPENCODE_EXPERIMENTAL_DISABLE_FILEWATCHER",
        ]
        .map(|switch| (switch, "1".to_owned())),
    );
    AgentCommand {
        argv: argv.into_iter().map(str::to_owned).collect(),
        environment: environment.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
        input: task.description.clone(),
        execute: task.level.execute([PROGRAM, SEARCH]),
        files: Some(FilePolicy { deny_read: hidden(&task.directory), ..FilePolicy::default() }),
    }
}

fn configuration(task: &TaskRequest, model: Option<&str>) -> Value {
    let mut agent = json!({});
    if let Some(turns) = task.max_turns {
        // It tells the model of its last turn. Egress counts them too.
        agent["steps"] = json!(turns);
    }
    let off = || json!({ "disable": true });
    let mut configuration = json!({
        "permission": permissions::rules(task.level),
        "default_agent": AGENT,
        "agent": { AGENT: agent, "plan": off(), "general": off(), "explore": off() },
        "share": "disabled",
        "autoupdate": false,
        // Each would start programs that nobody asked for.
        "snapshot": false,
        "formatter": false,
        "lsp": false,
    });
    if let Some((id, provider)) = model::provider(task) {
        configuration["enabled_providers"] = json!([id]);
        configuration["provider"] = json!({ id: provider });
    }
    if let Some(model) = model {
        (configuration["model"], configuration["small_model"]) = (json!(model), json!(model));
    }
    configuration
}

/// The patterns of all files that opencode would take for the configuration of a project.
fn hidden(directory: &str) -> Vec<String> {
    let chain = std::iter::successors(Some(directory), |above| {
        let (parent, _) = above.rsplit_once('/')?;
        (*above != WORKSPACE && parent.starts_with(WORKSPACE)).then_some(parent)
    });
    let of_directory = |directory: &str| {
        let directory = literal(directory);
        PROJECT_FILES.map(|file| format!("{directory}/{file}"))
    };
    chain.flat_map(of_directory).collect()
}

/// A pattern that matches this path alone.
fn literal(path: &str) -> String {
    let mut pattern = String::with_capacity(path.len());
    for c in path.chars() {
        if "*?[\\".contains(c) {
            pattern.push('\\');
        }
        pattern.push(c);
    }
    pattern
}

/// The name of a directory's database, without its end: the beginning for people, and what tells it from all
/// others.
fn slug(directory: &str) -> String {
    let one = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
    let beginning: String = directory.trim_start_matches('/').chars().take(SHOWN).map(one).collect();
    let hash = Sha256::digest(directory);
    let hash: String = hash.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    format!("{beginning}-{hash}")
}

/// Whether a file is the database of the conversations in this directory.
pub(super) fn is_record(entry: &Entry, directory: &str) -> bool {
    let path = format!("{STATE_DIR}/{OPENCODE}/{}.db", slug(directory));
    matches!(entry.kind, EntryKind::File(_)) && entry.path.as_bytes() == path.as_bytes()
}

#[cfg(test)]
mod tests {
    use paddock_proto::RelPath;

    use super::*;
    use crate::agents::level::{ALL, Level};
    use crate::agents::request::{example, value, variable};
    use crate::agents::{Agent, ModelService, WireFormat};

    fn configuration_of(command: &AgentCommand) -> Value {
        serde_json::from_str(variable(command, "OPENCODE_CONFIG_CONTENT").unwrap()).unwrap()
    }

    #[test]
    fn each_value_is_one_argument_and_the_task_is_none() {
        let mut request = example(Agent::Opencode, Level::Commands);
        request.model = Some("claude-x; --auto".to_owned());
        request.max_turns = Some(3);
        request.resume = Some(Resume::Conversation("ses_1".to_owned()));
        let command = request.command();
        assert_eq!((command.argv[0].as_str(), &command.input), ("opencode", &request.description));
        assert_eq!(value(&command.argv, "--model"), Some("anthropic/claude-x; --auto"));
        assert_eq!(value(&command.argv, "--session"), Some("ses_1"));
        for flag in ["--auto", "--dangerously-skip-permissions"] {
            assert!(!command.argv.iter().any(|argument| argument == flag), "{flag}");
        }
        let configuration = configuration_of(&command);
        assert_eq!(configuration["agent"]["build"]["steps"], 3);
        assert_eq!(configuration["small_model"], "anthropic/claude-x; --auto");
        assert_eq!(request.most_requests(), Some(3));
        request.resume = Some(Resume::Newest);
        assert!(request.command().argv.ends_with(&["--continue".to_owned(), "--fork".to_owned()]));
        request.resume = None;
        let argv = request.command().argv;
        assert!(!argv.iter().any(|argument| ["--continue", "--session", "--fork"].contains(&&**argument)));
    }

    #[test]
    fn a_level_is_set_in_its_own_configuration_and_outside_of_it() {
        for level in ALL {
            let command = example(Agent::Opencode, level).command();
            assert_eq!(command.execute, level.execute(["opencode", "rg"]), "{level:?}");
            assert_eq!(configuration_of(&command)["permission"], permissions::rules(level));
            let off = &configuration_of(&command)["agent"];
            assert!(["plan", "general", "explore"].iter().all(|name| off[name]["disable"] == true));
        }
    }

    #[test]
    fn no_configuration_comes_from_a_file_that_a_program_could_have_written() {
        let mut request = example(Agent::Opencode, Level::Files);
        request.directory = "/workspace/a/b[1]".to_owned();
        let command = request.command();
        assert_eq!(variable(&command, "XDG_CONFIG_HOME"), Some("/etc"));
        assert_eq!(variable(&command, "XDG_CACHE_HOME"), Some("/tmp/.opencode-0c7d/cache"));
        assert_eq!(variable(&command, "XDG_DATA_HOME"), Some("/data/.agent"));
        for name in ["OPENCODE_DISABLE_PROJECT_CONFIG", "OPENCODE_PURE", "OPENCODE_DISABLE_MODELS_FETCH"] {
            assert_eq!(variable(&command, name), Some("1"), "{name}");
        }
        let policy = command.files.unwrap();
        assert_eq!(policy.check(), Ok(()));
        let expected: Vec<String> = [r"/workspace/a/b\[1]", "/workspace/a", "/workspace"]
            .iter()
            .flat_map(|above| PROJECT_FILES.map(|file| format!("{above}/{file}")))
            .collect();
        assert_eq!(policy, FilePolicy { deny_read: expected, ..FilePolicy::default() });
    }

    #[test]
    fn a_model_of_another_provider_is_one_that_speaks_its_form() {
        let mut request = example(Agent::Opencode, Level::Files);
        request.models = vec![ModelService { name: "local".to_owned(), format: WireFormat::OpenAi }];
        request.model = Some("qwen/q:7b".to_owned());
        let command = request.command();
        let configuration = configuration_of(&command);
        assert_eq!(value(&command.argv, "--model"), Some("paddock/qwen/q:7b"));
        let provider = &configuration["provider"]["paddock"];
        assert_eq!(provider["options"]["baseURL"], "http://local.paddock/v1");
        assert_eq!(provider["npm"], "@ai-sdk/openai-compatible");
        assert_eq!(provider["models"], json!({ "qwen/q:7b": {} }));
        assert_eq!(configuration["enabled_providers"], json!(["paddock"]));
    }

    #[test]
    fn every_directory_has_a_database_of_its_own() {
        let names = ["/workspace", "/workspace/a-b", "/workspace/a/b", "/workspace/a b"].map(slug);
        for (at, name) in names.iter().enumerate() {
            assert!(names[at + 1..].iter().all(|other| other != name), "{name}");
            assert!(name.starts_with("workspace"), "{name}");
        }
        assert!(slug(&format!("/workspace/{}", "x".repeat(3000))).len() < 200);
        let file = |path: &str, kind| Entry {
            path: RelPath::new(path.as_bytes()).unwrap(),
            kind,
            mode: 0o600,
            mtime_ns: 1,
        };
        let path = format!(".agent/opencode/{}.db", slug("/workspace"));
        assert!(is_record(&file(&path, EntryKind::File(1)), "/workspace"));
        assert!(!is_record(&file(&path, EntryKind::Dir), "/workspace"));
        assert!(!is_record(&file(&path, EntryKind::File(1)), "/workspace/a"));
        assert!(!is_record(&file(&format!("{path}-wal"), EntryKind::File(1)), "/workspace"));
    }
}
