//! What is to run, and what it is called.

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use paddock_proto::FilePolicy;
use paddock_proto::limits::DATA_DIR;
use paddock_proto::message::RunLimits;

use super::journal::Flight;
use crate::metrics::Kind;

/// What to run.
pub struct RunRequest {
    /// Names the run: not used before.
    pub id: String,
    /// Which runner.
    pub language: String,
    /// The program.
    pub program: Program,
    /// Added to the image's environment, over it.
    pub environment: Vec<(String, String)>,
    /// Where it starts: an absolute path in the container.
    pub directory: String,
    /// Wall time.
    pub timeout: Duration,
    /// What it may use, beside what its container may.
    pub limits: RunLimits,
    /// Which files it may write and read, beside what its user may.
    pub files: Option<FilePolicy>,
}

/// A program.
pub enum Program {
    /// Source code, which the image's entrypoint runs.
    Code {
        /// The code.
        code: Bytes,
        /// The program's standard input.
        stdin: Option<Bytes>,
    },
    /// A command, for the shell of the image.
    Command {
        /// The command.
        command: String,
        /// Whether it reads what comes while it runs; else nothing.
        interactive: bool,
    },
}

impl RunRequest {
    /// A program with nothing special about it.
    pub fn new(id: String, language: String, program: Program, timeout: Duration) -> Self {
        Self {
            id,
            language,
            program,
            environment: Vec::new(),
            directory: DATA_DIR.to_owned(),
            timeout,
            limits: RunLimits::default(),
            files: None,
        }
    }

    /// What kind of program it is.
    pub(super) fn kind(&self) -> Kind {
        match self.program {
            Program::Code { .. } => Kind::Code,
            Program::Command { .. } => Kind::Command,
        }
    }

    pub(super) fn flight(&self) -> Flight {
        let is_command = matches!(self.program, Program::Command { .. });
        Flight { id: self.id.clone(), timeout: self.timeout, is_command }
    }
}

/// A name for a run: `run_20260206T123456Z_a1b2`.
pub fn new_run_id() -> String {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
    let (days, seconds) = (now / 86_400, now % 86_400);
    // Days to a date, after Howard Hinnant's civil_from_days, for dates from 1970 on.
    let z = days + 719_468;
    let (era, doe) = (z / 146_097, z % 146_097);
    let yoe = (doe - doe / 1460 + doe / 36_524 - doe / 146_096) / 365;
    let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    let mp = (5 * doy + 2) / 153;
    let (day, month) = (doy - (153 * mp + 2) / 5 + 1, if mp < 10 { mp + 3 } else { mp - 9 });
    let year = yoe + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    let random = crate::id::random_hex::<2>();
    format!("run_{year:04}{month:02}{day:02}T{hour:02}{minute:02}{second:02}Z_{random}")
}
