//! The daemon's own process: its logs and its end. This checks nothing.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use serde::Deserialize;

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
