//! Claude Code, the program `claude`: how it is started.
//!
//! | file | what is there |
//! |---|---|
//! | `permissions` | what a level means in its settings |
//! | `stream` | its lines of JSON as events |
//! | `conversation` | where it keeps its conversations |
//!
//! Each value that a caller gave is one argument, whatever it contains. The task comes on standard input.

mod conversation;
mod permissions;
mod stream;

pub(super) use self::conversation::last_conversation;
pub(super) use self::stream::Stream;
use super::request::PLACEHOLDER;
use super::{AgentCommand, CLAUDE_CODE, Resume, STATE_DIR, TaskRequest};

/// Its program.
const PROGRAM: &str = "claude";

/// How it is started.
pub(super) fn command(task: &TaskRequest) -> AgentCommand {
    let settings = permissions::settings(task.level).to_string();
    let tools = permissions::tools(task.level).join(",");
    let mut argv: Vec<&str> = vec![
        PROGRAM,
        "-p",
        "--output-format",
        "stream-json",
        "--verbose",
        // What a repository brings (CLAUDE.md, hooks, plugins, MCP servers, settings) is not loaded.
        "--safe-mode",
        "--setting-sources",
        "",
        "--strict-mcp-config",
        "--disable-slash-commands",
        "--permission-mode",
        permissions::mode(task.level),
        "--tools",
        &tools,
        "--settings",
        &settings,
    ];
    let turns = task.max_turns.map(|turns| turns.to_string());
    let budget = task.max_budget_usd.map(|budget| budget.to_string());
    let resume = match &task.resume {
        Some(Resume::Conversation(id)) => Some(id.clone()),
        Some(Resume::Newest) | None => None,
    };
    for (flag, value) in [
        ("--model", &task.model),
        ("--max-turns", &turns),
        ("--max-budget-usd", &budget),
        ("--resume", &resume),
    ] {
        if let Some(value) = value {
            argv.extend([flag, value]);
        }
    }
    let base = task.models.first().map_or_else(String::new, super::ModelService::url);
    let environment = [
        ("ANTHROPIC_BASE_URL", base.as_str()),
        ("ANTHROPIC_API_KEY", PLACEHOLDER),
        ("CLAUDE_CONFIG_DIR", &format!("/data/{STATE_DIR}/{CLAUDE_CODE}")),
        ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"),
        ("DISABLE_AUTOUPDATER", "1"),
    ];
    AgentCommand {
        argv: argv.into_iter().map(str::to_owned).collect(),
        environment: environment.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec(),
        input: task.description.clone(),
        execute: task.level.execute([PROGRAM]),
        files: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agents::Agent;
    use crate::agents::level::{ALL, Level};
    use crate::agents::request::{example, value, variable};

    #[test]
    fn each_value_is_one_argument_and_the_task_is_none() {
        let mut request = example(Agent::ClaudeCode, Level::Commands);
        request.model = Some("a' --dangerously-skip-permissions '; echo".to_owned());
        (request.max_turns, request.max_budget_usd) = (Some(3), Some(0.5));
        let id = "11111111-2222-4333-8444-555555555555";
        request.resume = Some(Resume::Conversation(id.to_owned()));
        let command = request.command();
        let argv = &command.argv;
        assert_eq!((argv[0].as_str(), &command.input), ("claude", &request.description));
        assert_eq!(value(argv, "--model"), request.model.as_deref());
        assert_eq!(value(argv, "--max-turns"), Some("3"));
        assert_eq!(value(argv, "--max-budget-usd"), Some("0.5"));
        assert_eq!(value(argv, "--resume"), Some(id));
        assert_eq!(value(argv, "--setting-sources"), Some(""));
        assert!(!argv.iter().any(|argument| argument == "--dangerously-skip-permissions"));
        assert_eq!(variable(&command, "ANTHROPIC_BASE_URL"), Some("http://anthropic.paddock"));
        assert!(!command.environment.iter().any(|(_, value)| value.contains("touch")));
        assert_eq!(request.most_requests(), None, "it counts its turns itself");
    }

    #[test]
    fn a_level_is_set_in_its_own_settings_and_outside_of_it() {
        for level in ALL {
            let AgentCommand { argv, execute, .. } = example(Agent::ClaudeCode, level).command();
            assert_eq!(execute, level.execute(["claude"]), "{level:?}");
            assert_eq!(value(&argv, "--permission-mode"), Some(permissions::mode(level)));
            assert_eq!(value(&argv, "--tools"), Some(permissions::tools(level).join(",").as_str()));
            let settings = value(&argv, "--settings").unwrap();
            assert_eq!(settings.parse::<serde_json::Value>().unwrap(), permissions::settings(level));
            for flag in ["--safe-mode", "--strict-mcp-config", "--disable-slash-commands"] {
                assert!(argv.iter().any(|argument| argument == flag), "{flag}");
            }
            let unset = ["--model", "--max-turns", "--max-budget-usd", "--resume"];
            assert!(unset.iter().all(|flag| value(&argv, flag).is_none()));
        }
    }
}
