//! An agent of a stranger's image: how it is started, by the contract of `runner-images/README.md`.
//!
//! Its entrypoint gets the task as one JSON document on standard input. What it may do is in that document,
//! for its own settings; what it may execute and reach is enforced outside of it. It must never be given
//! anything that the contract does not have.

mod stream;

use paddock_proto::message::{Entry, EntryKind};
use serde::Serialize;

pub(super) use self::stream::Stream;
use super::request::PLACEHOLDER;
use super::{AgentCommand, ModelService, OtherAgent, STATE_DIR, TaskRequest, WireFormat};

/// The task as an agent reads it.
#[derive(Serialize)]
struct Document<'a> {
    task: &'a str,
    level: u8,
    directory: &'a str,
    state_directory: String,
    /// Whether it goes on with what its state directory has.
    resume: bool,
    model: Option<&'a str>,
    max_turns: Option<u32>,
    max_budget_usd: Option<f64>,
    models: Vec<Model<'a>>,
}

#[derive(Serialize)]
struct Model<'a> {
    name: &'a str,
    format: &'static str,
    url: String,
}

/// How it is started.
pub(super) fn command(task: &TaskRequest, agent: &OtherAgent) -> AgentCommand {
    let model = |service: &ModelService, format| service.format == format;
    let models = task.models.iter().map(|service| Model {
        name: &service.name,
        format: match service.format {
            WireFormat::Anthropic => "anthropic",
            WireFormat::OpenAi => "openai",
        },
        url: service.url(),
    });
    let document = Document {
        task: &task.description,
        level: task.level.number(),
        directory: &task.directory,
        state_directory: format!("/data/{STATE_DIR}/{}", agent.name),
        resume: task.resume.is_some(),
        model: task.model.as_deref(),
        max_turns: task.max_turns,
        max_budget_usd: task.max_budget_usd,
        models: models.collect(),
    };
    // The names that the clients of both providers look for. A document has nothing that cannot be written.
    let first = |format| task.models.iter().find(|service| model(service, format));
    let mut environment = Vec::new();
    for (format, prefix, path) in
        [(WireFormat::Anthropic, "ANTHROPIC", ""), (WireFormat::OpenAi, "OPENAI", "/v1")]
    {
        if let Some(service) = first(format) {
            environment.push((format!("{prefix}_BASE_URL"), format!("{}{path}", service.url())));
            environment.push((format!("{prefix}_API_KEY"), PLACEHOLDER.to_owned()));
        }
    }
    let own = agent.argv.first().into_iter().chain(&agent.programs).cloned();
    AgentCommand {
        argv: agent.argv.clone(),
        environment,
        input: serde_json::to_string(&document).unwrap_or_default() + "\n",
        execute: task.level.execute(own),
        files: None,
    }
}

/// Whether a file is of what the agent of this name keeps.
pub(super) fn is_state(entry: &Entry, name: &str) -> bool {
    let folder = format!("{STATE_DIR}/{name}/");
    matches!(entry.kind, EntryKind::File(_)) && entry.path.as_bytes().starts_with(folder.as_bytes())
}

#[cfg(test)]
mod tests {
    use paddock_proto::RelPath;
    use serde_json::{Value, json};

    use super::*;
    use crate::agents::level::{ALL, Level};
    use crate::agents::request::{example, variable};
    use crate::agents::{Agent, Resume};

    fn agent() -> OtherAgent {
        OtherAgent {
            name: "example".to_owned(),
            argv: vec!["/agent".to_owned(), "--json".to_owned()],
            programs: vec!["rg".to_owned()],
            models: vec!["*".to_owned()],
        }
    }

    #[test]
    fn the_task_is_one_document_on_standard_input() {
        let mut task = example(Agent::Other(agent()), Level::Commands);
        task.models.push(ModelService { name: "local".to_owned(), format: WireFormat::OpenAi });
        (task.model, task.max_turns) = (Some("m".to_owned()), Some(7));
        task.resume = Some(Resume::Newest);
        let command = task.command();
        assert_eq!(command.argv, ["/agent", "--json"]);
        assert_eq!(command.input.matches('\n').count(), 1);
        let document: Value = serde_json::from_str(&command.input).unwrap();
        let expected = json!({
            "task": task.description, "level": 3, "directory": "/workspace",
            "state_directory": "/data/.agent/example", "resume": true, "model": "m", "max_turns": 7,
            "max_budget_usd": null,
            "models": [
                { "name": "anthropic", "format": "anthropic", "url": "http://anthropic.paddock" },
                { "name": "local", "format": "openai", "url": "http://local.paddock" },
            ],
        });
        assert_eq!(document, expected);
        assert_eq!(variable(&command, "ANTHROPIC_BASE_URL"), Some("http://anthropic.paddock"));
        assert_eq!(variable(&command, "OPENAI_BASE_URL"), Some("http://local.paddock/v1"));
        assert_eq!(variable(&command, "OPENAI_API_KEY"), Some(PLACEHOLDER));
        assert_eq!(task.most_requests(), Some(7));
    }

    #[test]
    fn below_level_three_only_its_entrypoint_and_its_programs_may_be_executed() {
        for level in ALL {
            let command = example(Agent::Other(agent()), level).command();
            assert_eq!(command.execute, level.execute(["/agent", "rg"]), "{level:?}");
        }
    }

    #[test]
    fn its_state_is_below_its_own_directory() {
        let file = |path: &str, kind| Entry {
            path: RelPath::new(path.as_bytes()).unwrap(),
            kind,
            mode: 0,
            mtime_ns: 1,
        };
        for (path, kind, expected) in [
            (".agent/example/a/b", EntryKind::File(1), true),
            (".agent/example/a", EntryKind::Dir, false),
            (".agent/example", EntryKind::File(1), false),
            (".agent/example2/a", EntryKind::File(1), false),
            ("example/a", EntryKind::File(1), false),
        ] {
            assert_eq!(is_state(&file(path, kind), "example"), expected, "{path}");
        }
    }
}
