//! What an agent is asked for, and how it is started: the same for all agents.
//!
//! It must never name a key: the agent is given a placeholder, and egress adds the key.

use paddock_proto::{ExecutePolicy, FilePolicy};

use super::{Agent, Level, claude_code, opencode, other};

/// Stands where an agent wants a key; egress replaces it.
pub(super) const PLACEHOLDER: &str = "held-by-the-daemon";

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
    /// The most that it may cost in dollars.
    pub max_budget_usd: Option<f64>,
    /// What it goes on with; it begins anew if nothing.
    pub resume: Option<Resume>,
    /// Where it works: an absolute path in the container, below `/workspace`.
    pub directory: String,
    /// The models that it reaches.
    pub models: Vec<ModelService>,
    /// Part of the name of a directory of this task alone. No program can have prepared one of this name.
    pub nonce: String,
}

/// What a task goes on with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Resume {
    /// The conversation of this id, which has the form that its agent gives to ids.
    Conversation(String),
    /// The newest one, as the agent itself finds it.
    Newest,
}

/// A model, as a service of egress.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelService {
    /// Its name: a program reaches it at `http://NAME.paddock`.
    pub name: String,
    /// Whose requests it understands.
    pub format: WireFormat,
}

/// Whose requests a model understands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WireFormat {
    /// Anthropic's Messages.
    Anthropic,
    /// OpenAI's Chat Completions and Responses.
    OpenAi,
}

impl ModelService {
    /// Its address without a path.
    pub(super) fn url(&self) -> String {
        format!("http://{}.paddock", self.name)
    }
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
    /// Which files it may read and write, beside what its user may.
    pub files: Option<FilePolicy>,
}

impl TaskRequest {
    /// The command.
    pub fn command(&self) -> AgentCommand {
        match &self.agent {
            Agent::ClaudeCode => claude_code::command(self),
            Agent::Opencode => opencode::command(self),
            Agent::Other(agent) => other::command(self, agent),
        }
    }

    /// How many requests it may send to models, where the agent does not count its turns itself.
    pub fn most_requests(&self) -> Option<u64> {
        match self.agent {
            Agent::ClaudeCode => None,
            Agent::Opencode | Agent::Other(_) => self.max_turns.map(u64::from),
        }
    }
}

/// A task for unit tests.
#[cfg(test)]
pub(super) fn example(agent: Agent, level: Level) -> TaskRequest {
    TaskRequest {
        agent,
        description: "it's `done`; $(touch x)".to_owned(),
        level,
        model: None,
        max_turns: None,
        max_budget_usd: None,
        resume: None,
        directory: "/workspace".to_owned(),
        models: vec![ModelService { name: "anthropic".to_owned(), format: WireFormat::Anthropic }],
        nonce: "0c7d".to_owned(),
    }
}

/// The value of a variable of a command.
#[cfg(test)]
pub(super) fn variable<'a>(command: &'a AgentCommand, name: &str) -> Option<&'a str> {
    let found = command.environment.iter().find(|(variable, _)| variable == name)?;
    Some(&found.1)
}

/// The argument after a flag.
#[cfg(test)]
pub(super) fn value<'a>(arguments: &'a [String], flag: &str) -> Option<&'a str> {
    let at = arguments.iter().position(|argument| argument == flag)?;
    arguments.get(at + 1).map(String::as_str)
}
