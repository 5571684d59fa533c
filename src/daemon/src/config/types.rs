//! The checked configuration, as the rest of the daemon sees it. Defaults, bounds and reasons are in
//! `config.example.toml`; this module checks nothing.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use serde::Deserialize;

use super::value::Secret;
use crate::config::{KnownToken, PoolSettings};
use crate::egress::EgressSettings;
use crate::packages::PackagesSettings;
use crate::ports::PortBounds;
use crate::tenants::TokensFile;

/// All settings. Sizes are in bytes.
#[derive(Debug, Clone)]
#[cfg_attr(test, derive(PartialEq))]
pub struct Config {
    /// The listener.
    pub http: HttpSettings,
    /// The tokens of callers.
    pub auth: AuthSettings,
    /// The audit log.
    pub audit: AuditSettings,
    /// The directory of sessions on disk.
    pub store: StoreSettings,
    /// Signed links and logs of runs.
    pub files: FilesSettings,
    /// How the daemon serves MCP clients.
    pub mcp: McpSettings,
    /// The container engine.
    pub engine: EngineSettings,
    /// The resources that a container and a call may use.
    pub limits: LimitsSettings,
    /// How long runs may take.
    pub timeouts: TimeoutsSettings,
    /// Shell commands.
    pub exec: ExecSettings,
    /// How long and how many sessions have containers.
    pub sessions: SessionsSettings,
    /// How many containers stand idle; the pool itself checks it.
    pub pool: PoolSettings,
    /// What programs may reach outside of their containers.
    pub egress: EgressSettings,
    /// Packages beyond the images of runners.
    pub packages: PackagesSettings,
    /// The way in to servers that programs run.
    pub ports: PortsSettings,
    /// What every coding agent's runner has; each value is set.
    pub coding_agents: RunnerSettings,
    /// What a task has that its call does not name.
    pub tasks: TaskSettings,
    /// By the name of the runner, what differs from all others of its kind.
    pub runners: BTreeMap<String, RunnerSettings>,
    /// The folders of the engine's host that programs can read.
    pub mounts: Vec<MountSettings>,
    /// Where drop folders are.
    pub drops: Vec<DropSettings>,
    /// The program in the container.
    pub agent: AgentSettings,
    /// Who may read the metrics.
    pub metrics: MetricsSettings,
    /// The destination of logs.
    pub log: LogSettings,
    /// Where spans are exported to.
    pub telemetry: TelemetrySettings,
    /// How the daemon stops.
    pub shutdown: ShutdownSettings,
    /// Whether the fixtures of the MCP conformance suite are served; only the environment can set this.
    pub conformance_fixtures: bool,
}

/// The listener, and the requests that it accepts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpSettings {
    /// The address to listen on; port 0 asks for a free one.
    pub addr: SocketAddr,
    /// The URL by which clients reach the daemon, if it differs from the address.
    pub public_url: Option<PublicUrl>,
    /// Further accepted values of `Host`: lower case, with a port only where one must match.
    pub allowed_hosts: Vec<String>,
    /// Accepted values of `Origin`, lower case.
    pub allowed_origins: Vec<String>,
    /// The files of TLS; `None` for plain HTTP.
    pub tls: Option<TlsFiles>,
    /// The largest body of a request, in bytes.
    pub max_body: u64,
    /// Time for a request's head to arrive.
    pub header_timeout: Duration,
    /// Time for the next piece of its body to arrive.
    pub body_timeout: Duration,
    /// Time for a client to read some of its answer.
    pub write_timeout: Duration,
}

impl HttpSettings {
    /// The base of links, without a slash at the end, for a listener at this address.
    #[must_use]
    pub fn base_url(&self, bound: SocketAddr) -> String {
        match &self.public_url {
            Some(url) => url.as_str().to_owned(),
            None => format!("{}://{}", self.scheme(), reachable(bound)),
        }
    }

    /// The scheme of the daemon's own listeners.
    #[must_use]
    pub fn scheme(&self) -> &'static str {
        if self.tls.is_some() { "https" } else { "http" }
    }
}

/// The files of TLS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate and those that lead to its authority, in PEM.
    pub certificate: PathBuf,
    /// Its private key, in PEM.
    pub key: PathBuf,
}

/// The address at which this machine reaches a listener: one on every interface is reached by loopback.
pub(crate) fn reachable(listener: SocketAddr) -> SocketAddr {
    let ip = match listener.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip @ (IpAddr::V4(_) | IpAddr::V6(_)) => ip,
    };
    SocketAddr::new(ip, listener.port())
}

/// An `http` or `https` URL without query, fragment, user or a slash at the end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublicUrl {
    pub(super) url: String,
    pub(super) authority: String,
}

impl PublicUrl {
    /// The whole URL.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.url
    }

    /// Its host in lower case, with the port if it names one: the `Host` of a client that uses it.
    #[must_use]
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// Whether its host is a name of this machine itself.
    #[must_use]
    pub fn is_loopback(&self) -> bool {
        super::check::access::is_loopback(&self.authority)
    }
}

/// The tokens of callers. Without any, everyone may call, and the configuration allows that.
#[derive(Debug, Clone, PartialEq)]
pub struct AuthSettings {
    /// The one of `auth.token` comes first.
    pub tokens: Vec<KnownToken>,
    /// The file of further tokens, by an absolute path.
    pub tokens_file: TokensFile,
}

/// The audit log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditSettings {
    /// The absolute path of its file; `None`: there is no audit log.
    pub file: Option<PathBuf>,
    /// Whether calls are refused while it cannot be written.
    pub required: bool,
    /// Bytes after which the file gets another name and a new one is made; `None`: never.
    pub rotate: Option<u64>,
}

/// Spans for a collector of OpenTelemetry.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TelemetrySettings {
    /// The collector's base URL for OTLP over HTTP; `None`: nothing is exported.
    pub otlp_endpoint: Option<String>,
}

/// The directory of sessions on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreSettings {
    /// An absolute path, which may not exist yet.
    pub root: PathBuf,
    /// Whether the operator set it; otherwise it is the state directory of this user's daemons.
    pub is_named: bool,
    /// The limit of all sessions' files together, in bytes.
    pub max_bytes: u64,
    /// The limit of their number, with directories and links.
    pub max_files: u64,
}

/// How the daemon serves MCP clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct McpSettings {
    /// How long a call continues after its client disconnected, in case it reconnects.
    pub resume_window: Duration,
    /// The tools that clients see; all if empty.
    pub toolsets: Vec<ToolSet>,
}

/// A set of tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ToolSet {
    /// Code and files.
    Code,
    /// Shell commands.
    Exec,
    /// Coding agents.
    Task,
}

/// Signed links and logs of runs.
#[derive(Debug, Clone)]
#[cfg_attr(test, derive(PartialEq))]
pub struct FilesSettings {
    /// The key; `None` lets the store make and keep one.
    pub secret: Option<Secret>,
    /// Previous keys: they verify links but never sign.
    pub previous_secrets: Vec<Secret>,
    /// How long a link is valid; `None` for ever.
    pub url_ttl: Option<Duration>,
    /// The form of new links.
    pub url_style: UrlStyle,
    /// The limit of a run's log of its whole output, in bytes.
    pub max_log: u64,
}

/// The form of links to files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum UrlStyle {
    /// `/files/{session}/{path}?sig=…`: each gives access to one file.
    Signed,
    /// `/files/{hash}/{path}`: each gives access to every file of its session.
    Hashed,
}

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
}

/// How long runs may take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TimeoutsSettings {
    /// A `run_code` without a timeout of its own.
    pub run_code: Duration,
    /// A `run_python`.
    pub run_python: Duration,
    /// An `execute_code` without a timeout of its own.
    pub execute_code: Duration,
    /// The longest timeout that a caller may ask for.
    pub max: Duration,
}

/// What a task has that its call does not name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskSettings {
    /// The name of the coding agent.
    pub agent: String,
    /// The level, 1 to 4.
    pub level: u32,
    /// The time limit.
    pub timeout: Duration,
    /// How long, and how many, workspaces of coding agents outlive their containers; `None`: they do not.
    pub kept: Option<KeptWorkspaces>,
}

/// The bounds of workspaces that outlive their containers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeptWorkspaces {
    /// Each is removed after this long.
    pub retention: Duration,
    /// The most at one time, at least 1.
    pub most: u32,
}

/// Shell commands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecSettings {
    /// The language whose runner they run in.
    pub runner: String,
    /// The limit of all executions that run.
    pub max: u32,
    /// The limit of those of one session.
    pub per_session: u32,
    /// How long the output of an ended execution can be read.
    pub keep: Duration,
    /// The number of an owner's ended executions that can be read.
    pub kept: u32,
}

/// How long and how many sessions have containers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionsSettings {
    /// Idle time after which a session loses its container.
    pub ttl: Duration,
    /// Sessions with a container at one time.
    pub max: u32,
    /// Time between two sweeps for idle sessions and leftovers.
    pub sweep: Duration,
    /// What happens to a new session when `max` have containers.
    pub when_full: WhenFull,
    /// Calls that may wait for their turn in one session.
    pub queue: u32,
    /// Time without use after which a session's stored files are deleted; `None`: never.
    pub retention: Option<Duration>,
}

/// What happens to a new session when all sessions that may have containers do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WhenFull {
    /// The session that has been idle for longest is evicted.
    Evict,
    /// The new session is refused.
    Refuse,
}

/// The way in to servers that programs run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortsSettings {
    /// The address of a listener that serves only links to ports.
    pub addr: Option<SocketAddr>,
    /// The URL at which clients reach this listener, if it is not the address.
    pub public_url: Option<PublicUrl>,
    /// The bounds.
    pub bounds: PortBounds,
}

impl PortsSettings {
    /// The base of links, without a slash at the end, for a listener at this address with this scheme.
    #[must_use]
    pub fn base_url(&self, scheme: &str, bound: SocketAddr) -> String {
        match &self.public_url {
            Some(url) => url.as_str().to_owned(),
            None => format!("{scheme}://{}", reachable(bound)),
        }
    }
}

/// A folder of the engine's host that programs can read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountSettings {
    /// Its name: programs see it at `/mnt/NAME`.
    pub name: String,
    /// Its absolute path.
    pub path: PathBuf,
    /// What is in it, for models to read.
    pub about: String,
    /// The runners that have it; none: every language.
    pub runners: Vec<String>,
}

/// The folder with the drop folders of one tenant's sessions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DropSettings {
    /// The name of the tenant's token.
    pub tenant: String,
    /// The folder, an absolute path.
    pub path: PathBuf,
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

/// Who may read the metrics, beside every caller with a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MetricsSettings {
    /// The address of a listener that serves only the metrics, without a token.
    pub addr: Option<SocketAddr>,
    /// The SHA-256 of a token that gives access only to the metrics.
    pub token: Option<[u8; 32]>,
}

/// The destination of logs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogSettings {
    /// The lowest level that is written.
    pub level: LogLevel,
    /// The format of a line.
    pub format: LogFormat,
    /// The absolute path of a file that is written beside the console.
    pub file: Option<PathBuf>,
}

/// The severity of a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogLevel {
    /// Failures.
    Error,
    /// Odd conditions.
    Warn,
    /// Requests and answers.
    Info,
    /// How they were handled, with the code.
    Debug,
    /// Everything.
    Trace,
}

impl FromStr for LogLevel {
    type Err = ();

    /// Ignores case, and accepts the names of Python's logging.
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

/// The format of a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    Console,
    /// One JSON object a line.
    Json,
}

/// How the daemon stops.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShutdownSettings {
    /// How long runs may continue after the daemon was told to stop.
    pub drain: Duration,
}
