//! How the program of an agent is started: one command for the shell of its container, and its environment.
//!
//! The task comes on standard input. Every value that a caller gave is quoted, so that none of them can
//! become another argument. It must never name a key: the agent is given a placeholder.

use super::conversation::STATE_DIR;
use super::{Agent, Level};

/// Stands where an agent wants a key; egress replaces it.
const PLACEHOLDER: &str = "held-by-the-daemon";

/// The variable that has the task. The agent and its programs do not inherit it.
const TASK: &str = "PADDOCK_TASK";

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
    /// For `/bin/sh -c`.
    pub command: String,
    /// Variables over those of the image.
    pub environment: Vec<(String, String)>,
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
        let mut arguments: Vec<&str> = vec![
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
                arguments.extend([flag, value]);
            }
        }
        let arguments: Vec<_> = arguments.into_iter().map(quoted).collect();
        // Without a path the agent's program finds no other: no shell, and no git that a repository could
        // have told to run something. Claude Code brings its own search.
        let path = if self.level.runs_programs() { "" } else { "PATH=/nonexistent " };
        let command = format!(
            "agent=$(command -v claude) || {{ echo 'this image has no program claude' >&2; exit 127; }}; \
             printf %s \"${TASK}\" | env -u {TASK} {path}\"$agent\" {}",
            arguments.join(" ")
        );
        let base = format!("http://{}.paddock", self.agent.service());
        let environment = [
            (TASK, self.description.as_str()),
            ("ANTHROPIC_BASE_URL", &base),
            ("ANTHROPIC_API_KEY", PLACEHOLDER),
            ("CLAUDE_CONFIG_DIR", &format!("/data/{STATE_DIR}/claude-code")),
            ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"),
            ("DISABLE_AUTOUPDATER", "1"),
        ];
        AgentCommand {
            command,
            environment: environment.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec(),
        }
    }
}

/// A word of a shell's command line.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
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

    /// The arguments that a stand-in for the agent gets from a real shell, and its input and environment.
    fn started(task: &TaskRequest) -> (Vec<String>, String, String) {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("claude");
        let script = "#!/bin/sh\n/bin/cat > \"${0%/*}/in\"\n/usr/bin/env > \"${0%/*}/env\"\nfor a; do printf \
                      '%s\\0' \"$a\"; done\n";
        std::fs::write(&program, script).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&program, mode).unwrap();
        let AgentCommand { command, environment } = task.command();
        let path = format!("{}:/usr/bin:/bin", folder.path().display());
        let output = std::process::Command::new("/bin/sh")
            .args(["-c", &command])
            .env_clear()
            .env("PATH", path)
            .envs(environment)
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout).unwrap();
        let read = |name| std::fs::read_to_string(folder.path().join(name)).unwrap();
        let arguments = text.split_terminator('\0').map(str::to_owned).collect();
        (arguments, read("in"), read("env"))
    }

    fn value<'a>(arguments: &'a [String], flag: &str) -> Option<&'a str> {
        let at = arguments.iter().position(|argument| argument == flag)?;
        arguments.get(at + 1).map(String::as_str)
    }

    #[test]
    fn no_value_becomes_more_than_one_argument() {
        let mut request = task(Level::Commands);
        request.model = Some("a' --dangerously-skip-permissions '; echo".to_owned());
        (request.max_turns, request.max_budget_usd) = (Some(3), Some(0.5));
        request.resume = Some("11111111-2222-4333-8444-555555555555".to_owned());
        let (arguments, input, environment) = started(&request);
        assert_eq!(input, request.description);
        assert_eq!(value(&arguments, "--model"), request.model.as_deref());
        assert_eq!(value(&arguments, "--max-turns"), Some("3"));
        assert_eq!(value(&arguments, "--max-budget-usd"), Some("0.5"));
        assert_eq!(value(&arguments, "--resume"), request.resume.as_deref());
        assert_eq!(value(&arguments, "--setting-sources"), Some(""));
        assert!(!arguments.iter().any(|argument| argument == "--dangerously-skip-permissions"));
        assert!(!environment.contains("PADDOCK_TASK"), "{environment}");
        assert!(environment.contains("ANTHROPIC_BASE_URL=http://anthropic.paddock\n"), "{environment}");
    }

    #[test]
    fn only_levels_that_run_programs_have_a_path_to_find_some() {
        for level in [Level::Files, Level::Web, Level::Commands, Level::Everything] {
            let (arguments, _, environment) = started(&task(level));
            assert_eq!(environment.contains("PATH=/nonexistent"), level < Level::Commands, "{level:?}");
            assert_eq!(value(&arguments, "--permission-mode"), Some(level.mode()));
            assert_eq!(value(&arguments, "--tools"), Some(level.tools().join(",").as_str()));
            let settings = value(&arguments, "--settings").unwrap();
            assert_eq!(settings.parse::<serde_json::Value>().unwrap(), level.settings());
            for flag in ["--safe-mode", "--strict-mcp-config", "--disable-slash-commands"] {
                assert!(arguments.iter().any(|argument| argument == flag), "{flag}");
            }
            let unset = ["--model", "--max-turns", "--max-budget-usd", "--resume"];
            assert!(unset.iter().all(|flag| value(&arguments, flag).is_none()));
        }
    }
}
