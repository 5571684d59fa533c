//! What an agent did, in the same words for all agents; and what their streams have in common.
//!
//! What an agent writes comes out of a container: it is data to show, and nothing here decides by it.

use std::collections::VecDeque;

use serde::Serialize;

/// Characters of a message that are told.
pub(super) const MESSAGE: usize = 20_000;
/// Characters of a description of what a tool does, and of the name of a tool.
pub(super) const WHAT: usize = 300;
/// Uses of tools that are remembered, to say what was denied.
pub(super) const REMEMBERED: usize = 256;
/// Where the workspace is in the container: paths are shown without it.
const MOUNTS: [&str; 3] = ["/workspace/", "/mnt/data/", "/data/"];

/// What an agent did.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum AgentEvent {
    /// It said something.
    Message {
        /// The words.
        text: String,
    },
    /// It used a tool.
    Tool {
        /// The tool's name.
        tool: String,
        /// What it does with it, such as `edits src/app.py`.
        what: String,
    },
    /// It was denied a tool.
    Denied {
        /// The tool's name.
        tool: String,
        /// What it wanted to do with it.
        what: String,
    },
    /// It ended.
    Result(TaskResult),
}

/// How an agent says that it ended.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct TaskResult {
    /// Whether it did what it was asked to, as far as it knows.
    pub success: bool,
    /// Its last words, or why it failed.
    pub text: String,
    /// Turns of the model.
    pub turns: u64,
    /// What it cost in dollars, by the agent's own count. Claude Code counts earlier tasks of the
    /// conversation too.
    pub cost_usd: f64,
    /// Tokens, by the agent's own count, as its cost.
    pub tokens: Tokens,
}

/// Tokens of a task.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Tokens {
    /// Read by the model.
    pub input: u64,
    /// Written by it.
    pub output: u64,
    /// Read from the provider's cache.
    pub cache_read: u64,
    /// Written to it.
    pub cache_write: u64,
}

/// The last uses of tools of a stream, to say later what was denied.
#[derive(Debug, Default)]
pub(super) struct RememberedUses(VecDeque<(String, String, String)>);

impl RememberedUses {
    /// A use: its id, the tool, and what it does with it.
    pub(super) fn push(&mut self, id: String, tool: String, what: String) {
        self.0.retain(|(known, ..)| *known != id);
        self.0.push_back((id, tool, what));
        if self.0.len() > REMEMBERED {
            self.0.pop_front();
        }
    }

    /// Forgets a use and gives the tool and what it did.
    pub(super) fn take(&mut self, id: &str) -> Option<(String, String)> {
        let at = self.0.iter().rposition(|(known, ..)| known == id)?;
        self.0.remove(at).map(|(_, tool, what)| (tool, what))
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

/// A path without the directory that is the workspace.
pub(super) fn shown_path(path: &str) -> &str {
    MOUNTS.iter().find_map(|mount| path.strip_prefix(mount)).unwrap_or(path)
}

/// A description in one line, of [`WHAT`] characters at most.
pub(super) fn one_line(what: &str) -> String {
    beginning(&what.split_whitespace().collect::<Vec<_>>().join(" "), WHAT)
}

/// The beginning of a text, of so many characters at most.
pub(super) fn beginning(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}
