//! What a caller asks to run, and how runs are named. Plain values: nothing here touches a container.

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use paddock_proto::limits::DATA_DIR;
use paddock_proto::message::RunLimits;
use paddock_proto::{ExecutePolicy, FilePolicy};

use crate::egress::NetworkGrant;
use crate::metrics::RunKind;
use crate::session::lease::notes::RunNote;

/// Characters of the names of variables in a log line.
const MAX_LOGGED_NAMES: usize = 256;

/// What to run.
pub struct RunRequest {
    /// Names the run: not used before.
    pub id: String,
    /// Which runner.
    pub language: String,
    /// The program.
    pub program: Program,
    /// Added to the image's environment, in whose place they stand.
    pub environment: Vec<(String, String)>,
    /// Where it starts: an absolute path in the container.
    pub directory: String,
    /// Wall time.
    pub timeout: Duration,
    /// Bounds of its own, within those of its container.
    pub limits: RunLimits,
    /// Which files it may write and read, within what its user may.
    pub files: Option<FilePolicy>,
    /// Which programs it may execute, within what its user may.
    pub execute: Option<ExecutePolicy>,
    /// What it may reach outside of its container; `None`: nothing.
    pub network: Option<NetworkGrant>,
}

/// A program.
#[derive(Debug)]
pub enum Program {
    /// Source code, which the image's entrypoint runs.
    Code {
        /// The code.
        code: Bytes,
        /// The program's standard input.
        stdin: Option<Bytes>,
    },
    /// A command, which the image's shell runs.
    Command {
        /// The command.
        command: String,
        /// Whether it reads what is sent while it runs; otherwise its input is empty.
        interactive: bool,
    },
    /// A program of the image, which is started without a shell.
    Direct {
        /// Its name, which is looked up in `PATH`, or its path; and its arguments.
        argv: Vec<String>,
        /// All that it reads; the agent has it before the program starts. `None`: nothing.
        input: Option<Bytes>,
    },
}

impl Program {
    /// Bytes of its code, of its command, or of its arguments and its input.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Code { code, .. } => code.len(),
            Self::Command { command, .. } => command.len(),
            Self::Direct { argv, input } => {
                argv.iter().map(String::len).sum::<usize>() + input.as_ref().map_or(0, Bytes::len)
            }
        }
    }
}

impl RunRequest {
    /// A program with the defaults: it starts in `/data`, and only its container bounds it.
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
            execute: None,
            network: None,
        }
    }

    /// What kind of program it is.
    pub(super) fn kind(&self) -> RunKind {
        match self.program {
            Program::Code { .. } => RunKind::Code,
            Program::Command { .. } | Program::Direct { .. } => RunKind::Command,
        }
    }

    /// The names of its own variables, for the log: the first of them, never a value. `None` without any.
    pub(super) fn variable_names(&self) -> Option<String> {
        let names: Vec<&str> = self.environment.iter().map(|(name, _)| name.as_str()).collect();
        (!names.is_empty()).then(|| names.join(",").chars().take(MAX_LOGGED_NAMES).collect())
    }

    /// What is noted of it on disk while it is in flight.
    pub(super) fn note(&self) -> RunNote {
        let is_command = self.kind() == RunKind::Command;
        let network = self.network.as_ref().map(|grant| grant.request.clone());
        RunNote { id: self.id.clone(), timeout: self.timeout, is_command, network }
    }
}

/// A name for a run: `run_20260206T123456Z_a1b2`.
pub fn new_run_id() -> String {
    run_id_at(SystemTime::now())
}

fn run_id_at(now: SystemTime) -> String {
    let mut time = humantime::format_rfc3339_seconds(now).to_string();
    time.retain(|c| c != '-' && c != ':');
    format!("run_{time}_{}", crate::id::random_hex::<2>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_variables_are_logged_and_no_values() {
        let code = Program::Code { code: Bytes::from_static(b"true"), stdin: None };
        let mut run = RunRequest::new("r".into(), "sh".into(), code, Duration::ZERO);
        assert_eq!((run.program.len(), run.variable_names()), (4, None));
        run.environment = vec![("A".into(), "secret".into()), ("B".into(), String::new())];
        assert_eq!(run.variable_names().as_deref(), Some("A,B"));
        run.environment.push(("C".repeat(1 << 16), String::new()));
        assert_eq!(run.variable_names().map(|names| names.len()), Some(MAX_LOGGED_NAMES));
    }

    #[test]
    fn a_run_is_named_by_its_second_and_something_random() {
        let leap_day = SystemTime::UNIX_EPOCH + Duration::from_secs(1_709_210_096);
        let id = run_id_at(leap_day);
        let random = id.strip_prefix("run_20240229T123456Z_").unwrap();
        assert!(random.len() == 4 && random.bytes().all(|byte| byte.is_ascii_hexdigit()), "{id}");
    }
}
