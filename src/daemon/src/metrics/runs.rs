//! Programs: code and commands, how they came out, and where their time went.

use std::time::Duration;

use prometheus::{HistogramVec, IntCounterVec, IntGauge, IntGaugeVec, Opts};

use super::{Make, Metrics};

/// What kind of program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Source code: `run_code`, `run_python`.
    Code,
    /// A shell command: the tools of `exec`.
    Command,
}

impl Kind {
    fn as_str(self) -> &'static str {
        match self {
            Self::Code => "code",
            Self::Command => "command",
        }
    }
}

pub(super) struct Runs {
    ended: IntCounterVec,
    under_way: IntGaugeVec,
    program: HistogramVec,
    overhead: HistogramVec,
    phase: HistogramVec,
    cold: IntCounterVec,
    output: IntCounterVec,
    files: IntCounterVec,
    file_bytes: IntCounterVec,
}

/// How a program can come out.
const OUTCOMES: [&str; 7] = ["completed", "failed", "limited", "timeout", "cancelled", "lost", "not_started"];

/// Both kinds.
const KINDS: [Kind; 2] = [Kind::Code, Kind::Command];

/// Where a run's time can go beside its program.
const PHASES: [&str; 4] = ["queue", "container", "files_in", "files_out"];

impl Runs {
    pub(super) fn new(make: &Make) -> Self {
        let runs = Self::families(make);
        for kind in KINDS {
            runs.under_way.with_label_values(&[kind.as_str()]);
        }
        for phase in PHASES {
            runs.phase.with_label_values(&[phase]);
        }
        for stream in ["stdout", "stderr"] {
            runs.output.with_label_values(&[stream]);
        }
        for direction in ["in", "out"] {
            runs.files.with_label_values(&[direction]);
            runs.file_bytes.with_label_values(&[direction]);
        }
        runs
    }

    fn families(make: &Make) -> Self {
        let under_way = Opts::new("paddock_runs_in_progress", "Programs that run, or are brought to run.");
        Self {
            ended: make.counters(
                "paddock_runs_total",
                "Programs by outcome: completed (exit code 0), failed (another), limited, timeout, cancelled, lost, not_started.",
                &["kind", "language", "outcome"],
            ),
            under_way: make.register(IntGaugeVec::new(under_way, &["kind"])),
            program: make.histograms(
                "paddock_run_program_seconds",
                "What programs took, from the sending of the code to the death of the last process.",
                &["kind", "language"],
            ),
            overhead: make.histograms(
                "paddock_run_overhead_seconds",
                "What a call that ran code took beside its program, waiting included.",
                &["language"],
            ),
            phase: make.histograms(
                "paddock_run_phase_seconds",
                "Where that went: queue (the session's turn), container, files_in, files_out.",
                &["phase"],
            ),
            cold: make.counters(
                "paddock_runs_cold_total",
                "Code that its image's warm part did not take, so that it had to start and import.",
                &["language"],
            ),
            output: make.counters(
                "paddock_output_bytes_total",
                "Bytes that programs wrote to their streams.",
                &["stream"],
            ),
            files: make.counters(
                "paddock_files_carried_total",
                "Files brought into containers, and saved out of them.",
                &["direction"],
            ),
            file_bytes: make.counters(
                "paddock_files_carried_bytes_total",
                "Bytes of files brought into containers, and saved out of them.",
                &["direction"],
            ),
        }
    }

    /// A runner of this language is there: what it did not do yet is 0, not unknown.
    pub(super) fn know(&self, language: &str) {
        for kind in KINDS {
            for outcome in OUTCOMES {
                self.ended.with_label_values(&[kind.as_str(), language, outcome]);
            }
        }
        self.overhead.with_label_values(&[language]);
        self.cold.with_label_values(&[language]);
    }
}

/// A program that is under way for as long as this lives.
pub struct Running(IntGauge);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl Metrics {
    /// A program is under way for as long as the answer lives.
    #[must_use]
    pub fn running(&self, kind: Kind) -> Running {
        let gauge = self.0.runs.under_way.with_label_values(&[kind.as_str()]);
        gauge.inc();
        Running(gauge)
    }

    /// One came out so, and took so long.
    pub fn ran(&self, kind: Kind, language: &str, outcome: &'static str, program: Duration) {
        let runs = &self.0.runs;
        runs.ended.with_label_values(&[kind.as_str(), language, outcome]).inc();
        runs.program.with_label_values(&[kind.as_str(), language]).observe(program.as_secs_f64());
    }

    /// One could not begin.
    pub fn not_started(&self, kind: Kind, language: &str) {
        self.0.runs.ended.with_label_values(&[kind.as_str(), language, "not_started"]).inc();
    }

    /// Code ran that the warm part of its image should have taken.
    pub fn ran_cold(&self, language: &str) {
        self.0.runs.cold.with_label_values(&[language]).inc();
    }

    /// What a call that ran code took beside its program.
    pub fn overhead(&self, language: &str, took: Duration) {
        self.0.runs.overhead.with_label_values(&[language]).observe(took.as_secs_f64());
    }

    /// A program waited so long for its turn.
    pub fn queued(&self, took: Duration) {
        self.phase("queue", took);
    }

    /// What else its way took.
    pub fn carried(&self, container: Duration, files_in: Duration, files_out: Duration) {
        for (phase, took) in [("container", container), ("files_in", files_in), ("files_out", files_out)] {
            self.phase(phase, took);
        }
    }

    fn phase(&self, phase: &'static str, took: Duration) {
        self.0.runs.phase.with_label_values(&[phase]).observe(took.as_secs_f64());
    }

    /// A program wrote so much.
    pub fn wrote(&self, stream: &'static str, bytes: u64) {
        self.0.runs.output.with_label_values(&[stream]).inc_by(bytes);
    }

    /// Files were brought into a container.
    pub fn files_in(&self, files: u64, bytes: u64) {
        self.files("in", files, bytes);
    }

    /// Files were saved out of a container.
    pub fn files_out(&self, files: u64, bytes: u64) {
        self.files("out", files, bytes);
    }

    fn files(&self, direction: &'static str, files: u64, bytes: u64) {
        self.0.runs.files.with_label_values(&[direction]).inc_by(files);
        self.0.runs.file_bytes.with_label_values(&[direction]).inc_by(bytes);
    }
}
