//! What is known of an execution from its beginning, and from its end on; the same on disk.

use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use super::ending::Ending;

/// How an execution stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// It is under way, or waits for its container.
    Running,
    /// The program ended by itself, whatever its exit code.
    Completed,
    /// It could not begin, or a bound ended it.
    Failed,
    /// Its wall time ended it.
    Timeout,
    /// Somebody ended it.
    Cancelled,
    /// Its container was lost: what it did is unknown.
    Lost,
}

impl State {
    /// As answers say it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Timeout => "timeout",
            Self::Cancelled => "cancelled",
            Self::Lost => "lost",
        }
    }
}

/// What is known of an execution from its beginning.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct About {
    /// The command.
    pub command: String,
    /// Whether it reads what is sent.
    pub interactive: bool,
    /// Its wall time.
    pub timeout: Duration,
    /// When it was asked for, in milliseconds since the epoch.
    pub started_ms: u64,
}

/// What is known of it from its end on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct End {
    /// How it ended.
    pub state: State,
    /// Its exit code, or minus the number of the signal that ended it; `None` where the program had no word in it.
    pub exit_code: Option<i32>,
    /// A sentence, where there is more to say.
    pub message: Option<String>,
    /// When, in milliseconds since the epoch.
    pub completed_ms: u64,
    /// From its start to the death of its last process.
    pub duration_ms: u64,
}

/// What is kept beside its recording.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Kept {
    pub(super) about: About,
    pub(super) end: Option<End>,
    /// Its program's end, while its files are saved: it is not told yet, and not heard again if the agent knows that it was.
    pub(super) heard: Option<Ending>,
}

/// Milliseconds since the epoch.
pub(super) fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}
