//! The operator's settings: read once, checked once, typed from then on.
//!
//! ```text
//! config.example.toml < file < environment < flags
//!          └───── one table, each key with its origin ─────> RawConfig ──check──> Config
//!                                                         (serde: shape)  (meaning)
//! ```
//!
//! The example file at the top of the repository is embedded and is the only place of defaults, so `raw` has
//! none: a key that is missing there fails every test. After [`Config::load`] no setting is checked again.
//! This module must never log (it configures logging; odd settings are returned as [`Warning`]s), never put a
//! secret into a message, and never read the process environment by itself.

mod check;
mod env;
mod error;
mod flags;
mod layers;
mod pool;
mod raw;
#[cfg(test)]
mod tests;
mod types;
mod value;

use std::collections::BTreeMap;
use std::path::Path;

pub use self::env::{Variable, variables};
pub use self::error::{ConfigError, Origin, Warning};
pub use self::flags::Overrides;
use self::layers::Layers;
pub use self::pool::{Backoff, PoolSettings, RawPoolSettings, SettingsError};
pub(crate) use self::types::reachable;
pub use self::types::{
    AgentSettings, AuditSettings, AuthSettings, ClusterSettings, Config, DropSettings, EngineSettings,
    FilesSettings, HttpSettings, KeptWorkspaces, LimitsSettings, LogFormat, LogLevel, LogSettings,
    McpSettings, MountSettings, PortsSettings, PublicUrl, RunnerSettings, SessionsSettings,
    SharedStoreSettings, ShutdownSettings, StoreSettings, TaskSettings, TelemetrySettings, TimeoutsSettings,
    TlsFiles, ToolSet, UrlStyle, WhenFull,
};
pub use self::value::Secret;
pub(crate) use self::value::Size;
pub use crate::tenants::KnownToken;

/// The text of `config.example.toml`: every key with its default and its meaning.
pub const EXAMPLE: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../config.example.toml"));

/// A configuration, and warnings for its operator, to be logged once logging works.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// The settings.
    pub config: Config,
    /// Odd settings, in the order in which they were found.
    pub warnings: Vec<Warning>,
}

impl Config {
    /// Merges the layers and checks the result.
    ///
    /// `env` is the environment as a map, usually `std::env::vars().collect()`. Beside it this reads only the
    /// file, the user id and current directory for [`StoreSettings::root`], and whether there is a file of
    /// tokens.
    ///
    /// # Errors
    /// If the file cannot be read or is not TOML, a key is unknown, has the wrong type or a value out of its
    /// bounds, a variable or flag cannot be parsed, or the settings contradict each other. Each error is one
    /// line that names the key, the origin of its value, and what it takes.
    pub fn load(
        file: Option<&Path>,
        env: &BTreeMap<String, String>,
        flags: &Overrides,
    ) -> Result<Loaded, ConfigError> {
        let text = file.map(|path| layers::read(path).map(|text| (path, text))).transpose()?;
        let text = text.as_ref().map(|(path, text)| (*path, text.as_str()));
        let root = rustix::process::geteuid().is_root();
        let mut loaded = Self::from_layers(text, env, flags, root)?;
        loaded.warnings.extend(file.and_then(|path| layers::exposed_secret(path, text.map_or("", |t| t.1))));
        loaded.warnings.extend(loaded.config.http.tls.as_ref().and_then(|tls| layers::exposed_key(&tls.key)));
        Ok(loaded)
    }

    /// The same without idle containers: for a daemon with a single caller.
    #[must_use]
    pub fn without_idle(mut self) -> Self {
        self.pool = self.pool.without_idle();
        self.runners.values_mut().for_each(|runner| runner.idle = None);
        self.coding_agents.idle = Some(0);
        self
    }

    fn from_layers(
        file: Option<(&Path, &str)>,
        env: &BTreeMap<String, String>,
        flags: &Overrides,
        root: bool,
    ) -> Result<Loaded, ConfigError> {
        let mut warnings = Vec::new();
        let mut layers = Layers::defaults()?;
        if let Some((path, text)) = file {
            layers.overlay(path, text)?;
        }
        env::apply(&mut layers, env, &mut warnings)?;
        flags.apply(&mut layers)?;
        let raw = layers.raw()?;
        let config = check::Checker::new(&layers, env, root, &mut warnings).config(raw)?;
        Ok(Loaded { config, warnings })
    }
}
