//! Coding agents: programs that take a task in words, work on the files of a session, and report as JSON.
//!
//! ```text
//!  TaskRequest ─► claude_code, opencode, other: its program, its input and its environment ─► an execution
//!  a line that it writes ─► the stream of its agent ─► AgentEvent ─► transcript: what it does, how it ended
//! ```
//!
//! | file | what is there |
//! |---|---|
//! | `request`, `level` | what an agent is asked for, and what a level is outside of it |
//! | `event`, `transcript` | what an agent did, in the same words for all of them |
//! | `claude_code` | Claude Code: its flags, its rules for each level, its stream, its conversations |
//! | `opencode` | opencode: the same |
//! | `other` | any agent of a stranger's image, by the contract of `runner-images/README.md` |
//!
//! Everything here is pure. A [`Level`] says what an agent may do; this is a guard rail inside the boundary,
//! which is the container and egress. Settings come as flags or as variables of the program, never from a
//! file that the agent or a repository could have written. It must never hold a key: the agent reaches its
//! model as a service of egress, which adds the key outside of the container.

mod claude_code;
mod event;
#[cfg(test)]
mod fuzz_tests;
mod level;
mod opencode;
mod other;
mod request;
mod transcript;

use paddock_proto::RelPath;
use paddock_proto::message::Entry;
use serde::{Deserialize, Serialize};

pub use self::event::{AgentEvent, TaskResult, Tokens};
pub use self::level::{BLOCKED_COMMANDS, Level};
pub use self::opencode::choose as choose_model_of_opencode;
pub use self::request::{AgentCommand, ModelService, Resume, TaskRequest, WireFormat};
pub use self::transcript::{Denial, Transcript};

/// The directory below `/data` that is the agents' own; each has one of its name in it.
pub const STATE_DIR: &str = paddock_proto::limits::AGENTS_DIR;

/// The name of Claude Code, in a call and as a runner.
pub const CLAUDE_CODE: &str = "claude-code";
/// The name of opencode.
pub const OPENCODE: &str = "opencode";

/// An agent, and how it is started and read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Agent {
    /// Claude Code, the program `claude`.
    ClaudeCode,
    /// opencode, the program of the same name.
    Opencode,
    /// An agent that follows the contract of `runner-images/README.md`.
    Other(OtherAgent),
}

/// An agent of a stranger, as its image describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OtherAgent {
    /// Its name in a call, which is also that of its runner.
    pub name: String,
    /// The image's entrypoint and command.
    pub argv: Vec<String>,
    /// The programs that it may execute at levels 1 and 2, beside its own.
    pub programs: Vec<String>,
    /// The models that it needs; `*` for all that the caller may use.
    pub models: Vec<String>,
}

impl Agent {
    /// Its name in a call, which is also that of its runner.
    pub fn name(&self) -> &str {
        match self {
            Agent::ClaudeCode => CLAUDE_CODE,
            Agent::Opencode => OPENCODE,
            Agent::Other(other) => &other.name,
        }
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

/// What a further task of this agent in this directory of the container goes on with, as the session's files
/// say; `None` if it begins anew.
pub fn last_conversation<'a>(
    agent: &str,
    mut files: impl Iterator<Item = &'a Entry>,
    directory: &str,
) -> Option<Resume> {
    match agent {
        CLAUDE_CODE => claude_code::last_conversation(files, directory).map(Resume::Conversation),
        OPENCODE => files.any(|entry| opencode::is_record(entry, directory)).then_some(Resume::Newest),
        name => files.any(|entry| other::is_state(entry, name)).then_some(Resume::Newest),
    }
}

/// Whether this path is below the directory that is the agents' own.
pub fn is_of_agents(path: &RelPath) -> bool {
    path.components().next().is_some_and(|first| first == STATE_DIR.as_bytes())
}
