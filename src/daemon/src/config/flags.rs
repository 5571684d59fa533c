//! Settings from the command line: the few keys that an operator changes for one start. It must never hold a
//! secret, since every user of the machine can read a command line.

use clap::Args;
use toml::Value;

use super::error::{ConfigError, Origin};
use super::layers::Layers;

/// Flags, which override file and environment.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
pub struct Overrides {
    /// The address to listen on, such as 127.0.0.1:8080, or :8080 for every interface
    #[arg(long, value_name = "ADDRESS")]
    pub addr: Option<String>,
    /// The URL at which clients reach this daemon; links to files begin with it
    #[arg(long, value_name = "URL")]
    pub public_url: Option<String>,
    /// Serve without a token on an address that other machines can reach
    #[arg(long)]
    pub allow_open: bool,
    /// The directory for the files of all sessions
    #[arg(long, value_name = "DIRECTORY")]
    pub store: Option<String>,
    /// The address of the Docker Engine API, such as unix:///var/run/docker.sock
    #[arg(long, value_name = "URL")]
    pub engine: Option<String>,
    /// The log level: error, warn, info, debug or trace
    #[arg(long, value_name = "LEVEL")]
    pub log_level: Option<String>,
    /// The log format: console or json
    #[arg(long, value_name = "FORMAT")]
    pub log_format: Option<String>,
}

impl Overrides {
    /// The same for a command that serves nobody: the token of its daemon may be where only the daemon's
    /// service reads it, and the first one is made before there is any.
    #[must_use]
    pub fn serving_nobody(&self) -> Self {
        Self { allow_open: true, ..self.clone() }
    }

    pub(super) fn apply(&self, layers: &mut Layers) -> Result<(), ConfigError> {
        let texts = [
            ("http.addr", "--addr", &self.addr),
            ("http.public_url", "--public-url", &self.public_url),
            ("store.root", "--store", &self.store),
            ("engine.host", "--engine", &self.engine),
            ("log.level", "--log-level", &self.log_level),
            ("log.format", "--log-format", &self.log_format),
        ];
        for (key, flag, value) in texts {
            if let Some(value) = value {
                if value.is_empty() {
                    // Most likely an unset variable of a script, which must not mean "the default".
                    return Err(ConfigError::Value {
                        name: flag,
                        value: Some(String::new()),
                        takes: "a value",
                    });
                }
                layers.set(key, Value::String(value.clone()), Origin::Flag(flag));
            }
        }
        if self.allow_open {
            layers.set("http.allow_open", Value::Boolean(true), Origin::Flag("--allow-open"));
        }
        Ok(())
    }
}
