//! Metrics of runs and executions: their outcomes, and how long each phase took.

use std::time::Duration;

use paddock_proto::OutputStream;
use prometheus::{HistogramVec, IntCounterVec, IntGaugeVec, Opts};

use super::{GaugeGuard, Make, Metrics};

/// The kind of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunKind {
    /// Source code: `run_code`, `run_python`.
    Code,
    /// A shell command: the tools of `exec`.
    Command,
}

impl RunKind {
    fn as_str(self) -> &'static str {
        match self {
            Self::Code => "code",
            Self::Command => "command",
        }
    }
}

pub(super) struct RunMetrics {
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

/// All outcomes of a program.
const OUTCOMES: [&str; 7] = ["completed", "failed", "limited", "timeout", "cancelled", "lost", "not_started"];

/// Both kinds.
const KINDS: [RunKind; 2] = [RunKind::Code, RunKind::Command];

/// All phases of a run outside its program.
const PHASES: [&str; 4] = ["queue", "container", "files_in", "files_out"];

impl RunMetrics {
    pub(super) fn new(make: &Make) -> Self {
        let runs = Self::families(make);
        for kind in KINDS {
            runs.under_way.with_label_values(&[kind.as_str()]);
        }
        for phase in PHASES {
            runs.phase.with_label_values(&[phase]);
        }
        for stream in OutputStream::BOTH {
            runs.output.with_label_values(&[stream.as_str()]);
        }
        for direction in ["in", "out"] {
            runs.files.with_label_values(&[direction]);
            runs.file_bytes.with_label_values(&[direction]);
        }
        runs
    }

    fn families(make: &Make) -> Self {
        let under_way =
            Opts::new("paddock_runs_in_progress", "Programs in progress, their preparation included.");
        Self {
            ended: make.counters(
                "paddock_runs_total",
                "Programs by outcome: completed (exit code 0), failed (any other exit code), limited, \
                 timeout, cancelled, lost, not_started.",
                &["kind", "language", "outcome"],
            ),
            under_way: make.register(IntGaugeVec::new(under_way, &["kind"])),
            program: make.histograms(
                "paddock_run_program_seconds",
                "Time of a program, from sending its code to the end of its last process.",
                &["kind", "language"],
            ),
            overhead: make.histograms(
                "paddock_run_overhead_seconds",
                "Time that a call spent outside its program, waiting included.",
                &["language"],
            ),
            phase: make.histograms(
                "paddock_run_phase_seconds",
                "Time of a run outside the program, by phase: queue (the session's turn), container, \
                 files_in, files_out.",
                &["phase"],
            ),
            cold: make.counters(
                "paddock_runs_cold_total",
                "Runs that no warm part took, so that the interpreter had to start and import.",
                &["language"],
            ),
            output: make.counters(
                "paddock_output_bytes_total",
                "Bytes that programs wrote, by output stream.",
                &["stream"],
            ),
            files: make.counters(
                "paddock_files_carried_total",
                "Files copied into containers and saved from them, by direction.",
                &["direction"],
            ),
            file_bytes: make.counters(
                "paddock_files_carried_bytes_total",
                "Bytes of files copied into containers and saved from them, by direction.",
                &["direction"],
            ),
        }
    }

    /// Makes the series of a language, so that they are 0, not absent, before its first run.
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

impl Metrics {
    /// A program is under way, for as long as the guard lives.
    pub fn running(&self, kind: RunKind) -> GaugeGuard {
        GaugeGuard::of(self.0.runs.under_way.with_label_values(&[kind.as_str()]))
    }

    /// A program has ended with this outcome, after so long.
    pub fn ran(&self, kind: RunKind, language: &str, outcome: &'static str, program: Duration) {
        let runs = &self.0.runs;
        runs.ended.with_label_values(&[kind.as_str(), language, outcome]).inc();
        runs.program.with_label_values(&[kind.as_str(), language]).observe(program.as_secs_f64());
    }

    /// A program could not be started.
    pub fn not_started(&self, kind: RunKind, language: &str) {
        self.0.runs.ended.with_label_values(&[kind.as_str(), language, "not_started"]).inc();
    }

    /// Code ran without the warm part of its image.
    pub fn ran_cold(&self, language: &str) {
        self.0.runs.cold.with_label_values(&[language]).inc();
    }

    /// A call that ran code took so long outside its program.
    pub fn overhead(&self, language: &str, took: Duration) {
        self.0.runs.overhead.with_label_values(&[language]).observe(took.as_secs_f64());
    }

    /// A run waited so long for its turn in the session.
    pub fn queued(&self, took: Duration) {
        self.phase("queue", took);
    }

    /// The other phases of a run outside its program took so long.
    pub fn carried(&self, container: Duration, files_in: Duration, files_out: Duration) {
        for (phase, took) in [("container", container), ("files_in", files_in), ("files_out", files_out)] {
            self.phase(phase, took);
        }
    }

    fn phase(&self, phase: &'static str, took: Duration) {
        self.0.runs.phase.with_label_values(&[phase]).observe(took.as_secs_f64());
    }

    /// A program wrote so many bytes to a stream.
    pub fn wrote(&self, stream: OutputStream, bytes: u64) {
        self.0.runs.output.with_label_values(&[stream.as_str()]).inc_by(bytes);
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
