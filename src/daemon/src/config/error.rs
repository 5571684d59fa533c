//! What can be wrong with a configuration, each in one line. It must never carry the value of a secret.

use std::fmt;
use std::path::PathBuf;

/// Where the value of a key came from.
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

/// Why the daemon does not start. The operator's fault, all of them.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file could not be read.
    #[error("{}: cannot be read: {}", path.display(), source.kind())]
    Read {
        /// Which file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// The file is not TOML.
    #[error("{}:{line}:{column}: {message}", path.display())]
    Syntax {
        /// Which file.
        path: PathBuf,
        /// Counted from 1.
        line: usize,
        /// Counted from 1, in characters.
        column: usize,
        /// What the parser says, on one line.
        message: String,
    },
    /// A key is unknown, of the wrong type, or its value makes no sense.
    #[error("{key} ({origin}): {problem}")]
    Key {
        /// The key's path, such as `pool.idle`.
        key: String,
        /// Where the value came from.
        origin: Origin,
        /// What is wrong and what would be right.
        problem: String,
    },
    /// A variable or flag cannot be understood.
    #[error("{name}{}: takes {takes}", value.as_ref().map_or(String::new(), |v| format!(" is {v:?}")))]
    Value {
        /// The variable or flag.
        name: &'static str,
        /// Its value, unless that is a secret.
        value: Option<String>,
        /// What it takes.
        takes: &'static str,
    },
}

/// Something that is allowed and yet probably not meant. Displays as one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning(pub(super) String);

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
