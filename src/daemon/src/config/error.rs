//! Errors of a configuration, one line each. They must never carry the value of a secret.

use std::fmt;
use std::path::PathBuf;

/// The origin of a key's value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// The embedded example.
    Default,
    /// The configuration file.
    File(PathBuf),
    /// An environment variable, or several that make up one value.
    Environment(&'static str),
    /// A flag of the command line.
    Flag(&'static str),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Environment(name) => write!(f, "environment {name}"),
            Self::Flag(flag) => f.write_str(flag),
        }
    }
}

/// Why the daemon does not start. Only the operator can correct these.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file could not be read.
    #[error("{}: cannot be read: {}", path.display(), source.kind())]
    Read {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: std::io::Error,
    },
    /// The file is not TOML.
    #[error("{}:{line}:{column}: {message}", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The column in characters, from 1.
        column: usize,
        /// The parser's message, on one line.
        message: String,
    },
    /// A key is unknown or of the wrong type, or its value is not acceptable.
    #[error("{key} ({origin}): {problem}")]
    Key {
        /// The key's path, such as `pool.idle`.
        key: String,
        /// The origin of the value.
        origin: Origin,
        /// What is wrong and what would be right.
        problem: String,
    },
    /// A variable or flag cannot be parsed.
    #[error("{name}{}: takes {takes}", value.as_ref().map_or(String::new(), |v| format!(" is {v:?}")))]
    Value {
        /// The variable or flag.
        name: &'static str,
        /// Its value, unless that is a secret.
        value: Option<String>,
        /// What it accepts.
        takes: &'static str,
    },
}

/// A setting that is allowed but probably not meant. Displays as one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning(pub(super) String);

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
