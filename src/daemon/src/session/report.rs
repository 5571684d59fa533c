//! How a run came out.

use std::time::Duration;

use paddock_proto::message::{Entry, Limit, Outcome};

use super::carry::Collected;
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
    /// What it made that is not saved, and why.
    pub not_saved: Vec<(Vec<u8>, &'static str)>,
    /// Why nothing of it is saved: the store failed.
    pub unsaved: Option<StoreError>,
    /// From the sending of the code to the death of its last process.
    pub duration: Duration,
    /// Where the rest of its time went.
    pub phases: Phases,
    /// Whether the image's warm part ran it.
    pub warm: bool,
    /// Whether the image has one, that did not.
    pub is_cold: bool,
}

/// What a run took beside its program.
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
        /// What its last word was.
        outcome: Outcome,
        /// The bound that ended it.
        limit: Option<Limit>,
    },
    /// The container or its agent was lost in mid-run: what the program did is unknown. Its files since the last
    /// save are gone with the container.
    Lost(String),
}

/// A bound as answers and metrics name it; a caller's own word is none.
pub fn limit_name(limit: Limit) -> Option<&'static str> {
    match limit {
        Limit::Wall => Some("wall_time"),
        Limit::Output => Some("output"),
        Limit::Memory => Some("memory"),
        Limit::Pids => Some("pids"),
        Limit::Cpu => Some("cpu_time"),
        Limit::FileSize => Some("file_size"),
        Limit::Cancelled => None,
    }
}

/// The exit code of a program that was ended for its time, by its caller, or is lost.
const NO_EXIT_CODE: i32 = -1;

impl RunReport {
    pub(super) fn took(&mut self, collected: Collected) {
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

    /// How it came out, in a word: a label of metrics.
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

    /// As shells say it: 128 + the signal that killed it, 127 if it could not be started; -1 where the program
    /// had no word in it.
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
