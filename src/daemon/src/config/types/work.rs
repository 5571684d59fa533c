//! What calls do: runs, shell commands, tasks and sessions. This checks nothing.

use std::time::Duration;

use serde::Deserialize;

/// How long runs may take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TimeoutsSettings {
    /// A `run_code` without a timeout of its own.
    pub run_code: Duration,
    /// A `run_python`.
    pub run_python: Duration,
    /// An `execute_code` without a timeout of its own.
    pub execute_code: Duration,
    /// The longest timeout that a caller may ask for.
    pub max: Duration,
}

/// What a task has that its call does not name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskSettings {
    /// The name of the coding agent.
    pub agent: String,
    /// The level, 1 to 4.
    pub level: u32,
    /// The time limit.
    pub timeout: Duration,
    /// How long, and how many, workspaces of coding agents outlive their containers; `None`: they do not.
    pub kept: Option<KeptWorkspaces>,
}

/// The bounds of workspaces that outlive their containers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeptWorkspaces {
    /// Each is removed after this long.
    pub retention: Duration,
    /// The most at one time, at least 1.
    pub most: u32,
}

/// Shell commands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecSettings {
    /// The language whose runner they run in.
    pub runner: String,
    /// The limit of all executions that run.
    pub max: u32,
    /// The limit of those of one session.
    pub per_session: u32,
    /// How long the output of an ended execution can be read.
    pub keep: Duration,
    /// The number of an owner's ended executions that can be read.
    pub kept: u32,
}

/// How long and how many sessions have containers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionsSettings {
    /// Idle time after which a session loses its container.
    pub ttl: Duration,
    /// Sessions with a container at one time.
    pub max: u32,
    /// Time between two sweeps for idle sessions and leftovers.
    pub sweep: Duration,
    /// What happens to a new session when `max` have containers.
    pub when_full: WhenFull,
    /// Calls that may wait for their turn in one session.
    pub queue: u32,
    /// Time without use after which a session's stored files are deleted; `None`: never.
    pub retention: Option<Duration>,
}

/// What happens to a new session when all sessions that may have containers do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WhenFull {
    /// The session that has been idle for longest is evicted.
    Evict,
    /// The new session is refused.
    Refuse,
}
