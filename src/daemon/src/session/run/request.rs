//! What a caller asks to run, and how runs are named. Plain values: nothing here touches a container.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use paddock_proto::limits::DATA_DIR;
use paddock_proto::message::RunLimits;
use paddock_proto::{ExecutePolicy, FilePolicy};

use crate::egress::NetworkGrant;
use crate::metrics::RunKind;
use crate::session::lease::notes::RunNote;

/// The variable that tells a program where its packages are.
pub const PACKAGES: &str = "SANDBOX_PACKAGES";
/// Where a shell looks for programs if its image says nothing.
const USUAL_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

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
    /// The packages that it has beyond those of its image.
    pub packages: Option<RunPackages>,
}

/// Packages of a run.
#[derive(Debug, Clone)]
pub struct RunPackages {
    /// Their directory in the container.
    pub path: String,
    /// Each of them with its exact version, and what they need.
    pub locked: Vec<String>,
    /// What keeps them there; they may go when all clones are dropped.
    pub held: Arc<dyn Held>,
}

/// Something that is there as long as this lives.
pub trait Held: Debug + Send + Sync {}

impl<T: Debug + Send + Sync> Held for T {}

impl RunPackages {
    /// Tells a program of them: the image knows what to do with the first variable, and a shell finds
    /// programs and modules of them behind those of its image.
    pub(super) fn tell(&self, environment: &mut Vec<String>, kind: RunKind) {
        const PATH: &str = "PATH=";
        environment.push(format!("{PACKAGES}={}", self.path));
        if kind == RunKind::Command {
            let programs = format!("{0}/bin:{0}/node_modules/.bin", self.path);
            match environment.iter_mut().find(|variable| variable.starts_with(PATH)) {
                Some(path) => *path = format!("{path}:{programs}"),
                None => environment.push(format!("{PATH}{USUAL_PATH}:{programs}")),
            }
            if !environment.iter().any(|variable| variable.starts_with("NODE_PATH=")) {
                environment.push(format!("NODE_PATH={}/node_modules", self.path));
            }
        }
    }
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
            packages: None,
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
    fn a_shell_finds_programs_of_packages_behind_those_of_its_image() {
        let packages = RunPackages { path: "/opt/packages/x".into(), locked: Vec::new(), held: Arc::new(()) };
        let mut code = vec!["PATH=/bin".to_owned()];
        packages.tell(&mut code, RunKind::Code);
        assert_eq!(code, ["PATH=/bin", "SANDBOX_PACKAGES=/opt/packages/x"]);
        let mut command = vec!["PATH=/bin".to_owned(), "NODE_PATH=/own".to_owned()];
        packages.tell(&mut command, RunKind::Command);
        let programs = "/opt/packages/x/bin:/opt/packages/x/node_modules/.bin";
        assert_eq!(command[0], format!("PATH=/bin:{programs}"));
        assert_eq!(command[1..], ["NODE_PATH=/own", "SANDBOX_PACKAGES=/opt/packages/x"]);
        let mut bare = Vec::new();
        packages.tell(&mut bare, RunKind::Command);
        assert!(bare.contains(&format!("PATH={USUAL_PATH}:{programs}")), "{bare:?}");
        assert!(bare.contains(&"NODE_PATH=/opt/packages/x/node_modules".to_owned()), "{bare:?}");
    }

    #[test]
    fn a_run_is_named_by_its_second_and_something_random() {
        let leap_day = SystemTime::UNIX_EPOCH + Duration::from_secs(1_709_210_096);
        let id = run_id_at(leap_day);
        let random = id.strip_prefix("run_20240229T123456Z_").unwrap();
        assert!(random.len() == 4 && random.bytes().all(|byte| byte.is_ascii_hexdigit()), "{id}");
    }
}
