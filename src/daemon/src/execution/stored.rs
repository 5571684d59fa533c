//! What an execution is: what it was asked for, and the note of it on disk, for the next daemon.

use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use super::end::{Conclusion, ExecutionEnd};
use crate::agents::TaskNote;
use crate::store::StoreClock;

/// What an execution was asked for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ExecutionSpec {
    /// The command; of a task its words.
    pub command: String,
    /// Whether it reads what is sent.
    pub interactive: bool,
    /// Its wall time.
    pub timeout: Duration,
    /// When it was asked for, in milliseconds since the epoch.
    pub started_ms: u64,
    /// The program, where no shell starts it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
    /// What more is noted of a coding agent's task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<TaskNote>,
}

/// The note of an execution on disk. Earlier daemons wrote the same names.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct StoredExecution {
    #[serde(rename = "about")]
    pub(super) spec: ExecutionSpec,
    /// Its end, once that was said.
    pub(super) end: Option<ExecutionEnd>,
    /// The end of its program, noted before its files are saved: the agent need not say it again to the next
    /// daemon.
    #[serde(rename = "heard")]
    pub(super) conclusion: Option<Conclusion>,
}

/// Milliseconds since the epoch, by the store's clock.
pub(crate) fn now_ms() -> u64 {
    let now = StoreClock::new().now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::execution::ExecutionState;
    use crate::execution::log::event::Lifecycle;

    /// A note from an earlier version of the daemon.
    const NOTE: &str = r#"{"about":{"command":"sleep 5","interactive":true,
                 "timeout":{"secs":30,"nanos":0},"started_ms":7},
        "end":{"state":"completed","exit_code":0,"message":null,"completed_ms":9,"duration_ms":2},
        "heard":{"marks":[{"type":"exit","code":0,"duration_ms":2}],
                 "end":{"state":"completed","exit_code":0,"message":null,
                        "completed_ms":9,"duration_ms":2}}}"#;

    #[test]
    fn notes_of_earlier_daemons_are_read_and_written_alike() {
        let end = ExecutionEnd {
            state: ExecutionState::Completed,
            exit_code: Some(0),
            message: None,
            completed_ms: 9,
            duration_ms: 2,
            network: Vec::new(),
            models: None,
            changed: Vec::new(),
            diff: None,
            not_saved: Vec::new(),
        };
        let stored: StoredExecution = serde_json::from_str(NOTE).unwrap();
        assert_eq!((stored.spec.command.as_str(), stored.spec.timeout), ("sleep 5", Duration::from_secs(30)));
        let steps = vec![Lifecycle::Exit { code: 0, duration_ms: 2 }];
        assert_eq!(stored.conclusion, Some(Conclusion { steps, end: end.clone() }));
        assert_eq!(stored.end, Some(end));
        let written = serde_json::to_value(&stored).unwrap();
        assert_eq!(written, serde_json::from_str::<serde_json::Value>(NOTE).unwrap());
    }
}
