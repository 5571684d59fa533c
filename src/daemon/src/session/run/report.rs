//! The outcome of a run, in plain values from which tools make their answers.

use std::fmt::{self, Display};
use std::time::Duration;

use paddock_proto::message::{self, Entry, Limit, Outcome};

use crate::egress::{Destination, ModelUsage};
use crate::session::sync::Collected;
use crate::store::StoreError;

/// How a run came out.
#[derive(Debug)]
pub struct RunReport {
    /// Names the run.
    pub run_id: String,
    /// How it ended.
    pub end: RunEnd,
    /// Files that it made or changed, all saved.
    pub changed: Vec<Entry>,
    /// Paths that it made and that are not saved, and why.
    pub not_saved: Vec<(Vec<u8>, &'static str)>,
    /// Why nothing of it is saved, and what becomes of it: the store failed.
    pub unsaved: Option<Unsaved>,
    /// From the sending of the code to the death of its last process.
    pub duration: Duration,
    /// Where its call's time went beside that.
    pub phases: Phases,
    /// Whether the image's warm part ran it.
    pub warm: bool,
    /// Whether the image has a warm part that did not run it.
    pub is_cold: bool,
    /// Where it connected to, or tried to.
    pub network: Vec<Destination>,
    /// What it used of models, if it used any.
    pub models: Option<ModelUsage>,
}

/// Files that a run made or changed, and that the store did not take.
#[derive(Debug)]
pub struct Unsaved {
    /// The store's error.
    pub error: StoreError,
    /// Whether the container has them still, for the next call.
    pub is_kept: bool,
}

impl Unsaved {
    /// What becomes of them: the end of a sentence.
    pub fn fate(&self) -> &'static str {
        match self.is_kept {
            true => "the next call saves them if it can",
            false => "they are lost, because their container could not be kept",
        }
    }
}

impl fmt::Display for Unsaved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.error, self.fate())
    }
}

/// How long a run took outside of its program.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Phases {
    /// Until it had a container whose agent answers; next to nothing where the session has one.
    pub container: Duration,
    /// To bring in what the container lacked of the session's files, and to send the code.
    pub files_in: Duration,
    /// To find and to save what the program changed.
    pub files_out: Duration,
}

/// The end of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunEnd {
    /// The program ended, by itself or by a bound.
    Ended {
        /// How the program itself ended.
        outcome: Outcome,
        /// The bound that ended it.
        limit: Option<Limit>,
    },
    /// The container or its agent was lost during the run: what the program did is unknown, and why is said
    /// here. What was not salvaged of its files is gone with the container.
    Lost(String),
}

/// A bound as answers and metrics name it. A caller's cancellation is not a bound.
pub fn limit_name(limit: Limit) -> Option<&'static str> {
    match limit {
        Limit::Wall => Some("wall_time"),
        Limit::Output => Some("output"),
        Limit::Memory => Some("memory"),
        Limit::Pids => Some("pids"),
        Limit::Cpu => Some("cpu_time"),
        Limit::FileSize => Some("file_size"),
        Limit::Disk => Some("disk"),
        Limit::Cancelled => None,
    }
}

/// The exit code of a program that ran out of time, was cancelled, or is lost.
const NO_EXIT_CODE: i32 = -1;

impl RunReport {
    /// Of a run of which nothing is known but that its program was sent.
    pub(super) fn lost(id: &str, duration: Duration, phases: Phases) -> Self {
        Self {
            run_id: id.to_owned(),
            end: RunEnd::Lost(String::new()),
            changed: Vec::new(),
            not_saved: Vec::new(),
            unsaved: None,
            duration,
            phases,
            warm: false,
            is_cold: false,
            network: Vec::new(),
            models: None,
        }
    }

    /// Its program ended, as the agent says.
    pub(super) fn ended(&mut self, end: message::RunEnd) {
        self.duration = Duration::from_micros(end.wall_us);
        self.end = RunEnd::Ended { outcome: end.outcome, limit: end.limit };
        self.warm = end.warm;
    }

    pub(super) fn saved(&mut self, collected: Collected) {
        self.changed = collected.changed;
        self.not_saved = collected.not_saved;
    }
}

impl RunEnd {
    /// The bound that ended it.
    pub fn limit(&self) -> Option<Limit> {
        match self {
            Self::Ended { limit, .. } => *limit,
            Self::Lost(_) => None,
        }
    }

    /// How it came out: a label of metrics.
    pub(super) fn outcome(&self) -> &'static str {
        match (self, self.limit()) {
            (Self::Lost(_), _) => "lost",
            (_, Some(Limit::Wall)) => "timeout",
            (_, Some(Limit::Cancelled)) => "cancelled",
            (_, Some(_)) => "limited",
            (_, None) if self.exit_code() == 0 => "completed",
            (_, None) => "failed",
        }
    }

    /// As a shell reports it: 128 + the signal that killed it, 127 if it could not be started; -1 where the
    /// end was not the program's own.
    pub fn exit_code(&self) -> i32 {
        match self {
            Self::Lost(_) | Self::Ended { limit: Some(Limit::Wall | Limit::Cancelled), .. } => NO_EXIT_CODE,
            Self::Ended { outcome, .. } => match outcome {
                Outcome::Exited(code) => *code,
                Outcome::Signaled(signal) => signal.saturating_add(128),
                Outcome::NotStarted(_) => 127,
            },
        }
    }
}

/// What became of a run that a restart of the daemon fell into.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recovered {
    /// Names the run.
    pub run_id: String,
    /// How it ended, as far as that is known.
    pub end: RunEnd,
    /// Whether its output since the restart, and what was not acknowledged before, is kept as a log.
    pub logged: bool,
    /// Files that it made or changed, all saved.
    pub changed: Vec<Entry>,
    /// Paths that it made and that are not saved, and why.
    pub not_saved: Vec<(Vec<u8>, &'static str)>,
    /// Why nothing of it is saved, and what becomes of it: the store failed.
    pub unsaved: Option<String>,
}

impl Recovered {
    /// Of a run whose end nobody will learn.
    pub(in crate::session) fn lost(run_id: String, why: &dyn Display) -> Self {
        Self {
            run_id,
            end: RunEnd::Lost(why.to_string()),
            logged: false,
            changed: Vec::new(),
            not_saved: Vec::new(),
            unsaved: None,
        }
    }
}
