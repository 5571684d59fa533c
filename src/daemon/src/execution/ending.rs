//! What an end is to those who hear of it: its last events, its state, its exit code.
//!
//! The last event is one of `exit`, `timeout`, `cancelled` and `error`, and nothing comes after it.

use std::time::Duration;

use paddock_proto::message::{Limit, Outcome};
use serde::{Deserialize, Serialize};

use super::about::{End, State, now_ms};
use super::event::Mark;
use crate::session::RunEnd;

/// The last events, and what is known from then on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Ending {
    pub(super) marks: Vec<Mark>,
    pub(super) end: End,
}

impl Ending {
    /// Of a program that began.
    pub(super) fn of(end: &RunEnd, took: Duration, timeout: Duration) -> Self {
        let duration_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        let (outcome, limit) = match end {
            RunEnd::Ended { outcome, limit } => (*outcome, *limit),
            RunEnd::Lost(why) => {
                let message = format!("the container was lost, and what the program did is unknown: {why}");
                return Self::error(State::Lost, message, duration_ms);
            }
        };
        if let Outcome::NotStarted(errno) = outcome
            && limit.is_none()
        {
            let error = std::io::Error::from_raw_os_error(errno);
            let message = format!(
                "the command could not be started: {error}; does its working directory exist, and has the image a /bin/sh?"
            );
            return Self::error(State::Failed, message, duration_ms);
        }
        let code = code(outcome, limit);
        let exit = |code: Option<i32>| Mark::Exit { code: code.unwrap_or(-1), duration_ms };
        let (state, marks) = match (limit, limit.and_then(reason)) {
            (Some(Limit::Wall), _) => {
                (State::Timeout, vec![Mark::Timeout { timeout_seconds: timeout.as_secs_f64() }])
            }
            (Some(_), Some(reason)) => {
                (State::Failed, vec![Mark::ResourceLimit { reason: reason.to_owned() }, exit(code)])
            }
            (Some(_), None) => (State::Cancelled, vec![Mark::Cancelled]),
            (None, _) => (State::Completed, vec![exit(code)]),
        };
        let message = limit.and_then(reason).map(str::to_owned);
        Self { marks, end: End { state, exit_code: code, message, completed_ms: now_ms(), duration_ms } }
    }

    /// Of one that somebody ended before it began.
    pub(super) fn cancelled() -> Self {
        let end = End {
            state: State::Cancelled,
            exit_code: None,
            message: None,
            completed_ms: now_ms(),
            duration_ms: 0,
        };
        Self { marks: vec![Mark::Cancelled], end }
    }

    /// Of one that could not begin, or not go on.
    pub(super) fn error(state: State, message: String, duration_ms: u64) -> Self {
        let marks = vec![Mark::Error { message: message.clone() }];
        let end = End { state, exit_code: None, message: Some(message), completed_ms: now_ms(), duration_ms };
        Self { marks, end }
    }
}

/// What bounds are called in a `resource_limit` event.
fn reason(limit: Limit) -> Option<&'static str> {
    match limit {
        Limit::Cpu => Some("CPU time limit exceeded"),
        Limit::Memory => Some("Memory limit exceeded"),
        Limit::FileSize => Some("File size limit exceeded"),
        Limit::Pids => Some("Process limit exceeded"),
        Limit::Output => Some("Output limit exceeded"),
        Limit::Wall | Limit::Cancelled => None,
    }
}

/// The program's own word, or minus the signal that ended it. A shell tells of a signal by 128 and its number; where a bound
/// ended what it ran, that is the signal meant.
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

    #[test]
    fn every_end_has_its_state_its_code_and_its_last_events() {
        let ended = |outcome, limit| RunEnd::Ended { outcome, limit };
        let exit = |code| Mark::Exit { code, duration_ms: 1500 };
        let limited = |reason: &str| Mark::ResourceLimit { reason: reason.to_owned() };
        for (end, state, code, marks) in [
            (ended(Outcome::Exited(0), None), State::Completed, Some(0), vec![exit(0)]),
            (ended(Outcome::Exited(143), None), State::Completed, Some(143), vec![exit(143)]),
            (ended(Outcome::Signaled(11), None), State::Completed, Some(-11), vec![exit(-11)]),
            (
                ended(Outcome::Exited(152), Some(Limit::Cpu)),
                State::Failed,
                Some(-24),
                vec![limited("CPU time limit exceeded"), exit(-24)],
            ),
            (
                ended(Outcome::Signaled(9), Some(Limit::Memory)),
                State::Failed,
                Some(-9),
                vec![limited("Memory limit exceeded"), exit(-9)],
            ),
            (
                ended(Outcome::Signaled(9), Some(Limit::Wall)),
                State::Timeout,
                Some(-9),
                vec![Mark::Timeout { timeout_seconds: 2.5 }],
            ),
            (
                ended(Outcome::Signaled(15), Some(Limit::Cancelled)),
                State::Cancelled,
                Some(-15),
                vec![Mark::Cancelled],
            ),
        ] {
            let ending = Ending::of(&end, Duration::from_millis(1500), Duration::from_millis(2500));
            assert_eq!(
                (ending.end.state, ending.end.exit_code, ending.marks),
                (state, code, marks),
                "{end:?}"
            );
        }
        let lost = Ending::of(&RunEnd::Lost("gone".into()), Duration::ZERO, Duration::ZERO);
        assert_eq!((lost.end.state, lost.end.exit_code), (State::Lost, None));
        assert!(matches!(&lost.marks[..], [Mark::Error { message }] if message.contains("gone")));
        let not = Ending::of(&ended(Outcome::NotStarted(2), None), Duration::ZERO, Duration::ZERO);
        assert!(not.end.message.is_some_and(|message| message.contains("working directory")));
    }
}
