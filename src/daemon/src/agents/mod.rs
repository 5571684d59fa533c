//! Coding agents: programs that take a task in words, work on the files of a session, and report as JSON.
//!
//! ```text
//!  TaskRequest ─► command: the agent's program, its flags and environment ─► an execution
//!  a line that it writes ─► event ─► transcript: what it does, what it was denied, how it ended
//! ```
//!
//! Everything here is pure. A [`Level`] says what an agent may do; this is a guard rail inside the boundary,
//! which is the container and egress. Settings come as flags of the program, never from a file that the agent
//! or a repository could have written. It must never hold a key: the agent reaches its model as a service of
//! egress, which adds the key outside of the container.

mod command;
mod conversation;
mod event;
#[cfg(test)]
mod fuzz_tests;
mod level;
mod transcript;

use serde::{Deserialize, Serialize};

pub use self::command::{AgentCommand, TaskRequest};
pub use self::conversation::{STATE_DIR, last_conversation};
pub use self::event::{AgentEvent, TaskResult, Tokens};
pub use self::level::{BLOCKED_COMMANDS, Level};
pub use self::transcript::{Denial, Transcript};

/// An agent that this daemon knows how to start and to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Agent {
    /// Claude Code, the program `claude`.
    ClaudeCode,
}

impl Agent {
    /// Every agent.
    pub const ALL: [Agent; 1] = [Agent::ClaudeCode];

    /// Its name in a call, which is also that of its runner.
    pub fn as_str(self) -> &'static str {
        match self {
            Agent::ClaudeCode => "claude-code",
        }
    }

    /// The service of egress by which it reaches its model.
    pub fn service(self) -> &'static str {
        match self {
            Agent::ClaudeCode => "anthropic",
        }
    }

    /// The agent of this name.
    pub fn named(name: &str) -> Option<Agent> {
        Agent::ALL.into_iter().find(|agent| agent.as_str() == name)
    }
}

/// What is noted of an execution that is a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskNote {
    /// The agent's name.
    pub agent: String,
    /// The level, 1 to 4.
    pub level: u8,
    /// Where it works: an absolute path in the container.
    pub directory: String,
}
