//! Containers: the engine, what each may use, and the program in it. This checks nothing.

use std::path::PathBuf;
use std::time::Duration;

/// The container engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineSettings {
    /// Its address: `unix:///path`, `tcp://host:port` or `ssh://user@host`.
    pub host: String,
    /// The folder of `ca.pem`, `cert.pem` and `key.pem`, an absolute path, for TLS over `tcp://`. `None`:
    /// plain TCP.
    pub certificates: Option<PathBuf>,
    /// The runtime to request; `None` for the engine's default.
    pub runtime: Option<String>,
}

/// The resources that a container and a call may use. Sizes are in bytes.
#[derive(Debug, Clone, PartialEq)]
pub struct LimitsSettings {
    /// Memory of the program alone.
    pub memory: u64,
    /// Processors.
    pub cpus: f64,
    /// Processes and threads.
    pub pids: u32,
    /// Output of each stream that an answer returns.
    pub output: u64,
    /// Output of both streams together that a model is shown.
    pub shown: u64,
    /// Code of one run.
    pub code: u64,
    /// One file that a call uploads.
    pub upload: u64,
    /// One file that a call reads.
    pub artifact_read: u64,
    /// All files of a session.
    pub data: u64,
    /// Files and directories of a session.
    pub data_inodes: u32,
    /// `/tmp`.
    pub tmp: u64,
    /// `/dev/shm`.
    pub shm: u64,
    /// Open files of a process.
    pub open_files: u32,
    /// The largest file that a program may write.
    pub file_size: u64,
    /// Environment variables of one run.
    pub environment: u64,
    /// Standard input of one run.
    pub stdin: u64,
}

impl LimitsSettings {
    /// The memory limit of the whole container, in bytes: its file systems are in memory too.
    #[must_use]
    pub fn container_memory(&self) -> u64 {
        self.memory + self.data + self.tmp + self.shm
    }
}

/// What the containers of one runner, or of all coding agents, have instead of the usual. `None`: as usual.
/// Sizes are in bytes.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RunnerSettings {
    /// The image.
    pub image: Option<String>,
    /// Idle containers.
    pub idle: Option<u32>,
    /// Memory of the program alone.
    pub memory: Option<u64>,
    /// Processors.
    pub cpus: Option<f64>,
    /// Processes and threads.
    pub pids: Option<u32>,
    /// `/data`, never less than [`LimitsSettings::data`].
    pub data: Option<u64>,
    /// Entries of `/data`, never less than [`LimitsSettings::data_inodes`].
    pub data_inodes: Option<u32>,
    /// What is saved of a coding agent's `/data`, never more than [`LimitsSettings::data`].
    pub stored: Option<u64>,
    /// `/tmp`.
    pub tmp: Option<u64>,
    /// Open files of a process.
    pub open_files: Option<u32>,
    /// The largest file that a program may write.
    pub file_size: Option<u64>,
    /// The runtime to request, by the engine's name for it; never empty.
    pub runtime: Option<String>,
}

/// The program in the container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentSettings {
    /// Time without a daemon after which it ends itself.
    pub orphan_after: Duration,
    /// Whether the warm parts of runner images are started in advance.
    pub warm_parts: bool,
    /// Whether snapshots of warm parts are taken, and warm parts restored from them.
    pub snapshots: bool,
    /// The age at which a snapshot is taken again.
    pub snapshot_age: Duration,
}
