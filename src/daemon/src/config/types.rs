//! The checked configuration: what the rest of the daemon sees. Defaults, bounds and reasons stand in
//! `config.example.toml`; nothing in here checks anything.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use serde::Deserialize;

use super::value::Secret;
use crate::config::PoolSettings;

/// Everything that can be set. Sizes are in bytes.
#[derive(Debug, Clone)]
#[cfg_attr(test, derive(PartialEq))]
pub struct Config {
    /// The listener.
    pub http: Http,
    /// Who may call.
    pub auth: Auth,
    /// Where sessions live on disk.
    pub store: Store,
    /// Signed links and logs of runs.
    pub files: Files,
    /// How MCP clients are served.
    pub mcp: Mcp,
    /// The container engine.
    pub engine: Engine,
    /// What a container and a call may use.
    pub limits: Limits,
    /// How long runs may take.
    pub timeouts: Timeouts,
    /// Shell commands.
    pub exec: Exec,
    /// How sessions hold containers.
    pub sessions: Sessions,
    /// How many containers stand warm; checked by the pool itself.
    pub pool: PoolSettings,
    /// Image by language, for the languages whose image is named.
    pub runners: BTreeMap<String, String>,
    /// The program in the container.
    pub agent: Agent,
    /// Who may read the metrics.
    pub metrics: Metrics,
    /// Where logs go.
    pub log: Log,
    /// How the daemon ends.
    pub shutdown: Shutdown,
    /// Whether the fixtures of the MCP conformance suite are served; only the environment can ask for them.
    pub conformance_fixtures: bool,
}

/// The listener, and what it lets in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Http {
    /// Where to listen; port 0 asks for a free one.
    pub addr: SocketAddr,
    /// How clients reach it, if that is not the address.
    pub public_url: Option<PublicUrl>,
    /// Further values of `Host` that are let in: lower case, with a port only where one must match.
    pub allowed_hosts: Vec<String>,
    /// Values of `Origin` that are let in, lower case.
    pub allowed_origins: Vec<String>,
    /// The largest body of a request, in bytes.
    pub max_body: u64,
    /// For a request's head to arrive.
    pub header_timeout: Duration,
    /// For the next piece of its body.
    pub body_timeout: Duration,
}

impl Http {
    /// What links begin with, without a slash at the end, when the listener got this address.
    #[must_use]
    pub fn base_url(&self, bound: SocketAddr) -> String {
        let reachable = match bound.ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
            IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
            ip @ (IpAddr::V4(_) | IpAddr::V6(_)) => ip,
        };
        match &self.public_url {
            Some(url) => url.as_str().to_owned(),
            None => format!("http://{}", SocketAddr::new(reachable, bound.port())),
        }
    }
}

/// An `http` or `https` URL without query, fragment, user or a slash at the end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublicUrl {
    pub(super) url: String,
    pub(super) authority: String,
}

impl PublicUrl {
    /// The whole.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.url
    }

    /// Its host, and port if it names one, in lower case: what `Host` says when a client uses it.
    #[must_use]
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// Whether it is this machine by its very name.
    #[must_use]
    pub fn is_loopback(&self) -> bool {
        super::check::access::is_loopback(&self.authority)
    }
}

/// Who may call. No token at all: everyone, which the configuration has then allowed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Auth {
    /// The one of `auth.token` first.
    pub tokens: Vec<Token>,
}

/// A Bearer token, as far as the daemon knows it.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    /// To whom its sessions belong; not unique.
    pub name: String,
    /// SHA-256 of the token.
    pub sha256: [u8; 32],
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Token").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Where sessions live on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Store {
    /// An absolute path. It may not exist yet.
    pub root: PathBuf,
    /// Whether somebody named it; else it is where this user's daemons keep their state.
    pub is_named: bool,
    /// All sessions' files together, in bytes.
    pub max_bytes: u64,
}

/// How MCP clients are served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mcp {
    /// How long a call whose client went away goes on, in case it comes back.
    pub resume_window: Duration,
    /// The tools that there are for clients; empty: all.
    pub toolsets: Vec<ToolSet>,
}

/// Tools that belong together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ToolSet {
    /// Code and files.
    Code,
    /// Shell commands.
    Exec,
}

/// Signed links and logs of runs.
#[derive(Debug, Clone)]
#[cfg_attr(test, derive(PartialEq))]
pub struct Files {
    /// The key; `None` lets the store make and keep one.
    pub secret: Option<Secret>,
    /// Keys of before: links that they signed still open.
    pub previous_secrets: Vec<Secret>,
    /// How long a link opens; `None` for ever.
    pub url_ttl: Option<Duration>,
    /// What new links look like.
    pub url_style: UrlStyle,
    /// How much of a run's output is kept whole, in bytes.
    pub max_log: u64,
}

/// What links to files look like.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum UrlStyle {
    /// `/files/{session}/{path}?sig=…`: each opens one file.
    Signed,
    /// `/files/{hash}/{path}`: who has one can ask for every file of its session.
    Hashed,
}

/// The container engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Engine {
    /// Its address: `unix:///path` or `tcp://host:port`.
    pub host: String,
    /// The folder of `ca.pem`, `cert.pem` and `key.pem`, an absolute path: `tcp://` speaks TLS by them. `None`: plain
    /// TCP.
    pub certificates: Option<PathBuf>,
    /// The runtime to ask for; `None` for the engine's default.
    pub runtime: Option<String>,
}

/// What a container and a call may use. Sizes are in bytes.
#[derive(Debug, Clone, PartialEq)]
pub struct Limits {
    /// Memory of the program alone.
    pub memory: u64,
    /// Processors.
    pub cpus: f64,
    /// Processes and threads.
    pub pids: u32,
    /// What is answered of each output stream.
    pub output: u64,
    /// The code of one run.
    pub code: u64,
    /// One file uploaded within a call.
    pub upload: u64,
    /// One file read within a call.
    pub artifact_read: u64,
    /// All files of a session.
    pub data: u64,
    /// How many files and directories.
    pub data_inodes: u32,
    /// `/tmp`.
    pub tmp: u64,
    /// `/dev/shm`.
    pub shm: u64,
    /// Open files of a process.
    pub open_files: u32,
    /// The largest file a program may write.
    pub file_size: u64,
    /// The environment variables of one run.
    pub environment: u64,
    /// The standard input of one run.
    pub stdin: u64,
}

impl Limits {
    /// The memory limit of the whole container, in bytes: its file systems live in memory too.
    #[must_use]
    pub fn container_memory(&self) -> u64 {
        self.memory + self.data + self.tmp + self.shm
    }
}

/// How long runs may take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Timeouts {
    /// A `run_code` whose caller does not say.
    pub run_code: Duration,
    /// A `run_python`.
    pub run_python: Duration,
    /// An `execute_code` whose caller does not say.
    pub execute_code: Duration,
    /// The most that a caller may ask for.
    pub max: Duration,
}

/// Shell commands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exec {
    /// The language whose runner they run in.
    pub runner: String,
    /// Under way at one time.
    pub max: u32,
    /// Of one session.
    pub per_session: u32,
    /// For how long what has ended can be read.
    pub keep: Duration,
    /// How many of an owner's that have ended can be read.
    pub kept: u32,
}

/// How sessions hold containers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sessions {
    /// Rest after which a session gives up its container.
    pub ttl: Duration,
    /// Sessions with a container at one time.
    pub max: u32,
    /// Time between two looks for resting sessions and leftovers.
    pub sweep: Duration,
    /// What a new session meets when all are taken.
    pub when_full: WhenFull,
    /// Calls that may wait for their turn in one session.
    pub queue: u32,
    /// Disuse after which a session's stored files are deleted; `None`: never.
    pub retention: Option<Duration>,
}

/// What a new session meets when as many as may be have a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WhenFull {
    /// It gets the place of the one that has rested longest.
    Evict,
    /// It is refused.
    Refuse,
}

/// The program in the container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Agent {
    /// Silence after which it ends itself.
    pub orphan_after: Duration,
    /// Whether the warm parts of runner images are kept standing.
    pub warm_parts: bool,
}

/// Who may read the metrics, beside whoever has a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Metrics {
    /// A listener that serves nothing else, without a token.
    pub addr: Option<SocketAddr>,
    /// The SHA-256 of a token that opens nothing else.
    pub token: Option<[u8; 32]>,
}

/// Where logs go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Log {
    /// The least severe that is written.
    pub level: LogLevel,
    /// How.
    pub format: LogFormat,
    /// An absolute path, beside the console.
    pub file: Option<PathBuf>,
}

/// How severe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogLevel {
    /// What failed.
    Error,
    /// What is odd.
    Warn,
    /// What was asked and answered.
    Info,
    /// How, code included.
    Debug,
    /// Everything.
    Trace,
}

impl FromStr for LogLevel {
    type Err = ();

    /// In any case, and with the names that Python's logging has for them.
    fn from_str(text: &str) -> Result<Self, ()> {
        match text.trim().to_ascii_lowercase().as_str() {
            "error" | "critical" => Ok(Self::Error),
            "warn" | "warning" => Ok(Self::Warn),
            "info" => Ok(Self::Info),
            "debug" => Ok(Self::Debug),
            "trace" => Ok(Self::Trace),
            _ => Err(()),
        }
    }
}

/// How a log line is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    Console,
    /// One JSON object a line.
    Json,
}

/// How the daemon ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shutdown {
    /// How long runs may go on after it was told to.
    pub drain: Duration,
}
