//! How an execution ended: its state, its exit code, and its last events.
//!
//! The last event is one of `exit`, `timeout`, `cancelled` and `error`, and nothing comes after it.

use std::time::Duration;

use paddock_proto::message::{Entry, Limit, Outcome};
use serde::{Deserialize, Serialize};

use super::log::event::Lifecycle;
use super::stored::{ExecutionSpec, now_ms};
use super::task_diff::TaskDiff;
use crate::egress::{Destination, ModelUsage};
use crate::session::RunEnd;

/// How an execution stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ExecutionState {
    /// It is under way, or waits for its container.
    Running,
    /// The program ended by itself, whatever its exit code.
    Completed,
    /// It could not begin, or a limit ended it.
    Failed,
    /// Its wall time ended it.
    Timeout,
    /// Somebody ended it.
    Cancelled,
    /// Its container was lost: nobody knows what it did.
    Lost,
}

impl ExecutionState {
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

/// What is known of an execution from its end on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ExecutionEnd {
    /// How it ended.
    pub state: ExecutionState,
    /// Its exit code, or minus the number of the signal that ended it; `None` if the program did not decide
    /// its end.
    pub exit_code: Option<i32>,
    /// A sentence, where there is more to say.
    pub message: Option<String>,
    /// When, in milliseconds since the epoch.
    pub completed_ms: u64,
    /// From its start to the death of its last process.
    pub duration_ms: u64,
    /// Where it connected to, or tried to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub network: Vec<Destination>,
    /// What it used of models, if it used any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub models: Option<ModelUsage>,
    /// The files that a task made or changed, the first of them, all saved.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changed: Vec<Entry>,
    /// The diff of a task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub diff: Option<TaskDiff>,
    /// The first files of a task that are not saved and stay in its container.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_saved: Vec<NotSaved>,
}

/// A file that is not saved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotSaved {
    /// Its path below the workspace.
    pub path: String,
    /// Why, in words.
    pub reason: String,
}

/// The last events of an execution, and its end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Conclusion {
    #[serde(rename = "marks")]
    pub(super) steps: Vec<Lifecycle>,
    pub(super) end: ExecutionEnd,
}

impl Conclusion {
    /// The conclusion of a program that began.
    pub(super) fn of(end: &RunEnd, took: Duration, spec: &ExecutionSpec) -> Self {
        let duration_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        let (outcome, limit) = match end {
            RunEnd::Ended { outcome, limit } => (*outcome, *limit),
            RunEnd::Lost(why) => {
                let message = format!("the container was lost, and what the program did is unknown: {why}");
                return Self::error(ExecutionState::Lost, message, duration_ms);
            }
        };
        if let Outcome::NotStarted(errno) = outcome
            && limit.is_none()
        {
            let message = not_started(errno, spec.program.as_deref());
            return Self::error(ExecutionState::Failed, message, duration_ms);
        }
        let code = code(outcome, limit);
        let exit = |code: Option<i32>| Lifecycle::Exit { code: code.unwrap_or(-1), duration_ms };
        let (state, steps) = match (limit, limit.and_then(reason)) {
            (Some(Limit::Wall), _) => (
                ExecutionState::Timeout,
                vec![Lifecycle::Timeout { timeout_seconds: spec.timeout.as_secs_f64() }],
            ),
            (Some(_), Some(reason)) => (
                ExecutionState::Failed,
                vec![Lifecycle::ResourceLimit { reason: reason.to_owned() }, exit(code)],
            ),
            (Some(_), None) => (ExecutionState::Cancelled, vec![Lifecycle::Cancelled]),
            (None, _) => (ExecutionState::Completed, vec![exit(code)]),
        };
        let message = limit.and_then(reason).map(str::to_owned);
        Self {
            steps,
            end: ExecutionEnd {
                state,
                exit_code: code,
                message,
                completed_ms: now_ms(),
                duration_ms,
                network: Vec::new(),
                models: None,
                changed: Vec::new(),
                diff: None,
                not_saved: Vec::new(),
            },
        }
    }

    /// The conclusion of an execution that somebody ended before it began.
    pub(super) fn cancelled() -> Self {
        let end = ExecutionEnd {
            state: ExecutionState::Cancelled,
            exit_code: None,
            message: None,
            completed_ms: now_ms(),
            duration_ms: 0,
            network: Vec::new(),
            models: None,
            changed: Vec::new(),
            diff: None,
            not_saved: Vec::new(),
        };
        Self { steps: vec![Lifecycle::Cancelled], end }
    }

    /// The conclusion of an execution that could not begin, or not go on.
    pub(super) fn error(state: ExecutionState, message: String, duration_ms: u64) -> Self {
        let steps = vec![Lifecycle::Error { message: message.clone() }];
        let end = ExecutionEnd {
            state,
            exit_code: None,
            message: Some(message),
            completed_ms: now_ms(),
            duration_ms,
            network: Vec::new(),
            models: None,
            changed: Vec::new(),
            diff: None,
            not_saved: Vec::new(),
        };
        Self { steps, end }
    }
}

/// Why a program was not started. `None` for a command, which a shell runs.
fn not_started(errno: i32, program: Option<&str>) -> String {
    let error = std::io::Error::from_raw_os_error(errno);
    match program {
        None => format!(
            "the command could not be started: {error}; does its working directory exist, and has the \
             image a /bin/sh?"
        ),
        Some(program) if error.kind() == std::io::ErrorKind::NotFound => {
            format!("this image has no program {program} (or the working directory does not exist): {error}")
        }
        Some(program) => format!("the program {program} could not be started: {error}"),
    }
}

/// What a `resource_limit` event calls a limit.
fn reason(limit: Limit) -> Option<&'static str> {
    match limit {
        Limit::Cpu => Some("CPU time limit exceeded"),
        Limit::Memory => Some("Memory limit exceeded"),
        Limit::FileSize => Some("File size limit exceeded"),
        Limit::Pids => Some("Process limit exceeded"),
        Limit::Output => Some("Output limit exceeded"),
        Limit::Disk => Some("Disk limit exceeded"),
        Limit::Wall | Limit::Cancelled => None,
    }
}

/// The program's exit code, or minus the signal that ended it. A shell tells of a signal by 128 and its
/// number: where a limit ended what the shell ran, that signal is meant.
fn code(outcome: Outcome, limit: Option<Limit>) -> Option<i32> {
    match outcome {
        Outcome::Exited(code) if limit.is_some() && code > 128 => Some(128 - code),
        Outcome::Exited(code) => Some(code),
        Outcome::Signaled(signal) => Some(-signal),
        Outcome::NotStarted(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(program: Option<&str>) -> ExecutionSpec {
        ExecutionSpec {
            command: String::new(),
            interactive: false,
            timeout: Duration::from_millis(2500),
            started_ms: 1,
            program: program.map(str::to_owned),
            task: None,
        }
    }

    #[test]
    fn every_end_has_its_state_its_code_and_its_last_events() {
        let ended = |outcome, limit| RunEnd::Ended { outcome, limit };
        let exit = |code| Lifecycle::Exit { code, duration_ms: 1500 };
        let limited = |reason: &str| Lifecycle::ResourceLimit { reason: reason.to_owned() };
        for (end, state, code, steps) in [
            (ended(Outcome::Exited(0), None), ExecutionState::Completed, Some(0), vec![exit(0)]),
            (ended(Outcome::Exited(143), None), ExecutionState::Completed, Some(143), vec![exit(143)]),
            (ended(Outcome::Signaled(11), None), ExecutionState::Completed, Some(-11), vec![exit(-11)]),
            (
                ended(Outcome::Exited(152), Some(Limit::Cpu)),
                ExecutionState::Failed,
                Some(-24),
                vec![limited("CPU time limit exceeded"), exit(-24)],
            ),
            (
                ended(Outcome::Signaled(9), Some(Limit::Memory)),
                ExecutionState::Failed,
                Some(-9),
                vec![limited("Memory limit exceeded"), exit(-9)],
            ),
            (
                ended(Outcome::Signaled(9), Some(Limit::Wall)),
                ExecutionState::Timeout,
                Some(-9),
                vec![Lifecycle::Timeout { timeout_seconds: 2.5 }],
            ),
            (
                ended(Outcome::Signaled(15), Some(Limit::Cancelled)),
                ExecutionState::Cancelled,
                Some(-15),
                vec![Lifecycle::Cancelled],
            ),
        ] {
            let conclusion = Conclusion::of(&end, Duration::from_millis(1500), &spec(None));
            assert_eq!(
                (conclusion.end.state, conclusion.end.exit_code, conclusion.steps),
                (state, code, steps),
                "{end:?}"
            );
        }
        let lost = Conclusion::of(&RunEnd::Lost("gone".into()), Duration::ZERO, &spec(None));
        assert_eq!((lost.end.state, lost.end.exit_code), (ExecutionState::Lost, None));
        assert!(matches!(&lost.steps[..], [Lifecycle::Error { message }] if message.contains("gone")));
        for (program, errno, said) in [
            (None, 2, "its working directory"),
            (Some("claude"), 2, "this image has no program claude"),
            (Some("claude"), 13, "the program claude could not be started: Permission denied"),
        ] {
            let not = ended(Outcome::NotStarted(errno), None);
            let not = Conclusion::of(&not, Duration::ZERO, &spec(program));
            assert!(not.end.message.is_some_and(|message| message.contains(said)), "{said}");
        }
    }
}
