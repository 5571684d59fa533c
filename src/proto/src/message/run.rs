//! A program that the agent is to run: what it is, what bounds it, and how it ended. A
//! [`Request::Run`](super::Request::Run) begins it, an [`Event::Ended`](super::Event::Ended) reports its end.

use serde::{Deserialize, Serialize};

use crate::execute::ExecutePolicy;
use crate::policy::FilePolicy;

/// A program to run and its bounds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunSpec {
    /// Names the run: not used before in this container.
    pub id: String,
    /// Program and arguments; the program is looked up in the environment's `PATH` if it has no `/`.
    pub argv: Vec<String>,
    /// The whole environment, as `NAME=value`.
    pub env: Vec<String>,
    /// Where it starts; an absolute path in the container.
    pub cwd: String,
    /// It is killed after this long.
    pub wall_ms: u64,
    /// It is killed once it has written this much to one of its streams; nothing over it is sent.
    pub output_cap: u64,
    /// What the program reads.
    pub input: Input,
    /// What it may use, beside what its container may.
    pub limits: RunLimits,
    /// Whether the warm part may run it in place of `argv`, with the code on its line; it never does with
    /// `files` or `execute`.
    pub warm: bool,
    /// Which files it may write and read.
    pub files: Option<FilePolicy>,
    /// Which programs it may execute.
    pub execute: Option<ExecutePolicy>,
    /// Whether its programs may ask for connections. What they may reach is the daemon's to decide.
    pub network: bool,
}

/// What a program reads from its standard input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Input {
    /// Its code: `Data(Code)`…`Eof(Code)` before it starts. With `stdin` also `Data(Stdin)`…`Eof(Stdin)`,
    /// which it reads from the descriptor `SANDBOX_STDIN_FD`.
    Code {
        /// Whether it has a standard input of its own besides.
        stdin: bool,
    },
    /// `Data(Stdin)`…`Eof(Stdin)`, at most [`MAX_INPUT`](crate::limits::MAX_INPUT) bytes, all of it before
    /// the program starts: the agent has the whole input from then on, and needs no daemon for it.
    Whole,
    /// Nothing: the end of file.
    Nothing,
    /// What comes as `Data(Stdin)` while it runs, up to `Eof(Stdin)`, through a pipe.
    Open,
}

/// Limits of one run. Where one is `None` only the container's limit holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunLimits {
    /// Seconds of CPU time of each of its processes: SIGXCPU, SIGKILL a second later.
    pub cpu_seconds: Option<u32>,
    /// Bytes of a file that it writes: SIGXFSZ.
    pub file_size: Option<u64>,
    /// Bytes of memory that all its processes together may have; with more the run is killed.
    pub memory: Option<u64>,
    /// Processes that it may have at one time, the first one included; with more the run is killed.
    pub processes: Option<u32>,
    /// What its container's volumes may take on the disk; with more the run is killed.
    pub disk: Option<DiskLimit>,
}

/// What the volumes of a container may take on the disk, all of them together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskLimit {
    /// Bytes; `None` where the file system itself has a bound.
    pub bytes: Option<u64>,
    /// Files, directories and everything else that has a name.
    pub entries: u64,
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunEnd {
    /// How the program itself ended.
    pub outcome: Outcome,
    /// The limit that ended the run, if one did.
    pub limit: Option<Limit>,
    /// Whether the image's warm part ran it.
    pub warm: bool,
    /// From start to the death of the last process.
    pub wall_us: u64,
    /// CPU time of all its processes, user and system.
    pub cpu_us: u64,
    /// CPU time of the container that no [`Event::Used`](super::Event::Used) has told; where that is not
    /// known, `cpu_us`.
    pub metered_us: u64,
    /// The largest resident size of any of its processes.
    pub max_rss_kib: u64,
    /// Bytes written to standard output, counted up to the cap.
    pub stdout_bytes: u64,
    /// Bytes written to standard error, counted up to the cap.
    pub stderr_bytes: u64,
    /// Processes that outlived the program and were killed.
    pub leftovers: u32,
    /// Processes that would not die: the container must be killed as a whole.
    pub survivors: u32,
}

/// The end of the program itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// It exited.
    Exited(i32),
    /// A signal killed it.
    Signaled(i32),
    /// It was never started: the errno of exec or of the preparation.
    NotStarted(i32),
}

/// A limit that can end a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Limit {
    /// Wall time.
    Wall,
    /// Bytes written to one stream.
    Output,
    /// The memory of the container.
    Memory,
    /// The number of processes.
    Pids,
    /// The caller cancelled.
    Cancelled,
    /// CPU time.
    Cpu,
    /// The size of a file.
    FileSize,
    /// What the volumes of the container take on the disk, or the disk itself, which is nearly full.
    Disk,
}
