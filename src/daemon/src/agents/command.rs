//! How the program of an agent is started: its arguments, its environment, and what it may execute.
//!
//! No shell is between: each value that a caller gave is one argument, whatever it contains. The task comes
//! on standard input. It must never name a key: the agent is given a placeholder.

use paddock_proto::ExecutePolicy;

use super::conversation::STATE_DIR;
use super::{Agent, Level};

/// Stands where an agent wants a key; egress replaces it.
const PLACEHOLDER: &str = "held-by-the-daemon";

/// The program of Claude Code.
const CLAUDE: &str = "claude";

/// A task; every value was checked.
#[derive(Debug, Clone)]
pub struct TaskRequest {
    /// Which agent.
    pub agent: Agent,
    /// What it is to do.
    pub description: String,
    /// What it may do.
    pub level: Level,
    /// Which model; the agent's own choice if none.
    pub model: Option<String>,
    /// The most turns of the model.
    pub max_turns: Option<u32>,
    /// The most that its conversation may cost in dollars, earlier tasks included, by the agent's own count.
    pub max_budget_usd: Option<f64>,
    /// The conversation that it goes on with: a UUID.
    pub resume: Option<String>,
}

/// How an agent is started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentCommand {
    /// Its program, which is looked up in the image's `PATH`, and its arguments. No shell reads them.
    pub argv: Vec<String>,
    /// Variables over those of the image.
    pub environment: Vec<(String, String)>,
    /// All that it reads from its standard input.
    pub input: String,
    /// Which programs it may execute; `None`: all.
    pub execute: Option<ExecutePolicy>,
}

impl TaskRequest {
    /// The command.
    pub fn command(&self) -> AgentCommand {
        match self.agent {
            Agent::ClaudeCode => self.claude_code(),
        }
    }

    fn claude_code(&self) -> AgentCommand {
        let settings = self.level.settings().to_string();
        let tools = self.level.tools().join(",");
        let mut argv: Vec<&str> = vec![
            CLAUDE,
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
            self.level.mode(),
            "--tools",
            &tools,
            "--settings",
            &settings,
        ];
        let turns = self.max_turns.map(|turns| turns.to_string());
        let budget = self.max_budget_usd.map(|budget| budget.to_string());
        for (flag, value) in [
            ("--model", &self.model),
            ("--max-turns", &turns),
            ("--max-budget-usd", &budget),
            ("--resume", &self.resume),
        ] {
            if let Some(value) = value {
                argv.extend([flag, value]);
            }
        }
        let base = format!("http://{}.paddock", self.agent.service());
        let environment = [
            ("ANTHROPIC_BASE_URL", base.as_str()),
            ("ANTHROPIC_API_KEY", PLACEHOLDER),
            ("CLAUDE_CONFIG_DIR", &format!("/data/{STATE_DIR}/claude-code")),
            ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"),
            ("DISABLE_AUTOUPDATER", "1"),
        ];
        AgentCommand {
            argv: argv.into_iter().map(str::to_owned).collect(),
            environment: environment.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec(),
            input: self.description.clone(),
            execute: self.level.execute(CLAUDE),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::BLOCKED_COMMANDS;
    use super::*;

    fn task(level: Level) -> TaskRequest {
        TaskRequest {
            agent: Agent::ClaudeCode,
            description: "it's `done`; $(touch x)".to_owned(),
            level,
            model: None,
            max_turns: None,
            max_budget_usd: None,
            resume: None,
        }
    }

    fn value<'a>(arguments: &'a [String], flag: &str) -> Option<&'a str> {
        let at = arguments.iter().position(|argument| argument == flag)?;
        arguments.get(at + 1).map(String::as_str)
    }

    #[test]
    fn each_value_is_one_argument_and_the_task_is_none() {
        let mut request = task(Level::Commands);
        request.model = Some("a' --dangerously-skip-permissions '; echo".to_owned());
        (request.max_turns, request.max_budget_usd) = (Some(3), Some(0.5));
        request.resume = Some("11111111-2222-4333-8444-555555555555".to_owned());
        let AgentCommand { argv, environment, input, .. } = request.command();
        assert_eq!((argv[0].as_str(), input), ("claude", request.description));
        assert_eq!(value(&argv, "--model"), request.model.as_deref());
        assert_eq!(value(&argv, "--max-turns"), Some("3"));
        assert_eq!(value(&argv, "--max-budget-usd"), Some("0.5"));
        assert_eq!(value(&argv, "--resume"), request.resume.as_deref());
        assert_eq!(value(&argv, "--setting-sources"), Some(""));
        assert!(!argv.iter().any(|argument| argument == "--dangerously-skip-permissions"));
        let base = ("ANTHROPIC_BASE_URL".to_owned(), "http://anthropic.paddock".to_owned());
        assert!(environment.contains(&base), "{environment:?}");
        assert!(!environment.iter().any(|(_, value)| value.contains("touch")), "{environment:?}");
    }

    #[test]
    fn a_level_is_set_in_the_agents_own_settings_and_outside_of_it() {
        let blocked = || BLOCKED_COMMANDS.map(str::to_owned).to_vec();
        for (level, execute) in [
            (Level::Files, Some(ExecutePolicy::Only(vec!["claude".to_owned()]))),
            (Level::Web, Some(ExecutePolicy::Only(vec!["claude".to_owned()]))),
            (Level::Commands, Some(ExecutePolicy::Except(blocked()))),
            (Level::Everything, None),
        ] {
            let AgentCommand { argv, execute: policy, .. } = task(level).command();
            assert_eq!(policy, execute, "{level:?}");
            assert!(policy.is_none_or(|policy| policy.check().is_ok()));
            assert_eq!(value(&argv, "--permission-mode"), Some(level.mode()));
            assert_eq!(value(&argv, "--tools"), Some(level.tools().join(",").as_str()));
            let settings = value(&argv, "--settings").unwrap();
            assert_eq!(settings.parse::<serde_json::Value>().unwrap(), level.settings());
            for flag in ["--safe-mode", "--strict-mcp-config", "--disable-slash-commands"] {
                assert!(argv.iter().any(|argument| argument == flag), "{flag}");
            }
            let unset = ["--model", "--max-turns", "--max-budget-usd", "--resume"];
            assert!(unset.iter().all(|flag| value(&argv, flag).is_none()));
        }
    }
}
